"""The figure of one group: estimate, interval and bounds, from least squares on its cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.errors import OutputError
from synthdp.inference.least_squares import Functionals, LeastSquares
from synthdp.spec.expressions.query import Query, Statistic
from synthdp.spec.model import ReleaseSpec

Floats = npt.NDArray[np.float64]

Value = float | str
"""A number, or a date as text."""

GUESSES = 4
"""Rounds in which the bounds of a mean over cut cells settle."""
NOTHING = "nothing can be said: the interval is the whole range"
BLOCK = 1 << 20
"""Numbers of functionals that are worked on at once."""


@dataclass(frozen=True)
class Rows:
    """Which rows the tables count: those left by a `holdout`, up to `per_unit` of one person."""

    holdout: float = 0.0
    per_unit: int = 1

    @classmethod
    def of_spec(cls, spec: ReleaseSpec) -> Rows:
        """Those that a release of the spec counts."""
        return cls(spec.evaluation.held_out, spec.dataset.privacy_unit.max_rows)


@dataclass(frozen=True)
class Figure:
    """What is known of one group.

    `interval` is of the population that the rows are a sample of (a count's is of the table's
    rows); `of_rows` is of the counted rows alone. `bounds` are those of what levels do not tell,
    None where they tell all (and of a quantile). `rows` is how many rows of the table the figure is
    about. A figure that is `refused` has no numbers, and says why.
    """

    group: str | None
    rows: float | None = None
    estimate: Value | None = None
    interval: tuple[Value, Value] | None = None
    of_rows: tuple[Value, Value] | None = None
    bounds: tuple[Value, Value] | None = None
    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The same in plain JSON, without what there is none of."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def in_unit(self, size: float, zero: float) -> Figure:
        """The same in another unit: `size` times each number, and `zero`."""
        return self.changed(lambda value: size * float(value) + zero)

    def changed(self, change: Callable[[Value], Value]) -> Figure:
        """The same with each value changed."""

        def both(ends: tuple[Value, Value] | None) -> tuple[Value, Value] | None:
            return None if ends is None else (change(ends[0]), change(ends[1]))

        return replace(
            self,
            estimate=None if self.estimate is None else change(self.estimate),
            interval=both(self.interval),
            of_rows=both(self.of_rows),
            bounds=both(self.bounds),
        )


@dataclass(frozen=True)
class Extremes:
    """Numerator, denominator and squares per row of each cell, `[*cells]`, at their lowest and
    highest: whatever rows of cut cells, and numbers inside levels, may be.
    """

    low: tuple[Floats, Floats, Floats]
    high: tuple[Floats, Floats, Floats]

    @property
    def stacked(self) -> Floats:
        """All of them, `[6, *cells]`."""
        return np.stack([*self.low, *self.high])


def extremes(query: Query, roles: CellRoles, solver: LeastSquares) -> Extremes:
    """The extremes of a count, a share or a mean.

    A share is least where a cell's rows count 0 if they may, else are left out if they may. Of a
    mean's cut cells those are in whose numbers are below it; that mean is found in a few rounds.
    """
    if query.statistic == "mean":
        return _extremes_of_mean(query, roles, solver)
    one, zero, out = roles.one, roles.zero, roles.out
    low = one & ~zero & ~out
    below, above = (zero | ~out), (one | ~out)
    if query.statistic == "count":
        below = above = np.zeros_like(one)
    made = [np.asarray(part, dtype=np.float64) for part in (low, below, one, above)]
    return Extremes((made[0], made[1], made[0]), (made[2], made[3], made[2]))


def _extremes_of_mean(query: Query, roles: CellRoles, solver: LeastSquares) -> Extremes:
    axis = [c.name for c in roles.columns].index(query.column or "")
    shape = [-1 if i == axis else 1 for i in range(len(roles.columns))]
    counts = solver.counts.clip(0)
    found = []
    ends = value_bounds(roles.columns[axis])
    for values, lowest in zip(ends, (True, False), strict=True):
        v = np.broadcast_to(np.nan_to_num(values).reshape(shape), roles.one.shape)
        included = roles.one
        if (roles.one & roles.out).any():
            for _ in range(GUESSES):
                total = float((counts * included).sum())
                mean = float((counts * included * v).sum()) / total if total > 0 else 0.0
                helps = (v < mean) if lowest else (v > mean)
                included = roles.one & (~roles.out | helps)
        d = included.astype(np.float64)
        found.append((d * v, d, d * v**2))
    return Extremes(found[0], found[1])


def within(roles: CellRoles, axis: int | None, level: int) -> CellRoles:
    """The roles where only one level of a column is asked about."""
    if axis is None:
        return roles
    here = np.zeros([c.levels if i == axis else 1 for i, c in enumerate(roles.columns)], bool)
    here[tuple(level if i == axis else 0 for i in range(len(roles.columns)))] = True
    return replace(roles, out=roles.out | ~here, zero=roles.zero & here, one=roles.one & here)


def figure(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    """The figure of the cells that `roles` asks about."""
    if query.statistic == "quantile":
        return _quantile(query, roles, solver, rows, group)
    found = solver.functionals(extremes(query, roles, solver).stacked)
    if query.statistic == "count":
        return count_figure(found, rows, group)
    return ratio_figure(query.statistic, found, _range(query, roles), rows, group)


def count_figure(found: Functionals, rows: Rows, group: str | None) -> Figure:
    """Rows of the whole table: counted ones over the part that was kept.

    Coins held out each row (all rows of a unit together) with probability h: K rows leave
    K (1 - h) on average, with variance at most K h (1 - h) times the rows of a unit.
    """
    kept, values, covariance = 1 - rows.holdout, found.values, found.covariance
    low, high = float(values[0]) / kept, float(values[3]) / kept

    def sd(at: int, count: float) -> float:
        coins = rows.per_unit * max(count, 0.0) * rows.holdout / kept
        return math.sqrt(float(covariance[at, at]) / kept**2 + coins)

    ends = _between([low - Z * sd(0, low), high + Z * sd(3, high)], (0.0, math.inf))
    estimate = float(np.clip((low + high) / 2, *ends))
    bounds = _bounds(*sorted((low, high)))
    return Figure(group, estimate, estimate, ends, bounds=bounds)


def ratio_figure(
    statistic: Statistic,
    found: Functionals,
    limits: Interval,
    rows: Rows,
    group: str | None,
) -> Figure:
    """A share or a mean of numerator, denominator and squares, at their lowest and highest: `[6]`.

    It lies between `limits`.
    """
    values, covariance = found.values, found.covariance
    about = float(values[1] + values[4]) / 2 / (1 - rows.holdout)
    for at in (1, 4):
        if not certain(float(values[at]), float(covariance[at, at])):
            return too_few(group, about, float(covariance[at, at]), rows)
    population, of_rows, ratios = [], [], []
    for n_at, d_at in ((0, 1), (3, 4)):
        n, d, squares = (float(values[n_at + i]) for i in range(3))
        noise = Quadratic(
            float(covariance[n_at, n_at]),
            float(covariance[n_at, d_at]),
            float(covariance[d_at, d_at]),
        )
        sampling = share_sampling(d) if statistic == "share" else mean_sampling(n, d, squares)
        ratios.append(n / d)
        of_rows.append(ratio_interval(n, d, noise))
        both = ratio_interval(n, d, noise.plus(sampling, times=rows.per_unit))
        # A set that is no interval leaves nothing out.
        population.append(both if both is not None else limits)

    def joined(intervals: Sequence[Interval | None]) -> Interval | None:
        first, last = intervals
        return None if first is None or last is None else _between([first[0], last[1]], limits)

    interval = joined(population)
    if interval is None or None in of_rows:
        return too_few(group, about, float(covariance[1, 1]), rows)
    if interval == limits and limits[0] < limits[1]:
        return Figure(group, about, refused=NOTHING)
    estimate = float(np.clip(sum(ratios) / 2, *interval))
    return Figure(group, about, estimate, interval, joined(of_rows), _bounds(*sorted(ratios)))


def _quantile(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    (count, most), variances = solver.each(np.stack([roles.one & ~roles.out, roles.one]) * 1.0)
    about = float(count + most) / 2 / (1 - rows.holdout)
    if not certain(float(count), float(variances[0])):
        return too_few(group, about, float(variances[0]), rows)
    low, high, _ = _places(query, roles)
    below, above = (
        np.concatenate([solver.each(block) for block in tails(query, roles, pulled_in)], axis=1)
        for pulled_in in (False, True)
    )
    sampling = rows.per_unit * query.p * (1 - query.p) * max(float(most), 0.0)

    def cuts(extra: float) -> Cuts:
        return Cuts(
            -query.p * float(count),
            below[0],
            np.sqrt(below[1] + extra),
            above[0],
            np.sqrt(above[1] + extra),
        )

    return quantile_figure(group, about, cuts, sampling, low, high)


def quantile_figure(
    group: str | None,
    about: float,
    cuts: Callable[[float], Cuts],
    sampling: float,
    low: Floats,
    high: Floats,
) -> Figure:
    """The figure of a quantile, by what the `cuts` are with a variance beside the noise."""
    found = cuts(sampling)
    ends = quantile_interval(found, low, high)
    if ends == (float(low[0]), float(high[-1])) and len(low) > 1:
        return Figure(group, about, refused=NOTHING)
    of_rows = quantile_interval(cuts(0.0), low, high)
    return Figure(group, about, quantile_estimate(found, low, high), ends, of_rows)


def tails(query: Query, roles: CellRoles, pulled_in: bool) -> Iterator[Floats]:
    """Rows up to each level, less p times all rows: the lowest, or the highest if `pulled_in`.

    They come in blocks `[k, *cells]`, in the order of the column's numbers. Rows of cut cells are
    in where they pull that way.
    """
    low, _, place = _places(query, roles)
    sure = roles.one & ~roles.out
    step = max(1, BLOCK // roles.one.size)
    for start in range(0, len(low), step):
        up_to = [place <= k for k in range(start, min(start + step, len(low)))]
        yield np.stack(
            [(cells - query.p) * np.where(cells == pulled_in, roles.one, sure) for cells in up_to]
        )


def needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
    """All functionals that a figure is made of, in blocks `[k, *cells]`."""
    if query.statistic != "quantile":
        yield extremes(query, roles, solver).stacked
        return
    for pulled_in in (False, True):
        yield from tails(query, roles, pulled_in)


def _places(query: Query, roles: CellRoles) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
    """The ends of a column's levels in order, `[K]` each, and the place of each cell in it."""
    axis = [c.name for c in roles.columns].index(query.column or "")
    rank, low, high = ordered_levels(*value_bounds(roles.columns[axis]))
    return low, high, rank.reshape([-1 if i == axis else 1 for i in range(len(roles.columns))])


