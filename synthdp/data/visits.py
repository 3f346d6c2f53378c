"""Persons with visits as levels: the public frame of two linked tables, and both ways through it.

Nothing is modelled as a date of its own. A person has the date of the first visit and each further
visit a gap to the one before, so that generated visits are in order and never at one time, by
construction. The age is that at the first visit, and a death lies at or after the last: birth,
every visit and death are in order in every row that is written, whatever was read.

Four views of levels are made of the rows, each from a person's own rows alone:

- `PERSONS` has a row for each person: the columns of persons, how many visits were kept, and how
  they end;
- `OUTER` one for each person with a visit: the person, the first visit and the last;
- `STEPS` one for each visit but the first: the person, the visit before, the gap, the visit;
- `SECOND` those of them that are second visits.

[Derived here: a person is in one row of `PERSONS`, at most one of `OUTER` and of `SECOND`, and at
most `most` - 1 of `STEPS`. The first `most` visits are kept, in the order of their dates; visits at
one date are sorted by their own levels, never by their place in a file, so that the views are the
same for every order of the rows, and one person's rows move nobody else's.]

Where sums of numbers are measured a person also has one row of numbers (`VisitFrame.sums`): those
of the person's own columns, and for each number of visits the sum over those that are kept, as a
part of the most that it can be. It is of that person's rows alone, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode_column
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.ranges import drawn_wholes, level_of
from synthdp.spec.model import Integer, LinkedSpec, Number, Ordinal, RangedColumn

if TYPE_CHECKING:
    import pandas as pd

PERSONS, OUTER, SECOND, STEPS = "persons", "first and last visits", "second visits", "steps"
"""Names of the views."""
STOPS, DIED, CUT, CUT_DIED = "stops", "died", "cut", "cut, died"
"""How a person's visits end: after the last; by death; at the most visits that are kept, where
nobody knows what came after, or a death that did."""

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class FrameSettings:
    """Public bins of what the frame adds: most bins of gaps, ages, times to death, and calendar;
    and the parts of half a range to which numbers of visits are cut.
    """

    gaps: int = 24
    ages: int = 32
    times: int = 16
    calendar: int = 10
    parts: int = 1 << 16


SETTINGS = FrameSettings()


@dataclass(frozen=True)
class VisitFrame:
    """The public frame of two linked tables.

    `people` and `events` name the tables. `columns` are the persons' as they are modelled, without
    birth and death, `of_visits` those of visits without their `order`. `most` and `least` visits
    of a person are kept; `step` is the least gap and `until` the end of the study, in steps of
    `order`. `birth` and `death` are dates of persons that the visits lie between; columns of visits
    that `rises` names never fall, and those of `falls` never rise. `summed` says that numbers are
    read beside their levels, for sums.
    """

    people: str
    events: str
    columns: Domain
    of_visits: Domain
    order: ColumnDomain
    most: int
    least: int
    step: int
    until: float
    birth: ColumnDomain | None = None
    death: ColumnDomain | None = None
    rises: tuple[str, ...] = ()
    falls: tuple[str, ...] = ()
    summed: bool = False

    @classmethod
    def from_spec(cls, spec: LinkedSpec) -> VisitFrame:
        data = spec.dataset
        people, events = data.persons_name, data.visits_name
        persons = Domain.from_spec(spec.columns[people])
        visits = Domain.from_spec(spec.columns[events])
        order, declared = visits[data.visits.order], spec.columns[events][data.visits.order]
        step, until = data.visits.step(declared), data.visits.until
        assert isinstance(declared, RangedColumn) and step is not None
        framed = {spec.birth, spec.death}
        return cls(
            people,
            events,
            Domain(tuple(c for c in persons.columns if c.name not in framed)),
            Domain(tuple(c for c in visits.columns if c.name != order.name)),
            order,
            data.visits.at_most,
            data.visits.at_least,
            step,
            order.upper if until is None else declared.number(until),
            None if spec.birth is None else persons[spec.birth],
            None if spec.death is None else persons[spec.death],
            tuple(r.column for r in spec.rules() if r.kind in ("nondecreasing", "once")),
            tuple(r.column for r in spec.rules() if r.kind == "nonincreasing"),
            spec.privacy.shares.moments > 0,
        )

    # --- names ---

    def person(self, column: str) -> str:
        """The name of a person's column in the views."""
        return f"{self.people}.{column}"

    def first(self, column: str) -> str:
        return f"{self.events}[1].{column}"

    def last(self, column: str) -> str:
        return f"{self.events}[last].{column}"

    def before(self, column: str) -> str:
        return f"{self.events}[-1].{column}"

    def now(self, column: str) -> str:
        return f"{self.events}.{column}"

    def many(self, column: str = "number") -> str:
        """That of how many visits of a person there are, or have a column."""
        return f"{self.now(column)}, how many"

    @property
    def ends(self) -> tuple[str, ...]:
        """How a person's visits may end."""
        return (STOPS, CUT) if self.death is None else (STOPS, DIED, CUT, CUT_DIED)

    # --- columns that the frame adds ---

    @cached_property
    def gap(self) -> ColumnDomain:
        """From the visit before, in steps of `order`; missing for a first visit."""
        longest = max(self.step + 1, int(self.until - self.order.lower))
        return _grown("gap", self.step, longest, SETTINGS.gaps)

    @cached_property
    def calendar(self) -> ColumnDomain:
        lower, upper = int(self.order.lower), int(self.until)
        return _even("calendar", lower, max(upper, lower + 1), SETTINGS.calendar)

    @cached_property
    def age(self) -> ColumnDomain | None:
        """At the first visit, or at the start of the study, in steps of `order`."""
        if self.birth is None:
            return None
        return _even("age", 0, int(self.until - self.birth.lower), SETTINGS.ages)

    @cached_property
    def till(self) -> ColumnDomain | None:
        """From the last visit to death, in steps of `order`; missing where none is known."""
        if self.death is None:
            return None
        longest = max(2, int(self.death.upper - self.order.lower))
        return _with_missing(_grown("till", 0, longest, SETTINGS.times))

    @cached_property
    def modelled(self) -> Domain:
        """The columns of persons in all views, by their names there."""
        own = [*self.columns.columns, *([] if self.age is None else [self.age])]
        return Domain(tuple(_named(self.person, own)))

    @cached_property
    def added(self) -> tuple[tuple[ColumnDomain, ...], tuple[ColumnDomain, ...]]:
        """The columns of persons, and of visits, whose numbers are read beside levels."""
        persons, visits = (
            tuple(c for c in d.columns if self.summed and c.type in ("integer", "number"))
            for d in (self.columns, self.of_visits)
        )
        return persons, visits

    @cached_property
    def sums(self) -> Domain:
        """The columns of the row of numbers that a person has, after those of the view of persons:
        what numbers of visits add up to, and how many visits have them, each in [-1, 1].
        """
        names = [self.now(c.name) for c in self.added[1]]
        names += [self.many(c.name) for c in self.added[1] if c.missing]
        part = Number(type="number", lower=-1, upper=1, bins=1)
        made = [column(name, part) for name in (*names, *([self.many()] if names else []))]
        return Domain((*self.views[PERSONS].columns, *made))

    @cached_property
    def number(self) -> ColumnDomain:
        return _ordinal("number", [str(k) for k in range(self.most + 1)])

    @cached_property
    def views(self) -> Mapping[str, Domain]:
        """The columns of each view."""
        end = _ordinal("end", self.ends)
        known = _named(self.now, [self.number, end])
        till = [] if self.till is None else _named(self.last, [self.till])
        first = [self.order, *self.of_visits.columns]
        aged = [] if self.age is None else [self.age]
        last = [*self.of_visits.columns, self.calendar, *aged, _with_missing(self.gap)]
        before = [*self.of_visits.columns, self.calendar, _with_missing(self.gap)]
        now = [self.number, self.gap, self.calendar, *aged, *self.of_visits.columns]
        people = self.modelled.columns
        steps = Domain((*people, *_named(self.before, before), *_named(self.now, now)))
        outer = (*people, *_named(self.first, first), *_named(self.last, last), *known)
        persons = Domain((*people, *known, *till))
        return {PERSONS: persons, OUTER: Domain(outer), SECOND: steps, STEPS: steps}


