"""The report on what an analyst would find: effects, intervals, groups, and whether rows can be
told apart. Confidential.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from synthdp.drawing import charts as draw
from synthdp.drawing.mpl_figures import short
from synthdp.evaluate.effects import EffectRow, Estimate
from synthdp.evaluate.independences import IndependenceReport
from synthdp.evaluate.random_targets import PaperReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.subgroups import SubgroupRow
from synthdp.report.internal.appendix import ReportTable
from synthdp.report.internal.findings import number
from synthdp.report.parts import Picture

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
    """Pictures, sentences and tables of the sections on analysis; empty where nothing was
    judged.
    """
    if report is None:
        return {
            "effect_picture": None,
            "analysis": (),
            "group_picture": None,
            "pair_picture": None,
            "paper_sentence": "",
            "analysis_tables": (),
        }
    return {
        "effect_picture": _effects(report.effects),
        "analysis": tuple(
            s for s in (_two_sample(report), _coverage(report), _independences(report)) if s
        ),
        "group_picture": _groups(report.subgroups),
        "pair_picture": _pairs(report),
        "paper_sentence": _paper(report.paper) if report.paper else "",
        "analysis_tables": tuple(analysis_tables(report)),
    }


def _effects(rows: Sequence[EffectRow]) -> Picture | None:
    known = [
        (r.name, r.outcome, r.real, r.synthetic, r.covered) for r in rows if r.real and r.synthetic
    ]
    if not known:
        return None
    drawn = [
        (f"{outcome}: {name}", _ends(real), _ends(drawn)) for name, outcome, real, drawn, _ in known
    ]
    held = sum(bool(covered) for *_, covered in known)
    turned = [name for name, _, real, drawn, _ in known if real.value * drawn.value < 0]
    sentence = (
        f"In {held} of {len(known)} effects the 95% interval of synthetic rows holds the estimate"
        " of real rows"
    )
    sentence += (
        f"; the sign turns for {', '.join(turned)}." if turned else "; no effect changes its sign."
    )
    sentence += (
        " The interval takes synthetic rows for real ones, so it is too narrow by what noise and"
        " model add."
    )
    svg = draw.intervals(
        drawn,
        label="effect in the outcome's unit (above: real rows, below: synthetic rows)",
        alt=sentence,
    )
    return Picture("Average effects, adjusted along the graph", Markup(svg), sentence)


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _two_sample(report: EvaluationReport) -> str:
    found = [r for r in report.two_sample if r.compared == "synthetic from real"]
    if not found:
        return ""
    best = max(found, key=lambda r: r.auc)
    learner = best.classifier.replace("_", " ")
    told = (
        f"A classifier tells synthetic from held-out real rows with AUC {best.auc:.2f}"
        f" ({best.low:.2f} to {best.high:.2f}; {learner})"
    )
    if best.low <= 0.5:
        return f"{told}: no better than guessing."
    apart = (
        2 * best.auc - 1
    )  # a concave ROC curve through (f, t) has at least the area (1 + t - f) / 2
    most = f"at most about {apart:.0%} more of the synthetic rows than of the real ones"
    return f"{told}. 0.5 would be guessing; wherever it draws the line, it picks out {most}."


def _coverage(report: EvaluationReport) -> str:
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
    found = report.independences
    if found is None:
        return ""
    kept = (
        f"{found.kept('synthetic')} of {len(found.rows)} independences that the graph implies hold"
        " in the synthetic rows"
    )
    return (
        f"{kept}, and {found.kept('real')} in the real ones (no more than a small effect, w 0.1,"
        " beyond chance)."
    )


def _groups(rows: Sequence[SubgroupRow]) -> Picture | None:
    known = [(r, r.tv1, r.floor) for r in rows if r.tv1 is not None and r.floor is not None]
    if not known:
        return None
    drawn = [
        (short(f"{r.column}: {r.level}", 32), floor, tv1) for r, tv1, floor in known[:MAX_GROUPS]
    ]
    far = [f"{r.column}: {r.level}" for r, tv1, floor in known if tv1 > FAR * floor]
    head = (
        f"{len(far)} of {len(known)} groups are more than twice as far from the real rows as"
        " held-out rows of the group are"
    )
    sentence = (
        f"{head}: {', '.join(far[:6])}{', ...' if len(far) > 6 else ''}."
        if far
        else f"{head}: small groups are as near as their size allows."
    )
    return Picture(
        "Total variation within groups, smallest group first",
        Markup(draw.bars(drawn, left=240, wide=280, alt=sentence)),
        sentence,
    )


def _pairs(report: EvaluationReport) -> Picture | None:
    if report.pairs is None:
        return None
    real, synthetic = report.pairs
    size = range(len(real.names))
    tables = [[synthetic.tables[i][j] if j <= i else real.tables[i][j] for j in size] for i in size]
    sentence = (
        "Above the diagonal the real rows, below it the synthetic ones, mirrored: a shape on one"
        " side alone was lost or invented."
    )
    return Picture(
        "Pairs of columns", Markup(draw.pairplot(real.names, tables, alt=sentence)), sentence
    )


def _paper(report: PaperReport) -> str:
    told = [
        f"{g.value:.3g} {g.unit}"
        + (f" ({g.low:.3g} to {g.high:.3g})" if g.low is not None and g.high is not None else "")
        for g in report.gaps
    ]
    if not told:
        return f"None of the {len(report.targets)} columns drawn at random could be judged."
    return (
        f"Over {len(report.targets)} columns drawn at random, learning on synthetic rows costs on"
        f" average {', '.join(told)}; below 0 it is a gain."
    )


# --- tables ---


def analysis_tables(report: EvaluationReport) -> Iterator[ReportTable]:
    """Every number of these sections; empty tables are left out by the page."""
    yield _effect_table(report.effects)
    told = tuple(
        (r.compared, r.classifier, f"{r.auc:.3f}", f"{r.low:.3f}", f"{r.high:.3f}")
        for r in report.two_sample
    )
    yield ReportTable(
        "Two-sample test: telling rows apart", ("rows", "classifier", "AUC", "95% from", "to"), told
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
    found = report.utility.rows
    rows = tuple(
        (
            r.target,
            r.classifier,
            r.metric,
            *map(number, (r.real, r.synthetic, r.difference, r.low, r.high)),
        )
        for r in found
    )
    headings = (
        "target",
        "learner",
        "score",
        "learnt on real",
        "learnt on synthetic",
        "real - synthetic",
        "95% from",
        "to",
    )
    return ReportTable(
        "Long protocol: columns drawn at random",
        headings,
        rows[:MAX_PAPER_ROWS],
        max(0, len(rows) - MAX_PAPER_ROWS),
    )


def _cells(estimate: Estimate | None) -> tuple[str, str, str]:
    return (
        (number(estimate.value), number(estimate.low), number(estimate.high))
        if estimate
        else ("too few rows", "", "")
    )


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


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
