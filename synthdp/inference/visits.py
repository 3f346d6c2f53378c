"""Answers of a bundle of persons with visits: which rows a question is about, and what tables tell.

Columns are named as arrows name them: `patients.sex`, `stays[1].stage`, `stays[last].stage`,
`stays.stage` (all stays), `stays[-1].stage` (the one before), `stays[later].stage` (all but the
first), `stays.number` (how many a person has). Where they stand says what rows a question is of
(`Asked`), and so whether a person counts once or each visit does.

Persons are the sample, and visits of one person go together. With U_i the sum of what the at most m
rows of person i add to an estimate's error, sum U_i^2 <= m times the sum over rows of their squares
[Cauchy, Schwarz]: the sampling variance of independent rows times m is a bound, whatever a person's
visits have in common, and the interval is at least as wide as it should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from synthdp.bundle.linked import LinkedBundle, checked_linked
from synthdp.bundle.noisy_values import MARGINALS, over_domain, table_from_json
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.visits import OUTER, PERSONS, SECOND, STEPS, VisitFrame, column
from synthdp.errors import OutputError, QueryError, VerifyError
from synthdp.graph.level_groups import groups_of
from synthdp.inference.answer import (
    Answer,
    answer_cells,
    check_agreement,
    labelled,
    solver_of,
)
from synthdp.inference.figures import CellRoles, Figure, Rows, roles
from synthdp.inference.least_squares import SETTINGS, LeastSquares, Margin, Measured, measured
from synthdp.inference.words import listed
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ESTIMAND
from synthdp.spec.expressions.parsed import quoted, unquoted
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.model import Column, Integer, LinkedSpec, Ordinal

if TYPE_CHECKING:
    from synthdp.inference.effect import EffectAnswer

Looks = dict[str, tuple[str, tuple[NoisyTable, ...]]]
"""The view and the noisy tables of each purpose."""

ALL = "all visits"
LAST, LATER = "last", "later"


@dataclass(frozen=True)
class Asked:
    """Rows that can be asked about: what one is, the most of a person, and the tables of them.

    `columns` are those that a question may name. Rows of all visits are in two sets of tables: of
    first visits, and of the `later` ones.
    """

    law: str
    most: int
    columns: Mapping[str, Column]
    domain: Domain
    tables: Sequence[NoisyTable]
    later: Sequence[NoisyTable] = ()

    def both(self, names: Sequence[str]) -> Measured:
        """What the tables say of some columns of all visits: the counts of first and later ones."""
        groups = groups_of([*self.tables, *self.later], self.domain)
        one, two = (
            measured(tables, self.domain, names, grouped=True, groups=groups)
            for tables in (self.tables, self.later)
        )
        margins = {
            axes: Margin(
                a.counts + b.counts,
                a.variances + b.variances,
                a.statistic + b.statistic,
                a.degrees + b.degrees,
            )
            for axes, a in one.margins.items()
            if (b := two.margins.get(axes)) is not None
        }
        return Measured(one.columns, margins)

    def joint(self) -> list[tuple[str, ...]]:
        """The sets of columns that some table has."""
        found, later = (
            [{*t.columns} & self.columns.keys() for t in tables]
            for tables in (self.tables, self.later)
        )
        if self.later:
            found = [a & b for a in found for b in later]
        sets = (tuple(n for n in self.columns if n in some) for some in found if some)
        return [*dict.fromkeys(sets)]


@dataclass(frozen=True)
class VisitQuestions:
    """A bundle of persons with visits that questions are asked of; files are read once."""

    bundle: Path

    @cached_property
    def stated(self) -> LinkedBundle:
        return checked_linked(self.bundle, (MARGINALS,))

    @cached_property
    def by_purpose(self) -> Looks:
        """The view and the noisy tables of each look."""
        views, found = self.stated.frame.views, Looks()
        try:
            for told in self.stated.json(MARGINALS)["tables"]:
                table, purpose, view = table_from_json(told), told["purpose"], told["view"]
                if not over_domain(table, views[view]) or not table.sigma > 0:
                    raise ValueError("another table")
                found[purpose] = view, (*found.get(purpose, (view, ()))[1], table)
            for view, domain in views.items():
                groups_of(self._of_view(found, view), domain)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            what = f"cannot read {MARGINALS} in {self.bundle}: {type(error).__name__}"
            raise VerifyError(what, hint=f"see `synthdp verify {self.bundle}`") from None
        return found

    def _of_view(self, found: Looks, view: str) -> list[NoisyTable]:
        """Those of a view, but for estimands', which have groups of their own."""
        looks = (t for p, (v, t) in found.items() if v == view and not p.startswith(ESTIMAND))
        return [table for tables in looks for table in tables]

    @cached_property
    def paid(self) -> tuple[EffectAnswer, ...]:
        """What the release paid for."""
        from synthdp.inference.visit_effects import paid_effects

        tables = {purpose: own for purpose, (_, own) in self.by_purpose.items()}
        return paid_effects(self.stated.linked, self.stated.frame, tables)

    @cached_property
    def rows(self) -> dict[str, Asked]:
        """All that can be asked about."""
        views = self.stated.frame.views
        return rows_of(self.stated, {v: self._of_view(self.by_purpose, v) for v in views})

    def answer(self, text: str) -> Answer:
        """The answer to a question, by noisy tables alone.

        Raises:
            QueryError: the question cannot be read.
            OutputError: no table tells it, or it has too many cells or groups.
            VerifyError: a file was changed, or cannot be read, or the tables do not agree.
        """
        refused: OutputError | None = None
        asked = rows_at(self.places(text), self.rows, self.stated.frame)
        for name in asked:
            try:
                return self._of(self.rows[name], text)
            except OutputError as error:
                refused = refused or error
            except QueryError:  # a column that these rows have not
                if name == asked[-1] and refused is None:
                    raise
        assert refused is not None
        raise refused

    def _of(self, rows: Asked, text: str) -> Answer:
        spec = self.stated.spec.model_copy(update={"columns": dict(rows.columns)})
        query = parse_query(self.written(text, rows), rows.columns)
        if query.weight:
            how = "columns of visits count each visit once, of persons each person"
            raise OutputError("no weights are taken of persons with visits", hint=how)
        solver, cells = self._solver(query, rows)
        found = answer_cells(query, spec, solver, cells, Rows(per_unit=rows.most), rows.tables)
        if found.tier == "C":
            asked, every = {*query.columns}, rows.joint()
            joint = [s for s in every if asked & {*s}] or every
            most = 2 * SETTINGS.max_shown
            shown = "; ".join(" with ".join(s) for s in joint[:most])
            raise OutputError(
                f"no noisy tables tell it of {rows.law}: of {listed(query.columns)} together",
                hint=f"tables of these rows have {shown}{'; ...' if len(joint) > most else ''}",
            )
        check_agreement(found.agreement, self.bundle, query.columns)
        said = [f"law: {rows.law}", *found.about]
        if rows.most > 1 and query.statistic not in ("count", "sum"):
            said.append(
                "persons are the sample, and visits of one may be alike: the interval allows for"
                f" {rows.most} of one person that are the same, which is more than there is"
            )
        whole = replace(found, about=tuple(said), law=rows.law, query=replace(query, text=text))
        return labelled(whole, spec, rows.domain)

    def _solver(self, query: Query, rows: Asked) -> tuple[LeastSquares, CellRoles | None]:
        if not rows.later:
            return solver_of(query, rows.domain, rows.tables)
        known = rows.both(query.columns)
        return LeastSquares(known), roles(query, known.columns)

    def every(self) -> Iterator[Answer]:
        """Means of numbers and counts of all else that a table has, of all rows, and by one other
        column.
        """
        most = SETTINGS.max_groups
        for rows in self.rows.values():
            texts = dict[str, None]()
            for names in rows.joint():
                numbers = [n for n in names if rows.columns[n].operand == "number"]
                groups = [n for n in names if n not in numbers and rows.domain[n].levels <= most]
                by = {n: _shown(n) for n in names}
                for n in numbers:
                    texts |= {
                        f"mean({by[n]}){of}": None for of in ("", *(f" by {by[g]}" for g in groups))
                    }
                for size in (1, 2):
                    some = combinations(groups, size)
                    texts |= {"count() by " + ", ".join(by[g] for g in own): None for own in some}
            for text in texts:
                try:
                    yield self._of(rows, text)
                except OutputError as error:  # too many groups
                    refused, query = (
                        (Figure(None, refused=str(error)),),
                        parse_query(self.written(text, rows), rows.columns),
                    )
                    yield Answer(
                        replace(query, text=text),
                        "C",
                        refused,
                        (),
                        groups=(("",) * len(query.by),),
                        law=rows.law,
                    )

    # --- names ---

    @cached_property
    def _nodes(self) -> re.Pattern[str]:
        """A column of a table at a place, or what stands in quotes."""
        tables = "|".join(map(re.escape, self.stated.linked.dataset.tables))
        return re.compile(
            r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|"
            rf"(?<![\w.-])(?P<tick>`?)(?P<table>{tables})(?P=tick)(?:\[(?P<place>[^\]]*)\])?"
            rf"\.(?:(?P<name>\w+)|`(?P<inside>(?:[^`]|``)*)`)"
        )

    def places(self, text: str) -> set[str]:
        """Where the columns of visits in a question stand."""
        found = set[str]()
        for match in self._nodes.finditer(text):
            if match["table"] == self.stated.frame.events:
                place = (match["place"] or "").replace(" ", "")
                found.add(place or _OWN.get(match["name"] or "", ""))
        return found

    def written(self, text: str, rows: Asked) -> str:
        """A question with the names of its columns in backticks."""

        def name(match: re.Match[str]) -> str:
            if not match["table"]:
                return match[0]
            own = match["name"] or unquoted(match["inside"])
            place = (match["place"] or "").replace(" ", "")
            whole = f"{match['table']}[{place}].{own}" if place else f"{match['table']}.{own}"
            if whole not in rows.columns and not place:
                at = f"{match['table']}[{LATER}].{own}"
                whole = at if at in rows.columns else whole
            return "`" + whole.replace("`", "``") + "`"

        return self._nodes.sub(name, text)


