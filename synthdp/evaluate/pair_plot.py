"""Small tables for pair plots: every column and every pair of a few columns, on a grid that an eye
can take in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.counting import FloatArray
from synthdp.evaluate.pairs import compare_pairs

MAX_COLUMNS, MAX_LEVELS = 10, 12

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairPlot:
    """Shares of the columns `names`. `tables[i][j]` has shape `[levels of i, levels of j]`, on the
    diagonal `[levels of i]`.
    """

    names: tuple[str, ...]
    tables: tuple[tuple[FloatArray, ...], ...]

    def to_json(self) -> dict[str, object]:
        """Plain values: the upper triangle, since the lower one says the same."""
        size = range(len(self.names))
        return {
            "columns": list(self.names),
            "tables": [[self.tables[i][j].round(6).tolist() for j in size if j >= i] for i in size],
        }


def grid(domain: Domain, codes: Codes, like: Codes) -> tuple[IntArray, tuple[int, ...]]:
    """Levels `[rows, columns]` of at most `MAX_LEVELS`, and how many each column has.

    Neighbours of an ordered column are put together; of categories the commonest in `like`
    (published rows) stay and the others are one.
    """
    maps = [_coarse(column, like[:, i]) for i, column in enumerate(domain.columns)]
    cells = (
        np.column_stack([own[codes[:, i]] for i, own in enumerate(maps)])
        if len(codes)
        else np.zeros((0, len(domain)), dtype=np.int64)
    )
    return cells, tuple(int(own.max()) + 1 for own in maps)


def _coarse(column: ColumnDomain, like: npt.NDArray[np.uint16]) -> IntArray:
    """The cell of each level, shape `[levels]`."""
    levels = np.arange(column.levels)
    if column.levels <= MAX_LEVELS:
        return levels
    if column.ordered:
        return levels * MAX_LEVELS // column.levels
    order = np.argsort(-np.bincount(like, minlength=column.levels), kind="stable")
    kept = np.sort(order[: MAX_LEVELS - 1])
    cells = np.full(column.levels, MAX_LEVELS - 1)
    cells[kept] = np.arange(len(kept))
    return cells


def association(cells: IntArray, sizes: Sequence[int]) -> FloatArray:
    """Cramér's V of all pairs of columns of a grid, shape `[columns, columns]`."""
    return compare_pairs(cells, cells, sizes).association[0]


def most_connected(
    names: Sequence[str], strengths: FloatArray, *, first: Sequence[str]
) -> tuple[str, ...]:
    """At most `MAX_COLUMNS` of `names`, those of `first` before the ones with the strongest
    associations; `strengths` as `association` gives.
    """
    order = np.argsort(-(strengths.sum(axis=1).round(6)), kind="stable")
    ranked = dict.fromkeys([*(n for n in first if n in names), *(names[i] for i in order)])
    return tuple(ranked)[:MAX_COLUMNS]


def pair_plot(domain: Domain, codes: Codes, names: Sequence[str], *, like: Codes) -> PairPlot:
    """Shares of a table of level codes, shape `[rows, columns]`, over `names`; it must hold a row.
    `like` as in `grid`.
    """
    chosen = Domain(tuple(domain[n] for n in names))
    columns = [domain.index(n) for n in names]
    cells, sizes = grid(chosen, codes[:, columns], like[:, columns])
    return PairPlot(
        tuple(names),
        tuple(
            tuple(_shares(cells, sizes, i, j) for j in range(len(names))) for i in range(len(names))
        ),
    )


def _shares(cells: IntArray, sizes: Sequence[int], i: int, j: int) -> FloatArray:
    if i == j:
        return np.bincount(cells[:, i], minlength=sizes[i]) / len(cells)
    keys = cells[:, i] * sizes[j] + cells[:, j]
    shares: FloatArray = np.bincount(keys, minlength=sizes[i] * sizes[j]).reshape(
        sizes[i], sizes[j]
    ) / len(cells)
    return shares
