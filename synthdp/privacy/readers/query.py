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
                lambda: print_all_digits(connection),
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


def print_all_digits(connection: sqlalchemy.Connection) -> None:
    """Have PostgreSQL give the digits that tell a number from its neighbours, whatever a server,
    database or role was set to (version 12 and later). Others do so by themselves.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sqlalchemy.text("SET extra_float_digits = 1"))
