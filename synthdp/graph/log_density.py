"""Margins whose logarithm is smooth: tails decline towards nothing, whatever the bounds.

The logarithm of the shares of a column's bins is a sum of cosines with normal weights, of which
slow ones may be large and fast ones may not [Kooperberg and Stone, "Logspline density estimation"
(1991), has splines in their place]. Bins beyond a first or a last one may be empty: then nothing
but noise was counted there. Where bounds are generous this is most of what there is to know, for
the noise of many empty bins adds up to a tail.

The weights are those of the largest posterior density, by Newton's method; Laplace's approximation
gives the likelihood of the noisy shares [Rasmussen and Williams, "Gaussian Processes for Machine
Learning" (2006), Section 3.4].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Model = tuple[float, Floats]
"""Log likelihood of noisy shares, and the shares that are expected where they were seen."""

COSINES, DECAY = 32, 4
"""How many cosines, and how fast their variance falls: by the fourth power of the frequency."""
SMOOTHNESS = 4.0 ** np.arange(-2, 7)
"""Variances of the slowest cosine's weight, the smoothest margin first."""
PLACES, LEAST = 8, 6
"""Bins end at one of the eighths of a column, and at least so many are left."""
END_COST = 1.0
"""Nats that an end costs: where it is."""
WORSE = 8.0
"""Nats below the best at which no rougher margin is tried."""
NEVER_SINGULAR = 1e-12
"""Share of the curvature's trace that is added to each of its diagonal's entries."""
ROUNDS, GAIN, LEAP = 25, 0.01, 3.0
"""Most of Newton's steps, the gain in nats that is too small, the largest change of a logarithm."""


def density_models(values: Floats, sigma: float, total: float) -> list[Model]:
    """Margins of each smoothness, and with each end, for noisy shares `values` `[bins]`.

    `sigma` is the standard deviation of a share, and `total` what all of them add up to. The last
    bin is sought first, then the first one.
    """
    bins = len(values)
    models, start, stop = list(_densities(values, sigma, total)), 0, bins
    ends = sorted({round(bins * i / PLACES) for i in range(1, PLACES)})
    for last in (True, False):
        best, kept = max(likelihood for likelihood, _ in models), (start, stop)
        for end in ends:
            low, high = (start, end) if last else (end, stop)
            if high - low < LEAST:
                continue
            empty = _empty(np.append(values[:low], values[high:]), sigma) - END_COST
            for likelihood, shares in _densities(values[low:high], sigma, total):
                models.append((likelihood + empty, np.pad(shares, (low, bins - high))))
                if likelihood + empty > best:
                    best, kept = likelihood + empty, (low, high)
        start, stop = kept
    return models


def _empty(values: Floats, sigma: float) -> float:
    """Log likelihood of bins that hold nothing, without the constant of each bin."""
    return -float(np.square(values / sigma).sum()) / 2 - len(values) * math.log(sigma)


def _densities(values: Floats, sigma: float, total: float) -> Iterator[Model]:
    """A margin of each smoothness, until rougher ones become unlikely."""
    basis = _cosines(len(values))
    weights, best = np.zeros(basis.shape[1]), -math.inf
    decay = np.arange(1, basis.shape[1] + 1.0) ** DECAY
    for variance in SMOOTHNESS:
        likelihood, shares, weights = _fitted(
            values, sigma, total, basis, decay / variance, weights
        )
        yield likelihood, shares
        best = max(best, likelihood)
        if likelihood < best - WORSE:
            return


@lru_cache(maxsize=256)
def _cosines(bins: int) -> Floats:
    """The cosines at the middle of each bin, `[bins, cosines]`."""
    frequency = np.arange(1, min(COSINES, bins - 1) + 1)
    return math.sqrt(2) * np.cos(np.pi * np.outer(np.arange(bins) + 0.5, frequency) / bins)


def _fitted(
    values: Floats,
    sigma: float,
    total: float,
    basis: Floats,
    precision: Floats,
    weights: Floats,
) -> tuple[float, Floats, Floats]:
    """Log likelihood, shares and weights of one smoothness; Newton starts at `weights`.

    The second derivative is that of Gauss and Newton.
    """

    def shares_of(weights: Floats) -> Floats:
        logarithm = basis @ weights
        raised = np.exp(logarithm - logarithm.max())
        return np.asarray(total * raised / raised.sum())

    def posterior(weights: Floats, shares: Floats) -> float:
        missed = np.square((values - shares) / sigma).sum()
        return -float(missed + precision @ np.square(weights)) / 2

    def slopes(shares: Floats) -> Floats:
        return np.asarray(shares[:, None] * (basis - (shares / total) @ basis) / sigma)

    shares = shares_of(weights)
    now = posterior(weights, shares)
    for _ in range(ROUNDS):
        slope = slopes(shares)
        gradient = slope.T @ ((values - shares) / sigma) - precision * weights
        curvature = slope.T @ slope + np.diag(precision)
        curvature += NEVER_SINGULAR * curvature.trace() * np.eye(len(precision))
        step = np.linalg.solve(curvature, gradient)
        step *= min(1.0, LEAP / max(float(np.abs(basis @ step).max()), 1e-12))
        gain = 0.0
        for shorter in 0.5 ** np.arange(10):
            tried = weights + shorter * step
            found = shares_of(tried)
            if (gain := posterior(tried, found) - now) > 0:
                weights, shares, now = tried, found, now + gain
                break
        if gain < GAIN:
            break
    scaled = slopes(shares) / np.sqrt(precision)
    volume = np.linalg.slogdet(scaled.T @ scaled + np.eye(len(precision)))[1]
    return now - float(volume) / 2 - len(values) * math.log(sigma), shares, weights
