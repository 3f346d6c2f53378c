"""The verdicts at the top of the steward's report: uses, gates, attack, and what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.functional.suggest import Suggestion, SuggestionReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.utility import UtilityRow
from synthdp.report import verdicts
from synthdp.report.internal.content import (
    ATTACK,
    Budget,
    EstimandBeside,
    GateResult,
    ReportContent,
)
from synthdp.report.sections import (
    VISIBLE_ASSOCIATION,
    ReportTable,
    interval,
    most_advantage,
    number,
)
from synthdp.report.verdicts import State, Verdict

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
    text = verdict(content.gates)
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
        return Verdict("Membership attack", "cannot tell", attack_finding(attack), "unknown")
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
    yield Verdict("Largest change of a pair", number(largest), association(near), state)


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
    text = misfits(content.misfits)
    values = sum(sum(kinds.values()) for kinds in content.misfits.values())
    if not values:
        return Verdict("Data problems", "none", text, "good")
    return Verdict("Data problems", f"{values:,} values", text, "bad")


# --- uses ---
#
# What the table is fit for, by use, from figures on real rows. Confidential.


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


# --- findings ---
#
# One plain sentence for each part of the steward's report: what to conclude from its numbers.
#
# The wording follows fixed thresholds that are named here. They are a reading aid, never a gate.


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


def attack_finding(report: Mapping[str, Any]) -> str:
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


# --- suggestions ---
#
# The report's section on columns that look like functions of others. Confidential.


WARNING = (
    "These suggestions come from the real rows and cost no budget. A line that only the rows showed"
    " makes the spec, and with it everything that is released, depend on them: that is a leak,"
    " which no epsilon covers. Declare what is true by definition of the columns, which is a public"
    " fact, and nothing else; take the values in a constraint from the codebook, not from here."
)
NOTE = (
    "A line was read by the spec's own parser and passes its checks. Rows that miss a value count"
    " neither for it nor against it. Rows that break a constraint are drawn again, and a release"
    " stops where fewer than 1 in 100 fulfil all of them."
)
SUGGESTION_HEADINGS = (
    "columns",
    "in the spec under",
    "line",
    "remark",
    "holds in real rows",
    "broken by synthetic rows",
)


def suggestion_view(report: SuggestionReport | None) -> dict[str, Any]:
    """Sentence, warning and table of the section."""
    rows = () if report is None else tuple(_suggestion_row(s) for s in report.suggestions)
    return {
        "suggestion_sentence": suggestion_sentence(report),
        "suggestion_warning": WARNING,
        "suggestion_note": NOTE,
        "suggestion_table": ReportTable(
            "Columns that could be declared", SUGGESTION_HEADINGS, rows
        ),
    }


def suggestion_sentence(report: SuggestionReport | None) -> str:
    """How many suggestions there are, and what was looked at."""
    if report is None:
        return "Evaluation is turned off in the spec: columns were not looked at."
    looked = f"{report.columns} columns of {report.rows:,} real rows"
    if report.left_out:
        looked += f" ({report.left_out} further columns were not looked at)"
    if not report.suggestions:
        return f"No column looks like a function of others, or bound by one, in {looked}."
    lines = sum(bool(s.line) for s in report.suggestions)
    words = len(report.suggestions) - lines
    parts = [f"{lines} that a line of the spec could declare"] if lines else []
    parts += [f"{words} that it has no line for"] if words else []
    return (
        f"Columns that look like functions of others, or bound by one, in {looked}:"
        f" {' and '.join(parts)}."
    )


def _suggestion_row(found: Suggestion) -> tuple[str, ...]:
    return (
        ", ".join(found.columns),
        "constraints" if found.line else "the spec has no line for it",
        found.line,
        found.remark,
        f"all {found.holds:,}",
        "no rows" if found.broken is None else f"{found.broken:.1%}",
    )


# --- estimands ---
#
# The report's section on estimands: what was released beside the real rows. Confidential.


ESTIMAND_HEADINGS = ("estimand", "group", "released", "95% interval", "all real rows", "inside")


def estimand_view(estimands: Sequence[EstimandBeside]) -> dict[str, Any]:
    """Sentence and table of the section; no rows where the spec names no estimands."""
    known = [e for e in estimands if e.covered is not None]
    inside = sum(bool(e.covered) for e in known)
    refused = len(estimands) - len(known)
    sentence = f"{inside} of {len(known)} released intervals hold the figure of all real rows"
    if refused:
        sentence += f"; {refused} figures were not given, for too few rows"
    return {
        "estimand_sentence": f"{sentence}. An interval also allows for sampling.",
        "estimand_table": ReportTable(
            "Estimands", ESTIMAND_HEADINGS, tuple(map(_estimand_row, estimands))
        ),
    }


def _estimand_row(beside: EstimandBeside) -> tuple[str, ...]:
    def text(value: float | None) -> str:
        return f"{value:.1%}" if beside.statistic == "share" and value else number(value)

    ends = "none" if beside.interval is None else " to ".join(map(text, beside.interval))
    inside = {True: "yes", False: "no", None: ""}[beside.covered]
    return beside.text, beside.group, text(beside.released), ends, text(beside.real), inside
