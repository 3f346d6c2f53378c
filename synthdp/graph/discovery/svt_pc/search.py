"""SVT-PC, made sound: PC by the sparse vector technique alone, a baseline of Priv-PC.

The published code draws the threshold anew with Gaussian noise at a Laplace scale and charges
nothing for the last pass; here every pass is a sparse vector of its own, planned and charged
(`privacy.mechanisms.sparse_vector`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from synthdp.data.domain import Domain
from synthdp.graph.discovery.algorithm import Algorithm
from synthdp.graph.discovery.ranked import Questions, check_ordered
from synthdp.graph.discovery.sieving import PURPOSE, pc_search, run_search, sieve_start
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.mechanisms.sparse_vector import SparseVectorBudget, SparseVectorReply, Strategy
from synthdp.privacy.plan import MechanismFactory
from synthdp.spec.model import Graph


def _spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    # Each pass takes a pair out, so that the passes always suffice.
    passes = len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    if not passes:
        return {}
    budget = partial(SparseVectorBudget, domain, "kendall", passes, 1.0, rows)
    return {PURPOSE: sieve_start(budget, passes=passes, rate=1.0, examined=0.0)}


def strategy(knowledge: Knowledge, level: float, budget: SparseVectorBudget) -> Strategy:
    """PC that separates a pair where the sparse vector finds no dependence."""
    questions = Questions.at_level(
        budget.domain, budget.test, rows=budget.rows, level=level, noise=budget.sieve_deviation
    )
    return partial(pc_search, knowledge, questions, _above)


def _above(reply: SparseVectorReply) -> bool:
    return reply.above


SVT_PC = Algorithm(_spends, partial(run_search, strategy))
