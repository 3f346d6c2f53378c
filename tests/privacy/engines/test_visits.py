"""Persons with visits that Arrow reads part by part, or a database by a window: the rows of each
view are those in memory, and those of a plain walk through the rows; whatever the parts, the order
of rows and the other rows.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from benchmarks.linked_engines import spec_text, write_tables
from synthdp.data import OUTER, PERSONS, SECOND, STEPS, LevelGroups, VisitFrame, id_text
from synthdp.errors import DataError
from synthdp.privacy import LinkedTable, read_linked
from synthdp.privacy.engines import on_arrow, on_sql, on_visits, opening
from synthdp.privacy.engines.statements import LEVEL, NUMBER, SOURCE, UNIT, Statement
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.spec import LinkedSpec, parse_any
from tests.fire.postgres import Server
from tests.privacy.neighbours.test_in_postgres import PLANNER
from tests.visits import linked_dict

VIEWS = (PERSONS, OUTER, SECOND, STEPS)
MOST = 4
DAYS = pd.date_range("2019-12-25", "2022-01-05", freq="D")


def spec(engine: str, **more: Any) -> LinkedSpec:
    """By engine arrow, memory or sql; `stored` reads tables of a database into memory."""
    by = "memory" if engine == "stored" else engine
    content = linked_dict() | {"compute": {"engine": by, "threads": 2}} | more
    for name, table in content["dataset"]["tables"].items():
        asked = {"kind": "sql", "url_env": "TEST_DB_URL", "query": f"SELECT * FROM {name};"}
        table["source"] = (
            asked if engine in ("sql", "stored") else {"kind": "parquet", "path": name}
        )
    content["dataset"]["out_of_domain"] = "clamp"
    return LinkedSpec.model_validate(content)


SPEC = spec("arrow")
FRAME = VisitFrame.from_spec(SPEC)


def ids(kind: str, numbers: np.ndarray, rng: np.random.Generator) -> pa.Array:
    """Ids of a kind: the same numbers are the same persons, however they are written."""
    if kind == "text":
        forms = ("{}", " {}", "0{}", "{}.0", "+{}")
        return pa.array([forms[rng.integers(5)].format(n) for n in numbers])
    if kind == "words":
        return pa.array([f"p{n}" for n in numbers])
    if kind == "decimal":
        return pa.array([Decimal(f"{n}.0") for n in numbers])
    return pa.array(numbers).cast(kind)


def made(
    seed: int, *, persons: int = 40, kinds: tuple[str, str] = ("text", "text")
) -> dict[str, pa.Table]:
    """Random tables: few dates, so that there are ties; dates that are none; visits of nobody;
    persons without visits, with one row or two, or with more visits than are kept.
    """
    rng = np.random.default_rng(seed)
    own = np.concatenate([np.arange(persons), rng.integers(0, persons, 5)])
    theirs = rng.integers(0, persons + 6, 6 * persons)
    theirs[theirs % 7 == 3] += 1
    day = [str(DAYS[i].date()) for i in rng.choice(len(DAYS), 25)]
    texts = [*day, "2020-13-45", "soon", "", None]
    several = len(own)
    table = pa.table(
        {
            "id": ids(kinds[0], own, rng),
            "sex": pa.array(rng.choice(["F", "M", "?"], several, p=[0.5, 0.45, 0.05])),
            "birth": pa.array(
                [dt.date(1950 + int(y), 1, 1) for y in rng.integers(-30, 55, several)]
            ),
            "death": pa.array([texts[i] for i in rng.integers(0, len(texts), several)]),
        }
    )
    visits = pa.table(
        {
            "id": ids(kinds[1], theirs, rng),
            "date": pa.array([texts[i] for i in rng.integers(0, len(texts), len(theirs))]),
            "stage": pa.array([str(s) for s in rng.integers(0, 4, len(theirs))]),
            "bp": pa.array(rng.choice([90.0, 120.0, 300.0, np.nan, 99.5], len(theirs))),
            "drug": pa.array(rng.random(len(theirs)) < 0.5),
        }
    )
    return {"persons": table, "visits": visits}


def write(
    tables: dict[str, pa.Table], folder: Path, *, rng: np.random.Generator, files: int = 1
) -> None:
    """Each table in a folder of files, and in a database, its rows in any order."""
    for name, table in tables.items():
        (folder / name).mkdir(exist_ok=True)
        for old in (folder / name).iterdir():
            old.unlink()
        mixed = table.take(pa.array(rng.permutation(len(table))))
        cuts = np.linspace(0, len(mixed), files + 1).astype(int)
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            pq.write_table(mixed.slice(a, b - a), folder / name / f"{i}.parquet", row_group_size=17)
        store(name, mixed)


TYPES = {"string": "text", "bool": "boolean", "double": "double precision", "int64": "bigint"}
TYPES |= {"date32[day]": "date", "int32": "integer", "timestamp[us]": "timestamp"}


def store(name: str, table: pa.Table) -> None:
    """A table of the database of `TEST_DB_URL`; SQLite gets values of no declared type."""
    engine, cells = sa.create_engine(os.environ["TEST_DB_URL"]), table.to_pydict()
    kinds = [TYPES.get(str(kind), "") for kind in table.schema.types]
    if engine.dialect.name == "sqlite":
        kinds = [""] * len(kinds)
        for own in cells.values():
            own[:] = map(as_stored, own)
    listed = ", ".join(f"{n} {kind}" for n, kind in zip(cells, kinds, strict=True))
    rows = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE TABLE {name} ({listed})")
        connection.execute(sa.insert(sa.table(name, *map(sa.column, cells))), rows)
        if engine.dialect.name == "postgresql":
            for column in cells:
                connection.exec_driver_sql(f"CREATE INDEX ON {name} ({column})")
            connection.exec_driver_sql(f"ANALYZE {name}")
    engine.dispose()


def as_stored(value: Any) -> Any:
    """A value as SQLite holds it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, dt.date | Decimal) else value


