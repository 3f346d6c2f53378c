"""Noisy marginals: counts of public tables plus discrete Gaussian noise.

A mechanism is one frozen object that counts, adds the noise and states its event from the same fields, so
noise and accounting cannot disagree. Fields are public; rows are only ever an argument of `run`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.accounting import DiscreteGaussianDpEvent
from synthdp.privacy.noise import Streams, discrete_gaussian
from synthdp.privacy.source import Table

Columns = tuple[str, ...]
Arrays = dict[str, npt.NDArray[Any]]
T_co = TypeVar("T_co", covariant=True)

CHUNK_ROWS = 65_536  # counting works on blocks that stay in cache
MAX_CELLS = 1 << 22  # most cells of one table: 32 MiB of counts
MAX_DRAWS = 1 << 18  # most noise samples that filling unused slots may cost


class Mechanism(Protocol[T_co]):
    """What a session can release."""

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        ...

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """What running it once does to a unit of at most `rows_per_unit` rows."""
        ...

    def run(self, table: Table, streams: Streams) -> T_co:
        """Look at the rows. Called by the session alone, after the charge."""
        ...

    def pack(self, value: Any) -> Arrays:
        """What `run` returned, as named arrays for the run's journal."""
        ...

    def unpack(self, arrays: Arrays) -> T_co:
        """The value that `pack` was given."""
        ...


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A released table: true counts plus noise of standard deviation `sigma` per cell; may be negative.

    `counts` has one axis per column, of that column's levels.
    """

    columns: Columns
    counts: npt.NDArray[np.float64]
    sigma: float


@dataclass(frozen=True)
class NoisyMarginals:
    """Count each table of `tables` and add discrete Gaussian noise of parameter `sigma` to every cell.

    Sensitivity [derived here]: a row lies in exactly one cell of a table. Adding or removing a unit of k rows
    changes the counts of one table by k in L1 and at most k in L2, reached when all its rows share a cell;
    replacing it does that twice. `m` tables are `m` such mechanisms run one after the other.
    """

    domain: Domain
    tables: tuple[Columns, ...]
    sigma: float

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return f"discrete Gaussian, sigma {self.sigma:.4g}, on {len(self.tables)} tables"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """`len(tables)` discrete Gaussians of sensitivity `rows_per_unit`."""
        return dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(self.sigma, rows_per_unit), len(self.tables))

    def run(self, table: Table, streams: Streams) -> tuple[NoisyTable, ...]:
        """Count all tables in one pass, then add the noise."""
        counted = count_tables(table.fit_codes, self.domain, self.tables)
        return tuple(
            NoisyTable(columns, discrete_gaussian(counts, sigma=self.sigma).astype(np.float64), self.sigma)
            for columns, counts in zip(self.tables, counted, strict=True)
        )

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """Counts in the order of `tables`."""
        return _pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """Tables from their counts."""
        return _unpack(arrays, self.tables, self.sigma)


@dataclass(frozen=True)
class TableSlots:
    """Room for `slots` noisy tables of fixed noise, filled later with tables chosen from earlier releases.

    The event is fixed when the plan is made and does not depend on what is chosen: always `slots` discrete
    Gaussians of parameter `sigma`. Where fewer tables are chosen, each is measured several times and
    averaged, so its noise falls as if the budget had been shared out anew.
    """

    domain: Domain
    slots: int
    sigma: float

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return f"discrete Gaussian, sigma {self.sigma:.4g}, {self.slots} table slots"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """`slots` discrete Gaussians of sensitivity `rows_per_unit`, whatever is chosen."""
        return dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(self.sigma, rows_per_unit), self.slots)

    def choose(self, tables: Sequence[Columns]) -> ChosenTables:
        """Fill the slots with `tables` (at most `slots` of them), chosen from public or released facts."""
        return ChosenTables(self, tuple(tables))


@dataclass(frozen=True)
class ChosenTables:
    """`TableSlots` with its tables chosen; same event, so it is paid for by the planned spend."""

    slots: TableSlots
    tables: tuple[Columns, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.tables) <= self.slots.slots:
            raise ValueError(f"{len(self.tables)} tables for {self.slots.slots} slots")

    @property
    def name(self) -> str:
        """Name for the ledger: that of the slots, since the choice changes nothing that is charged."""
        return self.slots.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """The event of the slots."""
        return self.slots.event(rows_per_unit)

    @property
    def repeats(self) -> int:
        """How often each table is measured: as often as the slots allow and sampling time permits."""
        cells = sum(self.slots.domain.cells(t) for t in self.tables)
        return max(1, min(self.slots.slots // len(self.tables), MAX_DRAWS // cells))

    def run(self, table: Table, streams: Streams) -> tuple[NoisyTable, ...]:
        """Measure each chosen table `repeats` times and average."""
        counted = count_tables(table.fit_codes, self.slots.domain, self.tables)
        return tuple(NoisyTable(c, self._average(n), self.sigma) for c, n in zip(self.tables, counted, strict=True))

    @property
    def sigma(self) -> float:
        """Noise of each chosen table after averaging."""
        return self.slots.sigma / math.sqrt(self.repeats)

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """Counts in the order of `tables`."""
        return _pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """Tables from their counts."""
        return _unpack(arrays, self.tables, self.sigma)

    def _average(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        draws = [discrete_gaussian(counts, sigma=self.slots.sigma) for _ in range(self.repeats)]
        mean: npt.NDArray[np.float64] = np.mean(draws, axis=0)
        return mean


def _pack(tables: tuple[NoisyTable, ...]) -> Arrays:
    return {f"{i:06d}": t.counts for i, t in enumerate(tables)}


def _unpack(arrays: Arrays, tables: tuple[Columns, ...], sigma: float) -> tuple[NoisyTable, ...]:
    return tuple(NoisyTable(columns, arrays[f"{i:06d}"], sigma) for i, columns in enumerate(tables))


def count_tables(codes: Codes, domain: Domain, tables: Sequence[Columns]) -> list[npt.NDArray[np.int64]]:
    """Exact counts of each table, shape = levels of its columns, in one pass over `codes` `[rows, columns]`."""
    shapes = [tuple(domain[c].levels for c in columns) for columns in tables]
    for columns, shape in zip(tables, shapes, strict=True):
        if math.prod(shape) > MAX_CELLS:
            raise ValueError(f"table {', '.join(columns)} has {math.prod(shape)} cells; at most {MAX_CELLS} are allowed")
    positions = [[domain.index(c) for c in columns] for columns in tables]
    totals = [np.zeros(math.prod(shape), dtype=np.int64) for shape in shapes]
    for start in range(0, len(codes), CHUNK_ROWS):
        block = np.ascontiguousarray(codes[start : start + CHUNK_ROWS].T).astype(np.intp)
        for total, position, shape in zip(totals, positions, shapes, strict=True):
            cell = block[position[0]]
            for axis, size in zip(position[1:], shape[1:], strict=True):
                cell = cell * size + block[axis]
            total += np.bincount(cell, minlength=len(total))
    return [total.reshape(shape) for total, shape in zip(totals, shapes, strict=True)]
