"""The budget ledger: an append-only hash chain of what every release reserved and spent.

One table holds entries of eight kinds: `cap` (the most a dataset may spend), `reserve` (a run's
fixed epsilon and delta, taken before any mechanism looks), `charge` (one mechanism, written durably
before it runs), `amend` (what is done with released values was changed), `settle` (the run is
done), two that make a run one run wherever its folder is copied: `lease` (a process has taken the
run) and `kept` (the digest of the value that is used), and `decision` (who said yes or no to the
bundle, and why), which costs nothing. Balances are always derived from the entries, never stored.

A run that dies keeps its reservation: a crash costs budget, it never hides it. Every write can be
done again and counts once, so one that was lost on its way back from the database is simply tried
again.

How reservations of a dataset with a cap are added is fixed by its first one: by the Gaussian filter
(`ledger.composition`), or as follows. Ledgers that were begun before there was that filter go on
so.

Why reservations add up [derived here; it is the filter of Rogers et al., "Privacy Odometers and
Filters" arXiv:1605.08294, as in the published version (NIPS 2016), for basic composition, with
parameters that each round may choose]. Claim: whatever the steward asks for in the light of earlier
results, the law of everything that a dataset's runs release is (E, D)-indistinguishable between
neighbouring tables, where (E, D) is the cap.

Fix the steward's coins: they do not depend on the table. A run's spec and plan are fixed when it
reserves (e, d), and it is (e, d)-DP; `Session` refuses a plan that composes to more. It takes
nothing from other runs afterwards, so its whole output may be thought drawn at that moment: one who
sees it later, or in parts, while other runs are open, knows less. So runs may be taken one after
another, in the order of their reservations.

Induction over the number of requests, for every remaining (E, D). With no requests nothing is
released. Otherwise the first request (e, d) is a constant. Refused (e > E or d > D), it releases a
constant and leaves fewer requests. Granted, its output y has laws P and Q on the two tables, and
what follows y is an interaction with fewer requests and (E - e, D - d) left, of whatever y
suggested. For a set S of transcripts and its sections S_y the induction gives P(S_y | y) <= f(y) +
D - d with f(y) = min(1, exp(E - e) Q(S_y | y)). As f lies in [0, 1], (e, d)-DP gives integral f dP
<= exp(e) integral f dQ + d (level sets of f). Together P(S) <= exp(e) integral f dQ + d + D - d <=
exp(E) Q(S) + D. QED.

That open runs may be taken one after another is also what Haney et al. show for interactive
mechanisms in general ("Concurrent Composition for Interactive Differential Privacy with Adaptive
Privacy-Loss Parameters", arXiv:2309.05901v2, on filters for (epsilon, delta)).

What the proof needs. One neighbour relation for all runs of a dataset: `reserve` refuses another
one. The steward answers for the privacy unit, which must stay the same (`synthdp budget` says where
it did not). A cap that is fixed beforehand: one that is raised in the light of results bounds
nothing below its highest value. And since what is compared with the cap is a sum of decimal
fractions, E and D hold up to the factor 1 + `ledger.entries.TOLERANCE`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from typing import Any

from sqlalchemy.engine import Connection

from synthdp.errors import BudgetError, OutputError
from synthdp.ledger import database
from synthdp.ledger.composition import Wave, check_statement
from synthdp.ledger.entries import (
    ANSWERS,
    Balance,
    Bound,
    Choice,
    Entry,
    balance_of_entries,
    check_amounts,
    check_first,
    check_neighbours,
    check_said,
    same_reservation,
    verify_entries,
)


class Ledger:
    """Access to one ledger database. Every write is one serialised, durable transaction.

    >>> from pathlib import Path
    >>> ledger = Ledger(f"sqlite:///{Path.cwd()}/example.db")
    >>> _ = ledger.set_cap("patients", epsilon=3, delta=1e-4)
    >>> _ = ledger.reserve("patients", "run-1", epsilon=1, delta=1e-5, cap=None, body={})
    >>> ledger.balance("patients")
    Balance(dataset='patients', epsilon=1.0, delta=1e-05, cap_epsilon=3, cap_delta=0.0001,
    mu=None, lost=0.0, most=None, waves={})
    >>> ledger.verify_chain()
    """

    def __init__(self, url: str) -> None:
        """Open the ledger at a SQLAlchemy `url` (SQLite or PostgreSQL).

        A ledger that does not exist is created.

        Raises:
            BudgetError: the database cannot be opened or written.
        """
        self.url = url
        self._engine = database.open_database(url)

    # --- reading ---

    def entries(self, *, dataset: str | None = None, run: str | None = None) -> list[Entry]:
        """Entries in order, of one dataset or run where named.

        Raises:
            BudgetError: the database cannot be read.
            VerifyError: a row was made unreadable; names it.
        """
        with database.reading(self._engine) as connection:
            return database.select(connection, dataset=dataset, run=run)

    def run_entries(self, run: str) -> list[Entry]:
        """Entries of one run, in order."""
        return self.entries(run=run)

    def balance(self, dataset: str) -> Balance:
        """What `dataset` has reserved in total, and its cap."""
        return balance_of_entries(dataset, self.entries(dataset=dataset))

    def check(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        cap: tuple[float, float] | None,
        bound: Bound | None = None,
        wave: Wave | None = None,
    ) -> None:
        """Check that `reserve` would accept now; another run may still be faster.

        Raises:
            BudgetError: as `reserve`.
        """
        check_first(
            self.balance(dataset), epsilon=epsilon, delta=delta, cap=cap, bound=bound, wave=wave
        )

    def verify_chain(self) -> None:
        """Recompute every hash.

        Raises:
            VerifyError: an entry was edited, removed or put in; names the row.
        """
        verify_entries(self.entries())

    # --- writing ---

    def set_cap(self, dataset: str, *, epsilon: float, delta: float, run: str = "") -> Entry:
        """Set or change a dataset's cap; the change stays visible in the chain."""
        check_amounts(epsilon, delta)
        with database.writing(self._engine) as connection:
            return database.append(
                connection, dataset, run, "cap", {"epsilon": epsilon, "delta": delta}
            )

    def reserve(
        self,
        dataset: str,
        run: str,
        *,
        epsilon: float,
        delta: float,
        cap: tuple[float, float] | None,
        body: dict[str, Any],
        bound: Bound | None = None,
        wave: Wave | None = None,
    ) -> Entry:
        """Take (epsilon, delta) out of what is left for `dataset`, before any mechanism looks.

        `cap` is what the spec declares; it becomes the dataset's cap at the first release and must
        agree with it later. `bound` is of the run's plan, and kept where the Gaussian filter rules.
        `wave` is that of the run in a series, by whose statement amounts add up
        (`ledger.composition`). A run reserves once: a second, equal request returns the reservation
        that it has.

        Raises:
            BudgetError: the cap does not allow it, the spec's cap is not the ledger's, earlier
                releases had other neighbours or another statement on waves, or the run has another
                reservation.
            VerifyError: the ledger was tampered with, so that nobody knows what is left.
        """
        check_amounts(epsilon, delta, *(cap or ()), *(b for b in bound or () if b != math.inf))
        wanted = {**body, "epsilon": epsilon, "delta": delta}
        wanted |= {"wave": wave.to_json()} if wave else {}
        with database.writing(self._engine) as connection:
            book = database.select(connection)
            verify_entries(book)
            earlier = [e for e in book if e.run == run and e.kind == "reserve"]
            if earlier:
                return same_reservation(earlier[0], dataset, wanted)
            mine = [e for e in book if e.dataset == dataset]
            check_neighbours(mine, wanted)
            check_statement(mine, wanted)
            balance = balance_of_entries(dataset, mine)
            if balance.cap_epsilon is None and cap is not None:
                database.append(
                    connection, dataset, run, "cap", {"epsilon": cap[0], "delta": cap[1]}
                )
            later = check_first(
                balance, cap=cap, epsilon=epsilon, delta=delta, bound=bound, wave=wave
            )
            if later.mu and bound:
                wanted |= {"mu": bound[0], "lost": bound[1]}
            return database.append(connection, dataset, run, "reserve", wanted)

    def lease(self, dataset: str, run: str, *, coins: str = "") -> Entry:
        """Take a run over: its last process can write no entry of it any more.

        The first lease of a run keeps `coins`, its half of the key of who is held out, and others
        must have the same (`coins_of`).

        Raises:
            BudgetError: the run reserved nothing on `dataset`, began before there were leases, or
                has other coins.
        """
        with database.writing(self._engine) as connection:
            mine = database.select(connection, dataset=dataset, run=run)
            kinds = {e.kind for e in mine}
            if "reserve" not in kinds:
                raise _no_reservation(dataset, run)
            if "charge" in kinds and "lease" not in kinds:
                hint = (
                    "finish it with that version, or start a new release with --force; the budget"
                    " of this run stays spent"
                )
                raise BudgetError(
                    f"run {run} was begun by an earlier version of synthdp", hint=hint
                )
            if (known := coins_of(mine)) not in (None, coins):
                raise BudgetError(
                    f"another process began run {run} with other coins; this one looked at nothing",
                    hint="let the other one end, or end it and `synthdp resume` the release",
                )
            body = {"holder": secrets.token_hex(8)}
            body |= {"coins": coins} if coins and known is None else {}
            return database.append(connection, dataset, run, "lease", body)

    def charge(
        self,
        dataset: str,
        run: str,
        *,
        purpose: str,
        mechanism: str,
        event: dict[str, Any],
        after: str | None = None,
    ) -> Entry:
        """Write down one spend, durably, before its mechanism looks at a row.

        A purpose that this run already charged with the same event is not charged again (a resumed
        run). With `after`, here and below, the entry is written where the run's last entry has this
        hash, and refused elsewhere.

        Raises:
            BudgetError: no open reservation on `dataset`, the purpose was charged with another
                event, or another process has taken the run over.
        """
        body = {"purpose": purpose, "mechanism": mechanism, "event": event}
        with database.writing(self._engine) as connection:
            mine = database.select(connection, dataset=dataset, run=run)
            for entry in mine:
                if entry.kind == "charge" and entry.body["purpose"] == purpose:
                    if entry.body != body:
                        raise BudgetError(
                            f"run {run} already charged {purpose!r} with another event"
                        )
                    if after is None:
                        return entry
                    return _append(connection, dataset, run, "charge", body, after)
            kinds = [e.kind for e in mine]
            if "reserve" not in kinds or "settle" in kinds:
                raise _no_reservation(dataset, run)
            return _append(connection, dataset, run, "charge", body, after)

    def keep(
        self,
        dataset: str,
        run: str,
        *,
        purpose: str,
        step: int | None,
        sha256: str,
        after: str | None = None,
    ) -> Entry:
        """Write down which value of a charged purpose, or which checkpoint, is used from now on.

        `step` is the number of steps before the checkpoint; None for a value.

        Raises:
            BudgetError: another process has taken the run over.
        """
        body = {"purpose": purpose, "step": step, "sha256": sha256}
        with database.writing(self._engine) as connection:
            return _append(connection, dataset, run, "kept", body, after)

    def settle(self, dataset: str, run: str, *, after: str | None = None) -> Entry:
        """Close a run: nothing new can be charged, and its reservation stays spent.

        Settling twice is one settlement.

        The entry counts the run's charges, so that one that is taken out of a published copy is
        missed.

        Raises:
            BudgetError: the run reserved nothing on `dataset`, or another process has taken it
                over.
        """
        with database.writing(self._engine) as connection:
            mine = database.select(connection, dataset=dataset, run=run)
            if not any(e.kind == "reserve" for e in mine):
                raise _no_reservation(dataset, run)
            settled = next((e for e in mine if e.kind == "settle"), None)
            if settled is not None and after is None:
                return settled
            amended = sum(e.kind == "amend" for e in mine)
            counts = {"charges": sum(e.kind == "charge" for e in mine)} | (
                {"amendments": amended} if amended else {}
            )
            return _append(connection, dataset, run, "settle", counts, after)

    def amend(
        self, dataset: str, run: str, *, body: dict[str, Any], after: str | None = None
    ) -> Entry:
        """Write down, durably, that a run continues by another spec (`spec_sha256`).

        `changed` lists the fields that differ; none of them changes what the run spends.

        The same amendment twice is one.

        Raises:
            BudgetError: the run reserved nothing on `dataset`, has settled, or went on since
                `after`.
        """
        with database.writing(self._engine) as connection:
            mine = database.select(connection, dataset=dataset, run=run)
            last = next((e for e in reversed(mine) if e.kind == "amend"), None)
            if last is not None and {**last.body, "by": None} == {**body, "by": None}:
                return last
            kinds = [e.kind for e in mine]
            if "reserve" not in kinds:
                raise _no_reservation(dataset, run)
            if "settle" in kinds:
                raise BudgetError(
                    f"run {run} has settled, and its spec is final",
                    hint="resume it without --spec, or start a new release",
                )
            return _append(connection, dataset, run, "amend", body, after)

    def decide(
        self, dataset: str, run: str, *, bundle_sha256: str, answer: Choice, by: str, why: str
    ) -> Entry:
        """Write down who decided what on the bundle of a settled run; the last decision holds.

        `bundle_sha256` is the digest of its SHA256SUMS. It is no charge. The same decision twice in
        a row is one.

        Raises:
            BudgetError: the run has not settled on `dataset`.
            OutputError: no such answer; a text is blank, too long, or has what cannot be seen.
        """
        if answer not in ANSWERS:
            raise OutputError(f"a decision is one of {', '.join(ANSWERS)}; got {answer!r}")
        check_said("who decides", by, longest=200)
        check_said("why", why, longest=2000)
        body = {"bundle_sha256": bundle_sha256, "answer": answer, "by": by, "why": why}
        with database.writing(self._engine) as connection:
            mine = database.select(connection, dataset=dataset, run=run)
            if not any(e.kind == "settle" for e in mine):
                raise BudgetError(
                    f"run {run} has not settled on dataset {dataset}, and nothing is to be decided",
                    hint="let the release end, or `synthdp resume` it",
                )
            last = next((e for e in reversed(mine) if e.kind == "decision"), None)
            if last is not None and last.body == body:
                return last
            return database.append(connection, dataset, run, "decision", body)


