"""An answer: which tier it is of, its figures, and what they are of.

A. **measured**: one table has all columns of the question.
B. **spanned**: no table has, but several together determine the answer.
C. **model only**: they do not. The figure is the synthetic rows' own, and has no interval.

The change of a figure from an earlier wave to this one has an interval, too: each wave's own noisy
tables answer the question, with an interval of 95%. Noise of different waves is independent. So is
the sampling of rows, where these are of different people; the same people's rows go together, which
makes the true change less uncertain than said. With estimates a and b, and intervals (a1, a2) and
(b1, b2), the change a - b lies within

    a - b - sqrt((a - a1)^2 + (b2 - b)^2)   and   a - b + sqrt((a2 - a)^2 + (b - b1)^2):

variances of independent estimates add up, each recovered from its own interval on the side that
counts [Zou and Donner, "Construction of confidence limits about effect measures", Statistics in
Medicine 27 (2008)]. The tables of earlier waves do not make the interval narrower: how far a series
drifts is estimated, and an interval must not rest on that.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from synthdp.bundle.noisy_values import MARGINALS, WAVES, PublishedWave, earlier_waves, level_law
from synthdp.data.domain import Domain
from synthdp.errors import OutputError, SynthdpError, VerifyError
from synthdp.files import check_sums, read_text
from synthdp.inference import figures as of_cells
from synthdp.inference.estimands import (
    ESTIMAND_KINDS,
    EstimandResult,
    bundle_estimands,
    bundle_sums,
    paid_about,
)
from synthdp.inference.figures import CellRoles, Figure, Rows, Value
from synthdp.inference.joint_figures import (
    correlation_figure,
    correlation_needed,
    weighted_figure,
    weighted_needed,
)
from synthdp.inference.least_squares import SETTINGS, Agreement, Axes, LeastSquares, measured
from synthdp.inference.model_only import TABLE, model_figures
from synthdp.inference.sums import Summed, mean_figures, narrower
from synthdp.inference.words import (
    TIERS,
    about,
    as_texts,
    figure_lines,
    figures_text,
    outside_domain,
    whom,
)
from synthdp.model.planning import moment_sums
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NoisyProducts
from synthdp.privacy.plan import MOMENTS
from synthdp.spec.expressions.parsed import Expression, quoted
from synthdp.spec.expressions.query import CHANGE, Query, parse_query
from synthdp.spec.load.loader import linked_in, load_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.evaluation import Clip, number_bounds

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.inference.visits import VisitQuestions


Tier = Literal["A", "B", "C"]
HEADER = (
    *("estimate", "low", "high", "low_at_middles", "high_at_middles"),
    *("rows", "unit", "tier", "refused"),
)


@dataclass(frozen=True)
class Answer:
    """The answer to a question, one figure for each group.

    `tier` is A (measured), B (spanned) or C (model only, without intervals). `about` says in words
    what the figures are of. `unit` is that of their numbers, where the spec declares one, and
    `groups` has each figure's level of every column of `by`. `unmeasured` has the sets of columns,
    of tier C, whose table would have to be measured. `agreement` is the test that the tables agree,
    where there is one. `law` says what a row is, of persons with visits.
    """

    query: Query
    tier: Tier
    figures: tuple[Figure, ...]
    about: tuple[str, ...]
    unmeasured: tuple[tuple[str, ...], ...] = ()
    agreement: Agreement | None = None
    unit: str | None = None
    groups: tuple[tuple[str, ...], ...] = ((),)
    law: str | None = None

    @property
    def estimate(self) -> Value | None:
        """The estimate of a question without `by`; None where it is refused."""
        return self._only.estimate

    @property
    def interval(self) -> tuple[Value, Value] | None:
        """The 95% interval of a question without `by`; None in tier C, or where it is refused."""
        return self._only.interval

    @property
    def _only(self) -> Figure:
        if self.query.by:
            raise OutputError(
                f"this answer has one figure for each group of {', '.join(self.query.by)!r}",
                hint="read them from `figures`",
            )
        return self.figures[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query.text,
            "tier": self.tier,
            "level": 0.95,
            "unit": self.unit,
            "figures": [figure.to_json() for figure in self.figures],
            "about": list(self.about),
            "unmeasured": list(map(list, self.unmeasured)),
            "agreement": None if self.agreement is None else self.agreement.to_json(),
        } | ({} if self.law is None else {"law": self.law})

    def to_csv(self) -> str:
        """The figures as CSV, a line for each, with the columns of `by` first."""
        return as_csv([*self.query.by, *HEADER], [[*g, *told] for g, told in self.lines()])

    def to_frame(self) -> pd.DataFrame:
        """The same as a frame: a row for each figure, and in `refused` why one has no numbers."""
        import pandas as pd

        lines = [[*group, *told] for group, told in self.lines()]
        return pd.DataFrame(lines, columns=[*self.query.by, *HEADER])

    def lines(self) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        """Each figure's group, and its values in the order of `HEADER`."""
        for group, f in zip(self.groups, self.figures, strict=True):
            pairs = (*(f.interval or (None, None)), *(f.at_middles or (None, None)))
            yield group, [f.estimate, *pairs, f.rows, self.unit, self.tier, f.refused]

    def __str__(self) -> str:
        lines = figure_lines(
            self.query.statistic, self.figures, interval=self.tier != "C", unit=self.unit
        )
        return figures_text(f"{self.query.text}   ({TIERS[self.tier]})", lines, self.about)


