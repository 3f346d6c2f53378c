"""The graph stage of a release: a given, validated or learned graph, or one that only predicts.

`graph.mode` says which. What a mode may release is public and known to the plan. The releaser pays
for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

import networkx as nx

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph import validation
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.discovery import KnownTables, Releaser, algorithm_named
from synthdp.graph.discovery.measuring import SCREEN, measure_round, spends_without_screen
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import pair_tables, predict, prediction_rounds
from synthdp.graph.prior import PublicRows
from synthdp.graph.validation import ValidationReport, implications, required_tables
from synthdp.graph.waves import Tables
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms import Mechanism
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

T = TypeVar("T")


@dataclass(frozen=True)
class GraphResult:
    """The graph to train on, with the evidence and the receipts behind it.

    `report` is the validation of a given graph. `released` is the graph with the receipts of what
    it cost; None if it was free. `tables` are the noisy tables that the stage paid for; later
    stages may use them at no cost. `earlier` are those of earlier waves.
    """

    graph: CausalGraph
    report: Released[ValidationReport] | None = None
    released: Released[CausalGraph] | None = None
    tables: Released[tuple[NoisyTable, ...]] | None = None
    earlier: tuple[Tables, ...] = ()

    @property
    def validation(self) -> ValidationReport | None:
        """The validation of a given graph; None in other modes."""
        return None if self.report is None else self.report.value


def rounds(
    settings: Graph,
    domain: Domain,
    *,
    rows: float,
    rows_over_noise: float = math.inf,
    counts_only: bool = False,
) -> Mapping[str, MechanismFactory]:
    """What a mode may release, by name, and how each part is planned. All of it is public.

    `rows` is the declared number of rows that a fit is expected to see, and `rows_over_noise` that
    over the noise of a single table. `counts_only` says that they are counted elsewhere, and never
    seen.

    Raises:
        SynthdpError: more pairs are open than may be measured, or screened.
    """
    algorithm = algorithm_named(settings.algorithm)
    if settings.mode == "learn" or (settings.mode == "validate" and algorithm.tests):
        spends = algorithm.spends(settings, domain, rows)
        if counts_only and SCREEN in spends:
            return spends_without_screen(settings, domain)
        return spends
    if settings.mode == "predict":
        return prediction_rounds(domain, rows_over_noise, counts_only=counts_only)
    shares = validation.VALIDATION_SHARES if settings.mode == "validate" else {}
    return {name: adaptive_round(domain, part) for name, part in shares.items()}


def find_graph(
    releaser: Releaser,
    settings: Graph,
    domain: Domain,
    *,
    known: Released[tuple[NoisyTable, ...]] | None = None,
    targets: Collection[str] = (),
    prior: PublicRows | None = None,
    earlier: tuple[Tables, ...] = (),
) -> GraphResult:
    """The graph by the spec's mode.

    `known` are the noisy tables that were paid for before. Mode predict needs them; modes learn and
    validate test with their margins, and learn keeps arrows for undecided pairs where it has them:
    a search alone needs no model. `targets` are
    the columns that are predicted last, and `prior` what mode predict shrinks tables to. `earlier`
    are the tables of earlier waves, oldest first.

    Raises:
        GraphRefuted: mode validate with `on_refuted: fail`, and the released tables refute the
            graph.
        SynthdpError: the graph leaves nothing that can be tested or searched.
    """
    collector = _TableCollector(releaser)
    if settings.mode == "validate":
        given = CausalGraph.from_spec(settings, domain.names)
        tests, level = algorithm_named(settings.algorithm).tests, settings.level
        report = (
            validated(collector, given, domain, level=level, known=known)
            if tests is None
            else tests(collector, domain).map(
                lambda t: validation.judged(given, t, domain=domain, level=level)
            )
        )
        judged = report.map(lambda r: r.apply(settings.on_refuted))
        return GraphResult(judged.value, report, judged, collector.tables)
    if settings.mode == "learn":
        found = algorithm_named(settings.algorithm).search(collector, settings, domain, known)
        if isinstance(found, CausalGraph):
            return GraphResult(found, tables=collector.tables)
        learned = GraphResult(found.value, released=found, tables=collector.tables)
        if known is None or learned.tables is None:
            return learned
        knowledge = Knowledge.from_spec(settings, domain.names)
        kept = found.zip(known.zip(learned.tables)).map(
            lambda found: with_predictive_arrows(
                found[0], knowledge, domain, (*found[1][0], *found[1][1]), targets
            )
        )
        return replace(learned, graph=kept.value, released=kept)
    if settings.mode == "predict" and known is not None:
        graph = predict(collector, settings, domain, known, targets, prior, earlier)
        return GraphResult(graph.value, None, graph, collector.tables, earlier)
    return GraphResult(CausalGraph.from_spec(settings, domain.names), earlier=earlier)


class _TableCollector:
    """A releaser that collects the noisy tables that it releases, for later stages."""

    def __init__(self, releaser: Releaser) -> None:
        self._releaser = releaser
        self.tables: Released[tuple[NoisyTable, ...]] | None = None

    @property
    def plan(self) -> ReleasePlan:
        return self._releaser.plan

    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]:
        released = self._releaser.release(mechanism, purpose=purpose)
        value = released.value
        if isinstance(value, tuple) and all(isinstance(t, NoisyTable) for t in value):
            noisy: tuple[NoisyTable, ...] = value
            tables = released.map(lambda _: noisy)
            if self.tables is not None:
                tables = self.tables.zip(tables).map(lambda pair: (*pair[0], *pair[1]))
            self.tables = tables
        return released


def validated(
    releaser: Releaser,
    given: CausalGraph,
    domain: Domain,
    *,
    level: float,
    known: KnownTables = None,
) -> Released[ValidationReport]:
    """The validation of `given` by noisy tables.

    Every claim is measured once, and tested with the margins of `known` tables, too. Those that
    look worst are measured again, with far less noise, and judged by the fresh tables alone.

    Raises:
        SynthdpError: the graph leaves nothing that can be tested.
    """
    tables = required_tables(implications(given, domain), domain)
    if not tables:
        raise SynthdpError(
            "graph.mode validate: no claim of the graph fits a table that can be measured",
            hint="use fewer levels per column, or mode given",
        )
    measured = measure_round(releaser, "validate", tables)
    both = measured.map(lambda found: (found, ())) if known is None else measured.zip(known)
    first = both.map(
        lambda found: validation.validate(
            given, found[0], domain=domain, level=level, known=found[1]
        )
    )
    claims = validation.doubtful(first.value)
    if not claims:
        return first
    return first.zip(measure_round(releaser, "confirm", required_tables(claims, domain))).map(
        lambda both: validation.rejudge(both[0], claims, both[1])
    )


def with_predictive_arrows(
    graph: CausalGraph,
    knowledge: Knowledge,
    domain: Domain,
    tables: Sequence[NoisyTable],
    targets: Collection[str],
) -> CausalGraph:
    """`graph` with arrows for undecided pairs that `tables` show to be dependent.

    `tables` hold one-way tables of all columns. A pair without a table stays as it is. Targets
    come late in the order: they are predicted. A column gets 24 of these arrows at
    most, those with the most evidence.

    Undecided is not absent. A search leaves a pair undecided where noise hides what it asks. A
    model without a link holds the two columns for independent given their causes, which no evidence
    says. So where noisy tables of the pair show a dependence, it becomes an arrow along an order
    that the learned graph allows. The arrow predicts, and claims no cause. Pairs whose tables show
    none stay undecided and without an arrow: the best estimate of their table is that of
    independent columns, so that an arrow would change nothing. All of it is post-processing.
    """
    evidence = _evidence(graph.open_pairs, tables, domain)
    place = {name: i for i, name in enumerate(_order(graph, knowledge, targets))}
    arrows: dict[frozenset[str], Pair] = {}
    predictors: dict[str, int] = dict.fromkeys(graph.nodes, 0)
    for pair in sorted(evidence, key=lambda p: -evidence[p]):
        cause, effect = sorted(pair, key=place.__getitem__)
        if knowledge.allows(cause, effect) and predictors[effect] < 24:
            arrows[frozenset(pair)] = (cause, effect)
            predictors[effect] += 1
    turned = [
        GraphEdge(*arrows[frozenset(e.pair)], directed=True, provenance="predictive")
        if not e.structural and frozenset(e.pair) in arrows
        else e
        for e in graph.edges
    ]
    return replace(graph, edges=tuple(turned))


def _evidence(
    pairs: Collection[Pair], tables: Sequence[NoisyTable], domain: Domain
) -> Mapping[Pair, float]:
    """Evidence of the dependent pairs among `pairs`, in nats."""
    if not pairs:
        return {}
    asked = {frozenset(pair): pair for pair in pairs}
    wanted = [
        t
        for t in tables
        if len(t.columns) == 1 or any(frozenset(p) in asked for p in combinations(t.columns, 2))
    ]
    known = pair_tables(LevelLaw.of_tables(wanted, domain)).pairs
    found = {asked[frozenset(p)]: t for p, t in known.items() if frozenset(p) in asked}
    return {pair: table.evidence for pair, table in found.items() if table.dependent}


def _order(graph: CausalGraph, knowledge: Knowledge, targets: Collection[str]) -> list[str]:
    """Causes first; as far as that allows by tiers (of what a column leads to), targets last."""
    tier = {name: i for i, names in enumerate(knowledge.tiers) for name in names}
    last = len(knowledge.tiers)
    first = {
        name: min(tier.get(n, last) for n in (name, *nx.descendants(graph.dag, name)))
        for name in graph.nodes
    }
    rank = {name: i for i, name in enumerate(graph.nodes)}
    early = {name: (first[name], name in targets, rank[name]) for name in graph.nodes}
    return list(nx.lexicographical_topological_sort(graph.dag, key=early.__getitem__))
