"""The graph stage of a release: the spec's graph as it is, validated, or learned, by `graph.mode`.

What a mode may release is public and known to the plan; it is paid for through the releaser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import ALGORITHMS, Releaser
from synthdp.graph.discovery.measuring import MAX_CELLS, measure_round
from synthdp.graph.validation import (
    MAX_TABLES,
    VALIDATION_SHARES,
    ValidationReport,
    doubtful,
    rejudge,
    required_tables,
    tables_of,
    validate,
)
from synthdp.privacy.mechanisms.marginals import Mechanism, NoisyTable
from synthdp.privacy.plan import MechanismFactory, Plan, adaptive_round
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

T = TypeVar("T")


@dataclass(frozen=True)
class GraphResult:
    """The graph to train on, what the tables said of a given one, and the graph with the receipts
    of what it cost (None: free).

    `tables` are the noisy tables that were paid for on the way: whatever comes later may use them
    for nothing.
    """

    graph: CausalGraph
    report: Released[ValidationReport] | None = None
    released: Released[CausalGraph] | None = None
    tables: Released[tuple[NoisyTable, ...]] | None = None

    @property
    def validation(self) -> ValidationReport | None:
        """What the tables said of a given graph."""
        return None if self.report is None else self.report.value


def rounds(settings: Graph, domain: Domain, *, rows: float) -> Mapping[str, MechanismFactory]:
    """What a mode may release, and how each is planned; public. `rows`: declared rows that a fit is
    expected to see.
    """
    if settings.mode == "validate":
        return {name: adaptive_round(domain, part) for name, part in VALIDATION_SHARES.items()}
    if settings.mode == "learn":
        return ALGORITHMS[settings.algorithm].spends(settings, domain, rows)
    return {}


def find_graph(releaser: Releaser, settings: Graph, domain: Domain) -> GraphResult:
    """The graph by the spec's mode.

    Raises:
        GraphRefuted: mode validate with `on_refuted: fail`, and the released tables refute the
            graph.
        SynthdpError: the graph leaves nothing that can be tested or searched.
    """
    keeping = _Keeping(releaser)
    if settings.mode == "validate":
        return replace(_validated(keeping, settings, domain), tables=keeping.tables)
    if settings.mode == "learn":
        return replace(_learned(keeping, settings, domain), tables=keeping.tables)
    return GraphResult(CausalGraph.from_spec(settings, domain.names))


class _Keeping:
    """A releaser that keeps the noisy tables that pass through it, for whoever can use them after
    the graph.
    """

    def __init__(self, releaser: Releaser) -> None:
        self._releaser = releaser
        self.tables: Released[tuple[NoisyTable, ...]] | None = None

    @property
    def plan(self) -> Plan:
        return self._releaser.plan

    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]:
        """What the releaser releases."""
        released = self._releaser.release(mechanism, purpose=purpose)
        value = released.value
        if isinstance(value, tuple) and all(isinstance(t, NoisyTable) for t in value):
            found: tuple[NoisyTable, ...] = value
            tables = released.map(lambda _: found)
            self.tables = (
                tables
                if self.tables is None
                else self.tables.zip(tables).map(lambda pair: (*pair[0], *pair[1]))
            )
        return released


def _validated(releaser: Releaser, settings: Graph, domain: Domain) -> GraphResult:
    report = validated(
        releaser, CausalGraph.from_spec(settings, domain.names), domain, level=settings.level
    )
    graph = report.map(lambda r: r.apply(settings.on_refuted))
    return GraphResult(graph.value, report, graph)


def validated(
    releaser: Releaser, given: CausalGraph, domain: Domain, *, level: float
) -> Released[ValidationReport]:
    """What noisy tables say of `given`: every claim is measured, then those that look worst once
    more with far less noise.

    Raises:
        SynthdpError: the graph leaves nothing that can be tested.
    """
    tables = required_tables(given, domain, max_cells=MAX_CELLS, max_tables=MAX_TABLES)
    if not tables:
        raise SynthdpError(
            "graph.mode validate: no claim of the graph fits a table that can be measured",
            hint="use fewer levels per column, or mode given",
        )
    first = measure_round(releaser, "validate", tables).map(
        lambda t: validate(given, t, domain=domain, level=level, max_cells=MAX_CELLS)
    )
    claims = doubtful(first.value)
    if not claims:
        return first
    return first.zip(measure_round(releaser, "confirm", tables_of(claims, domain))).map(
        lambda both: rejudge(both[0], claims, both[1])
    )


def _learned(releaser: Releaser, settings: Graph, domain: Domain) -> GraphResult:
    found = ALGORITHMS[settings.algorithm].search(releaser, settings, domain)
    if isinstance(found, CausalGraph):
        return GraphResult(found.extension())
    directed = found.map(lambda graph: graph.extension())
    return GraphResult(directed.value, released=directed)
