"""The reader of two linked tables, persons and visits of persons, and mechanisms on their views.

Each table is read cell by cell as a table alone is (`privacy.source`), and sealed as three views of
levels (`data.visits`), each made from one person's rows at a time. The unit is the person: the row
of persons with that key, and all visits with it. What one person adds to a view is at most one row,
or `most` - 1 steps, so that a mechanism on a view is one on a table whose units have so many rows
(`OnView`). Rows that belong to nobody, and visits without a date, are dropped: each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import dp_accounting
import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import unit_numbers
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import PERSONS, CodedVisits, Views, VisitFrame, views_of
from synthdp.errors import BoundaryError, by_kind
from synthdp.privacy.engines.on_visits import (
    Found,
    PersonRows,
    VisitRows,
    coded,
    read_parts,
    read_queries,
    views_by_shard,
)
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    NoisyMarginals,
    NoisyTable,
)
from synthdp.privacy.noise import Randomness, Streams
from synthdp.privacy.private import _KERNEL_KEY, Private, withholding
from synthdp.privacy.readers.checks import check_file, check_misfits, check_without_ids
from synthdp.privacy.source import check_given, read_frame
from synthdp.privacy.table import Columns, Table
from synthdp.spec.model import Dataset, DeclaredRows, IdUnit, Source
from synthdp.spec.model.linked import LinkedSpec
from synthdp.spec.model.rules import linked_engine

Misfits = dict[str, dict[str, int]]


@dataclass(frozen=True, repr=False)
class LinkedTable(Table):
    """Persons and visits inside the seal: a table of levels by view. Of itself it has a row for
    each person, with the levels of the view of persons and the numbers of `VisitFrame.sums`.

    Sensitivity of sums over these rows [derived here]: `data.visits` makes the row of each person's
    rows alone, so that one person more adds one row, and changes no other. A mechanism on it is one
    on a table whose units have one row, whatever the most visits are. What sums over visits cost is
    in their scale: the sum over at most m visits of numbers in [-1, 1] is divided by m, and so in
    [-1, 1] itself, as those of `ProductSums` are; its noise is m times as much in units of visits,
    as that of a table of all of them is. The bound is reached by a person with m visits at an end
    of the bounds.
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
    given: Mapping[str, Private[pd.DataFrame]] | None = None,
) -> Private[LinkedTable]:
    """Read, fit and seal both tables; `holdout` is the chance of each person to be held out.

    `given` holds the rows of tables whose source is of kind `dataframe`, by their names.

    Raises:
        DataError: a source cannot be read, or holds what the spec does not declare.
    """
    data = spec.dataset
    persons = _dataset(spec, data.persons.source, data.persons.key, data.persons.rows)
    # As many visits may be read as so many persons can have; nobody need know how many there are.
    most = min(data.persons.rows.value * frame.most, 2_000_000_000)
    many = data.persons.rows.model_copy(update={"kind": "approximate", "value": most})
    visits = _dataset(spec, data.visits.source, data.visits.key, many)
    columns = {name: Domain.from_spec(spec.columns[name]) for name in spec.columns}
    both = {data.persons_name: persons, data.visits_name: visits}
    for name, dataset in both.items():
        check_given(dataset.source, (given or {}).get(name))
    delta, engine = spec.privacy.delta, linked_engine(spec)
    if engine != "memory":
        read, found = (
            read_queries(frame, both, columns, folder=folder, delta=delta)
            if engine == "sql"
            else read_parts(
                frame, both, columns, folder=folder, delta=delta, threads=spec.compute.threads
            )
        )
        views, misfits = views_by_shard(frame, read), _misfits(spec, columns, found)
        out = streams.holdout.random(len(read.persons)) < holdout
        return Private(in_views(views, out, misfits), key=_KERNEL_KEY)
    frames = {}
    for name, dataset in both.items():
        own = delta if dataset is persons else 0.0
        frames[name] = read_frame(dataset, columns[name], folder, own, (given or {}).get(name))
        check_file(len(frames[name]), dataset, own)
    table = fit_linked(spec, frame, frames, columns, {}, holdout=holdout, rng=streams.holdout)
    return Private(table, key=_KERNEL_KEY)


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

    def fitted() -> tuple[CodedVisits, dict[str, Found]]:
        persons, visits = read[data.persons_name], read[data.visits_name]
        known = dict[str, int]()
        own = unit_numbers(persons[data.persons.key], known)
        theirs = unit_numbers(visits[data.visits.key], known)
        people, of_persons = PersonRows.of(frame, columns[data.persons_name], persons, own)
        one = people.one_each()
        place = np.full(len(known) + 1, -1)
        place[one.units] = np.arange(len(one.units))
        events, of_visits = VisitRows.of(frame, columns[data.visits_name], visits, place[theirs])
        found = {data.persons_name: Found.of(of_persons, int((own < 0).sum()))}
        found |= {data.visits_name: Found.of(of_visits, int((theirs < 0).sum()))}
        return coded(one, events), found

    message = "values that cannot be read as the declared types"
    made, found = by_kind(fitted, message, "check the columns' types")
    misfits.update(_misfits(spec, columns, found))
    out = rng.random(len(made.persons)) < holdout
    return in_views(views_of(frame, made), out, misfits)


