"""The plan of everything that `fit` will release.

This module does not import torch: plans are made far more often than models are trained.

Beside its tables a release measures sums of every number: their means have intervals that narrow
with rows and epsilon. A table tells of a number no more than its level. Each number of a row, taken
to [-1, 1] by its declared bounds, is added up over all rows, with its square, and over the rows of
each level of the columns for which noise leaves something of the means. All of it is one look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from synthdp.data.domain import Domain
from synthdp.errors import WrongTableError
from synthdp.graph.stage import rounds
from synthdp.model.estimands import check_estimands, estimand_rounds
from synthdp.model.interactions import with_screen
from synthdp.privacy.calibration import expected_fit_rows, make_plan, rows_over_noise, share_mu
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import MAX_PRODUCTS, NUMBER, Arm, Bounded, Product, ProductSums
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.model import IdUnit, ReleaseSpec
from synthdp.spec.model.evaluation import number_bounds
from synthdp.spec.model.rules import counts_only, summed_numbers


def moment_sums(spec: ReleaseSpec, domain: Domain, *, noise: float = 1.0) -> ProductSums:
    """The sums; `noise` is in multiples of what one row can move."""
    columns = {name: number_bounds(spec.columns[name]) for name in summed_numbers(spec)}
    numbers = tuple(Bounded(name, *ends) for name, ends in columns.items())
    alone: list[Product] = [((n, NUMBER),) * k for n in columns for k in (1, 2)]
    by_level: list[Product] = [
        tuple(sorted([(n, NUMBER), (name, level)]))
        for name in _groups(spec, domain, len(numbers))
        for n in columns
        for level in range(domain[name].levels)
    ]
    return ProductSums(domain, Arm(), numbers, (*alone, *by_level), noise, apart=True)


def _groups(
    spec: ReleaseSpec, domain: Domain, numbers: int, *, half_ranges: float = 0.1
) -> list[str]:
    """The columns by whose levels numbers are added up: targets first, then those of few levels.

    Each makes the noise of all others larger: none is taken by which noise would move the mean of
    an average group of any by more than `half_ranges`, at 95%: wider, the levels of a number tell
    as much.
    """
    unit = spec.dataset.privacy_unit.max_rows / share_mu(spec, spec.privacy.shares.moments)
    rows, products = expected_fit_rows(spec), 2 * numbers
    targets = {*spec.synthesizer.targets, *spec.evaluation.targets}
    chosen, most = list[str](), 1
    for column in sorted(domain.columns, key=lambda c: (c.name not in targets, c.levels)):
        noise = unit * math.sqrt((3 + len(chosen)) * numbers)
        levels = max(most, column.levels)
        clear = 2 * noise * levels <= half_ranges * rows
        fits = products + numbers * column.levels <= MAX_PRODUCTS
        if not column.ranged and clear and fits:
            chosen.append(column.name)
            most, products = levels, products + numbers * column.levels
    return chosen


def plan_for(spec: ReleaseSpec, domain: Domain, *, like: ReleaseSpec | None = None) -> ReleasePlan:
    """The calibrated plan of everything that `fit` will release.

    The rounds of mode predict are those of the spec `like`, of more rows, where one is given: a
    model of an attack takes the road of the release that it stands for.

    Raises:
        BudgetError: the accountant cannot resolve it, or noise would drown an estimand.
        SynthdpError: the graph is too wide.
    """
    graph_rounds = rounds(
        spec.graph,
        domain,
        rows=expected_fit_rows(spec),
        rows_over_noise=rows_over_noise(spec if like is None else like),
        counts_only=counts_only(spec),
    )
    plan = make_plan(
        spec,
        domain,
        graph_rounds=with_screen(graph_rounds, spec, domain),
        estimands=estimand_rounds(spec, domain),
        moments=(lambda mu: moment_sums(spec, domain, noise=1 / mu))
        if spec.privacy.shares.moments
        else None,
    )
    check_estimands(plan, spec)
    return plan


# --- total ---
#
# Every table counts all rows, so the sum of its cells is their number plus noise of a known
# deviation; it costs nothing more. A total is compared with public numbers: the declared one, or
# half and twice that, which is what `approximate` allows.


@dataclass(frozen=True)
class Total:
    """An estimate of the number of rows that the tables counted, and its standard deviation."""

    rows: float
    deviation: float


def noisy_total(tables: Sequence[NoisyTable]) -> Total:
    """The inverse-variance mean of all tables' sums.

    It has the least variance of all weighted means, because the tables' noises are independent.
    """
    weights = [1 / (table.counts.size * table.sigma**2) for table in tables]
    sums = (float(table.counts.sum()) for table in tables)
    weighted = sum(w * total for w, total in zip(weights, sums, strict=True))
    return Total(weighted / sum(weights), 1 / math.sqrt(sum(weights)))


def check_total(tables: Sequence[NoisyTable], spec: ReleaseSpec) -> list[str]:
    """Warnings about a total that is not the declared one, but may be what was meant.

    Where ids are the unit, the rows left after `max_rows` per id may be a small part of the table,
    so that no total is too low.

    Raises:
        WrongTableError: the total is further beyond what `approximate` allows than `total_slack`.
    """
    total, expected = noisy_total(tables), expected_fit_rows(spec)
    low = 0.0 if isinstance(spec.dataset.privacy_unit, IdUnit) else expected / 2
    high = expected * 2
    declared = spec.dataset.rows.value
    fitted = f", {expected:,.0f} of them to fit" if expected < declared else ""
    comparison = (
        f"dataset.rows declares {declared:,} rows{fitted}, and the noisy counts say"
        f" {total.rows:,.0f}, give or take {2 * total.deviation:,.0f}"
    )
    if total.rows < low - total_slack(total, spec, low) or total.rows > high + total_slack(
        total, spec, high
    ):
        raise WrongTableError(
            f"this is not the declared table: {comparison}",
            hint=(
                "nothing was trained. Correct the source, or dataset.rows, and release anew"
                " (--force drops this run): that pays again. `synthdp resume` would stop here again"
            ),
        )
    if abs(total.rows - expected) <= total_slack(total, spec, expected):
        return []
    left = ""
    if isinstance(spec.dataset.privacy_unit, IdUnit):
        left = ". Only rows that max_rows leaves are counted: declare that number next time"
    return [f"{comparison}; noise, batch and steps were chosen for the declared number{left}"]


def total_slack(total: Total, spec: ReleaseSpec, rows: float, *, deviations: float = 4.0) -> float:
    """Largest deviation allowed of `rows`: the noise, and units that are held out together.

    A total with normal noise is further off on the side that counts in 3.2e-5 of all releases whose
    table is at the limit; in fewer of others.
    """
    together = spec.evaluation.held_out * spec.dataset.privacy_unit.max_rows
    return deviations * math.hypot(total.deviation, math.sqrt(rows * together))
