"""PostgreSQL as an engine: a server of our own counts, and its log shows that no row left it."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import Domain, LevelGroups, encode_column, id_text
from synthdp.errors import DataError
from synthdp.privacy import read_query
from synthdp.privacy.engines import on_sql
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.privacy.engines.statements import POSTGRESQL
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import count_tables
from synthdp.spec.model import Categorical, SqlSource
from tests.builders import build_spec
from tests.fire.postgres import Server
from tests.privacy.engines import test_counts as counts
from tests.privacy.engines.tables import (
    COLUMNS,
    DOMAIN,
    NUMBER,
    ROW,
    ROWS,
    SPEC,
    coded,
    reading_of,
    rows,
    same,
)
from tests.privacy.engines.test_values import LONG

pytestmark = pytest.mark.check

TYPES = {"string": "text", "large_string": "varchar", "bool": "boolean", "int64": "bigint"}
TYPES |= {"int32": "integer", "uint8": "smallint", "float": "real", "double": "double precision"}
TYPES |= {"date32[day]": "date", "timestamp[us]": "timestamp", "timestamp[ms]": "timestamp"}
TYPES |= {"decimal128(20, 2)": "numeric(20, 2)"}
EXACT = "exact"
WHOLE = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select * from t")
PEOPLE = {"sex": "text", "age": "integer", "ward": "text", "id": "text"}
OWN = Domain.from_spec({**SPEC, EXACT: build_spec({"n": coded(NUMBER, "0.1")}).columns["n"]})
JOINED = Domain((DOMAIN[ROW], *OWN.columns))


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    """It writes every statement into its log."""
    server.run("ALTER SYSTEM SET log_statement = 'all'")
    server.run("SELECT pg_reload_conf()")
    return server


def filled(server: Server, name: str, columns: dict[str, str], values: list[dict[str, Any]]) -> str:
    """The URL of a new database with one table."""
    url = server.new_database()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        connection.exec_driver_sql(f"CREATE TABLE {name} ({listed})")
        places = ", ".join(f"%(c{i})s" for i in range(len(columns)))
        for row in values:
            own = {f"c{i}": value for i, value in enumerate(row.values())}
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({places})", own)
    engine.dispose()
    return url


def kinds() -> dict[str, str]:
    own = {n: TYPES[str(kind)] for n, (_, kind) in COLUMNS.items()}
    return {ROW: "integer", **own, EXACT: "numeric"}


def check(server: Server, values: dict[str, list[Any]], exact: list[Any]) -> None:
    own = {ROW: list(range(ROWS)), **{n: values[n] for n in SPEC}}
    own[EXACT] = exact
    listed = [dict(zip(own, row, strict=True)) for row in zip(*own.values(), strict=True)]
    url = filled(server, "t", kinds(), listed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_DB_URL", url)
        engine = SqlEngine(WHOLE, reading_of(JOINED), list, Path())
        tables = [(ROW, name) for name in OWN.names]
        found, survey = engine.count(LevelGroups(JOINED, {}), tables), engine.survey()
    reader = sa.create_engine(url)
    with reader.connect() as connection:  # as `readers.query` gives the driver's own objects
        read = [tuple(row) for row in connection.exec_driver_sql("select * from t")]
    reader.dispose()
    objects = dict(zip(own, zip(*read, strict=True), strict=True))
    encoded = [
        encode_column(c, pd.Series(list(objects[c.name]), dtype=object)) for c in JOINED.columns
    ]
    wanted = count_tables(np.column_stack([e.codes for e in encoded]), JOINED, tables)
    wrong = {
        (name, repr(own[name][row]), int(a[row].argmax()), int(b[row].argmax()))
        for (_, name), a, b in zip(tables, found, wanted, strict=True)
        for row in np.flatnonzero((a != b).any(axis=1))
    }
    assert not wrong
    told = [[e.wrong_type, e.outside, e.unexpected_missing] for e in encoded]
    assert survey.misfits.tolist() == told


def without_nul(values: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """PostgreSQL holds no text with the character 0."""
    return {
        name: [v.replace("\0", "") if isinstance(v, str) else v for v in own]
        for name, own in values.items()
    }


EXACTS = st.lists(
    st.none()
    | st.sampled_from([Decimal(t) for t in ("0.1", "0.10", "-1.5", "2.5", "NaN", "0", "-0.0")])
    | st.decimals(-3, 3, places=3),
    min_size=ROWS,
    max_size=ROWS,
)


@settings(LONG, max_examples=5, derandomize=True)
@given(values=rows().map(without_nul), exact=EXACTS)
def test_every_value_has_the_level_that_it_has_in_memory(
    server: Server, values: dict[str, list[Any]], exact: list[Any]
) -> None:
    check(server, values, exact)


@pytest.mark.slow
@settings(LONG, max_examples=200)
@given(values=rows().map(without_nul), exact=EXACTS)
def test_every_value_has_the_level_that_it_has_in_memory_at_length(
    server: Server, values: dict[str, list[Any]], exact: list[Any]
) -> None:
    check(server, values, exact)


@pytest.mark.parametrize("shown", [-15, 0, 1, 3])
def test_numbers_of_32_bits_are_those_of_their_digits(
    server: Server, monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    """Whatever a database prints of them by itself: two of these have more than six digits."""
    texts = ("0.1", "0.1234567", f"1{'0' * 22}", "1e-45", "16777216")
    domain = Domain.from_spec({"v": Categorical(type="categorical", categories=texts)})
    url = filled(server, "t", {"v": "real"}, [{"v": float(t)} for t in texts])
    server.run(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET extra_float_digits = {shown}")
    monkeypatch.setenv("TEST_DB_URL", url)
    source = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select v from t")
    engine = SqlEngine(source, reading_of(domain), list, Path())
    (found,) = engine.count(LevelGroups(domain, {}), [("v",)])
    assert found.tolist() == [1, 1, 1, 1, 1]
    assert engine.survey().misfits.tolist() == [[0, 0, 0]]
    sample = engine.sample(1.0, Streams.fresh())
    assert sorted(sample[:, 0].tolist()) == [0, 1, 2, 3, 4]
    frame = read_query(source, folder=Path(), check=list, check_rows=float)
    assert sorted(frame["v"]) == sorted(float(t) for t in texts), "read into memory"


LARGEST, LEAST = 2**1024 - 2**970, Decimal(f"{5**1075}e-1075")  # whose nearest of 64 bits changes
STRANGE: dict[str, tuple[Any, list[str]]] = {
    "numeric": (
        {"type": "number", "lower": -5, "upper": 5, "bins": 5, "spikes": [0], "missing": True},
        ["1", "NaN", "1e400", "-1e400", str(LARGEST), str(LARGEST - 1), "1e-400"]
        + [f"{LEAST:f}", f"-{LEAST:f}", f"{LEAST:f}1"],
    ),
    "date": (
        {"type": "datetime", "lower": "2020-01-01", "upper": "2021-01-01", "bins": 5},
        ["2020-05-01", "10000-01-01", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    ),
    "timestamp": (
        {"type": "datetime", "lower": "2020-01-01", "upper": "2021-01-01", "bins": 5},
        ["2020-05-01 12:00:00.5", "infinity", "-infinity", "0044-03-15 12:00 BC", "294276-12-31"],
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("style", ["ISO, MDY", "German", "SQL, DMY", "Postgres, MDY"])
def test_no_value_is_an_error_of_all_rows(
    server: Server, monkeypatch: pytest.MonkeyPatch, kind: str, style: str
) -> None:
    """Not those that Python or numbers of 64 bits lack either: each is read by itself, and the
    database and memory have one level and one misfit of it.
    """
    declared, texts = STRANGE[kind]
    domain = Domain.from_spec(build_spec({"v": declared}).columns)
    (column,) = domain.columns
    url = filled(server, "t", {"n": "integer", "v": kind}, [])
    server.run(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET datestyle = '{style}'")
    database = url.rsplit("/", 1)[1]
    for n, text in enumerate(texts):
        server.run(f"INSERT INTO t VALUES ({n}, '{text}')", database=database)
    monkeypatch.setenv("TEST_DB_URL", url)
    source = WHOLE.model_copy(update={"query": "select v from t order by n"})
    values = read_query(source, folder=Path(), check=list, check_rows=float)["v"]
    engine = SqlEngine(source, reading_of(domain), list, Path())
    (found,), survey = engine.count(LevelGroups(domain, {}), [("v",)]), engine.survey()
    own = encode_column(column, values)
    assert found.tolist() == np.bincount(own.codes, minlength=column.levels).tolist()
    assert survey.misfits.tolist() == [[own.wrong_type, own.outside, own.unexpected_missing]]
    assert own.wrong_type == 0
    assert kind == "numeric" or len({id_text(value) for value in values}) == len(texts)
    alone = [encode_column(column, values[i : i + 1]).codes[0] for i in range(len(texts))]
    assert alone == own.codes.tolist()


def test_no_row_leaves_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own log: what reads the table is grouped, or one row of sums, or takes no row."""
    table = counts.people(900, ids=120)
    url = filled(server, "t", PEOPLE, table.to_pylist())
    monkeypatch.setenv("TEST_DB_URL", url)
    before = len(log_of(server))
    plain = LevelGroups(counts.DOMAIN, {})
    whole = SqlEngine(WHOLE, reading_of(counts.DOMAIN), list, Path())
    assert same(
        whole.count(plain, counts.TABLES), counts.expected(counts.DOMAIN, table, counts.TABLES)
    )
    bounded = SqlEngine(WHOLE, reading_of(counts.DOMAIN, "id", 3), list, Path())
    wanted = counts.expected(counts.DOMAIN, counts.kept(table, 3), counts.TABLES)
    assert same(bounded.count(plain, counts.TABLES), wanted) and whole.survey().rows == 900
    assert bounded.survey().without_id == 0
    said = [line for line in log_of(server)[before:] if "from t" in line]
    assert len(said) == 6, "two without a row, two GROUP BYs, two surveys"
    for line in said:
        assert (
            line.endswith("synthdp_query LIMIT 0")
            or "GROUP BY GROUPING SETS" in line
            or "SELECT count(*), sum(" in line
            or "SELECT count(*), 0, sum(" in line
        )
    assert not any("insert" in line.lower() or "copy" in line.lower() for line in said)


