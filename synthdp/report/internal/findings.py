"""One plain sentence for each part of the steward's report, computed from its numbers: what to
conclude.

The words follow fixed thresholds that are named here; they are a reading aid, never a gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.utility import UtilityRow
from synthdp.report.internal.content import Budget, GateResult, GraphView

NEAR_FLOOR = 1.5  # times the distance of held-out real rows: as good as another sample
VISIBLE_ASSOCIATION = 0.1  # a change in Cramér's V that a reader of the table would notice


def number(value: float | None) -> str:
    """A figure as text: three significant digits, or "not available"."""
    if value is None or not np.isfinite(value):
        return "not available"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def verdict(gates: Sequence[GateResult]) -> str:
    """Whether the gates let the bundle out."""
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
    """What is guaranteed, and where the epsilon goes."""
    share = spent.epsilon_planned / spent.epsilon
    head = (
        f"The run guarantees epsilon {number(spent.epsilon_planned)} of {number(spent.epsilon)}"
        f" ({share:.0%}) at delta {spent.delta:g}"
    )
    if spent.epsilon_planned > spent.epsilon_spent * (1 + 1e-9):
        head += (
            f"; this outcome used {number(spent.epsilon_spent)} of it, which is no bound for"
            " the run"
        )
    known = [step for step in spent.steps if step.epsilon is not None]
    if known:
        largest = max(known, key=lambda step: step.epsilon or 0.0)
        head += f"; the largest part is {largest.label}"
    if spent.cap_left is not None:
        head += f"; the dataset has {number(spent.cap_left)} left under its cap"
    return head + "."


def plan_words(spent: Budget) -> str:
    """Delta, and what this outcome used where that is less than the plan."""
    words = f"guaranteed, at delta {spent.delta:g}"
    if spent.epsilon_planned > spent.epsilon_spent * (1 + 1e-9):
        words += f"; {number(spent.epsilon_spent)} used on this outcome, which is no bound"
    return words


def fidelity(report: FidelityReport, floor: FidelityReport | None) -> str:
    """How near the columns are, beside what another real sample would show."""
    worst = max(report.by_column, key=lambda name: report.by_column[name])
    head = (
        f"On average {report.tv1:.1%} of a column's rows would have to move to match the real"
        " shares"
    )
    tail = f"The furthest off is {worst} ({report.by_column[worst]:.1%})."
    if floor is None or floor.tv1 <= 0:
        return f"{head}. {tail}"
    ratio = report.tv1 / floor.tv1
    if ratio <= NEAR_FLOOR:
        near = "nearer than" if ratio * NEAR_FLOOR < 1 else "about as near as"
        return f"{head}, {near} held-out real rows are ({floor.tv1:.1%}). {tail}"
    return f"{head}, {ratio:.1f} times as far as held-out real rows are ({floor.tv1:.1%}). {tail}"


def association(report: FidelityReport) -> str:
    """Which dependence was lost or invented."""
    names = list(report.by_column)
    if len(names) < 2:
        return "One column has no pairs to compare."
    difference = np.triu(report.association_difference, 1)
    i, j = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    changed = int((np.abs(difference) >= VISIBLE_ASSOCIATION).sum())
    value = difference[i, j]
    worst = (
        f"the largest change is {names[i]} with {names[j]} ({value:+.2f},"
        f" {'weaker' if value < 0 else 'stronger'} than in the real rows)"
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
    """Whether learning on synthetic rows costs anything, on the rows that a figure shows."""
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
    """The attack's own conclusion, or one made of its advantage."""
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
            "The attack beats the dashed bound beyond chance: the claim is disproved, do not"
            " publish this release."
        )
    if crosses:
        return (
            "Part of the curve lies above the dashed bound, as a curve from few models may by"
            " chance; the attack's own test, which accounts for chance, does not refute the claim."
        )
    return (
        "The curve stays below the dashed bound, as it must; an attack that fails proves nothing"
        " about other attacks."
    )


def interval(value: Any) -> str:
    """An estimate with its interval as text; plain numbers and texts as they are."""
    if isinstance(value, Mapping):
        middle = next((value[k] for k in ("value", "estimate") if k in value), None)
        low, high = (
            next((value[k] for k in keys if k in value), None)
            for keys in (("lower", "low"), ("upper", "high"))
        )
        text = number(middle)
        return text if low is None or high is None else f"{text} ({number(low)} to {number(high)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return str(value) if isinstance(value, int) else number(value)
    return str(value)


def graph(view: GraphView) -> str:
    """What kind of graph shaped the model."""
    if not view.edges:
        return f"The model used no causal arrows (mode {view.mode})."
    kinds = {
        kind: sum(1 for edge in view.edges if edge[2] == kind)
        for kind in dict.fromkeys(edge[2] for edge in view.edges)
    }
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return (
        f"The model follows {len(view.edges)} causal arrows ({counts}); mode"
        f" {view.mode}.{_validated(view.validation)}"
    )


def _validated(found: Mapping[str, Any] | None) -> str:
    """What the tables say of a given graph."""
    if found is None:
        return ""
    said = {
        kind: ", ".join(f"{n} {status}" for status, n in found["counts"][kind].items())
        for kind in ("arrow", "independence")
    }
    return (
        f" Held against noisy tables, its arrows: {said['arrow']}; the independences that it"
        f" implies: {said['independence']}."
    )


def misfits(found: Mapping[str, Mapping[str, int]]) -> str:
    """Whether the declared domain holds the table."""
    bad = {name: sum(kinds.values()) for name, kinds in found.items() if sum(kinds.values())}
    if not bad:
        return "Every value lies in its column's declared domain."
    worst = max(bad, key=lambda name: bad[name])
    head = (
        f"{sum(bad.values()):,} values in {len(bad)} of {len(found)} columns do not fit the"
        f" declared domain, most of them in {worst}"
    )
    return f"{head}; they were changed to a declared level."


def missing_evaluation(report: EvaluationReport | None) -> str | None:
    """Why there is no comparison with real rows, or None where there is one."""
    if report is None:
        return "Evaluation is turned off in the spec: nothing was compared with real rows."
    if report.fidelity is None:
        return "There are no rows to compare."
    return None
