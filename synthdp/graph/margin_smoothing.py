"""Noisy margins without most of their noise: free post-processing of released counts.

Two models of a margin compete. Either the shares are a Gaussian process along the bins, with heaps
on top: single bins that hold far more than their neighbours, such as round numbers. Or bins have
nothing in common: most are empty, and the others hold any share. The likelier one gives the
posterior mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

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
    spectra = [np.linalg.eigh(np.exp(-distances(len(values)) / r) + 1.0) for r in RANGES]
    for _ in range(HEAP_ROUNDS):
        # The 1 in the kernel is the unknown level of all. A heap says nothing of its neighbours.
        likelihood, smooth = _smooth(np.where(heaps, smooth, values), sigma, spectra)
        yield likelihood - HEAP_COST * heaps.sum(), np.where(heaps, values, smooth)
        found = values - smooth > HEAP * sigma
        if (found == heaps).all():
            return
        heaps = found


def _smooth(
    values: Floats, sigma: float, spectra: list[tuple[Floats, Floats]]
) -> tuple[float, Floats]:
    """Log likelihood and posterior mean of a Gaussian process along the bins.

    The likelihood chooses its range, roughness and strength [Rasmussen and Williams, "Gaussian
    Processes for Machine Learning" (2006), Sections 2.2 and 5.4].
    """
    scale = max(float(values.sum()), 1e-3) / len(values)
    best: tuple[float, Floats] = -math.inf, values
    for spectrum, turn in spectra:
        turned = turn.T @ values
        for rough, strength in product(ROUGHNESS, scale**2 * STRENGTHS):
            signal = strength * ((1 - rough) * spectrum + rough)
            likelihood, kept = shrunk(turned, signal, sigma**2)
            if likelihood > best[0]:
                best = likelihood, turn @ kept
    return best


def _separate(values: Floats, sigma: float) -> Iterator[tuple[float, Floats]]:
    """Log likelihood and posterior mean where bins are empty, or hold shares on their own.

    A bin is empty with a probability 1 - p; else its share has an exponential law of mean m. The
    noisy share then has the law of exponential plus normal, in closed form. The likelihood chooses
    p and m.
    """
    mean = max(float(values.sum()), 1e-3) / len(values)
    empty = -((values / sigma) ** 2) / 2 - math.log(sigma)
    best: tuple[float, Floats] = -math.inf, values
    for share, size in product(HEAP_SHARES, mean * HEAP_SIZES):
        centre = values - sigma**2 / size
        some = (
            log_ndtr(centre / sigma)
            + (sigma / size) ** 2 / 2
            - values / size
            - math.log(size)
            + math.log(2 * math.pi) / 2
        )
        with_some = math.log(share) + some
        without = math.log1p(-share) + empty if share < 1 else np.full(len(values), -np.inf)
        both = np.logaddexp(with_some, without)
        if both.sum() > best[0]:
            hazard = np.exp(
                -((centre / sigma) ** 2) / 2
                - math.log(2 * math.pi) / 2
                - log_ndtr(centre / sigma)
            )
            best = float(both.sum()), np.exp(with_some - both) * (centre + sigma * hazard)
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
