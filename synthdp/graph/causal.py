"""A causal graph as a value: its links, the provenance of each, and what they imply.

And the difference of two graphs: links added, removed and turned, and the distances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, product
from typing import Any, Literal, get_args

import networkx as nx

from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Knowledge, Pair, Pdag, cpdag_of, expand, extend, refuse_cycle
from synthdp.graph.pag import PagLink, links_of_json, unsettled
from synthdp.graph.picture import draw
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.load.wording import nearest
from synthdp.spec.model import Column, Effect, Graph

Provenance = Literal[
    "given", "required", "learned", "supported", "refuted", "undecided", "predictive"
]
"""Where a link comes from.

`given`: the spec states it, or it lies inside a group. `required`: the spec demands it of a learned
graph. `learned`: a search found it. `supported`, `refuted` and `undecided`: what a validation says
of a given arrow; an `undecided` link that is undirected is a pair on which a search has no answer.
`predictive`: two columns depend on each other; the arrow is an order, and claims no cause. In a
learned graph these are undecided pairs that noisy tables show to be dependent.
"""
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)
NO_CAUSES = "nothing can be intervened on: the arrows of this graph predict, and are no causes"


@dataclass(frozen=True, order=True)
class GraphEdge:
    """A link and its provenance: cause -> effect if `directed`, else a - b of unknown direction.

    `probability` is that of the link, whatever its direction; None where a search does not tell.
    """

    cause: str
    effect: str
    directed: bool = field(kw_only=True)
    provenance: Provenance = field(kw_only=True)
    probability: float | None = field(default=None, kw_only=True)

    @property
    def pair(self) -> Pair:
        return self.cause, self.effect

    @property
    def structural(self) -> bool:
        """Whether the link is part of the graph: an undirected undecided one is not."""
        return self.directed or self.provenance != "undecided"

    def to_json(self) -> dict[str, Any]:
        """Its form in graph.json.

        >>> edge = GraphEdge("dose", "pain", directed=True, provenance="given")
        >>> edge == GraphEdge.from_json(edge.to_json())
        True
        """
        told = {} if self.probability is None else {"probability": self.probability}
        return {
            "from": self.cause,
            "to": self.effect,
            "directed": self.directed,
            "provenance": self.provenance,
        } | told

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphEdge:
        """Read the form of `to_json`.

        Raises:
            SynthdpError: a value is not allowed.
            KeyError: a key is missing.
        """
        if data["provenance"] not in PROVENANCES or not isinstance(data["directed"], bool):
            raise SynthdpError(
                f"not an edge of a graph in JSON: {dict(data)}; provenance is one of"
                f" {', '.join(PROVENANCES)}"
            )
        told = data.get("probability")
        if told is not None and not (isinstance(told, int | float) and 0 <= told <= 1):
            raise SynthdpError(f"not a probability of an edge of a graph in JSON: {told!r}")
        return cls(
            str(data["from"]),
            str(data["to"]),
            directed=data["directed"],
            provenance=data["provenance"],
            probability=told,
        )


@dataclass(frozen=True)
class ActsTogether:
    """Columns that act on a target together, in so many `ways`, beyond what each says alone: the
    product of sides of their levels, or that two are the same, goes with the target.
    """

    columns: tuple[str, ...]
    target: str
    ways: int = field(default=1, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Its form in graph.json.

        >>> acting = ActsTogether(("dose", "age"), "pain")
        >>> acting == ActsTogether.from_json(acting.to_json())
        True
        """
        return {"columns": list(self.columns), "target": self.target, "ways": self.ways}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ActsTogether:
        """Read the form of `to_json`; SynthdpError or KeyError if it is none."""
        columns, ways = data["columns"], data["ways"]
        if not isinstance(columns, list) or type(ways) is not int or not 0 < ways <= 100:
            raise SynthdpError(f"not what acts together in a graph in JSON: {str(data)[:200]}")
        return cls(tuple(map(str, columns)), str(data["target"]), ways=ways)


