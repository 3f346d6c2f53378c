"""The difference of two graphs: links added, removed and turned, and the distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge, Provenance


@dataclass(frozen=True)
class GraphDifference:
    """What changes from `before` to `after`.

    A turned link joins the same columns in another direction. `columns` holds the columns that one
    of the two graphs lacks, under "before" and "after". `classes` says that the two were compared
    as equivalence classes, with the directions alone that observational data can show.
    """

    before: CausalGraph
    after: CausalGraph
    added: tuple[GraphEdge, ...]
    removed: tuple[GraphEdge, ...]
    turned: tuple[tuple[GraphEdge, GraphEdge], ...]
    common: int
    columns: Mapping[str, tuple[str, ...]]
    classes: bool = False

    @property
    def distance(self) -> int:
        """Structural Hamming distance: pairs whose link is missing, extra or turned."""
        return len(self.added) + len(self.removed) + len(self.turned)

    @property
    def f1(self) -> float:
        """F1 of arcs; an undirected link counts as two arcs."""
        return arc_f1(self.after, self.before)

    @property
    def same(self) -> bool:
        """Whether both graphs have the same columns and links. Provenance may differ."""
        return not (self.added or self.removed or self.turned or any(self.columns.values()))

    def to_json(self) -> dict[str, Any]:
        def link(edge: GraphEdge) -> dict[str, Any]:
            return replace(edge, probability=None).to_json()

        return {
            "same": self.same,
            "added": list(map(link, self.added)),
            "removed": list(map(link, self.removed)),
            "turned": [{"before": link(a), "after": link(b)} for a, b in self.turned],
            "common": self.common,
            "columns": {side: list(names) for side, names in self.columns.items()},
            "classes": self.classes,
            "hamming_distance": self.distance,
            "arc_f1": self.f1,
        }

    def picture(self) -> CausalGraph:
        """Both graphs in one, with the provenance as colour.

        Common links are `given`, added ones `learned`, removed ones `refuted`, and turned ones
        `undecided` with their new direction. Where both graphs together have a cycle, removed links
        are drawn undirected.
        """
        colour: dict[frozenset[str], Provenance] = {
            frozenset(e.pair): "given" for e in self.after.edges if e.structural
        }
        colour |= {frozenset(e.pair): "learned" for e in self.added}
        colour |= {frozenset(e.pair): "undecided" for _, e in self.turned}
        links = {frozenset(e.pair): e for e in self.after.edges}
        now = [replace(links[pair], provenance=name) for pair, name in colour.items()]
        gone = [replace(e, provenance="refuted") for e in self.removed]
        nodes = tuple(dict.fromkeys((*self.after.nodes, *self.before.nodes)))
        try:
            return CausalGraph(nodes, (*now, *gone))
        except SynthdpError:
            return CausalGraph(nodes, (*now, *(replace(e, directed=False) for e in gone)))


def difference(before: CausalGraph, after: CausalGraph) -> GraphDifference:
    """Compare two graphs by the names of their columns.

    Where one has links of unknown direction, both are compared as equivalence classes.

    >>> def graph(*arrows: str) -> CausalGraph:
    ...     edges = [GraphEdge(*a, directed=True, provenance="given") for a in arrows]
    ...     return CausalGraph(("a", "b", "c"), tuple(edges))
    >>> found = difference(graph("ab", "bc"), graph("ba"))
    >>> found.distance, [e.pair for e in found.removed], [e.pair for _, e in found.turned]
    (2, [('b', 'c')], [('b', 'a')])
    """
    classes = bool(before.undirected or after.undirected)
    if classes:
        before, after = before.cpdag(), after.cpdag()
    old, new = (
        {frozenset(e.pair): e for e in graph.edges if e.structural} for graph in (before, after)
    )
    shared = [(old[p], new[p]) for p in old if p in new]
    turned = tuple(
        (a, b) for a, b in shared if a.directed != b.directed or (a.directed and a.pair != b.pair)
    )
    return GraphDifference(
        before,
        after,
        added=tuple(e for p, e in new.items() if p not in old),
        removed=tuple(e for p, e in old.items() if p not in new),
        turned=turned,
        common=len(shared) - len(turned),
        columns={
            "before": tuple(n for n in before.nodes if n not in after.nodes),
            "after": tuple(n for n in after.nodes if n not in before.nodes),
        },
        classes=classes,
    )


def arc_f1(estimate: CausalGraph, truth: CausalGraph) -> float:
    """F1 of arcs; an undirected link counts as two arcs. Two empty graphs score 1.

    Compare CPDAGs, because observational data cannot distinguish more.
    """
    estimated, true = (
        {*graph.directed, *graph.undirected, *((b, a) for a, b in graph.undirected)}
        for graph in (estimate, truth)
    )
    if not estimated and not true:
        return 1.0
    return 2 * len(estimated & true) / (len(estimated) + len(true))
