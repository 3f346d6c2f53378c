"""The report's appendix: every number as a table of text. Confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.drawing import charts
from synthdp.drawing.svg import short
from synthdp.evaluate.effects import EffectRow, Estimate
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.independences import IndependenceReport
from synthdp.evaluate.learners import PaperReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.subgroups import SubgroupRow
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.report.internal import sections
from synthdp.report.internal.content import Budget, ReportContent
from synthdp.report.sections import (
    PageLimits,
    Picture,
    Points,
    ReportTable,
    arrow_table,
    budget_picture,
    crosses,
    cut,
    interval,
    number,
    roc_picture,
    shares,
)

# The tables that the page shows; the others are in the appendix.
ATTACK_CAPTIONS = ("Membership attack", "Membership attack: declared")
MISFIT_KINDS = {
    "wrong type": "wrong type",
    "outside the domain": "outside the domain",
    "unexpected missing": "missing where none is declared",
}


def tables(content: ReportContent, limits: PageLimits) -> list[ReportTable]:
    """All tables of the appendix, in the order of the report; empty ones are left out."""
    every = [
        _headline(content),
        *_budget(content.budget),
        *_evaluation(content.evaluation, content.domain, limits),
    ]
    if content.graph:
        every.append(arrow_table(content.graph, limits.pairs))
    if content.attack:
        shown = attack_tables(content.attack)
        every += [table for table in shown if table.caption not in ATTACK_CAPTIONS]
    timings = tuple((stage, f"{seconds:.2f}") for stage, seconds in content.timings.items())
    every.append(ReportTable("Time by stage", ("stage", "seconds"), timings))
    return [table for table in every if table.rows]


def _headline(content: ReportContent) -> ReportTable:
    """The figures of the cards, and the gates."""
    budget, report = content.budget, content.evaluation
    figures: dict[str, float | None] = {
        "epsilon, budget": budget.epsilon,
        "epsilon, guaranteed (all that was planned)": budget.epsilon_planned,
        "epsilon, used on this outcome (no bound)": budget.epsilon_spent,
        "delta": budget.delta,
        "epsilon, cap of the dataset": budget.cap_epsilon,
        "epsilon, taken from the dataset so far": budget.dataset_spent,
        "tv1_noisy": content.tv1_noisy,
    }
    if report:
        figures |= report.metrics() | {"mean AUC learnt on real rows": report.utility.mean_auc_real}
    if report and report.equal:
        figures["tv1 of as many synthetic rows as were held out"] = report.equal.tv1
        figures["tv2 of as many synthetic rows as were held out"] = report.equal.tv2
    if report and report.floor:
        figures["tv1 of held-out real rows"] = report.floor.tv1
        figures["tv2 of held-out real rows"] = report.floor.tv2
        figures["tv3 of held-out real rows"] = report.floor.tv3
    rows = [(name, number(value)) for name, value in figures.items()]
    for gate in content.gates:
        state = "passed" if gate.passed else "failed"
        rows.append((f"gate {gate.metric} {gate.bound}", f"{number(gate.value)}, {state}"))
    return ReportTable("Headline figures", ("figure", "value"), tuple(rows))


def _budget(budget: Budget) -> list[ReportTable]:
    """Every planned spend, and the guarantee for groups."""
    parts = shares([s.epsilon or 0.0 for s in budget.steps], delta=budget.delta)
    steps = tuple(
        (s.purpose, s.mechanism, f"{part:.1%}", number(s.epsilon), "yes" if s.used else "no")
        for s, part in zip(budget.steps, parts, strict=True)
    )
    groups = tuple((str(size), number(epsilon)) for size, epsilon in budget.group_epsilons.items())
    return [
        ReportTable(
            "Looks at the rows",
            ("purpose", "mechanism", "part of the cost", "epsilon alone", "used"),
            steps,
        ),
        ReportTable(
            "Guarantee for groups", ("units together", f"epsilon at delta {budget.delta:g}"), groups
        ),
    ]


def _evaluation(
    report: EvaluationReport | None, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    """The tables on fidelity and on utility; none without an evaluation."""
    if report is None:
        return
    if report.fidelity:
        yield from _fidelity(report.fidelity, report.floor, domain, limits)
    yield utility_table(
        "Learning on real and on synthetic rows, tested on held-out real rows", report.utility
    )
    notes = tuple((note,) for note in report.utility.notes)
    yield ReportTable("Remarks on learning", ("remark",), notes)


def utility_table(caption: str, report: UtilityReport) -> ReportTable:
    """All scores of a utility report, in its order."""
    rows = []
    for row in report.rows:
        figures = (row.real, row.synthetic, row.difference, row.low, row.high)
        rows.append((row.target, row.classifier, row.metric, *map(number, figures)))
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
    return ReportTable(caption, headings, tuple(rows))


def _fidelity(
    report: FidelityReport, floor: FidelityReport | None, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    """Distances of columns, pairs and triples, and the frequencies of every column."""
    columns = tuple(
        (name, f"{tv:.4f}", f"{floor.by_column[name]:.4f}" if floor else "not available")
        for name, tv in report.by_column.items()
    )
    yield ReportTable(
        "Total variation by column", ("column", "synthetic", "held-out real rows"), columns
    )
    yield _pairs(report, limits.pairs)
    triples = tuple((*names, f"{tv:.4f}") for names, tv in report.by_triple.items())
    yield cut(
        ReportTable(
            "Total variation by triple of columns",
            ("column", "column", "column", "total variation"),
            triples,
        ),
        limits.pairs,
    )
    for column in domain.columns:
        real, synthetic = report.shares_real[column.name], report.shares_synthetic[column.name]
        shares = tuple(
            (label, f"{a:.4%}", f"{b:.4%}")
            for label, a, b in zip(column.labels, real, synthetic, strict=True)
        )
        yield cut(
            ReportTable(f"Shares of {column.name}", ("level", "real", "synthetic"), shares),
            limits.levels,
        )


def _pairs(report: FidelityReport, max_rows: int) -> ReportTable:
    """The pairs of columns with the largest distances."""
    names = tuple(report.by_column)
    first, second = np.triu_indices(len(names), 1)
    worst = np.argsort(-report.pairs[first, second], kind="stable")
    shown = worst[:max_rows]
    rows = []
    for i, j in zip(first[shown].tolist(), second[shown].tolist(), strict=True):
        real, synthetic = report.association_real[i, j], report.association_synthetic[i, j]
        rows.append(
            (
                names[i],
                names[j],
                f"{report.pairs[i, j]:.4f}",
                f"{real:.3f}",
                f"{synthetic:.3f}",
                f"{synthetic - real:+.3f}",
            )
        )
    headings = ("column", "column", "total variation", "Cramér's V real", "synthetic", "difference")
    return ReportTable(
        "Pairs of columns, furthest off first", headings, tuple(rows), len(worst) - len(rows)
    )


def misfit_table(content: ReportContent) -> ReportTable:
    """Values outside the declared domain, by column and kind; columns without any are left out."""
    kinds = dict.fromkeys(MISFIT_KINDS)
    for counts in content.misfits.values():
        kinds |= dict.fromkeys(counts)
    rows = tuple(
        (name, *(f"{counts.get(kind, 0):,}" for kind in kinds))
        for name, counts in content.misfits.items()
        if any(counts.values())
    )
    return ReportTable(
        "Values that do not fit the declared domain",
        ("column", *(MISFIT_KINDS.get(kind, kind) for kind in kinds)),
        rows,
    )


def attack_tables(attack: Mapping[str, Any]) -> list[ReportTable]:
    """Everything that the attack reported: figures, a row for each variant, points of its curve."""
    figures, lists = {}, []
    for key, value in attack.items():
        if isinstance(value, list | tuple):
            lists.append(_listed(f"Membership attack: {_words(key)}", value))
        elif key != "conclusion":
            figures[key] = value
    return [ReportTable(ATTACK_CAPTIONS[0], ("figure", "value"), tuple(_facts(figures))), *lists]


def _facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested figures as (name, text) pairs; an estimate with its interval is one figure."""
    for key, value in values.items():
        name = f"{prefix}{_words(str(key))}"
        if _is_record(value):
            yield from _facts(value, f"{name}: ")
        else:
            yield name, interval(value)


