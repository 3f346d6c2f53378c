"""How far noise alone will move each estimand, from public facts.

Rows are taken to be spread evenly over arms and strata, and numbers to lie at an end of their clip,
where noise in the number of rows counts most: in most tables the noise moves a mean by less.
"""

from __future__ import annotations

import math
from typing import Any

from synthdp.inference.estimands import clipped_text
from synthdp.inference.figures import Rows
from synthdp.inference.intervals import Z
from synthdp.inference.regression import regression_figures
from synthdp.model.estimands import estimand_name, histogram_levels
from synthdp.model.regression import design_of
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.product_sums import NoisyProducts, ProductSums
from synthdp.privacy.mechanisms.stratum_sums import StratumSums
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.model import AskedEstimand, Estimand, RegressionEstimand, ReleaseSpec
from synthdp.spec.model.estimands import number_bounds


def expected_estimands(spec: ReleaseSpec, plan: ReleasePlan) -> list[dict[str, Any]]:
    """For each estimand its `name`, `text` with its clip, `statistic`, and `noise`: one standard
    deviation.

    A contingency table has the noise of its cells, in rows. A regression has `terms`, the noise of
    each coefficient in the outcome's unit, and `noise` is the largest.
    """
    found = []
    for i, estimand in enumerate(spec.estimands):
        mechanism = plan.estimands[estimand_name(i)]
        terms: dict[str, float] = {}
        noise: float | None
        if isinstance(mechanism, StratumSums):
            statistic, noise = _noise(spec, estimand, mechanism)
        elif isinstance(estimand, RegressionEstimand):
            terms = _of_terms(spec, estimand, mechanism)
            statistic, noise = "coefficient", max(terms.values(), default=None)
        else:
            statistic, noise = "table", float(getattr(mechanism, "sigma", math.nan))
        name, text = estimand_name(i), clipped_text(spec, estimand)
        told = {"name": name, "text": text, "statistic": statistic, "noise": noise}
        found.append(told | {"terms": terms} if terms else told)
    return found


def _noise(spec: ReleaseSpec, estimand: Estimand, sums: StratumSums) -> tuple[str, float]:
    strata = math.prod(sums.shape[1:])
    levels = histogram_levels(spec, estimand, sums)
    each = expected_fit_rows(spec) / (strata // levels)
    half = 1.0 if sums.number is None else sums.number.half
    if not isinstance(estimand, AskedEstimand):
        # Two arms of each / 2 rows, each a ratio of two noisy sums; strata average out.
        return "effect", half * 2 * sums.sigma / (each / 2) / math.sqrt(strata)
    query = parse_query(estimand.ask, spec.columns)
    statistic = query.statistic
    if statistic == "quantile":
        low, high = number_bounds(spec.columns[query.column or ""])
        noise = sums.sigma * math.sqrt(levels * query.p * (1 - query.p))
        return statistic, noise / each * (high - low)
    if statistic == "mean":
        return statistic, half * math.sqrt(2) * sums.sigma / each
    if statistic == "share":
        return statistic, sums.sigma / each  # of p near 0 or 1; less between
    return statistic, sums.sigma * spec.dataset.rows.value / expected_fit_rows(spec)


def _of_terms(spec: ReleaseSpec, estimand: RegressionEstimand, sums: Any) -> dict[str, float]:
    """The noise of each coefficient where numbers lie evenly in their bounds, and the outcome
    at an end of its own; none where no figure is expected.
    """
    assert isinstance(sums, ProductSums)
    design = design_of(spec, sums.domain, estimand)
    each_row = design.expected(sums.domain, square=1 / 3)
    expected = NoisyProducts(expected_fit_rows(spec) * each_row, sums.sigma)
    return {
        str(f.group): (float(f.of_rows[1]) - float(f.of_rows[0])) / (2 * Z)
        for f in regression_figures(design, expected, Rows())
        if f.of_rows is not None
    }
