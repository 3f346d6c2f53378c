"""Rows of public strata: how many there are, the sum of a bounded number, and of its square.

Shares, means and effects by strata are ratios of such sums. A row lies in one stratum at most, so
that all strata together cost what one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, operand_values
from synthdp.privacy.events.sums import GaussianSumsDpEvent
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.wording import many

GRID = 1 << 16  # parts of one row's count; numbers and squares are cut to whole parts
SQUARE = 0.25  # scale of the squares: they serve the width of intervals alone
MAX_STRATA = 2000  # of all arms together
NO_NOISE = 1e-9  # of sums that stay with the steward

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arm:
    """Rows for which each condition is surely true, or surely false where its flag is false.

    An arm without conditions has all rows.
    """

    conditions: tuple[tuple[Expression, bool], ...] = ()

    def holds(self, values: Mapping[str, Any], rows: int) -> npt.NDArray[np.bool_]:
        """Which rows it has, `[rows]`; `values` has the columns that the conditions read."""
        found = np.ones(rows, dtype=bool)
        with np.errstate(all="ignore"):
            for expression, wanted in self.conditions:
                true, false = expression.truth(values)
                found &= np.broadcast_to(np.asarray(true if wanted else false, dtype=bool), rows)
        return found


@dataclass(frozen=True)
class Bounded:
    """A number of a row, `column`, cut to `lower` and `upper` and taken to [-1, 1]."""

    column: str
    lower: float
    upper: float

    @property
    def middle(self) -> float:
        """The number that becomes 0."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        """How far the ends lie from the middle."""
        return (self.upper - self.lower) / 2


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Released sums by arm and by levels of columns, each `[arms, *levels]`.

    `counts` is rows; `sums` adds u = (number - middle) / half; `squares` adds u^2. Their noise has
    standard deviations `sigma`, `sigma` and `sigma` / `SQUARE`. Without a number there are counts
    alone, and the others are empty.
    """

    counts: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    sigma: float


