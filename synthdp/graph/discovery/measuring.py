"""Measured PC as an algorithm of the graph stage: its rounds of tables as planned spends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.measured_pc import MeasurePlan, measured_pc
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

MAX_CELLS = 4096
"""Most cells of a table that a round measures."""


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
    return {
        name: adaptive_round(domain, part)
        for name, part in _measure_plan(settings).shares(domain).items()
    }


def _search(
    releaser: Releaser, settings: Graph, domain: Domain
) -> Released[CausalGraph] | CausalGraph:
    paid: list[Released[tuple[NoisyTable, ...]]] = []

    def measure(name: str, tables: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
        paid.append(measure_round(releaser, name, tables))
        return paid[-1].value

    graph = measured_pc(
        measure, _measure_plan(settings), domain, Knowledge.from_spec(settings, domain.names)
    )
    if not paid:
        return graph
    together: Released[CausalGraph] = paid[0].map(lambda _: graph)
    for more in paid[1:]:
        together = together.zip(more).map(lambda pair: pair[0])
    return together


def _measure_plan(settings: Graph) -> MeasurePlan:
    return MeasurePlan(level=settings.level, max_cells=MAX_CELLS, max_parents=settings.max_parents)


MEASURED_PC = Algorithm(_spends, _search)