def _is_record(value: Any) -> bool:
    """Whether a value has named figures and is not one estimate with its interval."""
    return isinstance(value, Mapping) and not {"value", "estimate"} & set(value)


def _listed(caption: str, items: Sequence[Any]) -> ReportTable:
    """A list as a table: of records, of points of a curve, or of single values."""
    if items and all(map(_is_record, items)):
        headings = tuple(dict.fromkeys(str(key) for item in items for key in item))
        rows = tuple(tuple(interval(item.get(key, "")) for key in headings) for item in items)
        return ReportTable(caption, tuple(map(_words, headings)), rows)
    if items and all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
        rates = tuple((interval(fpr), interval(tpr)) for fpr, tpr in items)
        return ReportTable(caption, ("false positive rate", "true positive rate"), rates)
    values = tuple((str(i), interval(item)) for i, item in enumerate(items, start=1))
    return ReportTable(caption, ("number", "value"), values)


def _words(key: str) -> str:
    return key.replace("_", " ")


# --- pictures ---
#
# The pictures of the steward's report, each with the sentence that says what to conclude.


MAX_HEAT = 32  # columns of the association figure
METRICS = (("auc", "AUC", 0.5), ("r2", "R²", 0.0))  # with what guessing has


def budget(spent: Budget) -> Picture | None:
    """The bar of the budget; None where the cost of a step is not known."""
    looks = [(step.label, step.epsilon) for step in spent.steps if step.epsilon is not None]
    if not looks or len(looks) < len(spent.steps):
        return None
    return budget_picture(
        looks,
        total=spent.epsilon_planned,
        budget=spent.epsilon,
        delta=spent.delta,
        more=sections.budget_used(spent),
    )


