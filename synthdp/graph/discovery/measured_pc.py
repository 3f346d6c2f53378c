"""Measured PC: a few rounds of noisy tables, everything else is post-processing and free.

If the whole table has few cells it is measured once. Otherwise four rounds, each of a fixed and public price:

    pairs        every pair that the spec leaves open
    triples      linked pairs with the columns that could separate them
    quadruples   the same with two separating columns
    colliders    unshielded triples a - b - c that no earlier table holds, to orient them

Which tables a round asks for depends on released tables only; how many never changes its price, only the
noise of each (k tables of a round get variance k times that of one).

Two deviations from textbook PC, both because noise makes tests weak. A pair once found dependent is
separated only by a test that could have seen that dependence again: not when the test's upper bound exceeds
`BLUNT` times the effect found, or the largest effect there is. And a v-structure a -> b <- c is claimed only if
sets without b explain the independence of a and c `ODDS` times better than sets with b, by the ratio of
their largest p-values (after PC-max: Ramsey 2016). The threshold scales with the noise by itself, so that one rule
serves high and low budgets.

Links are three-valued. A pair is present if no test separates it, absent if a test bounds its effect below
the plan's margin, and otherwise undecided: it is then listed as such, outside the graph's structure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.orient import Collider, Pdag, extend, meek, orient_colliders, orient_known, unshielded
from synthdp.graph.skeleton import Evidence, Skeleton, Test, pc_skeleton
from synthdp.graph.tables import NoisyTables, cells
from synthdp.graph.tests.answer import Answer, Query
from synthdp.privacy.mechanisms import NoisyTable

Measure = Callable[[str, Sequence[tuple[str, ...]]], tuple[NoisyTable, ...]]
"""Measures tables for a named round and charges that round's share. Called at most once per round."""

JOINT_SHARES: Mapping[str, float] = {"joint": 1.0}
ROUND_SHARES: Mapping[str, float] = {"pairs": 0.2, "triples": 0.4, "quadruples": 0.35, "colliders": 0.05}
"""Parts of the graph budget by round."""
ROUND_OF_ORDER = ("pairs", "triples", "quadruples")

BLUNT = 4.0
LARGEST_EFFECT = 1.0
ODDS = 20.0


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """Public constants of a run.

    `level`: of the pair tests as a family, and of each later test; `margin`: effect (Cohen's w) below which a
    pair counts as absent; `max_cells`: of a table; `max_tables`: of a round; `joint_cells`: up to here the whole
    table is measured at once; `joint_order`: largest conditioning set then; `candidates`: separating columns
    tried per pair; `max_parents`: of a column in the result.
    """

    level: float = 0.05
    margin: float = 0.1
    max_cells: int = 4096
    max_tables: int = 2000
    joint_cells: int = 4096
    joint_order: int = 3
    candidates: int = 4
    max_parents: int = 6

    def joint(self, domain: Domain) -> bool:
        """Whether the whole table is measured at once."""
        return math.prod(domain.sizes) <= self.joint_cells

    def shares(self, domain: Domain) -> Mapping[str, float]:
        """The rounds that may be asked for, in order, with their part of the budget."""
        return JOINT_SHARES if self.joint(domain) else ROUND_SHARES


def measured_pc(measure: Measure, plan: MeasurePlan, domain: Domain, knowledge: Knowledge) -> CausalGraph:
    """Learn a graph from noisy tables. Links are `learned`, or `undecided` and then outside the structure.

    Raises `SynthdpError` if more pairs are open than a round may have tables.
    """
    if not plan.joint(domain) and len(knowledge.undecided_pairs()) > plan.max_tables:
        raise SynthdpError(
            f"graph: {len(knowledge.undecided_pairs())} pairs of columns are open, at most {plan.max_tables} can be measured",
            hint="decide more pairs by graph.tiers, graph.forbidden, graph.groups, or leave columns out",
        )
    search = _Search(measure, plan, domain, knowledge)
    skeleton = pc_skeleton(search.test, knowledge, max_order=search.max_order, separators=search.candidate_sets, separates=separates)
    links = sorted(skeleton.linked, key=lambda p: (domain.index(p[0]), domain.index(p[1])))
    graph = Pdag(domain.names, directed=knowledge.fixed, undirected=links, shielded=knowledge.untested)
    orient_known(graph, knowledge)
    orient_colliders(graph, search.colliders(graph, skeleton), knowledge)
    meek(graph, knowledge)
    keep = _limit_parents(graph, skeleton.evidence, plan.max_parents)
    return _reading(graph, skeleton, knowledge, keep)


