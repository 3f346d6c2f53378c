"""Counting the answer to a query inside its database: each table is one GROUP BY, and what comes
back are numbers of rows. Of linked tables levels and dates come back, of the visits that stay.

PostgreSQL finds levels by CASE (`steps`). SQLite runs in this process and holds a type for each
value, not for a column: there levels, ids and hashes are our own functions, which it calls for each
value.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import sqlalchemy
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION
from sqlalchemy.sql import quoted_name

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column, read_values, unit_texts
from synthdp.data.kinds.kind import Floats
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError, DataError, by_kind
from synthdp.privacy.engines import Integers, Reading, Survey, check_names
from synthdp.privacy.engines.statements import (
    POSTGRESQL,
    SOURCE,
    Dialect,
    Kind,
    Statement,
    check_id_kind,
    check_kinds,
)
from synthdp.privacy.noise import Randomness
from synthdp.privacy.readers.query import ASK, RUNS, database, decoded, give_each_value
from synthdp.privacy.table import CHUNK_ROWS, Columns, Side, Summands
from synthdp.spec.model import SqlSource

SQLITE = Dialect("synthdp_sha256({})", sets=1)
POSTGRESQL_KINDS: Mapping[int, Kind] = {
    16: "truth",
    20: "whole",
    21: "whole",
    23: "whole",
    25: "text",
    1043: "text",
    700: "real",
    701: "real",
    1700: "decimal",
    1082: "day",
    1114: "instant",
}
"""By the number of a type: fixed since they exist (pg_type.dat)."""
OLDEST = 130_000
"""The first version of PostgreSQL that draws a key itself (`Dialect.fresh`)."""
HUGE, TINY = Decimal(2**1024 - 2**970), Decimal(f"{5**1075}e-1075")
"""From where on the nearest number of 64 bits is infinite, and up to where it is 0."""
BROKE = "the database broke off its answer"
Keyed = tuple[Sequence[str], list[Floats], Codes]
"""Rows: `id_text` of their ids; the numbers of each date, NaN where there is none; levels."""
REFUSED = {1042: "char(n)", 1083: "time", 1184: "timestamp with time zone", 2950: "uuid"}


@dataclass(frozen=True)
class SqlEngine:
    """The rows of a query, counted by its database. `folder` is the spec's.

    Raises:
        DataError: the database does not answer, is another one, or a column has a type of which its
            levels are not proved to be ours.
    """

    source: SqlSource
    reading: Reading
    check: Callable[[Sequence[str]], object]
    folder: Path
    kinds: dict[str, Any] = field(default_factory=dict)
    reals: dict[str, Callable[[Any], Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find out what the columns are; `check` sees their names."""
        with self._connection() as (connection, name):
            types = self._types(connection)
            self.check(list(types))
            check_names(list(types))
            if name == "postgresql":
                for column, number in types.items():
                    other = f"PostgreSQL's {REFUSED.get(number, f'number {number}')}"
                    self.kinds[column] = POSTGRESQL_KINDS.get(number, other)
                self.reals.update((c, _digits) for c, number in types.items() if number == 700)
                check_kinds(self.reading.domain, self.kinds)
                for own in self.reading.domain.columns:
                    if own.ranged and self.kinds[own.name] == "decimal":
                        self.kinds[own.name], self.reals[own.name] = "real", _nearest
                if (unit := self.reading.id_column) is not None:
                    check_id_kind(unit, self.kinds[unit])
            else:
                self.kinds.update(dict.fromkeys(types, "text"))

    def survey(self) -> Survey:
        """By one statement, whose answer is one row of sums."""
        with self._connection() as (connection, name):
            made = _statement(name)
            text = made.survey(self._own, self.kinds)
            (row,) = self._answer(connection, made, text)
        return Survey.of(np.array([int(n or 0) for n in row], dtype=np.int64))

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By a GROUP BY for every few tables; for each one in SQLite."""
        sizes = {c.name: c.levels for c in groups.coarse.columns}
        counts = [np.zeros([sizes[c] for c in table], dtype=np.int64) for table in tables]
        with self._connection() as (connection, name):
            most = _statement(name).dialect.sets
            for first in range(0, len(tables), most):
                some, made = tables[first : first + most], _statement(name)
                reading, own = self._own.of(groups, some)
                text = made.counted(reading, self.kinds, own, some)
                for row in self._answer(connection, made, text):
                    at = next(i for i in range(len(row)) if row[i] is not None)
                    counts[first + at].reshape(-1)[int(row[at])] += int(row[-1])
        return counts

    def add_up(self, what: Summands, side: Side) -> NoReturn:
        """Never: conditions and numbers are ours to compute, and values stay in the database.

        `spec.checks.dataset` refuses a spec that would ask.
        """
        raise BoundaryError("engine sql counts levels, and adds up no values")

    def draw(self, most: int) -> NoReturn:
        """Never: no row leaves the database."""
        raise BoundaryError("engine sql counts levels, and gives no rows")

    def sample(self, rate: float, randomness: Randomness) -> Codes:
        """By keyed hashes of the units, under a key that is used once."""
        with self._connection() as (connection, name):
            made = _statement(name)
            key = secrets.token_hex(16)
            text = made.sampled(self._own, self.kinds, rate=rate, key=key)
            rows = [tuple(row) for row in self._answer(connection, made, text)]
        return np.array(rows, dtype=np.uint16).reshape(-1, len(self.reading.domain))

    def units(self) -> None:
        """None where every row is a unit; else never: as `draw`."""
        if self.reading.id_column is not None:
            self.draw(0)

    def in_order(
        self, dates: Sequence[ColumnDomain], levels: Domain, most: int | None = None
    ) -> Iterator[Keyed]:
        """Rows that have an id, block by block; with `most` the first so many of each id by the
        first date (`Statement.in_order`). Of a value nothing leaves the database but its level, or
        its date.
        """
        with self._connection() as (connection, name):
            made, reading = _statement(name), replace(self._own, domain=levels)
            text = made.in_order(reading, self.kinds, dates, most)
            asked = sqlalchemy.text(text).columns().add_cte(self._source)
            connection.execution_options(stream_results=True, max_row_buffer=CHUNK_ROWS)
            with by_kind(lambda: connection.execute(asked, made.values), BROKE, RUNS) as answer:
                while True:
                    block = by_kind(lambda: answer.fetchmany(CHUNK_ROWS), BROKE, RUNS)
                    cells = [*zip(*block, strict=True)] or [()] * (1 + len(dates) + len(levels))
                    ids, own, codes = cells[0], cells[1 : 1 + len(dates)], cells[1 + len(dates) :]
                    numbers = [np.array(number, np.float64) for number in own]
                    yield ids, numbers, np.array(codes, np.uint16).T
                    if len(block) < CHUNK_ROWS:
                        return

    @property
    def _own(self) -> Reading:
        """With names of our own for the columns of the query, which need no quotes."""
        names = {name: f"synthdp_c{at}" for at, name in enumerate(self.reading.names)}
        return replace(self.reading, names=names)

    @property
    def _source(self) -> sqlalchemy.CTE:
        """The query's columns under our own names; the query's are quoted by SQLAlchemy, for the
        database. Of `reals` OFFSET 0 has PostgreSQL find the numbers of 64 bits once a row and not
        once a comparison.
        """
        names = [quoted_name(name, True) for name in self.reading.names.values()]
        asked = sqlalchemy.text(self._query).columns(*map(sqlalchemy.column, names))
        given = asked.subquery("synthdp_query").c
        cells = [self.reals[c.name](c) if c.name in self.reals else c for c in given]
        own = self._own.names.values()
        made = sqlalchemy.select(*(c.label(name) for c, name in zip(cells, own, strict=True)))
        return (made.offset(0) if self.reals else made).cte(SOURCE)

    @property
    def _query(self) -> str:
        return self.source.query.rstrip().rstrip(";")

    def _answer(
        self, connection: sqlalchemy.Connection, made: Statement, text: str
    ) -> list[sqlalchemy.Row[Any]]:
        asked = sqlalchemy.text(text).columns().add_cte(self._source)
        return by_kind(lambda: list(connection.execute(asked, made.values)), BROKE, RUNS)

    @contextmanager
    def _connection(self) -> Iterator[tuple[sqlalchemy.Connection, str]]:
        """A connection that writes nothing, and the database's name."""
        engine = database(self.source, self.folder)
        name = engine.dialect.name
        if name not in ("postgresql", "sqlite"):
            raise DataError(
                f"compute.engine sql counts in PostgreSQL and SQLite, and this is {name}",
                hint="set compute.engine: memory, or export the table to Parquet",
            )
        try:
            with by_kind(
                engine.connect, f"the database of {self.source.url_env} does not answer", RUNS
            ) as connection:
                if name == "postgresql":
                    connection = connection.execution_options(postgresql_readonly=True)
                    _check_server(connection)
                    give_each_value(connection)
                else:
                    _teach(connection, self.reading)
                yield connection, name
        finally:
            engine.dispose()

    def _types(self, connection: sqlalchemy.Connection) -> dict[str, Any]:
        """The database's own type of each column that is read, without a row."""
        text = f"SELECT * FROM ({self._query}) AS synthdp_query LIMIT 0"
        cursor = by_kind(
            lambda: connection.execute(sqlalchemy.text(text)).cursor,
            "the database refuses the query of dataset.source",
            ASK,
        )
        return {column[0]: column[1] for column in (cursor.description if cursor else ())}


