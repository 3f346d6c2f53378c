"""The event of keys that are told where their noisy counts reach a threshold."""

from __future__ import annotations

import attrs
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters

from synthdp.privacy.composition import composed
from synthdp.privacy.events.base import UNITS, Adjacency, WorkLimits, positive
from synthdp.privacy.events.kernel import KernelEvent, RoundedGaussianDpEvent, too_few


@attrs.frozen
class ThresholdedGaussianDpEvent(KernelEvent):
    """Rounded Gaussian noise of standard deviation `sigma` on the counts of all keys that occur, of
    which those are told whose noisy count reaches a threshold; one unit fills them with <=
    `sensitivity` counts.

    `delta` bounds the probability that any key is told of those that one unit alone has
    (`mechanisms.frequent_texts` has the proof, and computes the threshold that meets it). The event
    costs what the Gaussian does, and with probability `delta` all is lost: twice that where a unit
    is replaced, as each of both may have keys alone [derived here].
    """

    sigma: float
    delta: float
    sensitivity: int = 1

    name = "thresholded_gaussian"

    @property
    def gaussian(self) -> RoundedGaussianDpEvent:
        """The noise on keys that both tables have."""
        return RoundedGaussianDpEvent(self.sigma, self.sensitivity)

    @property
    def squared_mu(self) -> float:
        return self.gaussian.squared_mu

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return self.repeated(1, adjacency, width)

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        lost = pld.from_privacy_parameters(
            DifferentialPrivacyParameters(0.0, self.delta), value_discretization_interval=width
        )
        noisy = self.gaussian.repeated(count, adjacency, width)
        return composed([(noisy, 1), (lost, count * UNITS[adjacency])])

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.sensitivity, rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Of the Gaussian: the other part bounds no loss, and takes no work."""
        positive(self.delta, 1)
        return self.gaussian.expected_loss(limits, times)

    def words(self) -> str:
        return (
            f"{self.gaussian.words()}, told where they reach a threshold that counts of one unit"
            f" alone reach with probability {self.delta:.3g} at most"
        )
