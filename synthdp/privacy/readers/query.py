"""A table as the answer to a query: the driver's own Python objects, one for each value, and errors
without a word of them.

What a column of a query holds may differ from row to row (SQLite keeps a type for each value), so
nothing is made of a column as a whole here. Which of the four things went wrong is told: the URL,
the connection, the query, or the rows on their way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy

from synthdp.errors import DataError, by_kind
from synthdp.spec.addresses import from_folder
from synthdp.spec.model import SqlSource

FORM = (
    "it has the form postgresql+psycopg://user:password@host/database, and its driver must be"
    " installed"
)
RUNS = "see that it runs, and that the URL's host, port, database, user and password are right"
ASK = (
    "try the query in the database's own client: it is one SELECT of columns and tables that are"
    " there; write a colon inside a text as \\:"
)


def read_query(
    source: SqlSource,
    *,
    folder: Path,
    check: Callable[[Sequence[str]], object],
    check_rows: Callable[[int], None],
) -> pd.DataFrame:
    """The rows that the query gives, as Python objects. `folder` is the spec's. `check` sees the
    columns' names before a row is fetched.

    Raises:
        DataError: the URL, the database or the query is not what it should be.
    """
    engine = database(source, folder)
    try:
        with by_kind(
            engine.connect, f"the database of {source.url_env} does not answer", RUNS
        ) as connection:
            by_kind(
                lambda: give_each_value(connection),
                f"the database of {source.url_env} breaks off",
                RUNS,
            )
            result = by_kind(
                lambda: connection.execute(sqlalchemy.text(source.query)),
                "the database refuses the query of dataset.source",
                ASK,
            )
            if not result.returns_rows:
                raise DataError(
                    "the query of dataset.source gives no rows", hint="write one SELECT"
                )
            names = list(result.keys())
            check(names)
            rows: list[sqlalchemy.Row[tuple[object, ...]]] = []
            # 10_000: rows at a time
            while block := by_kind(
                lambda: result.fetchmany(10_000), "the database broke off its answer", RUNS
            ):
                rows += block
                check_rows(len(rows))
    finally:
        engine.dispose()
    return pd.DataFrame(
        {name: pd.Series([row[i] for row in rows], dtype=object) for i, name in enumerate(names)}
    )


def database(source: SqlSource, folder: Path) -> sqlalchemy.Engine:
    """The database of a source, to which nothing was connected yet. A relative SQLite file lies in
    `folder`: each pass, and a run that is resumed, must read the same one.

    Raises:
        DataError: the environment has no URL, or one that cannot be read.
    """
    url = os.environ.get(source.url_env)
    if not url:
        raise DataError(
            f"the environment variable {source.url_env} is not set",
            hint="it holds the database URL, with its password",
        )
    return by_kind(
        lambda: sqlalchemy.create_engine(from_folder(url, folder)),
        f"the URL in {source.url_env} cannot be read",
        FORM,
    )


def give_each_value(connection: sqlalchemy.Connection) -> None:
    """Have the driver give each value of a row, whatever a server, a database or a role was set to.

    PostgreSQL prints the digits that tell a number from its neighbours (others do so by
    themselves). What Python has no value for would be an error of all rows: so times come as
    texts, year first, those after the year 9999 as NumPy's, and a text that is no UTF-8 as bytes.
    """
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        driver.text_factory = decoded
    if connection.dialect.name == "postgresql":
        connection.execute(sqlalchemy.text("SET extra_float_digits = 1"))
        connection.execute(sqlalchemy.text("SET datestyle = ISO"))
    if connection.dialect.driver == "psycopg":
        from psycopg.types.string import TextLoader

        class Days(TextLoader):
            def load(self, data: Any) -> Any:
                return _day(bytes(data).decode())

        for kind in ("date", "timestamp"):
            driver.adapters.register_loader(kind, Days)
        for kind in ("timestamptz", "time", "timetz", "interval"):
            driver.adapters.register_loader(kind, TextLoader)


def _day(text: str) -> str | np.datetime64:
    """A day or an instant as PostgreSQL prints it: a text in Python's calendar, and NumPy's, to the
    second, outside of it.
    """
    if text.endswith("infinity"):
        return np.datetime64(-(2**60) if text[0] == "-" else 2**60, "s")
    year, _, rest = text.removesuffix(" BC").partition("-")
    if "." in rest or (len(year) == 4 and not text.endswith("BC")):
        return text
    return np.datetime64(f"{1 - int(year) if text.endswith('BC') else int(year):05d}-{rest}")


def decoded(text: bytes, encoding: str = "UTF-8") -> str | bytes:
    """A text; its bytes where they are none in `encoding`."""
    try:
        return text.decode(encoding)
    except UnicodeDecodeError:
        return text
