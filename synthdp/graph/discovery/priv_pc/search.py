"""Priv-PC, made sound: PC by sieve and examine.

Source: Wang, Pang and Song, "Towards practical differentially private causal graph discovery"
(2020), Algorithm 2. The differences from the paper, and their reasons, stand in
`privacy.mechanisms.ranks` (sensitivities) and `privacy.mechanisms.sparse_vector` (charges). Also,
the bound is on the score itself and not on a p-value, and examined pairs are judged by z = score /
sqrt(variance + noise^2), with ties taken into account.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from synthdp.data.domain import Domain
from synthdp.graph.ci_tests.answer import Answer
from synthdp.graph.ci_tests.ranks import noisy_rank_answer
from synthdp.graph.discovery.algorithm import Algorithm
from synthdp.graph.discovery.ranked import Questions, check_ordered
from synthdp.graph.discovery.sieving import PURPOSE, pc_search, run_search, sieve_start
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.mechanisms.sparse_vector import SparseVectorBudget, SparseVectorReply, Strategy
from synthdp.privacy.plan import MechanismFactory
from synthdp.spec.model import Graph

PASSES_PER_PAIR = 1.0
"""Passes planned for each pair that the spec leaves open.

A separated pair takes one pass, and so does a false alarm.
"""
RATE = 1.0
"""Sampling rate of the rows that a pass looks at."""
EXAMINED = 0.5
"""Share of the budget for examining."""
TWEAK = 0.5
"""Slack of the sieve's bound above the test's, in standard deviations of the sieve's noise.

With it, few independent pairs go undetected.
"""
MARGIN = 0.1
"""Effect below which a pair counts as independent."""


def _spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    passes = round(
        PASSES_PER_PAIR * len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    )
    if not passes:
        return {}
    budget = partial(SparseVectorBudget, domain, "kendall", passes, RATE, rows)
    return {PURPOSE: sieve_start(budget, passes=passes, rate=RATE, examined=EXAMINED)}


def strategy(knowledge: Knowledge, level: float, budget: SparseVectorBudget) -> Strategy:
    """PC that separates a pair where neither the sieve nor the examined test finds dependence."""
    rows, noise = budget.rows * budget.rate, budget.sieve_deviation
    sampled = Questions.at_level(
        budget.domain, budget.test, rows=rows, level=level, noise=0.0, slack=TWEAK * noise
    )

    def examined(reply: SparseVectorReply) -> Answer:
        return noisy_rank_answer(
            reply.score,
            reply.variance,
            noise=budget.examine_deviation,
            rows=budget.rows,
            level=level,
            margin=MARGIN,
        )

    def separated(reply: SparseVectorReply) -> bool:
        return reply.above and examined(reply).verdict != "dependent"

    return partial(pc_search, knowledge, sampled, separated, lambda reply: examined(reply).effect)


PRIV_PC = Algorithm(_spends, partial(run_search, strategy))
