"""All pairs of columns of two tables: total variation and association, counted in blocks.

A column is counted with all later ones in one pass. A table of a thousand columns (half a million
pairs) then takes seconds, and no pair costs a call. Memory is that of a block of cells and a block
of rows, not of all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.evaluate.association import cramers_v
from synthdp.evaluate.counting import FloatArray, IntArray

MAX_CELLS = 1 << 21  # cells counted at once, unless one pair alone has more
MAX_KEYS = 1 << 20  # cell numbers in memory at once

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class PairFigures:
    """Symmetric matrices `[columns, columns]`: total variation, and Cramér's V of either table.

    The diagonal is 0 for the total variation and 1 for Cramér's V.
    """

    variation: FloatArray
    association: tuple[FloatArray, FloatArray]


def compare_pairs(first: Codes, second: Codes, sizes: Sequence[int]) -> PairFigures:
    """Compare two tables of level codes, shape `[rows, columns]` each and with at least one row.

    Each code is a level below the column's entry of `sizes`.
    """
    tables, sizes = _occurring(first, second, sizes)
    columns = len(sizes)
    variation = np.zeros((columns, columns))
    association = np.eye(columns), np.eye(columns)
    for i, later in _blocks(sizes):
        starts = np.cumsum([0, *(sizes[j] for j in later)])
        counts = [_count(levels, i, later, starts, sizes[i]) for levels in tables]
        shares = [table / levels.shape[1] for table, levels in zip(counts, tables, strict=True)]
        variation[i, later] = 0.5 * np.add.reduceat(
            np.abs(shares[0] - shares[1]).sum(axis=1), starts[:-1]
        )
        for matrix, table in zip(association, counts, strict=True):
            matrix[i, later] = cramers_v(table, starts[:-1])
    for matrix in (variation, *association):
        matrix += np.triu(matrix, 1).T
    return PairFigures(variation, association)


def _occurring(first: Codes, second: Codes, sizes: Sequence[int]) -> tuple[list[Codes], list[int]]:
    """Both tables as `[columns, rows]`, renumbered to the levels that occur in either.

    Other levels change no figure and cost cells.
    """
    tables: list[Codes] = [codes.T.copy(order="C") for codes in (first, second)]
    occurring = []
    for i, size in enumerate(sizes):
        occurs = np.bincount(np.concatenate([levels[i] for levels in tables]), minlength=size) > 0
        number = (np.cumsum(occurs) - 1).astype(first.dtype)
        for levels in tables:
            levels[i] = number[levels[i]]
        occurring.append(int(occurs.sum()))
    return tables, occurring


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[int, range]]:
    """Each column with runs of later columns, so that every pair comes once.

    A run has at most `MAX_CELLS` cells, or a single pair.
    """
    for i, size in enumerate(sizes):
        begin, levels = i + 1, 0
        for j in range(i + 1, len(sizes)):
            if levels and size * (levels + sizes[j]) > MAX_CELLS:
                yield i, range(begin, j)
                begin, levels = j, 0
            levels += sizes[j]
        if levels:
            yield i, range(begin, len(sizes))


def _count(levels: Codes, i: int, later: range, starts: IntArray, size: int) -> IntArray:
    """Counts `[levels of the later columns one after the other, levels of i]`.

    `levels` has shape `[columns, rows]`.
    """
    counts = np.zeros(int(starts[-1]) * size, dtype=np.int64)
    step = max(1, MAX_KEYS // len(later))
    for begin in range(0, levels.shape[1], step):
        rows = slice(begin, begin + step)
        keys = levels[later.start : later.stop, rows] + starts[:-1, None]
        keys *= size
        keys += levels[i, rows]
        counts += np.bincount(keys.ravel(), minlength=len(counts))
    return counts.reshape(-1, size)
