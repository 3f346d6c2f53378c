"""The verdicts at the top of the steward's report: uses, gates, attack, and what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from synthdp.evaluate.run import EvaluationReport
from synthdp.report import verdicts
from synthdp.report.guarantee import most_advantage
from synthdp.report.internal import findings
from synthdp.report.internal.content import ATTACK, ReportContent
from synthdp.report.parts import number
from synthdp.report.verdicts import Verdict

TRAINED_ON = ("tv1_noisy",)  # gates on what the rows were made to fit


def report_cards(content: ReportContent) -> Iterator[Verdict]:
    """All verdicts, in the order of the page."""
    report = content.evaluation
    yield _gates(content)
    yield _guarantee(content)
    yield attack_card(content.attack, why=content.absent.get(ATTACK, "not run"))
    if report is not None:
        yield from _apart(report)
        yield from intervals_card(report)
        yield from claims_card(report)
        yield from _association(report)
        yield from _columns(report)
    yield from _estimands(content)
    yield _misfits(content)


def _gates(content: ReportContent) -> Verdict:
    """How many gates passed; green only where one was on more than what the rows were fitted to."""
    text = findings.verdict(content.gates)
    if not content.gates:
        better = "a gate on a published score: tv2_dp, with evaluation: {disclosure: private}"
        return Verdict("Gates", "none set", text, "unknown", better=better)
    passed = sum(gate.passed for gate in content.gates)
    figure = f"{passed} of {len(content.gates)} passed"
    if content.withheld:
        return Verdict("Gates", figure, text, "bad")
    if all(gate.metric in TRAINED_ON for gate in content.gates):
        text += " It compares the rows with the counts that they were made to fit."
        return Verdict("Gates", figure, text, "unknown", better="a gate on tv2_dp can fail")
    return Verdict("Gates", figure, text, "good")


def _guarantee(content: ReportContent) -> Verdict:
    budget = content.budget
    card = verdicts.guarantee(
        budget.epsilon_planned,
        budget.delta,
        advantage=most_advantage(content.profile) if content.profile else None,
        search=budget.search,
    )
    if budget.epsilon_planned <= budget.epsilon:
        return card
    return Verdict(card.heading, card.number, f"over the budget of {budget.epsilon:g}", "bad")


def attack_card(attack: Mapping[str, Any] | None, *, why: str = "not run") -> Verdict:
    """The declared attack that tells most; one that refutes the claim comes first.

    `why` stands where there is none.
    """
    if not attack:
        text = "sanity, not proof: the guarantee rests on its proof"
        return Verdict("Membership attack", why, text, "unknown")
    main = attack.get("main") or attack
    rows = [row for row in attack.get("declared") or (main,) if _interval(row)]
    if not rows:
        return Verdict("Membership attack", "cannot tell", findings.attack(attack), "unknown")
    row = min(rows, key=lambda r: (not r.get("refutes_claim", False), _width(r)))
    value, low, high = _interval(row)
    claim = attack.get("claim") or {}
    ceiling = claim.get("ceiling_advantage", attack.get("ceiling"))
    name = row.get("attack", "shadow models")
    return verdicts.attack(
        value,
        low,
        high,
        ceiling=1.0 if ceiling is None else float(ceiling),
        trials=f"{row.get('models', 'few')} tests in each world ({name})",
        refuted=bool(attack.get("refutes_claim", False)),
    )


def _interval(row: Mapping[str, Any]) -> tuple[float, ...]:
    """An advantage with its ends; () where there are none."""
    gap = row.get("shared_advantage", row.get("advantage"))
    if not isinstance(gap, Mapping):
        return ()
    return float(gap["value"]), float(gap["lower"]), float(gap["upper"])


def _width(row: Mapping[str, Any]) -> float:
    _, low, high = _interval(row)
    return high - low


def _apart(report: EvaluationReport) -> Iterator[Verdict]:
    """The classifier that tells synthetic rows from real ones best."""
    rows = [r for r in report.two_sample if r.compared == "synthetic from real"]
    same = [r.auc for r in report.two_sample if r.compared == "real from real"]
    if rows:
        best = max(rows, key=lambda r: r.auc)
        floor = max(same, default=None)
        yield verdicts.told_apart(best.auc, best.low, best.high, floor=floor)


def intervals_card(report: EvaluationReport) -> Iterator[Verdict]:
    """The kind of figure that intervals on synthetic rows miss most often."""
    known = [r for r in report.coverage if r.figures >= verdicts.FEW] or report.coverage
    if known:
        row = min(known, key=lambda r: r.synthetic)
        yield verdicts.coverage(row.kind, row.synthetic, row.figures, floor=row.held_out)


def claims_card(report: EvaluationReport) -> Iterator[Verdict]:
    """Independences that the graph implies and the real rows do not have."""
    implied = report.independences
    if implied is not None and implied.rows:
        wrong = len(implied.rows) - implied.kept("real")
        text = (
            "independences that the graph implies, and that the real rows do not show: the graph is"
            f" wrong there. {implied.kept('synthetic')} hold in the synthetic rows"
        )
        yield verdicts.claims("Graph", wrong, len(implied.rows), text)


def _association(report: EvaluationReport) -> Iterator[Verdict]:
    near = report.fidelity
    if near is None or len(near.by_column) < 2:
        return
    difference = np.triu(near.association_difference, 1)
    largest = float(np.abs(difference).max())
    state = verdicts.CHANGED.state(largest)
    yield Verdict("Largest change of a pair", number(largest), findings.association(near), state)


def _columns(report: EvaluationReport) -> Iterator[Verdict]:
    """Columns whose shape is lost."""
    near = report.fidelity
    if near is None:
        return
    lost = [name for name, tv in near.by_column.items() if tv >= verdicts.NOISY_SHAPE]
    state = verdicts.NOISY_COLUMNS.state(len(lost) / len(near.by_column))
    text = f"{verdicts.NOISY_SHAPE:.0%} or more of their rows would have to move"
    if lost:
        text += f": {', '.join(lost[:4])}{', ...' if len(lost) > 4 else ''}"
    better = "" if state == "good" else "fewer bins or categories, or a larger epsilon"
    figure = f"{len(lost)} of {len(near.by_column)}"
    yield Verdict("Columns whose shape is lost", figure, text, state, better=better)


def _estimands(content: ReportContent) -> Iterator[Verdict]:
    """Whether the released intervals hold the figures of the real rows."""
    known = [e for e in content.estimands if e.covered is not None]
    if known:
        inside = sum(bool(e.covered) for e in known)
        state = (
            verdicts.MISSED.state(1 - inside / len(known) - 0.05)
            if len(known) >= verdicts.FEW
            else "unknown"
        )
        text = "released intervals hold the figure of all real rows; 95% of them should"
        yield Verdict("Estimands", f"{inside} of {len(known)}", text, state)


def _misfits(content: ReportContent) -> Verdict:
    """How many values are outside the declared domain."""
    text = findings.misfits(content.misfits)
    values = sum(sum(kinds.values()) for kinds in content.misfits.values())
    if not values:
        return Verdict("Data problems", "none", text, "good")
    return Verdict("Data problems", f"{values:,} values", text, "bad")
