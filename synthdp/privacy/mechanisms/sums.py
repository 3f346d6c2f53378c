"""Sums over rows that estimands are made of: by public stratum, and of products.

`StratumSums`: how many rows a stratum has, the sum of a bounded number, and of its square. Shares,
means and effects by strata are ratios of such sums. A row lies in one stratum at most, so that all
strata together cost what one does.

`ProductSums`: sums of products of bounded numbers and of indicators, for linear regressions. A
regression needs the second moments of its terms and its outcome. Many of these are the same sum
(the square of an indicator is the indicator), and many are zero by themselves (two levels of one
column). Each different sum is released once.

`Contrast`: the second step of an effect by strata, one weighted sum over all rows, in place of one
for each. Sums by stratum (`StratumSums`) come first. From what was released of them a weight and a
centre are chosen for each stratum of each arm, and one number is measured: the sum of weight times
(number - centre). Its noise does not grow with the number of strata. Two more numbers, at smaller
scale, tell how far its terms spread, and the sum of squared weights, which it is divided by.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, operand_values
from synthdp.privacy.events.kernel import GaussianSumsDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.load.wording import many

GRID = 1 << 16  # parts of one row's count; numbers and squares are cut to whole parts
SQUARE = 0.25  # scale of the squares: they serve the width of intervals alone
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
class NoisyContrast:
    """Three sums over all strata of an effect (`Contrast`), each as a part of the most
    that a row can add, `[3]`: of weighted numbers, and times `SQUARE`, of their squares and of
    those of the weights. Their noise is `sigma`.
    """

    sums: npt.NDArray[np.float64]
    sigma: float


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Released sums by arm and by levels of columns, each `[arms, *levels]`.

    `counts` is rows; `sums` adds u = (number - middle) / half; `squares` adds u^2. Their noise has
    standard deviations `sigma`, `sigma` and `sigma` / `SQUARE`. Without a number there are counts
    alone, and the others are empty. Of an effect by strata, `contrast` was measured after them.
    """

    counts: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    sigma: float
    contrast: NoisyContrast | None = None


@dataclass(frozen=True)
class StratumSums:
    """Counts of rows by stratum, and sums of a bounded number and of its square, plus noise.

    A row is in the first arm that holds, at its own levels of the columns `by`; of a column in
    `cuts` its level is the range that its value lies in, from one of the declared left ends to the
    next, and one more where it is missing. It is in no stratum where no arm holds, or where it has
    no number.

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
    Arms, levels, cuts and bounds are the spec's. Whether an arm holds for a row, and between which
    cuts it lies, is asked of that row's values alone.
    """

    domain: Domain
    arms: tuple[Arm, ...]
    by: tuple[str, ...]
    number: Bounded | None
    noise_multiplier: float
    cuts: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        if (strata := math.prod(self.shape)) > 2000:  # of all arms together
            raise ValueError(f"{strata} strata; at most 2000 are allowed")

    @property
    def name(self) -> str:
        what = f"sums of {self.number.column}" if self.number else "counts"
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on {what} in"
            f" {many(math.prod(self.shape), 'stratum', 'strata')}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Arms, then levels of each column of `by`."""
        own = {name: len(ends) + self.domain[name].missing for name, ends in self.cuts}
        return (len(self.arms), *(own.get(name, self.domain[name].levels) for name in self.by))

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
        cell, cuts = np.zeros(len(frame), dtype=np.int64), dict(self.cuts)
        for name, levels in zip(self.by, self.shape[1:], strict=True):
            level: npt.NDArray[Any] = codes[:, self.domain.index(name)]
            if name in cuts:
                own = self._values(name, frame, codes)
                place = np.clip(np.searchsorted(cuts[name], own, "right") - 1, 0, None)
                level = np.where(np.isnan(own), levels - 1, place)
            cell = cell * levels + level
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


# --- product sums ---


MAX_PRODUCTS = 2000

Part = tuple[str, int]
"""A column, and the level whose indicator is meant; `NUMBER` for its number."""
Product = tuple[Part, ...]
"""The parts that are multiplied, in order; none for the constant 1."""
NUMBER = -1


