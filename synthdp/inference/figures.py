"""The figure of one group: estimate, interval and bounds, from least squares on its cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.errors import OutputError
from synthdp.inference.least_squares import SETTINGS, Functionals, LeastSquares
from synthdp.spec.expressions.query import Query, Statistic
from synthdp.spec.model import ReleaseSpec

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Value = float | str
"""A number, or a date as text."""
Interval = tuple[float, float]

Z = 1.959963984540054
"""Of 95%, two-sided."""
NOTHING = "nothing can be said: the interval is the whole range"


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
    None where they tell all (and of a quantile); `at_middles` is then the interval if every number
    were the middle of its level. `rows` is how many rows of the table the figure is about. A figure
    that is `refused` has no numbers, and says why. One with an interval and no estimate has an
    estimate that noise took out of what its column can hold. `by_levels` is the interval of tables
    alone, where that of measured sums is narrower and stands in its place.
    """

    group: str | None
    rows: float | None = None
    estimate: Value | None = None
    interval: tuple[Value, Value] | None = None
    of_rows: tuple[Value, Value] | None = None
    bounds: tuple[Value, Value] | None = None
    at_middles: tuple[Value, Value] | None = None
    refused: str | None = None
    by_levels: tuple[Value, Value] | None = None

    def to_json(self) -> dict[str, Any]:
        """The same in plain JSON, without what there is none of."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def in_unit(self, size: float, zero: float) -> Figure:
        """The same in another unit: `size` times each number, and `zero`."""
        return self.changed(lambda value: size * float(value) + zero)

    def changed(self, change: Callable[[Value], Value]) -> Figure:
        def both(ends: tuple[Value, Value] | None) -> tuple[Value, Value] | None:
            return None if ends is None else (change(ends[0]), change(ends[1]))

        return replace(
            self,
            estimate=None if self.estimate is None else change(self.estimate),
            interval=both(self.interval),
            of_rows=both(self.of_rows),
            bounds=both(self.bounds),
            at_middles=both(self.at_middles),
            by_levels=both(self.by_levels),
        )


def figure(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    """The figure of the cells that `roles` asks about."""
    if query.statistic == "quantile":
        return _quantile(query, roles, solver, rows, group)
    found = solver.functionals(extremes(query, roles, solver))
    if query.statistic == "count":
        return count_figure(found, rows, group)
    if query.column is None:
        return ratio_figure(query.statistic, found, (0.0, 1.0), rows, group)
    low, high = _numbers(query, roles.columns[roles.axis(query.column)])
    limits = float(np.nanmin(low)), float(np.nanmax(high))
    if query.statistic == "sum":
        return sum_figure(found, limits, rows, group)
    of_mean = ratio_figure(query.statistic, found, limits, rows, group)
    clamped = of_mean.estimate in limits and limits[0] < limits[1]
    return replace(of_mean, estimate=None) if clamped else of_mean


def needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
    """All functionals that a figure is made of, in blocks `[k, *cells]`."""
    if query.statistic != "quantile":
        yield extremes(query, roles, solver)
        return
    for pulled_in in (False, True):
        yield from _tails(query, roles, pulled_in)


def extremes(query: Query, roles: CellRoles, solver: LeastSquares) -> Floats:
    """Numerator, denominator and squares per row of each cell of a count, a share, a mean or a sum.

    They are `[6, *cells]`, the first three at their lowest and the others at their highest:
    whatever rows of cut cells, and numbers inside levels, may be. A share is least where a cell's
    rows count 0 if they may, else are left out if they may. Of a mean's cut cells those are in
    whose numbers are below it; that mean is found in a few rounds. Of a sum's, those below zero.
    Where numbers have widths and no cell is cut, three more have every number in its middle.
    """
    one, zero, out = roles.one, roles.zero, roles.out
    if query.column is None:
        low = one & ~zero & ~out
        below, above = (zero | ~out), (one | ~out)
        if query.statistic == "count":
            below = above = np.zeros_like(one)
        return np.stack([low, below, low, one, above, one]).astype(np.float64)
    axis, cut = roles.axis(query.column), (one & out).any()
    counts, found = solver.counts.clip(0), list[Floats]()
    low, high = np.nan_to_num(_numbers(query, roles.columns[axis]))
    middle = [] if cut or (low == high).all() else [((low + high) / 2, False)]
    largest = np.maximum(low**2, high**2)
    for values, lowest in [(low, True), (high, False), *middle]:
        v = np.broadcast_to(along(values, axis, one.ndim), one.shape)
        squares, included, mean = v**2, one, 0.0
        if query.statistic == "sum":
            squares = np.broadcast_to(along(largest, axis, one.ndim), one.shape)
            included = one & (~out | ((v < 0) if lowest else (v > 0)))
        for _ in range(4 if cut and query.statistic == "mean" else 0):
            total = float((counts * included).sum())
            mean = float((counts * included * v).sum()) / total if total > 0 else 0.0
            included = one & (~out | ((v < mean) if lowest else (v > mean)))
        d = included.astype(np.float64)
        found += [d * v, d, d * squares]
    return np.stack(found)


def _numbers(query: Query, column: ColumnDomain) -> tuple[Floats, Floats]:
    """The least and the largest number of each level, cut where the question says so."""
    low, high = value_bounds(column)
    if query.clip is None:
        return low, high
    least, most = query.clip
    return np.clip(low, least, most), np.clip(high, least, most)


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

    ends = between([low - Z * sd(0, low), high + Z * sd(3, high)], (0.0, math.inf))
    estimate = float(np.clip((low + high) / 2, *ends))
    return Figure(group, estimate, estimate, ends, bounds=_bounds(low, high))


def sum_figure(found: Functionals, limits: Interval, rows: Rows, group: str | None) -> Figure:
    """Sums over the whole table: those of counted rows over the part that was kept.

    Coins add to a sum the variance that they add to a count, times the mean square of a number.
    """
    kept = 1 - rows.holdout
    coins = rows.per_unit * max(0.0, *found.values[2::3]) / kept * rows.holdout / kept
    sds = np.sqrt(np.diag(found.covariance)[::3] / kept**2 + coins)
    sums = found.values[::3] / kept
    ends = [float(sums[0] - Z * sds[0]), float(sums[1] + Z * sds[1])]
    reach = 0.0 if limits[0] >= 0 else -math.inf, 0.0 if limits[1] <= 0 else math.inf
    middle = [float(sums[2] + side * Z * sds[2]) for side in (-1, 1)] if len(sums) > 2 else None
    estimate = float(sums[:2].mean())
    return Figure(
        group,
        max(0.0, float(found.values[1] + found.values[4]) / 2 / kept),
        estimate if reach[0] <= estimate <= reach[1] else None,
        between(ends, reach),
        bounds=_bounds(*map(float, sums[:2])),
        at_middles=None if middle is None else between(middle, reach),
    )


def ratio_figure(
    statistic: Statistic, found: Functionals, limits: Interval, rows: Rows, group: str | None
) -> Figure:
    """A share or a mean within `limits`: numerator, denominator and squares, low and high `[6]`,
    or low, high and at middles `[9]`.
    """
    values, covariance = found.values, found.covariance
    about = float(values[1] + values[4]) / 2 / (1 - rows.holdout)
    for at in (1, 4):
        if not certain(float(values[at]), float(covariance[at, at])):
            return too_few(group, about, float(covariance[at, at]), rows)
    population, of_rows, ratios = list[Interval](), list[Interval | None](), list[float]()
    for n_at, d_at in ((at, at + 1) for at in range(0, len(values), 3)):
        n, d, squares = values[n_at : n_at + 3].tolist()
        noise = Quadratic(
            *(float(covariance[i, j]) for i, j in ((n_at, n_at), (n_at, d_at), (d_at, d_at)))
        )
        sampling = share_sampling(d) if statistic == "share" else mean_sampling(n, d, squares)
        ratios.append(n / d)
        of_rows.append(ratio_interval(n, d, noise))
        # A set that is no interval leaves nothing out.
        population.append(ratio_interval(n, d, noise.plus(sampling, times=rows.per_unit)) or limits)
    first, last, *_ = of_rows
    if first is None or last is None:
        return too_few(group, about, float(covariance[1, 1]), rows)
    interval = between([population[0][0], population[1][1]], limits)
    if interval == limits and limits[0] < limits[1]:
        return Figure(group, about, refused=NOTHING)
    estimate = float(np.clip(sum(ratios[:2]) / 2, *interval))
    inner = between([first[0], last[1]], limits)
    middle = None if len(population) < 3 else between(population[2], limits)
    return Figure(group, about, estimate, interval, inner, _bounds(*ratios[:2]), middle)


def noise_width(found: Functionals) -> float:
    """How wide noise, and numbers inside levels, make the interval of a mean before it is cut to
    its limits.
    """
    ratios, ends = list[float](), 0.0
    for n, d in ((0, 1), (3, 4)):
        rows, noise = float(found.values[d]), found.covariance
        if rows <= 0:
            return math.inf
        r = float(found.values[n]) / rows
        ends += Z * math.sqrt(noise[n, n] - 2 * r * noise[n, d] + r**2 * noise[d, d]) / rows
        ratios.append(r)
    return abs(ratios[1] - ratios[0]) + ends


def _quantile(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    (count, most), variances = solver.each(np.stack([roles.one & ~roles.out, roles.one]) * 1.0)
    about = float(count + most) / 2 / (1 - rows.holdout)
    if not certain(float(count), float(variances[0])):
        return too_few(group, about, float(variances[0]), rows)
    below, above = (
        np.concatenate(list(map(solver.each, _tails(query, roles, pulled_in))), axis=1)
        for pulled_in in (False, True)
    )

    def cuts(extra: float) -> Cuts:
        sds = np.sqrt(below[1] + extra), np.sqrt(above[1] + extra)
        return Cuts(-query.p * float(count), below[0], sds[0], above[0], sds[1])

    sampling = rows.per_unit * query.p * (1 - query.p) * max(float(most), 0.0)
    _, low, high = ordered_levels(*value_bounds(roles.columns[roles.axis(query.column)]))
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


def _tails(query: Query, roles: CellRoles, pulled_in: bool) -> Iterator[Floats]:
    """Rows up to each level, less p times all rows: the lowest, or the highest if `pulled_in`.

    They come in blocks `[k, *cells]`, in the order of the column's numbers. Rows of cut cells are
    in where they pull that way.
    """
    axis = roles.axis(query.column)
    rank, low, _ = ordered_levels(*value_bounds(roles.columns[axis]))
    place, sure = along(rank, axis, roles.one.ndim), roles.one & ~roles.out
    step = max(1, (1 << 20) // roles.one.size)  # numbers that are worked on at once
    for start in range(0, len(low), step):
        up_to = [place <= k for k in range(start, min(start + step, len(low)))]
        yield np.stack(
            [(cells - query.p) * np.where(cells == pulled_in, roles.one, sure) for cells in up_to]
        )


def ordered_levels(low: Floats, high: Floats) -> tuple[npt.NDArray[np.intp], Floats, Floats]:
    """Each level's place in the order of numbers, and the ends of places; missing is last."""
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


