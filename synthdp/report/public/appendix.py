"""Every number of the public report as a table of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.drawing.mpl_figures import short
from synthdp.report.internal.appendix import PageLimits, ReportTable
from synthdp.report.internal.content import GraphView
from synthdp.report.internal.findings import number
from synthdp.report.measured_vs_synthetic import Column, MeasuredPair
from synthdp.report.public.dp_scores import score_table

FloatArray = npt.NDArray[np.float64]

DOUBTFUL = 3.0  # a count of fewer standard deviations of its noise cannot be told from none
MAX_DOUBTFUL = 60


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """All that the tables show: `rates` are (FPR, TPR) of the best attack, `strengths` associations
    of `names`, shape `[names, names]`.
    """

    domain: Domain
    facts: Mapping[str, Any]
    graph: GraphView
    columns: Sequence[Column]
    pairs: Sequence[MeasuredPair]
    rates: Sequence[tuple[float, float]]
    names: Sequence[str]
    strengths: FloatArray


def tables(numbers: Numbers, limits: PageLimits) -> Iterator[ReportTable]:
    """All tables of the appendix, in the order of the report; those of more than `limits` rows are
    cut.
    """
    yield from _guarantee(numbers)
    yield _cut(
        "Arrows of the causal graph",
        ("cause", "effect", "where it comes from"),
        numbers.graph.edges,
        limits.pairs,
    )
    distances = tuple((c.name, f"{c.distance:.4f}", f"{c.by_noise:.4f}") for c in numbers.columns)
    yield ReportTable(
        "Total variation by column, synthetic against noisy counts",
        ("column", "total variation", "noise alone, on average at most"),
        distances,
    )
    pairs = tuple((*p.names, f"{p.distance:.4f}", f"{p.by_noise:.4f}") for p in numbers.pairs)
    yield _cut(
        "Pairs that were measured",
        ("column", "column", "total variation", "noise alone, on average at most"),
        pairs,
        limits.pairs,
    )
    ranked = sorted(
        combinations(range(len(numbers.names)), 2),
        key=lambda p: (-round(float(numbers.strengths[p]), 6), p),
    )
    strengths = tuple(
        (numbers.names[i], numbers.names[j], f"{numbers.strengths[i, j]:.3f}") for i, j in ranked
    )
    yield _cut(
        "Association of pairs in the synthetic rows",
        ("column", "column", "Cramér's V"),
        strengths,
        limits.pairs,
    )
    for c in numbers.columns if limits.levels else ():
        levels = zip(
            numbers.domain[c.name].labels, c.noisy.tolist(), c.synthetic.tolist(), strict=True
        )
        shares = tuple((label, f"{a:.3%}", f"{b:.3%}") for label, a, b in levels)
        yield _cut(f"Shares of {c.name}", ("level", "noisy", "synthetic"), shares, limits.levels)


def _guarantee(numbers: Numbers) -> Iterator[ReportTable]:
    facts = numbers.facts
    spends = tuple(
        (p["purpose"], number(p["epsilon"]), "yes" if p["used"] else "no")
        for p in facts["purposes"]
    )
    yield ReportTable("Looks at the rows", ("purpose", "epsilon alone", "used"), spends)
    groups = tuple(
        (
            str(g["size"]),
            number(g["joint_epsilon"]),
            number(g["total_epsilon"]),
            f"{g['total_delta']:g}",
        )
        for g in facts["groups"]
    )
    yield ReportTable(
        "Guarantee for groups",
        ("units together", "epsilon, joint", "epsilon, total", "delta, total"),
        groups,
    )
    rates = tuple((f"{f:.3g}", f"{t:.3g}") for f, t in numbers.rates[::6])
    if facts["scores"]:
        yield score_table(facts["scores"])
    yield ReportTable(
        "Bound on any membership attack",
        ("false positive rate", "true positive rate at most"),
        rates,
    )


def _cut(
    caption: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], most: int
) -> ReportTable:
    return ReportTable(caption, headings, tuple(rows[:most]), max(0, len(rows) - most))


def hidden_levels(domain: Domain, columns: Sequence[Column]) -> ReportTable:
    """Levels whose noisy count is too near to nothing to say that they occur at all."""
    rows = tuple(
        (
            c.name,
            short(domain[c.name].labels[k], 40),
            number(float(c.counts[k])),
            number(c.sigma),
            f"{c.synthetic[k]:.3%}",
        )
        for c in columns
        for k in np.flatnonzero(c.counts.ravel() < DOUBTFUL * c.sigma).tolist()
    )
    headings = (
        "column",
        "level",
        "noisy count",
        "noise (standard deviation)",
        "share of synthetic rows",
    )
    return _cut("Levels that the noise hides", headings, rows, MAX_DOUBTFUL)
