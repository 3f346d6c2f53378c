"""Several mechanisms that look at a table in one pass over its rows.

An engine reads its table anew for each question. What planned tables and sums will ask is known
before: it is asked together, once, and each mechanism then finds its own answer in a table that
knows nothing else. So each of them adds the noise and states the event that it has alone, and is
charged by itself; what is joined is the exact sums before any noise, which do not leave the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError
from synthdp.privacy.mechanisms.adding import Integers, Side, Summands
from synthdp.privacy.mechanisms.counting import Columns
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.mechanisms.product_sums import SumMechanism
from synthdp.privacy.table import Table

MAX_CELLS = 1 << 16
"""Of tables that are added up beside sums, block by block; larger ones take a pass of their own."""


@dataclass(frozen=True)
class CellsOf(Summands):
    """The indicators of the cells of a table of levels, whose sum is its counts."""

    domain: Domain
    columns: Columns

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(self.domain[name].levels for name in self.columns)

    @property
    def reads(self) -> frozenset[str]:
        """The table's columns."""
        return frozenset(self.columns)

    @property
    def size(self) -> int:
        """Cells."""
        return math.prod(self.shape)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """Rows of each cell, `[size]`."""
        cell = np.zeros(len(codes), dtype=np.int64)
        for name, levels in zip(self.columns, self.shape, strict=True):
            cell = cell * levels + codes[:, self.domain.index(name)]
        return np.bincount(cell, minlength=self.size).astype(np.int64)


@dataclass(frozen=True)
class Joined(Summands):
    """Several vectors that rows add to, one after the other."""

    parts: tuple[Summands, ...]

    @property
    def reads(self) -> frozenset[str]:
        """Columns of any."""
        return frozenset().union(*(part.reads for part in self.parts))

    @property
    def size(self) -> int:
        """Of all."""
        return sum(part.size for part in self.parts)

    def block(self, frame: Any, codes: Codes) -> Integers:
        """What some rows add to each, `[size]`."""
        return np.concatenate([part.block(frame, codes) for part in self.parts])

    def cut(self, total: Integers) -> list[Integers]:
        """The sum of each, of that of all."""
        return np.split(total, list(accumulate(part.size for part in self.parts))[:-1])


class Seen(Table):
    """Exact answers that some mechanisms will ask for, and no rows."""

    def __init__(self, counts: dict[Columns, Integers], sums: list[tuple[Summands, Integers]]):
        object.__setattr__(self, "_counts", counts)
        object.__setattr__(self, "_sums", sums)
        object.__setattr__(self, "misfits", {})

    def _away(self) -> NoReturn:
        raise BoundaryError("a mechanism asks for more than was looked at for it")

    codes = property(_away)
    frame = property(_away)
    held_out = property(_away)
    fit_codes = property(_away)

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """Copies of the counts.

        Raises:
            BoundaryError: other tables, or groups of levels.
        """
        known: dict[Columns, Integers] = self._counts  # type: ignore[attr-defined]
        if groups.starts or any(columns not in known for columns in tables):
            self._away()
        return [known[columns].copy() for columns in tables]

    def add_up(self, what: Summands, side: Side = "fit") -> Integers:
        """A copy of the sum.

        Raises:
            BoundaryError: another one.
        """
        known: list[tuple[Summands, Integers]] = self._sums  # type: ignore[attr-defined]
        for own, total in known:
            if own is what and side == "fit":
                return total.copy()
        self._away()

    def sampled_codes(self, rate: float, randomness: Any) -> NoReturn:
        """Never."""
        self._away()


def tables_for(table: Table, mechanisms: Sequence[Mechanism[Any]]) -> list[Table]:
    """For each mechanism the table to run it on: what was seen for all of them in one pass, or
    `table` itself for one that is not known to ask for counts and sums alone. For the kernel, after
    the charge of each.

    One pass over an engine's table: of counts where there are only tables, else of sums; and one
    more for tables of more than `MAX_CELLS` cells beside sums.
    """
    sums = [m for m in mechanisms if isinstance(m, SumMechanism)]
    marginals = [m for m in mechanisms if isinstance(m, NoisyMarginals)]
    if len(sums) + len(marginals) < 2:
        return [table] * len(mechanisms)
    domain = (sums + marginals)[0].domain
    wanted = [CellsOf(domain, c) for c in dict.fromkeys(c for m in marginals for c in m.tables)]
    beside = [own for own in wanted if sums and own.size <= MAX_CELLS]
    alone = [own.columns for own in wanted if own not in beside]
    counts: dict[Columns, Integers] = {}
    if alone:
        counts |= zip(alone, table.count(LevelGroups(domain, {}), alone), strict=True)
    totals = list[Integers]()
    if sums:
        joined = Joined((*sums, *beside))
        totals = joined.cut(table.add_up(joined))
        for own, total in zip(beside, totals[len(sums) :], strict=True):
            counts[own.columns] = total.reshape(own.shape)
    seen = Seen(counts, list(zip(sums, totals[: len(sums)], strict=True)))
    return [seen if isinstance(m, SumMechanism | NoisyMarginals) else table for m in mechanisms]
