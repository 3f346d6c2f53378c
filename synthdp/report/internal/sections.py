"""The sections of the steward's report: what to conclude from real rows, with its pictures. And
its appendix: every number as a table of text.

The wording follows fixed thresholds, which are a reading aid, never a gate.
Confidential.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp import drawing
from synthdp.data.domain import Domain
from synthdp.evaluate.effects import Estimate
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.functional import Suggestion, SuggestionReport
from synthdp.evaluate.run import EvaluationReport, SubgroupRow
from synthdp.evaluate.utility import UtilityRow
from synthdp.report.internal.content import (
    ATTACK,
    Budget,
    EstimandBeside,
    GateResult,
    ReportContent,
)
from synthdp.report.prose import number, say
from synthdp.report.sections import (
    ROWS,
    VISIBLE_ASSOCIATION,
    Came,
    PageLimits,
    Picture,
    ReportTable,
    Section,
    budget_picture,
    column_overlay,
    crosses,
    forecasts,
    interval,
    link_tables,
    looks_table,
    roc_picture,
    yes,
)


def gates(found: Sequence[GateResult]) -> str:
    """Whether the gates let the bundle be released."""
    failed = [f"{g.metric} {g.bound}: {g.shown}" for g in found if not g.passed]
    return say("gates", found=found, failed=failed)


def budget(spent: Budget) -> Section:
    """The bar of the budget."""
    picture = budget_picture(
        spent.steps,
        total=spent.epsilon_planned,
        budget=spent.epsilon,
        delta=spent.delta,
        more=say("budget_used", spent=spent),
    )
    return Section(picture.sentence, [picture])


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
    beside = {"floor": floor, "equal": equal, "near_floor": 1.5}
    return say("fidelity", report=report, worst=worst, **beside)


def association_section(near: FidelityReport | None) -> Section:
    """The difference in Cramér's V of pairs, of the columns in which it is largest."""
    if near is None:
        return Section()
    sentence, difference, names = (
        association_text(near),
        near.association_difference,
        [*near.by_column],
    )
    order = np.sort(np.argsort(-np.abs(difference).max(axis=0), kind="stable")[:32])
    if len(order) < len(names):
        sentence += f" The {len(order)} of {len(names)} columns that changed most are drawn."
    shown = difference[np.ix_(order, order)]
    most = max(0.05, float(np.abs(shown).max(initial=0.0)))
    svg = drawing.heat([names[i] for i in order], shown, most=most, alt=sentence)
    title = "Association, synthetic minus real (Cramér's V; orange: lost, blue: invented)"
    return Section(sentence, [Picture(title, Markup(svg), sentence)])


