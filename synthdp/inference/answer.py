"""An answer: which tier it is of, its figures, and what they are of.

A. **measured**: one table has all columns of the question.
B. **spanned**: no table has, but several together determine the answer.
C. **model only**: they do not. The figure is the synthetic rows' own, and has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from synthdp.bundle.noisy_values import MARGINALS, level_law
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.files import check_sums
from synthdp.inference import figures as of_cells
from synthdp.inference.estimands import ESTIMAND_KINDS, bundle_estimands, paid_about
from synthdp.inference.figures import CellRoles, Figure, Rows, Value
from synthdp.inference.least_squares import SETTINGS, Agreement, Axes, LeastSquares, measured
from synthdp.inference.model_only import TABLE, model_figures
from synthdp.inference.words import (
    TIERS,
    about,
    as_texts,
    figure_lines,
    figures_text,
    outside_domain,
)
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.evaluation import number_bounds

Tier = Literal["A", "B", "C"]


@dataclass(frozen=True)
class Answer:
    """The answer to a question, one figure for each group.

    `tier` is A (measured), B (spanned) or C (model only, without intervals). `about` says in words
    what the figures are of. `unmeasured` has the sets of columns, of tier C, whose table would have
    to be measured. `agreement` is the test that the tables agree, where there is one.
    """

    query: Query
    tier: Tier
    figures: tuple[Figure, ...]
    about: tuple[str, ...]
    unmeasured: tuple[tuple[str, ...], ...] = ()
    agreement: Agreement | None = None

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
        if self.query.by is not None:
            raise OutputError(
                f"this answer has one figure for each group of {self.query.by!r}",
                hint="read them from `figures`",
            )
        return self.figures[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query.text,
            "tier": self.tier,
            "level": 0.95,
            "figures": [figure.to_json() for figure in self.figures],
            "about": list(self.about),
            "unmeasured": list(map(list, self.unmeasured)),
            "agreement": None if self.agreement is None else self.agreement.to_json(),
        }

    def __str__(self) -> str:
        lines = figure_lines(self.query.statistic, self.figures, interval=self.tier != "C")
        return figures_text(f"{self.query.text}   ({TIERS[self.tier]})", lines, self.about)


def answer_bundle(bundle: Path, text: str) -> Answer:
    """The answer of the bundle in a folder.

    Raises:
        QueryError: the question cannot be read.
        OutputError: it has too many cells or groups.
        VerifyError: a file was changed, or cannot be read, or the tables do not agree.
    """
    check_sums(bundle, ("spec.yaml", MARGINALS))
    spec = load_spec(bundle / "spec.yaml")
    query = parse_query(text, spec.columns)
    domain = Domain.from_spec(spec.columns)
    same = [
        (estimand, ESTIMAND_KINDS[estimand.kind].clips(spec, estimand).get(query.column or ""))
        for estimand in spec.estimands
        if estimand.question is not None
        and ask_the_same(query, parse_query(estimand.question, spec.columns), domain)
    ]
    for estimand, clip in same:
        if clip is None or clip == number_bounds(spec.columns[query.column or ""]):
            result = bundle_estimands(bundle)[spec.estimands.index(estimand)]
            said = (*result.about, *outside_domain(query, spec))
            return Answer(query, "A", result.figures, said)
    tables = level_law(bundle, domain, margins=False).tables
    found = answer_tables(query, spec, domain, tables)
    check_agreement(found.agreement, bundle, query.columns)
    if found.tier == "C":
        check_sums(bundle, (TABLE,))
        figures = model_figures(query, bundle, domain, rows=found.figures[0].rows or 0.0)
        found, near = replace(found, figures=figures), [*paid_about(spec, query.column)]
    else:  # the same of clipped numbers has the narrower interval
        near = [
            f"paid for: the same with {query.column} of {clip[0]:g} to {clip[1]:g}, where what"
            " lies beyond counts as the nearer end. `synthdp answer BUNDLE` prints it"
            for _, clip in same
            if clip is not None
        ]
    found = replace(found, about=(*found.about, *near))
    if query.column is not None and domain[query.column].step_seconds is not None:
        dated = tuple(as_texts(figure, domain[query.column]) for figure in found.figures)
        found = replace(found, figures=dated)
    return found


def answer_tables(
    query: Query, spec: ReleaseSpec, domain: Domain, tables: Sequence[NoisyTable]
) -> Answer:
    """The answer of noisy tables; in tier C it has the number of rows as its only figure.

    Raises:
        OutputError: there are too many cells or groups.
        ValueError: the tables are not over the domain.
    """
    rows = Rows.of_spec(spec)
    solver, cells = _solver(query, domain, tables)
    everything = frozenset(range(len(query.columns)))
    missing = [everything] if cells is None else _missing(query, cells, solver)
    if missing or cells is None:
        _check_groups(query, domain.columns)
        total = float(LeastSquares(measured(tables, domain, (), grouped=False)).counts)
        figures: tuple[Figure, ...] = (Figure(None, total / (1 - rows.holdout)),)
        agreement = None
    else:
        figures = tuple(
            of_cells.figure(query, asked, solver, rows, group)
            for group, asked in _groups(query, cells)
        )
        agreement = solver.agreement()
    names = tuple(tuple(query.columns[i] for i in sorted(axes)) for axes in missing)
    tier: Tier = "C" if missing else "A" if solver.measured.whole else "B"
    words = about(query, spec, tier, cells, names, tables)
    return Answer(query, tier, figures, words, names, agreement)


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


def _solver(
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
        grouped = query.statistic in ("share", "count") and query.by is None
    known = measured(tables, domain, names, grouped=grouped)
    if int(np.prod(known.shape, dtype=np.int64)) > SETTINGS.max_cells and not known.whole:
        return LeastSquares(known), None
    cells = of_cells.roles(query, known.columns)
    if grouped and on_levels and cells.cut.any():
        known = measured(tables, domain, names, grouped=False)
        cells = of_cells.roles(query, known.columns)
    return LeastSquares(known), cells


def _groups(query: Query, cells: CellRoles) -> list[tuple[str | None, CellRoles]]:
    if query.by is None:
        return [(None, cells)]
    _check_groups(query, cells.columns)
    axis = query.columns.index(query.by)
    labels = enumerate(cells.columns[axis].labels)
    return [(label, cells.within(axis, level)) for level, label in labels]


def _check_groups(query: Query, columns: Sequence[ColumnDomain]) -> None:
    (levels,) = (c.levels for c in columns if c.name == query.by) if query.by else (0,)
    if levels > SETTINGS.max_groups:
        raise OutputError(
            f"column {query.by!r} has {levels} levels, and `by` takes {SETTINGS.max_groups}",
            hint="ask about some of them with `where`",
        )


def _missing(query: Query, cells: CellRoles, solver: LeastSquares) -> list[Axes]:
    """The interactions that some group's figure needs and no table has: the largest ones."""
    if all(solver.eigenvalues.values()):
        return []
    found = {
        axes
        for _, asked in _groups(query, cells)
        for block in of_cells.needed(query, asked, solver)
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
    asked = [(q.statistic, q.column, q.p, q.by) for q in (one, other)]
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
