"""The correlation of two columns of numbers, from a noisy table that has both.

With every number in the middle of its level it is a ratio of moments, C / sqrt(V V'), whose
interval is Fieller's. Numbers are anywhere in their level: as centred vectors, a column and its
middles have an angle of at most arcsin(d / s), d the root mean square of half a level's width and s
the deviation of the middles. A correlation is the cosine of an angle, so that both angles widen its
interval [derived in docs/inference.md].
"""

from __future__ import annotations

import math
from collections.abc import Iterator

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

ROWS, X, Y, XX, YY, XY, WIDE_X, WIDE_Y = range(8)
"""Moments: sums over rows of 1, both numbers, their products, and squares of half their widths."""


def needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
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


def figure(
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
