"""The budget ledger: an append-only, hash-chained table of what every release of a dataset reserved and spent.

One table holds entries of four kinds: `cap` (the most a dataset may spend), `reserve` (a run's fixed epsilon
and delta, taken before any row is read), `charge` (one mechanism, written durably before it runs) and
`settle` (the run is done). Balances are always derived from the entries, never stored.

Reservations of one dataset add up (basic composition of fixed (epsilon, delta) pairs, sound for releases
chosen in the light of earlier ones [Rogers et al., "Privacy Odometers and Filters", arXiv:1605.08294v3,
Theorem 3.6 with constant parameters]). A run that dies keeps its reservation: a crash costs budget, it
never hides it. SQLite by default, any SQLAlchemy URL (PostgreSQL for a team).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url

from synthdp.errors import BudgetError, VerifyError

GENESIS = "0" * 64
TOLERANCE = 1e-9  # caps are decimal fractions; 0.1 + 0.2 must fit a cap of 0.3

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


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    seq: int
    dataset: str
    run: str
    kind: str
    body: dict[str, Any]
    at: str
    previous: str
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `entry_hash` can be recomputed."""
        return {k: getattr(self, k) for k in ("seq", "dataset", "run", "kind", "body", "at", "previous", "hash")}


@dataclass(frozen=True)
class Balance:
    """What a dataset has spent and may spend; `cap_*` are None where no cap was set."""

    dataset: str
    epsilon: float
    delta: float
    cap_epsilon: float | None
    cap_delta: float | None


