"""The ledger's table in a database, and what makes a write to it exclusive and durable.

SQLite: `BEGIN IMMEDIATE` takes the file's only write lock before anything is read, and
`synchronous=EXTRA` brings the commit, and the removal of the rollback journal, to the disk before
it returns (with FULL a power
cut may bring the journal back and undo a commit:
https://www.sqlite.org/pragma.html#pragma_synchronous).

PostgreSQL: the table's EXCLUSIVE lock lets readers pass and no other writer; `synchronous_commit`
is switched on for the transaction, whatever the server's default; a server without `fsync` is
refused. READ COMMITTED lets each statement see what was committed before it began, hence all of the
last holder's rows.

The table's unique columns are a second wall: two writers that both passed could not both follow one
entry.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url

from synthdp.errors import BudgetError
from synthdp.files import claim_file, missing_folders
from synthdp.ledger.entries import GENESIS, Entry, entry_hash, parse_row
from synthdp.spec.addresses import reason, shown_address, sqlite_file

LOCK_SECONDS = 60  # how long a writer waits for the others
_MEND = (
    "see that the ledger's database runs, and that its disk has room and may be written; then try"
    " again"
)

_metadata = sa.MetaData()
_entries = sa.Table(
    "synthdp_ledger",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.String(64), nullable=False, index=True),
    sa.Column("run", sa.String(64), nullable=False, index=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("previous", sa.String(64), nullable=False, unique=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
)


class _UnfitError(Exception):
    """Why a database could not keep a ledger, in words that hold no address."""


def open_database(url: str) -> Engine:
    """The database at a SQLAlchemy `url`, with the ledger's table in it.

    Raises:
        BudgetError: it cannot be opened or created, or would not keep what is written.
    """
    form = (
        "privacy.ledger is a SQLAlchemy URL, such as sqlite:////data/ledger.db or"
        " postgresql://user@host/name"
    )
    shown = shown_address(url)
    try:
        parsed = make_url(url)
    except (
        sa.exc.ArgumentError,
        ValueError,
    ):  # whose words quote the URL, and nobody knows where its password is
        raise BudgetError(
            f"cannot open the ledger {shown}: it is no SQLAlchemy URL", hint=form
        ) from None
    try:
        engine = sa.create_engine(parsed, poolclass=sa.pool.NullPool, **_options(parsed))
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _synchronous)
        _create(engine)
    except OSError as error:
        raise BudgetError(f"cannot open the ledger {shown}: {error.strerror}", hint=_MEND) from None
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
        raise BudgetError(
            f"cannot open the ledger {shown}: {type(error).__name__}", hint=form
        ) from None
    except _UnfitError as error:
        raise BudgetError(f"cannot open the ledger {shown}: {error}", hint=form) from None
    except (sa.exc.SQLAlchemyError, ValueError) as error:
        raise BudgetError(f"cannot open the ledger {shown}: {_cause(error)}", hint=_MEND) from None
    return engine


def _options(url: URL) -> dict[str, Any]:
    """Settings of the engine; `_UnfitError` where the database could not keep a ledger."""
    if url.get_backend_name() == "sqlite":
        file = sqlite_file(url.render_as_string(hide_password=False))
        if file is None:
            raise _UnfitError("a ledger in memory would forget what was spent")
        if not file.is_absolute():
            raise _UnfitError(
                "a relative path would lead to another ledger in another working folder"
            )
        if url.database and not url.database.startswith(
            "file:"
        ):  # an URI of SQLite's own: its folder must be there
            missing_folders(file.parent)
        if url.query.get("mode", "rwc") == "rwc":  # else SQLite would not create it either
            claim_file(file)  # its journals get the modes of the file
        return {"connect_args": {"timeout": LOCK_SECONDS}}
    if url.get_backend_name() == "postgresql":
        # A network that swallows packets must not hold a release forever.
        patience = {"connect_timeout": LOCK_SECONDS, "tcp_user_timeout": 1000 * LOCK_SECONDS}
        return {
            "isolation_level": "READ COMMITTED",
            "connect_args": {k: v for k, v in patience.items() if k not in url.query},
        }
    raise _UnfitError(f"{url.get_backend_name()} is not supported; allowed: sqlite, postgresql")


def _synchronous(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun by hand
    connection.execute("PRAGMA synchronous=EXTRA")
    connection.execute("PRAGMA fullfsync=ON")  # macOS alone knows a difference


def _create(engine: Engine) -> None:
    """Create the table where there is none; many may try at once."""
    with engine.connect() as connection:
        if (
            engine.dialect.name == "postgresql"
            and connection.exec_driver_sql("SHOW fsync").scalar_one() != "on"
        ):
            raise _UnfitError(
                "the server runs with fsync off, so a power cut could lose what was spent"
            )
        if sa.inspect(connection).has_table(_entries.name):
            return
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            # 0x53594E5448: any constant, at which those who would create the table queue here
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x53594E5448)))
        _metadata.create_all(connection)
        connection.commit()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection to read from.

    Raises:
        BudgetError: the database is gone or locked.
    """
    try:
        with engine.connect() as connection:
            yield connection
    except sa.exc.SQLAlchemyError as error:
        raise BudgetError(f"the ledger cannot be read ({_cause(error)})", hint=_MEND) from None


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other writer overlaps.

    It is durable when the block ends, and rolled back on any error.

    Raises:
        BudgetError: the database does not write, or stays locked for `LOCK_SECONDS`.
    """
    committing = False
    try:
        with engine.connect() as connection:
            _lock(connection)
            yield connection
            committing = True
            connection.commit()
    except sa.exc.SQLAlchemyError as error:
        # Lost while it committed, nobody can know; every write is such that doing it again counts
        # once.
        known = (
            "if it was written all the same, it counts once however often this is tried"
            if committing
            else "nothing was spent"
        )
        raise BudgetError(
            f"the ledger refused to write ({_cause(error)}); {known}", hint=_MEND
        ) from None


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"LOCK TABLE {_entries.name} IN EXCLUSIVE MODE")


def _cause(error: Exception) -> str:
    """SQLite's own words, which hold no address; of a server, words of ours."""
    cause = error.__cause__
    return (
        str(cause).splitlines()[0]
        if isinstance(cause, sqlite3.Error) and str(cause)
        else reason(error)
    )


