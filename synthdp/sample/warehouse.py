"""A bundle's table into a database: verified first, with the types of its Data Package.

Addresses may hold a password: none is printed, and no library's own words, which quote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from synthdp.bundle.certificate_text import about_column
from synthdp.bundle.content import Bundle
from synthdp.bundle.linked import LinkedBundle, stated_any, written_columns
from synthdp.bundle.table_files import arrow_schema, row_groups
from synthdp.errors import OutputError, SynthdpError
from synthdp.files import SUMS
from synthdp.ledger.entries import Entry
from synthdp.progress import advance
from synthdp.sample.conditions import check_columns_held
from synthdp.spec.addresses import reason, shown_address
from synthdp.spec.model import Column
from synthdp.verify.at_hand import check_decided, digest_of
from synthdp.verify.checks import verify_bundle

FORM = (
    "an address is dialect+driver://user@host/database, as SQLAlchemy reads it, such as"
    " postgresql+psycopg://me@warehouse/research; its driver must be installed"
)


@dataclass(frozen=True)
class Written:
    """What was written where; `database` is what may be shown of the address.

    `decision` is who said that it may be, in words.
    """

    database: str
    table: str
    rows: int
    replaced: bool
    decision: str


def write_table(
    bundle: Path,
    address: str,
    name: str,
    *,
    replace: bool = False,
    key: Path | None = None,
    ledger: Sequence[Entry] | None = None,
) -> Written:
    """Verify a bundle, and write its synthetic rows as the table `name` of a database.

    All is one transaction. Databases that end one at a change of tables, such as MySQL, may keep an
    empty table when the rows do not get through. The database's table `synthdp_exports` notes which
    tables were written.

    Args:
        bundle: the bundle's folder.
        address: an SQLAlchemy URL.
        name: the table, or SCHEMA.TABLE.
        replace: drop a table of this name that an earlier export wrote, and no other.
        key: the file of the publisher's public key; only what it signed is written.
        ledger: the entries of the ledger of the bundle's run, where it is at hand.

    Raises:
        VerifyError: the bundle does not agree with itself; nothing was written.
        OutputError: the address leads nowhere, the table exists, the database cannot hold the
            columns, or the rows were refused.
        GateError: somebody decided against the bundle, or nobody on one whose spec wants that.
    """
    shown, stated = shown_address(address), None
    try:
        engine = _engine_of(address)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError) as error:
        kind = type(error).__name__
        raise OutputError(f"cannot read the address {shown} ({kind})", hint=FORM) from None
    with suppress(SynthdpError, OSError, ValueError, KeyError, TypeError, IndexError):
        stated = stated_any(bundle)  # what cannot be read the verification tells
    for _, columns in stated.sources if stated else ():
        check_columns_held(engine.dialect.name, tuple(columns))
    verify_bundle(bundle, key=key)
    stated, rows, replaced = stated_any(bundle), 0, False
    made, decision = tables_of(stated, name), check_decided(bundle, stated.spec, ledger)
    try:
        with engine.begin() as connection:
            for table in reversed(made):  # visits before the persons that they are of
                replaced |= _make_room(connection, table, replace=replace)
            for table, (csv, columns) in zip(made, stated.sources, strict=True):
                mark(connection, table, bundle)
                rows += _insert(connection, table, csv, columns, stated.spec.sampling.rows or 1)
    except sa.exc.SQLAlchemyError as error:
        why = reason(error)
        raise OutputError(
            f"{shown}: the table {name} was not written: {why}",
            hint="check the address, the user's rights and the space; what was there is unchanged"
            " where the database has transactions over tables",
        ) from None
    finally:
        engine.dispose()
    return Written(shown, ", ".join(map(str, made)), rows, replaced, decision)


def tables_of(bundle: Bundle, name: str) -> list[sa.Table]:
    """The tables to make: NAME, or NAME_TABLE of each of linked ones, with their keys."""
    if not isinstance(bundle, LinkedBundle):
        return [table_of(bundle.spec.columns, name)]
    data, whole = bundle.linked.dataset, sa.MetaData()
    persons, visits = (
        table_of(columns, f"{name}_{own}", whole)
        for own, columns in written_columns(bundle.linked).items()
    )
    key, to = visits.c[data.visits.key], persons.c[data.persons.key]
    to.autoincrement = False
    persons.append_constraint(sa.PrimaryKeyConstraint(to))
    visits.append_constraint(sa.ForeignKeyConstraint([key], [to]))
    return [persons, visits]


def table_of(
    columns: Mapping[str, Column], name: str, whole: sa.MetaData | None = None
) -> sa.Table:
    """The table to make: types, what may be missing, and descriptions as comments."""
    schema, _, own = name.rpartition(".")
    if not own:
        raise OutputError("the table has no name", hint="give --table NAME or SCHEMA.NAME")
    if own.lower() == MARKS:
        raise OutputError(
            f"{MARKS} is where synthdp notes which tables it wrote", hint="name another table"
        )
    types = arrow_schema(columns)
    made = [
        sa.Column(
            column,
            _type(types.field(column).type, declared),
            nullable=declared.missing,
            comment=about_column(declared) or None,
        )
        for column, declared in columns.items()
    ]
    said = "Synthetic rows under differential privacy; the bundle's certificate says what it means."
    whole = sa.MetaData() if whole is None else whole
    return sa.Table(own, whole, *made, schema=schema or None, comment=said)


def _type(arrow: Any, column: Column) -> sa.types.TypeEngine[Any]:
    """The database's type for a column of the published table."""
    import pyarrow as pa

    plain: Mapping[Any, sa.types.TypeEngine[Any]] = {
        pa.int64(): sa.BigInteger(),
        pa.float64(): sa.Double(),
        pa.bool_(): sa.Boolean(),
        pa.date32(): sa.Date(),
        pa.timestamp("ms"): sa.DateTime(),
    }
    longest = max((len(label.encode()) for label in column.labels), default=1)  # bytes
    return plain.get(arrow) or sa.Unicode(longest)


