"""The same table has the same counts in every engine, and the same rows of each id stay."""

import hashlib
import itertools
import sqlite3
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthdp.data import Domain, LevelGroups, id_text
from synthdp.errors import BoundaryError, DataError
from synthdp.privacy import engines as bounding
from synthdp.privacy.engines import (
    Engine,
    EngineTable,
    Reading,
    check_names,
    coin,
    kept_rows,
    limit,
    on_dask,
    place,
)
from synthdp.privacy.engines.on_arrow import ArrowEngine, summed
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.privacy.engines.opening import find_parts, stamps_of
from synthdp.privacy.engines.statements import SPACES
from synthdp.privacy.noise import Streams
from synthdp.spec.model import Categorical, Integer, ParquetSource, SqlSource
from tests.privacy.engines.tables import Here, expected, levels_of, reading_of, same, write

DOMAIN = Domain.from_spec(
    {
        "sex": Categorical(type="categorical", categories=("f", "m"), missing=True),
        "age": Integer(type="integer", lower=0, upper=99, bins=9),
        "ward": Categorical(type="categorical", categories=tuple(f"w{i}" for i in range(20))),
    }
)
GROUPS = LevelGroups(DOMAIN, {"age": (0, 2, 5)})
TABLES = [("sex",), ("sex", "age"), ("ward", "sex", "age"), ("age",)]
KEY = "0f" * 16


def people(rows: int, *, ids: int) -> pa.Table:
    """Rows of ids of up to a dozen rows, many of them equal; ids are written in several ways."""
    rng = np.random.default_rng(5)
    number = rng.integers(0, ids, rows)
    forms = [str, "0{}".format, " {}".format, "{}.0".format, "+{}\t".format, "p{}".format]
    return pa.table(
        {
            "sex": pa.array(rng.choice(["f", "m", None], rows)),
            "age": pa.array(rng.integers(20, 80, rows) // 20 * 20),
            "ward": pa.array([f"w{n}" for n in rng.integers(0, 20, rows)]),
            "id": pa.array(
                [forms[i](n) for i, n in zip(rng.integers(0, 6, rows), number, strict=True)]
            ),
        }
    )


def table_in_sqlite(table: pa.Table, file: Path, monkeypatch: pytest.MonkeyPatch) -> SqlSource:
    names = ", ".join(f'"{name.replace(chr(34), 2 * chr(34))}"' for name in table.column_names)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"create table t ({names})")
        marks = ", ".join("?" * len(table.column_names))
        rows = list(zip(*table.to_pydict().values(), strict=True))
        connection.executemany(f"insert into t values ({marks})", rows)
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{file}")
    return SqlSource(kind="sql", url_env="TEST_DB_URL", query="select * from t")


def sqlite_engine(
    table: pa.Table, folder: Path, monkeypatch: pytest.MonkeyPatch, reading: Reading
) -> SqlEngine:
    source = table_in_sqlite(table, folder / "s.db", monkeypatch)
    return SqlEngine(source, reading, list, Path())


def kept(table: pa.Table, most: int) -> pa.Table:
    """The rows that stay, by the definition."""
    ids = np.array([id_text(v) for v in table.column("id").to_pylist()], dtype=object)
    return table.filter(pa.array(kept_rows(ids, levels_of(DOMAIN, table), max_rows=most, key=KEY)))


def test_engines_count_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(900, ids=200)
    (tmp_path / "t" / "year=2024").mkdir(parents=True)
    write(table, tmp_path / "t" / "year=2024", files=5, rows_of_group=40)
    parts, reading = find_parts("t", tmp_path), reading_of(DOMAIN)
    engines: list[Engine] = [
        ArrowEngine(reading, parts, threads=2),
        Here(reading, parts, 900),
        sqlite_engine(table, tmp_path, monkeypatch, reading),
    ]
    plain = LevelGroups(DOMAIN, {})
    for engine in engines:
        assert same(engine.count(plain, TABLES), expected(DOMAIN, table, TABLES))
        assert same(engine.count(GROUPS, TABLES), engines[0].count(GROUPS, TABLES))
        assert engine.survey().rows == 900 and engine.survey().without_id == 0