@dataclass(frozen=True)
class CausalGraph:
    """Nodes are columns. Directed links form no cycle; without undirected links the graph is a DAG.

    `groups` and `latent` are as in the spec. `pag` is what holds of the links though causes may be
    unseen; None where nobody asked. `together` are columns with arrows to a target that act on it
    together.

    Raises:
        SynthdpError: a name is unknown, two links join one pair, or the arrows form a cycle.

    >>> arrows = [("rain", "wet"), ("sprinkler", "wet"), ("wet", "slippery")]
    >>> graph = CausalGraph(
    ...     ("rain", "sprinkler", "wet", "slippery"),
    ...     tuple(GraphEdge(*a, directed=True, provenance="given") for a in arrows),
    ... )
    >>> graph.parents("wet"), graph.d_separated("rain", "slippery", given=["wet"])
    (('rain', 'sprinkler'), True)
    >>> graph.d_separated("rain", "sprinkler", given=["slippery"])
    False
    """

    nodes: tuple[str, ...]
    edges: tuple[GraphEdge, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    latent: tuple[tuple[str, ...], ...] = ()
    pag: tuple[PagLink, ...] | None = None
    together: tuple[ActsTogether, ...] = ()

    def __post_init__(self) -> None:
        links = (e.pair for e in self.edges)
        names = chain.from_iterable([*links, *self.groups.values(), *self.latent])
        unknown = sorted(set(names) - set(self.nodes))
        if unknown:
            raise SynthdpError(
                f"graph: unknown columns {', '.join(unknown)}; columns: {', '.join(self.nodes)}"
            )
        counts = Counter(frozenset(e.pair) for e in self.edges)
        wrong = [pair for pair, count in counts.items() if count > 1 or len(pair) != 2]
        if wrong:
            named = sorted(" and ".join(sorted(pair)) for pair in wrong)
            message = f"graph: more than one link, or a link to itself: {', '.join(named)}"
            raise SynthdpError(message)
        refuse_cycle(self.directed, self.nodes)
        for one in self.together:
            arrows = {(name, one.target) for name in one.columns}
            if not 1 < len(arrows) == len(one.columns) or not arrows <= set(self.directed):
                raise SynthdpError(
                    f"graph: no arrows lead from {', '.join(one.columns)} to {one.target}, on which"
                    " they are said to act together"
                )

    @classmethod
    def from_spec(cls, graph: Graph, columns: Sequence[str]) -> CausalGraph:
        """The spec's arrows, with groups completed: `required` in mode learn, else `given`; and its
        links of unknown direction.
        """
        knowledge = Knowledge.from_spec(graph, columns)
        links = (
            GraphEdge(a, b, directed=False, provenance="given")
            for pair in graph.undirected
            for a, b in product(*(expand([n], knowledge.groups, knowledge.columns) for n in pair))
        )
        provenance: Provenance = "required" if graph.mode == "learn" else "given"
        return cls.from_knowledge(knowledge, provenance=provenance, arrows=links)

    @classmethod
    def from_knowledge(
        cls, knowledge: Knowledge, *, provenance: Provenance, arrows: Iterable[GraphEdge] = ()
    ) -> CausalGraph:
        """The arrows that stand without data, and `arrows`.

        Arrows inside groups are always `given`; the other fixed arrows get `provenance`.
        """
        rank = {n: i for i, n in enumerate(knowledge.columns)}
        known = []
        for a, b in sorted(knowledge.fixed, key=lambda p: (rank[p[0]], rank[p[1]])):
            source = provenance if (a, b) in knowledge.required else "given"
            known.append(GraphEdge(a, b, directed=True, provenance=source))
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
    def units(self) -> int:
        """Most units that what acts together on one target takes, one for each column and way."""
        counts = Counter[str]()
        for one in self.together:
            counts[one.target] += len(one.columns) * one.ways
        return max(counts.values(), default=0)

    @property
    def by_ranges(self) -> bool:
        """Whether the pairs without an answer are too many to be listed one by one."""
        return len(self.open_pairs) > 25_000

    @property
    def confounded(self) -> tuple[Pair, ...]:
        """Pairs with an unobserved common cause."""
        return tuple(pair for names in self.latent for pair in combinations(names, 2))

    @property
    def is_dag(self) -> bool:
        return not self.undirected

    @property
    def predictive(self) -> bool:
        """Whether all its arrows predict, and claim no cause."""
        arrows = [e for e in self.edges if e.structural]
        return bool(arrows) and all(e.provenance == "predictive" for e in arrows)

    def unanswered(self, columns: Iterable[str]) -> tuple[GraphEdge, ...]:
        """Links without an answer on which an intervention on `columns` rests.

        An intervention cuts the arrows to its columns, and moves these and all that they lead to.
        A link with an end there decides what is moved. If it is predictive or undecided, nothing
        says that it is a cause; if it has no direction, nothing says of what.
        """
        moved = {n for name in columns for n in (name, *nx.descendants(self.dag, name))}
        return tuple(
            e
            for e in self.edges
            if (e.provenance == "predictive" or not e.directed) and not moved.isdisjoint(e.pair)
        )

    def pdag(self) -> Pdag:
        return Pdag(
            self.nodes, directed=self.directed, undirected=self.undirected, shielded=self.confounded
        )

    @cached_property
    def dag(self) -> nx.DiGraph:
        """The DAG, or a consistent extension if some links are undirected. Do not change it.

        An extension chooses directions by column order: a model may follow it, and nobody should
        read it. Predictive arrows beside undirected links follow its order, and do not shape it.

        Raises:
            SynthdpError: they do not follow it, so that there would be a cycle.
        """
        graph = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(self.directed)
        if not self.is_dag:
            causal = tuple(e for e in self.edges if e.provenance != "predictive")
            graph.add_edges_from(extend(replace(self, edges=causal).pdag()).directed())
            refuse_cycle(graph.edges, self.nodes)
        return graph

    def order(self) -> tuple[str, ...]:
        """Columns with causes before effects; ties in column order."""
        rank = {n: i for i, n in enumerate(self.nodes)}
        return tuple(nx.lexicographical_topological_sort(self.dag, key=rank.__getitem__))

    def around(self, name: str, *, depth: int = 1) -> CausalGraph:
        """The links that touch a column, or one that is fewer than `depth` links away from it.

        Raises:
            SynthdpError: there is no such column.
        """
        if name not in self.nodes:
            raise SynthdpError(
                f"graph: no column {name!r} among {len(self.nodes)}",
                hint=nearest(name, self.nodes) or f"for example {', '.join(self.nodes[:10])}",
            )
        links = nx.Graph(e.pair for e in self.edges if e.structural)
        links.add_node(name)
        far = nx.single_source_shortest_path_length(links, name, cutoff=depth)
        inner = {n for n, steps in far.items() if steps < depth}
        edges = tuple(e for e in self.edges if e.structural and not inner.isdisjoint(e.pair))
        kept = {name, *(n for e in edges for n in e.pair)}
        latent = (tuple(n for n in names if n in kept) for names in self.latent)
        return CausalGraph(
            tuple(n for n in self.nodes if n in kept),
            edges,
            latent=tuple(names for names in latent if len(names) > 1),
        )

    def parents(self, name: str) -> tuple[str, ...]:
        """Direct causes of a column in the (extended) DAG, in column order."""
        causes = set(self.dag.predecessors(name))
        return tuple(n for n in self.nodes if n in causes)

    def d_separated(self, a: str, b: str, given: Iterable[str] = ()) -> bool:
        """Whether the (extended) DAG with its latent causes d-separates `a` and `b` by `given`."""
        return bool(nx.is_d_separator(self._with_latents, {a}, {b}, set(given)))

    def separator(self, a: str, b: str) -> tuple[str, ...] | None:
        """A minimal set of observed columns that d-separates two columns; None if there is none."""
        observed = set(self.nodes) - {a, b}
        names = nx.find_minimal_d_separator(self._with_latents, {a}, {b}, restricted=observed)
        return None if names is None else tuple(n for n in self.nodes if n in names)

    @cached_property
    def _with_latents(self) -> nx.DiGraph:
        graph = self.dag.copy()
        graph.add_edges_from(
            (("latent", i), name) for i, names in enumerate(self.latent) for name in names
        )
        return graph

    def cpdag(self) -> CausalGraph:
        """The equivalence class of the (extended) DAG: only arrows that data could show stay."""
        graph = cpdag_of(Pdag(self.nodes, directed=self.dag.edges, shielded=self.confounded))
        provenance = {frozenset(e.pair): e.provenance for e in self.edges}
        links = [(pair, True) for pair in graph.directed()]
        links += [(pair, False) for pair in graph.undirected()]
        edges = (
            GraphEdge(*pair, directed=directed, provenance=provenance[frozenset(pair)])
            for pair, directed in links
        )
        return replace(self, edges=tuple(edges), together=())

    def to_json(self) -> dict[str, Any]:
        """The content of the bundle's graph.json; many open pairs are ranges (`by_ranges`)."""
        return {
            "nodes": list(self.nodes),
            "edges": [e.to_json() for e in self.edges if e.structural or not self.by_ranges],
            **({"no_answer": as_ranges(self.open_pairs, self.nodes)} if self.by_ranges else {}),
            "groups": {name: list(columns) for name, columns in self.groups.items()},
            "latent": list(map(list, self.latent)),
            **({} if self.pag is None else {"pag": [link.to_json() for link in self.pag]}),
            **({"together": [t.to_json() for t in self.together]} if self.together else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CausalGraph:
        """Read the form of `to_json`.

        Raises:
            SynthdpError: `data` is not of that form.
        """
        try:
            nodes = tuple(map(str, data["nodes"]))
            edges = tuple(map(GraphEdge.from_json, data["edges"]))
            unclear = (
                GraphEdge(*pair, directed=False, provenance="undecided")
                for pair in from_ranges(data.get("no_answer", {}), nodes)
            )
            groups = {str(k): tuple(map(str, v)) for k, v in data["groups"].items()}
            latent = tuple(tuple(map(str, names)) for names in data["latent"])
            pag = links_of_json(data.get("pag"), nodes)
            together = tuple(map(ActsTogether.from_json, data.get("together", ())))
            return cls(nodes, (*edges, *unclear), groups, latent, pag, together)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            missing = f"no {error.args[0]!r}" if isinstance(error, KeyError) else "not of that form"
            raise SynthdpError(
                f"not a graph in JSON: {missing}", hint="expected keys nodes, edges, groups, latent"
            ) from error

    def to_svg(self, *, title: str | None = None) -> str:
        return draw(
            self, title=title or ("Predictive graph" if self.predictive else "Causal graph")
        )


def as_ranges(pairs: Iterable[Pair], nodes: Sequence[str]) -> dict[str, str]:
    """`pairs` by their earlier column: positions of the later ones, first and last of each range.

    Many pairs without an answer take few bytes so.

    >>> as_ranges([("a", "b"), ("a", "c"), ("e", "a"), ("b", "d")], "abcde")
    {'a': '1-2 4-4', 'b': '3-3'}
    """
    place = {name: i for i, name in enumerate(nodes)}
    ranges: dict[int, list[list[int]]] = {}
    for first, second in sorted(sorted((place[a], place[b])) for a, b in pairs):
        found = ranges.setdefault(first, [])
        if found and found[-1][1] == second - 1:
            found[-1][1] = second
        else:
            found.append([second, second])
    return {nodes[i]: " ".join(f"{a}-{b}" for a, b in found) for i, found in ranges.items()}


def from_ranges(stated: Mapping[str, Any], nodes: Sequence[str]) -> Iterator[Pair]:
    """The pairs that `as_ranges` wrote, in column order.

    >>> list(from_ranges({"a": "1-2 4-4"}, "abcde"))
    [('a', 'b'), ('a', 'c'), ('a', 'e')]

    Raises:
        SynthdpError: these are no ranges of later columns, or too many pairs.
    """
    place, left = {name: i for i, name in enumerate(nodes)}, 500_000
    for name, text in stated.items():
        last = place.get(name, len(nodes))
        for part in str(text).split():
            first, _, end = part.partition("-")
            if not (first.isdecimal() and end.isdecimal()):
                raise SynthdpError(f"graph: {part[:20]!r} is no range of columns")
            start, stop = int(first[:9]), int(end[:9])
            left -= stop - start + 1
            if not last < start <= stop < len(nodes) or left < 0:
                raise SynthdpError(f"graph: {part[:20]!r} is no range of later columns")
            yield from ((name, nodes[position]) for position in range(start, stop + 1))
            last = stop


def adjustment(
    effect: Effect, columns: Mapping[str, Column], graph: CausalGraph
) -> tuple[tuple[str, ...], str]:
    """The adjustment set of `effect`, and a remark that qualifies it.

    It is the spec's choice, or else the treatment's parents in the graph. They block every
    back-door path (J. Pearl, "Causality", 2nd ed. 2009, theorem 3.2.2), where no common cause is
    latent. Columns of the treatment's group are not its parents: the group is one node. Where the
    outcome is a parent of the treatment, there is no effect to estimate and the set is empty. Where
    arrows of the treatment only predict, parents may be no causes: the remark says so.
    """
    if effect.adjust is not None:
        return tuple(effect.adjust), "adjusted as the spec says"
    parsed, _ = parse(effect.treated, columns)
    treatment = set(parsed.columns if parsed else ())
    treatment |= {n for group in graph.groups.values() if treatment & set(group) for n in group}
    causes = {p for t in treatment if t in graph.nodes for p in graph.parents(t)} - treatment
    if any(e.provenance == "predictive" and treatment & set(e.pair) for e in graph.edges):
        predictors = tuple(n for n in graph.nodes if n in causes - {effect.outcome})
        return predictors, "adjusted for what predicts the treatment: some arrows are no causes"
    if effect.outcome in causes:
        return (), "the graph holds the outcome for a cause of the treatment: this is no effect"
    adjusted = tuple(n for n in graph.nodes if n in causes)
    if any(unsettled(graph.pag or (), name) for name in treatment):
        return adjusted, "unseen causes may confound the treatment: the search does not exclude it"
    if any(treatment & set(names) and effect.outcome in names for names in graph.latent):
        return adjusted, "the graph has an unseen common cause of treatment and outcome"
    return adjusted, ""


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
