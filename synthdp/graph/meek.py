"""Orientation: partially directed graphs, v-structures, Meek's rules, and consistent extensions.

References: Meek 1995, "Causal inference and causal explanation with background knowledge" (rules 1
to 4); Dor and Tarsi 1992, "A simple algorithm to construct a consistent extension of a partially
oriented graph".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from synthdp.graph.knowledge import Knowledge, Pair

Collider = tuple[str, str, str]
"""(a, b, c): arrows from a and c meet in b."""


class Pdag:
    """Working graph of the search: at most one link per pair, directed or not. Iterates in node
    order.

    `shielded` pairs count as adjacent without a link: a triple that they close says nothing about
    arrows, as if an arrow closed it. Such are columns with an unseen common cause, which nothing
    separates, and pairs that nobody tested.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        directed: Iterable[Pair] = (),
        undirected: Iterable[Pair] = (),
        shielded: Iterable[Iterable[str]] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.shielded = frozenset(map(frozenset, shielded))
        self._rank = {n: i for i, n in enumerate(self.nodes)}
        self.parents: dict[str, set[str]] = {n: set() for n in nodes}
        self.children: dict[str, set[str]] = {n: set() for n in nodes}
        self.neighbours: dict[str, set[str]] = {n: set() for n in nodes}
        for a, b in directed:
            self.parents[b].add(a)
            self.children[a].add(b)
        for a, b in undirected:
            if b not in self.around(a):
                self.neighbours[a].add(b)
                self.neighbours[b].add(a)

    def adjacent(self, a: str, b: str) -> bool:
        """Whether any link joins the two, or they are shielded."""
        return (
            b in self.parents[a]
            or b in self.children[a]
            or b in self.neighbours[a]
            or frozenset((a, b)) in self.shielded
        )

    def around(self, a: str) -> set[str]:
        """Everything linked to `a`."""
        return self.parents[a] | self.children[a] | self.neighbours[a]

    def directed(self) -> list[Pair]:
        """Arrows, in node order."""
        return [(a, b) for a in self.nodes for b in self.ordered(self.children[a])]

    def undirected(self) -> list[Pair]:
        """Undirected links, in node order."""
        return [
            (a, b)
            for a in self.nodes
            for b in self.ordered(self.neighbours[a])
            if self._rank[a] < self._rank[b]
        ]

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Names in node order."""
        return sorted(names, key=self._rank.__getitem__)

    def reaches(self, a: str, b: str) -> bool:
        """Whether arrows lead from `a` to `b`."""
        seen, stack = {a}, [a]
        while stack:
            node = stack.pop()
            if node == b:
                return True
            fresh = self.children[node] - seen
            seen |= fresh
            stack.extend(fresh)
        return False

    def orient(self, a: str, b: str) -> bool:
        """Turn the undirected link into a -> b, unless that closes a cycle; whether it is a -> b
        now.
        """
        if b in self.neighbours[a] and not self.reaches(b, a):
            self.neighbours[a].discard(b)
            self.neighbours[b].discard(a)
            self.children[a].add(b)
            self.parents[b].add(a)
        return b in self.children[a]

    def remove(self, node: str) -> None:
        """Take a node and its links out."""
        for links in (*self.parents.values(), *self.children.values(), *self.neighbours.values()):
            links.discard(node)
        self.nodes = tuple(n for n in self.nodes if n != node)

    def copy(self) -> Pdag:
        """An independent copy."""
        return Pdag(
            self.nodes,
            directed=self.directed(),
            undirected=self.undirected(),
            shielded=self.shielded,
        )


def unshielded(graph: Pdag) -> Iterator[Collider]:
    """Triples a - b - c whose ends are not linked."""
    for b in graph.nodes:
        for a, c in combinations(graph.ordered(graph.around(b)), 2):
            if not graph.adjacent(a, c):
                yield a, b, c


def colliders(graph: Pdag) -> list[Collider]:
    """V-structures: unshielded triples whose arrows meet."""
    return [
        (a, b, c)
        for a, b, c in unshielded(graph)
        if a in graph.parents[b] and c in graph.parents[b]
    ]


def orient_known(graph: Pdag, knowledge: Knowledge) -> None:
    """Orient links of which only one direction is allowed."""
    for a, b in graph.undirected():
        if not knowledge.allows(b, a):
            graph.orient(a, b)
        elif not knowledge.allows(a, b):
            graph.orient(b, a)


def orient_colliders(graph: Pdag, found: Iterable[Collider], knowledge: Knowledge) -> None:
    """Orient v-structures, surest first: one that contradicts knowledge or an earlier arrow is left
    out whole.
    """
    for a, b, c in found:
        free = all(
            b in graph.children[x]
            or (b in graph.neighbours[x] and knowledge.allows(x, b) and not graph.reaches(b, x))
            for x in (a, c)
        )
        if free:
            graph.orient(a, b)
            graph.orient(c, b)


def meek(graph: Pdag, knowledge: Knowledge | None = None) -> None:
    """Apply Meek's rules until nothing changes. Rule 4 matters only with background knowledge."""
    changed = True
    while changed:
        changed = False
        for a, b in graph.undirected():
            for x, y in ((a, b), (b, a)):
                allowed = knowledge is None or knowledge.allows(x, y)
                if allowed and y in graph.neighbours[x] and _compelled(graph, x, y):
                    changed |= graph.orient(x, y)


def _compelled(graph: Pdag, a: str, b: str) -> bool:
    """Whether one of Meek's rules turns a - b into a -> b."""
    if any(
        not graph.adjacent(c, b) for c in graph.parents[a]
    ):  # R1: else a new v-structure c -> a <- b
        return True
    if graph.children[a] & graph.parents[b]:  # R2: else a cycle
        return True
    if any(
        not graph.adjacent(c, d) for c, d in combinations(graph.neighbours[a] & graph.parents[b], 2)
    ):  # R3
        return True
    # R4: a - d -> c -> b with d and b not linked, a and c linked.
    return any(
        d in graph.neighbours[a] and not graph.adjacent(d, b) and graph.adjacent(a, c)
        for c in graph.parents[b]
        for d in graph.parents[c]
    )


def cpdag_of(dag: Pdag) -> Pdag:
    """The CPDAG of a DAG: its skeleton and v-structures, closed under Meek's rules."""
    graph = Pdag(dag.nodes, undirected=dag.directed(), shielded=dag.shielded)
    for a, b, c in colliders(dag):
        graph.orient(a, b)
        graph.orient(c, b)
    meek(graph)
    return graph


def extend(graph: Pdag) -> Pdag:
    """A DAG with the same links and arrows and no new v-structure (Dor and Tarsi), if there is one.

    Otherwise the remaining links are oriented by the graph's own order, which keeps it acyclic but
    may add v-structures. Every undirected link may point either way by background knowledge, so any
    extension keeps to it.
    """
    done, rest = graph.copy(), graph.copy()
    while rest.nodes:
        sinks = [n for n in reversed(rest.nodes) if not rest.children[n]]
        node = next((n for n in sinks if _clean_sink(rest, n)), sinks[0])
        for other in rest.ordered(rest.neighbours[node]):
            done.orient(other, node)
        rest.remove(node)
    return done


def _clean_sink(graph: Pdag, node: str) -> bool:
    """Whether pointing every link at `node` makes no new v-structure."""
    return all(
        graph.adjacent(x, y) for x in graph.neighbours[node] for y in graph.around(node) if x != y
    )
