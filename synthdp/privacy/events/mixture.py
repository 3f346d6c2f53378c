"""The library's distributions of a Gaussian, on a sample too, and of a mixture of Gaussians, with
all losses inverted together.

The library inverts the loss, and puts it on a grid, by calls of Python for each point, which takes
most of the time of a plan, and of an account with groups. Here all points are looked at together:
for a mixture by the library's own sums and rounding, so that every number is the same to its last
bit, and for a Gaussian by its formulas (`tests/privacy/test_mixture.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    GaussianPrivacyLoss,
    MixtureGaussianPrivacyLoss,
)
from scipy.special import log_ndtr, ndtr

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Booleans = npt.NDArray[np.bool_]

FARTHEST = 700.0  # nats that a 64-bit exponential holds
GROWTH = 1e-12  # of a delta from one epsilon to the next, that rounding may make
NEAR = 1e-12  # far above the rounding of a sum of some terms


def gaussian(noise: float, *, width: float, rate: float = 1.0) -> pld.PrivacyLossDistribution:
    """What `from_gaussian_mechanism` of the library gives for a unit added or removed, whose row
    joins by a coin of chance `rate`, on a grid of this width.

    >>> theirs = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-2)
    >>> ours = gaussian(2.0, width=1e-2)
    >>> abs(ours.get_epsilon_for_delta(1e-6) / theirs.get_epsilon_for_delta(1e-6) - 1) < 1e-9
    True
    """

    def of(adjacency: AdjacencyType) -> pld_pmf.DensePLDPmf:
        return _dots(_Gaussian(noise, sampling_prob=rate, adjacency_type=adjacency), width)

    removed = of(AdjacencyType.REMOVE)
    if rate == 1:
        return pld.PrivacyLossDistribution(removed)
    return pld.PrivacyLossDistribution(removed, of(AdjacencyType.ADD))


def _dots(loss: Any, width: float) -> pld_pmf.DensePLDPmf:
    """The law of `loss` on a grid of this width, from its delta at each of the grid's points.

    By connect-the-dots [Doroshenko et al., "Connect the Dots", arXiv:2207.04380v1, Algorithm 1], in
    the library's order of sums.

    Raises:
        ValueError: delta grows, as nothing but an error of arithmetic lets it.
    """
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / width), math.ceil(bounds.epsilon_upper / width)
    deltas = np.asarray(loss.get_delta_for_epsilon(np.arange(low, high + 1) * width))
    if (np.diff(deltas) > GROWTH).any():
        raise ValueError("delta grows with epsilon")
    deltas = np.minimum.accumulate(deltas)
    falls, wide = np.diff(deltas), math.expm1(width)
    probs = np.empty_like(deltas)
    probs[0] = 1 - deltas[0] + (falls[0] / wide if len(falls) else 0.0)
    if len(falls):
        probs[1:-1] = (falls[1:] - falls[:-1] * math.exp(width)) / wide
        probs[-1] = falls[-1] / math.expm1(-width)
    return pld_pmf.DensePLDPmf(width, low, np.maximum(0.0, probs), deltas[-1], True)


class _Normal:
    """The library's normal distribution, without what it checks at every call."""

    _standard_deviation: float

    def noise_cdf(self, x: Any) -> Any:
        return ndtr(x / self._standard_deviation)

    def noise_log_cdf(self, x: Any) -> Any:
        return log_ndtr(x / self._standard_deviation)


class _Gaussian(_Normal, GaussianPrivacyLoss):  # type: ignore[misc]  # the library has no types
    """The library's Gaussian, whose loss is inverted at all points at once."""

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        """Delta at each of the epsilons: P(x) - exp(epsilon) Q(x), where the loss is epsilon at x
        [derived here; the loss is monotone].
        """
        at, rate = np.atleast_1d(np.asarray(epsilon, dtype=np.float64)), self.sampling_prob
        removed = self.adjacency_type == AdjacencyType.REMOVE
        raised = np.expm1(np.minimum(at if removed else -at, FARTHEST)) / rate
        seen = raised > -1  # on a sample no loss is as small, or none as large
        unsampled = np.log1p(np.where(seen, raised, 0.0)) if rate < 1 else at if removed else -at
        beyond = -np.expm1(np.minimum(at, FARTHEST)) if removed else np.zeros(len(at))
        if removed:
            x = self._inverse_privacy_loss_without_subsampling_remove(unsampled)
        else:
            x = self._inverse_privacy_loss_without_subsampling_add(-unsampled)
        inside = self.mu_upper_cdf(x) - np.exp(at + self.mu_lower_log_cdf(x))
        deltas = np.clip(np.where(seen, inside, beyond), 0, 1)
        return deltas if np.ndim(epsilon) else float(deltas[0])