def separates(answer: Answer, evidence: Sequence[Test]) -> bool:
    """Whether an answer removes its pair: not dependent, and sharp enough to have seen the pair's marginal effect."""
    marginal = evidence[0][1]
    if answer.verdict == "dependent":
        return False
    return answer is marginal or answer.effect_upper <= min(BLUNT * marginal.effect, LARGEST_EFFECT)


@dataclass
class _Search:
    """One run: what was measured so far, and how its tests are answered."""

    measure: Measure
    plan: MeasurePlan
    domain: Domain
    knowledge: Knowledge
    tables: NoisyTables = field(default_factory=NoisyTables)

    def __post_init__(self) -> None:
        self.joint = self.plan.joint(self.domain)
        self.max_order = self.plan.joint_order if self.joint else len(ROUND_OF_ORDER) - 1
        if self.joint and self.knowledge.undecided_pairs():
            self.tables = NoisyTables(self.measure("joint", [self.domain.names]))

    def test(self, order: int, queries: Sequence[Query]) -> list[Answer]:
        """Answer a batch, after measuring what it needs. Pairs share the level; later tests have it each."""
        if not self.joint:
            self._measure(ROUND_OF_ORDER[order], queries)
        level = self.plan.level / (len(queries) if order == 0 else 1)
        return self.tables.answer(queries, level=level, margin=self.plan.margin)

    def _measure(self, round_: str, queries: Iterable[Query]) -> None:
        """Measure the tables of a batch that are not held yet; each pair's best candidates go first."""
        rank: dict[tuple[str, ...], int] = {}
        seen: dict[Pair, int] = {}
        for a, b, given in queries:
            seen[a, b] = seen.get((a, b), -1) + 1
            columns = self._sorted((a, b, *given))
            if cells(self.domain, columns) <= self.plan.max_cells:
                rank[columns] = min(rank.get(columns, seen[a, b]), seen[a, b])
        wanted = [columns for columns in sorted(rank, key=rank.__getitem__) if self.tables.best(columns) is None]
        if wanted:
            self.tables = self.tables.plus(self.measure(round_, wanted[: self.plan.max_tables]))

    def _sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self.domain.index))

    def candidate_sets(self, adjacency: Mapping[str, set[str]], pair: Pair, order: int, evidence: Evidence) -> Iterator[tuple[str, ...]]:
        """Conditioning sets worth their tables, best first.

        A single separator z is dependent on both ends, and at least as strongly as they are on each other (data
        processing inequality for chi-square information). Sets are subsets of one end's neighbours, as in PC.
        """
        if order == 0:
            yield ()
            return
        a, b = pair
        ends = (adjacency[a] & adjacency[b]) if order == 1 else (adjacency[a] | adjacency[b]) - {a, b}
        found = self._sorted(ends)
        if order == 1:
            found = tuple(z for z in found if min(self._reach(e, z, evidence)[1] for e in pair) >= evidence[pair][0][1].effect)
        if not self.joint:
            found = tuple(sorted(found, key=lambda z: -min(self._reach(e, z, evidence)[0] for e in pair))[: self.plan.candidates])
        for given in combinations(found, order):
            if set(given) <= adjacency[a] or set(given) <= adjacency[b]:
                yield self._sorted(given)

    def _reach(self, a: str, b: str, evidence: Evidence) -> tuple[float, float]:
        """Marginal effect between two columns and its upper bound; endless where the spec fixes the pair."""
        tests = evidence.get(self._pair(a, b))
        return (tests[0][1].effect, tests[0][1].effect_upper) if tests else (np.inf, np.inf)

    def _pair(self, a: str, b: str) -> Pair:
        return (a, b) if self.domain.index(a) < self.domain.index(b) else (b, a)

    def colliders(self, graph: Pdag, skeleton: Skeleton) -> list[Collider]:
        """V-structures with enough evidence, surest first."""
        triples = [t for t in unshielded(graph) if skeleton.evidence.get(self._pair(t[0], t[2]))]
        queries = sorted({q for a, b, c in triples for q in self._collider_queries(graph, self._pair(a, c), b)})
        if not self.joint:
            self._measure("colliders", queries)
        answers = self.tables.answer(queries, level=self.plan.level, margin=self.plan.margin)
        tried: dict[Pair, dict[tuple[str, ...], Answer]] = {}
        for (a, c, given), answer in zip(queries, answers, strict=True):
            tried.setdefault((a, c), dict(skeleton.evidence[a, c]))[given] = answer
        odds = {(a, b, c): collider_odds(tried[self._pair(a, c)], b) for a, b, c in triples}
        return sorted((t for t in triples if odds[t] > np.log(ODDS)), key=lambda t: -odds[t])

    def _collider_queries(self, graph: Pdag, pair: Pair, middle: str) -> Iterator[Query]:
        if not self.joint:
            yield (*pair, (middle,))
            return
        around = [graph.around(end) for end in pair]
        for order in range(self.plan.joint_order + 1):
            for given in combinations(self._sorted((around[0] | around[1]) - set(pair)), order):
                if set(given) <= around[0] or set(given) <= around[1]:
                    yield (*pair, given)


