"""`CausalGraph`: a causal graph as a value - which arrows, why we believe each of them, and what
they imply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, get_args

import networkx as nx

from synthdp.drawing.graph import draw
from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Knowledge, Pair, refuse_cycle
from synthdp.graph.meek import Pdag, cpdag_of, extend
from synthdp.spec.model import Graph

Provenance = Literal["given", "required", "learned", "supported", "refuted", "undecided"]
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)


@dataclass(frozen=True, order=True)
class GraphEdge:
    """A link: cause -> effect if `directed`, else a - b of unknown direction, and where it comes
    from.
    """

    cause: str
    effect: str
    directed: bool = field(kw_only=True)
    provenance: Provenance = field(kw_only=True)

    @property
    def pair(self) -> Pair:
        """(cause, effect)."""
        return self.cause, self.effect

    @property
    def structural(self) -> bool:
        """Whether the link is part of the graph. An undirected undecided link is not: it marks a
        pair on which the data gave no answer.
        """
        return self.directed or self.provenance != "undecided"


@dataclass(frozen=True)
class CausalGraph:
    """Nodes are columns. Directed links form no cycle; with no undirected ones the graph is a DAG.

    `groups` and `latent` are as in the spec. Raises `SynthdpError` for unknown names, two links on
    one pair, or a cycle.
    """

    nodes: tuple[str, ...]
    edges: tuple[GraphEdge, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    latent: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        names = [
            *(n for e in self.edges for n in e.pair),
            *(n for s in (*self.groups.values(), *self.latent) for n in s),
        ]
        unknown = sorted(set(names) - set(self.nodes))
        if unknown:
            raise SynthdpError(
                f"graph: unknown columns {', '.join(unknown)}; columns: {', '.join(self.nodes)}"
            )
        pairs = [frozenset(e.pair) for e in self.edges]
        if len(set(pairs)) != len(pairs) or any(len(p) != 2 for p in pairs):
            twice = sorted(
                {
                    " and ".join(sorted(p))
                    for p, count in Counter(pairs).items()
                    if count > 1 or len(p) != 2
                }
            )
            raise SynthdpError(
                f"graph: more than one link, or a link to itself: {', '.join(twice)}"
            )
        refuse_cycle(self.directed, self.nodes)

    @classmethod
    def from_spec(cls, graph: Graph, columns: Sequence[str]) -> CausalGraph:
        """The spec's arrows between columns, groups expanded and completed; `required` in mode
        learn, else `given`.
        """
        return cls.from_knowledge(
            Knowledge.from_spec(graph, columns),
            provenance="required" if graph.mode == "learn" else "given",
        )

    @classmethod
    def from_knowledge(
        cls, knowledge: Knowledge, *, provenance: Provenance, arrows: Iterable[GraphEdge] = ()
    ) -> CausalGraph:
        """The arrows that stand without data (inside groups always `given`), and others."""
        rank = {n: i for i, n in enumerate(knowledge.columns)}
        fixed = sorted(knowledge.fixed, key=lambda p: (rank[p[0]], rank[p[1]]))
        known = [
            GraphEdge(
                a,
                b,
                directed=True,
                provenance=provenance if (a, b) in knowledge.required else "given",
            )
            for a, b in fixed
        ]
        return cls(knowledge.columns, (*known, *arrows), dict(knowledge.groups), knowledge.latent)

    @cached_property
    def directed(self) -> tuple[Pair, ...]:
        """Arrows (cause, effect)."""
        return tuple(e.pair for e in self.edges if e.directed)

    @cached_property
    def undirected(self) -> tuple[Pair, ...]:
        """Links of unknown direction that are part of the graph."""
        return tuple(e.pair for e in self.edges if not e.directed and e.structural)

    @cached_property
    def open_pairs(self) -> tuple[Pair, ...]:
        """Pairs on which the data gave no answer; not part of the graph."""
        return tuple(e.pair for e in self.edges if not e.structural)

    @property
    def confounded(self) -> tuple[Pair, ...]:
        """Pairs with an unseen common cause."""
        return tuple(pair for names in self.latent for pair in combinations(names, 2))

    @property
    def is_dag(self) -> bool:
        """Whether every link has a direction."""
        return not self.undirected

    def pdag(self) -> Pdag:
        """A working copy for orientation."""
        return Pdag(
            self.nodes, directed=self.directed, undirected=self.undirected, shielded=self.confounded
        )

    @cached_property
    def dag(self) -> nx.DiGraph:
        """The DAG, or for undirected links a consistent extension of it; do not change it."""
        graph = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.directed if self.is_dag else extend(self.pdag()).directed())
        return graph

    def extension(self) -> CausalGraph:
        """This graph with every link directed, adding no v-structure where possible; provenance is
        kept.
        """
        edges = tuple(
            e if e.directed or not e.structural else replace(e, cause=a, effect=b, directed=True)
            for e in self.edges
            for a, b in [e.pair if self.dag.has_edge(*e.pair) else e.pair[::-1]]
        )
        return replace(self, edges=edges)

    def order(self) -> tuple[str, ...]:
        """Columns with causes before effects; ties in column order."""
        rank = {n: i for i, n in enumerate(self.nodes)}
        return tuple(nx.lexicographical_topological_sort(self.dag, key=rank.__getitem__))

    def parents(self, name: str) -> tuple[str, ...]:
        """Direct causes of a column in the (extended) DAG, in column order: what its decoder
        reads.
        """
        causes = set(self.dag.predecessors(name))
        return tuple(n for n in self.nodes if n in causes)

    def d_separated(self, a: str, b: str, given: Iterable[str] = ()) -> bool:
        """Whether the (extended) DAG, latent causes included, implies that `a` and `b` are
        independent given others.
        """
        return bool(nx.is_d_separator(self._with_latents, {a}, {b}, set(given)))

    def separator(self, a: str, b: str) -> tuple[str, ...] | None:
        """A smallest-possible set of observed columns that d-separates two columns; None if there
        is none.
        """
        observed = set(self.nodes) - {a, b}
        found = nx.find_minimal_d_separator(self._with_latents, {a}, {b}, restricted=observed)
        return None if found is None else tuple(n for n in self.nodes if n in found)

    @cached_property
    def _with_latents(self) -> nx.DiGraph:
        graph = self.dag.copy()
        graph.add_edges_from(
            (("latent", i), name) for i, names in enumerate(self.latent) for name in names
        )
        return graph

    def cpdag(self) -> CausalGraph:
        """The equivalence class of the (extended) DAG: only arrows that data could ever show stay
        directed.
        """
        graph = cpdag_of(Pdag(self.nodes, directed=self.dag.edges, shielded=self.confounded))
        why = {frozenset(e.pair): e.provenance for e in self.edges}
        edges = [
            GraphEdge(a, b, directed=True, provenance=why[frozenset((a, b))])
            for a, b in graph.directed()
        ]
        edges += [
            GraphEdge(a, b, directed=False, provenance=why[frozenset((a, b))])
            for a, b in graph.undirected()
        ]
        return replace(self, edges=tuple(edges))

    def with_provenance(self, new: Mapping[Pair, Provenance]) -> CausalGraph:
        """The same links, some with another provenance."""
        return replace(
            self,
            edges=tuple(replace(e, provenance=new.get(e.pair, e.provenance)) for e in self.edges),
        )

    def to_json(self) -> dict[str, Any]:
        """The bundle's graph.json."""
        return {
            "nodes": list(self.nodes),
            "edges": [
                {
                    "from": e.cause,
                    "to": e.effect,
                    "directed": e.directed,
                    "provenance": e.provenance,
                }
                for e in self.edges
            ],
            "groups": {name: list(columns) for name, columns in self.groups.items()},
            "latent": [list(names) for names in self.latent],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CausalGraph:
        """Read `to_json`'s form. Raises `SynthdpError` if it is not that."""
        try:
            edges = tuple(_edge(e) for e in data["edges"])
            groups = {str(k): tuple(map(str, v)) for k, v in data["groups"].items()}
            latent = tuple(tuple(map(str, names)) for names in data["latent"])
            return cls(tuple(map(str, data["nodes"])), edges, groups, latent)
        except (KeyError, TypeError, AttributeError) as error:
            raise SynthdpError(
                f"not a graph in JSON: {error!r}", hint="expected keys nodes, edges, groups, latent"
            ) from error

    def to_svg(self, *, title: str = "Causal graph") -> str:
        """A self-contained picture; see `synthdp.drawing.graph`."""
        return draw(self, title=title)


def _edge(data: Mapping[str, Any]) -> GraphEdge:
    if data["provenance"] not in PROVENANCES or not isinstance(data["directed"], bool):
        raise SynthdpError(
            f"not an edge of a graph in JSON: {dict(data)}; provenance is one of"
            f" {', '.join(PROVENANCES)}"
        )
    return GraphEdge(
        str(data["from"]), str(data["to"]), directed=data["directed"], provenance=data["provenance"]
    )
