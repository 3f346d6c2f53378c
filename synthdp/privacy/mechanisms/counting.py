"""Exact counts of many tables in one pass over the rows, block by block.

Tables of neighbouring columns are counted together: one joint table of their columns is counted,
and each is its sum over the other columns. These are whole numbers, so that the sums are the same
counts, to the last row. Two blocks of eight columns of two levels have 64 pairs, and one joint
table of 65,536 cells counts them all. Memory is that of the joint tables and of one block of rows.
Exact counts never leave the kernel: mechanisms add noise to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain

Columns = tuple[str, ...]
Positions = tuple[int, ...]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

CHUNK_ROWS = 65_536  # a block's columns stay in cache
MAX_CELLS = 1 << 22  # most cells of one table, and of all joint tables: 32 MiB of counts
JOINT_LEVELS = (256, 64, 16)  # most levels of one side of a joint table: the first that fits


def count_tables(
    codes: Unsigned | Iterable[Unsigned], domain: Domain, tables: Sequence[Columns]
) -> list[npt.NDArray[np.int64]]:
    """Counts of each table, shape = levels of its columns; `codes` are levels `[rows, columns]`, or
    blocks of such.

    Raises:
        ValueError: a table names a column twice or has more than `MAX_CELLS` cells.
    """
    sizes = [column.levels for column in domain.columns]
    positions = [tuple(domain.index(c) for c in columns) for columns in tables]
    for columns, own in zip(tables, positions, strict=True):
        if len(set(own)) < len(own):
            raise ValueError(f"table {', '.join(columns)} names a column twice")
        if (cells := _cells(own, sizes)) > MAX_CELLS:
            raise ValueError(
                f"table {', '.join(columns)} has {cells} cells; at most {MAX_CELLS} are allowed"
            )
    blocks = cut(codes)
    first = next(blocks, None)
    joint = _joint(positions, sizes, rows=0 if first is None else len(first))
    counts = {own: np.zeros(_cells(own, sizes), dtype=np.int64) for own in set(joint)}
    for block in chain([] if first is None else [first], blocks):
        for own, cell in _cells_of_rows(np.ascontiguousarray(block.T), sorted(counts), sizes):
            counts[own] += np.bincount(cell, minlength=len(counts[own]))
    return [
        _summed(counts[own].reshape([sizes[c] for c in own]), own, wanted)
        for own, wanted in zip(joint, positions, strict=True)
    ]


def cut(codes: Unsigned | Iterable[Unsigned]) -> Iterator[Unsigned]:
    """Blocks of at most `CHUNK_ROWS` rows."""
    for piece in [codes] if isinstance(codes, np.ndarray) else codes:
        for start in range(0, len(piece), CHUNK_ROWS):
            yield piece[start : start + CHUNK_ROWS]


def _joint(positions: Sequence[Positions], sizes: Sequence[int], *, rows: int) -> list[Positions]:
    """The columns of the joint table that each table is a sum of; of few `rows`, its own columns.

    Columns are cut into runs of few levels together. Tables that touch the same runs have one joint
    table, of the columns that any of them has.
    """
    used = sorted({c for own in positions for c in own})
    for most in JOINT_LEVELS:
        run_of, run, levels = dict[int, int](), 0, 1
        for c in used:
            levels *= sizes[c]
            if levels > most:
                run, levels = run + 1, sizes[c]
            run_of[c] = run
        touched = [frozenset(run_of[c] for c in own) for own in positions]
        columns = dict[frozenset[int], set[int]]()
        for runs, own in zip(touched, positions, strict=True):
            columns.setdefault(runs, set()).update(own)
        joint = {runs: tuple(sorted(own)) for runs, own in columns.items()}
        cells = sum(_cells(own, sizes) for own in joint.values())
        if cells <= min(MAX_CELLS, rows * len(joint)):
            return [joint[runs] for runs in touched]
    return [tuple(sorted(own)) for own in positions]


def _cells(columns: Positions, sizes: Sequence[int]) -> int:
    return math.prod(sizes[c] for c in columns)


def _cells_of_rows(
    levels: Unsigned, tables: Sequence[Positions], sizes: Sequence[int]
) -> Iterator[tuple[Positions, Unsigned]]:
    """For each of the sorted `tables` the number of each row's cell, in the narrowest type that
    holds it. Tables that begin alike share the work for their first columns.
    """
    begun: list[tuple[int, Unsigned]] = []  # columns of the last table, and the cells up to each
    for own in tables:
        pairs = zip(begun, own, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1], pairs))
        del begun[alike:]
        for i, c in enumerate(own[alike:], alike):
            if i == 0:
                begun.append((c, levels[c]))
                continue
            kind = np.uint16 if _cells(own[: i + 1], sizes) <= 1 << 16 else np.uint32
            cell: Unsigned = np.multiply(begun[-1][1], sizes[c], dtype=kind)
            cell += levels[c]
            begun.append((c, cell))
        yield own, begun[-1][1]


def _summed(
    counts: npt.NDArray[np.int64], columns: Positions, wanted: Positions
) -> npt.NDArray[np.int64]:
    """The table of the columns `wanted`, in their order, of a joint one of `columns`."""
    if columns == wanted:
        return counts
    others = tuple(axis for axis, c in enumerate(columns) if c not in wanted)
    left = [c for c in columns if c in wanted]
    order = [left.index(c) for c in wanted]
    return np.ascontiguousarray(counts.sum(axis=others).transpose(order))
