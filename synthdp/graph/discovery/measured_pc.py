"""Measured PC: a few rounds of noisy tables. All else is post-processing and costs nothing.

If the whole table has few cells, it is measured once. Otherwise there are three rounds, each of a
fixed and public price:

    pairs        every pair that the spec leaves open: tests without and with one conditioning
                 column, and v-structures
    triples      for tests given two columns: each end with both of them
    quadruples   for tests given three columns

A test needs tables with one column fewer than it has, because it is on average partial association
(`ci_tests.mantel_haenszel`). So the first round, which has the most tables, answers most questions.
Which tables a round measures depends on released tables only. Their number never changes the price
of the round, only the noise of each table (k tables of a round have k times the variance of one).

Noise makes tests weak, so that this is not textbook PC. A pair once found dependent is separated
only by a test that could have seen that again: not when its upper bound exceeds `BLUNT` times the
effect found, or `MAX_SEPARATED_EFFECT`. A v-structure needs much evidence (`discovery.colliders`).
Unless tests are sharp, a score turns arrows on a clear gain (`discovery.second_opinion`).

Links are three-valued. A pair is present if no test separates it, absent if a test bounds its
effect below the plan's margin, and otherwise undecided, outside the graph's structure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from types import MappingProxyType

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.answer import Answer, Query, Verdict
from synthdp.graph.ci_tests.trend import has_order
from synthdp.graph.discovery.certainty import link_probability
from synthdp.graph.discovery.colliders import surest_colliders, tested_triples
from synthdp.graph.discovery.effort import Effort
from synthdp.graph.discovery.latent import with_marks
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.discovery.reading import limit_parents, reading
from synthdp.graph.discovery.second_opinion import second_opinion
from synthdp.graph.discovery.skeleton import (
    Evidence,
    Skeleton,
    Test,
    pc_skeleton,
    subsets_of_either,
)
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Collider, Pdag, meek, orient_colliders, orient_known
from synthdp.graph.ordered_tests import OrderedTests, Shared
from synthdp.graph.tables import NoisyTables, cells
from synthdp.privacy.mechanisms.marginals import NoisyTable

Measure = Callable[[str, Sequence[tuple[str, ...]]], tuple[NoisyTable, ...]]
"""Measures tables for a named round and charges the share of that round.

It is called at most once per round.
"""

ROUND_OF_ORDER = {0: "pairs", 2: "triples", 3: "quadruples"}
"""The round of the tests given so many columns; tests given one column need pairs alone."""

SEPARATING_LEVELS: Mapping[int, float] = {1: 0.01, 2: 0.05, 3: 0.1}
"""Level of tests by size of the conditioning set.