@dataclass(frozen=True)
class StratumSums:
    """Counts of rows by stratum, and sums of a bounded number and of its square, plus noise.

    A row is in the first arm that holds, at its own levels of the columns `by`. It is in no stratum
    where no arm holds, or where it has no number.

    Sensitivity [derived here]: a row adds the vector (1, u, c u^2) with |u| <= 1, c = `SQUARE`, to
    one stratum and nothing to others. Its L2 norm is at most sqrt(2 + c^2), reached at |u| = 1;
    with counts alone it is 1. Rounding u to multiples of 1 / `GRID`, and c u^2 likewise,
    takes neither beyond 1 and c in size, which are such multiples. A unit of k rows moves the sums
    by at most k times as much. Where vectors a and b of two rows share a stratum, a.b = 1 + u u' +
    c^2 u^2 u'^2 >= 0, as u u' >= -1 (rounded, too), and elsewhere it is 0. So the sums A and B of k
    rows that leave and k that come have A.B >= 0, and |A - B|^2 <= |A|^2 + |B|^2: replacing a unit
    moves the sums by sqrt(2) times as much at most, reached where all rows that leave share one
    stratum and all that come another. All sums are whole numbers of 1 / `GRID`, which doubles add
    exactly in any order, so that rounding the noise is post-processing of the Gaussian mechanism.
    Arms, levels and bounds are the spec's. Whether an arm holds for a row is asked of that row's
    values alone.
    """

    domain: Domain
    arms: tuple[Arm, ...]
    by: tuple[str, ...]
    number: Bounded | None
    noise_multiplier: float

    def __post_init__(self) -> None:
        if math.prod(self.shape) > MAX_STRATA:
            raise ValueError(f"{math.prod(self.shape)} strata; at most {MAX_STRATA} are allowed")

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        what = f"sums of {self.number.column}" if self.number else "counts"
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on {what} in"
            f" {many(math.prod(self.shape), 'stratum', 'strata')}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Arms, then levels of each column of `by`."""
        return (len(self.arms), *(self.domain[name].levels for name in self.by))

    @property
    def sensitivity(self) -> float:
        """Of all sums to one row, in L2."""
        return 1.0 if self.number is None else math.sqrt(2 + SQUARE**2)

    @property
    def sigma(self) -> float:
        """Noise of a count, in rows."""
        return self.noise_multiplier * self.sensitivity

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return GaussianSumsDpEvent(self.noise_multiplier / rows_per_unit, math.sqrt(2))

    def scaled(self, factor: float) -> StratumSums:
        """The same with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def reads(self) -> frozenset[str]:
        """Columns of the arms' conditions, of the strata, and of the number."""
        asked = {name for arm in self.arms for e, _ in arm.conditions for name in e.columns}
        return frozenset({*asked, *self.by, *([self.number.column] if self.number else [])})

    @property
    def size(self) -> int:
        """Counts by stratum, and where there is a number, sums and squares after them."""
        return (1 if self.number is None else 3) * math.prod(self.shape)

    def run(self, table: Table, randomness: Randomness) -> NoisySums:
        """Add up the rows of each stratum, then the noise."""
        exact = table.add_up(self)
        return self._value(randomness.rounded_gaussian(exact, sigma=self.sigma * GRID) / GRID)

    def without_noise(self, table: Table) -> NoisySums:
        """The sums over all rows, held out or not. Confidential: for the steward alone."""
        exact = table.add_up(self, "all")
        return replace(self, noise_multiplier=NO_NOISE)._value(exact / GRID)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """What some rows add, in parts of `GRID`."""
        parts, strata = 1 if self.number is None else 3, math.prod(self.shape)
        stratum, u = self.strata(frame, codes), self.numbers(frame, codes)
        inside = (stratum >= 0) & ~np.isnan(u)
        stratum, u = stratum[inside], u[inside]
        each = (np.full(len(u), GRID), np.rint(u * GRID), np.rint(u**2 * (SQUARE * GRID)))
        summed = [np.bincount(stratum, weights=w, minlength=strata) for w in each[:parts]]
        return np.concatenate(summed).astype(np.int64)

    def strata(self, frame: Any, codes: Codes) -> npt.NDArray[np.int64]:
        """The stratum of each row, -1 for none, by its levels `[rows, columns]` and values."""
        read = {name for arm in self.arms for e, _ in arm.conditions for name in e.columns}
        values = {name: self._values(name, frame, codes) for name in read}
        arm = np.full(len(frame), -1, dtype=np.int64)
        for at, chosen in reversed(list(enumerate(self.arms))):
            arm[chosen.holds(values, len(frame))] = at
        cell = np.zeros(len(frame), dtype=np.int64)
        for name in self.by:
            cell = cell * self.domain[name].levels + codes[:, self.domain.index(name)]
        return np.where(arm < 0, -1, arm * math.prod(self.shape[1:]) + cell)

    def numbers(self, frame: Any, codes: Codes) -> npt.NDArray[np.float64]:
        """u of each row, NaN where it has no number."""
        if self.number is None:
            return np.zeros(len(frame))
        values = self._values(self.number.column, frame, codes)
        clipped = np.clip(values, self.number.lower, self.number.upper)
        with np.errstate(all="ignore"):
            return np.clip((clipped - self.number.middle) / self.number.half, -1.0, 1.0)

    def _values(self, name: str, frame: Any, codes: Codes) -> npt.NDArray[np.float64]:
        column, at = self.domain[name], self.domain.index(name)
        return operand_values(column, codes[:, at], frame.get(name))

    def _value(self, flat: npt.NDArray[np.float64]) -> NoisySums:
        noisy = flat.reshape(-1, *self.shape)
        nothing = np.zeros((0, *self.shape[1:]))
        if self.number is None:
            return NoisySums(noisy[0], nothing, nothing, self.sigma)
        return NoisySums(noisy[0], noisy[1], noisy[2] / SQUARE, self.sigma)

    def pack(self, value: NoisySums) -> Arrays:
        """The three arrays."""
        return {"counts": value.counts, "sums": value.sums, "squares": value.squares}

    def unpack(self, arrays: Arrays) -> NoisySums:
        """The value of its arrays."""
        value = NoisySums(arrays["counts"], arrays["sums"], arrays["squares"], self.sigma)
        wanted = self.shape if self.number else (0, *self.shape[1:])
        shapes = (value.counts.shape, value.sums.shape, value.squares.shape)
        if shapes != (self.shape, wanted, wanted):
            raise ValueError("not the sums of these strata")
        return value
