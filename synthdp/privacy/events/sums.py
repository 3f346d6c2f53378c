"""The event of Gaussian noise on sums of which it is known how far a replaced unit moves them."""

from __future__ import annotations

import math

import attrs
import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as pld

from synthdp.privacy.events.base import Adjacency, WorkLimits, number
from synthdp.privacy.events.gaussian import Gaussian
from synthdp.privacy.events.kernel import KernelEvent


@attrs.frozen
class GaussianSumsDpEvent(KernelEvent):
    """Gaussian noise of `noise_multiplier` times the longest move of a unit that comes or goes, in
    L2; one that is replaced moves the sums by at most `replaced` times that, from 1 to 2.

    Only the length of a move counts (`gaussian.Gaussian`). A unit of k rows that is replaced by one
    of k is k times one row or none replaced by one or none, and moves the sums by at most the k
    moves together: the same `replaced` holds for units of any number of rows, and for groups of
    units [derived here].
    """

    noise_multiplier: float
    replaced: float

    name = "gaussian_sums"
    noise = "lattice"

    def moved(self, adjacency: Adjacency) -> float:
        """The longest move, in units of the noise."""
        return (self.replaced if adjacency == "replace_one" else 1.0) / self.noise_multiplier

    @property
    def squared_mu(self) -> float:
        return float(self.noise_multiplier**-2)

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return self.repeated(1, adjacency, width)

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        together = 1 / (self.moved(adjacency) * math.sqrt(count))
        return Gaussian(dp_accounting.GaussianDpEvent(together)).cost("add_remove", width)

    def widened(self, size: int) -> GaussianSumsDpEvent:
        return attrs.evolve(self, noise_multiplier=self.noise_multiplier / size)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """1 / 2 s^2 under noise s."""
        if not 1 <= number(self.replaced) <= 2:
            raise ValueError(f"a replaced unit that moves {self.replaced:g} times as much")
        once = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        return Gaussian(once).expected_loss(limits, times)

    def words(self) -> str:
        return (
            f"Gaussian of {self.noise_multiplier:.6g} times the most that a unit moves all numbers"
            f" together (in L2), and one that is replaced {self.replaced:.6g} times as much"
        )
