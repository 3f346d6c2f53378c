"""The second step of an effect by strata: one weighted sum over all rows, in place of one for each.

Sums by stratum (`sums.StratumSums`) come first. From what was released of them a weight and a
centre are chosen for each stratum of each arm, and one number is measured: the sum of weight times
(number - centre). Its noise does not grow with the number of strata. Two more numbers, at smaller
scale, tell how far its terms spread, and the sum of squared weights, which it is divided by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.events.kernel import GaussianSumsDpEvent
from synthdp.privacy.mechanisms.mechanism import Arrays, Prepaid
from synthdp.privacy.mechanisms.sums import GRID, SQUARE, Integers, NoisyContrast, StratumSums
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from synthdp.spec.load.wording import many

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ContrastBudget:
    """A contrast of the rows of `strata` that is chosen later, at a price fixed in the plan."""

    strata: StratumSums
    noise_multiplier: float

    def __post_init__(self) -> None:
        if self.strata.number is None:
            raise ValueError("a contrast of strata without a number")

    @property
    def domain(self) -> Domain:
        return self.strata.domain

    @property
    def name(self) -> str:
        size = math.prod(self.strata.shape)
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on 3 sums over"
            f" {many(size, 'stratum', 'strata')} together"
        )

    @property
    def sensitivity(self) -> float:
        """Of all three sums to one row, in L2."""
        return math.sqrt(1 + 2 * SQUARE**2)

    @property
    def sigma(self) -> float:
        """Noise of each sum."""
        return self.noise_multiplier * self.sensitivity

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return GaussianSumsDpEvent(self.noise_multiplier / rows_per_unit, 2.0)

    def scaled(self, factor: float) -> ContrastBudget:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def choose(self, weights: Floats, centres: Floats, about: Floats) -> Contrast:
        """The mechanism for weights and centres of the sum, and centres of its squares, of public
        or released facts alone: `[arms, strata]` each, not all weights 0.
        """
        shape = (self.strata.shape[0], math.prod(self.strata.shape[1:]))
        chosen = weights, centres, about
        if any(part.shape != shape or not np.isfinite(part).all() for part in chosen):
            raise ValueError(f"weights or centres that are not {shape[0]} x {shape[1]} numbers")
        if not weights.any():
            raise ValueError("weights that are all 0")
        return Contrast(self, weights, centres, about)


@dataclass(frozen=True, eq=False)
class Contrast(Prepaid[ContrastBudget]):
    """Sums over rows of a (u - m), of (a (u - b))^2 and of a^2, plus noise. The row's stratum has
    weight a, of `weights`, and m and b, of `centres` and `about`.

    Sensitivity [derived here]: |u| <= 1, so that |a (u - m)| <= |a| (1 + |m|), whose largest over
    strata is `most[0]`; likewise the squares are at most `most[1]` and `most[2]`. A row adds the
    three as parts of these, the squares times c = `SQUARE`: numbers in [-1, 1], [0, c] and [0, c],
    whose L2 norm is at most sqrt(1 + 2 c^2), reached where one stratum has all three. What rounding
    of doubles takes further is cut, and rounding to multiples of 1 / `GRID` takes none beyond 1 or
    c, which are such multiples. A row in no stratum, or without a number, adds nothing. A unit of k
    rows moves the sums by at most k times as much; where it is replaced, k rows go and k come, and
    the sums move by at most twice that, nearly reached between both ends of the number. All sums
    are whole numbers of 1 / `GRID`, added as integers, so that rounding the noise is
    post-processing of the Gaussian mechanism. Weights and centres are fixed before the look: they
    follow from the spec and from what was released, as `most` does. What a row adds is computed of
    its own values alone.
    """

    weights: Floats
    centres: Floats
    about: Floats

    @cached_property
    def most(self) -> Floats:
        """The most that a row can add to each sum, `[3]`."""
        return most_of(self.weights, self.centres, self.about)

    @property
    def sigma(self) -> float:
        """Noise of each sum."""
        return self.budget.sigma

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the strata read."""
        return self.budget.strata.reads

    @property
    def size(self) -> int:
        """Numbers."""
        return 3

    def run(self, table: Table, randomness: Randomness) -> NoisyContrast:
        """Add up the rows, then the noise."""
        exact = table.add_up(self)
        noisy = randomness.rounded_gaussian(exact, sigma=self.sigma * GRID) / GRID
        return NoisyContrast(noisy, self.sigma)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """What some rows add, in parts of `GRID`."""
        strata = self.budget.strata
        stratum, u = strata.strata(frame, codes), strata.numbers(frame, codes)
        inside = (stratum >= 0) & ~np.isnan(u)
        stratum, u = stratum[inside], u[inside]
        a, m, b = (part.ravel()[stratum] for part in (self.weights, self.centres, self.about))
        parts = a * (u - m) / self.most[0], (a * (u - b)) ** 2 / self.most[1], a**2 / self.most[2]
        scales = 1.0, SQUARE, SQUARE
        each = (np.clip(p, -1.0, 1.0) * (c * GRID) for p, c in zip(parts, scales, strict=True))
        return np.array([np.rint(part).astype(np.int64).sum() for part in each], dtype=np.int64)

    def pack(self, value: NoisyContrast) -> Arrays:
        """The three sums."""
        return {"sums": value.sums}

    def unpack(self, arrays: Arrays) -> NoisyContrast:
        """The value of its array."""
        if arrays["sums"].shape != (3,):
            raise ValueError("not the sums of a contrast")
        return NoisyContrast(arrays["sums"], self.sigma)


def most_of(weights: Floats, centres: Floats, about: Floats) -> Floats:
    """The most that a row adds to each of the three sums, `[3]`, by the bounds of its number."""
    a = np.abs(weights)
    reach, spread = ((a * (1 + np.abs(m))).max() for m in (centres, about))
    return np.array([reach, spread**2, a.max() ** 2])
