"""The only opener of sealed tables, with two doors.

`release(mechanism, purpose=...)` matches the mechanism's event against the plan, charges the ledger
durably, and only then lets the mechanism look; `release_together` does so for several, which then
look in one pass. `inspect(fn, reason=...)` computes on real rows without noise and returns
`Confidential`, which the bundle refuses. An error that is not ours leaves either without its text
and frames, which may quote rows (`private.withholding`).

A run's journal keeps each released value, so that a run that was killed goes on without looking
twice: a purpose that was charged and kept is read back; one that was charged and not kept was used
by nobody and runs again under the same charge. The ledger says what was kept, and which process
holds the run (`ledger.ledger.Lease`), so that a copy of the run's folder, or an older one, gives no
second look. After the run has settled its values may be public, so that then only the journal
answers.

An engine reads its table anew for each question. So `release_together` lets several mechanisms look
in one pass. What planned tables and sums will ask is known before: it is asked together, once, and
each mechanism then finds its own answer in a table that knows nothing else. So each of them adds
the noise and states the event that it has alone, and is charged by itself; what is joined is the
exact sums before any noise, which do not leave the kernel.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError, BudgetError, OutputError, disk_errors
from synthdp.files import check_plain, write_whole
from synthdp.ledger.ledger import Lease, Ledger
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.mechanisms import Arrays, Mechanism
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.sums import SumMechanism
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import (
    _KERNEL_KEY,
    Confidential,
    Private,
    Receipt,
    Released,
    _check_key,
    withholding,
)
from synthdp.privacy.table import Columns, Integers, Side, Summands, Table

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
        coins: str = "",
    ) -> None:
        """`journal` is the run's private folder for released values; the reservation must already
        be open. `coins` are the ledger's half of the key of who is held out.

        Whoever held the run before, perhaps on another machine, can release nothing more.

        Raises:
            BudgetError: the plan spends more than the run has reserved.
        """
        _check_reserved(plan, ledger, dataset=dataset, run=run)
        self._private, self._streams, self._run = private, streams, run
        self._lease = Lease(ledger, dataset=dataset, run=run, coins=coins)
        self._journal = Journal(journal, self._lease)
        self._used: set[str] = set()
        self.plan = plan

    @withholding
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

    @withholding
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
            raise damaged(purpose) from None


@withholding
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

    @classmethod
    def of(cls, table: Table, plan: ReleasePlan) -> Rehearsal:
        """A rehearsal on a table of more than its levels, such as two linked ones."""
        made = cls(table.codes, Domain(()), plan, frame=table.frame)
        made._table = table
        return made

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
    # 1e-6: relative, of what another machine computed
    if "mu" in reserved and any(
        own > kept * (1 + 1e-6)
        for own, kept in zip(plan.bound, (reserved["mu"], reserved["lost"]), strict=True)
    ):
        raise BudgetError(f"the plan costs more than the mu and the lost mass of run {run} say")


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


# --- together ---


MAX_CELLS = 1 << 16
"""Of tables that are added up beside sums, block by block; larger ones take a pass of their own."""


@dataclass(frozen=True)
class CellsOf(Summands):
    """The indicators of the cells of a table of levels, whose sum is its counts."""

    domain: Domain
    columns: Columns

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(self.domain[name].levels for name in self.columns)

    @property
    def reads(self) -> frozenset[str]:
        """The table's columns."""
        return frozenset(self.columns)

    @property
    def size(self) -> int:
        """Cells."""
        return math.prod(self.shape)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """Rows of each cell, `[size]`."""
        cell = np.zeros(len(codes), dtype=np.int64)
        for name, levels in zip(self.columns, self.shape, strict=True):
            cell = cell * levels + codes[:, self.domain.index(name)]
        return np.bincount(cell, minlength=self.size).astype(np.int64)


@dataclass(frozen=True)
class Joined(Summands):
    """Several vectors that rows add to, one after the other."""

    parts: tuple[Summands, ...]

    @property
    def reads(self) -> frozenset[str]:
        """Columns of any."""
        return frozenset().union(*(part.reads for part in self.parts))

    @property
    def size(self) -> int:
        """Of all."""
        return sum(part.size for part in self.parts)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """What some rows add to each, `[size]`."""
        return np.concatenate([part.block(frame, codes) for part in self.parts])

    def cut(self, total: Integers) -> list[Integers]:
        """The sum of each, of that of all."""
        return np.split(total, list(accumulate(part.size for part in self.parts))[:-1])


class Seen(Table):
    """Exact answers that some mechanisms will ask for, and no rows."""

    def __init__(self, counts: dict[Columns, Integers], sums: list[tuple[Summands, Integers]]):
        object.__setattr__(self, "_counts", counts)
        object.__setattr__(self, "_sums", sums)
        object.__setattr__(self, "misfits", {})

    def _away(self) -> NoReturn:
        raise BoundaryError("a mechanism asks for more than was looked at for it")

    codes = property(_away)
    frame = property(_away)
    held_out = property(_away)
    fit_codes = property(_away)

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """Copies of the counts.

        Raises:
            BoundaryError: other tables, or groups of levels.
        """
        known: dict[Columns, Integers] = self._counts  # type: ignore[attr-defined]
        if groups.starts or any(columns not in known for columns in tables):
            self._away()
        return [known[columns].copy() for columns in tables]

    def add_up(self, what: Summands, side: Side = "fit") -> Integers:
        """A copy of the sum.

        Raises:
            BoundaryError: another one.
        """
        known: list[tuple[Summands, Integers]] = self._sums  # type: ignore[attr-defined]
        for own, total in known:
            if own is what and side == "fit":
                return total.copy()
        self._away()

    def sampled_codes(self, rate: float, randomness: Any) -> NoReturn:
        """Never."""
        self._away()