@dataclass(frozen=True, eq=False)
class NoisyProducts:
    """Released sums over rows, one for each product, with independent noise `sigma`."""

    sums: npt.NDArray[np.float64]
    sigma: float


@dataclass(frozen=True)
class ProductSums:
    """Sums over rows of products of numbers in [-1, 1] and of indicators of levels, plus noise.

    A row counts where the arm holds and none of the columns is missing; where products stand
    `apart` it counts wherever the arm holds: a number that it lacks is 0, and to lack a category is
    a level like others.

    Sensitivity [derived here]: call two products alike if they differ in the levels of their
    indicators alone. A row has one level of each column. Products that are alike and not equal ask
    for different levels of some column, so that at most one of them is not zero for the row. Each
    is at most 1 in size, since numbers are cut to [-1, 1]. So a row moves the vector of all sums by
    at most the root of the number of kinds in L2, and reaches it where its numbers lie at ends of
    their bounds and its levels are asked for. A unit of k rows moves it by at most k times as much.

    Where a row that counts is replaced by one that counts, the square of the move is at most the
    sum over kinds of these (`replaced`): 0 for the constant, which both have; 4 where a number is
    there an odd number of times, as one product moves by at most 2, or two by 1 each; 2 where two
    products that are nowhere below 0 may move by 1 each, for levels that differ; and 1 where only
    one may. Where one of the two does not count, it is a row that comes or
    goes. A replaced unit of k rows is k such moves at most (`events.kernel`).

    Rounding each product to multiples of 1 / `GRID` takes
    none beyond 1 in size, which is such a multiple. All sums are whole numbers of 1 / `GRID`, added
    as integers, so that rounding the noise is post-processing of the Gaussian mechanism. Products,
    bounds and the arm are the spec's. What a row adds is computed of its own values alone.
    """

    domain: Domain
    arm: Arm
    numbers: tuple[Bounded, ...]
    products: tuple[Product, ...]
    noise_multiplier: float
    apart: bool = False

    def __post_init__(self) -> None:
        if len(self.products) > MAX_PRODUCTS:
            raise ValueError(f"{len(self.products)} products; at most {MAX_PRODUCTS} are allowed")
        if len(set(self.products)) < len(self.products):
            raise ValueError("a product is there twice")
        if any(list(product) != sorted(product) for product in self.products):
            raise ValueError("the parts of a product are not in order")
        if not all(0 < number.half < math.inf for number in self.numbers):
            raise ValueError("a number whose bounds do not differ, or are not finite")

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on"
            f" {many(len(self.products), 'sum')} of products of {', '.join(self.columns)}"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the products read, each once."""
        return tuple(dict.fromkeys(name for product in self.products for name, _ in product))

    @property
    def sensitivity(self) -> float:
        """Of all sums to one row, in L2."""
        return math.sqrt(len({_kind(product) for product in self.products}))

    @property
    def replaced(self) -> float:
        """Of all sums to one row that is replaced, in units of the sensitivity: 1 to 2."""
        kinds = Counter(map(_kind, self.products))
        squares = math.fsum(_replaced(kind, products) for kind, products in kinds.items())
        return max(1.0, math.sqrt(squares) / self.sensitivity)

    @property
    def sigma(self) -> float:
        """Noise of a sum; the constant's is in rows."""
        return self.noise_multiplier * self.sensitivity

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return GaussianSumsDpEvent(self.noise_multiplier / rows_per_unit, self.replaced)

    def scaled(self, factor: float) -> ProductSums:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def reads(self) -> frozenset[str]:
        """Columns of the products and of the arm's conditions."""
        asked = {name for condition, _ in self.arm.conditions for name in condition.columns}
        return frozenset({*self.columns, *asked})

    @property
    def size(self) -> int:
        """Products."""
        return len(self.products)

    def run(self, table: Table, randomness: Randomness) -> NoisyProducts:
        """Add up the products, then the noise."""
        exact = table.add_up(self)
        noisy = randomness.rounded_gaussian(exact, sigma=self.sigma * GRID) / GRID
        return NoisyProducts(noisy, self.sigma)

    def without_noise(self, table: Table) -> NoisyProducts:
        """The sums over all rows, held out or not. Confidential: for the steward alone."""
        return NoisyProducts(table.add_up(self, "all") / GRID, NO_NOISE)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """What some rows add, in parts of `GRID`."""
        total = np.zeros(len(self.products), dtype=np.int64)
        counted = self._counted(frame, codes).astype(np.float64)
        numbers = {number.column: self._number(number, frame, codes) for number in self.numbers}
        kinds: dict[tuple[tuple[str, bool], ...], list[int]] = {}
        for at, product in enumerate(self.products):
            kinds.setdefault(_kind(product), []).append(at)
        for kind, places in kinds.items():
            value, cell = counted, np.zeros(len(codes), dtype=np.int64)
            asked = np.zeros(len(places), dtype=np.int64)
            for i, (name, is_number) in enumerate(kind):
                if is_number:
                    value = value * numbers[name]
                    continue
                levels = self.domain[name].levels
                cell = cell * levels + codes[:, self.domain.index(name)]
                asked = asked * levels + np.array([self.products[at][i][1] for at in places])
            order = np.argsort(asked)
            near = order[np.searchsorted(asked[order], cell).clip(max=len(asked) - 1)]
            parts = np.where(asked[near] == cell, np.rint(value * GRID), 0.0)
            total[places] = np.bincount(near, weights=parts, minlength=len(asked))
        return total

    def _number(self, bounds: Bounded, frame: Any, codes: Codes) -> npt.NDArray[np.float64]:
        values = self._values(bounds.column, frame, codes)
        clipped = np.clip(values, bounds.lower, bounds.upper)
        with np.errstate(all="ignore"):
            scaled = np.nan_to_num((clipped - bounds.middle) / bounds.half)
        return np.clip(scaled, -1.0, 1.0)

    def _counted(self, frame: Any, codes: Codes) -> npt.NDArray[np.bool_]:
        """Which rows count, `[rows]`."""
        values = {name: self._values(name, frame, codes) for name in self.reads}
        found = self.arm.holds(values, len(frame))
        for name in () if self.apart else self.columns:
            found &= ~np.isnan(values[name])
        return found

    def _values(self, name: str, frame: Any, codes: Codes) -> npt.NDArray[np.float64]:
        column, at = self.domain[name], self.domain.index(name)
        return operand_values(column, codes[:, at], frame.get(name))

    def pack(self, value: NoisyProducts) -> Arrays:
        """The sums."""
        return {"sums": value.sums}

    def unpack(self, arrays: Arrays) -> NoisyProducts:
        """The value of its array."""
        if arrays["sums"].shape != (len(self.products),):
            raise ValueError("not the sums of these products")
        return NoisyProducts(arrays["sums"], self.sigma)


