"""What discovery by rank statistics has in common: which questions to ask, and the graph that
answers make.

Rank statistics read the order of levels, so a column must be ordered or have two levels. A search
asks about a pair given others only where the declared rows fill the strata: what is not asked
separates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from scipy.stats import norm

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.ci_tests.answer import Query
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Pdag, extend, meek, orient_colliders, orient_known, unshielded
from synthdp.privacy.mechanisms.conditional_counts import RankQuery, variance_floor
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankTest

MAX_ORDER = 3
"""Largest conditioning set."""
ROWS_PER_STRATUM = 20
"""Questions are asked if the declared rows come to this many per stratum."""
MIN_WEIGHT = 0.5
"""A separating test must have this part of the weight that it would have without strata."""

Separators = Mapping[Pair, tuple[str, ...]]


def check_ordered(domain: Domain) -> None:
    """Refuse columns whose levels have no order.

    Raises:
        SynthdpError: naming them.
    """
    unordered = [c.name for c in domain.columns if not c.ordered and c.levels - c.missing > 2]
    if unordered:
        raise SynthdpError(
            "graph: rank statistics need ordered levels; no order is declared for"
            f" {', '.join(unordered)}",
            hint=(
                "declare them ordinal, with categories from lowest to highest, or use"
                " graph.algorithm measured_pc"
            ),
        )


@dataclass(frozen=True)
class Questions:
    """Questions about `rows` declared rows: independent if the score is within `critical`
    deviations plus `slack`.

    `noise`: deviation of what is added to the answer; it widens the test like any other spread of
    the score.
    """

    domain: Domain
    test: RankTest
    rows: float
    critical: float
    noise: float
    slack: float

    @classmethod
    def at_level(
        cls,
        domain: Domain,
        test: RankTest,
        *,
        rows: float,
        level: float,
        noise: float,
        slack: float = 0.0,
    ) -> Questions:
        """With the two-sided normal quantile of a level."""
        return cls(domain, test, rows, float(norm.isf(level / 2)), noise, slack)

    @property
    def full_weight(self) -> float:
        """Weight of a test without strata."""
        return STATISTICS[self.test].per_row * self.rows

    def fills(self, given: Iterable[str]) -> bool:
        """Whether the declared rows fill the strata."""
        return math.prod(self.domain[n].levels for n in given) * ROWS_PER_STRATUM <= self.rows

    def ask(self, query: Query) -> RankQuery:
        """The query with its bound."""
        spare = max(self.noise**2, variance_floor(self.test, self.critical))
        return RankQuery(*query, self.critical, spare, self.slack, MIN_WEIGHT * self.full_weight)


@dataclass
class Links:
    """The working skeleton: pairs that are still linked, the least strength released of each, and
    what separated the others.
    """

    knowledge: Knowledge

    def __post_init__(self) -> None:
        self.open: dict[Pair, None] = dict.fromkeys(self.knowledge.undecided_pairs())
        self.separators: dict[Pair, tuple[str, ...]] = {}
        self._strength: dict[Pair, float] = {}
        self._near: dict[str, set[str]] = {n: set() for n in self.knowledge.columns}
        for a, b in (*self.open, *self.knowledge.fixed):
            self._near[a].add(b)
            self._near[b].add(a)

    def sets(self, pair: Pair, order: int) -> Iterator[tuple[str, ...]]:
        """Conditioning sets of one order, from the neighbours of either end as they are now."""
        seen: set[tuple[str, ...]] = set()
        for end, other in (pair, pair[::-1]):
            near = [n for n in self.knowledge.columns if n in self._near[end] and n != other]
            for given in combinations(near, order):
                if given not in seen:
                    seen.add(given)
                    yield given

    def examined(self, pair: Pair, strength: float) -> None:
        """Note the strength that a released score shows of a pair that stays linked."""
        self._strength[pair] = min(strength, self.strength(*pair))

    def strength(self, a: str, b: str) -> float:
        """Least strength released of a link; endless where nothing but "dependent" ever was."""
        return self._strength.get((a, b), self._strength.get((b, a), math.inf))

    def separate(self, pair: Pair, given: tuple[str, ...]) -> None:
        """Take a link out."""
        del self.open[pair]
        self.separators[pair] = given
        a, b = pair
        self._near[a].discard(b)
        self._near[b].discard(a)


def graph_of(links: Links, undecided: Iterable[Pair], *, max_parents: int) -> CausalGraph:
    """The graph of a skeleton: v-structures from the separating sets, Meek's rules, at most
    `max_parents` parents.

    `undecided` pairs are listed as such, outside the structure. Where a column has too many
    parents, its weakest learned links go; those of which no strength was released count as
    strongest, and among equals the last columns go.
    """
    knowledge, unclear = links.knowledge, dict.fromkeys(undecided)
    sure = [p for p in links.open if p not in unclear]
    # A pair without an answer may be linked, and one without a test has no separating set: neither
    # shows a triple to be open.
    graph = Pdag(
        knowledge.columns,
        directed=knowledge.fixed,
        undirected=sure,
        shielded=(*knowledge.untested, *unclear),
    )
    orient_known(graph, knowledge)
    orient_colliders(graph, [t for t in unshielded(graph) if _collides(links, *t)], knowledge)
    meek(graph, knowledge)
    dropped = _surplus(graph, links, max_parents)
    edges = [
        GraphEdge(a, b, directed=True, provenance="learned")
        for a, b in graph.directed()
        if (a, b) not in knowledge.fixed
    ]
    edges += [GraphEdge(a, b, directed=False, provenance="learned") for a, b in graph.undirected()]
    kept = [e for e in edges if frozenset(e.pair) not in dropped]
    kept += [GraphEdge(a, b, directed=False, provenance="undecided") for a, b in unclear]
    return CausalGraph.from_knowledge(knowledge, provenance="required", arrows=kept)


def _collides(links: Links, a: str, b: str, c: str) -> bool:
    """Whether a and c were separated by a set without b."""
    given = links.separators.get((a, c), links.separators.get((c, a)))
    return given is not None and b not in given


def _surplus(graph: Pdag, links: Links, most: int) -> set[frozenset[str]]:
    dag, dropped = extend(graph), set[frozenset[str]]()
    for node in dag.nodes:
        parents = dag.ordered(dag.parents[node])
        learned = [p for p in reversed(parents) if (p, node) not in links.knowledge.fixed]
        weakest = sorted(learned, key=partial(links.strength, node))
        dropped |= {frozenset((p, node)) for p in weakest[: max(len(parents) - most, 0)]}
    return dropped
