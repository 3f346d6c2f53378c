"""The only opener of sealed tables, with two doors.

`release(mechanism, purpose=...)` matches the mechanism's event against the plan, charges the ledger
durably, and only then lets the mechanism look; `release_together` does so for several, which then
look in one pass. `inspect(fn, reason=...)` computes on real rows without noise and returns
`Confidential`, which the bundle refuses.

A run's journal keeps each released value, so that a run that was killed goes on without looking
twice: a purpose that was charged and kept is read back; one that was charged and not kept was used
by nobody and runs again under the same charge. The ledger says what was kept, and which process
holds the run (`lease`), so that a copy of the run's folder, or an older one, gives no second look.
After the run has settled its values may be public, so that then only the journal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode
from synthdp.errors import BudgetError
from synthdp.ledger.lease import Lease
from synthdp.ledger.ledger import Ledger
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.journal import Checkpoints, Journal
from synthdp.privacy.mechanisms.mechanism import Arrays, Mechanism
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import (
    _KERNEL_KEY,
    Confidential,
    Private,
    Receipt,
    Released,
    _check_key,
)
from synthdp.privacy.table import Table
from synthdp.privacy.together import tables_for

T = TypeVar("T")

REHEARSAL = Receipt("rehearsal", "")  # no ledger holds it, so a bundle refuses what carries it


class Session:
    """One run over one sealed table."""

    def __init__(
        self,
        private: Private[Table],
        plan: ReleasePlan,
        ledger: Ledger,
        *,
        dataset: str,
        run: str,
        streams: Streams,
        journal: Path,
    ) -> None:
        """`journal` is the run's private folder for released values; the reservation must already
        be open.

        Whoever held the run before, perhaps on another machine, can release nothing more.

        Raises:
            BudgetError: the plan spends more than the run has reserved.
        """
        _check_reserved(plan, ledger, dataset=dataset, run=run)
        self._private, self._streams, self._run = private, streams, run
        self._lease = Lease(ledger, dataset=dataset, run=run)
        self._journal = Journal(journal, self._lease)
        self._used: set[str] = set()
        self.plan = plan

    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]:
        """Charge the planned spend `purpose` and run `mechanism`, whose event must be the planned
        one.

        Raises:
            BudgetError: not in the plan, already used, another event than planned, the ledger
                refuses, or another process has taken the run over.
            OutputError: the run's journal cannot be written, or is not the one that was used.
        """
        event = _check_planned(self.plan, mechanism, purpose, self._used)
        entry = self._lease.charge(purpose=purpose, mechanism=mechanism.name, event=event)
        self._used.add(purpose)
        arrays = self._journal.read(purpose)
        if arrays is None:
            _check_unsettled(self._lease, self._run, purpose)
            value = mechanism.run(self._private.unseal(key=_KERNEL_KEY), self._streams)
            self._journal.write(purpose, mechanism.pack(value))
        else:
            value = self._unpacked(mechanism, arrays, purpose)
        return Released(value, frozenset({Receipt(self._run, entry.hash)}), key=_KERNEL_KEY)

    def release_together(self, mechanisms: Mapping[str, Mechanism[T]]) -> dict[str, Released[T]]:
        """`release` of the mechanism of each purpose, each charged by itself; the rows are opened
        after the last charge, and looked at in one pass for all whose value was not kept.

        Raises:
            BudgetError, OutputError: as `release` does; nothing was seen if any charge is refused.
        """
        events = {
            purpose: _check_planned(self.plan, mechanism, purpose, self._used)
            for purpose, mechanism in mechanisms.items()
        }
        receipts = {}
        for purpose, event in events.items():
            name = mechanisms[purpose].name
            paid = self._lease.charge(purpose=purpose, mechanism=name, event=event)
            receipts[purpose] = frozenset({Receipt(self._run, paid.hash)})
            self._used.add(purpose)
        kept = {purpose: self._journal.read(purpose) for purpose in mechanisms}
        values = {
            purpose: self._unpacked(mechanisms[purpose], arrays, purpose)
            for purpose, arrays in kept.items()
            if arrays is not None
        }
        values |= self._seen_together({p: m for p, m in mechanisms.items() if p not in values})
        return {p: Released(values[p], receipts[p], key=_KERNEL_KEY) for p in mechanisms}

    def _seen_together(self, mechanisms: Mapping[str, Mechanism[T]]) -> dict[str, T]:
        """Values of what was charged and not kept, each kept before the next has its noise."""
        for purpose in mechanisms:
            _check_unsettled(self._lease, self._run, purpose)
        if not mechanisms:
            return {}
        tables = tables_for(self._private.unseal(key=_KERNEL_KEY), list(mechanisms.values()))
        values = {}
        for (purpose, mechanism), table in zip(mechanisms.items(), tables, strict=True):
            values[purpose] = mechanism.run(table, self._streams)
            self._journal.write(purpose, mechanism.pack(values[purpose]))
        return values

    def checkpoints(self, purpose: str) -> Checkpoints | None:
        """Where the mechanism of `purpose` keeps how far it came, for a run that is killed on the
        way.
        """
        return self._journal.checkpoints(purpose)

    @property
    def settled(self) -> bool:
        """Whether the run is closed."""
        return self._lease.settled

    def settle(self) -> None:
        """Close the run: nothing new can be charged.

        Raises:
            BudgetError: another process has taken the run over.
        """
        self._lease.settle()

    def inspect(self, fn: Callable[[Table], T], *, reason: str) -> Confidential[T]:
        """`fn` of the real rows, for the steward alone. Costs no budget because it may never be
        published.
        """
        return inspect(self._private, fn, reason=reason)

    def _unpacked(self, mechanism: Mechanism[T], arrays: Arrays, purpose: str) -> T:
        try:
            return mechanism.unpack(arrays)
        except (KeyError, ValueError, TypeError):
            raise self._journal.damaged(purpose) from None


def inspect(private: Private[Table], fn: Callable[[Table], T], *, reason: str) -> Confidential[T]:
    """`fn` of sealed rows for the steward alone, outside any run: nothing can be released this
    way.
    """
    return Confidential(fn(private.unseal(key=_KERNEL_KEY)), reason, key=_KERNEL_KEY)


class Rehearsal:
    """A run of the same pipeline on other rows, without ledger: shadow models, and tests.

    What it releases carries a receipt that no ledger holds, so it can never be bundled. Rehearsing
    on real rows happens inside `Session.inspect` only, whose result is confidential.
    """

    def __init__(
        self, codes: Codes, domain: Domain, plan: ReleasePlan, *, frame: pd.DataFrame | None = None
    ) -> None:
        """`codes` are levels `[rows, columns]`; `frame` the cleaned values behind them, default:
        drawn from the levels.
        """
        frame = decode(domain, codes, rng=fresh_generator()) if frame is None else frame
        self._table = Table(codes, frame, held_out=codes[:, 0] != codes[:, 0], misfits={})
        self._streams = Streams.quick()
        self._used: set[str] = set()
        self.plan = plan

    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]:
        """Check against the plan and run."""
        return Released(
            mechanism.run(*self.admit(mechanism, purpose=purpose, key=_KERNEL_KEY)),
            frozenset({REHEARSAL}),
            key=_KERNEL_KEY,
        )

    def release_together(self, mechanisms: Mapping[str, Mechanism[T]]) -> dict[str, Released[T]]:
        """`release` of each: made-up rows in memory need no common pass."""
        return {p: self.release(m, purpose=p) for p, m in mechanisms.items()}

    def admit(
        self, mechanism: Mechanism[Any], *, purpose: str, key: object
    ) -> tuple[Table, Streams]:
        """For the kernel: check against the plan, and give what the mechanism may see and draw.

        Raises:
            BudgetError: not in the plan, already used, or another event than planned.
        """
        _check_key(key, "look at the rows of a rehearsal")
        _check_planned(self.plan, mechanism, purpose, self._used)
        self._used.add(purpose)
        return self._table, self._streams

    def checkpoints(self, purpose: str) -> Checkpoints | None:
        """None: a rehearsal that is killed is begun again."""
        return None


def _check_reserved(plan: ReleasePlan, ledger: Ledger, *, dataset: str, run: str) -> None:
    """The ledger adds up reservations, so a plan must not spend more than its run reserved."""
    reserved = next(
        (e.body for e in ledger.entries(dataset=dataset, run=run) if e.kind == "reserve"), None
    )
    if reserved is None:
        raise BudgetError(
            f"run {run} has no open reservation on dataset {dataset}", hint="start a new release"
        )
    if (
        plan.epsilon > reserved["epsilon"]
        or plan.delta > reserved["delta"]
        or plan.epsilon_spent > plan.epsilon
    ):
        raise BudgetError(
            f"the plan spends epsilon {max(plan.epsilon, plan.epsilon_spent):g}, delta"
            f" {plan.delta:g}; run {run} reserved epsilon {reserved['epsilon']:g}, delta"
            f" {reserved['delta']:g}"
        )


def _check_unsettled(lease: Lease, run: str, purpose: str) -> None:
    if lease.settled:
        raise BudgetError(
            f"run {run} has settled, and kept no value of {purpose!r}",
            hint="its bundle may be whole; if not, start a new release",
        )


def _check_planned(
    plan: ReleasePlan, mechanism: Mechanism[Any], purpose: str, used: set[str]
) -> dict[str, Any]:
    planned = plan.find(purpose)
    if planned is None:
        raise BudgetError(
            f"{purpose!r} is not in the plan",
            hint=f"planned: {', '.join(repr(s.purpose) for s in plan.spends)}",
        )
    if purpose in used:
        raise BudgetError(f"{purpose!r} was already released in this run")
    event = event_to_json(mechanism.event(plan.rows_per_unit))
    if event != event_to_json(planned.mechanism.event(plan.rows_per_unit)):
        raise BudgetError(f"{purpose!r} would spend another event than planned")
    return event
