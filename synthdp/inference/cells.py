"""What a question asks of each cell of a table: surely counted, surely not, or cut by it.

A level of a range stands for many values. A condition such as `age >= 65` is true of all of them,
of none, or cuts the level, and then no table can tell which of its rows are meant. That is never
guessed: whatever rows of a cell may count as is kept, and answers become bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.errors import OutputError
from synthdp.spec.expressions.query import Query

Floats = npt.NDArray[np.float64]
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
