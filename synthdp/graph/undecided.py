"""Undecided is not absent: pairs on which a search has no answer stay in the model.

A search leaves a pair undecided where noise hides what it asks. A model without a link holds the
two columns for independent given their causes, which no evidence says. So where noisy tables of
the pair show a dependence, it becomes an arrow along an order that the learned graph allows. The
arrow predicts, and claims no cause. Pairs whose tables show none stay undecided and without an
arrow: the best estimate of their table is that of independent columns, so that an arrow would
change nothing. All of it is post-processing of released tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import networkx as nx

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.prediction.pairs import pair_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable

MAX_PREDICTORS = 24
"""Most predictive arrows to one column: those with the most evidence."""


def with_predictive_arrows(
    graph: CausalGraph,
    knowledge: Knowledge,
    domain: Domain,
    tables: Sequence[NoisyTable],
    targets: Collection[str],
) -> CausalGraph:
    """`graph`, a DAG, with arrows for undecided pairs that `tables` show to be dependent.

    `tables` hold one-way tables of all columns. A pair without a table stays as it is. Targets
    come late in the order: they are predicted.
    """
    evidence = _evidence(graph.open_pairs, tables, domain)
    place = {name: i for i, name in enumerate(_order(graph, knowledge, targets))}
    arrows: dict[frozenset[str], Pair] = {}
    predictors: dict[str, int] = dict.fromkeys(graph.nodes, 0)
    for pair in sorted(evidence, key=lambda p: -evidence[p]):
        cause, effect = sorted(pair, key=place.__getitem__)
        if knowledge.allows(cause, effect) and predictors[effect] < MAX_PREDICTORS:
            arrows[frozenset(pair)] = (cause, effect)
            predictors[effect] += 1
    return replace(graph, edges=tuple(_turned(e, arrows) for e in graph.edges))


def _evidence(
    pairs: Collection[Pair], tables: Sequence[NoisyTable], domain: Domain
) -> Mapping[Pair, float]:
    """Evidence of the dependent pairs among `pairs`, in nats."""
    if not pairs:
        return {}
    asked = {frozenset(pair): pair for pair in pairs}
    wanted = [t for t in tables if len(t.columns) == 1 or _holds_one(t, asked)]
    known = pair_tables(wanted, domain).pairs
    found = {asked[frozenset(p)]: t for p, t in known.items() if frozenset(p) in asked}
    return {pair: table.evidence for pair, table in found.items() if table.dependent}


def _holds_one(table: NoisyTable, pairs: Collection[frozenset[str]]) -> bool:
    return any(frozenset(pair) in pairs for pair in combinations(table.columns, 2))


def _order(graph: CausalGraph, knowledge: Knowledge, targets: Collection[str]) -> list[str]:
    """The columns, causes before effects; as far as that allows by tiers, targets last in theirs.

    A column outside all tiers comes with the first tier that it leads to.
    """
    tier = {name: i for i, names in enumerate(knowledge.tiers) for name in names}
    last = len(knowledge.tiers)
    first = {
        name: min(tier.get(n, last) for n in (name, *nx.descendants(graph.dag, name)))
        for name in graph.nodes
    }
    rank = {name: i for i, name in enumerate(graph.nodes)}

    def early(name: str) -> tuple[int, bool, int]:
        return first[name], name in targets, rank[name]

    return list(nx.lexicographical_topological_sort(graph.dag, key=early))


def _turned(edge: GraphEdge, arrows: Mapping[frozenset[str], Pair]) -> GraphEdge:
    if edge.structural or frozenset(edge.pair) not in arrows:
        return edge
    cause, effect = arrows[frozenset(edge.pair)]
    return GraphEdge(cause, effect, directed=True, provenance="predictive")
