"""Every number of the public report as a table of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.drawing.svg import short
from synthdp.report.graph_view import GraphView, arrow_table
from synthdp.report.guarantee import shares
from synthdp.report.measured_vs_synthetic import Column, MeasuredPair
from synthdp.report.parts import number
from synthdp.report.public.dp_scores import score_table
from synthdp.report.tables import PageLimits, ReportTable, cut

FloatArray = npt.NDArray[np.float64]

DOUBTFUL = 3.0  # standard deviations of the noise: a smaller count may well be a true 0
MAX_DOUBTFUL = 60


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """All that the tables show.

    `rates` are (FPR, TPR) of the best possible attack. `strengths` are associations of `names`,
    shape `[names, names]`.
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
    """All tables of the appendix, in the order of the report; `limits` cuts long ones."""
    yield from _guarantee(numbers)
    yield arrow_table(numbers.graph, limits.pairs)
    yield ReportTable(
        "Total variation by column, synthetic against noisy counts",
        ("column", "total variation", "noise alone, on average at most"),
        tuple((c.name, f"{c.distance:.4f}", f"{c.by_noise:.4f}") for c in numbers.columns),
    )
    pairs = ReportTable(
        "Pairs that were measured",
        ("column", "column", "total variation", "noise alone, on average at most"),
        tuple((*p.names, f"{p.distance:.4f}", f"{p.by_noise:.4f}") for p in numbers.pairs),
    )
    yield cut(pairs, limits.pairs)
    yield cut(_associations(numbers), limits.pairs)
    if not limits.levels:
        return
    for column in numbers.columns:
        labels = numbers.domain[column.name].labels
        levels = zip(labels, column.noisy.tolist(), column.synthetic.tolist(), strict=True)
        shares = tuple((label, f"{a:.3%}", f"{b:.3%}") for label, a, b in levels)
        headings = ("level", "noisy", "synthetic")
        yield cut(ReportTable(f"Shares of {column.name}", headings, shares), limits.levels)


def _associations(numbers: Numbers) -> ReportTable:
    """Every pair of `names`, the most strongly associated first."""
    names, strengths = numbers.names, numbers.strengths
    ranked = sorted(
        combinations(range(len(names)), 2),
        key=lambda pair: (-round(float(strengths[pair]), 6), pair),
    )
    rows = tuple((names[i], names[j], f"{strengths[i, j]:.3f}") for i, j in ranked)
    headings = ("column", "column", "Cramér's V")
    return ReportTable("Association of pairs in the synthetic rows", headings, rows)


def _guarantee(numbers: Numbers) -> Iterator[ReportTable]:
    """Planned spends, groups, DP scores, and the bound on membership attacks."""
    facts = numbers.facts
    parts = shares([p["epsilon"] for p in facts["purposes"]], delta=facts["delta"])
    spends = tuple(
        (p["purpose"], f"{part:.1%}", number(p["epsilon"]), "yes" if p["used"] else "no")
        for p, part in zip(facts["purposes"], parts, strict=True)
    )
    yield ReportTable(
        "Looks at the rows", ("purpose", "part of the cost", "epsilon alone", "used"), spends
    )
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
        "Bound on attacks by one who knows all other rows",
        ("false positive rate", "true positive rate at most"),
        rates,
    )


def hidden_levels(domain: Domain, columns: Sequence[Column]) -> ReportTable:
    """Levels whose noisy count is too small to show that they occur at all."""
    rows = []
    for column in columns:
        labels, noise = domain[column.name].labels, number(column.sigma)
        for k in np.flatnonzero(column.counts.ravel() < DOUBTFUL * column.sigma).tolist():
            count, share = number(float(column.counts[k])), f"{column.synthetic[k]:.3%}"
            rows.append((column.name, short(labels[k], 40), count, noise, share))
    headings = (
        "column",
        "level",
        "noisy count",
        "noise (standard deviation)",
        "share of synthetic rows",
    )
    return cut(ReportTable("Levels that the noise hides", headings, tuple(rows)), MAX_DOUBTFUL)
