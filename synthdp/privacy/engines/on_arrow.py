"""Counting Parquet files with Arrow in this process: part by part, batch by batch, on some threads.

Each part is read by `encode_column`, the function that reads a table into memory, and gives
vectors of whole numbers; their sum over parts does not depend on the order of parts. What is in
memory is a batch of rows a thread, and the counts.

Shards of a table: all rows of some ids, of which each keeps `max_rows` (`engines.kept_rows`),
counted or added up in this process or a worker's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from synthdp.data.domain import Domain
from synthdp.data.encoding import (
    Codes,
    EncodedColumn,
    cleaned,
    encode_column,
    to_numbers,
    unit_texts,
)
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import DataError
from synthdp.privacy.engines import (
    Ids,
    Integers,
    Reading,
    Rows,
    Survey,
    chosen_units,
    kept_rows,
)
from synthdp.privacy.engines.opening import Part, Parts, batches
from synthdp.privacy.noise import Randomness, fresh_generator
from synthdp.privacy.readers.files import BATCH_ROWS
from synthdp.privacy.table import Columns, Side, Summands, added, count_tables

Job = Callable[[Part], list[Integers]]
"""What is done to a part: vectors that are summed over all parts."""


@dataclass(frozen=True)
class ArrowEngine:
    """Parquet files, counted on `threads` threads. Every row is a unit.

    Raises:
        DataError: units have ids, whose rows may lie in any part.
    """

    reading: Reading
    parts: Parts
    threads: int = 1

    def __post_init__(self) -> None:
        if self.reading.id_column is not None:
            raise DataError(
                "compute.engine arrow counts each part of the table by itself, and the rows of an"
                " id may lie in many",
                hint="set compute.engine: dask, which brings the rows of an id together, or memory",
            )

    def survey(self) -> Survey:
        """By one pass over all columns."""
        (found,) = self._sum(partial(survey_part, self.reading))
        return Survey.of(found)

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By one pass over the columns of the tables."""
        reading, own = self.reading.of(groups, tables)
        return self._sum(partial(count_part, reading, own, tuple(tables)))

    def add_up(self, what: Summands, side: Side) -> Integers:
        """By one pass over the columns that it reads."""
        (found,) = self._sum(partial(add_part, self.reading, what, side))
        return found

    def draw(self, most: int) -> Rows:
        """Of the rows of all parts."""
        with ThreadPoolExecutor(self.threads) as pool:
            tasks = split(self.parts, some_rows(self.parts, most))
            found = pool.map(partial(draw_part, self.reading), tasks)
            return whole_rows(self.reading.domain, list(found))

    def sample(self, rate: float, randomness: Randomness) -> Codes:
        """A Poisson batch of all rows, in the order of parts."""
        with ThreadPoolExecutor(self.threads) as pool:
            tasks = drawn_of(self.parts, rate, randomness)
            found = pool.map(partial(sample_part, self.reading), tasks)
            return np.concatenate(list(found))

    def units(self) -> None:
        """None: every row is a unit."""

    def _sum(self, job: Job) -> list[Integers]:
        with ThreadPoolExecutor(self.threads) as pool:
            return summed(pool.map(job, self.parts.parts))


def summed(found: Iterator[list[Integers]]) -> list[Integers]:
    """The sum of what each part gave, once."""
    total: list[Integers] = next(found)
    for vectors in found:
        for so_far, vector in zip(total, vectors, strict=True):
            so_far += vector
    return total


def blocks(reading: Reading, part: Part) -> Iterator[pa.RecordBatch]:
    """Batches of a part under the spec's names."""
    wanted = [*reading.domain.names, *([reading.id_column] if reading.id_column else [])]
    texts = [reading.names[c.name] for c in reading.domain.columns if not c.ranged]
    for batch in batches(
        part, [reading.names[name] for name in wanted], as_levels=texts, rows=BATCH_ROWS
    ):
        yield batch.rename_columns(wanted)


def coins_of(reading: Reading, part: Part) -> npt.NDArray[np.bool_]:
    """Which rows of a part are held out, `[rows]`: the same at each pass over the same files."""
    if not reading.holdout:
        return np.zeros(part.rows, dtype=bool)
    seed = hashlib.sha256(f"{reading.coins}|{part.first}".encode()).hexdigest()[:32]
    coins = np.random.Generator(np.random.Philox(key=int(seed, 16))).random(part.rows)
    held: npt.NDArray[np.bool_] = coins < reading.holdout
    return held


def sided(reading: Reading, part: Part, side: Side) -> Iterator[pa.RecordBatch]:
    """Batches of the rows of a part that are of a side, where each row is a unit."""
    if side == "all" or (side == "fit" and not reading.holdout):
        yield from blocks(reading, part)
        return
    chosen, first = coins_of(reading, part) == (side == "held out"), 0
    for batch in blocks(reading, part):
        yield batch.filter(pa.array(chosen[first : first + batch.num_rows]))
        first += batch.num_rows


def levels(domain: Domain, batch: pa.RecordBatch) -> Codes:
    """Levels `[rows, columns]` of a batch: one byte each where that does."""
    narrow = np.uint8 if max(domain.sizes, default=1) <= 256 else np.uint16
    codes = np.empty((batch.num_rows, len(domain)), dtype=narrow, order="F")
    for i, column in enumerate(domain.columns):
        codes[:, i] = encode_column(column, batch.column(column.name)).codes
    return codes