def as_csv(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Lines as CSV; None is an empty field."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows([["" if value is None else value for value in line] for line in lines])
    return text.getvalue()


@dataclass(frozen=True)
class Questions:
    """A bundle in a folder that questions are asked of; its files are checked and read once."""

    bundle: Path

    @cached_property
    def spec(self) -> ReleaseSpec:
        check_sums(self.bundle, ("spec.yaml",))
        return load_spec(self.bundle / "spec.yaml")

    @cached_property
    def domain(self) -> Domain:
        return Domain.from_spec(self.spec.columns)

    @cached_property
    def tables(self) -> Sequence[NoisyTable]:
        check_sums(self.bundle, (MARGINALS,))
        return level_law(self.bundle, self.domain, margins=False).tables

    @cached_property
    def paid(self) -> tuple[EstimandResult, ...]:
        """What the release paid for."""
        return bundle_estimands(self.bundle)

    @cached_property
    def moments(self) -> NoisyProducts | None:
        """The sums of all numbers, where the release measured them."""
        if not self.spec.privacy.shares.moments:
            return None
        found = bundle_sums(self.bundle, self.spec, self.domain)[MOMENTS]
        assert isinstance(found, NoisyProducts)
        return found

    @cached_property
    def asked(self) -> list[tuple[int, Query, Clip | None]]:
        """The questions that the release paid for: places, and where their numbers are clipped."""
        found = []
        for i, estimand in enumerate(self.spec.estimands):
            if estimand.question is not None:
                query = parse_query(estimand.question, self.spec.columns)
                clips = ESTIMAND_KINDS[estimand.kind].clips(self.spec, estimand)
                found.append((i, query, clips.get(query.column or "")))
        return found

    def answer(self, text: str) -> Answer:
        """The answer to a question. One that cannot be read opens no more than the spec.

        Raises:
            QueryError: the question cannot be read.
            OutputError: it has too many cells or groups.
            VerifyError: a file was changed, or cannot be read, or the tables do not agree.
        """
        if asked := CHANGE.fullmatch(text):
            return self._change(text, *asked.groups())
        return self._answer(parse_query(text, self.spec.columns))

    def _change(self, text: str, question: str, since: str) -> Answer:
        """The change of a figure since an earlier wave, each wave by its own tables."""
        waves = {wave.name: wave for wave in self.waves}
        if since not in waves:
            raise OutputError(
                f"{self.bundle} knows no wave {since!r} before it",
                hint=f"it takes along {', '.join(waves) or 'none: its spec has no waves.after'}",
            )
        then, answers = waves[since], list[Answer]()
        for spec, tables in ((self.spec, self.tables), (then.stated, then.whole)):
            query, domain = parse_query(question, spec.columns), Domain.from_spec(spec.columns)
            found = answer_tables(query, spec, domain, tables)
            check_agreement(found.agreement, self.bundle, query.columns)
            answers.append(labelled(found, spec, domain))
        return change_of(answers[0], answers[1], text, since)

    @cached_property
    def waves(self) -> tuple[PublishedWave, ...]:
        """The waves before, which the bundle takes along."""
        check_sums(self.bundle, (WAVES,) if self.spec.waves and self.spec.waves.after else ())
        return earlier_waves(self.bundle, self.spec)

    def every(self) -> Iterator[Answer]:
        """Mean and median of each number, and counts of each other column: of all rows, and by each
        other column, where `by` takes so many groups. The synthetic rows are not asked: what no
        noisy table tells is refused.
        """
        columns, most = self.domain.columns, SETTINGS.max_groups
        groups = {quoted(c.name): c.levels for c in columns if not c.ranged and c.levels <= most}
        numbers = [
            f"{what}({quoted(c.name)})"
            for c in columns
            if c.ranged
            for what in (("mean", "median") if c.step_seconds is None else ("median",))
        ]
        texts = [f"{one}{of}" for one in numbers for of in ("", *(f" by {g}" for g in groups))]
        texts += [f"count() by {name}" for name in groups]
        pairs = [p for p in combinations(groups, 2) if groups[p[0]] * groups[p[1]] <= most]
        texts += [f"count() by {one}, {other}" for one, other in pairs]
        for query in (parse_query(text, self.spec.columns) for text in texts):
            try:
                yield self._answer(query, of_rows=False)
            except OutputError as error:  # too many cells
                refused = (Figure(None, refused=str(error)),)
                yield Answer(query, "C", refused, (), groups=(("",) * len(query.by),))

    def _answer(self, query: Query, *, of_rows: bool = True) -> Answer:
        spec, domain, tables = self.spec, self.domain, self.tables
        same = [(i, c) for i, q, c in self.asked if ask_the_same(query, q, domain)]
        for i, clip in same:
            if clip is None or clip == number_bounds(spec.columns[query.column or ""]):
                result = self.paid[i]
                said = (*result.about, *outside_domain(query, spec))
                return labelled(Answer(query, "A", result.figures, said), spec, domain)
        found = answer_tables(query, spec, domain, tables, self.moments)
        check_agreement(found.agreement, self.bundle, query.columns)
        if found.tier == "C" and not of_rows:
            refused = Figure(None, refused="no noisy table tells it")
            return replace(found, figures=(refused,), groups=(("",) * len(query.by),))
        if found.tier == "C":
            check_sums(self.bundle, (TABLE,))
            rows = found.figures[0].rows or 0.0
            figures = model_figures(query, self.bundle, domain, rows=rows)
            found, near = replace(found, figures=figures), [*paid_about(spec, query.column)]
        else:  # the same of clipped numbers has the narrower interval
            near = [
                f"paid for: the same with {query.column} of {clip[0]:g} to {clip[1]:g}, where what"
                " lies beyond counts as the nearer end. `synthdp answer BUNDLE` prints it"
                for _, clip in same
                if clip is not None
            ]
        return labelled(replace(found, about=(*found.about, *near)), spec, domain)


def labelled(found: Answer, spec: ReleaseSpec, domain: Domain) -> Answer:
    """An answer with its unit and the levels of its groups, and with dates as texts."""
    query, unit, figures = found.query, None, found.figures
    if query.column is not None:
        if domain[query.column].step_seconds is not None:
            figures = tuple(as_texts(figure, domain[query.column]) for figure in figures)
        unit = None if query.other else spec.columns[query.column].unit
    groups = tuple(product(*(domain[name].labels for name in query.by)))
    return replace(found, figures=figures, unit=unit, groups=groups)


def questions_of(bundle: Path) -> Questions | VisitQuestions:
    """A bundle, of one table or of linked ones, that questions are asked of."""
    with suppress(OSError, ValueError, RecursionError, SynthdpError):  # told by what reads it
        if linked_in(read_text(bundle / "spec.yaml"), path="spec.yaml") is not None:
            from synthdp.inference.visits import VisitQuestions

            return VisitQuestions(bundle)
    return Questions(bundle)


def answer_bundle(bundle: Path, text: str) -> Answer:
    """The answer of the bundle in a folder; it raises what `Questions.answer` does."""
    return questions_of(bundle).answer(text)


def answer_tables(
    query: Query,
    spec: ReleaseSpec,
    domain: Domain,
    tables: Sequence[NoisyTable],
    moments: NoisyProducts | None = None,
) -> Answer:
    """The answer of noisy tables, or of `moments` where noise lets these tell more; in tier C it
    has the number of rows as its only figure.

    Raises:
        OutputError: there are too many cells or groups.
        ValueError: the tables are not over the domain.
    """
    rows = Rows.of_spec(spec)
    solver, cells = solver_of(query, domain, tables)
    found = answer_cells(query, spec, solver, cells, rows, tables)
    if found.tier == "C":
        of_cells.check_groups(query, domain.columns)
        total = float(LeastSquares(measured(tables, domain, (), grouped=False)).counts)
        found = replace(found, figures=(Figure(None, total / (1 - rows.holdout)),))
    if moments is None:
        return found
    summed = mean_figures(query, moment_sums(spec, domain), domain, tables, moments, rows)
    return found if summed is None else by_sums(found, summed, solver, cells, spec)


def answer_cells(
    query: Query,
    spec: ReleaseSpec,
    solver: LeastSquares,
    cells: CellRoles | None,
    rows: Rows,
    tables: Sequence[NoisyTable],
) -> Answer:
    """The answer of cells that were solved for; in tier C it has no figures."""
    everything = frozenset(range(len(query.columns)))
    missing = [everything] if cells is None else _missing(query, cells, solver)
    names = tuple(tuple(query.columns[i] for i in sorted(axes)) for axes in missing)
    tier: Tier = "C" if missing else "A" if solver.measured.whole else "B"
    words = about(query, spec, tier, cells, names, tables)
    if missing or cells is None:
        return Answer(query, tier, (), words, names)
    figure = (
        correlation_figure if query.other else weighted_figure if query.weight else of_cells.figure
    )
    figures = tuple(
        figure(query, asked, solver, rows, group)
        for group, asked in of_cells.by_groups(query, cells)
    )
    return Answer(query, tier, figures, words, names, solver.agreement())


def by_sums(
    found: Answer,
    summed: Sequence[Summed],
    solver: LeastSquares,
    cells: CellRoles | None,
    spec: ReleaseSpec,
) -> Answer:
    """The answer with the figures of sums where noise makes them narrower than those of tables;
    tier C has none.
    """
    query, widths = found.query, list[float]()
    if found.tier != "C" and cells is not None:
        asked_of = (asked for _, asked in of_cells.by_groups(query, cells))
        taken = (solver.functionals(of_cells.extremes(query, a, solver)) for a in asked_of)
        widths = [*map(of_cells.noise_width, taken)]
    told = found.figures if widths else [Figure(None, refused="no table tells it")] * len(summed)
    figures = tuple(map(narrower, summed, told, widths or [math.inf] * len(summed)))
    changed = sum(one is not other for one, other in zip(figures, told, strict=True))
    if not changed or (not widths and changed < len(figures)):
        return found
    said = (
        f"measured: sums of the numbers of {query.column} themselves, beside the tables",
        *whom(query, spec, measured=True),
        *outside_domain(query, spec),
    )
    if changed < len(figures):
        said = tuple(dict.fromkeys((*said, *found.about)))
    return replace(found, tier="A", figures=figures, about=said, unmeasured=())


def check_agreement(found: Agreement | None, bundle: Path, names: Sequence[str]) -> None:
    """Refuse tables that cannot count the same rows: they agree with a probability below 1e-4.

    Raises:
        VerifyError: they do not agree on the columns `names`.
    """
    if found is not None and found.p < 1e-4:
        raise VerifyError(
            f"the tables of {bundle} do not agree on {', '.join(names) or 'their totals'}:"
            f" chi-square {found.statistic:.0f} on {found.degrees} degrees of freedom",
            hint=f"see `synthdp verify {bundle}`",
        )


def solver_of(
    query: Query, domain: Domain, tables: Sequence[NoisyTable]
) -> tuple[LeastSquares, CellRoles | None]:
    """Least squares on levels, or on groups of them; no roles where there are too many cells.

    One column is answered on levels, unless the question asks for whole groups alone: then tables
    on groups tell more. Several columns are on levels where one table has these of all of them.
    """
    names = query.columns
    on_levels = any(table.has(names) for table in tables)
    grouped = not on_levels
    if len(names) == 1 and on_levels:
        grouped = query.statistic in ("share", "count") and not query.by
    known = measured(tables, domain, names, grouped=grouped)
    if int(np.prod(known.shape, dtype=np.int64)) > SETTINGS.max_cells and not known.whole:
        return LeastSquares(known), None
    cells = of_cells.roles(query, known.columns)
    if grouped and on_levels and cells.cut.any():
        known = measured(tables, domain, names, grouped=False)
        cells = of_cells.roles(query, known.columns)
    return LeastSquares(known), cells


def _missing(query: Query, cells: CellRoles, solver: LeastSquares) -> list[Axes]:
    """The interactions that some group's figure needs and no table has: the largest ones."""
    if all(solver.eigenvalues.values()):
        return []
    needed = (
        correlation_needed if query.other else weighted_needed if query.weight else of_cells.needed
    )
    found = {
        axes
        for _, asked in of_cells.by_groups(query, cells)
        for block in needed(query, asked, solver)
        for axes in solver.missing(block)
    }
    return sorted((a for a in found if not any(a < b for b in found)), key=sorted)


def ask_the_same(one: Query, other: Query, domain: Domain) -> bool:
    """Whether two questions have one answer, whatever rows of `domain` there are.

    Their conditions may be written differently: of whole numbers, `age >= 50` is `age > 49`.
    Conditions that read too many columns to try all of their values must have the same words.
    """
    if one.asks_like(other):
        return True
    asked = [(q.statistic, q.numbers, q.p, q.by) for q in (one, other)]
    constants = [*one.constants, *other.constants]
    return asked[0] == asked[1] and all(
        _alike(a, b, domain, constants)
        for a, b in ((one.condition, other.condition), (one.where, other.where))
    )


def _alike(
    one: Expression | None, other: Expression | None, domain: Domain, constants: list[float]
) -> bool:
    """Whether two conditions are true of the same values, and false of the same.

    Both change nowhere but at a constant, so that they are tried there, beside it, and at the ends
    of levels.
    """
    if one is None or other is None:
        return one is other
    names = sorted({*one.columns, *other.columns})
    grids = [of_cells.level_points(domain[name], constants)[0] for name in names]
    if math.prod(map(len, grids)) > SETTINGS.max_points:
        return False
    values = dict(zip(names, np.meshgrid(*grids, indexing="ij", sparse=True), strict=True))
    with np.errstate(invalid="ignore"):
        truths = [np.broadcast_arrays(*values.values(), *e.truth(values)) for e in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(truths[0][-2:], truths[1][-2:], strict=True))


INDEPENDENT = (
    "both waves' own noisy tables answer, and their errors are taken to be independent; people who"
    " are in both make the interval wider than need be"
)


def change_of(now: Answer, then: Answer, text: str, since: str) -> Answer:
    """The change from one wave's answer to another's.

    Raises:
        OutputError: the groups of the question differ.
    """
    if now.groups != then.groups:
        raise OutputError(
            f"the levels of {', '.join(now.query.by)} were others in wave {since}",
            hint="ask for one group at a time, with `where`",
        )
    figures = tuple(map(difference, now.figures, then.figures))
    about = (f"change since wave {since}: {INDEPENDENT}", *now.about)
    tier = max(now.tier, then.tier)
    query = replace(now.query, text=text)
    return replace(now, query=query, tier=tier, figures=figures, about=about, agreement=None)


def difference(now: Figure, then: Figure) -> Figure:
    """The change of one figure."""
    (a, b), ends = (now.estimate, then.estimate), (now.interval, then.interval)
    numbers = [x for x in (a, b, *(ends[0] or ()), *(ends[1] or ())) if isinstance(x, int | float)]
    if len(numbers) < 6:
        why = now.refused or then.refused or "one of the waves has no number with an interval"
        return Figure(now.group, refused=why)
    one, other, low, high, other_low, other_high = numbers
    below = math.hypot(one - low, other_high - other)
    above = math.hypot(high - one, other - other_low)
    change = one - other
    return Figure(now.group, now.rows, change, (change - below, change + above))