def _statement(name: str) -> Statement:
    return Statement(POSTGRESQL) if name == "postgresql" else _InSqlite(SQLITE)


def _digits(cell: Any) -> Any:
    """A number of 32 bits as its digits. PostgreSQL casts .1 to .10000000149011612 of 64 bits; a
    driver reads the fewest digits that tell it from its neighbours, `0.1`. The number of 64 bits
    that is nearest to some digits is the same for PostgreSQL and Python: both round correctly.
    """
    return sqlalchemy.cast(sqlalchemy.cast(cell, sqlalchemy.Text), DOUBLE_PRECISION)


def _nearest(cell: Any) -> Any:
    """The number of 64 bits that is nearest to a decimal one, as Python has it: infinite beyond the
    largest, and 0 up to half the smallest. A cast of PostgreSQL's refuses these, and all rows with
    one.
    """
    infinite = sqlalchemy.literal(float("inf"), DOUBLE_PRECISION)
    return sqlalchemy.case(
        (cell == sqlalchemy.literal(Decimal("NaN")), sqlalchemy.cast("NaN", DOUBLE_PRECISION)),
        (cell >= sqlalchemy.literal(HUGE), infinite),
        (cell <= sqlalchemy.literal(-HUGE), -infinite),
        (sqlalchemy.func.abs(cell) <= sqlalchemy.literal(TINY), 0.0),
        else_=sqlalchemy.cast(cell, DOUBLE_PRECISION),
    )