def _named(place: Callable[[str], str], columns: Iterable[ColumnDomain]) -> list[ColumnDomain]:
    """Columns by the names that they have in a view."""
    return [replace(c, name=place(c.name)) for c in columns]


def _even(name: str, lower: int, upper: int, most: int) -> ColumnDomain:
    """Whole numbers in bins of equal width."""
    bins = min(most, upper - lower + 1)
    return column(name, Integer(type="integer", lower=lower, upper=upper, bins=bins))


def _grown(name: str, lower: int, upper: int, most: int) -> ColumnDomain:
    """Whole numbers in bins that grow: one each where there are few, else evenly on a log scale."""
    if upper - lower < most:
        edges = range(lower, upper + 1)
    else:
        grid = np.geomspace(1, upper - lower + 1, most + 1)[:-1]
        edges = np.unique(np.floor(grid)).astype(int) - 1 + lower  # type: ignore[assignment]
    return column(
        name, Integer(type="integer", lower=lower, upper=upper, edges=tuple(int(e) for e in edges))
    )


def _ordinal(name: str, labels: tuple[str, ...] | list[str]) -> ColumnDomain:
    return column(name, Ordinal(type="ordinal", categories=tuple(labels)))


def column(name: str, declared: Integer | Number | Ordinal) -> ColumnDomain:
    return Domain.from_spec({name: declared}).columns[0]