def values_of(read: Domain, domain: Domain, batch: pa.RecordBatch) -> tuple[Codes, pd.DataFrame]:
    """Levels `[rows, columns of domain]`, 0 in columns that are not `read`, and the values of
    ranges that are: as a table in memory has them.
    """
    encoded = {c.name: encode_column(c, batch.column(c.name)) for c in read.columns}
    codes = np.zeros((batch.num_rows, len(domain)), dtype=np.uint16)
    for name, own in encoded.items():
        codes[:, domain.index(name)] = own.codes
    return codes, cleaned([c for c in read.columns if c.ranged], encoded)


def numbers_of(domain: Domain, values: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Numbers of the values of ranges, `[rows, ranges]`."""
    found = [to_numbers(domain[name], own) for name, own in values.items()]
    return np.column_stack(found) if found else np.zeros((len(values), 0))


def add_part(reading: Reading, what: Summands, side: Side, part: Part) -> list[Integers]:
    """The sum over one part, of what `reading`, which is of all columns, need not read in full."""
    total, own = np.zeros(what.size, dtype=np.int64), reading.only(what.reads)
    for batch in sided(own, part, side):
        codes, values = values_of(own.domain, reading.domain, batch)
        total += added(what, values, codes)
    return [total]


def count_part(
    reading: Reading, groups: LevelGroups, tables: Sequence[Columns], part: Part
) -> list[Integers]:
    """Counts of one part."""
    found = (levels(reading.domain, batch) for batch in sided(reading, part, "fit"))
    return count_tables(map(groups.of, found) if groups.starts else found, groups.coarse, tables)


def survey_part(reading: Reading, part: Part) -> list[Integers]:
    """What does not fit in one part (`Survey.of`)."""
    total = np.zeros(2 + 3 * len(reading.domain), dtype=np.int64)
    for batch in blocks(reading, part):
        total[0] += batch.num_rows
        if reading.id_column:
            total[1] += int((unit_texts(batch.column(reading.id_column)) == "").sum())
        for i, column in enumerate(reading.domain.columns):
            own = encode_column(column, batch.column(column.name))
            total[2 + 3 * i : 5 + 3 * i] += [own.wrong_type, own.outside, own.unexpected_missing]
    return [total]


Some = tuple[Part, npt.NDArray[np.intp]]
"""A part, and the positions in it of some of its rows, in order."""


def drawn_of(parts: Parts, rate: float, randomness: Randomness) -> list[Some]:
    """The rows of one Poisson batch of all rows."""
    rows = parts.rows
    drawn = randomness.secret_sample(rows, rate=rate) if rate < 1 else np.arange(rows)
    return split(parts, drawn)


def some_rows(parts: Parts, most: int) -> npt.NDArray[np.intp]:
    """The positions of at most `most` rows, any set of them as likely as another, in order."""
    few = fresh_generator().choice(parts.rows, min(most, parts.rows), replace=False, shuffle=False)
    return np.sort(few)


def split(parts: Parts, drawn: npt.NDArray[np.intp]) -> list[Some]:
    """The rows at positions `drawn` of the table."""
    ends = np.cumsum([0, *(part.rows for part in parts.parts)])
    cuts = np.searchsorted(drawn, ends)
    own = [drawn[a:b] - first for a, b, first in zip(cuts, cuts[1:], ends, strict=False)]
    return list(zip(parts.parts, own, strict=True))


def taken(reading: Reading, some: Some) -> Iterator[pa.RecordBatch]:
    """Batches of some rows of a part."""
    (part, rows), first = some, 0
    for batch in blocks(reading, part):
        own = rows[(rows >= first) & (rows < first + batch.num_rows)] - first
        yield batch.take(pa.array(own))
        first += batch.num_rows


def sample_part(reading: Reading, some: Some) -> Codes:
    """Levels of some rows of a part, without those that are held out."""
    part, rows = some
    some = part, rows[~coins_of(reading, part)[rows]]
    return np.concatenate([levels(reading.domain, batch) for batch in taken(reading, some)])


def draw_part(reading: Reading, some: Some) -> Rows:
    """Some rows of a part, with the values of ranges alone."""
    part, rows = some
    found = [values_of(reading.domain, reading.domain, batch) for batch in taken(reading, some)]
    codes, values = zip(*found, strict=True)
    held = coins_of(reading, part)[rows]
    return np.concatenate(codes), pd.concat(values, ignore_index=True), held


def whole_rows(domain: Domain, found: Sequence[Rows]) -> Rows:
    """All of some rows, with the values of all columns, which were found with those of ranges."""
    codes = np.concatenate([own for own, _, _ in found])
    values = pd.concat([own for _, own, _ in found], ignore_index=True)
    held = np.concatenate([own for _, _, own in found])
    encoded = {
        c.name: EncodedColumn(codes[:, domain.index(c.name)], 0, 0, 0)
        for c in domain.columns
        if not c.ranged
    }
    texts = cleaned([c for c in domain.columns if not c.ranged], encoded)
    return codes, pd.concat([values, texts], axis=1)[list(domain.names)], held


# --- shards ---


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


def units_shard(reading: Reading, shards: Sequence[Shard]) -> Integers:
    """The number, from 0, of the unit of each row that `sample_shard` gives at the rate 1."""
    numbers: Integers = pd.factorize(Shard.joined(shards).bounded(reading).ids)[0]
    return numbers
