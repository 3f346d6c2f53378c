"""The lease of one process on a run, kept in the ledger.

The ledger is the one place that all copies of a run's folder share.

Claim [derived here]. Of everything that a run releases, one value for each charged purpose is ever
used, and one checkpoint for each step, however often the run's folder is copied, set back or opened
on several machines, as long as the ledger itself is neither copied nor set back.

A process that opens a run writes a `lease` entry. It then writes each of the run's entries under
one condition: the run's last entry is the one that this process wrote last (`Ledger` tests it
inside the transaction that appends). So of two processes that hold copies of one run, the one that
wrote its lease first finds another entry in its way and stops.

A value is used after its `kept` entry (purpose, step, SHA-256 of its file) is durable, and not
before. Suppose that P and Q both wrote `kept` for one purpose, Q later. All entries of the run from
Q's lease to Q's `kept` are Q's own, by the condition. So P's `kept` came before Q's lease, and Q
read it when it had its lease. But a process that reads a `kept` value uses the file with that
digest, or stops; it never writes `kept` for that purpose. So there is one `kept` for each purpose.
The same holds for each step of a training: a process that goes on starts from the checkpoint that
was kept last, or stops. QED.

What the claim leaves: a value whose `kept` entry never came was used by nobody. Its file may lie in
a folder, and someone who reads the folder sees a second value for one charge;
`docs/known-limits.md` says so.
"""

from __future__ import annotations

from typing import Any

from synthdp.ledger.entries import Entry
from synthdp.ledger.ledger import Ledger


class Lease:
    """The lease of this process on one run. The next process that opens the run takes it over."""

    def __init__(self, ledger: Ledger, *, dataset: str, run: str) -> None:
        """Take the run over from the process that had it.

        Raises:
            BudgetError: the run has no reservation, or an earlier version of this program began it.
        """
        self._ledger, self._dataset, self._run = ledger, dataset, run
        self._last = ledger.lease(dataset, run).hash
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
