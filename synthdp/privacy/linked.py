"""The reader of two linked tables: persons, and visits of persons.

Each table is read cell by cell as a table alone is (`privacy.source`), and sealed as three views of
levels (`data.visits`), each made from one person's rows at a time. The unit is the person: the row
of persons with that key, and all visits with it. What one person adds to a view is at most one row,
or `most` - 1 steps, so that a mechanism on a view is one on a table whose units have so many rows
(`OnView`). Rows that belong to nobody, and visits without a date, are dropped: each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import EncodedColumn, encode, read_values, unit_numbers
from synthdp.data.visits import (
    PERSONS,
    CodedVisits,
    Floats,
    Views,
    VisitFrame,
    views_of,
)
from synthdp.errors import BoundaryError, by_kind
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY, Private, withholding
from synthdp.privacy.readers.checks import check_file, check_misfits, check_without_ids
from synthdp.privacy.source import read_frame
from synthdp.privacy.table import Table
from synthdp.spec.model import Dataset, DeclaredRows, IdUnit, Source
from synthdp.spec.model.linked import LinkedSpec

Misfits = dict[str, dict[str, int]]


@dataclass(frozen=True, repr=False)
class LinkedTable(Table):
    """Persons and visits inside the seal: a table of levels by view. Of itself it is the view of
    persons, without values.
    """

    views: Mapping[str, Table] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "<LinkedTable>"


def view_of(table: Table, name: str) -> Table:
    """The rows of a view.

    Raises:
        BoundaryError: the table has no such view.
    """
    if not isinstance(table, LinkedTable) or name not in table.views:
        raise BoundaryError(f"a mechanism asks for the view {name!r} of a table that has none")
    return table.views[name]


def as_view(table: Table, name: str) -> LinkedTable:
    """A table as the only view of two linked ones, if it is none: for replays of mechanisms."""
    if isinstance(table, LinkedTable):
        return table
    views = {name: table}
    return LinkedTable(table.codes, table.frame, table.held_out, table.misfits, table.units, views)


@withholding
def read_linked(
    spec: LinkedSpec,
    frame: VisitFrame,
    *,
    folder: Path,
    holdout: float,
    streams: Streams,
) -> Private[LinkedTable]:
    """Read, fit and seal both tables; `holdout` is the chance of each person to be held out.

    Raises:
        DataError: a source cannot be read, or holds what the spec does not declare.
    """
    data, misfits = spec.dataset, Misfits()
    persons = _dataset(spec, data.persons.source, data.persons.key, data.persons.rows)
    # As many visits may be read as so many persons can have, and as many again.
    many = replace_rows(data.persons.rows, frame.most)
    visits = _dataset(spec, data.visits.source, data.visits.key, many)
    columns = {name: Domain.from_spec(spec.columns[name]) for name in spec.columns}
    read = {}
    for name, dataset in ((data.persons_name, persons), (data.visits_name, visits)):
        delta = spec.privacy.delta if dataset is persons else 0.0
        read[name] = read_frame(dataset, columns[name], folder, delta, None)
        check_file(len(read[name]), dataset, delta)
    table = fit_linked(spec, frame, read, columns, misfits, holdout=holdout, rng=streams.holdout)
    return Private(table, key=_KERNEL_KEY)


def replace_rows(declared: DeclaredRows, times: int) -> DeclaredRows:
    """So many rows for each that is declared; nobody need know how many there are."""
    value = min(declared.value * times, 2_000_000_000)
    return declared.model_copy(update={"kind": "approximate", "value": value})


def _dataset(spec: LinkedSpec, source: Source, key: str, rows: DeclaredRows) -> Dataset:
    """One of the tables, as a dataset of its own for the readers."""
    data = spec.dataset
    unit = IdUnit(kind="id", column=key, max_rows=1, meaning=data.privacy_unit.meaning)
    return Dataset(
        id=data.id, source=source, privacy_unit=unit, rows=rows, out_of_domain=data.out_of_domain
    )


def fit_linked(
    spec: LinkedSpec,
    frame: VisitFrame,
    read: Mapping[str, pd.DataFrame],
    columns: Mapping[str, Domain],
    misfits: Misfits,
    *,
    holdout: float,
    rng: np.random.Generator,
) -> LinkedTable:
    """Fit both tables as they were read. For the kernel: its reader, and audits on made-up rows."""
    data = spec.dataset

    def fitted() -> tuple[CodedVisits, Misfits]:
        persons, visits = read[data.persons_name], read[data.visits_name]
        # As objects: `concat` would turn both columns into one type, and merge ids above 2**53.
        keys = [persons[data.persons.key].astype(object), visits[data.visits.key].astype(object)]
        units = unit_numbers(pd.concat(keys, ignore_index=True))
        return _coded(spec, frame, persons, visits, columns, units)

    message = "values that cannot be read as the declared types"
    coded, found = by_kind(fitted, message, "check the columns' types")
    misfits.update(found)
    out = rng.random(len(coded.persons)) < holdout
    return in_views(views_of(frame, coded), out, misfits)


def _coded(
    spec: LinkedSpec,
    frame: VisitFrame,
    persons: pd.DataFrame,
    visits: pd.DataFrame,
    columns: Mapping[str, Domain],
    units: npt.NDArray[np.int64],
) -> tuple[CodedVisits, Misfits]:
    """Both tables as levels, a person's row for each key, and visits that belong to one."""
    data = spec.dataset
    people, events = columns[data.persons_name], columns[data.visits_name]
    own, theirs = units[: len(persons)], units[len(persons) :]
    codes, of_persons = encode(people, persons)
    happened, of_visits = encode(events, visits)
    # A visit without a date is dropped, and no misfit.
    undated = replace(of_visits[frame.order.name], unexpected_missing=0)
    misfits = _misfits(spec, data.persons_name, people, of_persons, own)
    misfits |= _misfits(
        spec, data.visits_name, events, of_visits | {frame.order.name: undated}, theirs
    )

    def dates(own: str | None) -> Floats | None:
        if own is None:
            return None
        found = of_persons[own].numbers
        assert found is not None
        column = people[own]
        missing = codes[:, people.index(own)] == column.missing_level if column.missing else False
        return np.where(missing, np.nan, found)

    births = dates(frame.birth.name if frame.birth else None)
    deaths = dates(frame.death.name if frame.death else None)
    modelled = codes[:, [people.index(c.name) for c in frame.columns.columns]]
    # One row for each key, the first by its own levels and dates: never by its place in the file.
    fields = [d for d in (deaths, births) if d is not None]
    order = np.lexsort((*fields, *modelled.T[::-1], own))
    one = order[np.diff(own[order], prepend=-1) > 0]
    place = np.full(int(units.max(initial=0)) + 1, -1)
    place[own[one]] = np.arange(len(one))
    when = read_values(frame.order, visits[frame.order.name]).numbers
    owner = place[theirs]
    kept = (owner >= 0) & ~np.isnan(when)
    return (
        CodedVisits(
            modelled[one],
            happened[kept][:, [events.index(c.name) for c in frame.of_visits.columns]],
            owner[kept],
            np.clip(when[kept], frame.order.lower, frame.until),
            None if births is None else births[one],
            None if deaths is None else deaths[one],
        ),
        misfits,
    )


def _misfits(
    spec: LinkedSpec,
    name: str,
    domain: Domain,
    encoded: Mapping[str, EncodedColumn],
    units: npt.NDArray[np.int64],
) -> Misfits:
    """Misfits of a table by column; refused where the spec refuses them, as rows without a key."""
    table = spec.dataset.tables[name]
    dataset = _dataset(spec, table.source, table.key, spec.dataset.persons.rows)
    found = check_misfits(encoded, domain, dataset)
    check_without_ids(int((units < 0).sum()), dataset.privacy_unit)
    return {f"{name}.{column}": counts for column, counts in found.items()}


def in_views(views: Views, out: npt.NDArray[np.bool_], misfits: Misfits) -> LinkedTable:
    """The views as tables: a person is held out of all of them, or of none. For the kernel's
    reader, and audits on made-up rows.
    """
    tables = {
        name: Table(
            codes,
            pd.DataFrame(index=pd.RangeIndex(len(codes))),
            out[views.owners[name]],
            {},
            views.owners[name],
        )
        for name, codes in views.codes.items()
    }
    persons = tables[PERSONS]
    return LinkedTable(persons.codes, persons.frame, persons.held_out, misfits, None, tables)
