"""The sections of the steward's report: what to conclude from real rows, with its pictures.

The wording follows fixed thresholds that are named here. They are a reading aid, never a gate.
Confidential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.drawing import charts
from synthdp.drawing.svg import short
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.functional.suggest import Suggestion, SuggestionReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.utility import UtilityRow
from synthdp.report.internal.appendix import ATTACK_CAPTIONS, attack_tables, misfit_table
from synthdp.report.internal.content import (
    ATTACK,
    Budget,
    EstimandBeside,
    GateResult,
    ReportContent,
)
from synthdp.report.sections import (
    VISIBLE_ASSOCIATION,
    Picture,
    ReportTable,
    Section,
    budget_picture,
    column_overlay,
    crosses,
    interval,
    number,
    roc_picture,
    yes,
)

NEAR_FLOOR = 1.5  # times the distance of held-out real rows: as good as another sample
FAR = 2.0  # times the distance of held-out rows: a group that is worse than its size explains
MAX_HEAT = 32  # columns of the association figure
NOMINAL = 0.95


def gates(found: Sequence[GateResult]) -> str:
    """Whether the gates let the bundle be released."""
    failed = [g.metric for g in found if not g.passed]
    if not found:
        return (
            "The spec sets no gates: whether this release is good enough is for the steward to"
            " decide from the figures below."
        )
    if failed:
        return (
            f"Withheld: {len(failed)} of {len(found)} gates failed ({', '.join(failed)}); the"
            " budget is spent all the same."
        )
    return f"Every gate passed ({len(found)}): the bundle was released."


def budget(spent: Budget) -> Section:
    """The bar of the budget, or what is guaranteed, where the cost of each step is not known."""
    used = ""
    if spent.epsilon_planned > spent.epsilon_spent * (1 + 1e-9):
        used = (
            f"This outcome used {number(spent.epsilon_spent)} of it, which is no bound for the run."
        )
    looks = [(step.label, step.epsilon) for step in spent.steps if step.epsilon is not None]
    if not looks or len(looks) < len(spent.steps):
        head = (
            f"The run guarantees epsilon {number(spent.epsilon_planned)} of {number(spent.epsilon)}"
            f" ({spent.epsilon_planned / spent.epsilon:.0%}) at delta {spent.delta:g}."
        )
        return Section(f"{head} {used}".strip())
    picture = budget_picture(
        looks, total=spent.epsilon_planned, budget=spent.epsilon, delta=spent.delta, more=used
    )
    return Section(picture.sentence, [picture])


def missing_evaluation(report: EvaluationReport | None, why: str | None) -> str | None:
    """Why there is no comparison with real rows, or None where there is one.

    `why` is known where one was asked for.
    """
    if report is None and why is not None:
        return f"There is no comparison with real rows: {why}."
    if report is None:
        return "Evaluation is turned off in the spec: nothing was compared with real rows."
    return "There are no rows to compare." if report.fidelity is None else None


def columns(content: ReportContent, *, most: int) -> Section:
    """Frequencies of at most `most` columns on both kinds of rows, furthest off first."""
    near = content.fidelity
    if content.evaluation is None or near is None:
        return Section()
    pictures = [
        column_overlay(
            column,
            near.shares_real[column.name],
            near.shares_synthetic[column.name],
            first_name="real",
            off=f"{near.by_column[column.name]:.1%} of rows off",
        )
        for column in sorted(content.domain.columns, key=lambda c: -near.by_column[c.name])[:most]
    ]
    return Section(fidelity(near, content.evaluation.floor, content.evaluation.equal), pictures)


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


def association_section(near: FidelityReport | None) -> Section:
    """The difference in Cramér's V of pairs, of the columns in which it is largest."""
    if near is None:
        return Section()
    sentence, difference, names = association(near), near.association_difference, [*near.by_column]
    order = np.sort(np.argsort(-np.abs(difference).max(axis=0), kind="stable")[:MAX_HEAT])
    if len(order) < len(names):
        sentence += f" The {len(order)} of {len(names)} columns that changed most are drawn."
    shown = difference[np.ix_(order, order)]
    most = max(0.05, float(np.abs(shown).max(initial=0.0)))
    svg = charts.heat([names[i] for i in order], shown, most=most, alt=sentence)
    title = "Association, synthetic minus real (Cramér's V; orange: lost, blue: invented)"
    return Section(sentence, [Picture(title, Markup(svg), sentence)])


