"""The report's appendix: every number as a table of text. Confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.utility import UtilityReport
from synthdp.report.graph_view import arrow_table
from synthdp.report.guarantee import shares
from synthdp.report.internal.content import Budget, ReportContent
from synthdp.report.parts import interval, number
from synthdp.report.tables import PageLimits, ReportTable, cut

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
