"""Background knowledge of a graph, from the spec: arrows, tiers, groups and latent causes.

Orientation of partially directed graphs: v-structures, Meek's rules, consistent extensions.

References: Meek 1995, "Causal inference and causal explanation with background knowledge" (rules 1
to 4); Dor and Tarsi 1992, "A simple algorithm to construct a consistent extension of a partially
oriented graph".
"""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

from synthdp.errors import SynthdpError
from synthdp.spec.model import Graph

Pair = tuple[str, str]
"""Two columns; of an arrow (cause, effect)."""


@dataclass(frozen=True)
class Knowledge:
    """Background knowledge over `columns`. Nothing in it comes from rows.

    `required` and `forbidden` are (cause, effect). `tiers` run from earliest to latest: no arrow
    goes back, and columns outside all tiers are free. The columns of a group are one node of the
    graph: nothing is claimed about independence inside the group, so its columns form a complete
    order as listed. Columns with a latent common cause are dependent for a reason that no arrow
    between them explains; they get an arrow only if it is required.

    Raises:
        SynthdpError: a required arrow is forbidden, or the arrows form a cycle.
    """

    columns: tuple[str, ...]
    required: frozenset[Pair] = frozenset()
    forbidden: frozenset[Pair] = frozenset()
    tiers: tuple[tuple[str, ...], ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    latent: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for a, b in sorted(self.required):
            if not self.allows(a, b):
                raise SynthdpError(
                    f"graph: {a} -> {b} is required, and forbidden by `forbidden` or by the order"
                    " of the tiers"
                )
        refuse_cycle(self.required | self.inner, self.columns)

    @classmethod
    def from_spec(cls, graph: Graph, columns: Sequence[str]) -> Knowledge:
        """The spec's `graph` section, checked (`spec.checks`). A group's name stands for its
        columns.

        Raises:
            SynthdpError: a name is unknown, or the section is contradictory.
        """
        known = tuple(columns)
        groups = {name: expand(members, {}, known) for name, members in graph.groups.items()}
        required, forbidden = (
            frozenset(
                pair
                for edge in edges
                for pair in product(
                    expand(edge.causes, groups, known), expand(edge.effects, groups, known)
                )
            )
            for edges in (graph.edges, graph.forbidden)
        )
        tiers, latent = (
            tuple(expand(names, groups, known) for names in sets)
            for sets in (graph.tiers, graph.latent)
        )
        return cls(known, required, forbidden, tiers, groups, latent)

    @cached_property
    def inner(self) -> frozenset[Pair]:
        """Arrows of the complete order inside each group."""
        return frozenset(pair for names in self.groups.values() for pair in combinations(names, 2))

    @cached_property
    def fixed(self) -> frozenset[Pair]:
        """Arrows that stand without any test: required ones, and those inside groups."""
        return self.required | self.inner

    @cached_property
    def _tier(self) -> dict[str, int]:
        return {name: i for i, tier in enumerate(self.tiers) for name in tier}

    @cached_property
    def confounded(self) -> frozenset[Pair]:
        """Pairs with an unobserved common cause, in both orders."""
        pairs = {pair for names in self.latent for pair in combinations(names, 2)}
        return frozenset(pairs | {(b, a) for a, b in pairs})

    @cached_property
    def untested(self) -> frozenset[Pair]:
        """Pairs without an arrow by the spec alone, and so without a test.

        A triple that lacks only such a link says nothing about arrows. If it were taken as
        unshielded, Meek's first rule would assume a non-collider that no test examined.
        """
        fixed = self.fixed | {(b, a) for a, b in self.fixed}
        pairs = set(combinations(self.columns, 2)) - fixed
        return frozenset(pair for pair in pairs if self.decided(*pair))

    def allows(self, cause: str, effect: str) -> bool:
        """Whether an arrow may point from `cause` to `effect`."""
        if (cause, effect) in self.forbidden or (effect, cause) in self.fixed:
            return False
        first, second = self._tier.get(cause), self._tier.get(effect)
        return first is None or second is None or first <= second

    def decided(self, a: str, b: str) -> bool:
        """Whether the spec alone decides if `a` and `b` are joined. Such pairs are never tested."""
        if not self.fixed.isdisjoint({(a, b), (b, a)}) or (a, b) in self.confounded:
            return True
        return not (self.allows(a, b) or self.allows(b, a))

    @cached_property
    def undecided_pairs(self) -> tuple[Pair, ...]:
        """Pairs that data has to decide, in column order."""
        return tuple((a, b) for a, b in combinations(self.columns, 2) if not self.decided(a, b))


def expand(
    names: Iterable[str], groups: Mapping[str, tuple[str, ...]], columns: Sequence[str]
) -> tuple[str, ...]:
    """The columns that `names` of columns and groups stand for, without repetition.

    >>> expand(["body", "age"], {"body": ("height", "weight")}, ["age", "height", "weight"])
    ('height', 'weight', 'age')

    Raises:
        SynthdpError: a name is neither a column nor a group.
    """
    members: dict[str, None] = {}
    for name in names:
        if name not in groups and name not in columns:
            raise SynthdpError(
                f"graph: {name!r} is neither a column nor a group; columns: {', '.join(columns)};"
                f" groups: {', '.join(groups) or 'none'}"
            )
        members.update(dict.fromkeys(groups.get(name, (name,))))
    return tuple(members)


def refuse_cycle(pairs: Iterable[Pair], columns: Sequence[str]) -> None:
    """Raise `SynthdpError` that names the cycle, if the arrows form one."""
    rank = {name: i for i, name in enumerate(columns)}
    cycle = one_cycle(sorted(pairs, key=lambda p: (rank[p[0]], rank[p[1]])))
    if cycle:
        raise SynthdpError(
            f"graph: the arrows form a cycle: {' -> '.join([*cycle, cycle[0]])}",
            hint="remove or turn one of these arrows",
        )


def one_cycle(pairs: Iterable[Pair]) -> list[str]:
    """The nodes of a cycle in order, from the one that `pairs` names first; empty without a cycle.

    Takes time in proportion to the number of arrows.

    >>> one_cycle([("a", "b"), ("b", "c"), ("c", "b")])
    ['b', 'c']
    """
    causes: dict[str, list[str]] = {}
    for cause, effect in pairs:
        causes.setdefault(cause, [])
        causes.setdefault(effect, []).append(cause)
    try:
        graphlib.TopologicalSorter(causes).prepare()
    except graphlib.CycleError as error:
        cycle, named = list(error.args[1][:-1]), {name: i for i, name in enumerate(causes)}
        first = min(range(len(cycle)), key=lambda i: named[cycle[i]])
        return [*cycle[first:], *cycle[:first]]
    return []


Collider = tuple[str, str, str]
"""(a, b, c): arrows from a and c meet in b."""


class Pdag:
    """Working graph of a search: at most one link per pair, directed or undirected.

    Iteration follows the order of the nodes. `shielded` pairs count as adjacent without a link: a
    triple that they close says nothing about arrows, as if an arrow closed it. These are columns
    with an unobserved common cause, which nothing separates, and pairs that no test examined.
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
        self._linked: dict[str, set[str]] = {n: set() for n in nodes}
        for a, b in directed:
            self.parents[b].add(a)
            self.children[a].add(b)
            self._link(a, b)
        for a, b in undirected:
            if b not in self._linked[a]:
                self.neighbours[a].add(b)
                self.neighbours[b].add(a)
                self._link(a, b)

    def _link(self, a: str, b: str) -> None:
        self._linked[a].add(b)
        self._linked[b].add(a)

    def adjacent(self, a: str, b: str) -> bool:
        """Whether any link joins the two, or the pair is shielded."""
        return b in self._linked[a] or frozenset((a, b)) in self.shielded

    def around(self, a: str) -> set[str]:
        """Everything linked to `a`; do not change it."""
        return self._linked[a]

    def directed(self) -> list[Pair]:
        return [(a, b) for a in self.nodes for b in self.ordered(self.children[a])]

    def undirected(self) -> list[Pair]:
        return [
            (a, b)
            for a in self.nodes
            for b in self.ordered(self.neighbours[a])
            if self._rank[a] < self._rank[b]
        ]

    def ordered(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=self._rank.__getitem__)

    def reaches(self, a: str, b: str) -> bool:
        """Whether a directed path leads from `a` to `b`."""
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
        """Turn an undirected link into a -> b, unless that closes a cycle; whether it is a -> b."""
        if b in self.neighbours[a] and not self.reaches(b, a):
            self.neighbours[a].discard(b)
            self.neighbours[b].discard(a)
            self.children[a].add(b)
            self.parents[b].add(a)
        return b in self.children[a]

    def remove(self, node: str) -> None:
        for links in (self.parents, self.children, self.neighbours, self._linked):
            for names in links.values():
                names.discard(node)
        self.nodes = tuple(n for n in self.nodes if n != node)

    def copy(self) -> Pdag:
        return Pdag(
            self.nodes,
            directed=self.directed(),
            undirected=self.undirected(),
            shielded=self.shielded,
        )


def unshielded(graph: Pdag) -> Iterator[Collider]:
    """Triples a - b - c whose ends are not adjacent; a comes before c in node order."""
    for b in graph.nodes:
        for a, c in combinations(graph.ordered(graph.around(b)), 2):
            if not graph.adjacent(a, c):
                yield a, b, c


def colliders(graph: Pdag) -> list[Collider]:
    """V-structures: unshielded triples whose arrows meet."""
    return [(a, b, c) for a, b, c in unshielded(graph) if graph.parents[b] >= {a, c}]


def orient_known(graph: Pdag, knowledge: Knowledge) -> None:
    """Orient links of which only one direction is allowed."""
    for a, b in graph.undirected():
        if not knowledge.allows(b, a):
            graph.orient(a, b)
        elif not knowledge.allows(a, b):
            graph.orient(b, a)


def orient_colliders(graph: Pdag, triples: Iterable[Collider], knowledge: Knowledge) -> None:
    """Orient v-structures, the surest first; those that contradict what stands are left out."""
    for a, b, c in triples:
        if all(
            b in graph.children[end]
            or (
                b in graph.neighbours[end]
                and knowledge.allows(end, b)
                and not graph.reaches(b, end)
            )
            for end in (a, c)
        ):
            graph.orient(a, b)
            graph.orient(c, b)


def oriented(
    knowledge: Knowledge,
    links: Iterable[Pair],
    triples: Callable[[Pdag], Iterable[Collider]],
    *,
    shielded: Iterable[Pair],
) -> Pdag:
    """`links` with the arrows that follow from knowledge, from `triples` (a graph's v-structures,
    the most certain first), and from Meek's rules.
    """
    graph = Pdag(knowledge.columns, directed=knowledge.fixed, undirected=links, shielded=shielded)
    orient_known(graph, knowledge)
    orient_colliders(graph, triples(graph), knowledge)
    meek(graph, knowledge)
    return graph


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
    # R1: the other direction would make a new v-structure c -> a <- b.
    if not all(graph.adjacent(c, b) for c in graph.parents[a]):
        return True
    # R2: the other direction would close a cycle.
    if graph.children[a] & graph.parents[b]:
        return True
    # R3: a - c -> b and a - d -> b with c and d not linked.
    between = graph.neighbours[a] & graph.parents[b]
    if not all(graph.adjacent(c, d) for c, d in combinations(between, 2)):
        return True
    # R4: a - d -> c -> b with d and b not linked, a and c linked.
    for c in graph.parents[b]:
        if graph.adjacent(a, c):
            starts = graph.parents[c] & graph.neighbours[a]
            if not all(graph.adjacent(d, b) for d in starts):
                return True
    return False


def cpdag_of(dag: Pdag) -> Pdag:
    """The CPDAG of a DAG: its skeleton and v-structures, closed under Meek's rules.

    Links that are undirected already stay so, unless a rule turns them.

    >>> chain = cpdag_of(Pdag("abc", directed=[("a", "b"), ("b", "c")]))
    >>> chain.directed(), chain.undirected()
    ([], [('a', 'b'), ('b', 'c')])
    >>> cpdag_of(Pdag("abc", directed=[("a", "b"), ("c", "b")])).directed()
    [('a', 'b'), ('c', 'b')]
    """
    links = [*dag.directed(), *dag.undirected()]
    graph = Pdag(dag.nodes, undirected=links, shielded=dag.shielded)
    for a, b, c in colliders(dag):
        graph.orient(a, b)
        graph.orient(c, b)
    meek(graph)
    return graph


def extend(graph: Pdag) -> Pdag:
    """A DAG with the same links and arrows and no new v-structure, if there is one (Dor and Tarsi).

    Otherwise the remaining links are oriented by the order of the nodes, which keeps the graph
    acyclic but may add v-structures. Background knowledge allows both directions of every
    undirected link, so any extension agrees with it.

    >>> extend(Pdag("abc", directed=[("a", "b")], undirected=[("b", "c")])).directed()
    [('a', 'b'), ('b', 'c')]
    """
    done, rest = graph.copy(), graph.copy()

    def clean(node: str) -> bool:
        """Whether pointing every link at a sink makes no new v-structure."""
        near, around = rest.neighbours[node], rest.around(node)
        return all(rest.adjacent(x, y) for x in near for y in around if x != y)

    while rest.nodes:
        sinks = [n for n in reversed(rest.nodes) if not rest.children[n]]
        node = next((n for n in sinks if clean(n)), sinks[0])
        for other in rest.ordered(rest.neighbours[node]):
            done.orient(other, node)
        rest.remove(node)
    return done
