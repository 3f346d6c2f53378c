"""What an engine is to the kernel: a table that can be counted and sampled, and cannot be seen.

An engine answers: a survey (how many rows, what does not fit), exact counts of tables of levels,
sums of what rows add (`mechanisms.adding`), and the levels of a secret sample. A row's levels and
numbers are those of `data.encoding.encode_column` in each of them. What it says goes where
in-memory counts go: to the mechanisms, which add noise. A few rows with their values are drawn for
the steward alone, who judges by them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError, DataError, SynthdpError
from synthdp.privacy.mechanisms.adding import Side, Summands
from synthdp.privacy.mechanisms.counting import MAX_CELLS, Columns
from synthdp.privacy.noise import Randomness, Streams
from synthdp.privacy.table import Table

T = TypeVar("T")
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """What is read of each row, all of it public but the key.

    `names` has the source's name of each column of the domain, and of `id_column`. A unit with ids
    has at most `max_rows` rows, chosen by `key`, and each unit is held out with chance `holdout` by
    a coin under the key `coins` (`bounding`).
    """

    domain: Domain
    names: Mapping[str, str]
    id_column: str | None = None
    max_rows: int = 1
    key: str = field(default="", repr=False)
    holdout: float = 0.0
    coins: str = field(default="", repr=False)

    def only(self, names: Collection[str]) -> Reading:
        """What must be read for some columns: these, at least one, or all where ids are bounded.

        Which rows of an id are kept depends on all that mechanisms see of them.
        """
        if self.id_column is not None:
            return self
        found = tuple(c for c in self.domain.columns if c.name in names)
        return replace(self, domain=Domain(found or self.domain.columns[:1]))

    def of(self, groups: LevelGroups, tables: Sequence[Columns]) -> tuple[Reading, LevelGroups]:
        """What must be read to count `tables`."""
        reading = self.only({name for columns in tables for name in columns})
        if reading is self:
            return self, groups
        starts = {n: s for n, s in groups.starts.items() if n in reading.domain.names}
        return reading, LevelGroups(reading.domain, starts)


@dataclass(frozen=True)
class Survey:
    """What does not fit, before any row is bounded (confidential).

    `misfits` is `[columns, 3]`: wrong type, outside the domain, unexpectedly missing.
    """

    rows: int
    without_id: int
    misfits: Integers

    @classmethod
    def of(cls, numbers: Integers) -> Survey:
        """The survey of its numbers `[2 + 3 columns]`."""
        return cls(int(numbers[0]), int(numbers[1]), numbers[2:].reshape(-1, 3))


Rows = tuple[Codes, pd.DataFrame, npt.NDArray[np.bool_]]
"""Levels `[rows, columns]`, cleaned values by column, and which rows are held out."""


class Engine(Protocol):
    """Where the rows lie. Its errors never quote a row: see `source._guarded`."""

    def survey(self) -> Survey:
        """Look at every row once."""
        ...

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """Rows of each cell of each table, of the groups of levels, after units are bounded; none
        that is held out.
        """
        ...

    def add_up(self, what: Summands, side: Side) -> Integers:
        """The sum `[what.size]` over the rows of a side, after units are bounded."""
        ...

    def draw(self, most: int) -> Rows:
        """A uniformly random sample of at most `most` rows, held out or not, after units are
        bounded; of all rows where they are no more. It stays with the steward.
        """
        ...

    def sample(self, rate: float, randomness: Randomness) -> Codes:
        """Levels of the rows of some units, each drawn by an independent coin of chance `rate`;
        none that is held out.

        The coins of one call are independent of those of any other.
        """
        ...


def check_cells(groups: LevelGroups, tables: Sequence[Columns]) -> None:
    """Refuse a table of more cells than are counted.

    Raises:
        ValueError: there is one.
    """
    for columns in tables:
        if groups.coarse.cells(columns) > MAX_CELLS:
            raise ValueError(f"table {', '.join(columns)} has more than {MAX_CELLS} cells")


class EngineTable(Table):
    """A table whose rows stay where they are.

    A training or a search that looks at rows gets the levels of those that are not held out, of a
    byte or two for each value; a training on a secret sample gets those of the sample. What is
    added up is added up in the engine. What asks for values gets an error that is a bug of ours:
    `spec.checks.engine` refuses a spec that would ask.
    """

    def __init__(self, engine: Engine, misfits: dict[str, dict[str, int]]) -> None:
        object.__setattr__(self, "_engine", engine)
        object.__setattr__(self, "misfits", misfits)

    def _away(self) -> NoReturn:
        raise BoundaryError("the rows of this table lie in an engine, which keeps no values")

    codes = property(_away)
    frame = property(_away)
    held_out = property(_away)

    @property
    def fit_codes(self) -> Codes:
        """Levels of all rows that stay, after units are bounded: fetched each time."""
        return self.sampled_codes(1.0, Streams.fresh())

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By the engine.

        Raises:
            DataError: it broke off. What it said is left out, since it may quote a row.
        """
        check_cells(groups, tables)
        engine: Engine = self._engine  # type: ignore[attr-defined]
        return _quiet(lambda: engine.count(groups, tables)) if tables else []

    def add_up(self, what: Summands, side: Side = "fit") -> Integers:
        """By the engine.

        Raises:
            DataError: as `count` does.
        """
        engine: Engine = self._engine  # type: ignore[attr-defined]
        nothing = np.zeros(0, dtype=np.int64)
        return _quiet(lambda: engine.add_up(what, side)) if what.size else nothing

    def judged(self, most: int) -> Table:
        """A uniformly random sample of at most `most` rows, with those that are held out.

        Raises:
            DataError: as `count` does.
        """
        engine: Engine = self._engine  # type: ignore[attr-defined]
        return Table(*_quiet(lambda: engine.draw(most)), self.misfits)

    def sampled_codes(self, rate: float, randomness: Randomness) -> Codes:
        """Levels `[rows drawn, columns]`: each unit in or out as a whole, by a fresh coin.

        Each call draws coins of its own.

        Raises:
            DataError: the engine broke off.
        """
        engine: Engine = self._engine  # type: ignore[attr-defined]
        return _quiet(lambda: engine.sample(rate, randomness))


def _quiet(ask: Callable[[], T]) -> T:
    """What `ask` gives; of an error of a library its kind alone."""
    try:
        return ask()
    except SynthdpError:
        raise
    except Exception as error:
        kind = type(error).__name__
    raise DataError(
        f"the engine broke off ({kind})",
        hint="see that it runs, and that the table is where it was; then resume",
    )


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that a database cannot tell apart, or not from those of our statements.

    Raises:
        DataError: two names are the same but for capitals, or one begins with synthdp_.
    """
    folded = [name.casefold() for name in names]
    if len(set(folded)) < len(names) or any(name.startswith("synthdp_") for name in folded):
        raise DataError(
            "compute.engine sql cannot tell columns of the source apart whose names differ in"
            " capitals alone, nor one whose name begins with synthdp_ from its own",
            hint="rename it in the source",
        )


def empty_counts(groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
    """Zeros of the shapes of `tables`, to be added to."""
    coarse = groups.coarse
    return [np.zeros([coarse[c].levels for c in columns], dtype=np.int64) for columns in tables]
