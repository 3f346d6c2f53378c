"""The report's sections on analysis: effects, intervals, groups, two-sample test. Confidential."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from synthdp.drawing import charts, grids
from synthdp.drawing.svg import short
from synthdp.evaluate.effects import EffectRow, Estimate
from synthdp.evaluate.independences import IndependenceReport
from synthdp.evaluate.random_targets import PaperReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.subgroups import SubgroupRow
from synthdp.report.internal.appendix import utility_table
from synthdp.report.parts import Picture, number
from synthdp.report.tables import ReportTable, cut

MAX_GROUPS, MAX_PAPER_ROWS = 16, 600
GROUP_HEADINGS = (
    "column",
    "group",
    "share real",
    "synthetic",
    "TV synthetic",
    "TV held-out",
    "accuracy, learnt on real",
    "on synthetic",
)
FAR = 2.0  # times the distance of held-out rows: a group that is worse than its size explains
NOMINAL = 0.95


def analysis_view(report: EvaluationReport | None) -> dict[str, Any]:
    """Pictures, sentences and tables of the sections on analysis; empty without an evaluation."""
    if report is None:
        return {
            "effect_picture": None,
            "analysis": (),
            "group_picture": None,
            "pair_picture": None,
            "paper_sentence": "",
            "analysis_tables": (),
        }
    sentences = (_two_sample(report), _coverage(report), _independences(report))
    return {
        "effect_picture": _effects(report.effects),
        "analysis": tuple(filter(None, sentences)),
        "group_picture": _groups(report.subgroups),
        "pair_picture": _pairs(report),
        "paper_sentence": _paper(report.paper) if report.paper else "",
        "analysis_tables": tuple(analysis_tables(report)),
    }


def _effects(rows: Sequence[EffectRow]) -> Picture | None:
    """The picture of all effects that were estimated on both tables."""
    drawn, covered, turned = [], 0, []
    for row in rows:
        if row.real is None or row.synthetic is None:
            continue
        drawn.append((f"{row.outcome}: {row.name}", [_ends(row.real), _ends(row.synthetic)]))
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
    label = "effect in the outcome's unit"
    svg = charts.intervals(drawn, label=label, alt=sentence)
    return Picture("Average effects, adjusted along the graph", Markup(svg), sentence)


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    """An estimate as (value, low, high)."""
    return estimate.value, estimate.low, estimate.high


def _two_sample(report: EvaluationReport) -> str:
    """How well a classifier separates synthetic from held-out real rows."""
    rows = [r for r in report.two_sample if r.compared == "synthetic from real"]
    if not rows:
        return ""
    best = max(rows, key=lambda r: r.auc)
    learner = best.classifier.replace("_", " ")
    head = (
        f"A classifier tells synthetic from held-out real rows with AUC {best.auc:.2f}"
        f" ({best.low:.2f} to {best.high:.2f}; {learner})"
    )
    if best.low <= 0.5:
        return f"{head}: no better than guessing."
    # A concave ROC curve through (f, t) has at least the area (1 + t - f) / 2.
    max_advantage = 2 * best.auc - 1
    return (
        f"{head}. 0.5 would be guessing; wherever it draws the line, it picks out at most about"
        f" {max_advantage:.0%} more of the synthetic rows than of the real ones."
    )


def _coverage(report: EvaluationReport) -> str:
    """How often intervals on synthetic rows contain the real estimates."""
    if not report.coverage:
        return ""
    narrow = [r.kind for r in report.coverage if r.synthetic < NOMINAL - 0.05]
    each = ", ".join(f"{r.kind} {r.synthetic:.0%}" for r in report.coverage)
    head = (
        "Confidence intervals of 95% that take synthetic rows for real ones hold the real table's"
        f" figure in: {each}."
    )
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


def _groups(rows: Sequence[SubgroupRow]) -> Picture | None:
    """The picture of total variation within small groups."""
    drawn, far = [], []
    for row in rows:
        if row.tv1 is None or row.floor is None:
            continue
        name = f"{row.column}: {row.level}"
        drawn.append((short(name, 32), row.floor, row.tv1))
        if row.tv1 > FAR * row.floor:
            far.append(name)
    if not drawn:
        return None
    which = "small groups are as near as their size allows"
    if far:
        which = ", ".join([*far[:6], "..."] if len(far) > 6 else far)
    sentence = (
        f"{len(far)} of {len(drawn)} groups are more than twice as far from the real rows as"
        f" held-out rows of the group are: {which}."
    )
    svg = charts.bars(drawn[:MAX_GROUPS], left=240, wide=280, alt=sentence)
    return Picture("Total variation within groups, smallest group first", Markup(svg), sentence)


def _pairs(report: EvaluationReport) -> Picture | None:
    """The pair plot: real rows above the diagonal, synthetic rows below it."""
    if report.pairs is None:
        return None
    real, synthetic = report.pairs
    size = range(len(real.names))
    tables = [[synthetic.tables[i][j] if j <= i else real.tables[i][j] for j in size] for i in size]
    sentence = (
        "Above the diagonal the real rows, below it the synthetic ones, mirrored: a shape on one"
        " side alone was lost or invented."
    )
    svg = grids.pairplot(real.names, tables, ends=real.ends, alt=sentence)
    return Picture("Pairs of columns", Markup(svg), sentence)


def _paper(report: PaperReport) -> str:
    """The mean loss over random targets."""
    losses = []
    for gap in report.gaps:
        loss = f"{gap.value:.3g} {gap.unit}"
        if gap.low is not None and gap.high is not None:
            loss += f" ({gap.low:.3g} to {gap.high:.3g})"
        losses.append(loss)
    if not losses:
        return f"None of the {len(report.targets)} columns drawn at random could be judged."
    return (
        f"Over {len(report.targets)} columns drawn at random, learning on synthetic rows costs on"
        f" average {', '.join(losses)}; below 0 it is a gain."
    )


# --- tables ---


def analysis_tables(report: EvaluationReport) -> Iterator[ReportTable]:
    """Every number of these sections; the page leaves out empty tables."""
    yield _effect_table(report.effects)
    separated = tuple(
        (r.compared, r.classifier, f"{r.auc:.3f}", f"{r.low:.3f}", f"{r.high:.3f}")
        for r in report.two_sample
    )
    yield ReportTable(
        "Two-sample test: telling rows apart",
        ("rows", "classifier", "AUC", "95% from", "to"),
        separated,
    )
    covered = tuple(
        (r.kind, str(r.figures), _share(r.synthetic), _share(r.held_out)) for r in report.coverage
    )
    yield ReportTable(
        "Coverage of 95% intervals",
        ("figures", "number", "on synthetic rows", "on held-out real rows"),
        covered,
    )
    yield ReportTable("Groups", GROUP_HEADINGS, tuple(_group(r) for r in report.subgroups))
    if report.independences:
        yield _independence_table(report.independences)
    if report.paper:
        yield _paper_table(report.paper)


def _effect_table(effects: Sequence[EffectRow]) -> ReportTable:
    rows = tuple(
        (
            r.name,
            r.outcome,
            ", ".join(r.adjusted) or "nothing",
            *_cells(r.real),
            *_cells(r.synthetic),
            _yes(r.covered),
            r.note,
        )
        for r in effects
    )
    headings = (
        "treated",
        "outcome",
        "adjusted for",
        "real",
        "95% from",
        "to",
        "synthetic",
        "95% from",
        "to",
        "holds the real estimate",
        "remark",
    )
    return ReportTable("Average effects", headings, rows)


def _independence_table(report: IndependenceReport) -> ReportTable:
    ordered = sorted(report.rows, key=lambda r: -r.synthetic.w)
    rows = tuple(
        (
            f"{r.x}, {r.y}",
            ", ".join(r.given) or "nothing",
            f"{r.real.w:.3f}",
            f"{r.synthetic.w:.3f}",
            f"{r.synthetic.by_chance:.3f}",
        )
        for r in ordered
    )
    return ReportTable(
        "Independences that the graph implies",
        ("columns", "given", "w real", "w synthetic", "by chance, up to"),
        rows,
    )


def _paper_table(report: PaperReport) -> ReportTable:
    caption = "Long protocol: columns drawn at random"
    return cut(utility_table(caption, report.utility), MAX_PAPER_ROWS)


def _cells(estimate: Estimate | None) -> tuple[str, str, str]:
    """An estimate as three cells of text."""
    if estimate is None:
        return "too few rows", "", ""
    return number(estimate.value), number(estimate.low), number(estimate.high)


def _yes(value: bool | None) -> str:
    if value is None:
        return ""
    return "yes" if value else "no"


def _group(row: SubgroupRow) -> tuple[str, ...]:
    accuracies = (_share(a) for a in (row.accuracy_real, row.accuracy_synthetic))
    return (
        row.column,
        row.level,
        f"{row.share_real:.2%}",
        f"{row.share_synthetic:.2%}",
        number(row.tv1),
        number(row.floor),
        *accuracies,
    )


def _share(value: float | None) -> str:
    return "too few rows" if value is None else f"{value:.1%}"
