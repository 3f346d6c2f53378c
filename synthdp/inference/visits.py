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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from synthdp.bundle.linked import LinkedBundle, Viewed, as_one, checked_linked
from synthdp.bundle.noisy_values import MARGINALS, over_domain
from synthdp.data.domain import Domain
from synthdp.data.visits import OUTER, PERSONS, VisitFrame
from synthdp.errors import OutputError, QueryError, SynthdpError, VerifyError
from synthdp.graph.level_groups import groups_of
from synthdp.inference.answer import (
    Answer,
    answer_cells,
    ask_the_same,
    by_sums,
    check_agreement,
    labelled,
    solver_of,
)
from synthdp.inference.figures import CellRoles, Figure, Rows, roles
from synthdp.inference.least_squares import SETTINGS, LeastSquares, Margin, Measured, measured
from synthdp.inference.sums import Summed, mean_figures, visits_mean
from synthdp.inference.words import listed
from synthdp.model.visits import questions
from synthdp.model.visits.planning import person_sums
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ESTIMAND, estimand_purpose
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.model import Column, LinkedSpec, ReleaseSpec
from synthdp.spec.model.linked import LinkedQuestion

if TYPE_CHECKING:
    from synthdp.inference.effect import EffectAnswer


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
    def by_purpose(self) -> Viewed:
        """The view and the noisy tables of each look."""
        views = self.stated.frame.views
        try:
            _ = self.stated.moments
            found = self.stated.looks
            for view, tables in found.values():
                if not all(over_domain(t, views[view]) and t.sigma > 0 for t in tables):
                    raise ValueError("another table")
            for view, domain in views.items():
                groups_of(self._of_view(found, view), domain)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            what = f"cannot read {MARGINALS} in {self.bundle}: {type(error).__name__}"
            raise VerifyError(what, hint=f"see `synthdp verify {self.bundle}`") from None
        return found

    def _of_view(self, found: Viewed, view: str) -> list[NoisyTable]:
        """Those of a view, but for estimands', which have groups of their own."""
        looks = (t for p, (v, t) in found.items() if v == view and not p.startswith(ESTIMAND))
        return [table for tables in looks for table in tables]

    @cached_property
    def paid(self) -> tuple[Answer | EffectAnswer, ...]:
        """What the release paid for."""
        from synthdp.inference.visit_effects import paid_results

        tables = {purpose: own for purpose, (_, own) in self.by_purpose.items()}
        return paid_results(self.stated.linked, self.stated.frame, tables)

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
        if (paid := self._paid(text)) is not None:
            return paid
        refused: OutputError | None = None
        asked = questions.names_of_rows(
            questions.places(self.stated.frame, text), self.rows, self.stated.frame
        )
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

    def _read(self, rows: Asked, text: str) -> Query:
        query = parse_query(questions.written(self.stated.frame, text, rows.columns), rows.columns)
        if query.weight:
            how = "columns of visits count each visit once, of persons each person"
            raise OutputError("no weights are taken of persons with visits", hint=how)
        return query

    def _of(self, rows: Asked, text: str) -> Answer:
        query, spec = self._read(rows, text), self.stated.spec
        return answered(rows, query, text, spec, self.bundle, self._summed(rows, query))

    def _summed(self, rows: Asked, query: Query) -> tuple[Summed, ...] | None:
        """The figures of a mean by sums of numbers, where these tell it."""
        moments = self.stated.moments
        if moments is None:
            return None
        persons = self.rows[PERSONS]
        if not (rows.later or rows is persons):
            return None
        frame, holdout = self.stated.frame, self.stated.spec.evaluation.held_out
        known = persons.domain, persons.tables
        if rows.later:
            return visits_mean(query, frame, moments, known, holdout)
        return mean_figures(query, person_sums(frame), *known, moments, Rows(holdout))

    def _paid(self, text: str) -> Answer | None:
        """The answer that the release paid for, if it did."""
        spec, frame = self.stated.linked, self.stated.frame
        for i, estimand in enumerate(spec.estimands):
            with suppress(SynthdpError):  # what is no question to pay for is told by who answers it
                if isinstance(estimand, LinkedQuestion) and estimand.clip is None:
                    asked = LinkedQuestion(kind="question", ask=text)
                    one, other = (
                        questions.measured_question(spec, frame, e) for e in (asked, estimand)
                    )
                    if one.name == other.name and ask_the_same(one.query, other.query, one.domain):
                        found = self.paid[i]
                        assert isinstance(found, Answer)
                        return replace(found, query=replace(found.query, text=text))
        return None

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
                by = {n: questions.shown_name(n) for n in names}
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
                        self._read(rows, text),
                    )
                    yield Answer(
                        replace(query, text=text),
                        "C",
                        refused,
                        (),
                        groups=(("",) * len(query.by),),
                        law=rows.law,
                    )


