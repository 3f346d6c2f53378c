"""Persons and visits in Parquet files, read part by part with Arrow on some threads; and in a
database, which finds levels and puts visits in order itself.

Each batch of rows is read by the functions that read a table into memory, row by row, and what
stays is small: of a visit a byte or two for each column, four for each number that is added up, its
date and its person; of each person the first `most` visits, cut part by part. The views of levels
are then made of some persons at a time, by the function that makes them in memory: they have the
same rows, whatever the parts are. A database gives the same rows by a window over the visits of
each person, and no numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from synthdp.data.domain import Domain
from synthdp.data.encoding import unit_places, unit_texts
from synthdp.data.visits import CodedVisits, Views, VisitFrame, views_of
from synthdp.privacy.engines.engine import Ids, Reading
from synthdp.privacy.engines.on_arrow import blocks
from synthdp.privacy.engines.opening import parts_of, reading_of
from synthdp.privacy.engines.parts import Part, Parts
from synthdp.privacy.linked_rows import Found, Levels, PersonRows, VisitRows, coded
from synthdp.privacy.readers.checks import check_file
from synthdp.privacy.readers.files import choice
from synthdp.privacy.source import guarded
from synthdp.privacy.table import CHUNK_ROWS
from synthdp.spec.model import Dataset, ParquetSource, SqlSource

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