def ordered_levels(low: Floats, high: Floats) -> tuple[npt.NDArray[np.intp], Floats, Floats]:
    """The place of each level in the order of numbers, and the ends of each place.

    A spike inside a bin shares the bin's place. The missing level is placed last of all.
    """
    order = sorted(np.flatnonzero(~np.isnan(low)), key=lambda i: (low[i], high[i]))
    rank = np.full(len(low), len(low), dtype=np.intp)
    starts, ends = list[float](), list[float]()
    for level in order:
        if starts and low[level] <= ends[-1]:
            ends[-1] = max(ends[-1], float(high[level]))
        else:
            starts.append(float(low[level]))
            ends.append(float(high[level]))
        rank[level] = len(starts) - 1
    return rank, np.array(starts), np.array(ends)


def _range(query: Query, roles: CellRoles) -> Interval:
    """The least and largest value that a figure can have."""
    if query.statistic == "share":
        return 0.0, 1.0
    (column,) = (c for c in roles.columns if c.name == query.column)
    low, high = value_bounds(column)
    return float(np.nanmin(low)), float(np.nanmax(high))


def _between(ends: Sequence[float], limits: Interval) -> Interval:
    """An interval inside `limits` from a lower and an upper confidence limit.

    Noise may make the lowest estimate larger than the highest, where a wide level has a negative
    count. Each limit is right by itself, so that both together, in either order, are.
    """
    low, high = np.clip(sorted(ends), *limits)
    return float(low), float(high)


