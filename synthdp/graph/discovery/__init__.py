"""Causal discovery from released values: what an algorithm is, and what searches share.

They share the PC-stable skeleton (Colombo and Maathuis 2014): pairs that no conditioning set
separates. Within one order all adjacencies are frozen, so the tests of an order form one batch. The
caller's test sees the whole batch and may measure all tables it needs at once. Every test of a pair
is kept, not only the first that removed the pair: orientation and three-valued links need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pkgutil import resolve_name
from typing import Any, Protocol, TypeVar

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.chi_square import Answer, Query
from synthdp.graph.knowledge import Knowledge, Pair, Pdag, extend
from synthdp.privacy.mechanisms import Mechanism
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

KnownTables = Released[tuple[NoisyTable, ...]] | None
"""Tables that were paid for before a search, if there are any."""
CiTest = Callable[[int, Sequence[Query]], Sequence[Answer]]
"""Answers a batch of queries of one order (size of the conditioning set)."""
Test = tuple[tuple[str, ...], Answer]
"""A conditioning set and the answer of its test."""
Evidence = Mapping[Pair, Sequence[Test]]
"""Per pair in column order: every conditioning set tried, with its answer."""
Separators = Callable[[Mapping[str, set[str]], Pair, int, Evidence], Iterable[tuple[str, ...]]]
"""Conditioning sets of one order to try for a linked pair."""
Separates = Callable[[Answer, Sequence[Test]], bool]
"""Whether an answer separates its pair, given all evidence on the pair so far."""


@dataclass(frozen=True)
class Skeleton:
    """Pairs that stayed linked (fixed ones included), and the evidence on every tested pair."""

    linked: frozenset[Pair]
    evidence: Evidence

    def separators(self, pair: Pair) -> list[Test]:
        """Tests of a pair that did not find dependence, in the order of their runs."""
        return [test for test in self.evidence.get(pair, ()) if test[1].verdict != "dependent"]

    def absent(self, pair: Pair) -> bool:
        """Whether some test gave evidence for independence, rather than only none against it."""
        return any(answer.verdict == "independent" for _, answer in self.evidence.get(pair, ()))

    def unclear(self, knowledge: Knowledge) -> list[Pair]:
        """Undecided pairs that are neither linked nor absent."""
        pairs = knowledge.undecided_pairs
        return [pair for pair in pairs if pair not in self.linked and not self.absent(pair)]

    def effect(self, a: str, b: str) -> float | None:
        """Marginal effect between two columns; None where the spec fixes the pair."""
        tests = self.evidence.get((a, b)) or self.evidence.get((b, a))
        return tests[0][1].effect if tests else None


def neighbours_of_either(
    adjacency: Mapping[str, set[str]], pair: Pair, order: int, _: Evidence
) -> Iterator[tuple[str, ...]]:
    """The textbook's sets: subsets of the neighbours of one end."""
    ends = (sorted(adjacency[end] - {other}) for end, other in (pair, pair[::-1]))
    return unique_subsets(ends, order)


def unique_subsets(pools: Iterable[Iterable[str]], order: int) -> Iterator[tuple[str, ...]]:
    """Subsets of each pool with `order` members, each once."""
    seen: set[tuple[str, ...]] = set()
    for given in chain.from_iterable(combinations(pool, order) for pool in pools):
        if given not in seen:
            seen.add(given)
            yield given


def subsets_of_either(
    names: Sequence[str], first: set[str], second: set[str], order: int
) -> Iterator[tuple[str, ...]]:
    """Subsets of `names` with `order` members that lie within `first` or within `second`."""
    for given in combinations(names, order):
        if first.issuperset(given) or second.issuperset(given):
            yield given


