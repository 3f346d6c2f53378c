"""Text for people: progress bars, plans, budgets and outcomes, with rich where it helps."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from synthdp.errors import BudgetError
from synthdp.privacy.ledger import Ledger
from synthdp.release import Outcome
from synthdp.reporter import Advance


class ProgressDisplay:
    """Stages as progress bars on stderr; plain lines where stderr is no terminal."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
            console=self._console, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def start(self, title: str) -> Advance:
        """A bar without an end until the stage says how long it is."""
        task = self._tasks[title] = self._progress.add_task(title, total=None)
        return lambda done, total: self._progress.update(task, completed=done, total=total)

    def finish(self, title: str, seconds: float) -> None:
        """Fill the bar, or print the stage's line."""
        if self._console.is_terminal:
            self._progress.update(self._tasks[title], completed=1, total=1)
        else:
            self._console.print(f"{title}: {seconds:.1f} s")


def _render(*parts: object) -> str:
    buffer = StringIO()
    console = Console(file=buffer, width=110, highlight=False, color_system=None)
    for part in parts:
        console.print(part)
    return buffer.getvalue().rstrip()


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def plan_text(facts: Mapping[str, Any]) -> str:
    """A plan as text."""
    spends = [(s["purpose"], f"{s['epsilon_alone']:.3f}", s["mechanism"]) for s in facts["spends"]]
    ledger, expected = facts["ledger"], facts["expected"]
    cap = "no cap" if ledger["cap"] is None else f"cap {ledger['cap']:g}"
    return _render(
        f"dataset {facts['dataset']}: epsilon {facts['epsilon_spent']:.4f} of {facts['epsilon']:g}, delta {facts['delta']:g}, "
        f"{facts['adjacency']} neighbours, at most {facts['rows_per_unit']} row(s) per unit",
        _table("", ["spend", "epsilon alone", "mechanism"], spends),
        "(together they cost less than their sum: one accountant composes them)",
        f"ledger: {ledger['spent_before']:g} spent before, {ledger['spent_after']:g} after, {cap}",
        f"expected: about {expected['cpu_seconds']:g} CPU seconds and {expected['memory_mb']} MB for measuring, training and sampling",
    )


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """A finished run as JSON, without any confidential figure."""
    plan = outcome.job.plan
    return {
        "run": outcome.job.folder.run,
        "bundle": None if outcome.bundle is None else str(outcome.bundle),
        "internal_report": str(outcome.report),
        "epsilon": plan.epsilon,
        "epsilon_spent": plan.epsilon_spent,
        "delta": plan.delta,
        "gates": [{"metric": v.gate.metric, "bound": v.bound, "passed": v.passed} for v in outcome.verdicts],
        "seconds": outcome.seconds,
        "warnings": list(outcome.warnings),
    }


def outcome_text(outcome: Outcome) -> str:
    """A finished run as text."""
    plan = outcome.job.plan
    gates = [f"gate {v.gate.metric} {v.bound}: {'passed' if v.passed else 'FAILED'}" for v in outcome.verdicts]
    where = f"bundle  {outcome.bundle}   (public; check it with `synthdp verify {outcome.bundle}`)" if outcome.bundle else "bundle  withheld"
    return "\n".join(
        [
            f"epsilon {plan.epsilon_spent:.4f} of {plan.epsilon:g} at delta {plan.delta:g}, run {outcome.job.folder.run}",
            *gates,
            where,
            f"report  {outcome.report}   (for the steward only)",
            *(f"warning: {w}" for w in outcome.warnings),
        ]
    )


def budget_facts(ledger: str, dataset: str | None, *, set_cap: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Balances and runs by dataset.

    Raises:
        BudgetError: there is no such ledger, or no such dataset.
    """
    if "://" not in ledger and not Path(ledger).exists():
        raise BudgetError(f"no ledger at {ledger}", hint="it lies in .synthdp/ledger.db beside the spec; name it with --ledger")
    book = Ledger(ledger if "://" in ledger else f"sqlite:///{ledger}")
    book.verify_chain()
    if set_cap is not None:
        if dataset is None:
            raise BudgetError("--set-cap needs a dataset id")
        book.set_cap(dataset, epsilon=set_cap[0], delta=set_cap[1])
    names = sorted({e.dataset for e in book.entries()})
    if dataset is not None and dataset not in names:
        raise BudgetError(f"the ledger knows no dataset {dataset!r}", hint=f"it knows {', '.join(names) or 'none'}")
    return [_dataset_facts(book, name) for name in names if dataset in (None, name)]


def _dataset_facts(book: Ledger, name: str) -> dict[str, Any]:
    entries, balance = book.entries(dataset=name), book.balance(name)
    settled = {e.run for e in entries if e.kind == "settle"}
    runs = [
        {"run": e.run, "at": e.at, "by": e.body.get("by"), "epsilon": e.body["epsilon"], "delta": e.body["delta"], "settled": e.run in settled}
        for e in entries
        if e.kind == "reserve"
    ]
    return {
        "dataset": name,
        "epsilon": balance.epsilon,
        "delta": balance.delta,
        "cap_epsilon": balance.cap_epsilon,
        "cap_delta": balance.cap_delta,
        "runs": runs,
    }


def budget_text(facts: Sequence[Mapping[str, Any]]) -> str:
    """Balances as text."""
    parts: list[object] = []
    for data in facts:
        cap = "no cap" if data["cap_epsilon"] is None else f"of {data['cap_epsilon']:g}, {data['cap_epsilon'] - data['epsilon']:.4g} left"
        rows = [
            (r["run"], r["at"], str(r["by"]), f"{r['epsilon']:g}", f"{r['delta']:g}", "settled" if r["settled"] else "open") for r in data["runs"]
        ]
        parts += [f"{data['dataset']}: epsilon {data['epsilon']:g} spent, {cap}", _table("", ["run", "at", "by", "epsilon", "delta", "state"], rows)]
    return _render(*parts)