def along(values: npt.NDArray[Any], axis: int, axes: int) -> npt.NDArray[Any]:
    """Values of a column's levels, with an axis for each of the columns."""
    return values.reshape([-1 if i == axis else 1 for i in range(axes)])


def between(ends: Sequence[float], limits: Interval) -> Interval:
    """An interval inside `limits` from a lower and an upper confidence limit.

    Noise may make the lowest estimate larger than the highest, where a wide level has a negative
    count. Each limit is right by itself, so that both together, in either order, are.
    """
    low, high = np.clip(sorted(ends), *limits)
    return float(low), float(high)


def _bounds(*ends: float) -> Interval | None:
    low, high = sorted(ends)
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
# A ratio R = n / d is inside where (n - R d)^2 <= z^2 Var(n - R d) [Fieller, 1954]. Both sides are
# quadratic in R, so that the set is solved for. It is right for every denominator, where the delta
# method is not for small ones.


@dataclass(frozen=True)
class Quadratic:
    """A variance of n - R d as a function of R: `nn` - 2 R `nd` + R^2 `dd`."""

    nn: float
    nd: float
    dd: float

    def plus(self, other: Quadratic, *, times: float = 1.0) -> Quadratic:
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

    Rounding may take 1e-9 of a sum away: a share of all rows is 1, and has no width.

    >>> low, high = ratio_interval(50.0, 100.0, share_sampling(100.0))
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    z2, rounding = Z**2, 1e-9
    a = d**2 - z2 * variance.dd
    b = n * d - z2 * variance.nd
    c = n**2 - z2 * variance.nn
    root = b**2 - a * c
    if a <= 0 or root < -rounding * b**2:
        return None
    half = math.sqrt(max(root, 0.0)) + rounding * (abs(b) + abs(a))
    return (b - half) / a, (b + half) / a