def read(folder: Path, engine: str, *, holdout: float = 0.0, key: int = 1) -> LinkedTable:
    streams = replace(Streams.fresh(), holdout=np.random.Generator(np.random.Philox(key=key)))
    sealed = read_linked(spec(engine), FRAME, folder=folder, holdout=holdout, streams=streams)
    return sealed.unseal(key=_KERNEL_KEY)


def rows(table: LinkedTable, view: str) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, table.views[view].codes.tolist()))


def counted(table: LinkedTable, view: str) -> list[np.ndarray]:
    """All single columns, some pairs, and one of groups of levels."""
    domain = FRAME.views[view]
    names = domain.names
    tables = [*((n,) for n in names), *itertools.pairwise(names)]
    gap = "visits.gap"
    groups = {gap: (0, 3, 9)} if gap in names else {}
    return table.views[view].count(LevelGroups(domain, groups), tables)


def same(one: LinkedTable, other: LinkedTable) -> bool:
    counts = (
        np.array_equal(a, b)
        for view in VIEWS
        for a, b in zip(counted(one, view), counted(other, view), strict=True)
    )
    alike = all(rows(one, view) == rows(other, view) for view in VIEWS)
    return alike and all(counts) and one.misfits == other.misfits


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, parts and shards of a few rows each, and a database."""
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 'visits.db'}")
    monkeypatch.setattr(on_sql, "CHUNK_ROWS", 20)
    monkeypatch.setattr(on_arrow, "BATCH_ROWS", 7)
    monkeypatch.setattr(opening, "PART_ROWS", 30)
    monkeypatch.setattr(on_visits, "CHUNK_ROWS", 9)


KINDS = [
    ("text", "text"),
    ("text", "int64"),
    ("int64", "text"),
    ("uint8", "float64"),
    ("decimal", "int32"),
    ("words", "words"),
    ("words", "int64"),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kinds", KINDS)
def test_the_views_are_those_in_memory(tmp_path: Path, seed: int, kinds: tuple[str, str]) -> None:
    write(made(seed, kinds=kinds), tmp_path, rng=np.random.default_rng(seed), files=1 + seed)
    memory = read(tmp_path, "memory")
    assert all(same(read(tmp_path, engine), memory) for engine in ("arrow", "sql", "stored"))
    some = rows(memory, STEPS).total()
    assert some == 0 if kinds == ("words", "int64") else some > 40


def test_a_key_that_is_no_text_refuses_nobody(tmp_path: Path) -> None:
    """Bytes that are not in UTF-8 are an id like others, in memory and where rows stay."""
    plain = made(0, kinds=("words", "words"))
    seen = list[LinkedTable]()
    for odd in (b"p3", b"\xff\xfe"):
        for name, table in plain.items():
            keys = [odd if text == "p3" else text.encode() for text in table["id"].to_pylist()]
            keys = pa.array(keys, pa.binary()).view(pa.string())
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(table.set_column(0, "id", keys), tmp_path / name / "0.parquet")
        seen += [read(tmp_path, engine) for engine in ("memory", "arrow")]
    assert all(same(table, seen[0]) for table in seen)


def walked(tables: dict[str, pa.Table]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The numbers of visits, the stages and the gaps of each person, by a plain walk."""

    def day(text: str | None) -> int | None:
        try:
            return (dt.date.fromisoformat(text or "") - dt.date(1970, 1, 1)).days
        except ValueError:
            return None

    known = {id_text(v.as_py()) for v in tables["persons"]["id"]}
    own: dict[str, list[tuple[Any, ...]]] = {person: [] for person in known}
    first, last = day("2020-01-01"), day("2021-12-31")
    assert first is not None and last is not None
    for row in tables["visits"].to_pylist():
        when, stage = day(row["date"]), min(int(row["stage"]), 3)
        if id_text(row["id"]) in known and when is not None:
            level = 0 if stage == 3 else stage  # no category: the first
            own[id_text(row["id"])].append((min(max(when, first), last), level))
    found: dict[str, Counter[tuple[Any, ...]]] = {"number": Counter(), "steps": Counter()}
    for visits in own.values():
        kept = sorted(visits)[:MOST]
        found["number"][len(kept),] += 1
        for (before, _), (when, stage) in itertools.pairwise(kept):
            gap = max(when - before, FRAME.step)
            found["steps"][stage, bisect_right(FRAME.gap.edges, gap) - 1] += 1
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_views_are_those_of_a_plain_walk(tmp_path: Path, seed: int) -> None:
    tables = made(seed)
    write(tables, tmp_path, rng=np.random.default_rng(seed), files=3)
    wanted, domain = walked(tables), FRAME.views[STEPS]
    number = FRAME.views[PERSONS].index("visits.number")
    places = [domain.index("visits.stage"), domain.index("visits.gap")]
    for engine in ("arrow", "sql"):
        table = read(tmp_path, engine)
        people, steps = table.views[PERSONS].codes, table.views[STEPS].codes
        assert Counter((n,) for n in people[:, number].tolist()) == wanted["number"]
        assert Counter(map(tuple, steps[:, places].tolist())) == wanted["steps"]


