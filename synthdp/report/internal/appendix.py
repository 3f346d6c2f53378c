"""The report's appendix: every number as a table of text. Confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.evaluate.effects import Estimate
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport, SubgroupRow
from synthdp.evaluate.utility import UtilityRow
from synthdp.report.internal.content import Budget, ReportContent
from synthdp.report.prose import number
from synthdp.report.sections import (
    ROWS,
    PageLimits,
    ReportTable,
    interval,
    link_tables,
    looks_table,
    yes,
)

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
