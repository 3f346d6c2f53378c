"""Small contingency tables for pair plots: every column and every pair of a few columns."""

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
OTHERS = "others"

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairPlot:
    """Relative frequencies of the columns `names`.

    `tables[i][j]` has shape `[levels of i, levels of j]`, on the diagonal `[levels of i]`. `ends`
    are what the first and the last level of each column stand for.
    """

    names: tuple[str, ...]
    tables: tuple[tuple[FloatArray, ...], ...]
    ends: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, object]:
        """Plain values of the upper triangle; the lower one is its transpose."""
        size = range(len(self.names))
        return {
            "columns": list(self.names),
            "tables": [[self.tables[i][j].round(6).tolist() for j in size if j >= i] for i in size],
        }


def grid(domain: Domain, codes: Codes, like: Codes) -> tuple[IntArray, tuple[int, ...]]:
    """Coarse levels `[rows, columns]`, at most `MAX_LEVELS` for each column, and their numbers.

    Neighbouring levels of an ordered column are merged. Of categories, the commonest in `like`
    (published rows) stay and the others become one.
    """
    cells = np.zeros((len(codes), len(domain)), dtype=np.int64)
    sizes = []
    for i, column in enumerate(domain.columns):
        cell_of_level = _coarse(column, like[:, i])
        cells[:, i] = cell_of_level[codes[:, i]]
        sizes.append(int(cell_of_level.max()) + 1)
    return cells, tuple(sizes)


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
    """At most `MAX_COLUMNS` of `names`: those of `first`, then the most strongly associated.

    `strengths` `[names, names]` is what `association` returns.
    """
    order = np.argsort(-(strengths.sum(axis=1).round(6)), kind="stable")
    preferred = [n for n in first if n in names]
    ranked = dict.fromkeys([*preferred, *(names[i] for i in order)])
    return tuple(ranked)[:MAX_COLUMNS]


def pair_plot(domain: Domain, codes: Codes, names: Sequence[str], *, like: Codes) -> PairPlot:
    """Relative frequencies of `names` in a table of level codes, shape `[rows, columns]`.

    The table must hold a row. `like` is as in `grid`.
    """
    chosen = Domain(tuple(domain[n] for n in names))
    columns = [domain.index(n) for n in names]
    cells, sizes = grid(chosen, codes[:, columns], like[:, columns])
    size = range(len(names))
    tables = tuple(tuple(_shares(cells, sizes, i, j) for j in size) for i in size)
    ends = tuple(_ends(c, like[:, i]) for c, i in zip(chosen.columns, columns, strict=True))
    return PairPlot(tuple(names), tables, ends)


def _ends(column: ColumnDomain, like: npt.NDArray[np.uint16]) -> tuple[str, str]:
    cells = _coarse(column, like)
    last = int(cells.max())
    merged = not column.ordered and column.levels > MAX_LEVELS
    first = column.labels[int(np.flatnonzero(cells == 0)[0])]
    return first, OTHERS if merged else column.labels[int(np.flatnonzero(cells == last)[-1])]


def _shares(cells: IntArray, sizes: Sequence[int], i: int, j: int) -> FloatArray:
    """Relative frequencies of columns i and j; of one column where i = j."""
    if i == j:
        return np.bincount(cells[:, i], minlength=sizes[i]) / len(cells)
    keys = cells[:, i] * sizes[j] + cells[:, j]
    shares: FloatArray = np.bincount(keys, minlength=sizes[i] * sizes[j]).reshape(
        sizes[i], sizes[j]
    ) / len(cells)
    return shares
