"""Contingency tables of many column sets, counted in one streaming pass over the rows.

Each table is counted chunk by chunk. The pass therefore needs memory for its tables and for one
chunk. A table with few cells is a dense array. A table with many cells keeps only the cells that
occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

CHUNK_ROWS = 1 << 15  # a column's keys of one chunk stay in the second-level cache
DENSE_CELLS = 1 << 18  # one table; above it only the cells that occur are kept
DENSE_TOTAL = 1 << 25  # all tables together: 256 MiB of counters

Chunks = Iterable[npt.NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class CrossTable:
    """Counts of one contingency table.

    `keys` are the numbers of the stored cells, sorted, in C order over `sizes`; None means all
    cells.
    """

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    keys: IntArray | None
    counts: IntArray

    @property
    def total(self) -> int:
        """Number of rows counted."""
        return int(self.counts.sum())

    def occupied(self) -> tuple[IntArray, IntArray]:
        """Keys and counts of the cells that occur, shape `[cells that occur]` each."""
        if self.keys is not None:
            return self.keys, self.counts
        keys = np.flatnonzero(self.counts)
        return keys, self.counts[keys]


def count_tables(
    codes: npt.NDArray[np.integer] | Chunks, sizes: Sequence[int], tables: Sequence[tuple[int, ...]]
) -> tuple[CrossTable, ...]:
    """One `CrossTable` for each tuple of column positions in `tables`.

    `codes` has shape `[rows, columns]`, or is an iterable of such chunks. Each code is a level
    below the column's entry of `sizes`.

    Raises:
        ValueError: a table has more cells than a 64-bit integer can number.

    >>> table, = count_tables(np.array([[0, 1], [0, 1], [1, 0]]), (2, 2), [(0, 1)])
    >>> table.counts
    array([0, 2, 1, 0])
    """
    shapes = [tuple(sizes[c] for c in table) for table in tables]
    counters = [_counter(shape, dense) for shape, dense in zip(shapes, _dense(shapes), strict=True)]
    for chunk in _chunks(codes):
        columns = np.ascontiguousarray(chunk.T, dtype=np.int64)
        for table, shape, counter in zip(tables, shapes, counters, strict=True):
            counter.add(_keys(columns, table, shape))
    return tuple(
        CrossTable(t, s, *c.result()) for t, s, c in zip(tables, shapes, counters, strict=True)
    )


def total_variation(a: CrossTable, b: CrossTable) -> float:
    """Total variation distance of two tables, in [0, 1]; both must hold rows.

    It is half the summed absolute difference of their relative frequencies.
    """
    if a.keys is None and b.keys is None:
        return float(0.5 * np.abs(a.counts / a.total - b.counts / b.total).sum())
    (keys_a, counts_a), (keys_b, counts_b) = a.occupied(), b.occupied()
    _, cell = np.unique(np.concatenate([keys_a, keys_b]), return_inverse=True)
    shares = np.concatenate([counts_a / a.total, -counts_b / b.total])
    return float(0.5 * np.abs(np.bincount(cell, weights=shares)).sum())


def _dense(shapes: Sequence[tuple[int, ...]]) -> list[bool]:
    """For each table, whether a dense array counts it; dense arrays share `DENSE_TOTAL` cells."""
    available, dense = DENSE_TOTAL, []
    for shape in shapes:
        cells = _cells(shape)
        dense.append(cells <= min(DENSE_CELLS, available))
        if dense[-1]:
            available -= cells
    return dense


def _cells(shape: tuple[int, ...]) -> int:
    """Number of cells; raises ValueError beyond 64-bit integers."""
    cells = 1
    for size in shape:
        cells *= size
    if cells > np.iinfo(np.int64).max:
        raise ValueError(
            f"a table of {len(shape)} columns has {cells} cells, more than a 64-bit key can name;"
            " use fewer columns"
        )
    return cells


def _chunks(codes: npt.NDArray[np.integer] | Chunks) -> Iterator[npt.NDArray[np.integer]]:
    if not isinstance(codes, np.ndarray):
        yield from codes
        return
    for start in range(0, len(codes), CHUNK_ROWS):
        yield codes[start : start + CHUNK_ROWS]


def _keys(columns: IntArray, table: tuple[int, ...], shape: tuple[int, ...]) -> IntArray:
    """Number of each row's cell, shape `[rows]`; `columns` has shape `[columns, rows]`."""
    keys: IntArray = columns[table[0]]
    for column, size in zip(table[1:], shape[1:], strict=True):
        keys = keys * size + columns[column]
    return keys


class _Dense:
    """Counts of all cells."""

    def __init__(self, cells: int) -> None:
        self._counts = np.zeros(cells, dtype=np.int64)

    def add(self, keys: IntArray) -> None:
        self._counts += np.bincount(keys, minlength=len(self._counts))

    def result(self) -> tuple[None, IntArray]:
        return None, self._counts


class _Sparse:
    """Counts of the cells that occur."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)

    def add(self, keys: IntArray) -> None:
        new, counts = np.unique(keys, return_counts=True)
        self._keys, cell = np.unique(np.concatenate([self._keys, new]), return_inverse=True)
        weights = np.concatenate([self._counts, counts])
        self._counts = np.bincount(cell, weights=weights, minlength=len(self._keys)).astype(
            np.int64
        )

    def result(self) -> tuple[IntArray, IntArray]:
        return self._keys, self._counts


def _counter(shape: tuple[int, ...], dense: bool) -> _Dense | _Sparse:
    return _Dense(_cells(shape)) if dense else _Sparse()
