"""Noise on tables of counts: drawn and charged from the same two fields, so that sampler and event
cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

import dp_accounting

from synthdp.privacy.events.kernel import DiscreteGaussianDpEvent, RoundedGaussianDpEvent
from synthdp.privacy.mechanisms.mechanism import PlannedMechanism
from synthdp.privacy.noise import DRAWS, Integers, Randomness

Sampler = Literal["discrete", "rounded"]  # of `NoiseKind`: Gaussian noise on whole numbers
EVENTS: Mapping[Sampler, Callable[[float, int], dp_accounting.DpEvent]] = MappingProxyType(
    {"discrete": DiscreteGaussianDpEvent, "rounded": RoundedGaussianDpEvent}
)


def sampler_for(rows_per_unit: int) -> Sampler:
    """The sampler whose cost is known exactly for units of so many rows, which is public.

    discrete  One row. The sampler is exact, with no assumption about real numbers, and so is its
    cost.
    rounded   Several rows. The discrete Gaussian's cost is only bounded there
    (`events.kernel.DiscreteGaussianDpEvent`), and its bound
              takes 5 to 10% more epsilon than the rounded Gaussian's exact cost at the same noise.
    """
    return "discrete" if rows_per_unit == 1 else "rounded"


@runtime_checkable
class OnCounts(Protocol):
    """A planned mechanism whose kind of noise follows from the unit."""

    def for_unit(self, rows_per_unit: int) -> PlannedMechanism:
        """The same mechanism with the noise that `sampler_for` names."""
        ...


@dataclass(frozen=True)
class CountNoise:
    """Gaussian noise of `sigma` on every cell of one table of counts: of the kind `sampler`, whole
    numbers either way.
    """

    sampler: Sampler
    sigma: float

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """What one table does to a unit of at most `rows_per_unit` rows, which are as many
        counts.
        """
        return EVENTS[self.sampler](self.sigma, rows_per_unit)

    def on(self, counts: Integers, randomness: Randomness) -> Integers:
        """`counts` with the noise."""
        noisy: Integers = DRAWS[self.sampler](randomness, counts, self.sigma, 1.0)
        return noisy