_OWN = {"number": "number", "end": "number", "gap": "-1"}
"""Where what is no column of visits stands: once for each person, and at visits after the first."""


def rows_at(places: set[str], rows: Collection[str], frame: VisitFrame) -> list[str]:
    """Those of the rows in which all of these places are, the likeliest first.

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
    found = [name for name, at in offers.items() if name in rows and places <= at]
    if not found:
        v = frame.events
        shown = listed([f"{v}[{p}]" if p not in ("", "number") else v for p in sorted(places)])
        raise OutputError(
            f"a question is of one kind of rows, and none that was counted has {shown}",
            hint=f"ask of first and last visits, {v}[1] and {v}[{LAST}]; of visits and the ones"
            f" before, {v} and {v}[-1]; of all visits, {v}; or of persons, {v}.number among them",
        )
    return found if places else found[:2]


Kind = tuple[str, int, str, dict[str, Column], dict[str, str]]
"""A law, the most rows of a person, a view, columns as questions name them, and other names of the
view's columns."""


def rows_of(bundle: LinkedBundle, tables: Mapping[str, Sequence[NoisyTable]]) -> dict[str, Asked]:
    """The rows that the tables of a bundle, by view, can be asked about."""
    frame, found = bundle.frame, dict[str, Asked]()
    visits = [c.name for c in frame.of_visits.columns]
    first = [renamed(t, {frame.first(n): frame.now(n) for n in visits}) for t in tables[OUTER]]
    for name, (law, most, view, columns, shown) in _kinds(bundle.linked, frame, visits).items():
        known = [renamed(t, shown) for t in tables[view]]
        sides = [first, known] if name == ALL else [known]
        if all(sides):
            found[name] = Asked(law, most, columns, _named(frame, view, shown), *sides)
    return found


