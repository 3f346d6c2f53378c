"""Noisy margins without most of their noise: free post-processing of released counts.

Two models of a margin compete. Either the shares are a Gaussian process along the bins, with heaps
on top: single bins that hold far more than their neighbours, such as round numbers. Or bins have
nothing in common: most are empty, and the others hold any share. The likelier one gives the
posterior mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, log_ndtr

from synthdp.data.column_domain import ColumnDomain

Floats = npt.NDArray[np.float64]

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
HEAP = 4.0
"""Standard deviations above the smooth margin at which a bin is a heap."""
HEAP_COST = 6.0
"""Nats that a heap costs: where it is, and how large."""
HEAP_ROUNDS = 4
"""Rounds in which heaps are found and taken out."""


def smoothed_margin(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """The noisy `shares` `[levels]` of a column, smoothed along its ordered bins.

    `sigma` is the standard deviation of a share. Spikes, categories and the missing level stay.
    """
    body = body_of(column)
    if not column.ordered or len(body) <= FEW_LEVELS:
        return shares
    values = shares[body]
    models = [*_separate(values, sigma), *_smooth_with_heaps(values, sigma)]
    out = shares.copy()
    out[body] = max(models, key=lambda model: model[0])[1]
    return out


def _smooth_with_heaps(values: Floats, sigma: float) -> Iterator[tuple[float, Floats]]:
    """Log likelihoods and posterior means of a Gaussian process with more and more heaps."""
    heaps, smooth = np.zeros(len(values), bool), values
    for _ in range(HEAP_ROUNDS):
        # A heap says nothing of its neighbours.
        likelihood, smooth = _smooth(np.where(heaps, smooth, values), sigma)
        yield likelihood - HEAP_COST * heaps.sum(), np.where(heaps, values, smooth)
        found = values - smooth > HEAP * sigma
        if (found == heaps).all():
            return
        heaps = found


def _smooth(values: Floats, sigma: float) -> tuple[float, Floats]:
    """Log likelihood and posterior mean of a Gaussian process along the bins.

    The likelihood chooses its range, roughness and strength [Rasmussen and Williams, "Gaussian
    Processes for Machine Learning" (2006), Sections 2.2 and 5.4].
    """
    scale = max(float(values.sum()), 1e-3) / len(values)
    best: tuple[float, Floats] = -math.inf, values
    for spectrum, turn in _spectra(len(values)):
        turned = turn.T @ values
        for rough, strength in product(ROUGHNESS, scale**2 * STRENGTHS):
            signal = strength * ((1 - rough) * spectrum + rough)
            likelihood, kept = shrunk(turned, signal, sigma**2)
            if likelihood > best[0]:
                best = likelihood, turn @ kept
    return best


@lru_cache(maxsize=64)
def _spectra(bins: int) -> list[tuple[Floats, Floats]]:
    """Eigenvalues and eigenvectors of the covariance of so many bins, for each range.

    The 1 in it is the unknown level of all.
    """
    return [np.linalg.eigh(np.exp(-distances(bins) / reach) + 1.0) for reach in RANGES]


def _separate(values: Floats, sigma: float) -> Iterator[tuple[float, Floats]]:
    """Log likelihood and posterior mean where bins are empty, or hold shares on their own.

    A bin is empty with a probability 1 - p; else its share has an exponential law of mean m. The
    noisy share then has the law of exponential plus normal, in closed form. The likelihood chooses
    p and m. Likelihoods are without the constant that `shrunk` leaves out, too.
    """
    mean, scaled = max(float(values.sum()), 1e-3) / len(values), values / sigma
    empty = -(scaled**2) / 2 - math.log(sigma)
    best: tuple[float, Floats] = -math.inf, values
    for share, size in product(HEAP_SHARES, mean * HEAP_SIZES):
        centre = scaled - sigma / size
        below = np.minimum(centre, 0)  # erfcx is finite there, and log_ndtr exact above
        tail = np.log(erfcx(-below / math.sqrt(2)) / 2) - scaled**2 / 2
        body = log_ndtr(centre) + (centre**2 - scaled**2) / 2
        some = math.log(share * math.sqrt(2 * math.pi) / size) + np.where(centre < 0, tail, body)
        none = math.log1p(-share) + empty if share < 1 else np.full(len(values), -np.inf)
        both = np.logaddexp(some, none)
        if both.sum() > best[0]:
            # The mean of a normal law of deviation 1 around `centre`, cut off at 0.
            hazard = math.sqrt(2 / math.pi) / erfcx(-np.minimum(centre, 25) / math.sqrt(2))
            kept = sigma * np.maximum(centre + hazard, 0)
            best = float(both.sum()), np.exp(some - both) * kept
    yield best


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