def _misfits(
    spec: LinkedSpec, columns: Mapping[str, Domain], found: Mapping[str, Found]
) -> Misfits:
    """Misfits of both tables by column; refused where the spec refuses them, as rows without a
    key.
    """
    told = Misfits()
    for name, own in found.items():
        table = spec.dataset.tables[name]
        dataset = _dataset(spec, table.source, table.key, spec.dataset.persons.rows)
        misfits = check_misfits(own.columns, columns[name], dataset)
        check_without_ids(own.without_id, dataset.privacy_unit)
        told |= {f"{name}.{column}": counts for column, counts in misfits.items()}
    return told


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
    codes = np.pad(persons.codes, ((0, 0), (0, len(views.numbers))))  # numbers have no levels
    numbers = pd.DataFrame(dict(views.numbers), index=persons.frame.index)
    return LinkedTable(codes, numbers, persons.held_out, misfits, None, tables)


# --- mechanisms on a view ---


M = TypeVar("M", NoisyMarginals, AdaptiveMarginals)


@dataclass(frozen=True)
class OnView(Generic[M]):
    """`inner` on the rows of a view, of which a person has at most `rows`.

    Sensitivity [derived here]: `data.visits` makes a view of each person's rows alone, so that one
    person more adds at most `rows` rows to it, and changes no other: one to the views of persons,
    of first and last visits and of second visits, one less than the most visits to that of steps.
    `inner` is then a mechanism on a table whose units have at most `rows` rows, and its event is
    that of a unit of `rows` rows for each of `rows_per_unit` persons. The bound is reached by a
    person whose visits all lie in one cell. Which visits were cut depends on the same person alone.
    """

    inner: M
    view: str
    rows: int

    @property
    def domain(self) -> Domain:
        """The columns of the view."""
        return self.inner.domain

    @property
    def name(self) -> str:
        of = f", at most {self.rows} rows of a person" if self.rows > 1 else ""
        return f"{self.inner.name}, of {self.view}{of}"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """That of `inner` for units of `rows` rows."""
        return self.inner.event(rows_per_unit * self.rows)

    def for_unit(self, rows_per_unit: int) -> OnView[M]:
        """The same with the noise for units of so many persons."""
        if not isinstance(self.inner, NoisyMarginals):
            return self
        return replace(self, inner=self.inner.for_unit(rows_per_unit * self.rows))

    def scaled(self, factor: float) -> OnView[M]:
        return replace(self, inner=self.inner.scaled(factor))

    def choose(
        self, tables: Sequence[Columns], groups: LevelGroups, weights: Sequence[float] = ()
    ) -> ChosenOnView:
        """The mechanism for tables that are chosen from public or released facts."""
        assert isinstance(self.inner, AdaptiveMarginals)
        return ChosenOnView(self, self.inner.choose(tables, groups, weights))

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Run `inner` on the view's rows."""
        return self._noisy.run(view_of(table, self.view), randomness)

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """As of `inner`."""
        return self._noisy.pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """As of `inner`."""
        return self._noisy.unpack(arrays)

    @property
    def _noisy(self) -> NoisyMarginals:
        assert isinstance(self.inner, NoisyMarginals)
        return self.inner


@dataclass(frozen=True, eq=False)
class ChosenOnView(Prepaid[OnView[AdaptiveMarginals]]):
    """`OnView` of `AdaptiveMarginals` with its tables chosen, at the price of `budget`."""

    chosen: ChosenMarginals

    @property
    def view(self) -> str:
        """The view whose rows are counted."""
        return self.budget.view

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Count the tables on the view's rows, and add the noise."""
        return self.chosen.run(view_of(table, self.view), randomness)

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """As of tables that are chosen."""
        return self.chosen.pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """As of tables that are chosen."""
        return self.chosen.unpack(arrays)
