"""Measured PC as an algorithm of the graph stage: its rounds of tables as planned spends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.trend import has_order
from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.coarsening import fine_columns, groups_by_noise
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.discovery.measured_pc import measured_pc
from synthdp.graph.discovery.screening import (
    COLUMNS,
    SCREEN,
    kept_pairs,
    screen_round,
    screened,
    screens,
    with_screen,
)
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

MAX_CELLS = 4096
"""Most cells of a table that a round measures."""
PAIRS = "pairs"
ORDERED_SHARES: Mapping[str, float] = {COLUMNS: 0.05, PAIRS: 0.95}
"""Shares where every open pair has an ordered column: tables of pairs answer all questions."""
MIXED_SHARES: Mapping[str, float] = {
    COLUMNS: 0.05,
    PAIRS: 0.7,
    "triples": 0.15,
    "quadruples": 0.1,
}
"""Shares where some column is counted on groups, and some pairs have no order."""


def measure_round(
    releaser: Releaser,
    name: str,
    tables: Sequence[tuple[str, ...]],
    groups: LevelGroups | None = None,
) -> Released[tuple[NoisyTable, ...]]:
    """Release `tables` as the planned round `name`, counted on `groups` of levels if there are any.

    Raises:
        SynthdpError: the plan has no such round.
    """
    purpose, planned = graph_purpose(name), releaser.plan.in_graph(name, AdaptiveMarginals)
    if planned is None:
        raise SynthdpError(f"the plan has no measuring round {purpose!r}")
    return releaser.release(planned.choose(tables, groups), purpose=purpose)


def _spends(settings: Graph, domain: Domain, _: float) -> Mapping[str, MechanismFactory]:
    plan = _measure_plan(settings)
    knowledge = Knowledge.from_spec(settings, domain.names)
    plan.refuse_too_many(domain, knowledge)
    shares = _shares(plan, settings, domain)
    if not screens(plan, domain, len(knowledge.undecided_pairs())):
        return {name: adaptive_round(domain, part) for name, part in shares.items()}
    return {
        name: (screen_round if name == SCREEN else adaptive_round)(domain, part)
        for name, part in with_screen(shares).items()
    }


def _shares(plan: MeasurePlan, settings: Graph, domain: Domain) -> Mapping[str, float]:
    """The rounds with their share of the budget: public facts decide."""
    shares = plan.shares(domain)
    if PAIRS not in shares or not fine_columns(domain):
        return shares
    open_pairs = Knowledge.from_spec(settings, domain.names).undecided_pairs()
    plain = any(not any(has_order(domain[name]) for name in pair) for pair in open_pairs)
    return MIXED_SHARES if plain else ORDERED_SHARES


def _search(
    releaser: Releaser, settings: Graph, domain: Domain
) -> Released[CausalGraph] | CausalGraph:
    paid: list[Released[Any]] = []
    plan, knowledge = _measure_plan(settings), Knowledge.from_spec(settings, domain.names)
    groups, open_pairs = LevelGroups(domain, {}), len(knowledge.undecided_pairs())
    wide, chosen = screens(plan, domain, open_pairs), None
    fine = {column.name for column in fine_columns(domain)}
    if open_pairs and (wide or COLUMNS in _shares(plan, settings, domain)):
        counted = [(name,) for name in domain.names if wide or name in fine]
        counts = measure_round(releaser, COLUMNS, counted)
        paid.append(counts)
        sigma = _noise_of_pairs(releaser, kept_pairs(domain) if wide else open_pairs)
        groups = groups_by_noise(domain, [t for t in counts.value if fine & {*t.columns}], sigma)
        plan = replace(plan, joint_cells=0)
    if wide:
        told = screened(releaser, knowledge, groups, counts.value, max_cells=plan.max_cells)
        paid.append(told)
        chosen = told.value

    def measure(name: str, tables: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
        told = measure_round(releaser, name, tables, groups)
        paid.append(told)
        return tuple(replace(table, starts={}) for table in told.value)

    shared = {
        name: np.diff([*starts, domain[name].levels]) > 1 for name, starts in groups.starts.items()
    }
    graph = measured_pc(
        *(measure, plan, groups.coarse, knowledge),
        shared=shared,
        pairs=chosen,
        unseen=settings.unseen_causes,
    )
    if not paid:
        return graph
    together: Released[CausalGraph] = paid[0].map(lambda _: graph)
    for more in paid[1:]:
        together = together.zip(more).map(lambda pair: pair[0])
    return together


def _noise_of_pairs(releaser: Releaser, pairs: int) -> float:
    planned = needed(releaser.plan.in_graph(PAIRS, AdaptiveMarginals), graph_purpose(PAIRS))
    return planned.noise_multiplier * math.sqrt(pairs)


def _measure_plan(settings: Graph) -> MeasurePlan:
    return MeasurePlan(level=settings.level, max_cells=MAX_CELLS, max_parents=settings.max_parents)


MEASURED_PC = Algorithm(_spends, _search)
