"""The screen of wide tables: which of very many open pairs a search measures.

A table of each pair would be buried in noise. So a share of the budget tells which pairs look most
dependent (`privacy.mechanisms.pair_screen`), and the rounds of tables are spent on these. Pairs
that are left out were not looked at: they stay undecided, and are never called absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.discovery.algorithm import Releaser
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.privacy.mechanisms.pair_screen import PairScreen, noise_for
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released

SCREEN = "screen"
SHARE = 0.3
"""Of the search's squared mu."""
KEPT_PER_COLUMN = 3


def screens(plan: MeasurePlan, domain: Domain, open_pairs: int) -> bool:
    """Whether a search screens its open pairs: a public fact."""
    return not plan.joint(domain) and open_pairs > plan.max_pairs


def with_screen(shares: Mapping[str, float]) -> Mapping[str, float]:
    """The shares of the rounds where a screen has its own."""
    return {name: part * (1 - SHARE) for name, part in shares.items()}


def kept_pairs(domain: Domain) -> int:
    """How many pairs a screen tells.

    >>> from synthdp.data.column_domain import ColumnDomain
    >>> kept_pairs(Domain(tuple(ColumnDomain(n, "boolean", ("0", "1"), False) for n in "abcd")))
    12
    """
    return KEPT_PER_COLUMN * len(domain)


def screen_round(domain: Domain) -> MechanismFactory:
    """The screen, for its share of the search."""
    kept = kept_pairs(domain)
    return lambda mu: PairScreen(domain, kept, noise_for(mu * math.sqrt(SHARE), kept))


def screened(
    releaser: Releaser, knowledge: Knowledge, groups: LevelGroups, max_cells: int
) -> Released[tuple[Pair, ...]]:
    """The pairs to measure, in column order: those of the largest noisy scores.

    Pairs whose tables have more than `max_cells` are not measured, and so not screened.
    """
    purpose, domain = graph_purpose(SCREEN), groups.coarse
    planned = needed(releaser.plan.in_graph(SCREEN, PairScreen), purpose)
    small = [p for p in knowledge.undecided_pairs() if domain.cells(p) <= max_cells]
    told = releaser.release(planned.choose(small, groups), purpose=purpose)
    return told.map(lambda pairs: _in_order(pairs, domain))


def _in_order(pairs: Sequence[tuple[str, ...]], domain: Domain) -> tuple[Pair, ...]:
    places = sorted(tuple(sorted(domain.index(name) for name in pair)) for pair in pairs)
    return tuple((domain.names[a], domain.names[b]) for a, b in places)
