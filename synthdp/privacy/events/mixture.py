"""The library's distributions of a Gaussian, on a sample too, and of a mixture of Gaussians, with
all losses inverted together.

The library inverts the loss by a call of Python for each point that it looks at, which takes most
of the time of a plan, and of an account with groups. Here all points are looked at together: for a
mixture by the library's own sums and rounding, so that every number is the same to its last bit,
and for a Gaussian by its formulas (`tests/privacy/test_mixture.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    GaussianPrivacyLoss,
    MixtureGaussianPrivacyLoss,
)

Floats = npt.NDArray[np.float64]


FARTHEST = 700.0  # nats that a 64-bit exponential holds


def gaussian(noise: float, *, width: float, rate: float = 1.0) -> pld.PrivacyLossDistribution:
    """What `from_gaussian_mechanism` of the library gives for a unit added or removed, whose row
    joins by a coin of chance `rate`, on a grid of this width.

    >>> theirs = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-2)
    >>> ours = gaussian(2.0, width=1e-2)
    >>> abs(ours.get_epsilon_for_delta(1e-6) / theirs.get_epsilon_for_delta(1e-6) - 1) < 1e-9
    True
    """

    def of(adjacency: AdjacencyType) -> Any:
        return pld._create_pld_pmf_from_monotone_privacy_loss(
            _Gaussian(noise, sampling_prob=rate, adjacency_type=adjacency),
            value_discretization_interval=width,
            use_connect_dots=True,
        )

    removed = of(AdjacencyType.REMOVE)
    if rate == 1:
        return pld.PrivacyLossDistribution(removed)
    return pld.PrivacyLossDistribution(removed, of(AdjacencyType.ADD))


class _Gaussian(GaussianPrivacyLoss):  # type: ignore[misc]  # the library has no types
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

    def of(adjacency: AdjacencyType) -> Any:
        loss = _Mixture(noise, moves, probabilities, adjacency_type=adjacency)
        return pld._create_pld_pmf_from_monotone_privacy_loss(
            loss, value_discretization_interval=width, use_connect_dots=True
        )

    return pld.PrivacyLossDistribution(of(AdjacencyType.REMOVE), of(AdjacencyType.ADD))


class _Mixture(MixtureGaussianPrivacyLoss):  # type: ignore[misc]  # the library has no types
    """The library's mixture, whose loss is inverted at all points at once."""

    def _losses(self, points: Floats) -> Floats:
        """`privacy_loss` of each of the points."""
        loss = np.asarray(self.sensitivities)[:, None] * points / self._variance
        constants = np.asarray(self._precompute_privacy_loss_constants)[:, None]
        add = self.adjacency_type == AdjacencyType.ADD
        summed: Floats = np.logaddexp.reduce(constants + loss if add else constants - loss)
        return -summed if add else summed

    def _inverse_privacy_losses_with_range(
        self, privacy_losses: Floats, bounds: tuple[float, float], precision: float = 1e-6
    ) -> Floats:
        """For each loss the least multiple of `precision` at which the loss is at most as large."""
        low, high = (np.full(len(privacy_losses), bound, dtype=np.float64) for bound in bounds)
        while len(searched := np.flatnonzero(high - low > precision)):
            middles = (low[searched] + high[searched]) / 2
            points, place = np.unique(middles, return_inverse=True)
            above = privacy_losses[searched] < self._losses(points)[place]
            low[searched[above]] = middles[above]
            high[searched[~above]] = middles[~above]
        found: Floats = np.floor(high / precision) * precision
        return found
