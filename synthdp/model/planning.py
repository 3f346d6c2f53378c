"""The plan of everything that `fit` will release.

This module does not import torch: plans are made far more often than models are trained.
"""

from __future__ import annotations

from synthdp.data.domain import Domain
from synthdp.graph.stage import rounds
from synthdp.privacy.calibration import expected_fit_rows, make_plan
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.plan import (
    MEASURE,
    PAIRS,
    SCORES,
    TARGETS,
    TRAIN,
    PlannedPurpose,
    ReleasePlan,
)
from synthdp.spec.model import ReleaseSpec


def plan_for(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
    """The calibrated plan of everything that `fit` will release."""
    return make_plan(
        spec, domain, graph_rounds=rounds(spec.graph, domain, rows=expected_fit_rows(spec))
    )


def serves(spend: PlannedPurpose) -> tuple[str, ...]:
    """The uses of a planned spend. Noisy tables serve all steps that can use them, at one price."""
    if spend.purpose in (TRAIN, TARGETS):
        return ("model",)
    if spend.purpose == SCORES:
        return ("published scores",)
    uses: tuple[str, ...] = ()
    if isinstance(spend.mechanism, NoisyMarginals | AdaptiveMarginals):
        uses = ("start of the model", "raking", "published counts")
        if spend.purpose != MEASURE:
            uses = ("balance", *uses)
    return uses if spend.purpose in (MEASURE, PAIRS) else ("graph", *uses)