def _kind(product: Product) -> tuple[tuple[str, bool], ...]:
    """What products that differ in their levels alone have in common: columns, which as numbers."""
    return tuple((name, level == NUMBER) for name, level in product)


def _replaced(kind: tuple[tuple[str, bool], ...], products: int) -> float:
    """Square of the most that replacing a row moves the `products` of one kind by."""
    times = Counter(name for name, is_number in kind if is_number)
    if any(count % 2 for count in times.values()):
        return 4.0
    levels = sum(not is_number for _, is_number in kind)
    return 0.0 if not kind else 2.0 if levels and products > 1 else 1.0


Sums = NoisySums | NoisyProducts
"""The sums of an estimand."""
SumMechanism = StratumSums | ProductSums
"""What measures them."""


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
        or released facts alone: `[arms, strata]` each; no bound of a row is 0 or infinite, by which
        what it adds is divided.
        """
        shape = (self.strata.shape[0], math.prod(self.strata.shape[1:]))
        chosen = weights, centres, about
        if any(part.shape != shape or not np.isfinite(part).all() for part in chosen):
            raise ValueError(f"weights or centres that are not {shape[0]} x {shape[1]} numbers")
        contrast = Contrast(self, weights, centres, about)
        if not 0 < contrast.most.min() <= contrast.most.max() < math.inf:
            raise ValueError("weights that are all 0, or whose squares are beyond doubles")
        return contrast


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
    with np.errstate(over="ignore"):
        reach, spread = ((a * (1 + np.abs(m))).max() for m in (centres, about))
        return np.array([reach, spread**2, a.max() ** 2])
