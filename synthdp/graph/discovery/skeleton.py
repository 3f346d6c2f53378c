"""PC-stable skeleton (Colombo and Maathuis 2014): pairs that no conditioning set separates.

Within one order all adjacencies are frozen, so the tests of an order form one batch. The caller's
test sees the whole batch and may measure all tables it needs at once. Every test of a pair is kept,
not only the first that removed the pair: orientation and three-valued links need all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol, TypeVar

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.chi_square import Answer, Query
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

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
        return [
            (given, answer)
            for given, answer in self.evidence.get(pair, ())
            if answer.verdict != "dependent"
        ]

    def not_looked_at(self, knowledge: Knowledge) -> list[Pair]:
        """Undecided pairs without a test, of which nothing is known."""
        return [pair for pair in knowledge.undecided_pairs() if pair not in self.evidence]

    def absent(self, pair: Pair) -> bool:
        """Whether some test gave evidence for independence, rather than only none against it."""
        return any(answer.verdict == "independent" for _, answer in self.evidence.get(pair, ()))


def neighbours_of_either(
    adjacency: Mapping[str, set[str]], pair: Pair, order: int, _: Evidence
) -> Iterator[tuple[str, ...]]:
    """The textbook's sets: subsets of the neighbours of one end."""
    seen: set[tuple[str, ...]] = set()
    for end, other in (pair, pair[::-1]):
        for given in combinations(sorted(adjacency[end] - {other}), order):
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


def not_dependent(answer: Answer, _: Sequence[Test]) -> bool:
    """The textbook's rule: a pair that is not found dependent counts as separated."""
    return answer.verdict != "dependent"


def pc_skeleton(
    test: CiTest,
    knowledge: Knowledge,
    *,
    max_order: int,
    separators: Separators = neighbours_of_either,
    separates: Separates = not_dependent,
    pairs: Sequence[Pair] | None = None,
) -> Skeleton:
    """Remove every undecided pair that some test of order 0 to `max_order` separates.

    By default a test separates a pair that it does not find dependent. Of the undecided pairs only
    `pairs` are looked at; all by default. Others count as not linked, and have no evidence.
    """
    open_pairs = list(knowledge.undecided_pairs() if pairs is None else pairs)
    rank = {n: i for i, n in enumerate(knowledge.columns)}
    fixed = {(a, b) if rank[a] < rank[b] else (b, a) for a, b in knowledge.fixed}
    evidence: dict[Pair, list[Test]] = {pair: [] for pair in open_pairs}
    for order in range(max_order + 1):
        # Paths run through unobserved common causes too, so a test may condition on their columns.
        adjacency = _adjacency(knowledge.columns, [*fixed, *open_pairs, *knowledge.confounded])
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
        open_pairs = [p for p in open_pairs if not _separated(evidence[p], separates)]
    return Skeleton(frozenset([*fixed, *open_pairs]), evidence)


def _separated(tests: Sequence[Test], separates: Separates) -> bool:
    return any(separates(answer, tests) for _, answer in tests)


def _adjacency(columns: Sequence[str], pairs: Iterable[Pair]) -> dict[str, set[str]]:
    adjacency: dict[str, set[str]] = {n: set() for n in columns}
    for a, b in pairs:
        adjacency[a].add(b)
        adjacency[b].add(a)
    return adjacency


# --- algorithm ---
#
# The interface of a discovery algorithm: planned spends, and a search that they alone pay for.


T = TypeVar("T")


class Releaser(Protocol):
    """The source of paid-for values: `privacy.session.Session` or a rehearsal."""

    @property
    def plan(self) -> ReleasePlan: ...
    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]: ...


@dataclass(frozen=True)
class Algorithm:
    """One way to learn a graph.

    `spends(settings, domain, rows)` names what the search may release and how each part is planned;
    `rows` is the declared number of rows that a fit is expected to see.
    `search(releaser, settings, domain)` releases some of it under the purposes "graph: <name>". It
    returns the graph, released unless it cost nothing. Whatever the rows are, it releases nothing
    else.
    """

    spends: Callable[[Graph, Domain, float], Mapping[str, MechanismFactory]]
    search: Callable[[Releaser, Graph, Domain], Released[CausalGraph] | CausalGraph]
