"""What an engine is to the kernel: a table that can be counted and sampled, and cannot be seen.

An engine answers: a survey (how many rows, what does not fit), exact counts of tables of levels,
sums of what rows add (`table.Summands`), and the levels of a secret sample. A row's levels and
numbers are those of `data.encoding.encode_column` in each of them. What it says goes where
in-memory counts go: to the mechanisms, which add noise. A few rows with their values are drawn for
the steward alone, who judges by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, EncodedColumn
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError, DataError, by_kind
from synthdp.privacy.noise import Randomness, Streams
from synthdp.privacy.table import MAX_CELLS, Columns, Side, Summands, Table

T = TypeVar("T")
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """What is read of each row, all of it public but the key.

    `names` has the source's name of each column of the domain, and of `id_column`. A unit with ids
    has at most `max_rows` rows, chosen by `key`, and each unit is held out with chance `holdout` by
    a coin under the key `coins` (`kept_rows`).
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

    def by_column(self, domain: Domain) -> dict[str, EncodedColumn]:
        """The misfits of each column, without levels."""
        nothing, found = np.zeros(0, np.uint16), self.misfits.tolist()
        return {
            name: EncodedColumn(nothing, *own)
            for name, own in zip(domain.names, found, strict=True)
        }


Rows = tuple[Codes, pd.DataFrame, npt.NDArray[np.bool_]]
"""Levels `[rows, columns]`, cleaned values by column, and which rows are held out."""


class Engine(Protocol):
    """Where the rows lie. Its errors never quote a row: see `source.guarded`."""

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

    def units(self) -> Integers | None:
        """The number of the unit of each row that `sample` gives at the rate 1, in its order; None
        where a row is a unit.
        """
        ...