def _bounds(low: float, high: float) -> Interval | None:
    """Bounds that are further apart than rounding."""
    return None if high - low <= 1e-9 * max(1.0, abs(high)) else (low, high)


def too_few(group: str | None, about: float, variance: float, rows: Rows) -> Figure:
    noise = math.sqrt(variance) / (1 - rows.holdout)
    return Figure(
        group,
        rows=max(0.0, about),
        refused=f"too few rows: about {max(0.0, about):,.0f}, give or take {2 * noise:,.0f}",
    )


# --- intervals ---
#
# Intervals of ratios and of quantiles, from estimates of counts and their covariance.
#
# A ratio R = n / d is inside where (n - R d)^2 <= z^2 Var(n - R d) [Fieller, 1954]. Both sides are
# quadratic in R, so that the set is solved for. It is right for every denominator, where the delta
# method is not for small ones.


Interval = tuple[float, float]

Z = 1.959963984540054
"""Of 95%, two-sided."""
CERTAIN = 4.0
"""Deviations of its noise that a denominator must be above zero."""
ROUNDING = 1e-9
"""Part of a sum that rounding may take away: a share of all rows is 1, and has no width."""
FEWEST = 20.0
"""Rows that a denominator must have: below, sums are not normal."""


@dataclass(frozen=True)
class Quadratic:
    """A variance of n - R d as a function of R: `nn` - 2 R `nd` + R^2 `dd`."""

    nn: float
    nd: float
    dd: float

    def plus(self, other: Quadratic, *, times: float = 1.0) -> Quadratic:
        """The sum with a multiple of another."""
        return Quadratic(
            self.nn + times * other.nn, self.nd + times * other.nd, self.dd + times * other.dd
        )


