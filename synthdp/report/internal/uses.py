"""What the table is fit for, by use, from figures on real rows. Confidential."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from synthdp.evaluate.run import EvaluationReport
from synthdp.report import verdicts
from synthdp.report.internal.cards import claims_card, intervals_card
from synthdp.report.internal.content import ReportContent
from synthdp.report.parts import number
from synthdp.report.verdicts import State, Verdict


def report_uses(content: ReportContent) -> Iterator[Verdict]:
    """The four uses, the easiest first; none without an evaluation."""
    report = content.evaluation
    if report is None or report.fidelity is None:
        return
    yield _code(report)
    yield _tables(report)
    yield _models(report)
    yield _effects(content, report)


def _code(report: EvaluationReport) -> Verdict:
    assert report.fidelity is not None  # asked before
    value = report.fidelity.tv1
    text = "columns off by so much, on average (total variation: 0 is equal, 1 is disjoint)"
    state = verdicts.ROUGH.state(value)
    better = "" if state == "good" else "fewer bins, or a larger epsilon"
    return _use("Teaching and code", number(value), text, state, _equal(report, "tv1"), better)


def _tables(report: EvaluationReport) -> Verdict:
    assert report.fidelity is not None  # asked before
    value = report.fidelity.tv2
    state = verdicts.PAIRS.state(value)
    text = "pairs of columns off by so much, on average"
    for card in intervals_card(report):
        if state == "good" and card.state != "good":
            state = "fair"  # shares are near, and what an analyst says of their error is not
        text += f"; {card.number} {card.text}"
    better = "" if state == "good" else "estimands for the figures that matter"
    return _use("Shares and tables", number(value), text, state, _equal(report, "tv2"), better)


def _models(report: EvaluationReport) -> Verdict:
    real, synthetic = report.utility.mean_auc_real, report.utility.mean_auc_synthetic
    if real is None or synthetic is None:
        text, better = "no classifier could be judged", "columns to predict: evaluation.targets"
        return _use("Models", "not judged", text, "unknown", "", better)
    lost, state = None, verdicts.LOST.state(None)
    if real > verdicts.LEARNABLE:
        rows = [r for r in report.utility.rows if r.metric == "auc" and r.low is not None]
        ends = [fmean(getattr(r, end) for r in rows) if rows else 0.0 for end in ("low", "high")]
        lost = 1 - (synthetic - 0.5) / (real - 0.5)
        state = verdicts.LOST.within(lost, *(end / (real - 0.5) for end in ends))
    text = "mean AUC on held-out real rows, learnt on synthetic ones"
    if lost is not None:
        text += f"; {max(lost, 0):.0%} of what real rows teach beyond guessing is lost"
    better = "" if state == "good" else "a larger epsilon, or a larger share for targets"
    return _use(
        "Models", number(synthetic), text, state, f"learnt on real rows: {real:.3g}", better=better
    )


def _effects(content: ReportContent, report: EvaluationReport) -> Verdict:
    """Effects need a causal graph that the real rows do not refute."""
    name = "Effects"
    if content.graph is None or content.graph.mode in ("none", "predict"):
        text = "the model claims no causes, and nothing of what would change if one were set"
        return _use(name, "no causes", text, "bad", "", "graph.mode: given or validate")
    states: list[State] = []
    figure, said = "", []
    for card in claims_card(report):
        states.append(card.state)
        figure, said = card.number, [card.text]
    compared = [e for e in report.effects if e.covered is not None]
    if compared:
        held = sum(bool(e.covered) for e in compared)
        missed = 1 - held / len(compared)
        enough = len(compared) >= verdicts.FEW or missed > 0
        states.append(verdicts.MISSED.state(missed) if enough else "unknown")
        said.append(f"{held} of {len(compared)} declared effects hold the real estimate")
    state = verdicts.worst(states)
    text = "; ".join(said) or "no claim of the graph could be tested, and no effect is declared"
    better = "" if state == "good" else "estimands of kind effect, and a graph that is validated"
    return _use(name, figure or "not tested", text, state, "", better)


def _equal(report: EvaluationReport, name: str) -> str:
    """Held-out real rows beside as many synthetic ones."""
    if report.floor is None or report.equal is None:
        return ""
    drawn, real = getattr(report.equal, name), getattr(report.floor, name)
    if drawn is None or real is None:
        return ""
    return f"in samples of equal size: synthetic {drawn:.2g}, held-out real {real:.2g}"


def _use(heading: str, figure: str, text: str, state: State, floor: str, better: str) -> Verdict:
    return Verdict(heading, figure, text, state, floor, better=better, use=True)