def pc_skeleton(
    test: CiTest,
    knowledge: Knowledge,
    *,
    max_order: int,
    separators: Separators = neighbours_of_either,
    separates: Separates = lambda answer, _: answer.verdict != "dependent",
    pairs: Sequence[Pair] | None = None,
) -> Skeleton:
    """Remove every undecided pair that some test of order 0 to `max_order` separates.

    By default a test separates a pair that it does not find dependent. Of the undecided pairs only
    `pairs` are looked at; all by default. Others count as not linked, and have no evidence.
    """
    open_pairs = list(knowledge.undecided_pairs if pairs is None else pairs)
    rank = {n: i for i, n in enumerate(knowledge.columns)}
    fixed = {(a, b) if rank[a] < rank[b] else (b, a) for a, b in knowledge.fixed}
    evidence: dict[Pair, list[Test]] = {pair: [] for pair in open_pairs}
    for order in range(max_order + 1):
        # Paths run through unobserved common causes too, so a test may condition on their columns.
        adjacency: dict[str, set[str]] = {n: set() for n in knowledge.columns}
        for a, b in (*fixed, *open_pairs, *knowledge.confounded):
            adjacency[a].add(b)
            adjacency[b].add(a)
        queries: list[Query] = [
            (*pair, given)
            for pair in open_pairs
            for given in separators(adjacency, pair, order, evidence)
        ]
        if not queries:
            # A frozen adjacency without sets of this size has no larger ones; those of a custom
            # `separators` are not tried.
            break
        for (a, b, given), answer in zip(queries, test(order, queries), strict=True):
            evidence[a, b].append((given, answer))
        open_pairs = [
            p for p in open_pairs if not any(separates(a, evidence[p]) for _, a in evidence[p])
        ]
    return Skeleton(frozenset([*fixed, *open_pairs]), evidence)


def reading(
    graph: Pdag,
    knowledge: Knowledge,
    *,
    unclear: Iterable[Pair],
    strength: Callable[[str, str], Any],
    max_parents: int,
    probability: Callable[[Pair], float | None] = lambda pair: None,
) -> CausalGraph:
    """The learned graph, with `unclear` pairs listed as undecided.

    A column with more than `max_parents` parents loses the weakest by `strength(parent, column)`,
    which is None of a link that stays. `probability` is that of a learned link, if it is known.
    """
    dag, dropped = extend(graph), set[frozenset[str]]()
    for node in dag.nodes:
        parents = dag.ordered(dag.parents[node])
        strengths = {p: strength(p, node) for p in parents}
        learned = [p for p in parents if strengths[p] is not None]
        weakest = sorted(learned, key=strengths.__getitem__)
        dropped |= {frozenset((p, node)) for p in weakest[: max(len(parents) - max_parents, 0)]}
    found = [(pair, True) for pair in graph.directed() if pair not in knowledge.fixed]
    found += [(pair, False) for pair in graph.undirected()]
    edges = [
        GraphEdge(*p, directed=directed, provenance="learned", probability=probability(p))
        for p, directed in found
        if frozenset(p) not in dropped
    ]
    edges += [GraphEdge(*pair, directed=False, provenance="undecided") for pair in unclear]
    return CausalGraph.from_knowledge(knowledge, provenance="required", arrows=edges)


T = TypeVar("T")


class Releaser(Protocol):
    """The source of paid-for values: `privacy.session.Session` or a rehearsal."""

    @property
    def plan(self) -> ReleasePlan: ...
    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]: ...


class QueryTests(Protocol):
    """Tests of any query by released values; an effect below `negligible` counts as none."""

    @property
    def negligible(self) -> float: ...
    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]: ...


@dataclass(frozen=True)
class Algorithm:
    """One way to learn a graph.

    `spends(settings, domain, rows)` names what the search may release and how each part is planned;
    `rows` is the declared number of rows that a fit is expected to see.
    `search(releaser, settings, domain, known)` releases some of it under the purposes
    "graph: <name>". It returns the graph, released unless it cost nothing. Whatever the rows are,
    it releases nothing else. The margins of `known` tables sharpen its tests.
    `tests(releaser, domain)` releases what its search rests on, where that answers any query: mode
    validate tests a given graph on it. Without it, mode validate counts tables.
    """

    spends: Callable[[Graph, Domain, float], Mapping[str, MechanismFactory]]
    search: Callable[[Releaser, Graph, Domain, KnownTables], Released[CausalGraph] | CausalGraph]
    tests: Callable[[Releaser, Domain], Released[QueryTests]] | None = None


ALGORITHMS = {
    "measured_pc": "synthdp.graph.discovery.measuring:MEASURED_PC",
    "rcit_pc": "synthdp.graph.contrib.rcit_pc:RCIT_PC",  # Strobl et al. 2017, Zhang et al. 2023
    "priv_pc": "synthdp.graph.contrib.rank_pc:PRIV_PC",  # Wang, Pang and Song 2020
    "svt_pc": "synthdp.graph.contrib.rank_pc:SVT_PC",  # the same paper's baseline
    "em_pc": "synthdp.graph.contrib.rank_pc:EM_PC",  # Xu, Yuan and Wu 2017
}
"""Where an algorithm is, by the name that the spec's `graph.algorithm` gives."""


def algorithm_named(name: str) -> Algorithm:
    found: Algorithm = resolve_name(ALGORITHMS[name])
    return found
