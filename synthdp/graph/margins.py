"""Margins of noisy tables as probabilities. All of it is post-processing of released values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.margin_smoothing import margin_probabilities
from synthdp.graph.missing_patterns import with_common_shares
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Probabilities = npt.NDArray[np.float64]
"""Probabilities over levels; the last axis sums to 1."""


def one_way_probabilities(
    tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]
) -> list[Probabilities]:
    """Probabilities of the levels of each column, `[levels]` each.

    They use every table that contains the column, whatever it was measured for, on levels or on
    groups of them. All tables count the same rows, so their totals are first pooled into one
    estimate. Noise is smoothed out along ordered bins. The noise of empty cells does not become
    mass, as it would if they were clipped at zero. Columns that are missing together are missing in
    one share of the rows.
    """
    total = max(1.0, float(pooled(tables, ()).counts))
    margins = [(column, with_group_sums(tables, column.name)) for column in columns]
    alone = [
        margin_probabilities(column, noisy.counts / total, noisy.sigma / total)
        for column, noisy in margins
    ]
    return with_common_shares(alone, tables, columns)


def pooled(tables: Sequence[NoisyTable], columns: tuple[str, ...]) -> NoisyTable:
    """The margin over `columns` of all tables that have their levels: an inverse-variance mean.

    The noise of a margin's cell grows with the number of cells in its sum.
    """
    counts, precision = [], []
    for table in tables:
        if table.has(columns):
            summed = tuple(i for i, name in enumerate(table.columns) if name not in columns)
            kept = [name for name in table.columns if name in columns]
            axes = [kept.index(name) for name in columns]
            counts.append(table.counts.sum(summed).transpose(axes))
            cells = math.prod(table.counts.shape[i] for i in summed)
            precision.append(1 / (table.sigma**2 * cells))
    mean = np.average(counts, weights=precision, axis=0)
    return NoisyTable(columns, mean, math.fsum(precision) ** -0.5)


def with_group_sums(tables: Sequence[NoisyTable], name: str) -> NoisyTable:
    """The pooled counts of a column's levels, moved towards the sums of tables on its groups.

    Where levels have noise of variance s^2, and the sum over a group of m levels was counted with
    t^2, the mean of least variance adds s^2 / (m s^2 + t^2) of the difference of both sums to each
    level: weighted least squares. What is left is not white; its `sigma` is the mean over levels.
    """
    levels = pooled(tables, (name,))
    grouped = [replace(t, starts={}) for t in tables if name in t.starts]
    if not grouped:
        return levels
    starts = next(t.starts[name] for t in tables if name in t.starts)
    sums = pooled(grouped, (name,))
    size = np.diff([*starts, len(levels.counts)])
    weight = levels.sigma**2 / (size * levels.sigma**2 + sums.sigma**2)
    move = weight * (sums.counts - np.add.reduceat(levels.counts, starts))
    left = levels.sigma * math.sqrt(1 - float(np.average(weight, weights=size)))
    return NoisyTable((name,), levels.counts + np.repeat(move, size), left)


def smoothed(p: Probabilities, *, floor: float) -> Probabilities:
    """`p` with every level at least `floor` before normalisation, so that logarithms exist.

    >>> smoothed(np.array([1.0, 0.0]), floor=0.25).tolist()
    [0.8, 0.2]
    """
    raised: Probabilities = np.maximum(p, floor)
    normal: Probabilities = raised / raised.sum()
    return normal
