"""The distance of a graph from the truth: structural Hamming distance and F1 of arcs."""

from __future__ import annotations

from typing import Literal

from synthdp.graph.causal import CausalGraph
from synthdp.graph.knowledge import Pair


def hamming_distance(a: CausalGraph, b: CausalGraph) -> int:
    """Structural Hamming distance: pairs whose link is missing, extra or of another direction.

    >>> from synthdp.graph.edge import GraphEdge
    >>> arrow = GraphEdge("a", "b", directed=True, provenance="given")
    >>> hamming_distance(CausalGraph(("a", "b"), (arrow,)), CausalGraph(("a", "b")))
    1
    """
    links_a, links_b = _links(a), _links(b)
    return sum(links_a.get(pair) != links_b.get(pair) for pair in links_a.keys() | links_b.keys())


def arc_f1(estimate: CausalGraph, truth: CausalGraph) -> float:
    """F1 of arcs; an undirected link counts as two arcs. Two empty graphs score 1.

    Compare CPDAGs, because observational data cannot distinguish more.
    """
    estimated, true = _arcs(estimate), _arcs(truth)
    if not estimated and not true:
        return 1.0
    return 2 * len(estimated & true) / (len(estimated) + len(true))


def _links(graph: CausalGraph) -> dict[frozenset[str], Pair | Literal["undirected"]]:
    links: dict[frozenset[str], Pair | Literal["undirected"]] = {
        frozenset(p): p for p in graph.directed
    }
    links.update({frozenset(p): "undirected" for p in graph.undirected})
    return links


def _arcs(graph: CausalGraph) -> set[Pair]:
    return {*graph.directed, *graph.undirected, *((b, a) for a, b in graph.undirected)}