def _engine_of(address: str) -> Engine:
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    if engine.dialect.name == "sqlite":  # which otherwise makes tables outside of the transaction
        sa.event.listen(engine, "connect", lambda c, _: setattr(c, "isolation_level", None))
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _make_room(connection: Connection, made: sa.Table, *, replace: bool) -> bool:
    """Whether a table of an earlier export was dropped; a table that must stay is an error."""
    seen = sa.inspect(connection)
    if not seen.has_table(made.name, schema=made.schema):
        return False
    name = str(made)
    if not replace:
        raise OutputError(
            f"the table {name} exists; nothing was written",
            hint="name another table; --replace replaces one that an earlier export wrote",
        )
    if not marked(connection, made):
        raise OutputError(
            f"nothing says that synthdp wrote the table {name}; it was not replaced",
            hint="it may hold original rows. If it is not needed, drop it yourself, and export"
            f" without --replace; exports are noted in the table {MARKS} from then on",
        )
    if [c["name"] for c in seen.get_columns(made.name, schema=made.schema)] != made.columns.keys():
        raise OutputError(
            f"the table {name} has other columns than the bundle; it was not replaced",
            hint="drop it yourself if it is not needed, or name another table",
        )
    made.drop(connection)
    return True


def _insert(
    connection: Connection, made: sa.Table, csv: Path, columns: Mapping[str, Column], all_rows: int
) -> int:
    made.create(connection)
    rows = 0
    for group in row_groups(csv, columns):
        if len(group):  # an insertion of nothing is one of defaults
            connection.execute(made.insert(), group.to_pylist())
        rows += len(group)
        advance(rows, max(rows, all_rows))
    return rows


# --- export marks ---

MARKS = "synthdp_exports"
"""A table of a database that notes which of its tables synthdp wrote.

A table of the original's rows may have the columns of a bundle, and even its name. So a table is
dropped only where this one says that an export made it."""
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
    named = sa.select(sa.func.count()).select_from(_marks).filter_by(**_name(connection, table))
    return _any_marks(connection) and bool(connection.execute(named).scalar())


def mark(connection: Connection, table: sa.Table, bundle: Path) -> None:
    """Note that `table` is written from `bundle`, in place of what was noted of it before.

    Raises:
        OutputError: a table `synthdp_exports` is there that is not synthdp's.
    """
    if not _any_marks(connection):
        _marks.create(connection)
    name = _name(connection, table)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    connection.execute(_marks.delete().filter_by(**name))
    connection.execute(_marks.insert().values(**name, bundle_sha256=digest_of(bundle), at=at))


def _any_marks(connection: Connection) -> bool:
    seen = sa.inspect(connection)
    if not seen.has_table(MARKS):
        return False
    if [column["name"] for column in seen.get_columns(MARKS)] != _marks.columns.keys():
        raise OutputError(
            f"the database has a table {MARKS} that synthdp did not make; nothing was written",
            hint="synthdp keeps there which tables it wrote: rename yours, or export elsewhere",
        )
    return True


def _name(connection: Connection, table: sa.Table) -> dict[str, str]:
    """A table's schema, which is that of the database where none is named, and its name."""
    schema = table.schema or sa.inspect(connection).default_schema_name or ""
    return {"table_schema": schema, "table_name": table.name}