def share_sampling(d: float) -> Quadratic:
    """Sampling variance of a share's n - R d, d R (1 - R): of d rows, each counts 1 with R."""
    return Quadratic(0.0, -d / 2, -d)


def mean_sampling(n: float, d: float, squares: float) -> Quadratic:
    """Sampling variance of a mean's n - R d: the sum over d rows of (v - R)^2."""
    return Quadratic(max(squares, n**2 / d), n, d)


def ratio_interval(n: float, d: float, variance: Quadratic) -> Interval | None:
    """All R with (n - R d)^2 <= z^2 variance(R); None where they are no interval.

    >>> low, high = ratio_interval(50.0, 100.0, share_sampling(100.0))
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    z2 = Z**2
    a = d**2 - z2 * variance.dd
    b = n * d - z2 * variance.nd
    c = n**2 - z2 * variance.nn
    root = b**2 - a * c
    if a <= 0 or root < -ROUNDING * b**2:
        return None
    half = math.sqrt(max(root, 0.0)) + ROUNDING * (abs(b) + abs(a))
    return (b - half) / a, (b + half) / a


def certain(d: float, variance: float) -> bool:
    """Whether a denominator is so far above zero that a ratio means something."""
    return d >= max(FEWEST, CERTAIN * math.sqrt(variance))


@dataclass(frozen=True)
class Cuts:
    """What is known at the K cuts between the levels of a column, and after the last.

    `below` and `above` bound n - p d, the rows up to the cut less p times all rows, and `below_sd`
    and `above_sd` are their deviations, all `[K]`. `start` is -p d, before the first level.
    """

    start: float
    below: Floats
    below_sd: Floats
    above: Floats
    above_sd: Floats


def quantile_interval(cuts: Cuts, low: Floats, high: Floats) -> Interval:
    """The numbers that can be the quantile, by levels whose numbers are `low` to `high`, `[K]`.

    The true quantile lies in the first level k with F_k >= p. That F_k is rarely seen below p by
    more than z deviations, nor F_(k-1) above it [Woodruff, 1952].
    """
    reached = cuts.above + Z * cuts.above_sd >= 0
    reached[-1] = True
    open_before = np.append(True, (cuts.below - Z * cuts.below_sd)[:-1] <= 0)
    return float(low[np.argmax(reached)]), float(high[np.flatnonzero(open_before)[-1]])


def quantile_estimate(cuts: Cuts, low: Floats, high: Floats) -> float:
    """The quantile by the middle of both bounds, where values lie evenly inside their level."""
    middle = (cuts.below + cuts.above) / 2
    before = np.append(cuts.start, middle[:-1])
    reached = middle >= 0
    reached[-1] = True
    # Noise may let the estimated distribution cross p twice: between both crossings lies the half.
    level = (int(np.argmax(reached)) + int(np.flatnonzero(before <= 0)[-1])) // 2
    start, end = float(before[level]), float(middle[level])
    part = float(np.clip(-start / (end - start), 0, 1)) if end > start else 0.5
    return float(low[level] + part * (high[level] - low[level]))


# --- cells ---
#
# What a question asks of each cell of a table: surely counted, surely not, or cut by it.
#
# A level of a range stands for many values. A condition such as `age >= 65` is true of all of
# them, of none, or cuts the level, and then no table can tell which of its rows are meant. That is
# never guessed: whatever rows of a cell may count as is kept, and answers become bounds.


Mask = npt.NDArray[np.bool_]

MAX_CELLS = 100_000
"""Most cells of a question's columns together."""
MAX_POINTS = 4_000_000
"""Most combinations of values at which a condition is tried."""


