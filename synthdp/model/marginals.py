"""Noisy one-way tables as probabilities, and raking a sample to them. All of it is post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.privacy.mechanisms import NoisyTable

Probabilities = npt.NDArray[np.float64]

RAKING_ROUNDS = 50
RAKING_TOLERANCE = 1e-4


def probabilities(tables: Sequence[NoisyTable]) -> list[Probabilities]:
    """Each one-way table as probabilities, shape `[levels]`: the nearest point of the simplex.

    All tables count the same rows, so their totals are first pooled into one estimate. Projection onto the
    simplex keeps the noise of empty cells from becoming mass, as plain clipping at zero would.
    """
    total = max(1.0, _pooled_total(tables))
    return [project_to_simplex(t.counts / total) for t in tables]


def _pooled_total(tables: Sequence[NoisyTable]) -> float:
    """Inverse-variance mean of the tables' totals; the noise of a total grows with its cells."""
    weights = np.array([1 / (t.counts.size * t.sigma**2) for t in tables])
    return float(np.average([t.counts.sum() for t in tables], weights=weights))


def project_to_simplex(values: npt.NDArray[np.float64]) -> Probabilities:
    """The probability vector nearest to `values` in L2.

    Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient Projections onto the l1-Ball" (2008), Figure 1.
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    projected: Probabilities = np.maximum(values - threshold, 0)
    normal: Probabilities = projected / projected.sum()
    return normal


def smoothed(p: Probabilities, *, floor: float) -> Probabilities:
    """`p` with every level at least `floor` before normalising, for logarithms."""
    raised: Probabilities = np.maximum(p, floor)
    normal: Probabilities = raised / raised.sum()
    return normal


def rake(codes: Codes, targets: Sequence[Probabilities], *, columns: Sequence[int], rows: int, rng: np.random.Generator) -> Codes:
    """`rows` rows resampled from `codes` so that the named columns follow `targets`.

    Iterative proportional fitting of row weights (Deming and Stephan, 1940), then systematic resampling, so a
    row is used at most one time more or less than its weight says. Only rows of `codes` are ever returned, so a
    target on levels that none of them has is met as far as they allow.
    """
    weights = np.full(len(codes), 1 / len(codes))
    for _ in range(RAKING_ROUNDS):
        worst = 0.0
        for column, target in zip(columns, targets, strict=True):
            current = np.bincount(codes[:, column], weights=weights, minlength=len(target))
            worst = max(worst, float(np.abs(current - target).sum()) / 2)
            moved = weights * np.divide(target, current, out=np.zeros_like(target), where=current > 0)[codes[:, column]]
            if moved.sum() > 0:  # no row of the pool has a level that the target wants: leave the column as drawn
                weights = moved / moved.sum()
        if worst < RAKING_TOLERANCE:
            break
    points = (np.arange(rows) + rng.random()) / rows
    chosen = np.searchsorted(np.cumsum(weights), points, side="right")
    resampled: Codes = codes[rng.permutation(np.minimum(chosen, len(codes) - 1))]
    return resampled