@pytest.mark.parametrize("seed", range(3))
def test_a_person_is_held_out_of_all_views_or_of_none_as_in_memory(
    tmp_path: Path, seed: int
) -> None:
    write(made(seed, persons=90), tmp_path, rng=np.random.default_rng(seed), files=2)
    engine = read(tmp_path, "arrow", holdout=0.4)
    assert same(engine, read(tmp_path, "memory", holdout=0.4))
    for table in (engine, read(tmp_path, "sql", holdout=0.4)):
        owners = table.views[STEPS].units
        assert owners is not None and 10 < table.held_out.sum() < 80
        assert (table.views[STEPS].held_out == table.held_out[owners]).all()


def moved(
    tmp_path: Path, engine: str, seed: int, form: Callable[[Any], Any] = dict
) -> dict[str, int]:
    """The most rows that one person more adds to each view, through files; none is taken."""
    tables, rng = form(made(seed, persons=25)), np.random.default_rng(seed)
    write(tables, tmp_path, rng=rng, files=2)
    whole, reached = read(tmp_path, engine), dict.fromkeys(VIEWS, 0)
    keys = {name: [id_text(v.as_py()) for v in t["id"]] for name, t in tables.items()}
    for out in rng.permutation(sorted({*keys["persons"]}))[:8]:
        others = {
            name: table.filter(pa.array([key != out for key in keys[name]]))
            for name, table in tables.items()
        }
        write(others, tmp_path, rng=rng, files=3)
        without = read(tmp_path, engine)
        for view in VIEWS:
            more, fewer = (
                rows(whole, view) - rows(without, view),
                rows(without, view) - rows(whole, view),
            )
            assert not fewer, (out, view)
            reached[view] = max(reached[view], more.total())
    return reached


