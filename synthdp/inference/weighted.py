"""Weighted shares and means: each row counts as often as a number of it says.

With weights w and numbers v of the counted rows (1 and 0 of a share) the figure is R = sum w v /
sum w. Where a person's one row was drawn among w, sums of w v are unbiased for sums over all of
their rows, so that R is the share or the mean of these [Horvitz and Thompson, 1952]. R is inside
where (sum w v - R sum w)^2 is at most z^2 times its variance: that of noise, and of sampling, sum
w^2 (v - R)^2 [derived in docs/inference.md].
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
    Quadratic,
    Rows,
    along,
    between,
    certain,
    ratio_interval,
    too_few,
    value_bounds,
)
from synthdp.inference.least_squares import LeastSquares
from synthdp.spec.expressions.query import Query

SUM, WEIGHT, SQUARES, CROSS, WEIGHTS, ROWS = range(6)
"""Sums over rows: of w v, w, w^2 v^2, w^2 v, w^2 and 1."""


def needed(query: Query, roles: CellRoles, solver: LeastSquares) -> Iterator[Floats]:
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


def figure(
    query: Query, roles: CellRoles, solver: LeastSquares, rows: Rows, group: str | None
) -> Figure:
    """The figure of the cells that `roles` asks about."""
    limits = 0.0, 1.0
    if query.column is not None:
        low, high = value_bounds(roles.columns[roles.axis(query.column)])
        limits = float(np.nanmin(low)), float(np.nanmax(high))
    found = solver.functionals(_ends(query, roles, solver))
    about = float(found.values[ROWS] + found.values[6 + ROWS]) / 2 / (1 - rows.holdout)
    outer, inner, ratios = list[float](), list[float](), list[float]()
    for at, side in ((0, 0), (6, 1)):
        values = found.values[at : at + 6]
        noise = found.covariance[at : at + 6, at : at + 6]
        n, d = float(values[SUM]), float(values[WEIGHT])
        sure = all(certain(float(values[i]), float(noise[i, i])) for i in (WEIGHT, ROWS))
        spread = Quadratic(
            *(float(noise[i]) for i in ((SUM, SUM), (SUM, WEIGHT), (WEIGHT, WEIGHT)))
        )
        of_rows = ratio_interval(n, d, spread) if sure else None
        if of_rows is None:
            return too_few(group, about, float(noise[ROWS, ROWS]), rows)
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
    weights = max(float(values[WEIGHTS]), float(values[WEIGHT]) ** 2 / float(values[ROWS]))
    cross = float(values[CROSS])
    return Quadratic(max(float(values[SQUARES]), cross**2 / weights), cross, weights)
