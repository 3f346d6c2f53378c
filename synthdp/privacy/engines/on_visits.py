"""Persons and visits in Parquet files, read part by part with Arrow on some threads; and in a
database, which finds levels and puts visits in order itself.

Rows are read as levels and dates, each row by itself, whatever file it is of. Each batch of rows is
read by the functions that read a table into memory, row by row, and what stays is small: of a visit
a byte or two for each column, four for each number that is added up, its date and its person; of
each person the first `most` visits, cut part by part. The views of levels are then made of some
persons at a time, by the function that makes them in memory: they have the same rows, whatever the
parts are. A database gives the same rows by a window over the visits of each person, and no
numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import EncodedColumn, encode, read_values, unit_places, unit_texts
from synthdp.data.visits import (
    SETTINGS,
    CodedVisits,
    Floats,
    Positions,
    Views,
    VisitFrame,
    first_visits,
    views_of,
)
from synthdp.data.visits import (
    Parts as Summed,
)
from synthdp.privacy.engines import Ids, Reading
from synthdp.privacy.engines.on_arrow import blocks
from synthdp.privacy.engines.opening import Part, Parts, parts_of, reading_of
from synthdp.privacy.readers.checks import check_file
from synthdp.privacy.readers.files import choice
from synthdp.privacy.source import guarded
from synthdp.privacy.table import CHUNK_ROWS
from synthdp.spec.model import Dataset, ParquetSource, SqlSource

Cells: TypeAlias = pd.DataFrame | pa.RecordBatch
Levels = npt.NDArray[np.unsignedinteger[Any]]
Encoded = Mapping[str, EncodedColumn]


@dataclass(frozen=True)
class Found:
    """What does not fit in the rows of a table: misfits by column, and rows without an id
    (confidential).
    """

    columns: Encoded
    without_id: int

    @classmethod
    def of(cls, encoded: Encoded, without_id: int) -> Found:
        """Of some rows, without their levels."""
        nothing = np.zeros(0, np.uint16)
        told = {n: replace(own, codes=nothing, numbers=None) for n, own in encoded.items()}
        return cls(told, without_id)

    @classmethod
    def joined(cls, found: Sequence[Found]) -> Found:
        """Of the rows of several."""
        kinds = ("wrong_type", "outside", "unexpected_missing")
        told = {
            name: replace(
                own, **{k: sum(getattr(other.columns[name], k) for other in found) for k in kinds}
            )
            for name, own in found[0].columns.items()
        }
        return cls(told, sum(other.without_id for other in found))


@dataclass(frozen=True, repr=False)
class PersonRows:
    """Rows of persons: the number of each one's key, the levels that are modelled, dates, and
    numbers that are added up `[rows, columns]`, NaN where there is none.
    """

    units: Positions
    codes: Levels
    births: Floats | None
    deaths: Floats | None
    numbers: Floats

    def __repr__(self) -> str:
        return "<PersonRows>"

    @classmethod
    def of(
        cls, frame: VisitFrame, domain: Domain, cells: Cells, units: Positions
    ) -> tuple[PersonRows, Encoded]:
        """The rows of some cells, and what each column came to."""
        codes, encoded = encode(domain, cells)
        numbers = {n: own.numbers for n, own in encoded.items() if own.numbers is not None}
        return cls.of_levels(frame, domain, codes, numbers, units), encoded

    @classmethod
    def of_levels(
        cls,
        frame: VisitFrame,
        domain: Domain,
        codes: Levels,
        numbers: Mapping[str, Floats],
        units: Positions,
    ) -> PersonRows:
        """The rows of levels of all columns, and of numbers of dates, which no row lacks."""

        def dates(column: ColumnDomain | None) -> Floats | None:
            if column is None:
                return None
            missing = codes[:, domain.index(column.name)] == column.missing_level
            return np.where(missing if column.missing else False, np.nan, numbers[column.name])

        modelled = codes[:, [domain.index(c.name) for c in frame.columns.columns]]
        added: Any = [np.zeros((len(codes), 0)), *map(dates, frame.added[0])]
        return cls(units, modelled, dates(frame.birth), dates(frame.death), np.column_stack(added))

    @classmethod
    def joined(cls, found: Sequence[PersonRows]) -> PersonRows:
        """The rows of several."""
        births, deaths = (
            None if getattr(found[0], name) is None else np.concatenate(own)
            for name in ("births", "deaths")
            for own in [[getattr(rows, name) for rows in found]]
        )
        units, codes, numbers = (
            np.concatenate([getattr(rows, name) for rows in found])
            for name in ("units", "codes", "numbers")
        )
        return cls(units, codes, births, deaths, numbers)

    def one_each(self) -> PersonRows:
        """One row for each key, by its number: the first by its own levels, dates and numbers,
        never by its place in the file.
        """
        fields = [dates for dates in (self.deaths, self.births) if dates is not None]
        order = np.lexsort((*self.numbers.T[::-1], *fields, *self.codes.T[::-1], self.units))
        one = order[np.diff(self.units[order], prepend=-1) > 0]
        births, deaths = (
            None if dates is None else dates[one] for dates in (self.births, self.deaths)
        )
        return PersonRows(self.units[one], self.codes[one], births, deaths, self.numbers[one])


@dataclass(frozen=True, repr=False)
class VisitRows:
    """Visits with a date and a person: the person's position, the date inside the study, levels,
    and numbers that are added up, in parts of half a range from its middle.
    """

    owner: Positions
    when: Floats
    codes: Levels
    numbers: Summed

    def __repr__(self) -> str:
        return "<VisitRows>"

    @classmethod
    def of(
        cls, frame: VisitFrame, domain: Domain, cells: Cells, owner: Positions
    ) -> tuple[VisitRows, Encoded]:
        """The rows of some cells that have a date and an owner, which is below 0 where there is
        none; and what each column came to, a missing date not counted.
        """
        codes, encoded = encode(domain, cells)
        when = read_values(frame.order, cells[frame.order.name]).numbers
        kept = (owner >= 0) & ~np.isnan(when)
        inside = np.clip(when[kept], frame.order.lower, frame.until)
        places = [domain.index(c.name) for c in frame.of_visits.columns]
        undated = replace(encoded[frame.order.name], unexpected_missing=0)
        told = {**encoded, frame.order.name: undated}
        added = [np.zeros((int(kept.sum()), 0), np.int32)]
        for c in frame.added[1]:
            numbers, half = encoded[c.name].numbers, (c.upper - c.lower) / 2
            assert numbers is not None
            u = np.clip((numbers[kept] - (c.lower + c.upper) / 2) / half, -1, 1)
            added.append(np.rint(u * SETTINGS.parts).astype(np.int32)[:, None])
        return cls(owner[kept], inside, codes[kept][:, places], np.hstack(added)), told

    @classmethod
    def joined(cls, found: Sequence[VisitRows]) -> VisitRows:
        """The rows of several."""
        return cls(
            *(
                np.concatenate([getattr(rows, name) for rows in found])
                for name in ("owner", "when", "codes", "numbers")
            )
        )

    def first(self, most: int) -> VisitRows:
        """The first `most` of each person, by person and in their order.

        [Derived here: visits have a total order, up to such as are equal in all that is kept. So
        the first of a union are the first of each part's first, in whatever order the parts come:
        it may be cut part by part.]
        """
        kept, _ = first_visits(most, self.owner, self.when, self.codes, self.numbers)
        return VisitRows(self.owner[kept], self.when[kept], self.codes[kept], self.numbers[kept])


def coded(persons: PersonRows, visits: VisitRows) -> CodedVisits:
    """Both, one row for each person."""
    codes: Any = persons.codes
    levels: Any = visits.codes
    dates = persons.births, persons.deaths
    return CodedVisits(
        codes, levels, visits.owner, visits.when, *dates, persons.numbers, visits.numbers
    )


T = TypeVar("T")


def read_parts(
    frame: VisitFrame,
    tables: Mapping[str, Dataset],
    columns: Mapping[str, Domain],
    *,
    folder: Path,
    delta: float,
    threads: int | None,
) -> tuple[CodedVisits, dict[str, Found]]:
    """Both tables, persons first, and what does not fit in them. `delta` is the release's.

    Raises:
        DataError: a source cannot be read, or has other columns.
    """
    persons, visits = tables
    most = threads or os.cpu_count() or 1

    def opened(name: str) -> tuple[Reading, Parts]:
        source, own = tables[name].source, reading_of(tables[name], columns[name])
        assert isinstance(source, ParquetSource)  # `spec.checks.linked` refuses others
        return parts_of(source, tables[name], own, folder, delta if name == persons else 0.0)

    def of_persons() -> tuple[PersonRows, dict[str, int], Found]:
        reading, parts = opened(persons)
        ids, rows, found = zip(*_each(parts, partial(_persons, frame, reading), most), strict=True)
        known = dict[str, int]()
        units = [known.setdefault(text, len(known)) for texts in ids for text in texts]
        joined = replace(PersonRows.joined(rows), units=np.array(units, np.int64))
        return joined.one_each(), known, Found.joined(found)

    def of_visits() -> tuple[VisitRows, Found]:
        reading, parts = opened(visits)
        found, kept, rows = list[Found](), list[VisitRows](), 0
        for own, misfits in _each(parts, partial(_visits, frame, reading, known), most):
            found.append(misfits)
            kept.append(own)
            rows += len(own.owner)
            if rows > 2 * frame.most * len(known):  # twice what can stay
                kept = [VisitRows.joined(kept).first(frame.most)]
                rows = len(kept[0].owner)
        return VisitRows.joined(kept).first(frame.most), Found.joined(found)

    people, known, of_people = guarded(tables[persons].source, of_persons)
    events, of_events = guarded(tables[visits].source, of_visits)
    return coded(people, events), {persons: of_people, visits: of_events}


def read_queries(
    frame: VisitFrame,
    tables: Mapping[str, Dataset],
    columns: Mapping[str, Domain],
    *,
    folder: Path,
    delta: float,
) -> tuple[CodedVisits, dict[str, Found]]:
    """As `read_parts`, of two queries: the database cuts visits to the first of each id, which are
    those of its person. Which of them are of nobody is seen here.

    Raises:
        DataError: a database does not answer, or a table has other columns or types.
    """
    from synthdp.privacy.engines.on_sql import SqlEngine

    persons, visits = tables

    def asked(name: str) -> tuple[SqlEngine, Found]:
        source, domain = tables[name].source, columns[name]
        assert isinstance(source, SqlSource)  # `spec.checks.linked` refuses others
        reading = reading_of(tables[name], domain)
        engine = SqlEngine(source, reading, choice(source, domain, reading.id_column), folder)
        found = engine.survey()
        check_file(found.rows, tables[name], delta if name == persons else 0.0)
        return engine, Found(found.by_column(domain), found.without_id)

    def of_persons() -> tuple[PersonRows, dict[str, int], Found]:
        engine, found = asked(persons)
        domain, ids, rows = columns[persons], list[str](), list[PersonRows]()
        dates = [column for column in (frame.birth, frame.death) if column is not None]
        for texts, numbers, codes in engine.in_order(dates, domain):
            clean = {
                c.name: np.where(np.isnan(own), c.lower, own)
                for c, own in zip(dates, numbers, strict=True)
            }
            nobody = np.zeros(len(texts), np.int64)
            ids += texts
            narrow = _narrow(codes, domain)
            rows.append(PersonRows.of_levels(frame, domain, narrow, clean, nobody))
        known = {text: i for i, text in enumerate(sorted({*ids}))}  # no database's order
        units = np.array([known[text] for text in ids], np.int64)
        return replace(PersonRows.joined(rows), units=units).one_each(), known, found

    def of_visits() -> tuple[VisitRows, Found]:
        engine, found = asked(visits)
        order, domain, rows = replace(frame.order, upper=frame.until), frame.of_visits, []
        for texts, (when,), codes in engine.in_order([order], domain, frame.most):
            owner: Any = np.array([known.get(text, -1) for text in texts], np.int32)
            own = owner >= 0
            none = np.zeros((int(own.sum()), 0), np.int32)  # a database gives levels alone
            rows.append(VisitRows(owner[own], when[own], _narrow(codes[own], domain), none))
        undated = replace(found.columns[order.name], unexpected_missing=0)
        told = replace(found, columns={**found.columns, order.name: undated})
        return VisitRows.joined(rows).first(frame.most), told

    people, known, of_people = guarded(tables[persons].source, of_persons)
    events, of_events = guarded(tables[visits].source, of_visits)
    return coded(people, events), {persons: of_people, visits: of_events}


def _each(parts: Parts, job: Callable[[Part], T], threads: int) -> Iterator[T]:
    """What a job gives of each part, in the order of the parts; few wait to be taken."""
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(parts.parts), 2 * threads):
            yield from pool.map(job, parts.parts[start : start + 2 * threads])


def _persons(frame: VisitFrame, reading: Reading, part: Part) -> tuple[Ids, PersonRows, Found]:
    """The ids and rows of a part, and what does not fit."""
    ids, rows, found = list[Ids](), list[PersonRows](), list[Found]()
    for batch in blocks(reading, part):
        texts = unit_texts(_ids(reading, batch))
        nobody = np.zeros(len(texts), np.int64)  # numbered when all parts are read
        own, encoded = PersonRows.of(frame, reading.domain, batch, nobody)
        ids.append(texts)
        rows.append(replace(own, codes=_narrow(own.codes, reading.domain)))
        found.append(Found.of(encoded, int((texts == "").sum())))
    return np.concatenate(ids), PersonRows.joined(rows), Found.joined(found)


def _visits(
    frame: VisitFrame, reading: Reading, known: Mapping[str, int], part: Part
) -> tuple[VisitRows, Found]:
    """The first visits of each person in a part, and what does not fit in any of its rows."""
    rows, found = list[VisitRows](), list[Found]()
    for batch in blocks(reading, part):
        owner = unit_places(_ids(reading, batch), known)
        own, encoded = VisitRows.of(frame, reading.domain, batch, owner)
        narrow = _narrow(own.codes, reading.domain)
        rows.append(replace(own, owner=own.owner.astype(np.int32), codes=narrow))
        found.append(Found.of(encoded, int((owner == -1).sum())))
    return VisitRows.joined(rows).first(frame.most), Found.joined(found)


def _ids(reading: Reading, batch: pa.RecordBatch) -> pa.Array:
    assert reading.id_column is not None
    return batch.column(reading.id_column)


def _narrow(codes: Levels, domain: Domain) -> Levels:
    """Levels of one byte each where that does."""
    return codes.astype(np.uint8 if max(domain.sizes, default=1) <= 256 else np.uint16)


def views_by_shard(frame: VisitFrame, read: CodedVisits) -> Views:
    """The views of visits that are sorted by person, made of `CHUNK_ROWS` persons at a time.

    [Derived here: a person's rows of each view are those of the person's own visits
    (`data.visits`), so that the views of all are those of some and those of the others.]
    """
    made = list[Views]()
    for start in range(0, max(len(read.persons), 1), CHUNK_ROWS):
        some = slice(start, start + CHUNK_ROWS)
        own = slice(*np.searchsorted(read.owner, (start, some.stop)))
        births, deaths = (None if d is None else d[some] for d in (read.births, read.deaths))
        shard = CodedVisits(
            read.persons[some],
            read.visits[own],
            read.owner[own] - start,
            read.when[own],
            births,
            deaths,
            None if read.of_persons is None else read.of_persons[some],
            None if read.of_visits is None else read.of_visits[own],
        )
        found = views_of(frame, shard)
        codes: Any = {n: _narrow(own, frame.views[n]) for n, own in found.codes.items()}
        owners: Any = {n: (o + start).astype(np.int32) for n, o in found.owners.items()}
        made.append(Views(codes, owners, found.numbers))
    return Views(
        {name: np.concatenate([v.codes[name] for v in made]) for name in frame.views},
        {name: np.concatenate([v.owners[name] for v in made]) for name in frame.views},
        {name: np.concatenate([v.numbers[name] for v in made]) for name in made[0].numbers},
    )