def _check_server(connection: sqlalchemy.Connection) -> None:
    """Texts are compared by their bytes, so the bytes must be UTF-8; and statements use what is
    there since version 13.
    """
    shown = sqlalchemy.text(
        "SELECT current_setting('server_encoding'), current_setting('server_version_num')"
    )
    encoding, version = connection.execute(shown).one()
    if encoding != "UTF8":
        raise DataError(
            f"the database has the encoding {encoding}, and compute.engine sql compares UTF-8",
            hint="set compute.engine: memory",
        )
    if int(version) < OLDEST:
        raise DataError(
            f"compute.engine sql needs PostgreSQL {OLDEST // 10_000} or later",
            hint="set compute.engine: memory",
        )


# --- SQLite ---


class _InSqlite(Statement):
    """A statement whose levels, misfits and ids are functions of this process (`_teach`)."""

    def level(self, cell: str, column: ColumnDomain, kind: Kind, group: Sequence[int]) -> str:
        return f"synthdp_level({self.bound(column.name, 'TEXT')}, {_given(cell)})"

    def misfits(self, cell: str, column: ColumnDomain, kind: Kind) -> list[str]:
        found = f"synthdp_misfit({self.bound(column.name, 'TEXT')}, {_given(cell)})"
        return [f"{found} = {i}" for i in range(3)]

    def number(self, cell: str, column: ColumnDomain, kind: Kind) -> str:
        ends = (self.bound(end, "REAL") for end in (column.lower, column.upper))
        name = self.bound(column.name, "TEXT")
        return f"synthdp_number({name}, {_given(cell)}, {', '.join(ends)})"

    def unit(self, cell: str, kind: Kind) -> str:
        return f"synthdp_unit({_given(cell)})"


def _given(cell: str) -> str:
    """A cell as two arguments: whether it is a text, and its value, which of a text is its bytes,
    since the driver's own way fails for one that is no UTF-8, and with it the statement.
    """
    text = f"typeof({cell}) = 'text'"
    return f"{text}, CASE WHEN {text} THEN CAST({cell} AS BLOB) ELSE {cell} END"


def _teach(connection: sqlalchemy.Connection, reading: Reading) -> None:
    """Give SQLite the functions that read one value."""
    domain, driver = reading.domain, connection.connection.driver_connection
    assert driver is not None
    ((encoding,),) = driver.execute("PRAGMA encoding")

    def series(text: bool, value: Any) -> pd.Series[Any]:
        return pd.Series([decoded(value, encoding) if text else value], dtype=object)

    @lru_cache(maxsize=1 << 18, typed=True)
    def read(name: str, text: bool, value: Any) -> tuple[int, int]:
        found = encode_column(domain[name], series(text, value))
        wrong = (found.wrong_type, found.outside, found.unexpected_missing)
        return int(found.codes[0]), wrong.index(1) if any(wrong) else -1

    @lru_cache(maxsize=1 << 18, typed=True)
    def number(name: str, text: bool, value: Any, lower: float, upper: float) -> float | None:
        (found,) = read_values(domain[name], series(text, value)).numbers
        return None if np.isnan(found) else float(np.clip(found, lower, upper))

    functions: dict[str, tuple[int, Callable[..., Any]]] = {
        "synthdp_level": (3, lambda *cell: read(*cell)[0]),
        "synthdp_misfit": (3, lambda *cell: read(*cell)[1]),
        "synthdp_number": (5, number),
        "synthdp_unit": (2, lambda *cell: unit_texts(series(*cell))[0]),
        "synthdp_sha256": (1, lambda text: hashlib.sha256(text.encode()).hexdigest()),
    }
    for name, (arguments, function) in functions.items():
        driver.create_function(name, arguments, function, deterministic=True)
