"""Sums by stratum with one thing wrong in each: name -> (how to build it, what the replay says)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.mechanisms.sums import GRID, Arm, Bounded, NoisySums, StratumSums
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from tests.audit.mechanism_examples import number_ends, upper_half

Built = Callable[[Domain], StratumSums]


class Uncut(StratumSums):
    """Numbers beyond the clip count in full."""

    def numbers(self, frame: Any, codes: Any) -> Any:
        assert self.number is not None
        values = self._values(self.number.column, frame, codes)
        return (values - self.number.middle) / self.number.half


class BoundsFromRows(StratumSums):
    """The largest number of the table becomes 1."""

    def numbers(self, frame: Any, codes: Any) -> Any:
        assert self.number is not None
        values = self._values(self.number.column, frame, codes)
        return values / (np.nanmax(np.abs(values)) if np.isfinite(values).any() else 1.0)


class EveryArm(StratumSums):
    """A row counts in each arm that holds, and is charged as if it were in one."""

    def block(self, frame: Any, codes: Any) -> Any:
        parts = [
            StratumSums(self.domain, (arm,), self.by, self.number, self.noise_multiplier)
            for arm in self.arms
        ]
        each = [part.block(frame, codes).reshape(-1, *part.shape) for part in parts]
        return np.concatenate(each, axis=1).ravel()


class ArmByMedian(StratumSums):
    """Whoever is above the table's own median is in the first arm."""

    def strata(self, frame: Any, codes: Any) -> Any:
        above = codes[:, 0] > (np.median(codes[:, 0]) if len(codes) else 0)
        return np.where(above, 0, 1).astype(np.int64)


class WithoutSquares(StratumSums):
    """The sensitivity of counts alone, though there are sums."""

    @property
    def sensitivity(self) -> float:
        return 1.0


@dataclass(frozen=True)
class LessNoise(StratumSums):
    factor: float = 1.0

    def run(self, table: Table, randomness: Randomness) -> NoisySums:
        exact = table.add_up(self)
        sigma = self.sigma * GRID * self.factor
        return self._value(randomness.rounded_gaussian(exact, sigma=sigma) / GRID)


class GrowingNoise(StratumSums):
    """Noise that grows with the table."""

    def run(self, table: Table, randomness: Randomness) -> NoisySums:
        exact = table.add_up(self)
        sigma = self.sigma * GRID * (1 + math.log1p(len(table.codes)))
        return self._value(randomness.rounded_gaussian(exact, sigma=sigma) / GRID)


def of(kind: type[StratumSums], **fields: Any) -> Built:
    """Both halves of the first column, whose positions are cut to a quarter of them."""

    def build(domain: Domain) -> StratumSums:
        column = domain.columns[0]
        low, high = number_ends(column)
        half = upper_half(domain, column.name)
        arms = (Arm(((half, True),)), Arm(((half, False),)))
        if kind is EveryArm:
            arms = (Arm(), Arm())
        number = Bounded(column.name, low, (3 * low + high) / 4)
        return kind(domain, arms, (), number, 2.0, **fields)

    return build


BUGS: dict[str, tuple[Built, str | None]] = {
    "nothing": (of(StratumSums), None),
    "numbers that are not cut": (of(Uncut), "moved"),
    "bounds from the rows": (of(BoundsFromRows), "moved"),
    "a row in each arm": (of(EveryArm), "moved"),
    "arms by the table's median": (of(ArmByMedian), "moved"),
    "the sensitivity of counts": (of(WithoutSquares), "moved"),
    "99% of the noise": (of(LessNoise, factor=0.99), "moved"),
    "noise that grows with the table": (of(GrowingNoise), "sigma"),
}