def rows_of(bundle: LinkedBundle, tables: Mapping[str, Sequence[NoisyTable]]) -> dict[str, Asked]:
    """The rows that the tables of a bundle, by view, can be asked about."""
    frame, found = bundle.frame, dict[str, Asked]()
    for name, rows in questions.rows_by_name(bundle.linked, frame).items():
        asked = asked_rows(frame, name, rows, tables[rows.view], tables[OUTER])
        if all((asked.tables, asked.later)[: 1 + (name == questions.ALL)]):
            found[name] = asked
    return found


def asked_rows(
    frame: VisitFrame,
    name: str,
    rows: questions.QuestionRows,
    tables: Sequence[NoisyTable],
    first: Sequence[NoisyTable] = (),
) -> Asked:
    """Rows with the tables of their view, and of all visits with those of first ones, too."""
    own, known = rows.domain(frame), [renamed(t, rows.shown) for t in tables]
    if name != questions.ALL:
        return Asked(rows.law, rows.most, rows.columns, own, known)
    shown = {frame.first(n): frame.now(n) for n in frame.of_visits.names}
    both = [renamed(t, shown) for t in first], known
    return Asked(rows.law, rows.most, rows.columns, own, *both)


def paid_question(
    spec: LinkedSpec,
    frame: VisitFrame,
    i: int,
    asked: questions.MeasuredQuestion,
    tables: Mapping[str, Sequence[NoisyTable]],
) -> Answer:
    """The answer to a question that is the estimand at a position, by the tables of each purpose.

    Raises:
        VerifyError: its tables do not agree.
    """
    estimand = spec.estimands[i]
    assert isinstance(estimand, LinkedQuestion)
    own, *first = (tables.get(estimand_purpose(f"{i + 1}{k.name}"), ()) for k in asked.looks)
    rows = asked_rows(frame, asked.name, asked.rows, own, *first)
    return answered(rows, asked.query, estimand.ask, as_one(spec), Path(MARGINALS))


def answered(
    rows: Asked,
    query: Query,
    text: str,
    plain: ReleaseSpec,
    bundle: Path,
    summed: Sequence[Summed] | None = None,
) -> Answer:
    """The answer of tables to a question that was read, and is shown as `text`; or that of sums,
    `summed`, where noise makes it narrower.

    Raises:
        OutputError: no table tells it, or it has too many cells or groups.
        VerifyError: the tables do not agree.
    """
    spec = plain.model_copy(update={"columns": dict(rows.columns)})
    # Of one number a person has one visit.
    most = 1 if any(n.endswith(f"[{questions.LATER}].number") for n in query.by) else rows.most
    cells: CellRoles | None
    if rows.later:
        known = rows.both(query.columns)
        solver, cells = LeastSquares(known), roles(query, known.columns)
    else:
        solver, cells = solver_of(query, rows.domain, rows.tables)
    counted = Rows(spec.evaluation.held_out, most)
    found = answer_cells(query, spec, solver, cells, counted, rows.tables)
    if found.tier == "C":
        asked, every = {*query.columns}, rows.joint()
        joint = [s for s in every if asked & {*s}] or every
        most = 2 * SETTINGS.max_shown
        shown = "; ".join(" with ".join(s) for s in joint[:most])
        raise OutputError(
            f"no noisy tables tell it of {rows.law}: of {listed(query.columns)} together",
            hint=f"tables of these rows have {shown}{'; ...' if len(joint) > most else ''}",
        )
    check_agreement(found.agreement, bundle, query.columns)
    if summed is not None:
        tables, found = found, by_sums(found, summed, solver, cells, spec)
        most = most if found is tables else 1  # sums are of persons
    said = [f"law: {rows.law}", *found.about, *clipped(query.column, query.clip)]
    if most > 1 and query.statistic not in ("count", "sum"):
        said.append(
            "persons are the sample, and visits of one may be alike: the interval allows for"
            f" {most} of one person that are the same, which is more than there is"
        )
    whole = replace(found, about=tuple(said), law=rows.law, query=replace(query, text=text))
    return labelled(whole, spec, rows.domain)


def clipped(name: str | None, clip: Sequence[float] | None) -> list[str]:
    """Where the numbers of a figure end."""
    if clip is None:
        return []
    return [f"{name} clipped to {clip[0]:g} to {clip[1]:g}: what lies beyond counts as the end"]


def renamed(table: NoisyTable, names: Mapping[str, str]) -> NoisyTable:
    """A table with other names of its columns."""
    starts = {names.get(name, name): begins for name, begins in table.starts.items()}
    columns = tuple(names.get(name, name) for name in table.columns)
    return NoisyTable(columns, table.counts, table.sigma, starts)
