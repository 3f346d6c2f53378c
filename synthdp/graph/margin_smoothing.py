"""Noisy margins without most of their noise: free post-processing of released counts.

Three models of a margin compete. The shares are a Gaussian process along the bins; or their
logarithm is, and the first and last bins may be empty (`log_density`); both with heaps on top:
single bins that hold far more than their neighbours, such as round numbers. Or bins have nothing in
common: most are empty, and the others hold any share. The margin is the mean over all models,
weighted by their likelihoods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, log_ndtr

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.log_density import Floats, Model, density_models

FEW_LEVELS = 6
"""Up to so many ordered levels a margin is not smoothed: there is nothing to pool."""
RANGES = (0.02, 0.05, 0.1, 0.25, 0.6, 1.5)
"""Ranges of the correlation along a column, as shares of its length."""
ROUGHNESS = (0.0, 0.02, 0.1, 0.4)
"""Shares of a margin's variance that neighbours do not have in common."""
STRENGTHS = 4.0 ** np.arange(-4, 5)
"""Variances of a margin, in squares of its mean."""
HEAP_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""Shares of the bins that are not empty, where bins have nothing in common."""
HEAP_SIZES = 2.0 ** np.arange(-1, 8)
"""Mean shares of such bins, in means over all bins."""
NO_NOISE = 1e-4
"""Noise of a bin, in mean shares of a bin, below which nothing is smoothed."""
HEAP = 4.0
"""Standard deviations above the smooth margin at which a bin is a heap."""
HEAP_COST = 6.0
"""Nats that a heap costs: where it is, and how large."""
HEAP_ROUNDS = 4
"""Rounds in which heaps are found and taken out."""


def smoothed_margin(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """The noisy `shares` `[levels]` of a column, smoothed along its ordered bins.

    `sigma` is the standard deviation of a share. Spikes, categories and the missing level stay.
    All shares together are 1: what the noisy ones lack is spread over all levels, as least squares
    do, for what the bins hold together.
    """
    body = body_of(column)
    if not _has_neighbours(column):
        return shares
    values, lacking = shares[body], 1 - float(shares.sum())
    total = max(float(values.sum()) + lacking * len(body) / len(shares), 1e-9)
    if sigma * len(body) < NO_NOISE * total:
        return shares
    models = [_separate(values, sigma, total)]
    for smooth in (_process_models, density_models):
        models += _with_heaps(values, sigma, total, smooth)
    likelihood = np.array([model[0] for model in models])
    weights = np.exp(likelihood - likelihood.max())
    out = shares.copy()
    out[body] = weights @ np.array([model[1] for model in models]) / weights.sum()
    return out


def margin_probabilities(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """Probabilities of a column's levels from noisy `shares` `[levels]`.

    What smoothed shares lack of 1 belongs to no empty tail, so bins grow in proportion. What they
    have too much is noise, and is taken off each level alike.
    """
    if not _has_neighbours(column):
        return project_to_simplex(shares)
    body, smooth = body_of(column), smoothed_margin(column, shares, sigma)
    positive = np.maximum(smooth, 0)
    within = float(positive[body].sum())
    lacking = 1 - float(positive.sum())
    if lacking <= 0 or within == 0:
        return project_to_simplex(smooth)
    positive[body] *= (within + lacking) / within
    return positive


def project_to_simplex(values: Floats) -> Floats:
    """The probability vector nearest to `values` in L2.

    Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient Projections onto the l1-Ball" (2008), Figure
    1.

    >>> project_to_simplex(np.array([0.7, 0.7, -0.2])).tolist()
    [0.5, 0.5, 0.0]
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    projected: Floats = np.maximum(values - threshold, 0)
    normal: Floats = projected / projected.sum()
    return normal


def _has_neighbours(column: ColumnDomain) -> bool:
    """Whether there are enough ordered bins to learn from one of another."""
    return column.ordered and len(body_of(column)) > FEW_LEVELS