def association(report: FidelityReport) -> str:
    """Which dependence was lost or invented."""
    names = list(report.by_column)
    if len(names) < 2:
        return "One column has no pairs to compare."
    difference = np.triu(report.association_difference, 1)
    i, j = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    changed = int((np.abs(difference) >= VISIBLE_ASSOCIATION).sum())
    pairs = len(names) * (len(names) - 1) // 2
    head = (
        f"{changed} of {pairs} pairs changed their strength of association by"
        if changed
        else "No pair of columns changed its strength of association by"
    )
    direction = "weaker" if difference[i, j] < 0 else "stronger"
    return (
        f"{head} {VISIBLE_ASSOCIATION} or more; the largest change is {names[i]} with {names[j]}"
        f" ({difference[i, j]:+.2f}, {direction} than in the real rows)."
    )


def learning(report: EvaluationReport | None) -> Section:
    """Scores after training on real and on synthetic rows, a picture for each metric."""
    if report is None:
        return Section()
    pictures = []
    for metric, label, guess in (("auc", "AUC", 0.5), ("r2", "R²", 0.0)):
        rows = [
            r
            for r in report.utility.rows
            if r.metric == metric and r.real is not None and r.synthetic is not None
        ]
        if rows:
            svg = charts.intervals(
                [*map(_ends, rows)],
                label=f"{label} on held-out real rows; {guess:g} is guessing",
                alt=utility(rows),
                origin=guess,
            )
            title = f"{label} by target and learner"
            pictures.append(Picture(title, Markup(svg), utility(rows)))
    return Section(_paper(report), pictures, notes=report.utility.notes)


def _ends(row: UtilityRow) -> tuple[str, list[tuple[float, float, float]]]:
    """A label, and both scores with their ends."""
    assert row.real is not None and row.synthetic is not None  # asked before
    low, high = row.synthetic, row.synthetic
    if row.low is not None and row.high is not None:
        low, high = row.real - row.high, row.real - row.low
    name = f"{row.target}: {row.classifier.replace('_', ' ')}"
    return name, [(row.real, row.real, row.real), (row.synthetic, low, high)]


def utility(rows: Sequence[UtilityRow]) -> str:
    """Whether training on synthetic rows costs anything, on the rows that a figure shows."""
    known = [r for r in rows if r.difference is not None]
    if not known:
        return "No score could be computed on these rows."
    worse = sum(r.low is not None and r.low > 0 for r in known)
    worst = max(known, key=lambda r: r.difference or 0.0)
    name, gap = f"{worst.classifier.replace('_', ' ')} on {worst.target}", worst.difference or 0.0
    if not worse:
        return (
            "No learner is measurably worse for having learnt on synthetic rows; the largest gap,"
            f" {gap:.3f} ({name}), could be chance."
        )
    return (
        f"{worse} of {len(known)} learners are measurably worse for having learnt on synthetic"
        f" rows; the largest loss is {gap:.3f} ({name})."
    )


def _paper(report: EvaluationReport) -> str:
    """The mean loss over random targets."""
    if report.paper is None:
        return ""
    targets, losses = len(report.paper.targets), []
    for gap in report.paper.gaps:
        loss = f"{gap.value:.3g} {gap.unit}"
        if gap.low is not None and gap.high is not None:
            loss += f" ({gap.low:.3g} to {gap.high:.3g})"
        losses.append(loss)
    if not losses:
        return f"None of the {targets} columns drawn at random could be judged."
    return (
        f"Over {targets} columns drawn at random, learning on synthetic rows costs on average"
        f" {', '.join(losses)}; below 0 it is a gain."
    )


def analysis(report: EvaluationReport | None) -> Section:
    """What an analyst would find: effects, told from real rows, intervals, independences."""
    if report is None:
        return Section()
    notes = filter(None, (_two_sample(report), _coverage(report), _independences(report)))
    effects = _effects(report)
    return Section(pictures=() if effects is None else (effects,), notes=tuple(notes))


