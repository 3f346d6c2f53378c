"""Discovery by rank statistics: which questions to ask, and the graph that answers give.

Rank statistics read the order of levels, so a column must be ordered or have two levels. A search
asks about a pair given other columns only where the declared rows fill the strata. A question that
is not asked separates nothing.
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
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.answer import Query
from synthdp.graph.edge import GraphEdge
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Pdag, extend, meek, orient_colliders, orient_known, unshielded
from synthdp.privacy.mechanisms.conditional_counts import RankQuery, variance_floor
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankTest

MAX_ORDER = 3
"""Largest conditioning set."""
ROWS_PER_STRATUM = 20
"""A question is asked if there are so many declared rows per stratum."""
MIN_WEIGHT = 0.5
"""A separating test must have this share of the weight that it would have without strata."""

Separators = Mapping[Pair, tuple[str, ...]]


def check_ordered(domain: Domain) -> None:
    """Refuse columns whose levels have no order.

    Raises:
        SynthdpError: some columns are not ordered; the message names them.
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
    """Questions about `rows` declared rows.

    A pair counts as independent if its score is within `critical` standard deviations plus `slack`.
    `noise` is the standard deviation of what is added to the answer; it widens the test like any
    other spread of the score.
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
        """Questions with the two-sided normal quantile of a level."""
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
    """The working skeleton of a search.

    `open` holds the pairs that are still linked, `separators` the set that separated each other
    pair. `strength` is the least strength that was released of a link.
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
        """Conditioning sets of one order, from the present neighbours of either end."""
        seen: set[tuple[str, ...]] = set()
        for end, other in (pair, pair[::-1]):
            near = [n for n in self.knowledge.columns if n in self._near[end] and n != other]
            for given in combinations(near, order):
                if given not in seen:
                    seen.add(given)
                    yield given

    def examined(self, pair: Pair, strength: float) -> None:
        """Record the strength that a released score shows of a pair that stays linked."""
        self._strength[pair] = min(strength, self.strength(*pair))

    def strength(self, a: str, b: str) -> float:
        """Least strength released of a link; infinite if only "dependent" was ever released."""
        return self._strength.get((a, b), self._strength.get((b, a), math.inf))

    def separate(self, pair: Pair, given: tuple[str, ...]) -> None:
        """Remove a link."""
        del self.open[pair]
        self.separators[pair] = given
        a, b = pair
        self._near[a].discard(b)
        self._near[b].discard(a)


def graph_of(links: Links, undecided: Iterable[Pair], *, max_parents: int) -> CausalGraph:
    """The graph of a skeleton: v-structures from the separating sets, then Meek's rules.

    `undecided` pairs are listed as such, outside the structure. A column with more than
    `max_parents` parents loses its weakest learned links. Links without a released strength count
    as strongest, and among equals the last columns go.
    """
    knowledge, unclear = links.knowledge, dict.fromkeys(undecided)
    sure = [p for p in links.open if p not in unclear]
    # A pair without an answer may be linked, and one without a test has no separating set. Neither
    # shows that a triple is unshielded.
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
    arrows = [pair for pair in graph.directed() if pair not in knowledge.fixed]
    edges = [GraphEdge(a, b, directed=True, provenance="learned") for a, b in arrows]
    edges += [GraphEdge(a, b, directed=False, provenance="learned") for a, b in graph.undirected()]
    kept = [e for e in edges if frozenset(e.pair) not in dropped]
    kept += [GraphEdge(a, b, directed=False, provenance="undecided") for a, b in unclear]
    return CausalGraph.from_knowledge(knowledge, provenance="required", arrows=kept)


def _collides(links: Links, a: str, b: str, c: str) -> bool:
    """Whether a and c were separated by a set without b."""
    given = links.separators.get((a, c), links.separators.get((c, a)))
    return given is not None and b not in given


def _surplus(graph: Pdag, links: Links, max_parents: int) -> set[frozenset[str]]:
    """Learned links to drop, so that no column has more than `max_parents` parents."""
    dag, dropped = extend(graph), set[frozenset[str]]()
    for node in dag.nodes:
        parents = dag.ordered(dag.parents[node])
        learned = [p for p in reversed(parents) if (p, node) not in links.knowledge.fixed]
        weakest = sorted(learned, key=partial(links.strength, node))
        dropped |= {frozenset((p, node)) for p in weakest[: max(len(parents) - max_parents, 0)]}
    return dropped
