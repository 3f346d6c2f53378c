"""One plain sentence for each part of the steward's report: what to conclude from its numbers.

The wording follows fixed thresholds that are named here. They are a reading aid, never a gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.utility import UtilityRow
from synthdp.report.internal.content import Budget, GateResult
from synthdp.report.parts import VISIBLE_ASSOCIATION, interval, number

NEAR_FLOOR = 1.5  # times the distance of held-out real rows: as good as another sample


def verdict(gates: Sequence[GateResult]) -> str:
    """Whether the gates let the bundle be released."""
    failed = [g.metric for g in gates if not g.passed]
    if not gates:
        return (
            "The spec sets no gates: whether this release is good enough is for the steward to"
            " decide from the figures below."
        )
    if failed:
        return (
            f"Withheld: {len(failed)} of {len(gates)} gates failed ({', '.join(failed)}); the"
            " budget is spent all the same."
        )
    return f"Every gate passed ({len(gates)}): the bundle was released."


def budget(spent: Budget) -> str:
    """What is guaranteed, where the cost of each step is not known."""
    share = spent.epsilon_planned / spent.epsilon
    head = (
        f"The run guarantees epsilon {number(spent.epsilon_planned)} of {number(spent.epsilon)}"
        f" ({share:.0%}) at delta {spent.delta:g}."
    )
    return f"{head} {budget_used(spent)}".strip()


def budget_used(spent: Budget) -> str:
    """What this outcome used, where that is less than the plan."""
    if spent.epsilon_planned <= spent.epsilon_spent * (1 + 1e-9):
        return ""
    return f"This outcome used {number(spent.epsilon_spent)} of it, which is no bound for the run."


def fidelity(
    report: FidelityReport, floor: FidelityReport | None, equal: FidelityReport | None
) -> str:
    """Distance of the columns. `floor` is that of held-out rows, `equal` of as many synthetic ones,
    so that both have the same error by chance.
    """
    worst = max(report.by_column, key=lambda name: report.by_column[name])
    head = (
        f"On average {report.tv1:.1%} of a column's rows would have to move to match the real"
        f" shares; the furthest off is {worst} ({report.by_column[worst]:.1%})."
    )
    if floor is None or equal is None or floor.tv1 <= 0:
        return head
    ratio = equal.tv1 / floor.tv1
    near = (
        "as near as another sample would be"
        if ratio <= NEAR_FLOOR
        else f"{ratio:.1f} times as far as another sample"
    )
    return (
        f"{head} In samples of equal size synthetic rows are {equal.tv1:.1%} off and held-out real"
        f" rows {floor.tv1:.1%}: {near}."
    )


def association(report: FidelityReport) -> str:
    """Which dependence was lost or invented."""
    names = list(report.by_column)
    if len(names) < 2:
        return "One column has no pairs to compare."
    difference = np.triu(report.association_difference, 1)
    i, j = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    changed = int((np.abs(difference) >= VISIBLE_ASSOCIATION).sum())
    value = difference[i, j]
    direction = "weaker" if value < 0 else "stronger"
    worst = (
        f"the largest change is {names[i]} with {names[j]} ({value:+.2f}, {direction} than in the"
        " real rows)"
    )
    if not changed:
        return (
            f"No pair of columns changed its strength of association by {VISIBLE_ASSOCIATION} or"
            f" more; {worst}."
        )
    pairs = len(names) * (len(names) - 1) // 2
    return (
        f"{changed} of {pairs} pairs changed their strength of association by {VISIBLE_ASSOCIATION}"
        f" or more; {worst}."
    )


def utility(rows: Sequence[UtilityRow]) -> str:
    """Whether training on synthetic rows costs anything, on the rows that a figure shows."""
    known = [r for r in rows if r.difference is not None]
    if not known:
        return "No score could be computed on these rows."
    worse = [r for r in known if r.low is not None and r.low > 0]
    worst = max(known, key=lambda r: r.difference or 0.0)
    name, gap = f"{worst.classifier.replace('_', ' ')} on {worst.target}", worst.difference or 0.0
    if not worse:
        return (
            "No learner is measurably worse for having learnt on synthetic rows; the largest gap,"
            f" {gap:.3f} ({name}), could be chance."
        )
    return (
        f"{len(worse)} of {len(known)} learners are measurably worse for having learnt on synthetic"
        f" rows; the largest loss is {gap:.3f} ({name})."
    )


def attack(report: Mapping[str, Any]) -> str:
    """The attack's own conclusion, or one made from its advantage."""
    if report.get("conclusion"):
        return str(report["conclusion"])
    advantage = report.get("advantage", (report.get("main") or {}).get("advantage"))
    return (
        f"The attack's advantage over guessing is {interval(advantage)}. This is a sanity check,"
        " not a proof of privacy."
    )


def roc(report: Mapping[str, Any], *, crosses: bool) -> str:
    """What it means that the curve lies below, or partly above, the bound of the claim."""
    if report.get("refutes_claim"):
        return (
            "The attack beats the bound beyond chance: the claim is disproved, do not"
            " publish this release."
        )
    if crosses:
        return (
            "Part of the curve lies above the bound, as a curve from few models may by"
            " chance; the attack's own test, which accounts for chance, does not refute the claim."
        )
    return (
        "The curve stays below the bound, as it must; an attack that fails proves nothing"
        " about other attacks."
    )


def misfits(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Whether the values lie in the declared domain, from counts by column and kind."""
    totals = {name: sum(kinds.values()) for name, kinds in counts.items()}
    bad = {name: total for name, total in totals.items() if total}
    if not bad:
        return "Every value lies in its column's declared domain."
    worst = max(bad, key=lambda name: bad[name])
    return (
        f"{sum(bad.values()):,} values in {len(bad)} of {len(counts)} columns do not fit the"
        f" declared domain, most of them in {worst}; they were changed to a declared level."
    )


def missing_evaluation(report: EvaluationReport | None, why: str | None) -> str | None:
    """Why there is no comparison with real rows, or None where there is one.

    `why` is known where one was asked for.
    """
    if report is None and why is not None:
        return f"There is no comparison with real rows: {why}."
    if report is None:
        return "Evaluation is turned off in the spec: nothing was compared with real rows."
    if report.fidelity is None:
        return "There are no rows to compare."
    return None