def _with_missing(domain: ColumnDomain) -> ColumnDomain:
    return replace(domain, labels=(*domain.labels, "none"), missing=True)


def levels_between(own: ColumnDomain, numbers: Floats) -> Positions:
    """The level of each number, clamped to the column's bounds."""
    return level_of(own, np.clip(numbers, own.lower, own.upper)).astype(np.int64)


# --- rows to views: inside the kernel ---


@dataclass(frozen=True, repr=False)
class CodedVisits:
    """Both tables as they were read, cell by cell.

    `persons` `[persons, columns]` and `visits` `[visits, columns]` are levels; `owner` is the
    person of each visit, its position; `when` the visit's date; `births` and `deaths` are dates of
    persons, NaN where there is none. Dates are steps of `order`. `of_persons` and `of_visits` are
    numbers of the columns in `VisitFrame.added`: NaN where a person has none, and of visits in
    parts of half a range from its middle.
    """

    persons: Codes
    visits: Codes
    owner: Positions
    when: Floats
    births: Floats | None = None
    deaths: Floats | None = None
    of_persons: Floats | None = None
    of_visits: Parts | None = None

    def __repr__(self) -> str:
        return "<CodedVisits>"


@dataclass(frozen=True, repr=False)
class Views:
    """Levels `[rows, columns]` by view, and the person of each row: its position; and the numbers
    of each person, by column, where they were read.
    """

    codes: Mapping[str, Codes]
    owners: Mapping[str, Positions]
    numbers: Mapping[str, Floats] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "<Views>"


def first_visits(
    most: int,
    owner: Positions,
    when: Floats,
    codes: npt.NDArray[np.unsignedinteger[Any]],
    numbers: Parts | None = None,
) -> tuple[Positions, Positions]:
    """The places of the first `most` visits of each owner, sorted by owner and then in their order,
    and the number of each, from 0.

    Visits at one time are in the order of their own levels, and then numbers: those that are equal
    in all of it can be told apart by nothing, so that it does not matter which of them stays.
    """
    more = () if numbers is None else numbers.T[::-1]
    order = np.lexsort((*more, *codes.T[::-1], when, owner))
    sorted_owner = owner[order]
    begins = np.flatnonzero(np.diff(sorted_owner, prepend=-1))
    lengths = np.diff(np.append(begins, len(order)))
    rank = np.arange(len(order)) - np.repeat(begins, lengths)
    return order[rank < most], rank[rank < most]