def mixture_of_gaussians(
    noise: float, moves: Sequence[float], probabilities: Sequence[float], *, width: float
) -> pld.PrivacyLossDistribution:
    """What `from_mixture_gaussian_mechanism` of the library gives, on a grid of this width.

    >>> mixture = (2.0, (0.0, 1.0), (0.9, 0.1))
    >>> theirs = pld.from_mixture_gaussian_mechanism(*mixture, value_discretization_interval=1e-2)
    >>> ours = mixture_of_gaussians(*mixture, width=1e-2)
    >>> ours.get_epsilon_for_delta(1e-6) == theirs.get_epsilon_for_delta(1e-6)
    True
    """

    def of(adjacency: AdjacencyType) -> pld_pmf.DensePLDPmf:
        return _dots(_Mixture(noise, moves, probabilities, adjacency_type=adjacency), width)

    return pld.PrivacyLossDistribution(of(AdjacencyType.REMOVE), of(AdjacencyType.ADD))


class _Mixture(_Normal, MixtureGaussianPrivacyLoss):  # type: ignore[misc]
    """The library's mixture, whose loss is inverted at all points at once."""

    def get_delta_for_epsilon(self, epsilon: Floats) -> Floats:
        """Delta at each of the epsilons, which grow: P(x) - exp(epsilon) Q(x), as for one Gaussian;
        where no loss is as small, 1 - exp(epsilon), and none as large, nothing.
        """
        deltas, removed = np.zeros(len(epsilon)), self.adjacency_type == AdjacencyType.REMOVE
        with np.errstate(divide="ignore"):
            end = np.log1p(-self._sampling_prob)
        seen = epsilon > end if removed else epsilon < -end
        if removed:
            deltas[~seen] = -np.expm1(epsilon[~seen])
        x = self.inverse_privacy_losses(epsilon[seen])
        inside = self.mu_upper_cdf(x) - np.exp(epsilon[seen] + self.mu_lower_log_cdf(x))
        deltas[seen] = inside
        falling: Floats = np.maximum.accumulate(np.clip(deltas, 0, 1)[::-1])[::-1]
        return falling

    def _are_above(self, losses: Floats, points: Floats, place: Integers) -> Booleans:
        """Whether `privacy_loss` is above each of `losses` at its place among `points`.

        Sums are compared to within `NEAR`, and where that is not enough, in the library's order.
        """
        moves = np.asarray(self.sensitivities)[:, None]
        constants = np.asarray(self._precompute_privacy_loss_constants)[:, None]
        sign = 1 if self.adjacency_type == AdjacencyType.ADD else -1

        def terms(at: Floats) -> Floats:
            found: Floats = constants + sign * (moves * at / self._variance)
            return found

        listed = terms(points)
        most = listed.max(axis=0)
        roughly = most + np.log(np.exp(listed - most).sum(axis=0))
        apart = -sign * roughly[place] - losses
        near = np.flatnonzero(~(np.abs(apart) > NEAR * (1 + np.abs(losses))))
        exactly = -sign * np.logaddexp.reduce(terms(points[place[near]]))
        apart[near] = exactly - losses[near]
        above: Booleans = apart > 0
        return above

    def _inverse_privacy_losses_with_range(
        self, privacy_losses: Floats, bounds: tuple[float, float], precision: float = 1e-6
    ) -> Floats:
        """For each loss the least multiple of `precision` at which the loss is at most as large."""
        low, high = (np.full(len(privacy_losses), bound, dtype=np.float64) for bound in bounds)
        while len(searched := np.flatnonzero(high - low > precision)):
            middles = (low[searched] + high[searched]) / 2
            new = np.append(True, middles[1:] != middles[:-1])  # neighbours are alike at first
            above = self._are_above(privacy_losses[searched], middles[new], np.cumsum(new) - 1)
            low[searched[above]] = middles[above]
            high[searched[~above]] = middles[~above]
        found: Floats = np.floor(high / precision) * precision
        return found
