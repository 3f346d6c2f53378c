"""Which rows of two linked tables a question is of, and what one that is paid for is measured by.

Columns are named as arrows name them; where they stand says what a row is (`rows_by_name`). A
question that is paid for has a table of its own columns, in the levels that it tells apart.

All visits are first ones and later ones, in two views. With m visits of a person at most, later
ones have sensitivity m - 1 and first ones 1, and the noise of their sum is least where later ones
have (m - 1) / m of the budget, in squares of mu: 1 / p + (m - 1)^2 / (1 - p) is least at p = 1 / m,
and is then m^2, as if all visits were one view [derived here].
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import Starts
from synthdp.data.visits import OUTER, PERSONS, SECOND, STEPS, VisitFrame, column
from synthdp.errors import OutputError, QueryError
from synthdp.model.visits.laws import SETTINGS
from synthdp.spec.expressions.parsed import quoted, unquoted
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.model import Column, Integer, LinkedSpec, Ordinal
from synthdp.spec.model.linked import LinkedQuestion

ALL = "all visits"
LAST, LATER = "last", "later"


@dataclass(frozen=True)
class Look:
    """A table that is counted for an estimand: its columns by their names in a view, of which a
    person has at most `rows` rows.

    `name` tells it from the estimand's others, and `part` is its part of the budget, in squares of
    mu. `starts` are groups of levels that the spec alone gives; `groups` says about how many groups
    of like mass a fine column is put into.
    """

    view: str
    rows: int
    columns: tuple[str, ...]
    name: str = ""
    part: float = 1.0
    starts: Mapping[str, Starts] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class QuestionRows:
    """Rows that a question can be of: what one is, the most of a person, and their view.

    `columns` are those that a question may name, and `shown` has their names by those in the view,
    where these are others.
    """

    law: str
    most: int
    view: str
    columns: Mapping[str, Column]
    shown: Mapping[str, str]

    def domain(self, frame: VisitFrame) -> Domain:
        """The columns of the view as questions name them, numbers of visits as numbers."""
        own = {frame.now("number"): column("number", _count(frame))}
        columns = [own.get(c.name, c) for c in frame.views[self.view].columns]
        names = [self.shown.get(c.name, c.name) for c in frame.views[self.view].columns]
        return Domain(tuple(replace(c, name=n) for c, n in zip(columns, names, strict=True)))


@dataclass(frozen=True)
class MeasuredQuestion:
    """What a question that is paid for is measured by: a table in each view that has its rows."""

    name: str
    rows: QuestionRows
    query: Query
    domain: Domain
    starts: Mapping[str, Starts]
    looks: tuple[Look, ...]

    def cells(self, names: Collection[str]) -> int:
        """How many combinations of levels some of its columns have."""
        return math.prod(len(self.starts.get(n, range(self.domain[n].levels))) for n in names)

    def noise(self, persons: float, sigma: float) -> float:
        """The least deviation of the noise in a share of a group that can be hoped for: where each
        person has the most rows, and groups are even.
        """
        groups = self.cells(self.query.by)
        each = self.cells(self.query.columns) / groups
        return sigma * math.sqrt(each) * groups / (persons * self.rows.most)


def measured_question(
    spec: LinkedSpec, frame: VisitFrame, estimand: LinkedQuestion
) -> MeasuredQuestion:
    """What a question is measured by.

    Raises:
        QueryError: it cannot be read.
        OutputError: no rows have all of its columns, or it names none.
    """
    every = rows_by_name(spec, frame)
    *others, last = names_of_rows(places(frame, estimand.ask), every, frame)

    def read(name: str) -> Query:
        columns = every[name].columns
        return parse_query(written(frame, estimand.ask, columns), columns)

    name, query = last, None
    for other in others:
        with suppress(QueryError):  # a column that these rows have not
            name, query = other, read(other)
            break
    query, rows = query or read(last), every[name]
    if not query.columns:
        raise OutputError(
            f"{estimand.ask!r} names no column, and is no question to pay for",
            hint="how many persons and visits there are is counted in any release",
        )
    domain = rows.domain(frame)
    starts = {n: s for n in query.columns if (s := _told_apart(domain[n], query))}
    if estimand.clip is not None and query.column is not None:
        starts[query.column] = clipped_groups(domain[query.column], estimand.clip)
        query = replace(query, clip=estimand.clip)
    seen = {shown: own for own, shown in rows.shown.items()}

    def look(view: str, most: int, of: Mapping[str, str], what: str, part: float) -> Look:
        own = tuple(of.get(n, n) for n in query.columns)
        groups = {of.get(n, n): s for n, s in starts.items()}
        return Look(view, most, own, what, part, groups)

    looks: tuple[Look, ...]
    if name != ALL:
        looks = (look(rows.view, rows.most, seen, "", 1.0),)
    else:
        m, first = frame.most, {frame.now(c): frame.first(c) for c in frame.of_visits.names}
        looks = (
            look(STEPS, m - 1, seen, "", 1 - 1 / m),
            look(OUTER, 1, first, ", first visits", 1 / m),
        )
    return MeasuredQuestion(name, rows, query, domain, starts, looks)


def _told_apart(own: ColumnDomain, query: Query) -> Starts:
    """Groups of the levels of a column that is only compared with constants: what lies between two
    of them; nothing of other columns.
    """
    if not own.ranged or own.name in (*query.by, *query.numbers):
        return ()
    spikes, ends = len(own.spikes), [*own.edges, own.stop]
    kept = {0}
    for at in (constant / own.unit for constant in query.constants):
        inside = [j for j, low in enumerate(own.edges) if low <= at < ends[j + 1]]
        # The next number below may be of the level before, and the level itself may be cut.
        kept |= {i for j in inside for i in (j, j + 1) if i < len(own.edges)}
    missing = [own.levels - 1] if own.missing else []
    return (*range(spikes), *(spikes + j for j in sorted(kept)), *missing)


def clipped_groups(own: ColumnDomain, clip: Sequence[float]) -> Starts:
    """Groups of the levels of a column whose numbers are cut: what lies beyond an end is one group,
    whose number is known, and what lies between is as fine as the levels, or about as fine as
    `SETTINGS.numbers` groups.
    """
    spikes, ends = len(own.spikes), [*own.edges[1:], own.stop]
    last = 0.0 if own.continuous else 1.0  # bins of whole numbers end one below the next
    inside = [
        j
        for j, (low, end) in enumerate(zip(own.edges, ends, strict=True))
        if end - last > clip[0] and low < clip[1]
    ]
    between = inside[:: math.ceil(len(inside) / SETTINGS.numbers) or 1]
    beyond = [j for j in (inside[-1] + 1,) if j < len(own.edges)] if inside else []
    missing = [own.levels - 1] if own.missing else []
    bins = sorted({0, *between, *beyond})
    return (*range(spikes), *(spikes + j for j in bins), *missing)


# --- which rows ---

_OWN = {"number": "number", "end": "number", "gap": "-1"}
"""Where what is no column of visits stands: once for each person, and at visits after the first."""


def names_of_rows(at: set[str], known: Collection[str], frame: VisitFrame) -> list[str]:
    """Those of the `known` rows in which all of these places are, the likeliest first.

    Raises:
        OutputError: there are none.
    """
    offers = {
        PERSONS: {"number", LAST},
        OUTER: {"1", LAST, "number"},
        ALL: {""},
        SECOND: {"1", "2"},
        LATER: {"", "-1", LATER},
    }
    found = [name for name, own in offers.items() if name in known and at <= own]
    if not found:
        v = frame.events
        shown = " and ".join(f"{v}[{p}]" if p not in ("", "number") else v for p in sorted(at))
        raise OutputError(
            f"a question is of one kind of rows, and none that was counted has {shown}",
            hint=f"ask of first and last visits, {v}[1] and {v}[{LAST}]; of visits and the ones"
            f" before, {v} and {v}[-1]; of all visits, {v}; by the number of a visit after the"
            f" first, {v}[{LATER}].number; or of persons, {v}.number among them",
        )
    return found if at else found[:2]


def rows_by_name(spec: LinkedSpec, frame: VisitFrame) -> dict[str, QuestionRows]:
    """All kinds of rows."""
    many, later = frame.most, f"{frame.events}[{LATER}]."
    visits = [c.name for c in frame.of_visits.columns]
    known = {n: column_of(spec, frame, n) for n in frame.modelled.names}

    def at(place: Callable[[str], str], *more: str) -> dict[str, Column]:
        return {place(n): spec.columns[frame.events][n] for n in (*more, *visits)}

    ends: dict[str, Column] = {frame.now("number"): _count(frame)}
    ends |= {frame.now("end"): Ordinal(type="ordinal", categories=frame.ends)}
    till = {frame.last("till"): _time(frame, c) for c in [frame.till] if c}
    gap, second = _time(frame, frame.gap), f"{frame.events}[2]."
    outer = known | at(frame.first, frame.order.name) | at(frame.last) | ends
    of_second = known | at(frame.first) | at(lambda n: f"{second}{n}") | {f"{second}gap": gap}
    steps = known | at(frame.before) | at(lambda n: f"{later}{n}") | {frame.now("gap"): gap}
    steps |= {f"{later}number": _count(frame)}
    first = {frame.before(n): frame.first(n) for n in visits}
    return {
        PERSONS: QuestionRows("persons: each counts once", 1, PERSONS, known | ends | till, {}),
        OUTER: QuestionRows("persons with a visit: each counts once", 1, OUTER, outer, {}),
        ALL: QuestionRows(
            f"visits: each counts once, the first {many} of a person",
            *(many, STEPS, known | at(frame.now), {}),
        ),
        SECOND: QuestionRows(
            "second visits: one of each person who has two",
            *(1, SECOND, of_second),
            first | {frame.now(n): f"{second}{n}" for n in ("gap", *visits)},
        ),
        LATER: QuestionRows(
            f"visits after the first: each counts once, {many - 1} of a person at most",
            *(many - 1, STEPS, steps),
            {frame.now(n): f"{later}{n}" for n in ("number", *visits)},
        ),
    }


def _count(frame: VisitFrame) -> Integer:
    """How many visits there are."""
    return Integer(type="integer", lower=0, upper=frame.most, bins=frame.most + 1)


def column_of(spec: LinkedSpec, frame: VisitFrame, name: str) -> Column:
    """The declaration of a column of a person, or of a visit, by its name in the views."""
    table, _, own = name.partition(".")
    if table == frame.people:
        known = spec.columns[table].get(own)
        assert known is not None or frame.age is not None
        return _time(frame, frame.age) if known is None else known  # type: ignore[arg-type]
    return spec.columns[frame.events][own]


def _time(frame: VisitFrame, own: ColumnDomain) -> Integer:
    """A time of the frame, in steps of the order of visits."""
    return Integer(
        type="integer",
        lower=int(own.lower),
        upper=int(own.upper),
        edges=tuple(map(int, own.edges)),
        unit=None if frame.order.step_seconds is None else f"{frame.order.resolution}s",
        missing=own.missing,
    )


# --- names ---


def _nodes(frame: VisitFrame, text: str) -> Iterator[re.Match[str]]:
    """Columns of a table at a place, and what stands in quotes."""
    tables = "|".join(map(re.escape, (frame.people, frame.events)))
    return re.finditer(
        r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|"
        rf"(?<![\w.-])(?P<tick>`?)(?P<table>{tables})(?P=tick)(?:\[(?P<place>[^\]]*)\])?"
        rf"\.(?:(?P<name>\w+)|`(?P<inside>(?:[^`]|``)*)`)",
        text,
    )


def places(frame: VisitFrame, text: str) -> set[str]:
    """Where the columns of visits in a question stand."""
    found = set[str]()
    for match in _nodes(frame, text):
        if match["table"] == frame.events:
            place = (match["place"] or "").replace(" ", "")
            found.add(place or _OWN.get(match["name"] or "", ""))
    return found


def written(frame: VisitFrame, text: str, columns: Collection[str]) -> str:
    """A question with the names of its columns, of which there are these, in backticks."""
    found, end = "", 0
    for match in _nodes(frame, text):
        if not match["table"]:
            continue
        own = match["name"] or unquoted(match["inside"])
        place = (match["place"] or "").replace(" ", "")
        whole = f"{match['table']}[{place}].{own}" if place else f"{match['table']}.{own}"
        if whole not in columns and not place:
            at = f"{match['table']}[{LATER}].{own}"
            whole = at if at in columns else whole
        found += text[end : match.start()] + "`" + whole.replace("`", "``") + "`"
        end = match.end()
    return found + text[end:]


def shown_name(name: str) -> str:
    """How a question writes a name."""
    table, _, own = name.partition(".")
    return f"{table}.{quoted(own)}"
