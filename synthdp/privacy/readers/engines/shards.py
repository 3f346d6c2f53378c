"""Shards of a table: all rows of some ids, of which each keeps `max_rows` (`bounding`), counted or
added up in this process or a worker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.data.values import unit_texts
from synthdp.privacy.mechanisms.adding import Side, Summands, added
from synthdp.privacy.mechanisms.counting import Columns, count_tables
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.readers.engines.bounding import Ids, chosen_units, kept_rows
from synthdp.privacy.readers.engines.engine import Integers, Reading, Rows
from synthdp.privacy.readers.engines.on_arrow import levels, numbers_of, values_of, whole_rows

DEAL_KEY = "synthdp shards .."  # of the hash that deals ids; any 16 characters do


@dataclass(frozen=True)
class Shard:
    """Some rows of some ids: their texts, levels, and the values of ranges where these are read."""

    ids: Ids = field(repr=False)
    codes: Codes = field(repr=False)
    values: pd.DataFrame | None = field(default=None, repr=False)

    @classmethod
    def of(cls, reading: Reading, batches: Iterable[pa.RecordBatch], *, values: bool) -> Shard:
        """All rows of some batches, at least one."""
        assert reading.id_column is not None
        found = []
        for batch in batches:
            ids = unit_texts(batch.column(reading.id_column))
            if values:
                found.append(cls(ids, *values_of(reading.domain, reading.domain, batch)))
            else:
                found.append(cls(ids, levels(reading.domain, batch)))
        return cls.joined(found)

    @classmethod
    def joined(cls, shards: Sequence[Shard]) -> Shard:
        """The rows of several."""
        frames = [s.values for s in shards if s.values is not None]
        return cls(
            np.concatenate([s.ids for s in shards]),
            np.concatenate([s.codes for s in shards]),
            pd.concat(frames, ignore_index=True) if frames else None,
        )

    def at(self, chosen: npt.NDArray[np.bool_]) -> Shard:
        """The rows of a mask."""
        values = None if self.values is None else self.values[chosen]
        return Shard(self.ids[chosen], self.codes[chosen], values)

    def dealt(self, shards: int) -> list[Shard]:
        """The rows by the shard of their id."""
        number = pd.util.hash_array(self.ids, hash_key=DEAL_KEY[:16]) % np.uint64(shards)
        return [self.at(number == i) for i in range(shards)]

    def held_out(self, reading: Reading) -> npt.NDArray[np.bool_]:
        """Which rows are held out, `[rows]`."""
        return chosen_units(reading.coins, reading.holdout, self.ids)

    def bounded(self, reading: Reading, side: Side = "fit") -> Shard:
        """The rows of a side that stay, of all rows of these ids."""
        numbers = None if self.values is None else numbers_of(reading.domain, self.values)
        kept = kept_rows(
            self.ids, self.codes, max_rows=reading.max_rows, key=reading.key, numbers=numbers
        )
        stay = self.at(kept)
        if side == "all" or not (reading.holdout or side == "held out"):
            return stay
        return stay.at(stay.held_out(reading) == (side == "held out"))


def count_shard(
    reading: Reading, groups: LevelGroups, tables: Sequence[Columns], shards: Sequence[Shard]
) -> list[Integers]:
    """Counts of the rows that stay."""
    codes = Shard.joined(shards).bounded(reading).codes
    return count_tables(groups.of(codes) if groups.starts else codes, groups.coarse, tables)


def add_shard(
    reading: Reading, what: Summands, side: Side, shards: Sequence[Shard]
) -> list[Integers]:
    """The sum over the rows of a side that stay."""
    stay = Shard.joined(shards).bounded(reading, side)
    assert stay.values is not None
    return [added(what, stay.values, stay.codes)]


Drawn = tuple[npt.NDArray[np.float64], Shard]
"""Rows, with a uniformly random number for each."""


def draw_shard(reading: Reading, most: int, shards: Sequence[Shard]) -> Drawn:
    """At most `most` of the rows that stay: those with the smallest numbers."""
    stay = Shard.joined(shards).bounded(reading, "all")
    return smallest(most, [(fresh_generator().random(len(stay.ids)), stay)])


def smallest(most: int, found: Iterable[Drawn]) -> Drawn:
    """The at most `most` rows of all with the smallest numbers: a uniform sample, however the rows
    are dealt.
    """
    kept: list[Drawn] = []
    for one in found:
        numbers = np.concatenate([own for own, _ in (*kept, one)])
        rows = Shard.joined([own for _, own in (*kept, one)])
        few = np.zeros(len(numbers), dtype=bool)
        few[np.argsort(numbers)[:most]] = True
        kept = [(numbers[few], rows.at(few))]
    return kept[0]


def drawn_rows(reading: Reading, drawn: Drawn) -> Rows:
    """The rows, with the values of all columns."""
    _, rows = drawn
    assert rows.values is not None
    return whole_rows(reading.domain, [(rows.codes, rows.values, rows.held_out(reading))])


def sample_shard(reading: Reading, rate: float, key: str, shards: Sequence[Shard]) -> Codes:
    """Levels of the rows of units whose coin is below the rate."""
    stay = Shard.joined(shards).bounded(reading)
    return stay.at(chosen_units(key, rate, stay.ids)).codes