The larger the sets, the more of them try to separate a pair. Each must then be more certain that no
dependence is left.
"""
BLUNT: Mapping[int, float] = {1: 2.0, 2: 1.5, 3: 1.0}
"""Largest upper bound of a separating test, in marginal effects of the pair; by size of the set."""
MAX_LEFT = 0.5
"""Largest upper bound of a test at the small level of sharp tests, in marginal effects."""
MAX_SEPARATED_EFFECT = 0.6
"""Largest upper bound (Cohen's w) of a separating test, whatever the marginal effect."""


def measured_pc(
    measure: Measure,
    plan: MeasurePlan,
    domain: Domain,
    knowledge: Knowledge,
    *,
    shared: Shared = MappingProxyType({}),
    pairs: Sequence[Pair] | None = None,
    unseen: bool = False,
) -> CausalGraph:
    """Learn a graph from noisy tables.

    `shared` says which levels of a column are groups of several. Links are `learned`, or
    `undecided` and then outside the structure. `pairs` are the open pairs to look at, in column
    order: all of them by default. Others are undecided. If there may be `unseen` causes, the graph
    also says what holds in spite of them (`discovery.latent`).

    Raises:
        SynthdpError: more pairs are open than may be measured.
    """
    plan.refuse_too_many(domain, knowledge)
    search = _Search(measure, plan, domain, knowledge, shared)
    skeleton = pc_skeleton(
        search.test,
        knowledge,
        pairs=pairs,
        max_order=search.order,
        separators=search.candidate_sets,
        separates=lambda answer, tests: separates(answer, tests, level=search.effort.level),
    )
    links = sorted(skeleton.linked, key=lambda p: (domain.index(p[0]), domain.index(p[1])))
    graph = Pdag(
        domain.names,
        directed=knowledge.fixed,
        undirected=links,
        shielded=(*knowledge.untested, *skeleton.not_looked_at(knowledge)),
    )
    orient_known(graph, knowledge)
    found = search.colliders(graph, skeleton)
    orient_colliders(graph, found, knowledge)
    meek(graph, knowledge)
    graph = search.turned(graph)
    keep = limit_parents(graph, skeleton.evidence, plan.max_parents)
    read = reading(graph, skeleton, knowledge, keep, search.probability_of(skeleton.evidence))
    return with_marks(read, skeleton, knowledge, found, cache(search.verdict)) if unseen else read


def separates(answer: Answer, evidence: Sequence[Test], *, level: float = 1.0) -> bool:
    """Whether an answer removes its pair.

    It must be not dependent, and sharp enough to have seen the pair's marginal effect. Where hardly
    anything of that effect can be left, it must only not be dependent at the smaller `level`.
    """
    marginal = evidence[0][1]
    if answer is marginal:
        return answer.verdict != "dependent"
    if answer.verdict == "dependent":
        small = answer.effect_upper <= MAX_LEFT * marginal.effect
        return small and answer.p_value > level
    order = next(len(given) for given, other in evidence if other is answer)
    return answer.effect_upper <= min(BLUNT[order] * marginal.effect, MAX_SEPARATED_EFFECT)


@dataclass
class _Search:
    """One run: what was measured so far, and how its tests are answered."""

    measure: Measure
    plan: MeasurePlan
    domain: Domain
    knowledge: Knowledge
    shared: Shared
    tables: NoisyTables = field(default_factory=NoisyTables)

    def __post_init__(self) -> None:
        self.joint = self.plan.joint(self.domain)
        self.ordered = OrderedTests(self.domain, self.tables, self.shared)
        self.order = self.plan.joint_order if self.joint else self.plan.order
        self.effort = Effort(1.0, self.plan.candidates)
        if self.joint and self.knowledge.undecided_pairs():
            self.tables = NoisyTables(self.measure("joint", [self.domain.names]))

    def test(self, order: int, queries: Sequence[Query]) -> list[Answer]:
        """Answer a batch, after a measurement of what it needs.

        Marginal tests share the level of the plan; each later test has its own.
        """
        if not self.joint and order in ROUND_OF_ORDER:
            self._measure(ROUND_OF_ORDER[order], queries)
        level = SEPARATING_LEVELS[order] if order else self.plan.level / len(queries)
        answers = self._answer(queries, level=level)
        self.effort = Effort.of(median(a.detectable for a in answers), self.plan.candidates)
        return answers

    def verdict(self, query: Query) -> Verdict:
        """What the tables that were measured say; `undecided` where they lack what is asked."""
        a, b, given = query
        asked = (*self._pair(a, b), self._sorted(given))
        return self._answer([asked], level=self.plan.level)[0].verdict

    def _answer(self, queries: Sequence[Query], *, level: float) -> list[Answer]:
        margin = self.plan.margin
        if self.joint:
            return self.tables.answer(queries, level=level, margin=margin)
        ordered = [query for query in queries if self.ordered.applies(query)]
        others = [query for query in queries if not self.ordered.applies(query)]
        partial = self.tables.average_partial(others, level=level, margin=margin)
        trends = self.ordered.answers(ordered, level=level, margin=margin)
        found = dict(zip((*others, *ordered), (*partial, *trends), strict=True))
        return [found[query] for query in queries]

    def _measure(self, round_: str, queries: Iterable[Query]) -> None:
        """Measure the tables of a batch that are missing, each pair's best candidates first."""
        rank: dict[tuple[str, ...], int] = {}
        tried: Counter[Pair] = Counter()
        for a, b, given in queries:
            if given and self.ordered.applies((a, b, given)):
                continue  # the tables of pairs are enough
            needed = [self._sorted((end, *given)) for end in (a, b)] if given else [(a, b)]
            most = self.plan.max_cells if given else self.plan.max_pair_cells
            if all(cells(self.domain, columns) <= most for columns in needed):
                for columns in needed:
                    rank[columns] = min(rank.get(columns, tried[a, b]), tried[a, b])
            tried[a, b] += 1
        ranked = sorted(rank, key=rank.__getitem__)
        missing = [columns for columns in ranked if self.tables.best(columns) is None]
        if missing:
            limit = self.plan.max_pairs if round_ == "pairs" else self.plan.max_tables
            self.tables = self.tables.plus(self.measure(round_, missing[:limit]))
            if round_ == "pairs":
                self.ordered = OrderedTests(self.domain, self.tables, self.shared)

    def _sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self.domain.index))

    def candidate_sets(
        self, adjacency: Mapping[str, set[str]], pair: Pair, order: int, evidence: Evidence
    ) -> Iterator[tuple[str, ...]]:
        """Conditioning sets worth a test, best first: subsets of one end's neighbours, as in PC.

        A single column that separates a pair is linked to both ends.
        """
        if order == 0:
            yield ()
            return
        a, b = pair
        both, either = adjacency[a] & adjacency[b], adjacency[a] | adjacency[b]
        candidates = self._sorted(both if order == 1 else either - {a, b})
        if not self.joint:
            strength = {z: self._weaker_effect(z, pair, evidence) for z in candidates}
            strongest = sorted(candidates, key=lambda z: -strength[z])
            candidates = tuple(strongest[: self.effort.candidates[order]])
        for given in subsets_of_either(candidates, adjacency[a], adjacency[b], order):
            yield self._sorted(given)

    def _weaker_effect(self, name: str, pair: Pair, evidence: Evidence) -> float:
        """The weaker of a column's marginal effects on the columns of a pair."""
        return min(self._marginal_effect(name, end, evidence) for end in pair)

    def _marginal_effect(self, a: str, b: str, evidence: Evidence) -> float:
        """Marginal effect between two columns; infinite where the spec fixes the pair."""
        tests = evidence.get(self._pair(a, b))
        return tests[0][1].effect if tests else math.inf

    def _pair(self, a: str, b: str) -> Pair:
        return (a, b) if self.domain.index(a) < self.domain.index(b) else (b, a)

    def probability_of(self, evidence: Evidence) -> Callable[[Pair], float | None]:
        """The probability of a link; unknown where the whole table was measured at once."""

        def told(pair: Pair) -> float | None:
            tests = evidence.get(self._pair(*pair))
            if self.joint or not tests:
                return None
            return link_probability(tests, ordered=self.ordered.applies((*pair, ())))

        return told

    def turned(self, graph: Pdag) -> Pdag:
        """With the arrows of a second opinion, where tests are blunt, and none uses an order."""
        idle = self.joint or self.effort.level < 1 or any(map(has_order, self.domain.columns))
        return graph if idle else second_opinion(graph, self.tables, self.domain, self.knowledge)

    def colliders(self, graph: Pdag, skeleton: Skeleton) -> list[Collider]:
        """V-structures with enough evidence, the most certain first."""
        triples = tested_triples(graph, skeleton.evidence)
        queries = {q for a, b, c in triples for q in self._collider_queries(graph, (a, c), b)}
        vetoes = {q for a, b, c in triples for q in self._veto_queries(graph, (a, c), b)}
        ends = {(a, c) for a, _, c in triples}
        tests = {pair: dict(skeleton.evidence[pair]) for pair in ends}
        larger: dict[Pair, dict[tuple[str, ...], Answer]] = {pair: {} for pair in ends}
        for asked, found in ((queries, tests), (vetoes, larger)):
            ordered = sorted(asked)
            answers = self._answer(ordered, level=self.plan.level)
            for (a, c, given), answer in zip(ordered, answers, strict=True):
                found[a, c][given] = answer
        return surest_colliders(triples, tests, larger)

    def _collider_queries(self, graph: Pdag, pair: Pair, middle: str) -> Iterator[Query]:
        if not self.joint:
            yield (*pair, (middle,))
            return
        first, second = (graph.around(end) for end in pair)
        names = self._sorted((first | second) - set(pair))
        for order in range(self.order + 1):
            for given in subsets_of_either(names, first, second, order):
                yield (*pair, given)

    def _veto_queries(self, graph: Pdag, pair: Pair, middle: str) -> Iterator[Query]:
        """The middle column and a neighbour of an end: for tests that are sharp, on the tables that
        there are. The whole table was asked already.
        """
        if self.joint or self.effort.level == 1:
            return
        around = graph.around(pair[0]) | graph.around(pair[1])
        for other in self._sorted(around - {*pair, middle}):
            yield (*pair, self._sorted((middle, other)))