def _with_heaps(
    values: Floats,
    sigma: float,
    total: float,
    smooth: Callable[[Floats, float, float], Sequence[Model]],
) -> Iterator[Model]:
    """Smooth models with more and more heaps, in rounds."""
    heaps, expected = np.zeros(len(values), bool), values
    for _ in range(HEAP_ROUNDS):
        # A heap says nothing of its neighbours.
        rest = max(total - float((values - expected)[heaps].sum()), 1e-9)
        models = smooth(np.where(heaps, expected, values), sigma, rest)
        for likelihood, shares in models:
            yield likelihood - HEAP_COST * heaps.sum(), np.where(heaps, values, shares)
        expected = max(models, key=lambda model: model[0])[1]
        found = values - expected > HEAP * sigma
        if (found == heaps).all():
            return
        heaps = found


def _process_models(values: Floats, sigma: float, total: float) -> list[Model]:
    """Log likelihood and posterior mean of a Gaussian process along the bins, given their sum.

    The likelihood chooses its range, roughness and strength [Rasmussen and Williams, "Gaussian
    Processes for Machine Learning" (2006), Sections 2.2 and 5.4].
    """
    scale = total / len(values)
    best: Model = -math.inf, values
    for spectrum, turn in _spectra(len(values)):
        turned, one = turn.T @ values, turn.sum(0)
        for rough, strength in product(ROUGHNESS, scale**2 * STRENGTHS):
            signal = strength * ((1 - rough) * spectrum + rough)
            likelihood, kept = shrunk(turned, signal, sigma**2)
            left = one * signal * sigma**2 / (signal + sigma**2)
            missed, spread = total - float(one @ kept), float(one @ left)
            likelihood += _normal(missed, spread) - _normal(total, float(one**2 @ signal))
            if likelihood > best[0]:
                best = likelihood, turn @ (kept + left * missed / spread)
    return [best]


def _normal(distance: float, variance: float) -> float:
    """Log density of a normal law at a distance from its mean, without the constant."""
    return -(distance**2 / variance + math.log(variance)) / 2


@lru_cache(maxsize=64)
def _spectra(bins: int) -> list[tuple[Floats, Floats]]:
    """Eigenvalues and eigenvectors of the covariance of so many bins, for each range.

    The 1 in it is the unknown level of all.
    """
    return [np.linalg.eigh(np.exp(-distances(bins) / reach) + 1.0) for reach in RANGES]


def _separate(values: Floats, sigma: float, total: float) -> Model:
    """Log likelihood and posterior mean where bins are empty, or hold shares on their own.

    A bin is empty with a probability 1 - p; else its share has an exponential law of mean m. The
    noisy share then has the law of exponential plus normal, in closed form. The likelihood chooses
    p and m. What the posterior means lack of the sum goes where the posterior is wide. Likelihoods
    are without the constant that `shrunk` leaves out, too.
    """
    bins, scaled = len(values), values / sigma
    empty = -(scaled**2) / 2 - math.log(sigma)
    best: Model = -math.inf, values
    for share, size in product(HEAP_SHARES, total / bins * HEAP_SIZES):
        centre = scaled - sigma / size
        below = np.minimum(centre, 0)  # erfcx is finite there, and log_ndtr exact above
        tail = np.log(erfcx(-below / math.sqrt(2)) / 2) - scaled**2 / 2
        body = log_ndtr(centre) + (centre**2 - scaled**2) / 2
        some = math.log(share * math.sqrt(2 * math.pi) / size) + np.where(centre < 0, tail, body)
        none = math.log1p(-share) + empty if share < 1 else np.full(bins, -np.inf)
        both = np.logaddexp(some, none)
        # Mean and mean square of a normal law of deviation 1 around `centre`, cut off at 0.
        hazard = math.sqrt(2 / math.pi) / erfcx(-np.minimum(centre, 25) / math.sqrt(2))
        mean = np.maximum(centre + hazard, 0)
        square = np.maximum(1 + centre * mean, mean**2)
        held = np.exp(some - both)
        kept = sigma * held * mean
        left = np.maximum(sigma**2 * held * square - kept**2, 1e-12 * sigma**2)
        missed, spread = total - float(kept.sum()), float(left.sum())
        prior = bins * share * size**2 * (2 - share)
        likelihood = float(both.sum()) + _normal(missed, spread)
        likelihood -= _normal(0, prior)  # at most: the sum has no normal law before
        if likelihood > best[0]:
            best = likelihood, kept + left * missed / spread
    return best


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
