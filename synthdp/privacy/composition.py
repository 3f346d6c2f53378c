"""Composition of privacy loss distributions on one grid, by one Fourier transform of each.

The accounting library composes two at a time, in loops of Python. Here all of them are multiplied
at once. What is left out is counted as lost, as there; the tests hold both against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import fft

Floats = npt.NDArray[np.float64]
Part = tuple[pld_pmf.DensePLDPmf, int]
"""A distribution, and how often it is there."""

TAIL = 1e-15  # mass that a window of losses may leave out on either side
ORDERS = (
    0.3,
    0.6,
    1.0,
    1.7,
    2.8,
    4.5,
    8.3,
)  # of Chernoff's bound, in standard deviations; any is sound


def composed(
    parts: Sequence[tuple[pld.PrivacyLossDistribution, int]],
) -> pld.PrivacyLossDistribution:
    """The distribution of all `parts` together, each as often as its number says; one or more.

    >>> once = pld.from_gaussian_mechanism(4.0, value_discretization_interval=1e-3)
    >>> twice = pld.from_gaussian_mechanism(4 / math.sqrt(2), value_discretization_interval=1e-3)
    >>> found = composed([(once, 2)]).get_epsilon_for_delta(1e-5)
    >>> round(found, 3) == round(twice.get_epsilon_for_delta(1e-5), 3)
    True
    """
    removed = _composed([(part._pmf_remove.to_dense_pmf(), count) for part, count in parts])
    if all(part._symmetric for part, _ in parts):
        return pld.PrivacyLossDistribution(removed)
    added = _composed([(part._pmf_add.to_dense_pmf(), count) for part, count in parts])
    return pld.PrivacyLossDistribution(removed, added)


def _composed(parts: Sequence[Part]) -> pld_pmf.DensePLDPmf:
    """Of one direction.

    The transform goes round a circle of losses as long as a window that holds all but `TAIL` of the
    mass on either side. What is beyond it lies at other losses. Above, at most `TAIL` is thus
    counted too low, and `TAIL` counts as lost for it; below, what moves only moves up
    [derived here].
    """
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    low, high = _window(parts)
    size = fft.next_fast_len(high - low + 1, real=True)
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    for pmf, count in parts:
        probs = np.pad(pmf._probs, (0, -len(pmf._probs) % size))
        transform *= fft.rfft(probs.reshape(-1, size).sum(0)) ** count
    law = np.roll(fft.irfft(transform, size), -(low % size))[: high - low + 1]
    finite = math.fsum(count * math.log1p(-pmf._infinity_mass) for pmf, count in parts)
    lowest = sum(count * pmf._lower_loss for pmf, count in parts)
    endless = min(TAIL - math.expm1(finite), 1.0)
    return pld_pmf.DensePLDPmf(parts[0][0]._discretization, lowest + low, law, endless, True)


def _window(parts: Sequence[Part]) -> tuple[int, int]:
    """First and last place, from the lowest sum of all, beyond which the sum of all parts has at
    most `TAIL` of its mass, on either side: Chernoff's bound, E[exp(t (L - x))] for any t.
    """
    low, high = 0, sum(count * (len(pmf._probs) - 1) for pmf, count in parts)
    known = [_moments(pmf._probs) for pmf, _ in parts]
    variance = math.fsum(n * v for (_, n), (_, _, v) in zip(parts, known, strict=True))
    for order in ORDERS:
        t = order / math.sqrt(max(variance, 1.0))
        for sign in (1, -1):
            logs = (
                n * _log_mean(p, m, sign * t)
                for (_, n), (p, m, _) in zip(parts, known, strict=True)
            )
            middle = math.fsum(n * m for (_, n), (_, m, _) in zip(parts, known, strict=True))
            reach = (math.fsum(logs) - math.log(TAIL)) / t
            if not math.isfinite(reach):
                continue
            if sign > 0:
                high = min(high, math.ceil(middle + reach))
            else:
                low = max(low, math.floor(middle - reach))
    return min(low, high), max(low, high)


def _moments(probs: Floats) -> tuple[Floats, float, float]:
    """The probabilities without noise below zero, and the mean and variance of the place."""
    p, place = np.maximum(probs, 0.0), np.arange(len(probs))
    total = float(p.sum())
    if total == 0:
        return p, 0.0, 0.0
    mean = float(p @ place) / total
    return p, mean, float(p @ (place - mean) ** 2) / total


def _log_mean(probs: Floats, mean: float, t: float) -> float:
    """Logarithm of E[exp(t (place - mean))]."""
    exponent = t * (np.arange(len(probs)) - mean)
    with np.errstate(divide="ignore"):
        exponent += np.log(probs)
    most = float(exponent.max())
    return most + math.log(float(np.exp(exponent - most).sum())) if most > -math.inf else -math.inf


def epsilon_for(composition: pld.PrivacyLossDistribution, delta: float) -> float:
    """Smallest epsilon with (epsilon, delta)-DP, in both directions."""
    pmfs = [composition._pmf_remove]
    if not composition._symmetric:
        pmfs.append(composition._pmf_add)
    return max(_epsilon_for(pmf.to_dense_pmf(), delta) for pmf in pmfs)


def _epsilon_for(pmf: pld_pmf.DensePLDPmf, delta: float) -> float:
    """Of one direction: the library's search from the largest loss down, all losses at once.

    At a loss l, above which lie the masses P of the first law and Q of the second, delta(e) = P -
    exp(e) Q for e up to the next loss: the first l at which log((P - delta) / Q) is at least l.
    """
    if pmf._infinity_mass > delta:
        return math.inf
    losses = (np.arange(pmf.size) + pmf._lower_loss)[::-1] * pmf._discretization
    probs = np.asarray(pmf._probs)[::-1]
    upper = pmf._infinity_mass + np.cumsum(probs)
    lower = np.cumsum(np.exp(-np.maximum(losses, -700.0)) * probs)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.log((upper - delta) / lower)
    ends = (upper > delta) & (lower > 0) & (found >= np.append(losses[1:], -math.inf))
    if not ends.any():
        return 0.0
    return max(0.0, float(found[int(ends.argmax())]))