def certain(d: float, variance: float) -> bool:
    """Whether a denominator is so far above zero that a ratio means something."""
    return d >= max(SETTINGS.fewest, SETTINGS.certain * math.sqrt(variance))


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
# A level of a range stands for many values. A condition such as `age >= 65` is true of all of
# them, of none, or cuts the level, and then no table can tell which of its rows are meant. That is
# never guessed: whatever rows of a cell may count as is kept, and answers become bounds.


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

    def axis(self, name: str | None) -> int:
        return [column.name for column in self.columns].index(name or "")

    @property
    def cut(self) -> Mask:
        """The cells with more than one role."""
        return self.out.astype(int) + self.zero + self.one > 1

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

    def within(self, axis: int, level: int) -> CellRoles:
        """The roles where only one level of a column is asked about."""
        here = along(np.arange(self.columns[axis].levels) == level, axis, len(self.columns))
        return replace(self, out=self.out | ~here, zero=self.zero & here, one=self.one & here)


def by_groups(query: Query, cells: CellRoles) -> Iterator[tuple[str | None, CellRoles]]:
    """The groups of `by`, in the order of their levels, and what rows of each cell count as.

    Raises:
        OutputError: there are too many groups.
    """
    check_groups(query, cells.columns)
    axes = [cells.axis(name) for name in query.by]
    for levels in product(*(range(cells.columns[axis].levels) for axis in axes)):
        asked, labels = cells, list[str]()
        for axis, level in zip(axes, levels, strict=True):
            asked = asked.within(axis, level)
            labels.append(cells.columns[axis].labels[level])
        yield ", ".join(labels) or None, asked


