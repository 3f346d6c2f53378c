"""The library's distribution of a mixture of Gaussians, found by one bisection of all losses.

The library inverts the loss by a call of Python for each point that it looks at, which takes most
of the time of an account with groups. Here all points of a step are looked at together. Points,
sums and rounding are the library's, so every number is the same to its last bit
(`tests/privacy/test_mixture.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss

Floats = npt.NDArray[np.float64]


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
