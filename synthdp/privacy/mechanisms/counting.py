"""Exact counts of many tables in one pass over the rows, block by block.

Memory is that of the counts and of one block. Inside a block a row's cell number is built in the
narrowest type that holds it, and tables that share their first columns share the work for these.
Exact counts never leave the kernel: mechanisms add noise to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain

Columns = tuple[str, ...]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

CHUNK_ROWS = 65_536  # a block's columns stay in cache
MAX_CELLS = 1 << 22  # most cells of one table: 32 MiB of counts


def count_tables(
    codes: Unsigned | Iterable[Unsigned], domain: Domain, tables: Sequence[Columns]
) -> list[npt.NDArray[np.int64]]:
    """Counts of each table, shape = levels of its columns; `codes` are levels `[rows, columns]`, or
    blocks of such.
    """
    shapes = [tuple(domain[c].levels for c in columns) for columns in tables]
    for columns, shape in zip(tables, shapes, strict=True):
        if math.prod(shape) > MAX_CELLS:
            raise ValueError(
                f"table {', '.join(columns)} has {math.prod(shape)} cells; at most {MAX_CELLS} are"
                " allowed"
            )
    counts = [np.zeros(math.prod(shape), dtype=np.int64) for shape in shapes]
    positions = [tuple(domain.index(c) for c in columns) for columns in tables]
    order = sorted(
        range(len(tables)), key=positions.__getitem__
    )  # tables that begin alike follow each other
    for block in cut(codes):
        levels = np.ascontiguousarray(block.T)
        last: tuple[int, ...] | None = None
        for i in order:
            *head, tail = positions[i]
            if tuple(head) != last:
                last, base = tuple(head), _cell(levels, head, shapes[i])
            kind = _narrowest(len(counts[i]))
            cell: Unsigned = (
                np.multiply(base, shapes[i][-1], dtype=kind) + levels[tail]
                if head
                else levels[tail]
            )
            counts[i] += np.bincount(cell, minlength=len(counts[i]))
    return [total.reshape(shape) for total, shape in zip(counts, shapes, strict=True)]


def cut(codes: Unsigned | Iterable[Unsigned]) -> Iterator[Unsigned]:
    """Unsigneds of at most `CHUNK_ROWS` rows."""
    for piece in [codes] if isinstance(codes, np.ndarray) else codes:
        for start in range(0, len(piece), CHUNK_ROWS):
            yield piece[start : start + CHUNK_ROWS]


def _cell(levels: Unsigned, head: Sequence[int], shape: tuple[int, ...]) -> Unsigned:
    """Cell number of each row over the columns at the positions `head`, the first of a table of
    `shape`.
    """
    kind = _narrowest(math.prod(shape[: len(head)]))
    cell: Unsigned = np.zeros(levels.shape[1], dtype=kind)
    for position, size in zip(head, shape[: len(head)], strict=True):
        cell *= kind(size)
        cell += levels[position]
    return cell


def _narrowest(cells: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if cells <= 1 << 16 else np.uint32
