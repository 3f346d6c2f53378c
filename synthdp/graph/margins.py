"""Margins of noisy tables as probabilities. All of it is post-processing of released values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Probabilities = npt.NDArray[np.float64]
"""Probabilities over levels; the last axis sums to 1."""

FEW_LEVELS = 6
"""Up to so many ordered levels a margin is not smoothed: there is nothing to pool."""
MARGIN_RANGES = (0.1, 0.25, 0.6, 1.5)
"""Ranges of the correlation along a column, as shares of its length."""
MARGIN_ROUGHNESS = (0.0, 0.02, 0.1, 0.4)
"""Shares of a margin's variance that neighbours do not have in common."""
MARGIN_STRENGTHS = 4.0 ** np.arange(-4, 4)
"""Variances of a margin, in squares of its mean."""
APART = 4.0 ** np.arange(-4, 8)
"""Variances of bins that have nothing in common, likewise."""


def one_way_probabilities(
    tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]
) -> list[Probabilities]:
    """Probabilities of the levels of each column, `[levels]` each.

    They use every table that contains the column, whatever it was measured for. All tables count
    the same rows, so their totals are first pooled into one estimate. Noise is smoothed out along
    ordered bins. The estimate is projected onto the probability simplex, which keeps the noise of
    empty cells from becoming mass, as plain clipping at zero would.
    """
    total = max(1.0, float(pooled(tables, ()).counts))
    margins = [(column, pooled(tables, (column.name,))) for column in columns]
    return [
        project_to_simplex(smoothed_margin(column, noisy.counts / total, noisy.sigma / total))
        for column, noisy in margins
    ]


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


def smoothed_margin(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """The noisy `shares` `[levels]` of a column, smoothed along its ordered bins.

    `sigma` is the standard deviation of a share. Spikes, categories and the missing level stay. The
    shares are taken to be a Gaussian process along the bins, whose range, roughness and strength
    the marginal likelihood chooses; the result is its posterior mean (Rasmussen and Williams,
    "Gaussian Processes for Machine Learning", 2006, Sections 2.2 and 5.4). Where bins that have
    nothing in common are likelier, as with one heap among empty bins, the shares stay.
    """
    body = body_of(column)
    if not column.ordered or len(body) <= FEW_LEVELS:
        return shares
    values, distance = shares[body], distances(len(body))
    scale = max(float(values.sum()), 1e-3) / len(body)
    apart = max(shrunk(values, s * np.ones_like(values), sigma**2)[0] for s in scale**2 * APART)
    best: tuple[float, Floats] = apart, values
    for reach in MARGIN_RANGES:
        # The 1 is the unknown level of all.
        spectrum, turn = np.linalg.eigh(np.exp(-distance / reach) + 1.0)
        turned = turn.T @ values
        for rough in MARGIN_ROUGHNESS:
            rougher = (1 - rough) * spectrum + rough
            for strength in scale**2 * MARGIN_STRENGTHS:
                likelihood, kept = shrunk(turned, strength * rougher, sigma**2)
                if likelihood > best[0]:
                    best = likelihood, turn @ kept
    out = shares.copy()
    out[body] = best[1]
    return out


def shrunk(turned: Floats, signal: Floats, noise: float) -> tuple[float, Floats]:
    """Log likelihood, less its constant, and posterior mean of values in their eigenbasis."""
    variance = signal + noise
    likelihood = -0.5 * float((np.log(variance) + turned**2 / variance).sum())
    return likelihood, turned * signal / variance


def body_of(column: ColumnDomain) -> npt.NDArray[np.intp]:
    """The levels whose order means something: no spikes, and not the missing one."""
    return np.arange(len(column.spikes), column.levels - column.missing)


def distances(count: int) -> Floats:
    """Distances of `count` bins, whose whole length is 1."""
    place = np.arange(count) / count
    return np.abs(place[:, None] - place)