def coins_of(entries: Iterable[Entry]) -> str | None:
    """What a run's first lease keeps of its coins, which no bundle has; None before there is one,
    and hence before any look.

    Of a key that is the exclusive or of two halves, each drawn by itself and evenly, either half
    alone is even whatever the key is, and tells nothing of it [derived here].
    """
    first = next((e for e in entries if e.kind == "lease"), None)
    return None if first is None else str(first.body.get("coins", ""))


def _append(
    connection: Connection,
    dataset: str,
    run: str,
    kind: str,
    body: dict[str, Any],
    after: str | None,
) -> Entry:
    """Add an entry of a run if the run's last one has the hash `after` (None: whatever it is).

    An entry that is already there as asked for, right behind `after`, was written by a call whose
    answer was lost.
    """
    if after is not None:
        last = database.last_two(connection, run)
        if (
            len(last) == 2
            and last[0].hash == after
            and (last[1].kind, last[1].body) == (kind, body)
        ):
            return last[1]
        if not last or last[-1].hash != after:
            raise BudgetError(
                f"another process has taken over run {run}; this one stops, and what it did since"
                " then was used nowhere",
                hint="let the other one end, or end it and `synthdp resume` the release",
            )
    return database.append(connection, dataset, run, kind, body)


def _no_reservation(dataset: str, run: str) -> BudgetError:
    return BudgetError(
        f"run {run} has no open reservation on dataset {dataset}", hint="start a new release"
    )


