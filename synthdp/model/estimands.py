"""What the spec's estimands are made of: a noisy table, sums by strata, or sums
of products.

Everything here follows from the spec. Conditions are tried on a row's own values, so that they need
not end where bins do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product as combinations

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.graph.adjustment import adjustment
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.mechanism import Mechanism, PlannedMechanism
from synthdp.privacy.mechanisms.sums import (
    NUMBER,
    Arm,
    Bounded,
    Part,
    Product,
    ProductSums,
    StratumSums,
    SumMechanism,
    Sums,
)
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.query import Query, counted, parse_query
from synthdp.spec.model import (
    AskedEstimand,
    EffectEstimand,
    Estimand,
    RegressionEstimand,
    ReleaseSpec,
    TableEstimand,
)
from synthdp.spec.model.evaluation import number_bounds, term_columns

CLEAR = 4.0  # deviations of the noise that an average stratum must hold


def estimand_name(position: int) -> str:
    """The name of the estimand at a position of the spec's list, from 0.

    >>> estimand_name(0)
    '1'
    """
    return str(position + 1)


def estimand_rounds(spec: ReleaseSpec, domain: Domain) -> dict[str, MechanismFactory]:
    """How each estimand is measured, by its name, for equal parts of the share."""
    part = math.sqrt(max(1, len(spec.estimands)))

    def started(estimand: Estimand, mu: float) -> PlannedMechanism:
        if isinstance(estimand, TableEstimand):
            return NoisyMarginals(domain, (estimand.columns,), part / mu)
        return sums_of(spec, domain, estimand, noise=part / mu)

    return {
        estimand_name(i): partial(started, estimand) for i, estimand in enumerate(spec.estimands)
    }


def sums_of(
    spec: ReleaseSpec,
    domain: Domain,
    estimand: AskedEstimand | EffectEstimand | RegressionEstimand,
    *,
    noise: float = 1.0,
) -> SumMechanism:
    """The sums that an estimand is made of, at a noise in multiples of what one row can move."""
    if isinstance(estimand, RegressionEstimand):
        return regression_sums(spec, domain, estimand, noise)
    return strata_of(spec, domain, estimand, noise=noise)


def strata_of(
    spec: ReleaseSpec,
    domain: Domain,
    estimand: AskedEstimand | EffectEstimand,
    *,
    noise: float = 1.0,
) -> StratumSums:
    """The sums by stratum of a question or an effect."""
    if isinstance(estimand, AskedEstimand):
        query = parse_query(estimand.ask, spec.columns)
        mean_of = query.column if query.statistic == "mean" else None
        number = _number(spec, mean_of, estimand)
        return StratumSums(domain, _arms(query), counted(query), number, noise)
    by, _ = effect_adjustment(spec, estimand)
    number = _number(spec, estimand.outcome, estimand)
    return StratumSums(domain, _compared(spec, estimand), by, number, noise)


def effect_adjustment(spec: ReleaseSpec, estimand: EffectEstimand) -> tuple[tuple[str, ...], str]:
    """The columns that an effect is adjusted for, by the spec alone, and a remark."""
    graph = CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    return adjustment(estimand, spec.columns, graph)


def check_strata(plan: ReleasePlan, spec: ReleaseSpec) -> None:
    """Refuse strata that noise would drown, before anything is spent.

    Rows are taken to be spread evenly over strata, which no table exceeds for all of them.

    Raises:
        BudgetError: an average stratum has fewer rows than `CLEAR` deviations of its noise.
    """
    rows = expected_fit_rows(spec)
    for name, mechanism in plan.estimands.items():
        if not isinstance(mechanism, StratumSums):
            continue
        levels = histogram_levels(spec, spec.estimands[int(name) - 1], mechanism)
        strata, noise = (
            math.prod(mechanism.shape[1:]) // levels,
            math.sqrt(levels) * mechanism.sigma,
        )
        least = CLEAR * noise
        if strata * levels > 1 and rows / strata < least:
            fewer = "fewer bins of the quantile, or " if levels > 1 else ""
            raise BudgetError(
                f"estimand {name}: {rows:,.0f} rows in {strata} strata are {rows / strata:,.0f}"
                f" each, under noise of {noise:,.0f}; nothing was read or spent",
                hint=(
                    f"{least:,.0f} rows each would do: name {fewer}columns with at most"
                    f" {max(1, int(rows / least))} combinations of levels, or raise"
                    " privacy.shares.estimands"
                ),
            )


def histogram_levels(spec: ReleaseSpec, estimand: Estimand, mechanism: StratumSums) -> int:
    """How many levels of one column each stratum of a quantile is counted in; 1 of all others."""
    if not isinstance(estimand, AskedEstimand):
        return 1
    quantile = parse_query(estimand.ask, spec.columns).statistic == "quantile"
    return mechanism.shape[-1] if quantile else 1


def _arms(query: Query) -> tuple[Arm, ...]:
    """Of a share, rows for which the condition holds, and does not; else the rows asked about."""
    where = () if query.where is None else ((query.where, True),)
    if query.condition is None:
        return (Arm(where),)
    holds = Arm((*where, (query.condition, True)))
    if query.statistic == "count":
        return (holds,)
    return holds, Arm((*where, (query.condition, False)))


def _compared(spec: ReleaseSpec, estimand: EffectEstimand) -> tuple[Arm, Arm]:
    """The treated, and those whom they are compared with."""
    treated = _parsed(spec, estimand.treated)
    if estimand.control is None:
        return Arm(((treated, True),)), Arm(((treated, False),))
    return Arm(((treated, True),)), Arm(((_parsed(spec, estimand.control), True),))


def _parsed(spec: ReleaseSpec, text: str) -> Expression:
    expression, _ = parse(text, spec.columns, derived=False)
    if expression is None:
        raise ValueError(f"{text!r} cannot be read; check the spec first")
    return expression


def _number(
    spec: ReleaseSpec, column: str | None, estimand: AskedEstimand | EffectEstimand
) -> Bounded | None:
    if column is None:
        return None
    lower, upper = estimand.clip or number_bounds(spec.columns[column])
    return Bounded(column, lower, upper)


def tables_and_sums(
    planned: Mapping[str, PlannedMechanism],
) -> tuple[dict[str, NoisyMarginals], dict[str, Mechanism[Sums]]]:
    """The planned tables and the planned sums, by estimand."""
    tables = {n: m for n, m in planned.items() if isinstance(m, NoisyMarginals)}
    return tables, {n: m for n, m in planned.items() if isinstance(m, SumMechanism)}


# --- regression ---
#
# The design of a regression that is paid for: its coefficients, and the sums that they need.
#
# Terms are scaled: a number to [-1, 1] by its bounds or its clip, a category to indicators of its
# levels but the first. Coefficients are told of numbers as they are; `Design.raw` leads from one
# to the other.


INTERCEPT = "(intercept)"
LEAST = 2.0
"""The smallest eigenvalue of the scaled terms' moment matrix must be so many deviations of the
noise, times the root of the number of terms: coverage was measured down to it."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """The scaled functions of a row, whose first is the constant, and the outcome's.

    `names` `[k]` are those of the coefficients, `functions` `[k]` what they are of.
    """

    names: tuple[str, ...]
    functions: tuple[Product, ...]
    outcome: Bounded
    numbers: tuple[Bounded, ...]
    two_valued: bool = False  # the outcome, of two categories

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The different products of two functions, or of one with the outcome, in order."""
        rows = self._pairs()
        return tuple(sorted({p for row in rows for p in row if p is not None}))

    @cached_property
    def places(self) -> npt.NDArray[np.intp]:
        """Where the product of each pair of functions, the outcome last, is among `products`
        `[k + 1, k + 1]`; -1 where it is zero for every row.
        """
        at = {product: i for i, product in enumerate(self.products)}
        pairs = [[-1 if p is None else at[p] for p in row] for row in self._pairs()]
        return np.array(pairs, dtype=np.intp)

    def _pairs(self) -> list[list[Product | None]]:
        everything = (*self.functions, ((self.outcome.column, NUMBER),))
        return [[multiplied(a, b) for b in everything] for a in everything]

    @cached_property
    def raw(self) -> Floats:
        """The functions of numbers as they are, made of the scaled ones: `[k, k]`."""
        at = {function: i for i, function in enumerate(self.functions)}
        bounds = {number.column: number for number in self.numbers}
        matrix = np.zeros((len(at), len(at)))
        for row, function in enumerate(self.functions):
            numbers = [part for part in function if part[1] == NUMBER]
            for kept in combinations((False, True), repeat=len(numbers)):
                left = tuple(p for p, keep in zip(numbers, kept, strict=True) if not keep)
                size = math.prod(
                    bounds[p[0]].middle if p in left else bounds[p[0]].half for p in numbers
                )
                matrix[row, at[tuple(p for p in function if p not in left)]] += size
        return matrix

    def expected(self, domain: Domain, square: float) -> Floats:
        """What a row adds on average to each product, `[products]`, by public facts.

        Columns are taken to be independent, categories to be equally frequent, scaled numbers to
        have mean 0 and mean square `square`, and the scaled outcome to be 1.
        """
        return np.array([self._expected(product, domain, square) for product in self.products])

    def _expected(self, product: Product, domain: Domain, square: float) -> float:
        mean = 1.0
        for (name, level), times in Counter(product).items():
            if level != NUMBER:
                mean /= domain[name].levels - domain[name].missing
            elif name != self.outcome.column:
                mean *= 0.0 if times % 2 else square
        return mean

    def moments(self, sums: Floats) -> Floats:
        """The symmetric matrix of the sums of all products `[k + 1, k + 1]`, the outcome last."""
        return np.where(self.places < 0, 0.0, sums[self.places])

    def mechanism(self, domain: Domain, arm: Arm, noise: float) -> ProductSums:
        """The sums of all products."""
        return ProductSums(domain, arm, (*self.numbers, self.outcome), self.products, noise)