@dataclass(frozen=True)
class CellRoles:
    """What rows of each cell may count as; one axis for each of the query's `columns`.

    `out`: a row is not asked about. `zero`: it is, and counts 0. `one`: it is, and counts 1 (or,
    for a mean, its number). A cell with two roles is cut by a condition.
    """

    columns: tuple[ColumnDomain, ...]
    out: Mask
    zero: Mask
    one: Mask

    @property
    def cut(self) -> Mask:
        """The cells with more than one role."""
        several: Mask = self.out.astype(int) + self.zero + self.one > 1
        return several

    def cut_levels(self) -> list[tuple[ColumnDomain, list[str]]]:
        """For each range, the labels of its levels that alone make the difference."""
        found = []
        for axis, column in enumerate(self.columns):
            others = tuple(i for i in range(len(self.columns)) if i != axis)
            # A level that is never cut where others are not is not to blame.
            cut = self.cut.any(axis=others) & ~self.cut.any(axis=others).all()
            if column.ranged and cut.any():
                found.append((column, [column.labels[i] for i in np.flatnonzero(cut)]))
        return found


def roles(query: Query, columns: Sequence[ColumnDomain]) -> CellRoles:
    """The roles of the cells of `columns`, which are the query's, on levels or on groups of them.

    A condition compares columns with constants, so that it changes nowhere but at one of these. It
    is tried at both ends of each level, at each constant inside, and beside it: every way in which
    it can turn out is seen [derived in docs/inference.md].

    Raises:
        OutputError: there are too many cells.
    """
    grids = [level_points(column, query.constants) for column in columns]
    cells = int(np.prod([column.levels for column in columns], dtype=np.int64))
    points = int(np.prod([len(values) for values, _ in grids], dtype=np.int64))
    if cells > MAX_CELLS or points > MAX_POINTS:
        raise OutputError(
            f"the columns {', '.join(c.name for c in columns)} have {cells:,} combinations of"
            f" levels, and a question may have {MAX_CELLS:,}",
            hint="ask about fewer columns, or about columns with fewer levels",
        )
    values = {
        column.name: grid.reshape([-1 if i == axis else 1 for i in range(len(columns))])
        for axis, (column, (grid, _)) in enumerate(zip(columns, grids, strict=True))
    }
    shape = tuple(len(grid) for grid, _ in grids)
    with np.errstate(invalid="ignore"):
        true, false = query.condition.truth(values) if query.condition else (True, False)
        if query.column is not None:
            true, false = ~np.isnan(values[query.column]), False
        inside = query.where.truth(values)[0] if query.where else True
    if query.statistic == "count":
        false = False

    def reduced(mask: object) -> Mask:
        some = np.broadcast_to(np.asarray(mask), shape)
        for axis, (_, starts) in enumerate(grids):
            some = np.logical_or.reduceat(some, starts, axis=axis)
        return some

    one, zero = np.logical_and(inside, true), np.logical_and(inside, false)
    return CellRoles(tuple(columns), reduced(~(one | zero)), reduced(zero), reduced(one))