def association_text(report: FidelityReport) -> str:
    """Which dependence was lost or invented."""
    names = list(report.by_column)
    if len(names) < 2:
        return "One column has no pairs to compare."
    difference = np.triu(report.association_difference, 1)
    i, j = np.unravel_index(np.abs(difference).argmax(), difference.shape)
    return say(
        "association",
        changed=int((np.abs(difference) >= VISIBLE_ASSOCIATION).sum()),
        pairs=math.comb(len(names), 2),
        visible=VISIBLE_ASSOCIATION,
        first=names[i],
        second=names[j],
        change=difference[i, j],
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
            svg = drawing.intervals(
                [*map(_ends, rows)],
                label=f"{label} on held-out real rows; {guess:g} is guessing",
                alt=utility(rows),
                origin=guess,
            )
            title = f"{label} by target and learner"
            pictures.append(Picture(title, Markup(svg), utility(rows)))
    return Section(say("paper", report=report.paper), pictures, notes=report.utility.notes)


def _ends(row: UtilityRow) -> tuple[str, list[tuple[float, float, float]]]:
    assert row.real is not None and row.synthetic is not None  # asked before
    low, high = row.synthetic, row.synthetic
    if row.low is not None and row.high is not None:
        low, high = row.real - row.high, row.real - row.low
    name = f"{row.target}: {row.classifier.replace('_', ' ')}"
    return name, [(row.real, row.real, row.real), (row.synthetic, low, high)]


def utility(rows: Sequence[UtilityRow]) -> str:
    """Whether training on synthetic rows costs anything, on the rows that a figure shows."""
    known = [r for r in rows if r.difference is not None]
    worst = max(known, key=lambda r: r.difference or 0.0, default=None)
    return say(
        "utility",
        known=known,
        worse=sum(r.low is not None and r.low > 0 for r in known),
        name=f"{worst.classifier.replace('_', ' ')} on {worst.target}" if worst else "",
        gap=(worst.difference if worst else 0.0) or 0.0,
    )


def analysis(report: EvaluationReport | None) -> Section:
    """What an analyst would find: effects, told from real rows, intervals, independences."""
    if report is None:
        return Section()
    apart = [r for r in report.two_sample if r.compared == "synthetic from real"]
    narrow = [r.kind for r in report.coverage if r.synthetic < 0.9]
    notes = (
        say("two_sample", best=max(apart, key=lambda r: r.auc, default=None)),
        say("coverage", rows=report.coverage, narrow=narrow),
        say("independences", implied=report.independences),
    )
    return Section(pictures=_effects(report), notes=tuple(filter(None, notes)))


def _effects(report: EvaluationReport) -> list[Picture]:
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
        return []
    sentence = say("effects", drawn=drawn, covered=covered, turned=turned)
    svg = drawing.intervals(drawn, label="effect in the outcome's unit", alt=sentence)
    return [Picture("Average effects, adjusted along the graph", Markup(svg), sentence)]


def groups(report: EvaluationReport | None) -> Section:
    """Total variation within small groups."""
    drawn, far = [], []
    for row in report.subgroups if report else ():
        if row.tv1 is None or row.floor is None:
            continue
        name = f"{row.column}: {row.level}"
        drawn.append((drawing.short(name, 32), row.floor, row.tv1))
        if row.tv1 > 2 * row.floor:  # more than the size of the group explains
            far.append(name)
    if not drawn:
        return Section()
    sentence = say("groups", drawn=drawn, far=far)
    svg = drawing.bars(drawn[:16], left=240, wide=280, alt=sentence)
    title = "Total variation within groups, smallest group first"
    return Section(sentence, [Picture(title, Markup(svg), sentence)])


def pairs(report: EvaluationReport | None) -> Section:
    """The pair plot: real rows above the diagonal, synthetic rows below it."""
    if report is None or report.pairs is None:
        return Section()
    real, synthetic = report.pairs
    size = range(len(real.names))
    tables = [[synthetic.tables[i][j] if j <= i else real.tables[i][j] for j in size] for i in size]
    sentence = say("both_pair_plots")
    svg = drawing.pairplot(real.names, tables, ends=real.ends, alt=sentence)
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
        more = f"{say('roc', report=attack, crosses=crosses(curve, profile))} {more}"
    elif len(points) > 1:
        few = "The curve of so few models is not drawn: chance alone moves it over the bound."
        more = f"{few} {more}"
    shown = [table for table in attack_tables(attack) if table.caption in ATTACK_CAPTIONS]
    return Section("", [roc_picture(profile, curve=curve, more=more)], shown)


def attack_finding(report: Mapping[str, Any]) -> str:
    """The attack's own conclusion, or one made from its advantage."""
    advantage = report.get("advantage", (report.get("main") or {}).get("advantage"))
    return say("attack", report=report, advantage=interval(advantage))


def misfits(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Whether the values lie in the declared domain, from counts by column and kind."""
    bad = {name: total for name, kinds in counts.items() if (total := sum(kinds.values()))}
    worst = max(bad, key=lambda name: bad[name], default="")
    return say("misfits", bad=bad, columns=len(counts), worst=worst)


def suggestions(report: SuggestionReport | None) -> Section:
    """Columns that look like functions of others."""
    found = report.suggestions if report else ()
    told = say("suggestions", report=report, lines=sum(bool(s.line) for s in found))
    table = ReportTable.of("Columns that could be declared", map(_suggestion_row, found))
    return Section(told, tables=[table] if found else ())


def _suggestion_row(found: Suggestion) -> dict[str, str]:
    return {
        "columns": ", ".join(found.columns),
        "in the spec under": "constraints" if found.line else "the spec has no line for it",
        "line": found.line,
        "remark": found.remark,
        "holds in real rows": f"all {found.holds:,}",
        "broken by synthetic rows": "no rows" if found.broken is None else f"{found.broken:.1%}",
    }


def estimands(beside: Sequence[EstimandBeside]) -> Section:
    """What was released beside the real rows; no rows where the spec names no estimands."""
    known = [e for e in beside if e.covered is not None]
    inside, refused = sum(bool(e.covered) for e in known), len(beside) - len(known)
    tables = [ReportTable.of("Estimands", map(_estimand_row, beside))] if beside else ()
    told = say("estimands", inside=inside, known=len(known), refused=refused)
    return Section(told, tables=tables)


def expected(content: ReportContent) -> Section:
    """What was expected beside what came: single columns of the real rows, without noise."""
    near = content.fidelity
    figures = {
        (e.name, e.group): Came.of(e.text, e.interval, e.statistic) for e in content.estimands
    }
    return forecasts(content.expected, (near.tv1,) * 3 if near else None, figures)


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


# --- appendix ---


# The tables that the page shows; the others are in the appendix.
STUDY = ("figure", "of", "extractor, or learned", "by", "value", "lower", "upper")
ATTACK_CAPTIONS = ("Membership attack", "Membership attack: declared")


def tables(content: ReportContent, limits: PageLimits) -> list[ReportTable]:
    """All tables of the appendix, in the order of the report; empty ones are left out."""
    every = [_headline(content), *_budget(content.budget)]
    if content.evaluation is not None:
        every += _evaluation(content.evaluation, content.domain, limits)
    if content.graph:
        every += link_tables(content.graph, limits.pairs)
    if content.attack:
        every += [t for t in attack_tables(content.attack) if t.caption not in ATTACK_CAPTIONS]
    for found in content.studies:
        caption = f"Study {ROWS[found['rows']]}: with the graph and without, under privacy and not"
        rows = (
            dict(zip(STUDY, map(interval, line.values()), strict=True)) for line in found["lines"]
        )
        every.append(ReportTable.of(caption, rows).cut(limits.pairs))
    timings = tuple((stage, f"{seconds:.2f}") for stage, seconds in content.timings.items())
    every.append(ReportTable("Time by stage", ("stage", "seconds"), timings))
    return [table for table in every if table.rows]


def _headline(content: ReportContent) -> ReportTable:
    budget, report = content.budget, content.evaluation
    figures: dict[str, float | None] = {
        "epsilon, budget": budget.epsilon,
        "epsilon, guaranteed (all that was planned)": budget.epsilon_planned,
        "epsilon, used on this outcome (no bound)": budget.epsilon_spent,
        "delta": budget.delta,
        "epsilon, cap of the dataset": budget.cap_epsilon,
        "epsilon, taken from the dataset so far, added up": budget.dataset_spent,
        "epsilon, taken so far by the Gaussian filter": budget.filtered,
        "tv1_noisy": content.tv1_noisy,
    }
    if report:
        figures |= report.metrics() | {"mean AUC learnt on real rows": report.utility.mean_auc_real}
        for near, names, of in (
            (report.equal, ("tv1", "tv2"), "as many synthetic rows as were held out"),
            (report.floor, ("tv1", "tv2", "tv3"), "held-out real rows"),
        ):
            figures |= {f"{name} of {of}": getattr(near, name) for name in names if near}
    rows = [(name, number(value)) for name, value in figures.items()]
    for gate in content.gates:
        rows.append((f"gate {gate.metric} {gate.bound}", f"{gate.shown}, {gate.outcome}"))
    return ReportTable("Headline figures", ("figure", "value"), tuple(rows))


def _budget(budget: Budget) -> Iterator[ReportTable]:
    yield looks_table(budget.steps, delta=budget.delta)
    groups = tuple((str(size), number(epsilon)) for size, epsilon in budget.group_epsilons.items())
    headings = ("units together", f"epsilon at delta {budget.delta:g}")
    yield ReportTable("Guarantee for groups", headings, groups)


def _evaluation(
    report: EvaluationReport, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    if report.fidelity:
        yield from _fidelity(report.fidelity, report.floor, domain, limits)
    caption = "Learning on real and on synthetic rows, tested on held-out real rows"
    yield ReportTable.of(caption, map(_utility_row, report.utility.rows))
    remarks = ({"remark": note} for note in report.utility.notes)
    yield ReportTable.of("Remarks on learning", remarks)


def _utility_row(row: UtilityRow) -> dict[str, str]:
    return {
        "target": row.target,
        "learner": row.classifier,
        "score": row.metric,
        "learnt on real": number(row.real),
        "learnt on synthetic": number(row.synthetic),
        "real - synthetic": number(row.difference),
        "95% from": number(row.low),
        "to": number(row.high),
    }


def _fidelity(
    report: FidelityReport, floor: FidelityReport | None, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    columns = (
        {
            "column": name,
            "synthetic": f"{tv:.4f}",
            "held-out real rows": f"{floor.by_column[name]:.4f}" if floor else "not available",
        }
        for name, tv in report.by_column.items()
    )
    yield ReportTable.of("Total variation by column", columns)
    yield _pairs(report, limits.pairs)
    headings = ("column", "column", "column", "total variation")
    triples = tuple((*names, f"{tv:.4f}") for names, tv in report.by_triple.items())
    table = ReportTable("Total variation by triple of columns", headings, triples)
    yield table.cut(limits.pairs)
    for column in domain.columns:
        real, synthetic = report.shares_real[column.name], report.shares_synthetic[column.name]
        levels = (
            {"level": label, "real": f"{a:.4%}", "synthetic": f"{b:.4%}"}
            for label, a, b in zip(column.labels, real, synthetic, strict=True)
        )
        yield ReportTable.of(f"Shares of {column.name}", levels).cut(limits.levels)


def _pairs(report: FidelityReport, max_rows: int) -> ReportTable:
    names = tuple(report.by_column)
    first, second = np.triu_indices(len(names), 1)
    worst = np.argsort(-report.pairs[first, second], kind="stable")
    shown = worst[:max_rows]
    rows = []
    for i, j in zip(first[shown].tolist(), second[shown].tolist(), strict=True):
        real, synthetic = report.association_real[i, j], report.association_synthetic[i, j]
        figures = (f"{real:.3f}", f"{synthetic:.3f}", f"{synthetic - real:+.3f}")
        rows.append((names[i], names[j], f"{report.pairs[i, j]:.4f}", *figures))
    headings = ("column", "column", "total variation", "Cramér's V real", "synthetic", "difference")
    caption = "Pairs of columns, furthest off first"
    return ReportTable(caption, headings, tuple(rows), len(worst) - len(rows))


def misfit_table(misfits: Mapping[str, Mapping[str, int]]) -> ReportTable:
    """Values outside the declared domain, by column and kind; columns without any are left out."""
    words = {
        "wrong type": "wrong type",
        "outside the domain": "outside the domain",
        "unexpected missing": "missing where none is declared",
    }
    words |= {kind: kind for counts in misfits.values() for kind in counts if kind not in words}
    rows = (
        {"column": name} | {said: f"{counts.get(kind, 0):,}" for kind, said in words.items()}
        for name, counts in misfits.items()
        if any(counts.values())
    )
    return ReportTable.of("Values that do not fit the declared domain", rows)


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
        keys = dict.fromkeys(str(key) for item in items for key in item)
        records = ({_words(key): interval(item.get(key, "")) for key in keys} for item in items)
        return ReportTable.of(caption, records)
    if items and all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
        rates = tuple((interval(fpr), interval(tpr)) for fpr, tpr in items)
        return ReportTable(caption, ("false positive rate", "true positive rate"), rates)
    values = tuple((str(i), interval(item)) for i, item in enumerate(items, start=1))
    return ReportTable(caption, ("number", "value"), values)


def _words(key: str) -> str:
    return key.replace("_", " ")


# --- analysis: effects, intervals, groups, two-sample test ---


def analysis_tables(report: EvaluationReport | None) -> Iterator[ReportTable]:
    """Every number of these sections; the page leaves out empty tables."""
    if report is None:
        return
    headings: tuple[str, ...] = (
        *("treated", "outcome", "adjusted for", "real", "95% from", "to"),
        *("synthetic", "95% from", "to", "holds the real estimate", "remark"),
    )
    effects = tuple(
        (
            *(r.name, r.outcome, ", ".join(r.adjusted) or "nothing"),
            *(*_cells(r.real), *_cells(r.synthetic), yes(r.covered), r.note),
        )
        for r in report.effects
    )
    yield ReportTable("Average effects", headings, effects)
    separated = tuple(
        (r.compared, r.classifier, f"{r.auc:.3f}", f"{r.low:.3f}", f"{r.high:.3f}")
        for r in report.two_sample
    )
    headings = ("rows", "classifier", "AUC", "95% from", "to")
    yield ReportTable("Two-sample test: telling rows apart", headings, separated)
    covered = tuple(
        (r.kind, str(r.figures), _share(r.synthetic), _share(r.held_out)) for r in report.coverage
    )
    headings = ("figures", "number", "on synthetic rows", "on held-out real rows")
    yield ReportTable("Coverage of 95% intervals", headings, covered)
    yield ReportTable.of("Groups", map(_group, report.subgroups))
    if report.independences:
        rows = (
            {
                "columns": f"{r.x}, {r.y}",
                "given": ", ".join(r.given) or "nothing",
                "w real": f"{r.real.w:.3f}",
                "w synthetic": f"{r.synthetic.w:.3f}",
                "by chance, up to": f"{r.synthetic.by_chance:.3f}",
            }
            for r in sorted(report.independences.rows, key=lambda r: -r.synthetic.w)
        )
        yield ReportTable.of("Independences that the graph implies", rows)
    if report.paper:
        caption = "Long protocol: columns drawn at random"
        yield ReportTable.of(caption, map(_utility_row, report.paper.utility.rows)).cut(600)


def _cells(estimate: Estimate | None) -> tuple[str, str, str]:
    if estimate is None:
        return "too few rows", "", ""
    return number(estimate.value), number(estimate.low), number(estimate.high)


def _group(row: SubgroupRow) -> dict[str, str]:
    return {
        "column": row.column,
        "group": row.level,
        "share real": f"{row.share_real:.2%}",
        "synthetic": f"{row.share_synthetic:.2%}",
        "TV synthetic": number(row.tv1),
        "TV held-out": number(row.floor),
        "accuracy, learnt on real": _share(row.accuracy_real),
        "on synthetic": _share(row.accuracy_synthetic),
    }


def _share(value: float | None) -> str:
    return "too few rows" if value is None else f"{value:.1%}"