def multiplied(a: Product, b: Product) -> Product | None:
    """The product of two products; None where it is zero, since levels exclude each other.

    >>> multiplied((("sex", 1),), (("sex", 1),)), multiplied((("sex", 1),), (("sex", 2),))
    ((('sex', 1),), None)
    >>> multiplied((("age", NUMBER),), (("age", NUMBER),))
    (('age', -1), ('age', -1))
    """
    levels = {part for part in (*a, *b) if part[1] != NUMBER}
    if len({name for name, _ in levels}) < len(levels):
        return None
    return tuple(sorted([*levels, *(part for part in (*a, *b) if part[1] == NUMBER)]))


def design_of(spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand) -> Design:
    """The design of a checked estimand."""
    columns = dict.fromkeys(n for t in estimand.terms for n in term_columns(t, spec.columns))

    def bounded(name: str) -> Bounded:
        return Bounded(name, *(estimand.clips.get(name) or number_bounds(spec.columns[name])))

    functions: dict[Product, str] = {(): INTERCEPT}
    for term in estimand.terms:
        of_columns = [_functions(domain, name) for name in term_columns(term, spec.columns)]
        for chosen in combinations(*of_columns):
            parts = tuple(sorted(part for part, _ in chosen))
            functions[parts] = ":".join(label for _, label in chosen)
    numbers = tuple(bounded(name) for name in columns if domain[name].ranged)
    names = tuple(functions.values())
    two_valued = not domain[estimand.outcome].ranged and len(domain[estimand.outcome].labels) == 2
    return Design(names, tuple(functions), bounded(estimand.outcome), numbers, two_valued)