def views_of(frame: VisitFrame, read: CodedVisits) -> Views:
    """The views of the first `most` visits of each person."""
    kept, rank = first_visits(frame.most, read.owner, read.when, read.visits, read.of_visits)
    owner, when, codes = read.owner[kept], read.when[kept], read.visits[kept]
    persons = len(read.persons)
    counts = np.bincount(owner, minlength=persons)
    some = counts > 0
    first = np.flatnonzero(rank == 0)
    last = first + counts[some] - 1
    start = np.full(persons, frame.order.lower)
    start[some] = when[first]
    people = read.persons
    if frame.age is not None and read.births is not None:
        age = levels_between(frame.age, start - read.births)
        people = np.column_stack([people, age]).astype(np.uint16)
    gap = np.diff(when, prepend=0.0)
    gaps = levels_between(frame.gap, gap)
    gaps[first] = frame.gap.levels  # none
    years = levels_between(frame.calendar, when)
    begun = levels_between(frame.order, when)
    ends = _ends(frame, read, counts)
    known = np.column_stack([counts, ends]).astype(np.uint16)
    aged = np.zeros((len(when), 0), np.int64)
    if frame.age is not None and read.births is not None:
        aged = levels_between(frame.age, when - read.births[owner])[:, None]
    till = _times(frame, read, np.where(some, 0, start), when, last, some)
    steps = np.flatnonzero(rank > 0)
    past = steps - 1
    step = owner[steps]
    outer = [people[some], begun[first], codes[first], codes[last]]
    outer += [years[last], aged[last], gaps[last], known[some]]
    before: list[npt.NDArray[Any]] = [people[step], codes[past], years[past], gaps[past]]
    now: list[npt.NDArray[Any]] = [
        rank[steps] + 1,
        gaps[steps],
        years[steps],
        aged[steps],
        codes[steps],
    ]
    taken = np.column_stack(before + now).astype(np.uint16)
    second = rank[steps] == 1
    return Views(
        {
            PERSONS: np.column_stack([people, known, *till]).astype(np.uint16),
            OUTER: np.column_stack(outer).astype(np.uint16),
            SECOND: taken[second],
            STEPS: taken,
        },
        {PERSONS: np.arange(persons), OUTER: owner[first], SECOND: step[second], STEPS: step},
        _numbers(frame, read, kept, start),
    )


def _numbers(
    frame: VisitFrame, read: CodedVisits, kept: Positions, start: Floats
) -> dict[str, Floats]:
    """The numbers of each person, by column; nothing where none were read."""
    if read.of_persons is None or read.of_visits is None:
        return {}
    people, visits = frame.added
    names, owner = [frame.person(c.name) for c in people], read.owner[kept]
    found = dict(zip(names, read.of_persons.T, strict=True))
    if frame.age is not None and read.births is not None:
        age = np.clip(start - read.births, frame.age.lower, frame.age.upper)
        found[frame.person("age")] = age

    def part(weights: npt.NDArray[Any]) -> Floats:
        return np.bincount(owner, weights, len(read.persons)) / frame.most

    found[frame.many()] = part(np.ones(len(kept)))
    for c, parts in zip(visits, read.of_visits[kept].T, strict=True):
        there = np.ones(len(kept), bool)
        if c.missing:
            place = frame.of_visits.index(c.name)
            there = read.visits[kept, place] != c.missing_level
            found[frame.many(c.name)] = part(there)
        found[frame.now(c.name)] = part(parts * there) / SETTINGS.parts
    return found


