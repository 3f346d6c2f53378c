"""The report's appendix: every number as a table of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.report.internal.content import Budget, ReportContent
from synthdp.report.internal.findings import interval, number

ATTACK_CAPTIONS = (
    "Membership attack",
    "Membership attack: declared",
)  # what the page shows; the rest is in the appendix
MISFIT_KINDS = {
    "wrong type": "wrong type",
    "outside the domain": "outside the domain",
    "unexpected missing": "missing where none is declared",
}


@dataclass(frozen=True)
class ReportTable:
    """A caption, column headings and rows of text; `left_out` rows are in `internal.json` alone."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class PageLimits:
    """Most rows shown of long tables, and most overlays, so that the page stays small."""

    pairs: int
    levels: int
    overlays: int


def tables(content: ReportContent, limits: PageLimits) -> list[ReportTable]:
    """All tables of the appendix, in the order of the report; empty ones are left out."""
    found = [
        _headline(content),
        *_budget(content.budget),
        *_evaluation(content.evaluation, content.domain, limits),
    ]
    if content.graph and content.graph.edges:
        found.append(
            ReportTable(
                "Arrows of the causal graph",
                ("cause", "effect", "where it comes from"),
                content.graph.edges,
            )
        )
    if content.attack:
        found += attack_tables(content.attack)
    found.append(
        ReportTable(
            "Time by stage",
            ("stage", "seconds"),
            tuple((stage, f"{seconds:.2f}") for stage, seconds in content.timings.items()),
        )
    )
    return [table for table in found if table.rows]


def _headline(content: ReportContent) -> ReportTable:
    budget, report = content.budget, content.evaluation
    figures: dict[str, float | None] = {
        "epsilon, budget": budget.epsilon,
        "epsilon, guaranteed (all that was planned)": budget.epsilon_planned,
        "epsilon, used on this outcome (no bound)": budget.epsilon_spent,
        "delta": budget.delta,
        "epsilon, cap of the dataset": budget.cap_epsilon,
        "epsilon, left under the cap": budget.cap_left,
        "tv1_noisy": content.tv1_noisy,
    }
    if report:
        figures |= report.metrics() | {"mean AUC learnt on real rows": report.utility.mean_auc_real}
    if report and report.floor:
        figures |= {
            f"tv{k} of held-out real rows": getattr(report.floor, f"tv{k}") for k in (1, 2, 3)
        }
    gates = (
        (f"gate {g.metric} {g.bound}", f"{number(g.value)}, {'passed' if g.passed else 'failed'}")
        for g in content.gates
    )
    return ReportTable(
        "Headline figures",
        ("figure", "value"),
        (*((name, number(value)) for name, value in figures.items()), *gates),
    )


def _budget(budget: Budget) -> list[ReportTable]:
    steps = tuple(
        (s.purpose, s.label, s.mechanism, number(s.epsilon), "yes" if s.used else "no")
        for s in budget.steps
    )
    groups = tuple((str(size), number(epsilon)) for size, epsilon in budget.group_epsilons.items())
    return [
        ReportTable(
            "Planned spends", ("purpose", "spend", "mechanism", "epsilon it adds", "used"), steps
        ),
        ReportTable(
            "Guarantee for groups", ("units together", f"epsilon at delta {budget.delta:g}"), groups
        ),
    ]


def _evaluation(
    report: EvaluationReport | None, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    if report is None:
        return
    if report.fidelity:
        yield from _fidelity(report.fidelity, report.floor, domain, limits)
    rows = tuple(
        (
            r.target,
            r.classifier,
            r.metric,
            *map(number, (r.real, r.synthetic, r.difference, r.low, r.high)),
        )
        for r in report.utility.rows
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
    yield ReportTable(
        "Learning on real and on synthetic rows, tested on held-out real rows", headings, rows
    )
    yield ReportTable(
        "Remarks on learning", ("remark",), tuple((note,) for note in report.utility.notes)
    )


def _fidelity(
    report: FidelityReport, floor: FidelityReport | None, domain: Domain, limits: PageLimits
) -> Iterator[ReportTable]:
    columns = tuple(
        (name, f"{tv:.4f}", f"{floor.by_column[name]:.4f}" if floor else "not available")
        for name, tv in report.by_column.items()
    )
    yield ReportTable(
        "Total variation by column", ("column", "synthetic", "held-out real rows"), columns
    )
    yield _pairs(report, limits.pairs)
    triples = tuple((*names, f"{tv:.4f}") for names, tv in report.by_triple.items())
    yield _cut(
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
        yield _cut(
            ReportTable(f"Shares of {column.name}", ("level", "real", "synthetic"), shares),
            limits.levels,
        )


def _pairs(report: FidelityReport, most: int) -> ReportTable:
    names = tuple(report.by_column)
    first, second = np.triu_indices(len(names), 1)
    worst = np.argsort(-report.pairs[first, second], kind="stable")
    rows = []
    for i, j in zip(first[worst[:most]].tolist(), second[worst[:most]].tolist(), strict=True):
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


def _cut(table: ReportTable, most: int) -> ReportTable:
    return ReportTable(
        table.caption, table.headings, table.rows[:most], max(0, len(table.rows) - most)
    )


def misfit_table(content: ReportContent) -> ReportTable:
    """Values that the declared domain does not hold, by column and kind."""
    kinds = dict.fromkeys(
        [*MISFIT_KINDS, *(kind for found in content.misfits.values() for kind in found)]
    )
    rows = tuple(
        (name, *(f"{found.get(kind, 0):,}" for kind in kinds))
        for name, found in content.misfits.items()
    )
    return ReportTable(
        "Values that do not fit the declared domain",
        ("column", *(MISFIT_KINDS.get(kind, kind) for kind in kinds)),
        rows,
    )


def attack_tables(attack: Mapping[str, Any]) -> list[ReportTable]:
    """Whatever the attack reported: single figures, one row for each variant tried, points of its
    curve.
    """
    listed = {key: value for key, value in attack.items() if isinstance(value, list | tuple)}
    facts = tuple(
        _facts(
            {
                key: value
                for key, value in attack.items()
                if key not in listed and key != "conclusion"
            }
        )
    )
    found = [ReportTable(ATTACK_CAPTIONS[0], ("figure", "value"), facts)]
    for key, items in listed.items():
        found.append(_listed(f"Membership attack: {_words(key)}", items))
    return found


def _facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{_words(str(key))}"
        if isinstance(value, Mapping) and not {"value", "estimate"} & set(value):
            yield from _facts(value, f"{name}: ")
        else:
            yield name, interval(value)


def _listed(caption: str, items: Sequence[Any]) -> ReportTable:
    if items and all(
        isinstance(item, Mapping) and not {"value", "estimate"} & set(item) for item in items
    ):
        headings = tuple(dict.fromkeys(str(key) for item in items for key in item))
        rows = tuple(tuple(interval(item.get(key, "")) for key in headings) for item in items)
        return ReportTable(caption, tuple(map(_words, headings)), rows)
    if items and all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
        return ReportTable(
            caption,
            ("false positive rate", "true positive rate"),
            tuple((interval(a), interval(b)) for a, b in items),
        )
    return ReportTable(
        caption,
        ("number", "value"),
        tuple((str(i), interval(item)) for i, item in enumerate(items, start=1)),
    )


def _words(key: str) -> str:
    return key.replace("_", " ")