def _functions(domain: Domain, name: str) -> Iterator[tuple[Part, str]]:
    """A number, or the levels of a category but the first, with their names."""
    column = domain[name]
    if column.ranged:
        yield (name, NUMBER), name
        return
    for level in range(1, column.levels - column.missing):
        yield (name, level), f"{name}={column.labels[level]}"


def regression_sums(
    spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, noise: float
) -> ProductSums:
    """The sums that a regression is made of."""
    arm = Arm()
    if estimand.where is not None:
        condition, _ = parse(estimand.where, spec.columns, derived=False)
        if condition is None:
            raise ValueError(f"{estimand.where!r} cannot be read; check the spec first")
        arm = Arm(((condition, True),))
    return design_of(spec, domain, estimand).mechanism(domain, arm, noise)


def weak(gram: Floats, sigma: float) -> bool:
    """Whether noise is too large for an inverse of the terms' moment matrix `[k, k]`."""
    return float(np.linalg.eigvalsh(gram)[0]) < LEAST * sigma * math.sqrt(len(gram))


def check_regressions(plan: ReleasePlan, spec: ReleaseSpec) -> None:
    """Refuse regressions whose terms noise would drown, before anything is spent.

    Rows are taken to be spread evenly over categories, and numbers to lie at both ends of their
    bounds: hardly any table has a better moment matrix.

    Raises:
        BudgetError: the moment matrix of such rows is too weak.
    """
    for name, mechanism in plan.estimands.items():
        estimand = spec.estimands[int(name) - 1]
        if not isinstance(estimand, RegressionEstimand) or not isinstance(mechanism, ProductSums):
            continue
        design = design_of(spec, mechanism.domain, estimand)
        rows = expected_fit_rows(spec)
        gram = design.moments(rows * design.expected(mechanism.domain, square=1.0))[:-1, :-1]
        if weak(gram, mechanism.sigma):
            least = float(np.linalg.eigvalsh(gram)[0])
            wanted = LEAST * mechanism.sigma * math.sqrt(len(gram))
            raise BudgetError(
                f"estimand {name}: even if {rows:,.0f} rows were spread evenly over the terms, the"
                f" smallest eigenvalue of their moment matrix would be {least:,.0f} rows, and noise"
                f" of {mechanism.sigma:,.0f} needs {wanted:,.0f}; nothing was read or spent",
                hint=(
                    "name fewer terms, or categories with fewer levels, or raise"
                    " privacy.shares.estimands"
                ),
            )
