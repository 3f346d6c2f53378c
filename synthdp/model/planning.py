"""The plan of everything that `fit` will release, without torch: it is asked for far more often
than anything is trained.
"""

from __future__ import annotations

from synthdp.data.domain import Domain
from synthdp.graph.stage import rounds
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.plan import Plan, PlannedPurpose, expected_fit_rows, make_plan
from synthdp.spec.model import ReleaseSpec


def plan_for(spec: ReleaseSpec, domain: Domain) -> Plan:
    """The calibrated plan of everything that `fit` will release."""
    return make_plan(
        spec, domain, graph_rounds=rounds(spec.graph, domain, rows=expected_fit_rows(spec))
    )


def serves(spend: PlannedPurpose) -> tuple[str, ...]:
    """What a planned spend is used for: noisy tables serve everything that can use them, at one
    price.
    """
    if spend.purpose in ("train", "targets"):
        return ("model",)
    if spend.purpose == "scores":
        return ("published scores",)
    tables = (
        ("start of the model", "raking", "published counts")
        if isinstance(spend.mechanism, NoisyMarginals | AdaptiveMarginals)
        else ()
    )
    if spend.purpose == "measure":
        return tables
    both = ("balance", *tables) if tables else ()
    return both if spend.purpose == "pairs" else ("graph", *both)
