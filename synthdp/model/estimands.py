"""What the spec's estimands are made of: a noisy table, sums by strata, or sums
of products.

Everything here follows from the spec. Conditions are tried on a row's own values, so that they need
not end where bins do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.graph.adjustment import adjustment
from synthdp.graph.causal import CausalGraph
from synthdp.model.regression import regression_sums
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.mechanism import Mechanism, PlannedMechanism
from synthdp.privacy.mechanisms.product_sums import SumMechanism, Sums
from synthdp.privacy.mechanisms.stratum_sums import Arm, Bounded, StratumSums
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
from synthdp.spec.model.estimands import number_bounds

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