def test_a_file_or_row_group_without_rows_is_no_part(tmp_path: Path) -> None:
    """A sample of it failed, after the charge; it is there or not by how many rows there are."""
    table = people(90, ids=9)
    with pq.ParquetWriter(tmp_path / "0.parquet", table.schema) as file:
        for piece in (table.slice(0, 0), table, table.slice(0, 0)):
            file.write_table(piece)
    pq.write_table(table.slice(0, 0), tmp_path / "1.parquet")
    counted = ArrowEngine(reading_of(DOMAIN), find_parts(".", tmp_path))
    plain = LevelGroups(DOMAIN, {})
    assert same(counted.count(plain, TABLES), expected(DOMAIN, table, TABLES))
    assert np.array_equal(counted.sample(1.0, Streams.fresh()), levels_of(DOMAIN, table))
    assert counted.sample(0.0, Streams.fresh()).shape == (0, 3)


def test_the_same_rows_of_each_id_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, reading = people(900, ids=120), reading_of(DOMAIN, "id", 3)
    write(table, tmp_path, files=4)
    parts, plain = find_parts("*.parquet", tmp_path), LevelGroups(DOMAIN, {})
    wanted = expected(DOMAIN, kept(table, 3), TABLES)
    assert 300 < wanted[0].sum() < 600
    for engine in (
        Here(reading, parts, 900),
        sqlite_engine(table, tmp_path, monkeypatch, reading),
    ):
        assert same(engine.count(plain, TABLES), wanted)
    monkeypatch.setattr(on_dask, "SHARD_ROWS", 200)
    sharded = Here(reading, parts, 900)
    assert same(sharded.count(plain, TABLES), wanted)
    assert len(sharded.sample(1.0, Streams.fresh())) == wanted[0].sum()
    with pytest.raises(DataError, match="dask, which brings"):
        ArrowEngine(reading, parts)


def test_a_window_over_all_rows_of_an_id_is_seen_to_be_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falsifier: without the window's order by key, or with one by another id, counts differ."""
    table = people(900, ids=120)
    engine = sqlite_engine(table, tmp_path, monkeypatch, reading_of(DOMAIN, "id", 3))
    wanted = expected(DOMAIN, kept(table, 3), TABLES)
    for wrong in ("CAST(j AS TEXT)", "synthdp_sha256(synthdp_l0 || synthdp_u)"):
        with monkeypatch.context() as patch:
            patch.setattr(
                "synthdp.privacy.engines.statements.Statement.place",
                lambda _, key, columns, wrong=wrong: f"{wrong} || substr({key}, 1, 0)",
            )
            assert not same(engine.count(LevelGroups(DOMAIN, {}), TABLES), wanted)


Listed = list[tuple[str, int, float]]  # ids, levels and numbers of rows
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["u", "v", "w"]), st.integers(0, 2), st.sampled_from([0.0, 1.5, 2.0])
    ),
    max_size=24,
)


@pytest.mark.check
@pytest.mark.parametrize("with_numbers", [False, True])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_what_stays_of_one_id_is_a_function_of_its_own_rows(
    with_numbers: bool, shared: Listed, own: Listed, order: Any
) -> None:
    """A unit more changes nothing of others, wherever it stands, and adds at most `max_rows`."""

    def stays(rows: Listed) -> Counter[tuple[str, int, float]]:
        ids = np.array([u for u, _, _ in rows], dtype=object)
        codes = np.array([[level, 0] for _, level, _ in rows], dtype=np.uint16).reshape(-1, 2)
        numbers = np.array([[x] for _, _, x in rows]).reshape(-1, 1) if with_numbers else None
        kept = kept_rows(ids, codes, max_rows=2, key=KEY, numbers=numbers)
        told = [row if with_numbers else (*row[:2], 0.0) for row in rows]
        return Counter(row for row, stay in zip(told, kept, strict=True) if stay)

    more = [*shared, *(("new", level, x) for _, level, x in own)]
    order.shuffle(more)
    before, after = stays(shared), stays(more)
    assert Counter({row: n for row, n in after.items() if row[0] != "new"}) == before
    assert sum(n for row, n in after.items() if row[0] == "new") == min(2, len(own))
    assert after == stays(sorted(more))