@pytest.mark.parametrize("engine", ["arrow", "memory", "sql"])
@pytest.mark.parametrize("seed", range(3))
def test_one_person_more_adds_so_many_rows_and_moves_no_other(
    tmp_path: Path, engine: str, seed: int
) -> None:
    reached = moved(tmp_path, engine, seed)
    assert reached == {PERSONS: 1, OUTER: 1, SECOND: 1, STEPS: MOST - 1}


@pytest.mark.parametrize("engine", ["arrow", "memory"])
@pytest.mark.parametrize("seed", range(3))
def test_the_numbers_of_a_person_are_of_the_own_rows_alone_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, seed: int
) -> None:
    """Whatever the order of rows, and which visits at one time are beyond the cut."""
    monkeypatch.setattr(sys.modules[__name__], "FRAME", replace(FRAME, summed=True))

    def numbers(table: LinkedTable) -> Counter[tuple[float, ...]]:
        assert [*table.frame] == ["persons.age", "visits.number, how many", "visits.bp"]
        return Counter(map(tuple, np.hstack([table.codes, table.frame.to_numpy()]).tolist()))

    tables, rng = made(seed, persons=25), np.random.default_rng(seed)
    write(tables, tmp_path, rng=rng, files=2)
    whole = numbers(read(tmp_path, engine))
    assert whole == numbers(read(tmp_path, "memory"))
    keys = {name: [id_text(v.as_py()) for v in t["id"]] for name, t in tables.items()}
    for out in rng.permutation(sorted({*keys["persons"]}))[:8]:
        others = {
            name: table.filter(pa.array([key != out for key in keys[name]]))
            for name, table in tables.items()
        }
        write(others, tmp_path, rng=rng, files=3)
        without = numbers(read(tmp_path, engine))
        assert not without - whole and (whole - without).total() == 1


# --- in a database ---