class EngineTable(Table):
    """A table whose rows stay where they are.

    A training or a search that looks at rows gets the levels of those that are not held out, of a
    byte or two for each value; a training on a secret sample gets those of the sample. What is
    added up is added up in the engine. What asks for values gets an error that is a bug of ours:
    `spec.checks.dataset` refuses a spec that would ask.
    """

    _engine: Engine

    def __init__(self, engine: Engine, misfits: dict[str, dict[str, int]]) -> None:
        object.__setattr__(self, "_engine", engine)
        object.__setattr__(self, "misfits", misfits)

    def _away(self) -> NoReturn:
        raise BoundaryError("the rows of this table lie in an engine, which keeps no values")

    codes = property(_away)
    frame = property(_away)
    held_out = property(_away)
    units = property(_away)

    @property
    def fit_codes(self) -> Codes:
        """Levels of all rows that stay, after units are bounded: fetched each time."""
        return self.sampled_codes(1.0, Streams.fresh())

    @property
    def fit_units(self) -> Integers | None:
        """The number of the unit of each of `fit_codes`, by another pass; None where a row is one.

        Raises:
            DataError: as `count` does.
        """
        return self._asked(self._engine.units)

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By the engine.

        Raises:
            ValueError: a table has more cells than are counted.
            DataError: it broke off, or a file changed that has coins by place. What it said is left
                out, since it may quote a row.
        """
        for columns in tables:
            if groups.coarse.cells(columns) > MAX_CELLS:
                raise ValueError(f"table {', '.join(columns)} has more than {MAX_CELLS} cells")
        return self._asked(lambda: self._engine.count(groups, tables)) if tables else []

    def add_up(self, what: Summands, side: Side = "fit") -> Integers:
        """By the engine.

        Raises:
            DataError: as `count` does.
        """
        nothing = np.zeros(0, dtype=np.int64)
        return self._asked(lambda: self._engine.add_up(what, side)) if what.size else nothing

    def judged(self, most: int) -> Table:
        """A uniformly random sample of at most `most` rows, with those that are held out.

        Raises:
            DataError: as `count` does.
        """
        return Table(*self._asked(lambda: self._engine.draw(most)), self.misfits)

    def sampled_codes(self, rate: float, randomness: Randomness) -> Codes:
        """Levels `[rows drawn, columns]`: each unit in or out as a whole, by a fresh coin.

        Each call draws coins of its own.

        Raises:
            DataError: the engine broke off.
        """
        return self._asked(lambda: self._engine.sample(rate, randomness))

    def _asked(self, ask: Callable[[], T]) -> T:
        """What `ask` gives; of an error of a library its kind alone."""
        hint = "see that it runs, and that the table is where it was; then resume"
        found = by_kind(ask, "the engine broke off", hint)
        if parts := getattr(self._engine, "parts", None):
            parts.check_same()
        return found


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


# --- bounding ---


Ids = npt.NDArray[np.object_]
COIN_BITS = 60  # of a unit's coin: a rate is rounded to multiples of 2^-60


def place(key: str, number: int, levels: Iterable[int], unit: str) -> str:
    """The place of the row (`levels`, `number`) of `unit`: 64 hexadecimal digits."""
    text = f"{key}|{number}|{','.join(map(str, levels))}|{unit}"
    return hashlib.sha256(text.encode()).hexdigest()


def kept_rows(
    ids: Ids,
    codes: Codes,
    *,
    max_rows: int,
    key: str,
    numbers: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.bool_]:
    """Which rows stay, `[rows]`; `ids` are texts (`column_domain.id_text`), `codes` all levels, and
    `numbers` those of all ranges `[rows, ranges]`, where they are added up.

    All rows of an id must be there.

    At most `max_rows` rows of each id, chosen by a keyed hash: the same rows in every engine.

    A row is what mechanisms see of it: its levels l, and where they add up numbers, those of its
    ranges, x. The rows of one id u with the same levels are numbered j = 1, 2, ..., by x where
    numbers are added up, and else in any order. A row's place is sha256(key | j | l | u), and the
    `max_rows` rows of u with the smallest places stay.

    Neighbours stay neighbours [derived here]. The pairs (l, j) of u are a function of the multiset
    of u's own rows: if m of them have the levels l, they are (l, 1), ..., (l, m), whichever row has
    which number. So the places of u, and the multiset of levels that stays, are functions of u's
    rows and of the key. With numbers the same is true of the triples (l, j, x), since x orders the
    rows of one l up to such as are equal. Equal rows cannot be told apart by what mechanisms see,
    so that it does not matter which of them stays; no tie is broken by another id, by the order of
    rows, or by which partition is read first. A unit more or less therefore adds or takes its own
    at most `max_rows` rows, and no other row comes or goes. This holds for each key. Rows that are
    counted and rows that are added up have the same levels, since their pairs (l, j) are the same.
    That the key is secret serves fairness: places look uniform, and independent for different (l,
    j, u), so that a uniformly random choice of u's rows stays, common levels as often as they
    occur.

    A unit is held out by a coin: of an id a hash under another key, of a row a random number of its
    place in the files (`on_arrow.coins_of`). Neighbours stay neighbours [derived here]: an id has
    the coin that it had, and coins of places are independent and of one law whatever the rows are,
    so that rows that move to other places can be given the coins that they had. For each outcome of
    the coins a unit more is one more row of some side, or up to `max_rows`; a mixture of such pairs
    is no easier to tell apart than the worst of them.

    Both keys have 128 bits of the run's stream of holdout coins, so that a resumed run keeps and
    holds out the same rows. The accountant counts on the secrecy of the one that holds out: it is
    in memory alone, here and in Dask's workers (`RunFolder.holdout_coins` has what is stored). What
    a database logs of its statements has both keys, and of its rows no holdout is claimed
    (`calibration.secret_holdout`). The coins of a secret sample have another key, which is drawn
    for one statement (`statements.Statement.sampled`).
    """
    unit = pd.factorize(ids)[0]
    crowded = np.bincount(unit, minlength=1) > max_rows
    kept: npt.NDArray[np.bool_] = ~crowded[unit]
    rows = np.flatnonzero(~kept)
    if len(rows):
        if numbers is not None and numbers.shape[1]:
            rows = rows[np.lexsort(numbers[rows].T)]
        own = np.ascontiguousarray(codes[rows], dtype=np.uint16)
        alike = np.unique(own, axis=0, return_inverse=True)[1].ravel()
        number = pd.Series(rows).groupby([unit[rows], alike]).cumcount().to_numpy() + 1
        places = [
            place(key, n, levels, name)
            for n, levels, name in zip(number.tolist(), own.tolist(), ids[rows], strict=True)
        ]
        order = np.lexsort((np.array(places), unit[rows]))
        rank = pd.Series(rows).groupby(unit[rows][order]).cumcount().to_numpy()
        kept[rows[order[rank < max_rows]]] = True
    return kept


def coin(key: str, unit: str) -> str:
    """The first digits of a unit's place among all: below `limit` with chance `rate`."""
    return hashlib.sha256(f"{key}|{unit}".encode()).hexdigest()[: COIN_BITS // 4]


def chosen_units(key: str, rate: float, ids: Ids) -> npt.NDArray[np.bool_]:
    """The rows of the units whose coin is below `rate`, `[rows]`."""
    whose, units = pd.factorize(ids)
    below = limit(rate)
    tossed = np.array([coin(key, unit) < below for unit in units], dtype=bool)
    drawn: npt.NDArray[np.bool_] = tossed[whose]
    return drawn


def limit(rate: float) -> str:
    """What a coin of chance `rate` lies below; beyond all coins for a rate of 1."""
    return "g" if rate >= 1 else f"{int(rate * 2**COIN_BITS):0{COIN_BITS // 4}x}"