# --- lease ---


class Lease:
    """The lease of this process on one run. The next process that opens the run takes it over.

    It is kept in the ledger, the one place that all copies of a run's folder share.

    Claim [derived here]. Of everything that a run releases, one value for each charged purpose is
    ever used, and one checkpoint for each step, however often the run's folder is copied, set back
    or opened on several machines, as long as the ledger itself is neither copied nor set back.

    A process that opens a run writes a `lease` entry. It then writes each of the run's entries
    under one condition: the run's last entry is the one that this process wrote last (`Ledger`
    tests it inside the transaction that appends). So of two processes that hold copies of one run,
    the one that wrote its lease first finds another entry in its way and stops.

    A value is used after its `kept` entry (purpose, step, SHA-256 of its file) is durable, and not
    before. Suppose that P and Q both wrote `kept` for one purpose, Q later. All entries of the run
    from Q's lease to Q's `kept` are Q's own, by the condition. So P's `kept` came before Q's lease,
    and Q read it when it had its lease. But a process that reads a `kept` value uses the file with
    that digest, or stops; it never writes `kept` for that purpose. So there is one `kept` for each
    purpose. The same holds for each step of a training: a process that goes on starts from the
    checkpoint that was kept last, or stops. QED.

    What the claim leaves: a value whose `kept` entry never came was used by nobody. Its file may
    lie in a folder, and someone who reads the folder sees a second value for one charge;
    `docs/known-limits.md` says so.
    """

    def __init__(self, ledger: Ledger, *, dataset: str, run: str, coins: str = "") -> None:
        """Take the run over from the process that had it.

        Raises:
            BudgetError: as `Ledger.lease`.
        """
        self._ledger, self._dataset, self._run = ledger, dataset, run
        self._last = ledger.lease(dataset, run, coins=coins).hash
        entries = ledger.run_entries(run)
        self._charged = {e.body["purpose"]: e for e in entries if e.kind == "charge"}
        # The last entry of each purpose.
        self._kept = {e.body["purpose"]: e.body for e in entries if e.kind == "kept"}
        self.settled = any(e.kind == "settle" for e in entries)

    def charge(self, *, purpose: str, mechanism: str, event: dict[str, Any]) -> Entry:
        """Charge a planned spend, durably, before its mechanism looks at a row.

        A spend that is charged already is not charged again.

        Raises:
            BudgetError: the ledger refuses, or another process has taken the run over.
        """
        known = purpose in self._charged
        after = None if known else self._last
        entry = self._ledger.charge(
            self._dataset, self._run, purpose=purpose, mechanism=mechanism, event=event, after=after
        )
        if not known:
            self._last, self._charged[purpose] = entry.hash, entry
        return entry

    def keep(self, *, purpose: str, step: int | None, sha256: str) -> None:
        """Write down which value, or which checkpoint after `step` steps, is used from now on.

        Raises:
            BudgetError: another process has taken the run over, so that the value must not be used.
        """
        entry = self._ledger.keep(
            self._dataset, self._run, purpose=purpose, step=step, sha256=sha256, after=self._last
        )
        self._last, self._kept[purpose] = entry.hash, entry.body

    def kept(self, purpose: str) -> dict[str, Any] | None:
        """What was kept last of a purpose: its `step` (None: the value itself) and `sha256`.

        None where nothing was kept.
        """
        return self._kept.get(purpose)

    def settle(self) -> None:
        """Close the run; a run that is closed stays so.

        Raises:
            BudgetError: another process has taken the run over.
        """
        if not self.settled:
            self._last = self._ledger.settle(self._dataset, self._run, after=self._last).hash
            self.settled = True
