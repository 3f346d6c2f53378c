"""A table of rows, as mechanisms get it. Rows come from `source`, sealed; only the kernel opens
them.

Counting (`count_tables`): exact counts of many tables in one pass over the rows, block by block.
Tables of neighbouring columns are counted together: one joint table of their columns is counted,
and each is its sum over the other columns. These are whole numbers, so that the sums are the same
counts, to the last row. Two blocks of eight columns of two levels have 64 pairs, and one joint
table of 65,536 cells counts them all. Memory is that of the joint tables and of one block of rows.
Exact counts never leave the kernel: mechanisms add noise to them.

Adding (`added`): sums over rows of vectors of whole numbers, which moments and the sums of
estimands are made of. What a row adds is computed of its own levels and numbers alone, and is
whole. So the sum over a table is that over its blocks, whichever they are and in whatever order: in
memory, or where an engine has the rows (`privacy.engines`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.privacy.noise import Randomness


@dataclass(frozen=True, repr=False)
class Table:
    """Rows inside the seal: levels `[rows, columns]`, cleaned values, which rows are held out,
    misfits by column, and the number of each row's unit `[rows]`, None where a row is a unit.
    """

    codes: Codes
    frame: pd.DataFrame
    held_out: npt.NDArray[np.bool_]
    misfits: dict[str, dict[str, int]]
    units: npt.NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return "<Table>"  # tracebacks and debuggers print what repr says

    @property
    def fit_codes(self) -> Codes:
        """Levels of the rows that mechanisms see."""
        return self.codes[~self.held_out] if self.held_out.any() else self.codes

    @property
    def fit_units(self) -> npt.NDArray[np.int64] | None:
        """The number of the unit of each of `fit_codes`; None where a row is a unit."""
        return None if self.units is None else self.units[~self.held_out]

    def sampled_codes(self, rate: float, randomness: Randomness) -> Codes:
        """Levels of a secret sample of the rows that mechanisms see: each unit is in or out as a
        whole, by one coin of chance `rate`. Who is in it, and how many, must not get out.
        """
        codes, units = self.fit_codes, self.fit_units
        if units is None:
            return codes[randomness.secret_sample(len(codes), rate=rate)]
        different, unit = np.unique(units, return_inverse=True)
        joined = np.zeros(len(different), dtype=bool)
        joined[randomness.secret_sample(len(different), rate=rate)] = True
        return codes[joined[unit]]

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[npt.NDArray[np.int64]]:
        """Exact counts of the rows that mechanisms see, one array for each of `tables`.

        Each has an axis for each of its columns, of that column's groups of levels. Exact counts
        never leave the kernel. A table whose rows lie elsewhere counts them there
        (`privacy.engines`).
        """
        codes = self.fit_codes
        return count_tables(
            map(groups.of, cut(codes)) if groups.starts else codes, groups.coarse, tables
        )

    def judged(self, most: int) -> Table:
        """What a steward's evaluation looks at: this table; of one whose rows lie in an engine a
        random sample of at most `most` of them.
        """
        return self

    def add_up(self, what: Summands, side: Side = "fit") -> npt.NDArray[np.int64]:
        """Exact sum `[what.size]` over the rows of a side. It never leaves the kernel but for the
        steward.
        """
        chosen = self.held_out if side == "held out" else ~self.held_out
        rows = None if side == "all" else np.flatnonzero(chosen)
        return added(what, self.frame, self.codes, rows)


# --- counting ---


Columns = tuple[str, ...]
Positions = tuple[int, ...]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]

CHUNK_ROWS = 65_536  # a block's columns stay in cache
MAX_CELLS = 1 << 22  # most cells of one table, and of all joint tables: 32 MiB of counts


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
    for most in (256, 64, 16):  # most levels of one side of a joint table: the first that fits
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


# --- adding ---


Integers = npt.NDArray[np.int64]
Side = Literal["fit", "held out", "all"]
"""Of the rows: those that mechanisms see, those that are held out from them, or both."""

CHUNK_OF_NUMBERS = 16_384  # a block's numbers stay in memory


class Summands(Protocol):
    """What each row adds."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns whose levels or numbers it reads."""
        ...

    @property
    def size(self) -> int:
        """Length of the sum."""
        ...

    def block(self, frame: pd.DataFrame, codes: Codes) -> Integers:
        """What some rows add together, `[size]`, at most `CHUNK_ROWS` of them.

        `frame` has the cleaned values of ranges by column, and `codes` levels `[rows, columns of
        the domain]`; those of columns that are not read may be any.
        """
        ...


def added(
    what: Summands, frame: pd.DataFrame, codes: Codes, rows: npt.NDArray[np.intp] | None = None
) -> Integers:
    """The sum over the rows at the positions `rows` (default: all), `[size]`, without noise: inside
    the kernel only.
    """
    chosen = np.arange(len(codes)) if rows is None else rows
    total = np.zeros(what.size, dtype=np.int64)
    for start in range(0, len(chosen), CHUNK_OF_NUMBERS):
        block = chosen[start : start + CHUNK_OF_NUMBERS]
        total += what.block(frame.iloc[block], codes[block])
    return total