def test_a_tie_that_another_id_breaks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falsifier: a place that depends on where the row stands."""
    ids, codes = np.array(["u"] * 3, dtype=object), np.array([[0], [1], [2]], dtype=np.uint16)

    def stays() -> list[set[int]]:
        return [
            set(own[kept_rows(ids, own, max_rows=2, key=KEY)].ravel().tolist())
            for own in (codes, codes[::-1])
        ]

    one, other = stays()
    assert one == other and len(one) == 2
    places = itertools.count()
    monkeypatch.setattr(bounding, "place", lambda *_: f"{next(places):04d}")
    one, other = stays()
    assert one != other


def test_every_row_of_an_id_is_as_likely_to_stay() -> None:
    """Nine equal rows and another: it stays as one of ten does; with these keys 108 of 1,000."""
    ids, codes = np.array(["u"] * 10, dtype=object), np.array([[0]] * 9 + [[1]], dtype=np.uint16)
    stayed = [kept_rows(ids, codes, max_rows=1, key=f"{key:032x}")[9] for key in range(1000)]
    assert 70 <= sum(stayed) <= 130


def test_places_and_coins_are_those_that_statements_ask_for() -> None:
    assert place("k", 2, [0, 1], "u") == hashlib.sha256(b"k|2|0,1|u").hexdigest()
    assert coin("k", "u") == hashlib.sha256(b"k|u").hexdigest()[:15]
    assert limit(0.5) == "8" + "0" * 14 and limit(1.0) > "f" * 15 and limit(0.0) == "0" * 15


def test_a_sample_takes_units_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At rate .4 of 120 units, 20 to 75: outside with probability below 1e-6; coins are fixed."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "ab" * 16)
    table, reading = people(900, ids=120), reading_of(DOMAIN, "id", 3)
    write(table, tmp_path)
    parts = find_parts(".", tmp_path)
    stay = kept(table, 3)
    ids = [id_text(v) for v in stay.column("id").to_pylist()]
    drawn = stay.filter(pa.array([coin("ab" * 16, unit) < limit(0.4) for unit in ids]))
    wanted = sorted(map(tuple, levels_of(DOMAIN, drawn).tolist()))
    sqlite = sqlite_engine(table, tmp_path, monkeypatch, reading)
    for engine in (Here(reading, parts, 900), sqlite):
        assert sorted(map(tuple, engine.sample(0.4, Streams.fresh()).tolist())) == wanted
    assert 0 < len(wanted) < len(ids)


def test_a_table_of_an_engine_gives_levels_and_no_values(tmp_path: Path) -> None:
    table = people(300, ids=50)
    write(table, tmp_path, files=3)
    parts = find_parts(".", tmp_path)
    wanted = sorted(map(tuple, levels_of(DOMAIN, table).tolist()))
    for engine in (ArrowEngine(reading_of(DOMAIN), parts), Here(reading_of(DOMAIN), parts, 300)):
        own = EngineTable(engine, {})
        assert sorted(map(tuple, own.fit_codes.tolist())) == wanted and repr(own) == "<Table>"
        few = own.sampled_codes(0.5, Streams.fresh())
        assert 90 < len(few) < 210, "outside with probability below 1e-10"
        for name in ("codes", "frame", "held_out"):
            with pytest.raises(BoundaryError, match="keeps no values"):
                getattr(own, name)
    arrow = ArrowEngine(reading_of(DOMAIN), parts)
    assert np.array_equal(arrow.sample(1.0, Streams.fresh()), levels_of(DOMAIN, table))


def test_a_part_that_is_added_twice_is_seen(tmp_path: Path) -> None:
    """Falsifier of the sum over parts."""
    table = people(300, ids=50)
    write(table, tmp_path, files=3)
    engine = ArrowEngine(reading_of(DOMAIN), find_parts(".", tmp_path))
    wanted = expected(DOMAIN, table, TABLES)
    assert same(engine.count(LevelGroups(DOMAIN, {}), TABLES), wanted)
    twice = summed(iter([[w.copy() for w in wanted], [w.copy() for w in wanted]]))
    assert not same(twice, wanted)


SPELLINGS = (
    *("1", "1.0", " 1", "01", "+1", "-1", "-01.00", "-0", "0", "00", "+0.", "1.", ".0", "1.0.0"),
    *("++1", "1.01", "1e0", "A1", "a1", "\u00a0a1\u2003", "\x1ca1\x85", "\u200ba1", "١", "", " "),
    *("é", "e\u0301", "ß", "1\n", "1\n.0", "'; --", "%", "_", "\\", "0.0", "-", "+", "-a"),
)
WITH_ROW = Domain.from_spec({"row": Integer(type="integer", lower=0, upper=63, bins=64)})
IDS = st.lists(
    st.none() | st.sampled_from(SPELLINGS) | st.text(st.characters(codec="utf-8"), max_size=3),
    min_size=64,
    max_size=64,
)


def check_ids(engine: Engine, ids: list[str | None], most: int) -> None:
    """Which rows stay says which ids are one; the survey says which are none."""
    texts = np.array(["" if v is None else id_text(v) for v in ids], dtype=object)
    codes = np.arange(64, dtype=np.uint16)[:, None]
    wanted = np.bincount(
        np.flatnonzero(kept_rows(texts, codes, max_rows=most, key=KEY)), minlength=64
    )
    (found,) = engine.count(LevelGroups(WITH_ROW, {}), [("row",)])
    assert found.tolist() == wanted.tolist()
    assert engine.survey().without_id == int((texts == "").sum())


@pytest.mark.check
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(IDS)
def test_ids_are_compared_as_in_memory(ids: list[str | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"row": pa.array(range(64)), "id": pa.array(ids, pa.string())})
        write(table, Path(folder))
        parts = find_parts(".", Path(folder))
        check_ids(Here(reading_of(WITH_ROW, "id", 1), parts, 64), ids, 1)


def test_white_space_is_what_python_takes_off() -> None:
    assert set(SPACES) == {chr(i) for i in range(sys.maxunicode + 1) if chr(i).isspace()}


STRANGE = [
    *("u", "l0", "j", 'a"b', "select", "$v0", ":x", ":synthdp_0", "c0", "a\\:b", "%(q)s %s", "[c]"),
    *("{0}`", "b' OR 1=1) DROP TABLE t", 'a"; DROP TABLE t; --', "table", "ä b", "\\", "'"),
]


def test_strange_names_of_columns_are_read_and_ambiguous_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain.from_spec(
        {n: Integer(type="integer", lower=0, upper=9, bins=10) for n in STRANGE}
    )
    rng = np.random.default_rng(4)
    table = pa.table({n: pa.array(rng.integers(0, 10, 50)) for n in STRANGE})
    source = table_in_sqlite(
        table.append_column("id", pa.array(range(50))), tmp_path / "s.db", monkeypatch
    )
    tables = [(n,) for n in STRANGE]
    for own in (reading_of(domain), reading_of(domain, "id", 1)):
        engine = SqlEngine(source, own, list, Path())
        assert same(engine.count(LevelGroups(domain, {}), tables), expected(domain, table, tables))
        assert engine.survey().misfits.sum() == 0
    for pair in (["A", "a"], ["synthdp_l0", "b"]):
        with pytest.raises(DataError, match="cannot tell"):
            check_names(pair)


def test_an_engine_that_breaks_off_quotes_nothing(tmp_path: Path) -> None:
    write(people(300, ids=50), tmp_path, files=3)
    table = EngineTable(ArrowEngine(reading_of(DOMAIN), find_parts(".", tmp_path)), {})
    (tmp_path / "01.parquet").write_text("canary-4711" * 9)
    for ask in (
        lambda: table.count(LevelGroups(DOMAIN, {}), TABLES),
        lambda: table.sampled_codes(0.5, Streams.fresh()),
    ):
        with pytest.raises(DataError, match="the engine broke off") as caught:
            ask()
        assert "canary" not in str(caught.value)
        assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert table.count(LevelGroups(DOMAIN, {}), []) == []


# --- addresses ---


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of files of `tmp_path` on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_files_at_an_address(server: str, tmp_path: Path) -> None:
    table = people(300, ids=50)
    (tmp_path / "t").mkdir()
    write(table, tmp_path / "t", files=3)
    wanted, plain = expected(DOMAIN, table, TABLES), LevelGroups(DOMAIN, {})
    for path in (f"{server}/t/*.parquet", f"{server}/t/"):
        engine = ArrowEngine(reading_of(DOMAIN), find_parts(path, tmp_path))
        assert len(engine.parts.parts) == 3 and same(engine.count(plain, TABLES), wanted)
        assert server not in repr(engine.parts)
    one = ArrowEngine(reading_of(DOMAIN), find_parts(f"{server}/t/00.parquet", tmp_path))
    assert one.survey().rows == 100
    with pytest.raises(FileNotFoundError):
        find_parts(f"{server}/none.parquet", tmp_path)
    source = ParquetSource(kind="parquet", path=f"{server}/t/")
    first = stamps_of(source, tmp_path)
    assert len(set(first)) == 3 and stamps_of(source, tmp_path) == first
    write(people(200, ids=50), tmp_path / "t", files=3)
    assert not set(stamps_of(source, tmp_path)) & set(first)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="need the packages fsspec and gcsfs") as caught:
        find_parts("gs://bucket/secret-name.parquet", tmp_path)
    assert "secret-name" not in str(caught.value)