def _effects(report: EvaluationReport) -> Picture | None:
    """The picture of all effects that were estimated on both tables."""
    drawn, covered, turned = [], 0, []
    for row in report.effects:
        if row.real is None or row.synthetic is None:
            continue
        ends = [(e.value, e.low, e.high) for e in (row.real, row.synthetic)]
        drawn.append((f"{row.outcome}: {row.name}", ends))
        covered += bool(row.covered)
        if row.real.value * row.synthetic.value < 0:
            turned.append(row.name)
    if not drawn:
        return None
    signs = f"the sign turns for {', '.join(turned)}" if turned else "no effect changes its sign"
    sentence = (
        f"In {covered} of {len(drawn)} effects the 95% interval of synthetic rows holds the"
        f" estimate of real rows; {signs}. The interval takes synthetic rows for real ones, so it"
        " is too narrow by what noise and model add."
    )
    svg = charts.intervals(drawn, label="effect in the outcome's unit", alt=sentence)
    return Picture("Average effects, adjusted along the graph", Markup(svg), sentence)


def _two_sample(report: EvaluationReport) -> str:
    """How well a classifier separates synthetic from held-out real rows."""
    rows = [r for r in report.two_sample if r.compared == "synthetic from real"]
    if not rows:
        return ""
    best = max(rows, key=lambda r: r.auc)
    head = (
        f"A classifier tells synthetic from held-out real rows with AUC {best.auc:.2f}"
        f" ({best.low:.2f} to {best.high:.2f}; {best.classifier.replace('_', ' ')})"
    )
    if best.low <= 0.5:
        return f"{head}: no better than guessing."
    # A concave ROC curve through (f, t) has at least the area (1 + t - f) / 2.
    return (
        f"{head}. 0.5 would be guessing; wherever it draws the line, it picks out at most about"
        f" {2 * best.auc - 1:.0%} more of the synthetic rows than of the real ones."
    )


def _coverage(report: EvaluationReport) -> str:
    """How often intervals on synthetic rows contain the real estimates."""
    if not report.coverage:
        return ""
    each = ", ".join(f"{r.kind} {r.synthetic:.0%}" for r in report.coverage)
    head = (
        "Confidence intervals of 95% that take synthetic rows for real ones hold the real table's"
        f" figure in: {each}."
    )
    narrow = [r.kind for r in report.coverage if r.synthetic < NOMINAL - 0.05]
    if not narrow:
        return f"{head} That is about what they say."
    return (
        f"{head} For {' and '.join(narrow)} they are too narrow: an analyst must not take them at"
        " their word."
    )


def _independences(report: EvaluationReport) -> str:
    """How many implied independences hold on either table."""
    implied = report.independences
    if implied is None:
        return ""
    return (
        f"{implied.kept('synthetic')} of {len(implied.rows)} independences that the graph implies"
        f" hold in the synthetic rows, and {implied.kept('real')} in the real ones (no more than a"
        " small effect, w 0.1, beyond chance)."
    )


def groups(report: EvaluationReport | None) -> Section:
    """Total variation within small groups."""
    drawn, far = [], []
    for row in report.subgroups if report else ():
        if row.tv1 is None or row.floor is None:
            continue
        name = f"{row.column}: {row.level}"
        drawn.append((short(name, 32), row.floor, row.tv1))
        if row.tv1 > FAR * row.floor:
            far.append(name)
    if not drawn:
        return Section()
    which = "small groups are as near as their size allows"
    if far:
        which = ", ".join([*far[:6], "..."] if len(far) > 6 else far)
    sentence = (
        f"{len(far)} of {len(drawn)} groups are more than twice as far from the real rows as"
        f" held-out rows of the group are: {which}."
    )
    svg = charts.bars(drawn[:16], left=240, wide=280, alt=sentence)
    title = "Total variation within groups, smallest group first"
    return Section(sentence, [Picture(title, Markup(svg), sentence)])


def pairs(report: EvaluationReport | None) -> Section:
    """The pair plot: real rows above the diagonal, synthetic rows below it."""
    if report is None or report.pairs is None:
        return Section()
    real, synthetic = report.pairs
    size = range(len(real.names))
    tables = [[synthetic.tables[i][j] if j <= i else real.tables[i][j] for j in size] for i in size]
    sentence = (
        "Above the diagonal the real rows, below it the synthetic ones, mirrored: a shape on one"
        " side alone was lost or invented."
    )
    svg = charts.pairplot(real.names, tables, ends=real.ends, alt=sentence)
    return Section(sentence, [Picture("Pairs of columns", Markup(svg), sentence)])


