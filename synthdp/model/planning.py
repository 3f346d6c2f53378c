"""The plan of everything that `fit` will release.

This module does not import torch: plans are made far more often than models are trained.
"""

from __future__ import annotations

from synthdp.data.domain import Domain
from synthdp.graph.stage import rounds
from synthdp.model.estimands import check_strata, estimand_rounds
from synthdp.model.regression import check_regressions
from synthdp.privacy.calibration import expected_fit_rows, make_plan
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.rules import counts_only


def plan_for(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
    """The calibrated plan of everything that `fit` will release.

    Raises:
        BudgetError: the accountant cannot resolve it, or noise would drown an estimand.
        SynthdpError: the graph is too wide.
    """
    plan = make_plan(
        spec,
        domain,
        graph_rounds=rounds(
            spec.graph, domain, rows=expected_fit_rows(spec), counts_only=counts_only(spec)
        ),
        estimands=estimand_rounds(spec, domain),
    )
    check_strata(plan, spec)
    check_regressions(plan, spec)
    return plan