def _kinds(spec: LinkedSpec, frame: VisitFrame, visits: Sequence[str]) -> dict[str, Kind]:
    """All kinds of rows."""
    many, later = frame.most, f"{frame.events}[{LATER}]."
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
    first = {frame.before(n): frame.first(n) for n in visits}
    return {
        PERSONS: ("persons: each counts once", 1, PERSONS, known | ends | till, {}),
        OUTER: ("persons with a visit: each counts once", 1, OUTER, outer, {}),
        ALL: (
            f"visits: each counts once, the first {many} of a person",
            *(many, STEPS, known | at(frame.now), {}),
        ),
        SECOND: (
            "second visits: one of each person who has two",
            *(1, SECOND, of_second),
            first | {frame.now(n): f"{second}{n}" for n in ("gap", *visits)},
        ),
        LATER: (
            f"visits after the first: each counts once, {many - 1} of a person at most",
            *(many - 1, STEPS, steps, {frame.now(n): f"{later}{n}" for n in visits}),
        ),
    }


def _named(frame: VisitFrame, view: str, shown: Mapping[str, str]) -> Domain:
    """The columns of a view as questions name them, numbers of visits as numbers."""
    own = {frame.now("number"): column("number", _count(frame))}
    columns = (own.get(c.name, c) for c in frame.views[view].columns)
    names = (shown.get(c.name, c.name) for c in frame.views[view].columns)
    return Domain(tuple(replace(c, name=n) for c, n in zip(columns, names, strict=True)))


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


def renamed(table: NoisyTable, names: Mapping[str, str]) -> NoisyTable:
    """A table with other names of its columns."""
    starts = {names.get(name, name): begins for name, begins in table.starts.items()}
    columns = tuple(names.get(name, name) for name in table.columns)
    return NoisyTable(columns, table.counts, table.sigma, starts)


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


def _shown(name: str) -> str:
    """How a question writes a name."""
    table, _, own = name.partition(".")
    return f"{table}.{quoted(own)}"
