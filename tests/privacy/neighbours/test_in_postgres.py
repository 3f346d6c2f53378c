"""A row is read by itself in PostgreSQL too, whatever its planner knows of the column."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from synthdp.data import Domain, LevelGroups
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.spec.model import Integer, SqlSource
from tests.fire.postgres import Server
from tests.privacy.engines.tables import reading_of, same
from tests.privacy.engines.test_counts import STRANGE
from tests.privacy.neighbours.stores import CELLS, Way
from tests.privacy.neighbours.test_neighbours import look

pytestmark = pytest.mark.check

TYPES = {
    "float64": "double precision",
    "float32": "real",
    "int64": "bigint",
    "bool": "boolean",
    "text": "text",
    "near day": "date",
    "near instant": "timestamp",
    "decimal": "numeric",
    "time us": "time",
}
SOURCE = {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from t"}
# Without other ways the planner takes those that need the statistics. What it is forbidden has so
# high a cost that it would compile each statement, which is most of the time.
PLANNER = (
    "enable_seqscan = off",
    "constraint_exclusion = on",
    "default_statistics_target = 1000",
    "jit = off",
)


@pytest.fixture
def database(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    url = server.new_database()
    for setting in PLANNER:
        server.run(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET {setting}")
    monkeypatch.setenv("TEST_DB_URL", url)
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def plain(names: Sequence[str], own: str) -> list[str]:
    listed = ", ".join(f'"{name}" {own}' for name in names)
    return [f"CREATE TABLE t ({listed})"]


def indexed(names: Sequence[str], own: str) -> list[str]:
    return [*plain(names, own), *(f'CREATE INDEX ON t ("{n}")' for n in names)]


def partitioned(names: Sequence[str], own: str) -> list[str]:
    """By the first column, whose value then says in which part a row lies."""
    table = f'{plain(names, own)[0]} PARTITION BY RANGE ("{names[0]}")'
    ends = {"text": ("'a'", "'b'"), "boolean": ("false", "true")}.get(own, ("'1'", "'7'"))
    if own in ("date", "timestamp"):
        ends = ("'1970-01-01'", "'2020-02-01'")
    if own == "time":
        ends = ("'00:00:01'", "'12:00'")
    low, high = ends
    bounds = [f"MINVALUE) TO ({low}", f"{low}) TO ({high}", f"{high}) TO (MAXVALUE"]
    parts = [
        f"CREATE TABLE t{i} PARTITION OF t FOR VALUES FROM ({b})" for i, b in enumerate(bounds)
    ]
    return [table, *parts, "CREATE TABLE td PARTITION OF t DEFAULT"]


def way(database: sa.Engine, engine: str, made: Callable[[Sequence[str], str], list[str]]) -> Way:
    def write(
        kind: str, names: Sequence[str], cells: pa.Array, folder: Path
    ) -> tuple[dict[str, Any], None]:
        with database.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS t")
            for statement in made(names, TYPES[kind]):
                connection.exec_driver_sql(statement)
            marks = ", ".join([f"CAST(%(v)s AS {TYPES[kind]})"] * len(names))
            rows = [{"v": v} for v in cells.to_pylist()]
            connection.exec_driver_sql(f"INSERT INTO t VALUES ({marks})", rows)
            connection.exec_driver_sql("ANALYZE t")
        return dict(SOURCE), None

    return Way(f"{engine}, {made.__name__}", write, tuple(TYPES), {"engine": engine})


@pytest.mark.parametrize(("engine", "made"), [("sql", indexed), ("memory", plain)])
def test_a_row_more_changes_how_no_other_is_read(
    database: sa.Engine, engine: str, made: Any, tmp_path: Path
) -> None:
    for kind in TYPES:
        look(way(database, engine, made), kind, tmp_path, share=0.5 / len(CELLS[kind]) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("made", [plain, indexed, partitioned])
def test_a_row_more_changes_how_no_other_is_read_at_length(
    database: sa.Engine, made: Any, tmp_path: Path
) -> None:
    for kind in TYPES:
        look(way(database, "sql", made), kind, tmp_path, share=0.1)


def test_strange_names_of_columns_are_read(database: sa.Engine) -> None:
    domain = Domain.from_spec(
        {n: Integer(type="integer", lower=0, upper=9, bins=10) for n in STRANGE}
    )
    values = np.random.default_rng(4).integers(0, 10, (50, len(STRANGE)))
    table = sa.Table(
        "t", sa.MetaData(), *(sa.Column(n, sa.Integer, key=f"k{i}") for i, n in enumerate(STRANGE))
    )
    with database.begin() as connection:
        table.create(connection)
        rows = [{f"k{i}": v for i, v in enumerate(row)} for row in values.tolist()]
        connection.execute(table.insert(), rows)
    tables = [(n,) for n in STRANGE]
    engine = SqlEngine(SqlSource.model_validate(SOURCE), reading_of(domain), list, Path())
    wanted = [np.bincount(column, minlength=10) for column in values.T]
    assert same(engine.count(LevelGroups(domain, {}), tables), wanted)