def attack_section(content: ReportContent, *, telling: bool) -> Section:
    """The bound on attacks, with the curve of the one that was run where it is `telling`."""
    attack = content.attack
    profile = content.profile or ((content.budget.epsilon_planned, content.budget.delta),)
    if not attack:
        why = content.absent.get(ATTACK)
        told = "No attack was run." if why is None else f"The attack has no figures: {why}."
        return Section(told, [roc_picture(profile)])
    pairs = [
        (point["fpr"], point["tpr"]) if isinstance(point, dict) else point[:2]
        for point in attack.get("roc") or ()
    ]
    points, more = sorted((float(fpr), float(tpr)) for fpr, tpr in pairs), attack_finding(attack)
    curve = points if telling and len(points) > 1 else []
    if curve:
        more = f"{roc(attack, crosses=crosses(curve, profile))} {more}"
    elif len(points) > 1:
        few = "The curve of so few models is not drawn: chance alone moves it over the bound."
        more = f"{few} {more}"
    shown = [table for table in attack_tables(attack) if table.caption in ATTACK_CAPTIONS]
    return Section("", [roc_picture(profile, curve=curve, more=more)], shown)


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


def data(content: ReportContent) -> Section:
    """Values outside the declared domain."""
    return Section(misfits(content.misfits), tables=[misfit_table(content.misfits)])


def misfits(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Whether the values lie in the declared domain, from counts by column and kind."""
    bad = {name: total for name, kinds in counts.items() if (total := sum(kinds.values()))}
    if not bad:
        return "Every value lies in its column's declared domain."
    worst = max(bad, key=lambda name: bad[name])
    return (
        f"{sum(bad.values()):,} values in {len(bad)} of {len(counts)} columns do not fit the"
        f" declared domain, most of them in {worst}; they were changed to a declared level."
    )


def suggestions(report: SuggestionReport | None) -> Section:
    """Columns that look like functions of others."""
    if report is None:
        return Section("Evaluation is turned off in the spec: columns were not looked at.")
    looked = f"{report.columns} columns of {report.rows:,} real rows"
    if report.left_out:
        looked += f" ({report.left_out} further columns were not looked at)"
    if not report.suggestions:
        return Section(f"No column looks like a function of others, or bound by one, in {looked}.")
    lines = sum(bool(s.line) for s in report.suggestions)
    words = len(report.suggestions) - lines
    parts = [f"{lines} that a line of the spec could declare"] if lines else []
    parts += [f"{words} that it has no line for"] if words else []
    told = (
        f"Columns that look like functions of others, or bound by one, in {looked}:"
        f" {' and '.join(parts)}."
    )
    rows = map(_suggestion_row, report.suggestions)
    return Section(told, tables=[ReportTable.of("Columns that could be declared", rows)])


def _suggestion_row(found: Suggestion) -> dict[str, str]:
    places = {"derived": "columns", "constraint": "constraints"}
    return {
        "columns": ", ".join(found.columns),
        "in the spec under": places.get(found.kind, "the spec has no line for it"),
        "line": found.line,
        "remark": found.remark,
        "holds in real rows": f"all {found.holds:,}",
        "broken by synthetic rows": "no rows" if found.broken is None else f"{found.broken:.1%}",
        "off by, on average": "" if found.off is None else number(found.off),
    }


def estimands(beside: Sequence[EstimandBeside]) -> Section:
    """What was released beside the real rows; no rows where the spec names no estimands."""
    known = [e for e in beside if e.covered is not None]
    inside = sum(bool(e.covered) for e in known)
    sentence = f"{inside} of {len(known)} released intervals hold the figure of all real rows"
    if refused := len(beside) - len(known):
        sentence += f"; {refused} figures were not given, for too few rows"
    tables = [ReportTable.of("Estimands", map(_estimand_row, beside))] if beside else []
    return Section(f"{sentence}. An interval also allows for sampling.", tables=tables)


def _estimand_row(beside: EstimandBeside) -> dict[str, str]:
    def text(value: float | None) -> str:
        return f"{value:.1%}" if beside.statistic == "share" and value else number(value)

    return {
        "estimand": beside.text,
        "group": beside.group,
        "released": text(beside.released),
        "95% interval": (
            "none" if beside.interval is None else " to ".join(map(text, beside.interval))
        ),
        "all real rows": text(beside.real),
        "inside": yes(beside.covered),
    }
