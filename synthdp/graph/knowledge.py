"""Background knowledge of a graph, from the spec: arrows, tiers, groups and latent causes."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

from synthdp.errors import SynthdpError
from synthdp.spec.model import Edges, Graph

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
        """The spec's `graph` section. A group's name stands for its columns.

        Raises:
            SynthdpError: a name is unknown, an arrow lies inside a group, or the section is
                contradictory.
        """
        known = tuple(columns)
        groups = check_groups(graph.groups, known)
        required, forbidden = (
            arrows(edges, groups, known) for edges in (graph.edges, graph.forbidden)
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


def check_groups(
    groups: Mapping[str, Sequence[str]], columns: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Groups as tuples.

    Raises:
        SynthdpError: a column is unknown or in two groups, or a group's name is also a column.
    """
    owner: dict[str, str] = {}
    for group, names in groups.items():
        if group in columns:
            raise SynthdpError(
                f"graph.groups: {group!r} is also a column", hint="give the group another name"
            )
        for name in names:
            if name not in columns:
                raise SynthdpError(
                    f"graph.groups.{group}: {name!r} is not a column; columns: {', '.join(columns)}"
                )
            if owner.setdefault(name, group) != group:
                raise SynthdpError(
                    f"graph.groups: column {name!r} is in {owner[name]!r} and in {group!r}; a"
                    " column has one group at most"
                )
    return {group: tuple(names) for group, names in groups.items()}


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


def arrows(
    edges: Edges, groups: Mapping[str, tuple[str, ...]], columns: Sequence[str]
) -> frozenset[Pair]:
    """Arrows between columns, groups expanded.

    Raises:
        SynthdpError: an arrow lies inside a group, or points at its own column.
    """
    pairs: set[Pair] = set()
    for edge in edges:
        causes = expand(edge.causes, groups, columns)
        pairs.update(product(causes, expand(edge.effects, groups, columns)))
    group_of = {name: group for group, names in groups.items() for name in names}
    for a, b in sorted(pairs):
        if a == b:
            raise SynthdpError(f"graph: {a} -> {b} points at itself")
        if group_of.get(a, a) == group_of.get(b, b):
            raise SynthdpError(
                f"graph: {a} -> {b} lies inside group {group_of[a]!r}, which claims no structure"
                " inside itself",
                hint="remove the arrow",
            )
    return frozenset(pairs)


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