def entry_hash(*, seq: int, dataset: str, run: str, kind: str, body: dict[str, Any], at: str, previous: str) -> str:
    """SHA-256 of the canonical JSON of an entry; `previous` chains it to the one before."""
    content = {"seq": seq, "dataset": dataset, "run": run, "kind": kind, "body": body, "at": at, "previous": previous}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Ledger:
    """Access to one ledger database. Every write is one serialised, durable transaction."""

    def __init__(self, url: str) -> None:
        """Open the ledger at a SQLAlchemy `url`, creating it where it does not exist.

        Raises:
            BudgetError: the database cannot be opened or written.
        """
        self.url = url
        shown = "at this URL"
        try:
            parsed = make_url(url)
            shown = parsed.render_as_string(hide_password=True)
            if parsed.get_backend_name() == "sqlite" and parsed.database:
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            self._engine = _engine(url)
            _metadata.create_all(self._engine)
        except (sa.exc.SQLAlchemyError, OSError, ImportError) as error:
            # An unreadable URL is not shown: nobody knows where its password is.
            hint = "privacy.ledger is a SQLAlchemy URL, such as sqlite:////data/ledger.db"
            raise BudgetError(f"cannot open the ledger {shown}: {type(error).__name__}", hint=hint) from None

    # --- reading ---

    def entries(self, *, dataset: str | None = None, run: str | None = None) -> list[Entry]:
        """Entries in order, of one dataset or run where named."""
        with self._engine.connect() as connection:
            return _select(connection, dataset=dataset, run=run)

    def run_entries(self, run: str) -> list[Entry]:
        """Entries of one run, in order."""
        return self.entries(run=run)

    def balance(self, dataset: str) -> Balance:
        """What `dataset` has reserved in total, and its cap."""
        return _balance(dataset, self.entries(dataset=dataset))

    def check(self, dataset: str, *, epsilon: float, delta: float, cap: tuple[float, float] | None) -> None:
        """Whether `reserve` would accept now; another run may still be faster.

        Raises:
            BudgetError: as `reserve`.
        """
        balance = self.balance(dataset)
        if balance.cap_epsilon is None and cap is not None:
            balance = replace(balance, cap_epsilon=cap[0], cap_delta=cap[1])
        _check_cap(balance, cap=cap, epsilon=epsilon, delta=delta)

    def verify_chain(self) -> None:
        """Recompute every hash.

        Raises:
            VerifyError: an entry was edited, removed or put in; names the row.
        """
        verify_entries(self.entries())

    # --- writing ---

    def set_cap(self, dataset: str, *, epsilon: float, delta: float, run: str = "") -> Entry:
        """Set or change a dataset's cap; the change stays visible in the chain."""
        _check_amounts(epsilon, delta)
        with self._transaction() as connection:
            return _append(connection, dataset, run, "cap", {"epsilon": epsilon, "delta": delta})

    def reserve(self, dataset: str, run: str, *, epsilon: float, delta: float, cap: tuple[float, float] | None, body: dict[str, Any]) -> Entry:
        """Take (epsilon, delta) out of what is left for `dataset`, before any row is read.

        `cap` is what the spec declares; it becomes the dataset's cap at the first release and must agree
        with it later.

        Raises:
            BudgetError: the cap does not allow it, or the spec's cap is not the ledger's.
        """
        _check_amounts(epsilon, delta, *(cap or ()))
        with self._transaction() as connection:
            balance = _balance(dataset, _select(connection, dataset=dataset))
            if balance.cap_epsilon is None and cap is not None:
                _append(connection, dataset, run, "cap", {"epsilon": cap[0], "delta": cap[1]})
                balance = _balance(dataset, _select(connection, dataset=dataset))
            _check_cap(balance, cap=cap, epsilon=epsilon, delta=delta)
            return _append(connection, dataset, run, "reserve", {**body, "epsilon": epsilon, "delta": delta})

    def charge(self, dataset: str, run: str, *, purpose: str, mechanism: str, event: dict[str, Any]) -> Entry:
        """Write down one spend, durably, before its mechanism looks at a row.

        A purpose that this run already charged with the same event is not charged again (a resumed run).

        Raises:
            BudgetError: no open reservation on `dataset`, or the purpose was charged with another event.
        """
        body = {"purpose": purpose, "mechanism": mechanism, "event": event}
        with self._transaction() as connection:
            mine = _select(connection, dataset=dataset, run=run)
            for entry in mine:
                if entry.kind == "charge" and entry.body["purpose"] == purpose:
                    if entry.body != body:
                        raise BudgetError(f"run {run} already charged {purpose!r} with another event")
                    return entry
            kinds = [e.kind for e in mine]
            if "reserve" not in kinds or "settle" in kinds:
                raise BudgetError(f"run {run} has no open reservation on dataset {dataset}", hint="start a new release")
            return _append(connection, dataset, run, "charge", body)

    def settle(self, dataset: str, run: str) -> Entry:
        """Close a run: nothing new can be charged, and its reservation stays spent. Settling twice is one settlement.

        The entry counts the run's charges, so that one that is taken out of a published copy is missed.
        """
        with self._transaction() as connection:
            mine = _select(connection, dataset=dataset, run=run)
            for entry in mine:
                if entry.kind == "settle":
                    return entry
            return _append(connection, dataset, run, "settle", {"charges": sum(e.kind == "charge" for e in mine)})

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps; rolled back on any error."""
        try:
            with self._engine.connect() as connection:
                if self._engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                else:
                    connection.exec_driver_sql("LOCK TABLE synthdp_ledger IN EXCLUSIVE MODE")
                yield connection
                connection.commit()
        except sa.exc.SQLAlchemyError as error:
            cause = str(error.__cause__ or type(error).__name__)
            raise BudgetError(f"the ledger refused to write ({cause}); nothing was spent", hint="check the ledger's disk and database") from None


def _engine(url: str) -> Engine:
    engine = sa.create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {}, poolclass=sa.pool.NullPool)
    if engine.dialect.name == "sqlite":

        @sa.event.listens_for(engine, "connect")
        def _configure(connection: Any, _: Any) -> None:
            # Transactions are begun by hand (BEGIN IMMEDIATE), and a commit reaches the disk before it returns.
            connection.isolation_level = None
            connection.execute("PRAGMA synchronous=FULL")

    return engine


def _select(connection: Connection, *, dataset: str | None = None, run: str | None = None) -> list[Entry]:
    query = sa.select(_entries).order_by(_entries.c.seq)
    if dataset is not None:
        query = query.where(_entries.c.dataset == dataset)
    if run is not None:
        query = query.where(_entries.c.run == run)
    return [Entry(**{**row._mapping, "body": json.loads(row.body)}) for row in connection.execute(query)]


def _append(connection: Connection, dataset: str, run: str, kind: str, body: dict[str, Any]) -> Entry:
    last = connection.execute(sa.select(_entries.c.seq, _entries.c.hash).order_by(_entries.c.seq.desc()).limit(1)).first()
    seq, previous = (last.seq + 1, last.hash) if last is not None else (1, GENESIS)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    digest = entry_hash(seq=seq, dataset=dataset, run=run, kind=kind, body=body, at=at, previous=previous)
    entry = Entry(seq, dataset, run, kind, body, at, previous, digest)
    connection.execute(sa.insert(_entries).values(**{**entry.to_json(), "body": json.dumps(body, sort_keys=True)}))
    return entry


def _balance(dataset: str, entries: Sequence[Entry]) -> Balance:
    caps = [e.body for e in entries if e.kind == "cap"]
    reserved = [e.body for e in entries if e.kind == "reserve"]
    cap = caps[-1] if caps else {"epsilon": None, "delta": None}
    return Balance(dataset, sum(b["epsilon"] for b in reserved), sum(b["delta"] for b in reserved), cap["epsilon"], cap["delta"])


def _check_amounts(*amounts: float) -> None:
    """Nothing is compared with a NaN, and a negative spend would raise what is left."""
    if not all(math.isfinite(a) and a >= 0 for a in amounts):
        raise BudgetError(f"epsilon and delta must be finite and not negative, got {', '.join(f'{a:g}' for a in amounts)}")


def _check_cap(balance: Balance, *, cap: tuple[float, float] | None, epsilon: float, delta: float) -> None:
    if cap is not None and cap != (balance.cap_epsilon, balance.cap_delta):
        raise BudgetError(
            f"the spec's cap for dataset {balance.dataset} is epsilon {cap[0]:g}, delta {cap[1]:g}; "
            f"the ledger's is epsilon {balance.cap_epsilon:g}, delta {balance.cap_delta:g}",
            hint="correct the spec, or change the ledger's cap with `synthdp budget --set-cap`",
        )
    for name, need, spent, limit in (
        ("epsilon", epsilon, balance.epsilon, balance.cap_epsilon),
        ("delta", delta, balance.delta, balance.cap_delta),
    ):
        if limit is not None and spent + need > limit * (1 + TOLERANCE):
            raise BudgetError(
                f"{name}: needs {need:g}, {max(limit - spent, 0):.4g} left on dataset {balance.dataset}; cap {limit:g}, spent {spent:g}",
                hint="lower the spec's budget, or have the data's owner raise the cap with `synthdp budget --set-cap`",
            )


def verify_entries(entries: Sequence[Entry]) -> None:
    """Recompute the chain of consecutive `entries` that begin at the ledger's first.

    Raises:
        VerifyError: names the first row that does not fit.
    """
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        content = {k: v for k, v in entry.to_json().items() if k != "hash"}
        if entry.seq != position or entry.previous != previous or entry_hash(**content) != entry.hash:
            raise VerifyError(f"the ledger was tampered with: row {entry.seq} (run {entry.run}, {entry.kind}) does not fit the chain")
        previous = entry.hash