def overlays(domain: Domain, report: FidelityReport, max_columns: int) -> list[Picture]:
    """Frequencies of at most `max_columns` columns on both kinds of rows, furthest off first."""
    worst = sorted(domain.columns, key=lambda c: -report.by_column[c.name])[:max_columns]
    return [_overlay(column, report) for column in worst]


def _overlay(column: ColumnDomain, report: FidelityReport) -> Picture:
    """The frequencies of one column."""
    name = column.name
    real, synthetic = report.shares_real[name], report.shares_synthetic[name]
    level = int(np.abs(real - synthetic).argmax())
    where = (
        f"{short(column.labels[level], 40)}: {real[level]:.1%} real, {synthetic[level]:.1%}"
        " synthetic"
    )
    sentence = f"{report.by_column[name]:.1%} of rows off; most at {where}."
    svg = charts.overlay(
        column.labels,
        real,
        synthetic,
        ordered=column.ordered,
        alt=f"Shares of {name}. {sentence}",
        widths=column.relative_widths,
    )
    return Picture(name, Markup(svg), sentence)


def association(report: FidelityReport) -> Picture:
    """The difference in Cramér's V of pairs, of the columns in which it is largest."""
    sentence, difference = sections.association(report), report.association_difference
    names = list(report.by_column)
    order = np.sort(np.argsort(-np.abs(difference).max(axis=0), kind="stable")[:MAX_HEAT])
    if len(order) < len(names):
        sentence += f" The {len(order)} of {len(names)} columns that changed most are drawn."
    shown = difference[np.ix_(order, order)]
    most = max(0.05, float(np.abs(shown).max(initial=0.0)))
    svg = charts.heat([names[i] for i in order], shown, most=most, alt=sentence)
    title = "Association, synthetic minus real (Cramér's V; orange: lost, blue: invented)"
    return Picture(title, Markup(svg), sentence)


def utilities(report: UtilityReport) -> list[Picture]:
    """Scores after training on real and on synthetic rows, a picture for each metric."""
    shown = []
    for metric, label, guess in METRICS:
        rows = [r for r in report.rows if r.metric == metric]
        drawn = [found for row in rows if (found := _ends(row)) is not None]
        if not drawn:
            continue
        sentence = sections.utility([r for r in rows if _ends(r) is not None])
        svg = charts.intervals(
            drawn,
            label=f"{label} on held-out real rows; {guess:g} is guessing",
            alt=sentence,
            origin=guess,
        )
        shown.append(Picture(f"{label} by target and learner", Markup(svg), sentence))
    return shown


def _ends(row: UtilityRow) -> tuple[str, list[tuple[float, float, float]]] | None:
    """A label, and both scores with their ends; None where one is not known."""
    if row.real is None or row.synthetic is None:
        return None
    low, high = row.synthetic, row.synthetic
    if row.low is not None and row.high is not None:
        low, high = row.real - row.high, row.real - row.low
    name = f"{row.target}: {row.classifier.replace('_', ' ')}"
    return name, [(row.real, row.real, row.real), (row.synthetic, low, high)]


def attack_roc(attack: Mapping[str, Any], profile: Points, *, telling: bool) -> Picture:
    """The bound of the guarantee, with the attack's curve where it is `telling`."""
    points = sorted(_rates(point) for point in attack.get("roc") or ())
    said = sections.attack_finding(attack)
    if len(points) < 2:
        return roc_picture(profile, more=said)
    if not telling:
        more = "The curve of so few models is not drawn: chance alone moves it over the bound."
        return roc_picture(profile, more=f"{more} {said}")
    over = sections.roc(attack, crosses=crosses(points, profile))
    return roc_picture(profile, curve=points, more=f"{over} {said}")


def _rates(point: Any) -> tuple[float, float]:
    """A point of the curve as (FPR, TPR), from a mapping or a sequence."""
    fpr, tpr = (point["fpr"], point["tpr"]) if isinstance(point, dict) else point[:2]
    return float(fpr), float(tpr)


# --- analysis ---
#
# The report's sections on analysis: effects, intervals, groups, two-sample test. Confidential.


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
        "pair_picture": _pair_effects(report),
        "paper_sentence": _paper(report.paper) if report.paper else "",
        "analysis_tables": tuple(analysis_tables(report)),
    }


def _effects(rows: Sequence[EffectRow]) -> Picture | None:
    """The picture of all effects that were estimated on both tables."""
    drawn, covered, turned = [], 0, []
    for row in rows:
        if row.real is None or row.synthetic is None:
            continue
        drawn.append((f"{row.outcome}: {row.name}", [_ends_of(row.real), _ends_of(row.synthetic)]))
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


def _ends_of(estimate: Estimate) -> tuple[float, float, float]:
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


def _pair_effects(report: EvaluationReport) -> Picture | None:
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
    svg = charts.pairplot(real.names, tables, ends=real.ends, alt=sentence)
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