@pytest.fixture
def postgres(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database of a server, whose planner takes the ways that need statistics."""
    monkeypatch.setenv("TEST_DB_URL", url := server.new_database())
    for setting in PLANNER:
        server.run(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET {setting}")
    return url


def typed(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The same with dates, and none where a text is no date."""
    found = dict(tables)
    for name, column in (("persons", "death"), ("visits", "date")):
        place = found[name].column_names.index(column)
        dates = pd.to_datetime(found[name][column].to_pandas(), format="%Y-%m-%d", errors="coerce")
        found[name] = found[name].set_column(place, column, pa.array(dates).cast(pa.date32()))
    return found


@pytest.mark.check
@pytest.mark.parametrize("kinds", [k for k in KINDS if not {"decimal", "float64"} & {*k}])
def test_postgresql_has_the_views_that_are_in_memory(
    postgres: str, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        write(typed(made(seed, kinds=kinds)), tmp_path, rng=rng, files=2)
        memory = read(tmp_path, "memory")
        assert all(same(read(tmp_path, engine), memory) for engine in ("arrow", "sql", "stored"))


@pytest.mark.check
def test_one_person_more_moves_no_other_in_postgresql(postgres: str, tmp_path: Path) -> None:
    """A visit of the tables without a date is not there: they are of no type but text."""
    reached = moved(tmp_path, "sql", 1, form=typed)
    assert reached == {PERSONS: 1, OUTER: 1, SECOND: 1, STEPS: MOST - 1}


EARLY, LATE = dt.date(1900, 2, 1), dt.date(2030, 5, 5)  # outside of the study
BOUND = [dt.date(2021, 12, 30), dt.date(2021, 12, 31), dt.date(2022, 1, 1), LATE, EARLY]
NONE: list[Any] = []


@pytest.mark.parametrize("engine", ["arrow", "sql", "stored"])
@pytest.mark.parametrize(
    "days",
    [
        [BOUND[0]] * MOST,
        [BOUND[0]] * (MOST + 3),
        BOUND * 2,
        [LATE, LATE, LATE, BOUND[1], BOUND[1], BOUND[2]],
        [None, None, BOUND[0], None],
        [None, None],
        NONE,
    ],
)
def test_ties_and_numbers_of_visits_at_the_cut(
    tmp_path: Path, engine: str, days: list[dt.date | None]
) -> None:
    """One person has visits at these days, and one none of all; a third is nobody's."""
    rng, tables = np.random.default_rng(len(days)), made(1, persons=3)
    shown = [*days, dt.date(2020, 5, 1), dt.date(2020, 6, 1)]
    visits = pa.table(
        {
            "id": ["0"] * len(days) + ["nobody", ""],
            "date": [None if d is None else str(d) for d in shown],
            "stage": rng.choice(["0", "1", "2"], len(shown)),
            "bp": rng.integers(80, 200, len(shown)).astype(float),
            "drug": rng.random(len(shown)) < 0.5,
        }
    )
    visits = visits.slice(0, len(shown) - 1)  # but for the one without an id, which is refused
    people = tables["persons"].slice(0, 3).set_column(0, "id", pa.array(["0", "1", "2"]))
    for _ in range(3):
        write({"persons": people, "visits": visits}, tmp_path, rng=rng, files=1)
        found = read(tmp_path, engine)
        assert same(found, read(tmp_path, "memory"))
        number = FRAME.views[PERSONS].index("visits.number")
        dated = sum(day is not None for day in days)
        numbers = sorted(found.views[PERSONS].codes[:, number].tolist())
        assert numbers == [0, 0, min(dated, MOST)]


def ordered(order: dict[str, Any], until: Any, visits: pa.Array, folder: Path) -> None:
    """Memory and the database read visits in order of a column alike."""
    tables = typed(made(2, persons=20))
    place = tables["visits"].column_names.index("date")
    tables["visits"] = tables["visits"].set_column(place, "date", visits)
    write(tables, folder, rng=np.random.default_rng(1))
    found = []
    for engine in ("sql", "stored", "memory"):
        content = spec(engine).model_dump(mode="json", exclude_none=True)
        content["columns"]["visits"]["date"] = order
        table = content["dataset"]["tables"]["visits"]
        table["until"], table["resolution"] = until, "1 day"
        content["constraints"] = []
        del table["ends"]
        own = LinkedSpec.model_validate(content)
        frame = VisitFrame.from_spec(own)
        sealed = read_linked(own, frame, folder=folder, holdout=0.0, streams=Streams.fresh())
        table = sealed.unseal(key=_KERNEL_KEY)
        found.append(({view: rows(table, view) for view in VIEWS}, table.misfits))
    assert found[0] == found[1] == found[2] and found[0][0][STEPS].total() > 20


WHOLE = {"type": "integer", "lower": -50, "upper": 90, "bins": 7}
HOURS = {"type": "datetime", "lower": "1969-12-30T05:00:00", "upper": "1970-01-05"}
HOURS |= {"resolution": "hour"}
NIGHT = dt.datetime(1969, 12, 31, 22, 59, 59, 999999)


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgres", marks=pytest.mark.check)])
@pytest.mark.parametrize(
    "kind", ["int32", "int64", "float64", "float32", "decimal", "date32", "timestamp"]
)
def test_visits_are_in_order_of_numbers_days_and_instants(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    kind: str,
) -> None:
    """Up to an end of the study below the bound: beyond it all are at one time."""
    if where == "postgres":
        request.getfixturevalue(where)
    rng = np.random.default_rng(5)
    if kind == "timestamp":
        hops = [int(n) for n in rng.integers(-(10**9), 10**10, 120) * 50]
        cells = [NIGHT + dt.timedelta(microseconds=n) for n in hops] + [None] * 3
        ordered(HOURS, "1970-01-02", pa.array(cells[-120:], pa.timestamp("us")), tmp_path)
    elif kind == "date32":
        days = [NIGHT.date() + dt.timedelta(days=int(n)) for n in rng.integers(-4, 8, 117)]
        ordered(HOURS, "1970-01-02", pa.array([None] * 3 + days, pa.date32()), tmp_path)
    else:
        numbers = rng.choice([-99.0, -50, -0.0, 0, 1, 2, 30, 60, 61, 90, 91, 2**30], 120)
        if "float" in kind:
            monkeypatch.setitem(TYPES, "float", "real")
            numbers[:9] = [np.nan, np.inf, -np.inf, 0.1, 60.5, 0.1, 2.5, 5e-324, 89.99]
        if kind == "decimal":
            monkeypatch.setitem(TYPES, "decimal128(20, 2)", "numeric(20, 2)")
            exact = [Decimal(str(n)) for n in [60.5, 60.25, -50.01, 0.1, *numbers[4:]]]
            return ordered(WHOLE, 60, pa.array(exact, pa.decimal128(20, 2)), tmp_path)
        values = numbers if "float" in kind else numbers.astype(np.int64)
        ordered(WHOLE, 60, pa.array(values.astype(kind)), tmp_path)


def test_of_a_value_only_its_level_or_date_leaves_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is bound to the statements is the spec's, whatever the rows are."""
    asked, true = list[tuple[str, Any]](), sa.Connection.execute

    def heard(self: Any, what: Any, values: Any = None, **how: Any) -> Any:
        asked.append((str(what), values))
        return true(self, what, values, **how)

    seen = []
    for seed in (1, 2):
        asked.clear()
        write(made(seed), tmp_path, rng=np.random.default_rng(1))
        with monkeypatch.context() as patch:
            patch.setattr(sa.Connection, "execute", heard)
            read(tmp_path, "sql")
        seen.append(list(asked))
    assert seen[0] == seen[1] and len(seen[0]) == 6
    windows = [text for text, _ in seen[0] if "row_number()" in text]
    assert len(windows) == 1 and windows[0].endswith(f"WHERE r <= {MOST}")


@pytest.mark.parametrize("engine", ["sql", "stored"])
def test_an_error_of_a_database_quotes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    write(made(1), tmp_path, rng=np.random.default_rng(1))

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("the secret is p17")

    for name in ("fetchmany", "fetchall", "one"):
        monkeypatch.setattr(sa.CursorResult, name, fails)
    with pytest.raises(DataError) as caught:
        read(tmp_path, engine)
    assert "p17" not in str(caught.value) and "broke off its answer" in str(caught.value)


def test_the_first_visits_are_cut_part_by_part_where_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five persons with 600 visits: what waits to be cut never is more than a few times what may
    stay.
    """
    waiting: list[int] = []
    true = on_visits.VisitRows.first

    def heard(self: Any, most: int) -> Any:
        waiting.append(len(self.owner))
        return true(self, most)

    tables = made(1, persons=5) | {"visits": made(2, persons=100)["visits"]}
    many = np.random.default_rng(3).integers(0, 5, 600)
    own = {"id": pa.array([str(n) for n in many])}
    tables["visits"] = tables["visits"].drop_columns(["id"]).append_column("id", own["id"])
    write(tables, tmp_path, rng=np.random.default_rng(1), files=4)
    monkeypatch.setattr(on_visits.VisitRows, "first", heard)
    engine = read(tmp_path, "arrow")
    assert max(waiting) <= 3 * MOST * 5 and len(waiting) > 20
    assert same(engine, read(tmp_path, "memory"))


# --- what is refused ---


def test_what_the_spec_refuses_is_refused_as_in_memory(tmp_path: Path) -> None:
    tables = made(1)
    for name, column in (("visits", "id"), ("persons", "id")):  # told before anything is cut
        cells = tables[name][column].to_pylist()
        cells[3] = None
        gone = tables[name].set_column(0, "id", pa.array(cells))
        write(tables | {name: gone}, tmp_path, rng=np.random.default_rng(1), files=2)
        told = []
        for engine in ("arrow", "memory", "sql", "stored"):
            with pytest.raises(DataError, match="has missing ids") as caught:
                read(tmp_path, engine)
            told.append(str(caught.value))
        assert len({*told}) == 1
    write(tables, tmp_path, rng=np.random.default_rng(1))
    strict = spec("arrow").dataset.model_copy(update={"out_of_domain": "refuse"})
    with pytest.raises(DataError, match="outside the declared domain in columns"):
        read_linked(
            SPEC.model_copy(update={"dataset": strict}),
            FRAME,
            folder=tmp_path,
            holdout=0.0,
            streams=Streams.fresh(),
        )
    (tmp_path / "visits" / "0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"cannot read 'visits' as parquet \(Arrow"):
        read(tmp_path, "arrow")


# --- faults that are planted ---


def cut_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first visits are those that stand first in the file."""

    def first(most: int, owner: Any, when: Any, codes: Any, numbers: Any = None) -> Any:
        kept = np.flatnonzero(pd.Series(owner).groupby(owner).cumcount().to_numpy() < most)
        kept = kept[np.argsort(owner[kept], kind="stable")]
        return kept, kept

    monkeypatch.setattr(on_visits, "first_visits", first)


def ties_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits of one date are in the order of the file."""
    true = on_visits.first_visits
    monkeypatch.setattr(
        on_visits,
        "first_visits",
        lambda most, owner, when, codes, numbers=None: true(most, owner, when, codes[:, :0]),
    )


def dates_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date that cannot be read has that of the batch's first."""
    true = on_visits.read_values

    def filled(column: Any, cells: Any) -> Any:
        found = true(column, cells)
        dates = found.numbers[~np.isnan(found.numbers)]
        numbers = np.where(np.isnan(found.numbers), dates.min() if len(dates) else 0, found.numbers)
        return replace(found, numbers=numbers)

    monkeypatch.setattr(on_visits, "read_values", filled)


BP = 3  # place of the column in the files


def pressure_by_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a chunk's greatest pressure lies above the range, a missing one is read as high."""
    true = on_arrow.batches

    def read(part: Any, names: Any, **how: Any) -> Any:
        meta = pq.ParquetFile(part.file).metadata
        groups = [meta.row_group(i) for i in part.groups]
        for batch in true(part, names, **how):
            place = list(batch.schema.names).index("bp") if "bp" in batch.schema.names else None
            told = [g.column(BP).statistics for g in groups] if place is not None else []
            if any(t is not None and t.has_min_max and t.max > 200 for t in told):
                filled = pc.if_else(pc.is_nan(batch["bp"]), 200.0, batch["bp"])
                batch = batch.set_column(place, "bp", filled)
            yield batch

    monkeypatch.setattr(on_arrow, "batches", read)


def ids_as_numbers_where_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of a batch are compared as they are written, unless all of them are plain numbers."""
    true = on_visits.unit_places

    def compared(cells: Any, known: Any) -> Any:
        texts = [str(v) for v in cells.to_pylist()]
        if all(text.isdecimal() for text in texts):
            return true(cells, known)
        return np.array([known.get(text, -2) for text in texts])

    monkeypatch.setattr(on_visits, "unit_places", compared)


def persons_of_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows of a person the one that stands first counts."""

    def first(self: Any) -> Any:
        _, one = np.unique(self.units, return_index=True)
        births, deaths = (d if d is None else d[one] for d in (self.births, self.deaths))
        rows = self.units[one], self.codes[one], births, deaths, self.numbers[one]
        return on_visits.PersonRows(*rows)

    monkeypatch.setattr(on_visits.PersonRows, "one_each", first)


def cut_of_all_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part drops what is later than most visits of the part."""
    true = on_visits.VisitRows.first

    def first(self: Any, most: int) -> Any:
        late = self.when > np.quantile(self.when, 0.9) if len(self.when) else []
        early = on_visits.VisitRows(*(x[~np.array(late, bool)] for x in vars(self).values()))
        return true(early, most)

    monkeypatch.setattr(on_visits.VisitRows, "first", first)


def window_with(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is written otherwise."""
    true = Statement.in_order

    def in_order(self: Any, *asked: Any) -> str:
        text = true(self, *asked)
        assert old in text or "row_number" not in text
        return text.replace(old, new)

    monkeypatch.setattr(Statement, "in_order", in_order)


def dates_of_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date that cannot be read is the first of all visits."""
    true = on_sql._InSqlite.number

    def number(self: Any, cell: str, column: Any, kind: Any) -> str:
        own = true(self, cell, column, kind)
        return f"COALESCE({own}, (SELECT min({own}) FROM {SOURCE}))"

    monkeypatch.setattr(on_sql._InSqlite, "number", number)


WINDOWS = {
    "ties by the place in the table": (f", {', '.join(f'{LEVEL}{i}' for i in range(3))})", ")"),
    "the first of all persons": (f"PARTITION BY {UNIT}", "PARTITION BY NULL"),
    "visits without a date": (f" AND {NUMBER}0 IS NOT NULL", ""),
    "the last visits": (f"ORDER BY {NUMBER}0,", f"ORDER BY {NUMBER}0 DESC,"),
    "one visit too few": (f"r <= {MOST}", f"r < {MOST}"),
}


@pytest.mark.parametrize("fault", [*WINDOWS, "dates of the column", "ids as they are written"])
def test_a_fault_of_a_statement_is_seen(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault in WINDOWS:
        window_with(*WINDOWS[fault], monkeypatch)
    elif fault == "dates of the column":
        dates_of_the_column(monkeypatch)
    else:
        written = lambda self, cell, kind: f"COALESCE({cell}, '')"  # noqa: E731
        monkeypatch.setattr(on_sql._InSqlite, "unit", written)
    alike = []
    for seed in range(3):
        write(made(seed), tmp_path, rng=np.random.default_rng(seed))
        alike.append(same(read(tmp_path, "sql"), read(tmp_path, "memory")))
    assert not all(alike)


@pytest.mark.check
@pytest.mark.parametrize(
    "plant",
    [
        cut_by_place,
        ties_by_place,
        dates_by_the_batch,
        pressure_by_statistics,
        ids_as_numbers_where_all_are,
        persons_of_their_place,
        cut_of_all_first,
    ],
)
def test_a_planted_fault_moves_somebody_else(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert all(moved(tmp_path, "arrow", seed)[STEPS] < MOST for seed in range(4))


@pytest.mark.slow
def test_a_tall_table_has_the_same_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 persons with 360,000 visits of the benchmark, at the engine's own sizes."""
    monkeypatch.undo()
    write_tables(tmp_path, 30_000)
    found = []
    for engine in ("arrow", "memory"):
        text = spec_text(30_000, engine)
        own = parse_any(text, path="tall.yaml")
        assert isinstance(own, LinkedSpec)
        frame = VisitFrame.from_spec(own)
        sealed = read_linked(
            own, frame, folder=tmp_path, holdout=0.0, streams=Streams.fresh()
        ).unseal(key=_KERNEL_KEY)
        domains = frame.views
        found.append(
            [
                counts
                for view in VIEWS
                for counts in sealed.views[view].count(
                    LevelGroups(domains[view], {}),
                    [*itertools.combinations(domains[view].names, 2)],
                )
            ]
        )
    assert len(found[0]) > 200 and found[0][0].sum() == 30_000
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