def select(
    connection: Connection, *, dataset: str | None = None, run: str | None = None
) -> list[Entry]:
    """Entries in order of `seq`, of one dataset or run where named.

    Raises:
        VerifyError: a row cannot be read.
    """
    query = sa.select(_entries).order_by(_entries.c.seq)
    if dataset is not None:
        query = query.where(_entries.c.dataset == dataset)
    if run is not None:
        query = query.where(_entries.c.run == run)
    return [parse_row(dict(row._mapping)) for row in connection.execute(query)]


def last_two(connection: Connection, run: str) -> list[Entry]:
    """The last two entries of a run, or fewer, in order.

    Raises:
        VerifyError: a row cannot be read.
    """
    query = (
        sa.select(_entries).where(_entries.c.run == run).order_by(_entries.c.seq.desc()).limit(2)
    )
    return [parse_row(dict(row._mapping)) for row in reversed(connection.execute(query).all())]


def append(
    connection: Connection, dataset: str, run: str, kind: str, body: dict[str, Any]
) -> Entry:
    """Add an entry after the last one.

    Its time is a day: bundles publish entries, and how long a run takes depends on its rows.
    """
    last = connection.execute(
        sa.select(_entries.c.seq, _entries.c.hash).order_by(_entries.c.seq.desc()).limit(1)
    ).first()
    seq, previous = (last.seq + 1, last.hash) if last is not None else (1, GENESIS)
    at = datetime.now(UTC).date().isoformat()
    entry = Entry(seq, dataset, run, kind, body, at, previous, "")
    entry = replace(entry, hash=entry_hash(**asdict(entry)))
    connection.execute(
        sa.insert(_entries).values(**{**entry.to_json(), "body": json.dumps(body, sort_keys=True)})
    )
    return entry