def log_of(server: Server) -> list[str]:
    text = (Path(server.folder) / "log").read_text(errors="replace").replace("\n\t", " ")
    return [line for line in text.splitlines() if "statement: " in line or "execute " in line]


def test_a_sample_is_of_whole_units(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels alone leave the server, of those units whose coins are drawn."""
    table = counts.people(300, ids=60)
    monkeypatch.setenv("TEST_DB_URL", filled(server, "t", PEOPLE, table.to_pylist()))
    monkeypatch.setattr("secrets.token_hex", lambda _: "ab" * 16)
    monkeypatch.setattr(on_sql, "POSTGRESQL", replace(POSTGRESQL, fresh=None))
    drawn = SqlEngine(WHOLE, reading_of(counts.DOMAIN, "id", 3), list, Path()).sample(
        0.4, Streams.fresh()
    )
    stay = counts.kept(table, 3)
    ids = [counts.id_text(v) for v in stay.column("id").to_pylist()]
    inside = [counts.coin("ab" * 16, unit) < counts.limit(0.4) for unit in ids]
    wanted = counts.levels_of(counts.DOMAIN, stay)[inside]
    assert sorted(map(tuple, drawn.tolist())) == sorted(map(tuple, wanted.tolist()))


def test_no_log_tells_who_is_in_a_sample(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log has the parameters of statements. With the key of the coins among them, each unit's
    coin could be tossed again. Samples are of whole units; that eight of them have nobody, or
    everybody, has probability 2^-159; that all are one sample, as of one key, has 2^-140.
    """
    listed = [{"sex": "f", "age": 20, "ward": f"w{i % 20}", "id": f"p{i % 20}"} for i in range(100)]
    monkeypatch.setenv("TEST_DB_URL", filled(server, "t", PEOPLE, listed))
    engine = SqlEngine(WHOLE, reading_of(counts.DOMAIN, "id", 64), list, Path())
    log, drawn, samples = Path(server.folder) / "log", np.zeros(20, dtype=np.int64), set()
    for _ in range(8):
        before = len(log.read_bytes())
        wards = np.bincount(engine.sample(0.5, Streams.fresh())[:, 2], minlength=20)
        assert set(wards.tolist()) <= {0, 5}
        said = log.read_bytes()[before:].decode(errors="replace")
        assert "gen_random_uuid" in said
        for key in set(re.findall(r"[0-9a-f]{32}", said)):
            tossed = [counts.coin(key, f"p{i}") < counts.limit(0.5) for i in range(20)]
            assert tossed != (wards == 5).tolist()
        drawn += wards
        samples.add(wards.tobytes())
    assert 0 < drawn.sum() < 800 and len(samples) > 1


@settings(LONG, max_examples=5, derandomize=True)
@given(counts.IDS.map(lambda ids: [v and v.replace("\0", "") for v in ids]))
def test_ids_are_compared_as_in_memory(server: Server, ids: list[str | None]) -> None:
    url = filled(
        server,
        "t",
        {"row": "integer", "id": "text"},
        [{"row": i, "id": v} for i, v in enumerate(ids)],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_DB_URL", url)
        counts.check_ids(
            SqlEngine(WHOLE, reading_of(counts.WITH_ROW, "id", 1), list, Path()), ids, 1
        )


@pytest.mark.parametrize("kind", ["char(3)", "timestamptz", "jsonb"])
def test_types_that_are_not_proved_are_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("TEST_DB_URL", filled(server, "t", {"v": kind}, []))
    domain = Domain.from_spec({"v": Categorical(type="categorical", categories=("a",))})
    source = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select v from t")
    with pytest.raises(DataError, match="not proved to read them"):
        SqlEngine(source, reading_of(domain), list, Path())


@pytest.mark.parametrize(
    ("shown", "says"), [(("UTF8", "120022"), "PostgreSQL 13"), (("LATIN1", "150004"), "LATIN1")]
)
def test_a_server_that_cannot_count_is_refused_before_anything_is_spent(
    shown: tuple[str, str], says: str
) -> None:
    class Fake:
        def execute(self, _: Any) -> Any:
            return self

        def one(self) -> tuple[str, str]:
            return shown

    with pytest.raises(DataError, match=says):
        on_sql._check_server(Fake())  # type: ignore[arg-type]
