"""What `synthdp plan` shows: spends, the ledger before and after, expected cost. No row is read."""

from __future__ import annotations

from typing import Any

from synthdp.ledger.balance import Balance
from synthdp.ledger.connect import cap_of
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.rules import tables_only


def plan_facts(spec: ReleaseSpec, balance: Balance) -> dict[str, Any]:
    """The plan, what the ledger has (`balance`) and will have, and about what a release costs.

    Raises:
        BudgetError: the accountant cannot resolve the spec's budget.
        SpecError: no row of the domain fulfils a constraint.
    """
    batch = spec.synthesizer.batch
    steps = spec.synthesizer.steps if spec.privacy.shares.train else 0
    rows = spec.sampling.rows or spec.dataset.rows.value
    cells = len(spec.modelled) * spec.synthesizer.hidden
    return _planned_spends(spec) | {
        "dataset": spec.dataset.id,
        "ledger": {
            "spent_before": balance.epsilon,
            "spent_after": balance.epsilon + spec.privacy.epsilon,
            "cap": balance.cap_epsilon
            if balance.cap_epsilon is not None
            else (cap_of(spec) or (None,))[0],
        },
        # Measured on Adult (14 columns): 25 ms for a step of 1024 rows, 3 us for a sampled row, 5 s
        # for all the rest.
        "expected": {
            "cpu_seconds": round(
                steps * batch * cells * 5.4e-8
                + rows * spec.sampling.oversample * len(spec.modelled) * 2e-7
                + 5,
                1,
            ),
            "memory_mb": round(
                700 + 3 * rows * spec.sampling.oversample * len(spec.modelled) * 8e-6
            ),
        },
        "notes": _notes(spec),
    }


def _notes(spec: ReleaseSpec) -> list[str]:
    """What the spends do not say of the model."""
    if spec.graph.mode != "predict":
        return []
    order = (
        "no causal graph: arrows will say which columns predict which, in the order of the spec;"
        " they are no causes"
    )
    if tables_only(spec):
        return [order, "noisy tables alone make the model: nothing is trained by DP-SGD"]
    return [order, "noisy tables make the model, and DP-SGD trains it further"]


def _planned_spends(spec: ReleaseSpec) -> dict[str, Any]:
    """Every planned spend with its event, its epsilon alone, and what it serves."""
    from synthdp.data.domain import Domain
    from synthdp.model.planning import plan_for

    plan = plan_for(spec, Domain.from_spec(spec.columns))
    facts = plan.to_json()
    return facts | {
        "spends": [
            s | {"serves": list(spend.serves)}
            for s, spend in zip(facts["spends"], plan.spends, strict=True)
        ]
    }