def tables_for(table: Table, mechanisms: Sequence[Mechanism[Any]]) -> list[Table]:
    """For each mechanism the table to run it on: what was seen for all of them in one pass, or
    `table` itself for one that is not known to ask for counts and sums alone. For the kernel, after
    the charge of each.

    One pass over an engine's table: of counts where there are only tables, else of sums; and one
    more for tables of more than `MAX_CELLS` cells beside sums.
    """
    sums = [m for m in mechanisms if isinstance(m, SumMechanism)]
    marginals = [m for m in mechanisms if isinstance(m, NoisyMarginals)]
    if len(sums) + len(marginals) < 2:
        return [table] * len(mechanisms)
    domain = (sums + marginals)[0].domain
    wanted = [CellsOf(domain, c) for c in dict.fromkeys(c for m in marginals for c in m.tables)]
    beside = [own for own in wanted if sums and own.size <= MAX_CELLS]
    alone = [own.columns for own in wanted if own not in beside]
    counts: dict[Columns, Integers] = {}
    if alone:
        counts |= zip(alone, table.count(LevelGroups(domain, {}), alone), strict=True)
    totals = list[Integers]()
    if sums:
        joined = Joined((*sums, *beside))
        totals = joined.cut(table.add_up(joined))
        for own, total in zip(beside, totals[len(sums) :], strict=True):
            counts[own.columns] = total.reshape(own.shape)
    seen = Seen(counts, list(zip(sums, totals[: len(sums)], strict=True)))
    return [seen if isinstance(m, SumMechanism | NoisyMarginals) else table for m in mechanisms]


# --- journal ---


class Checkpoints(Protocol):
    """Where a mechanism of many steps keeps how far it came; what it gives must be noisy
    already.
    """

    def last(self) -> Arrays | None:
        """What was kept last."""
        ...

    def keep(self, step: int, arrays: Arrays) -> None:
        """Keep `arrays` after `step` steps; returns when nothing can undo it."""
        ...


class Journal:
    """The released values of the run that `lease` holds, on its private disk.

    Each value is written to a file that is named by purpose and digest, brought to the disk, and
    entered in the ledger as `kept`; only then is it used. A file whose digest the ledger does not
    hold was used by nobody and is passed over. A purpose whose kept file is missing or another is
    refused: its value was used, and may have been seen, so that a second look at the rows would go
    unpaid (`ledger.ledger.Lease` has the proof).
    """

    def __init__(self, folder: Path, lease: Lease) -> None:
        self._folder, self._lease = folder, lease

    def read(self, purpose: str) -> Arrays | None:
        """The value that was kept; None where none was.

        Raises:
            OutputError: it was kept, and its file is missing or another.
        """
        kept = self._lease.kept(purpose)
        if kept is None or kept["step"] is not None:
            return None
        return self._held(purpose, kept["sha256"])

    def write(self, purpose: str, arrays: Arrays, *, step: int | None = None) -> None:
        """Keep a value, or what a mechanism came to after `step` steps.

        Raises:
            OutputError: the disk does not take it.
            BudgetError: another process has taken the run over: the value must not be used.
        """
        from safetensors.numpy import save

        content = save(arrays)
        digest = hashlib.sha256(content).hexdigest()
        path, earlier = self._path(purpose, digest), self._lease.kept(purpose)
        _write(path, content)
        self._lease.keep(purpose=purpose, step=step, sha256=digest)
        # that one alone: others may be of a process that took the run since
        if earlier is not None and earlier["sha256"] != digest:
            self._path(purpose, earlier["sha256"]).unlink(missing_ok=True)

    def checkpoints(self, purpose: str) -> Checkpoints:
        """How far the mechanism of `purpose` came."""
        return _JournalCheckpoints(self, purpose)

    def last_checkpoint(self, purpose: str) -> Arrays | None:
        """What was kept last on the way to a value that is not there yet.

        Raises:
            OutputError: as `read`.
        """
        kept = self._lease.kept(purpose)
        return None if kept is None or kept["step"] is None else self._held(purpose, kept["sha256"])

    def _held(self, purpose: str, digest: str) -> Arrays:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = self._path(purpose, digest)
        try:
            check_plain(path)
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError("another file")
            arrays: Arrays = load(content)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            raise damaged(purpose) from None
        return arrays

    def _path(self, purpose: str, digest: str) -> Path:
        return self._folder / f"{_file_name(purpose)}.{digest[:16]}.safetensors"


class _JournalCheckpoints:
    def __init__(self, journal: Journal, purpose: str) -> None:
        self._journal, self._purpose = journal, purpose

    def last(self) -> Arrays | None:
        return self._journal.last_checkpoint(self._purpose)

    def keep(self, step: int, arrays: Arrays) -> None:
        self._journal.write(self._purpose, arrays, step=step)


def damaged(purpose: str) -> OutputError:
    """The error for a file of a run's journal that holds something else than `purpose` releases."""
    return OutputError(
        f"{_file_name(purpose)} of the interrupted run is missing, damaged, or not the one that was"
        " used",
        hint="bring the run's folder back as it was last written (an older copy is refused), or"
        " start a new release with --force; the budget of this run stays spent",
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; its bytes and its name are on the disk when this returns.

    Raises:
        OutputError: the disk does not take it.
    """
    hint = "make room or allow writing, then `synthdp resume` the release"
    with disk_errors(f"cannot write {path}", hint=hint):
        write_whole(path, content)


def _file_name(purpose: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in purpose)