def check_groups(query: Query, columns: Sequence[ColumnDomain]) -> None:
    """Refuse more groups than `by` takes (`OutputError`)."""
    sizes = {c.name: c.levels for c in columns if c.name in query.by}
    groups = math.prod(sizes.values())
    if groups > SETTINGS.max_groups:
        listed = ", ".join(f"{name!r} has {sizes[name]} levels" for name in query.by)
        raise OutputError(
            f"column {listed}, and `by` takes {SETTINGS.max_groups}"
            + (" groups in all" if len(sizes) > 1 else ""),
            hint="ask about some of them with `where`",
        )


def roles(query: Query, columns: Sequence[ColumnDomain]) -> CellRoles:
    """The roles of the cells of `columns`, which are the query's, on levels or on groups of them.

    A condition compares columns with constants, so that it changes nowhere but at one of these. It
    is tried at both ends of each level, at each constant inside, and beside it: every way in which
    it can turn out is seen [derived in docs/inference.md].

    Raises:
        OutputError: there are too many cells.
    """
    grids = [level_points(column, query.constants) for column in columns]
    shape = tuple(len(grid) for grid, _ in grids)
    cells, most = math.prod(column.levels for column in columns), SETTINGS.max_cells
    if cells > most or math.prod(shape) > SETTINGS.max_points:
        raise OutputError(
            f"the columns {', '.join(c.name for c in columns)} have {cells:,} combinations of"
            f" levels, and a question may have {most:,}",
            hint="ask about fewer columns, or about columns with fewer levels",
        )
    values = {c.name: along(grids[i][0], i, len(columns)) for i, c in enumerate(columns)}
    with np.errstate(invalid="ignore"):
        true, false = query.condition.truth(values) if query.condition else (True, False)
        if query.column is not None:
            true, false = True, False
        for name in query.numbers:
            known = ~np.isnan(values[name])
            true, false = true & known, false & known
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
    levels = [np.array([spike]) for spike in column.spikes]
    for low, high in zip(*_ends(column), strict=True):
        tried = [low, high]
        for constant in constants:
            at = constant / column.unit
            tried += [_beside(column, at, -1), at, _beside(column, at, 1)]
        kept = np.unique(np.clip(tried, low, high))
        if not column.continuous:
            kept = np.unique(np.floor(kept))
        levels.append(kept)
    levels = [level * column.unit for level in levels]
    if column.missing:
        levels.append(np.array([np.nan]))
    sizes = list(map(len, levels))
    return np.concatenate(levels), np.cumsum([0, *sizes[:-1]])


def value_bounds(column: ColumnDomain) -> tuple[Floats, Floats]:
    """The least and the largest number of each level, `[levels]`; NaN for the missing one."""
    tail = [np.nan] * column.missing
    low, high = (np.concatenate([column.spikes, ends, tail]) for ends in _ends(column))
    return low, high


def widest(column: ColumnDomain) -> float:
    """How far apart the numbers of a level can be."""
    low, high = value_bounds(column)
    return float(np.nanmax(high - low))


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
