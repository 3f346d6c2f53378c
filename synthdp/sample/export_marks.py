"""Which tables of a database synthdp wrote: rows of a table of its own, `synthdp_exports`.

A table of the original's rows may have the columns of a bundle, and even its name. So a table is
dropped only where this one says that an export made it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from synthdp.errors import OutputError
from synthdp.files import SUMS

MARKS = "synthdp_exports"
_NAME = sa.String(255)

_marks = sa.Table(
    MARKS,
    sa.MetaData(),
    sa.Column("table_schema", _NAME, nullable=False),
    sa.Column("table_name", _NAME, nullable=False),
    sa.Column("bundle_sha256", sa.String(64), nullable=False, comment=f"of the bundle's {SUMS}"),
    sa.Column("at", sa.String(40), nullable=False, comment="UTC, by the clock of who exported"),
    comment="Tables that synthdp export wrote: it replaces no other.",
)


def marked(connection: Connection, table: sa.Table) -> bool:
    """Whether an export wrote the table of this schema and name.

    Raises:
        OutputError: a table `synthdp_exports` is there that is not synthdp's.
    """
    return _found(connection) and bool(
        connection.execute(
            sa.select(sa.func.count()).select_from(_marks).where(_is(connection, table))
        ).scalar()
    )


def mark(connection: Connection, table: sa.Table, bundle: Path) -> None:
    """Note that `table` is written from `bundle`, in place of what was noted of it before.

    Raises:
        OutputError: a table `synthdp_exports` is there that is not synthdp's.
    """
    if not _found(connection):
        _marks.create(connection)
    connection.execute(_marks.delete().where(_is(connection, table)))
    connection.execute(
        _marks.insert().values(
            table_schema=_schema(connection, table),
            table_name=table.name,
            bundle_sha256=hashlib.sha256((bundle / SUMS).read_bytes()).hexdigest(),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    )


def _found(connection: Connection) -> bool:
    """Whether there are any marks."""
    seen = sa.inspect(connection)
    if not seen.has_table(MARKS):
        return False
    if [column["name"] for column in seen.get_columns(MARKS)] != _marks.columns.keys():
        raise OutputError(
            f"the database has a table {MARKS} that synthdp did not make; nothing was written",
            hint="synthdp keeps there which tables it wrote: rename yours, or export elsewhere",
        )
    return True


def _is(connection: Connection, table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(
        _marks.c.table_schema == _schema(connection, table), _marks.c.table_name == table.name
    )


def _schema(connection: Connection, table: sa.Table) -> str:
    """The schema that a table is in: that of the database where none is named."""
    return table.schema or sa.inspect(connection).default_schema_name or ""
