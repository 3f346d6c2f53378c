"""From an oriented graph and its evidence to a `CausalGraph`, whose links are three-valued."""

from __future__ import annotations

from collections.abc import Callable

from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.skeleton import Evidence, Skeleton
from synthdp.graph.edge import GraphEdge
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Pdag, extend


def limit_parents(graph: Pdag, evidence: Evidence, most: int) -> Callable[[Pair], bool]:
    """Which learned links to keep so that no column has more than `most` parents.

    The strongest are kept, and the fixed ones always.
    """
    dropped: set[frozenset[str]] = set()
    dag = extend(graph)
    for node in dag.nodes:
        parents = dag.ordered(dag.parents[node])
        tests = {p: evidence.get((p, node)) or evidence.get((node, p)) for p in parents}
        effects = {p: found[0][1].effect for p, found in tests.items() if found}
        weakest = sorted(effects, key=effects.__getitem__)
        dropped |= {frozenset((p, node)) for p in weakest[: max(len(parents) - most, 0)]}
    return lambda pair: frozenset(pair) not in dropped


def reading(
    graph: Pdag,
    skeleton: Skeleton,
    knowledge: Knowledge,
    keep: Callable[[Pair], bool],
    probability: Callable[[Pair], float | None] = lambda pair: None,
) -> CausalGraph:
    """The learned graph; pairs that are neither linked nor absent are listed as undecided.

    `probability` is that of a learned link, if it is known.
    """
    directed = [
        GraphEdge(a, b, directed=True, provenance="learned", probability=probability((a, b)))
        for a, b in graph.directed()
        if (a, b) not in knowledge.fixed and keep((a, b))
    ]
    undirected = [
        GraphEdge(a, b, directed=False, provenance="learned", probability=probability((a, b)))
        for a, b in graph.undirected()
        if keep((a, b))
    ]
    unclear = [
        GraphEdge(a, b, directed=False, provenance="undecided")
        for a, b in knowledge.undecided_pairs()
        if (a, b) not in skeleton.linked and not skeleton.absent((a, b))
    ]
    return CausalGraph.from_knowledge(
        knowledge, provenance="required", arrows=(*directed, *undirected, *unclear)
    )
