"""One-way probabilities from noisy tables, and raking. All of it is post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.privacy.mechanisms.marginals import NoisyTable

Probabilities = npt.NDArray[np.float64]
"""Probabilities over levels; the last axis sums to 1."""

RAKING_ROUNDS = 50
"""Most rounds of proportional fitting."""
RAKING_TOLERANCE = 1e-4
"""Total variation of the worst margin at which fitting stops."""


def one_way_probabilities(
    tables: Sequence[NoisyTable], names: Sequence[str]
) -> list[Probabilities]:
    """Probabilities of the levels of each named column, `[levels]` each.

    They use every table that contains the column, whatever it was measured for. All tables count
    the same rows, so their totals are first pooled into one estimate. The estimate is projected
    onto the probability simplex, which keeps the noise of empty cells from becoming mass, as plain
    clipping at zero would.
    """
    total = max(1.0, float(pooled(tables, ()).counts))
    return [project_to_simplex(pooled(tables, (name,)).counts / total) for name in names]


def pooled(tables: Sequence[NoisyTable], columns: tuple[str, ...]) -> NoisyTable:
    """The margin over `columns` of all tables that contain them: an inverse-variance mean.

    The noise of a margin's cell grows with the number of cells in its sum.
    """
    counts, precision = [], []
    for table in tables:
        if set(columns) <= set(table.columns):
            summed = tuple(i for i, name in enumerate(table.columns) if name not in columns)
            kept = [name for name in table.columns if name in columns]
            axes = [kept.index(name) for name in columns]
            counts.append(table.counts.sum(summed).transpose(axes))
            cells = math.prod(table.counts.shape[i] for i in summed)
            precision.append(1 / (table.sigma**2 * cells))
    mean = np.average(counts, weights=precision, axis=0)
    return NoisyTable(columns, mean, math.fsum(precision) ** -0.5)


def project_to_simplex(values: npt.NDArray[np.float64]) -> Probabilities:
    """The probability vector nearest to `values` in L2.

    Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient Projections onto the l1-Ball" (2008), Figure
    1.

    >>> project_to_simplex(np.array([0.7, 0.7, -0.2])).tolist()
    [0.5, 0.5, 0.0]
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    projected: Probabilities = np.maximum(values - threshold, 0)
    normal: Probabilities = projected / projected.sum()
    return normal


def smoothed(p: Probabilities, *, floor: float) -> Probabilities:
    """`p` with every level at least `floor` before normalisation, so that logarithms exist.

    >>> smoothed(np.array([1.0, 0.0]), floor=0.25).tolist()
    [0.8, 0.2]
    """
    raised: Probabilities = np.maximum(p, floor)
    normal: Probabilities = raised / raised.sum()
    return normal


def rake(
    codes: Codes,
    targets: Sequence[Probabilities],
    *,
    columns: Sequence[int],
    rows: int,
    rng: np.random.Generator,
) -> Codes:
    """`rows` rows resampled from `codes` so that the named columns follow `targets`.

    Rows are weighted by `raking_factors`. Systematic resampling then uses a row at most one time
    more or less than its weight says. Only rows of `codes` are returned, so a target on levels that
    none of them has is met only as far as they allow.
    """
    weights = raking_weights(
        codes, raking_factors(codes, targets, columns=columns), columns=columns
    )
    points = (np.arange(rows) + rng.random()) / rows
    chosen = np.searchsorted(np.cumsum(weights / weights.sum()), points, side="right")
    resampled: Codes = codes[rng.permutation(np.minimum(chosen, len(codes) - 1))]
    return resampled


def raking_weights(
    codes: Codes, factors: Sequence[npt.NDArray[np.float64]], *, columns: Sequence[int]
) -> npt.NDArray[np.float64]:
    """The product of each row's factors, `[rows]`."""
    weights = np.ones(len(codes))
    for factor, column in zip(factors, columns, strict=True):
        weights *= factor[codes[:, column]]
    return weights


def raking_factors(
    codes: Codes, targets: Sequence[Probabilities], *, columns: Sequence[int]
) -> list[npt.NDArray[np.float64]]:
    """A factor of each level of the named columns, `[levels]` each.

    Rows weighted by the product of their factors follow `targets`. Iterative proportional fitting
    of row weights (Deming and Stephan, 1940). A level that `codes` lacks has the factor 1.
    """
    weights = np.full(len(codes), 1 / len(codes))
    factors = [np.ones(len(target)) for target in targets]
    for _ in range(RAKING_ROUNDS):
        worst = 0.0
        for factor, column, target in zip(factors, columns, targets, strict=True):
            current = np.bincount(codes[:, column], weights=weights, minlength=len(target))
            worst = max(worst, float(np.abs(current - target).sum()) / 2)
            ratio = np.divide(target, current, out=np.ones_like(target), where=current > 0)
            moved = weights * ratio[codes[:, column]]
            # If no row has a level that the target wants, the column stays as drawn.
            if moved.sum() > 0:
                weights = moved / moved.sum()
                factor *= ratio / moved.sum()
        if worst < RAKING_TOLERANCE:
            break
    return factors
