"""Whether a database can hold a table's columns, which their names tell before any work is done."""

from __future__ import annotations

from collections.abc import Sequence

from synthdp.errors import OutputError
from synthdp.spec.wording import many, same_but_for_case

FOLDING = ("sqlite", "mysql", "mariadb", "mssql", "bigquery", "duckdb", "databricks", "redshift")
"""Databases, as SQLAlchemy calls them, whose columns have names without upper and lower case."""
LONGEST = {
    "postgresql": 63,
    "redshift": 127,
    "mysql": 64,
    "mariadb": 64,
    "mssql": 128,
    "oracle": 128,
}
"""Bytes of the longest name."""
MOST = {
    "sqlite": 2000,
    "postgresql": 1600,
    "mysql": 1017,
    "mariadb": 1017,
    "mssql": 1024,
    "oracle": 1000,
}
"""Columns of the widest table."""


def check_columns_held(dialect: str, names: Sequence[str]) -> None:
    """Check that a database of this kind can have columns of these names.

    Raises:
        OutputError: it cannot.
    """
    why = None
    twins = same_but_for_case(names) if dialect in FOLDING else None
    longest = LONGEST.get(dialect, 10_000)
    long = [name for name in names if len(name.encode()) > longest]
    if twins:
        why = f"columns {twins[0]!r} and {twins[1]!r} differ in upper and lower case alone"
    elif long:
        why = f"the name of column {long[0]!r} has more than {longest} bytes"
    elif len(names) > MOST.get(dialect, len(names)):
        why = f"the bundle has {many(len(names), 'column')}, and a table has {MOST[dialect]:,}"
    if why:
        raise OutputError(
            f"{why}, which {dialect} cannot hold; nothing was written",
            hint=(
                "release with other names (dataset.source.rename), or fewer columns; or read the"
                " bundle's synthetic.parquet, which holds all of them"
            ),
        )