def _ends(frame: VisitFrame, read: CodedVisits, counts: Positions) -> Positions:
    """How the visits of each person end, as levels."""
    died = np.zeros(len(counts), bool) if read.deaths is None else ~np.isnan(read.deaths)
    full = counts == frame.most
    label = np.where(full, np.where(died, CUT_DIED, CUT), np.where(died, DIED, STOPS))
    places = {name: i for i, name in enumerate(frame.ends)}
    return np.array([places[name] for name in label.tolist()], np.int64)


def _times(
    frame: VisitFrame,
    read: CodedVisits,
    start: Floats,
    when: Floats,
    last: Positions,
    some: npt.NDArray[np.bool_],
) -> list[Codes]:
    """Levels of the time from the last visit to death; nothing where no death is read."""
    if frame.till is None or read.deaths is None:
        return []
    seen = start.copy()
    seen[some] = when[last]
    known = ~np.isnan(read.deaths)
    time = levels_between(frame.till, np.where(known, read.deaths - seen, 0.0))
    return [np.where(known, time, frame.till.levels - 1).astype(np.uint16)]


# --- back to tables ---


@dataclass(frozen=True)
class Trajectories:
    """Generated persons with their visits, as levels; a visit's date as steps of `order`.

    `persons` `[persons, columns]` and `visits` `[visits, columns]`; `owner` rises, and `when` rises
    within an owner. `ages` are those at the first visit, in steps of `order`. `ends` is how each
    person's visits end, and `till` the level of the time to death.
    """

    persons: Codes
    visits: Codes
    owner: Positions
    when: Floats
    ends: Positions
    ages: Floats | None = None
    till: Codes | None = None


def written(
    frame: VisitFrame, drawn: Trajectories, *, key: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables, linked by `key`: 1 to the number of persons, in the order they were drawn."""
    import pandas as pd

    count = len(drawn.persons)
    keys = np.arange(1, count + 1)
    first = np.full(count, frame.order.lower)
    last = first.copy()
    first[drawn.owner[::-1]] = drawn.when[::-1]
    last[drawn.owner] = drawn.when
    persons = {key: pd.Series(keys)}
    for place, own in enumerate(frame.columns.columns):
        persons[own.name] = decode_column(own, drawn.persons[:, place], rng=rng)
    if frame.birth is not None and drawn.ages is not None:
        born = np.clip(first - drawn.ages, frame.birth.lower, frame.birth.upper)
        persons[frame.birth.name] = _instants(frame.birth, np.minimum(born, first))
    if frame.death is not None and frame.till is not None and drawn.till is not None:
        died = np.isin(drawn.ends, [frame.ends.index(DIED), frame.ends.index(CUT_DIED)])
        none = drawn.till == frame.till.levels - 1
        time = numbers_in(frame.till, np.where(none, 0, drawn.till), rng)
        death = np.maximum(np.minimum(last + time, frame.death.upper), last)
        persons[frame.death.name] = _instants(frame.death, death, ~died)
    visits = {key: pd.Series(keys[drawn.owner])}
    visits[frame.order.name] = _instants(frame.order, drawn.when)
    for place, own in enumerate(frame.of_visits.columns):
        values = decode_column(own, drawn.visits[:, place], rng=rng)
        if own.ranged and own.name in (*frame.rises, *frame.falls):  # inside one bin, too
            by = values.groupby(drawn.owner)
            values = by.cummax() if own.name in frame.rises else by.cummin()
        visits[own.name] = values
    return pd.DataFrame(persons), pd.DataFrame(visits)


def numbers_in(
    own: ColumnDomain, levels: npt.NDArray[np.integer], rng: np.random.Generator
) -> Floats:
    """A whole number inside the bin of each level, none of them missing."""
    return drawn_wholes(own, levels, rng).astype(np.float64)


def _instants(
    own: ColumnDomain, numbers: Floats, missing: npt.NDArray[np.bool_] | None = None
) -> pd.Series:
    none = np.zeros(len(numbers), bool) if missing is None else missing
    return column_kind(own).values(own, numbers, none)
