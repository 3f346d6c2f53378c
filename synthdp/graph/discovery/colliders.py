"""V-structures by the evidence on their ends: the rule of Measured PC and of PC on moments.

A v-structure a -> b <- c is claimed only if sets without b explain the independence of a and c much
better than sets with b, by the ratio of their largest p-values (after PC-max: Ramsey 2016). The
ratio scales with the noise by itself, so that one threshold serves high and low budgets.

Two paths between a and c may nearly cancel, so that a and c look independent until one of them is
closed. If b closes only one, the other is then seen, and b looks like the middle of a v-structure.
Sets of b and one more column close both. So such sets have a veto: a v-structure stays only if sets
without b explain the independence better than they do, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from synthdp.graph.ci_tests.answer import Answer
from synthdp.graph.discovery.skeleton import Evidence
from synthdp.graph.knowledge import Pair
from synthdp.graph.meek import Collider, Pdag, unshielded

ODDS = 20.0
"""How much better sets without the middle column of a v-structure must explain independence."""
VETO = 3.0
"""The same against sets of that column and one more. Chosen on the network insurance, on alarm and
on random networks (seeds 401 to 424): where a v-structure is true, such sets often come near, since
the average of its effect over their strata may be small.
"""

Tests = Mapping[tuple[str, ...], Answer]
"""Answers of one pair by conditioning set."""


def tested_triples(graph: Pdag, evidence: Evidence) -> list[Collider]:
    """Unshielded triples whose ends were tested; the ends are in node order."""
    return [(a, b, c) for a, b, c in unshielded(graph) if evidence.get((a, c))]


def surest_colliders(
    triples: Sequence[Collider],
    tests: Mapping[Pair, Tests],
    larger: Mapping[Pair, Tests] = MappingProxyType({}),
) -> list[Collider]:
    """The triples with enough evidence for a v-structure, the most certain first.

    `larger` are tests given the middle column and one more, for their veto.
    """
    odds = {(a, b, c): collider_odds(tests[a, c], b) for a, b, c in triples}
    sure = [triple for triple, value in odds.items() if value > np.log(ODDS)]
    kept = [
        (a, b, c)
        for a, b, c in sure
        if collider_odds({**tests[a, c], **larger.get((a, c), {})}, b) > np.log(VETO)
    ]
    return sorted(kept, key=lambda triple: -odds[triple])


def collider_odds(tests: Tests, middle: str) -> float:
    """Log ratio of the largest p-values of tests given sets without and with the middle column.

    It says how much better sets without that column explain the independence of the ends.
    """
    able = {given: answer for given, answer in tests.items() if np.isfinite(answer.detectable)}
    without = max((a.p_value for given, a in able.items() if middle not in given), default=0.0)
    within = max((a.p_value for given, a in able.items() if middle in given), default=1.0)
    tiny = np.finfo(np.float64).tiny
    return float(np.log(max(without, tiny)) - np.log(max(within, tiny)))
