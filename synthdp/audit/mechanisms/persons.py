"""Persons with visits that are made up of public facts alone: neighbours, and canaries.

Two tables are neighbours where one person, with all visits, is in one of them alone. Both are read
as the kernel reads rows (`data.visits.views_of`): sorted, cut to the first visits, and made views.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.audit.mechanisms.calls import Pair, Side
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.visits import SETTINGS, CodedVisits, Floats, VisitFrame, views_of
from synthdp.privacy.events import Adjacency
from synthdp.privacy.linked import LinkedTable, in_views

ALIKE, SPREAD = "all visits in one rare cell", "visits spread"
"""Canaries: the worst case of tables of all steps, and a person like no other."""


def random_persons(frame: VisitFrame, count: int, rng: np.random.Generator) -> CodedVisits:
    """Persons with uniform levels and dates, and from no visit to one more than are kept."""
    owner = np.repeat(np.arange(count), rng.integers(0, frame.most + 2, count))
    births = None if frame.birth is None else _dates(frame.birth.lower, frame.birth.upper, count)
    deaths = None
    if frame.death is not None:
        drawn = rng.uniform(frame.death.lower, frame.death.upper, count)
        deaths = np.where(rng.random(count) < 0.5, np.floor(drawn), np.nan)
    when = np.floor(rng.uniform(frame.order.lower, frame.until, len(owner)))
    persons, visits = _levels(frame.columns, count, rng), _levels(frame.of_visits, len(owner), rng)
    own, theirs = frame.added
    parts = rng.integers(-SETTINGS.parts, SETTINGS.parts + 1, (len(owner), len(theirs))).astype(
        np.int32
    )
    evenly = [rng.uniform(c.lower, c.upper, count) for c in own]
    numbers = np.array(evenly).reshape(len(own), count).T
    return CodedVisits(persons, visits, owner, when, births, deaths, numbers, parts)


def _levels(domain: Domain, rows: int, rng: np.random.Generator) -> Codes:
    drawn = [rng.integers(0, size, rows) for size in domain.sizes]
    return np.array(drawn, np.uint16).reshape(len(domain), rows).T


def _dates(lower: float, upper: float, count: int) -> Floats:
    return np.floor(np.linspace(lower, upper, count))


def one_person(
    frame: VisitFrame, visits: int, *, spread: int | None = None, step: float | None = None
) -> CodedVisits:
    """A person of the last levels, with so many visits of them, each `step` after the other: by
    default the least gap. `spread` seeds levels and dates instead.
    """
    rng = np.random.default_rng(spread)
    drawn = random_persons(frame, 1, rng)
    step = float(frame.step) if step is None else step
    when = frame.until - step * np.arange(visits, dtype=np.float64)
    own, theirs = frame.added
    highest = [np.array([d.sizes], np.uint16) - 1 for d in (frame.columns, frame.of_visits)]
    person, visit = highest[0].astype(np.uint16), highest[1].astype(np.uint16)
    happened = np.repeat(visit, visits, axis=0)
    if spread is not None:
        person, when = drawn.persons, _dates(frame.order.lower, frame.until, visits)
        happened = _levels(frame.of_visits, visits, rng)
    return CodedVisits(
        person,
        happened,
        np.zeros(visits, np.int64),
        np.maximum(when, frame.order.lower),
        drawn.births,
        drawn.deaths,
        drawn.of_persons if spread is not None else np.array([[c.upper for c in own]]),
        np.full((visits, len(theirs)), SETTINGS.parts, np.int32),
    )


def canaries(frame: VisitFrame) -> dict[str, CodedVisits]:
    """Both canaries, with as many visits as are kept."""
    return {ALIKE: one_person(frame, frame.most), SPREAD: one_person(frame, frame.most, spread=1)}


def together(parts: Sequence[CodedVisits]) -> CodedVisits:
    """The persons of all parts, in their order."""
    starts = np.cumsum([0, *(len(part.persons) for part in parts)])

    def joined(name: str) -> Any:
        own = [getattr(part, name) for part in parts]
        return None if own[0] is None else np.concatenate(own)

    owner = np.concatenate([p.owner + start for p, start in zip(parts, starts, strict=False)])
    names = ("persons", "visits", "when", "births", "deaths", "of_persons", "of_visits")
    return replace(parts[0], owner=owner, **{name: joined(name) for name in names})


def read(frame: VisitFrame, persons: CodedVisits, *, held_out: int = 0) -> LinkedTable:
    """Made-up persons as the kernel reads them, the last `held_out` of them held out."""
    count = len(persons.persons)
    out: npt.NDArray[np.bool_] = np.arange(count) >= count - held_out
    return in_views(views_of(frame, persons), out, {})


@dataclass(frozen=True, eq=False)
class PersonPair(Pair):
    """Two linked tables that differ by one person, whose rows in other views are no unit's."""

    tables: tuple[LinkedTable, ...] = ()

    def sides(self, domain: Domain) -> tuple[Side, Side]:
        """Both tables as mechanisms get them."""
        fitted = (np.arange((~table.held_out).sum()) for table in self.tables)
        first, second = map(Side, self.tables, fitted)
        return first, second


def person_neighbours(
    frame: VisitFrame, *, adjacency: Adjacency = "add_remove", random_pairs: int = 0
) -> Iterator[PersonPair]:
    """Corner cases of a person among others, then `random_pairs` more, and persons who are held
    out; every second pair removes the person. Under `replace_one` another one takes the place.
    """
    rng, most = np.random.default_rng(1), frame.most
    alike, spread = canaries(frame).values()
    units = {
        ALIKE: alike,
        SPREAD: spread,
        "visits beyond those that are kept": one_person(frame, 2 * most),
        "all visits at one time": one_person(frame, most, step=0.0),
        "one visit": one_person(frame, 1),
        "no visit": one_person(frame, 0),
    }
    crowds = {
        "nobody": random_persons(frame, 0, rng),
        "a twin": alike,
        "30 others": random_persons(frame, 30, rng),
    }
    cases = [(f"{u} beside {c}", crowds[c], units[u]) for c in crowds for u in units]
    cases += [
        (f"random pair {n}", random_persons(frame, int(rng.integers(0, 40)), rng), unit)
        for n in range(random_pairs)
        for unit in [random_persons(frame, 1, rng)]
    ]
    other = one_person(frame, most, spread=2)
    for number, (name, crowd, unit) in enumerate(cases):
        place = int(rng.integers(0, 2))
        sides = [crowd, together([unit, crowd] if place else [crowd, unit])]
        if adjacency == "replace_one":
            sides[0] = together([other, crowd] if place else [crowd, other])
        first, second = (read(frame, side) for side in sides[:: 1 if number % 2 == 0 else -1])
        own = first.codes[:1] if len(first.codes) else second.codes[:1]
        yield PersonPair(name, first.codes, own[:0], own, 0, tables=(first, second))
    crowd = crowds["30 others"]
    for unit in (alike, spread):
        both = read(frame, crowd), read(frame, together([crowd, unit]), held_out=1)
        own = both[1].codes[-1:]
        name = "a person who is held out"
        yield PersonPair(name, both[0].codes, own[:0], own, 0, held_out=True, tables=both)
