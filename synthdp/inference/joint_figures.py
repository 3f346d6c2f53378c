"""Figures of two columns of numbers, from a noisy table that has both: weighted shares and means,
and correlations.

A weighted share or mean counts each row as often as a number of it says. With weights w and numbers
v of the counted rows (1 and 0 of a share) the figure is R = sum w v / sum w. Where a person's one
row was drawn among w, sums of w v are unbiased for sums over all of their rows, so that R is the
share or the mean of these [Horvitz and Thompson, 1952]. R is inside where (sum w v - R sum w)^2 is
at most z^2 times its variance: that of noise, and of sampling, sum w^2 (v - R)^2 [derived in
docs/inference.md].

The correlation: with every number in the middle of its level it is a ratio of moments, C / sqrt(V
V'), whose interval is Fieller's. Numbers are anywhere in their level: as centred vectors, a column
and its middles have an angle of at most arcsin(d / s), d the root mean square of half a level's
width and s the deviation of the middles. A correlation is the cosine of an angle, so that both
angles widen its interval [derived in docs/inference.md].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from synthdp.inference.figures import (
    NOTHING,
    CellRoles,
    Figure,
    Floats,
    Interval,
    Quadratic,
    Rows,
    along,
    between,
    certain,
    ratio_interval,
    too_few,
    value_bounds,
)
from synthdp.inference.least_squares import SETTINGS, LeastSquares
from synthdp.spec.expressions.query import Query

SUM, WEIGHT, SQUARES, CROSS, WEIGHTS, COUNT = range(6)
"""Sums over rows: of w v, w, w^2 v^2, w^2 v, w^2 and 1."""


def weighted_needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
    """All functionals that a figure is made of, in blocks `[k, *cells]`."""
    yield _ends(query, roles, solver)


def _ends(query: Query, roles: CellRoles, solver: LeastSquares) -> Floats:
    """The six sums where the figure is lowest, and where it is highest, `[12, *cells]`.

    Rows of cut cells are in, and count 0 or 1, where that pulls the figure; numbers are at that end
    of their level, and weights at the end that pulls. A mean, which says which way that is, is
    found in a few rounds.
    """
    one, zero, out = roles.one, roles.zero, roles.out
    small, large = _level_ends(query.weight, roles)
    counts, found = solver.counts.clip(0), list[Floats]()
    for at, lowest in enumerate((True, False)):
        if query.column is None:
            value = (one & ~zero & ~out if lowest else one) * 1.0
            rows = (zero | ~out) if lowest else (one | ~out)
            pulls = value == 0 if lowest else value == 1
            weight = np.where(pulls, large, small)
        else:
            value, mean = np.broadcast_to(_level_ends(query.column, roles)[at], one.shape), 0.0
            for turn in range(4):
                pulls = (value < mean) if lowest else (value > mean)
                rows = one & (~out | (pulls & (turn > 0)))
                weight = np.where(pulls, large, small)
                total = float((counts * rows * weight).sum())
                mean = float((counts * rows * weight * value).sum()) / total if total > 0 else 0.0
        each = (weight * value, weight, (weight * value) ** 2, weight**2 * value, weight**2, 1.0)
        found += [rows * sums for sums in each]
    return np.stack(found)


def _level_ends(name: str | None, roles: CellRoles) -> tuple[Floats, Floats]:
    axis = roles.axis(name)
    low, high = np.nan_to_num(value_bounds(roles.columns[axis]))
    return along(low, axis, roles.one.ndim), along(high, axis, roles.one.ndim)


def weighted_figure(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    """The figure of the cells that `roles` asks about."""
    limits = 0.0, 1.0
    if query.column is not None:
        low, high = value_bounds(roles.columns[roles.axis(query.column)])
        limits = float(np.nanmin(low)), float(np.nanmax(high))
    found = solver.functionals(_ends(query, roles, solver))
    about = float(found.values[COUNT] + found.values[6 + COUNT]) / 2 / (1 - rows.holdout)
    outer, inner, ratios = list[float](), list[float](), list[float]()
    for at, side in ((0, 0), (6, 1)):
        values = found.values[at : at + 6]
        noise = found.covariance[at : at + 6, at : at + 6]
        n, d = float(values[SUM]), float(values[WEIGHT])
        sure = all(certain(float(values[i]), float(noise[i, i])) for i in (WEIGHT, COUNT))
        spread = Quadratic(
            *(float(noise[i]) for i in ((SUM, SUM), (SUM, WEIGHT), (WEIGHT, WEIGHT)))
        )
        of_rows = ratio_interval(n, d, spread) if sure else None
        if of_rows is None:
            return too_few(group, about, float(noise[COUNT, COUNT]), rows)
        both = ratio_interval(n, d, spread.plus(_sampling(values), times=rows.per_unit)) or limits
        ratios.append(n / d)
        outer.append(both[side])
        inner.append(of_rows[side])
    interval = between(outer, limits)
    if interval == limits and limits[0] < limits[1]:
        return Figure(group, about, refused=NOTHING)
    middle = sum(ratios) / 2
    known = limits[0] <= middle <= limits[1]
    apart = math.isclose(*ratios, rel_tol=1e-9, abs_tol=1e-12)
    told = Figure(group, about, middle if known else None, interval, between(inner, limits))
    return told if apart else replace(told, bounds=between(ratios, limits))


def _sampling(values: Floats) -> Quadratic:
    """The variance sum w^2 (v - R)^2 of R, kept above zero where noise would take it below."""
    weights = max(float(values[WEIGHTS]), float(values[WEIGHT]) ** 2 / float(values[COUNT]))
    cross = float(values[CROSS])
    return Quadratic(max(float(values[SQUARES]), cross**2 / weights), cross, weights)


ROWS, X, Y, XX, YY, XY, WIDE_X, WIDE_Y = range(8)
"""Moments: sums over rows of 1, both numbers, their products, and squares of half their widths."""


def correlation_needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
    """All functionals that a figure is made of, in blocks `[k, *cells]`."""
    yield _moments(query, roles, (0.0, 0.0))


def _moments(query: Query, roles: CellRoles, centres: Interval) -> Floats:
    """The eight moments `[8, *cells]`, numbers at the middles of their levels less the centres."""
    middles, halves = list[Floats](), list[Floats]()
    for name, centre in zip(query.numbers, centres, strict=True):
        axis = roles.axis(name)
        low, high = np.nan_to_num(value_bounds(roles.columns[axis]))
        middles.append(along((low + high) / 2 - centre, axis, roles.one.ndim))
        halves.append(along((high - low) / 2, axis, roles.one.ndim))
    (x, y), (a, b) = middles, halves
    parts = (np.ones(1), x, y, x * x, y * y, x * y, a * a, b * b)
    return np.stack([part * roles.one for part in parts])


def correlation_figure(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    """The figure of the cells that `roles` asks about."""
    found = solver.functionals(_moments(query, roles, (0.0, 0.0))[:XX])
    n, variance = float(found.values[ROWS]), float(found.covariance[ROWS, ROWS])
    about = max(0.0, n) / (1 - rows.holdout)
    if not certain(n, variance):
        return too_few(group, about, variance, rows)
    if roles.cut.any():
        ends = "the condition cuts levels: ask at their ends"
        return Figure(group, about, refused=ends)
    centres = float(found.values[X]) / n, float(found.values[Y]) / n
    cells = _moments(query, roles, centres)
    found = solver.functionals(cells)
    values, noise = found.values, found.covariance
    means = values / n
    # What noise in the rows, and in the means that are taken off, adds to second moments.
    lifted = means * variance - noise[:, ROWS]
    lifted[[XX, YY, XY]] -= noise[[X, Y, X], [X, Y, Y]]
    means = means - lifted / n**2
    for name, at in zip(query.numbers, (XX, YY), strict=True):
        if means[at] <= SETTINGS.certain * math.sqrt(noise[at, at]) / n:
            return Figure(group, about, refused=f"the noise hides how {name} varies")
    scale = math.sqrt(float(means[XX] * means[YY]))
    slopes = np.zeros((2, 8))  # of the covariance and of `scale`, by the moments
    slopes[0, [XY, ROWS]] = 1 / n, -means[XY] / n
    slopes[1, [XX, YY, ROWS]] = np.array([means[YY], means[XX], -2 * scale**2]) / (2 * scale * n)
    gradient = slopes @ cells.reshape(8, -1)
    drawn = (gradient * solver.counts.ravel()) @ gradient.T
    sums = float(means[XY]), scale
    both, of_rows = (
        ratio_interval(*sums, _quadratic(slopes @ noise @ slopes.T + sampled * drawn))
        for sampled in (rows.per_unit, 0)
    )
    turn = _angle(values, noise, XX, WIDE_X) + _angle(values, noise, YY, WIDE_Y)
    middle = between(both or (-1.0, 1.0), (-1.0, 1.0))
    interval = _turned(middle, turn)
    if interval == (-1.0, 1.0) or of_rows is None:
        return Figure(group, about, refused=NOTHING)
    estimate = sums[0] / sums[1]
    return Figure(
        group,
        about,
        estimate if abs(estimate) <= 1 else None,
        interval,
        _turned(between(of_rows, (-1.0, 1.0)), turn),
        _turned(between((estimate, estimate), (-1.0, 1.0)), turn) if turn else None,
        middle if turn else None,
    )


def _quadratic(spread: Floats) -> Quadratic:
    """The variance of a ratio's n - R d, by the covariance `[2, 2]` of both."""
    return Quadratic(float(spread[0, 0]), float(spread[0, 1]), float(spread[1, 1]))


def _angle(values: Floats, noise: Floats, at: int, wide: int) -> float:
    """The largest angle of a column with its middles: none where levels are single numbers."""
    if not values[wide]:
        return 0.0
    spread = _quadratic(noise[np.ix_([wide, at], [wide, at])])
    ends = ratio_interval(float(values[wide]), float(values[at]), spread)
    return math.pi if ends is None or ends[1] >= 1 else math.asin(math.sqrt(max(0.0, ends[1])))


def _turned(ends: Interval, turn: float) -> Interval:
    """An interval of correlations, wider by an angle at both ends."""
    low = math.cos(min(math.pi, math.acos(ends[0]) + turn))
    high = math.cos(max(0.0, math.acos(ends[1]) - turn))
    return low, high
