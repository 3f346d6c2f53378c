"""The graph stage of a release: the spec's graph as it is, validated, or learned, by `graph.mode`.

Which rounds of tables a mode needs, and their parts of the budget, are public and known to the plan; what the
rounds measure is paid for through the releaser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import ALGORITHMS, MeasurePlan
from synthdp.graph.knowledge import Knowledge
from synthdp.graph.validation import ValidationReport, required_tables, validate
from synthdp.privacy.mechanisms import AdaptiveMarginals, Mechanism, NoisyTable
from synthdp.privacy.plan import Plan
from synthdp.privacy.private import Released
from synthdp.spec import models as spec

T = TypeVar("T")

MAX_CELLS = 4096
MAX_TABLES = 500


class Releaser(Protocol):
    """Where paid-for values come from: `privacy.session.Session` or a rehearsal."""

    @property
    def plan(self) -> Plan: ...
    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]: ...


@dataclass(frozen=True)
class GraphResult:
    """The graph to train on, what the tables said of a given one, and the receipts of what it cost (None: free)."""

    graph: CausalGraph
    validation: ValidationReport | None
    released: Released[CausalGraph] | None


def rounds(settings: spec.Graph, domain: Domain) -> Mapping[str, float]:
    """The measuring rounds of a mode and their parts of the graph's share; public."""
    if settings.mode == "validate":
        return {"validate": 1.0}
    if settings.mode == "learn":
        return _measure_plan(settings).shares(domain)
    return {}


def find_graph(releaser: Releaser, settings: spec.Graph, domain: Domain) -> GraphResult:
    """The graph by the spec's mode.

    Raises:
        GateError: mode validate with `on_refuted: fail`, and the released tables refute the graph.
        SynthdpError: the graph leaves nothing that can be tested or searched.
    """
    if settings.mode == "validate":
        return _validated(releaser, settings, domain)
    if settings.mode == "learn":
        return _learned(releaser, settings, domain)
    return GraphResult(CausalGraph.from_spec(settings, domain.names), None, None)


def _validated(releaser: Releaser, settings: spec.Graph, domain: Domain) -> GraphResult:
    given = CausalGraph.from_spec(settings, domain.names)
    tables = required_tables(given, domain, max_cells=MAX_CELLS, max_tables=MAX_TABLES)
    if not tables:
        raise SynthdpError(
            "graph.mode validate: no claim of the graph fits a table that can be measured", hint="use fewer levels per column, or mode given"
        )
    measured = _measure(releaser, "validate", tables)
    report = measured.map(lambda t: validate(given, t, domain=domain, level=settings.level, max_cells=MAX_CELLS))
    graph = report.map(lambda r: r.apply(settings.on_refuted))
    return GraphResult(graph.value, report.value, graph)


def _learned(releaser: Releaser, settings: spec.Graph, domain: Domain) -> GraphResult:
    paid: list[Released[tuple[NoisyTable, ...]]] = []

    def measure(name: str, tables: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
        paid.append(_measure(releaser, name, tables))
        return paid[-1].value

    knowledge = Knowledge.from_spec(settings, domain.names)
    graph = ALGORITHMS[settings.algorithm](measure, _measure_plan(settings), domain, knowledge).extension()
    if not paid:
        return GraphResult(graph, None, None)
    together: Released[CausalGraph] = paid[0].map(lambda _: graph)
    for more in paid[1:]:
        together = together.zip(more).map(lambda pair: pair[0])
    return GraphResult(graph, None, together)


def _measure(releaser: Releaser, name: str, tables: Sequence[tuple[str, ...]]) -> Released[tuple[NoisyTable, ...]]:
    purpose = f"graph: {name}"
    planned = releaser.plan.find(purpose)
    if planned is None or not isinstance(planned.mechanism, AdaptiveMarginals):
        raise SynthdpError(f"the plan has no measuring round {purpose!r}")
    return releaser.release(planned.mechanism.choose(tables), purpose=purpose)


def _measure_plan(settings: spec.Graph) -> MeasurePlan:
    return MeasurePlan(level=settings.level, max_cells=MAX_CELLS, max_tables=MAX_TABLES, max_parents=settings.max_parents)