def collider_odds(tests: Mapping[tuple[str, ...], Answer], middle: str) -> float:
    """Log of how much better sets without the middle column explain a pair's independence than sets with it."""
    able = {given: answer for given, answer in tests.items() if np.isfinite(answer.detectable)}
    without = max((a.p_value for given, a in able.items() if middle not in given), default=0.0)
    within = max((a.p_value for given, a in able.items() if middle in given), default=1.0)
    tiny = np.finfo(np.float64).tiny
    return float(np.log(max(without, tiny)) - np.log(max(within, tiny)))


def _limit_parents(graph: Pdag, evidence: Evidence, most: int) -> Callable[[Pair], bool]:
    """Which learned links to keep so that no column has more than `most` parents: the strongest; fixed ones stay."""
    dropped: set[frozenset[str]] = set()
    dag = extend(graph)
    for node in dag.nodes:
        parents = dag.ordered(dag.parents[node])
        tests = {p: evidence.get((p, node)) or evidence.get((node, p)) for p in parents}
        weakest = sorted((p for p in parents if tests[p]), key=lambda p: (tests[p] or ())[0][1].effect)
        dropped |= {frozenset((p, node)) for p in weakest[: max(len(parents) - most, 0)]}
    return lambda pair: frozenset(pair) not in dropped


def _reading(graph: Pdag, skeleton: Skeleton, knowledge: Knowledge, keep: Callable[[Pair], bool]) -> CausalGraph:
    """The result as a value, with pairs that are neither present nor absent."""
    directed = [GraphEdge(a, b, directed=True, provenance="learned") for a, b in graph.directed() if (a, b) not in knowledge.fixed and keep((a, b))]
    undirected = [GraphEdge(a, b, directed=False, provenance="learned") for a, b in graph.undirected() if keep((a, b))]
    unclear = [
        GraphEdge(a, b, directed=False, provenance="undecided")
        for a, b in skeleton.evidence
        if (a, b) not in skeleton.linked and not skeleton.absent((a, b))
    ]
    return CausalGraph.from_knowledge(knowledge, provenance="required", arrows=(*directed, *undirected, *unclear))