def level_points(
    column: ColumnDomain, constants: Sequence[float]
) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Values of each level, as conditions read them, and where those of each level begin.

    >>> age = ColumnDomain("age", "integer", ("0 to 24", "25 to 49", "missing"), True,
    ...                    edges=(0, 25), stop=50, upper=49)
    >>> values, starts = level_points(age, [30.0])
    >>> values.tolist(), starts.tolist()
    ([0.0, 24.0, 25.0, 29.0, 30.0, 31.0, 49.0, nan], [0, 2, 7])
    """
    if not column.ranged:
        positions = np.arange(column.levels, dtype=np.float64)
        if column.missing_level is not None:
            positions[column.missing_level] = np.nan
        return positions, np.arange(column.levels)
    scale = 1.0 if column.step_seconds is None else column.step_seconds / 86_400
    levels = [np.array([spike]) for spike in column.spikes]
    for low, high in zip(*_ends(column), strict=True):
        tried = [low, high]
        for constant in constants:
            at = constant / scale
            tried += [_beside(column, at, -1), at, _beside(column, at, 1)]
        kept = np.unique(np.clip(tried, low, high))
        if not column.continuous:
            kept = np.unique(np.floor(kept))
        levels.append(kept)
    levels = [level * scale for level in levels]
    if column.missing:
        levels.append(np.array([np.nan]))
    sizes = [len(level) for level in levels]
    return np.concatenate(levels), np.cumsum([0, *sizes[:-1]])


def value_bounds(column: ColumnDomain) -> tuple[Floats, Floats]:
    """The least and the largest number of each level, `[levels]`; NaN for the missing one."""
    low, high = _ends(column)
    tail = [np.nan] * column.missing
    return (
        np.concatenate([column.spikes, low, tail]),
        np.concatenate([column.spikes, high, tail]),
    )


def _beside(column: ColumnDomain, at: float, side: int) -> float:
    """The next number on one side: the next whole one, or the next float."""
    if column.continuous:
        return float(np.nextafter(at, side * np.inf))
    return float(np.floor(at) + side) if side > 0 else float(np.ceil(at) + side)


def _ends(column: ColumnDomain) -> tuple[Floats, Floats]:
    """The least and the largest number of each bin. A spike at an end is no number of the bin."""
    low = np.asarray(column.edges, dtype=np.float64)
    high = np.asarray([*column.edges[1:], column.stop] if column.edges else [], dtype=np.float64)
    if column.continuous:
        high[:-1] = np.nextafter(high[:-1], -np.inf)  # the last bin is closed
    else:
        high -= 1
    for ends, side in ((low, 1), (high, -1)):
        for _ in range(len(column.spikes)):
            spiked = np.isin(ends, column.spikes) & (low < high)
            ends[spiked] = [_beside(column, end, side) for end in ends[spiked]]
    return low, high
