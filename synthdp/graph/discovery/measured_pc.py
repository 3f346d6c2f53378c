"""Measured PC: a few rounds of noisy tables. All else is post-processing and costs nothing.

If the whole table has few cells, it is measured once. Otherwise there are three rounds, each of a
fixed and public price:

    pairs        every pair that the spec leaves open: tests without and with one conditioning
                 column, and v-structures
    triples      for tests given two columns: each end with both of them
    quadruples   for tests given three columns

A test needs tables with one column fewer than it has, because it is on average partial association
(`chi_square.partial_mixture`). So the first round, which has the most tables, answers most
questions. Which tables a round measures depends on released tables only. Their number never changes
the price of the round, only the noise of each table (k tables of a round have k times the variance
of one).

Noise makes tests weak, so that this is not textbook PC. A pair once found dependent is separated
only by a test that could have seen that again: not when its upper bound exceeds `blunt` times the
effect found, or `max_separated_effect`. A v-structure needs much evidence (`discovery.orient`).
Unless tests are sharp, a score turns arrows on a clear gain (`discovery.orient`).

Links are three-valued. A pair is present if no test separates it, absent if a test bounds its
effect below the plan's margin, and otherwise undecided, outside the graph's structure. Undecided is
also a pair that a column of many levels may explain: noise of so many strata hides what is left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import median
from types import MappingProxyType

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph import discovery as pc
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import Answer, Query, Verdict
from synthdp.graph.discovery.orient import (
    second_opinion,
    surest_colliders,
    tested_triples,
    with_marks,
)
from synthdp.graph.knowledge import Collider, Knowledge, Pair, Pdag, oriented
from synthdp.graph.tables import NoisyTables
from synthdp.graph.trend import OrderedTests, Shared, has_order
from synthdp.privacy.mechanisms.marginals import NoisyTable

JOINT_SHARES: Mapping[str, float] = {"joint": 1.0}
"""Shares of the graph budget where the whole table is measured at once."""
ROUND_SHARES: Mapping[str, float] = {"pairs": 0.6, "triples": 0.25, "quadruples": 0.15}
"""Shares of the graph budget by round."""


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """Public constants of a run.

    `level`: of the pair tests as a family; `margin`: effect (Cohen's w) below which a pair counts
    as absent; `max_cells`: of a table of three columns or more, and `max_pair_cells` of one of two,
    which has columns of hundreds of categories, too; `max_pairs`: that are measured, and
    `max_unscreened` beside a column of many categories: of more open pairs a screen chooses
    `kept_per_column` for each column; `max_screened`: open pairs of a screen; `max_tables`: of a
    later round; `joint_cells`: up to here the whole table is measured at once; `order`: largest
    conditioning set in rounds; `joint_order`: the same for the whole table, where larger sets leave
    strata too small for their noise; `candidates`: columns to condition on that are tried per pair,
    by size of the set (all of them in the whole table), where noise is large (`Effort`);
    `max_parents`: of a column in the result.
    """

    level: float = 0.05
    margin: float = 0.1
    max_cells: int = 4096
    max_pair_cells: int = 1 << 16
    max_pairs: int = 25_000
    max_unscreened: int = 5_000
    max_screened: int = 500_000
    kept_per_column: int = 3
    max_tables: int = 2000
    joint_cells: int = 4096
    joint_order: int = 2
    order: int = 3
    candidates: Mapping[int, int] = field(default_factory=lambda: {1: 24, 2: 8, 3: 5})
    max_parents: int = 6

    def joint(self, domain: Domain) -> bool:
        return math.prod(domain.sizes) <= self.joint_cells

    def shares(self, domain: Domain) -> Mapping[str, float]:
        """The rounds that a search may release, in order, with their share of the budget."""
        return JOINT_SHARES if self.joint(domain) else ROUND_SHARES

    def screens(self, domain: Domain, open_pairs: int) -> bool:
        """Whether a screen chooses among so many open pairs: a public fact.

        It makes tables of many categories stand out of the noise. Where none has many, all pairs
        are better: a screen leaves out the ends of v-structures.
        """
        many = any(c.levels > SETTINGS.most_levels and not c.ranged for c in domain.columns)
        most = self.max_unscreened if many else self.max_pairs
        return open_pairs > most and not self.joint(domain)

    def refuse_too_many(self, domain: Domain, knowledge: Knowledge) -> None:
        """Refuse more open pairs than may be measured: a public fact, before anything is spent."""
        open_pairs, most = len(knowledge.undecided_pairs), self.max_screened
        if open_pairs > most and not self.joint(domain):
            raise SynthdpError(
                f"graph: {open_pairs} pairs of columns are open, at most {most} can be screened",
                hint="decide more pairs by graph.tiers, graph.forbidden, graph.groups, or leave"
                " columns out",
            )


@dataclass(frozen=True)
class SearchSettings:
    """Tuning of a search; tuples are by size of the conditioning set, 1 to 3.

    `levels` of tests: the larger the sets, the more of them try to separate a pair, and each must
    be more certain that no dependence is left. `blunt`: largest upper bound of a separating test,
    in marginal effects of the pair, and `max_separated_effect` in Cohen's w, whatever the marginal
    effect; `max_left`: the same, in marginal effects, of a test at the small level of sharp tests.

    `sharp`: effect (Cohen's w) from which on tests count as sharp, if half of them see it, with
    `sharp_level`, that of a dependence that is hardly there, and `max_candidates` (`Effort`).

    `evidence`: ends of the classes of `link_probability`, and the share of true links in each,
    `plain` where no column is ordered and `ordered` where one is: trend tests leave more behind
    (`graph.trend`). Below .9 the shares were .6 and .8 (.45 and .6), and less on networks that
    nothing was counted on, so they are not told. The highest of `plain` was .998, and .97 on public
    networks. Without a further test it is `weak` up to so much evidence of the pair `alone`, and
    `clear` beyond. Of columns of more than `told_levels` levels none is told: of links of a class
    of 63 .85 were true where .99 was counted elsewhere, of barley's of 20 levels half. After a
    screen `clear` alone is told: below it .89 and .50 of two networks' links were true.
    """

    levels: tuple[float, ...] = (0.01, 0.05, 0.1)
    blunt: tuple[float, ...] = (2.0, 1.5, 1.0)
    max_separated_effect: float = 0.6
    max_left: float = 0.5
    sharp: float = 0.02
    sharp_level: float = 0.001
    max_candidates: tuple[int, ...] = (24, 24, 16)
    evidence: tuple[float, ...] = (0.3, 1.0, 2.0, 4.0)
    plain: tuple[float | None, ...] = (None, None, 0.9, 0.95, 0.97)
    ordered: tuple[float | None, ...] = (None, None, 0.7, 0.85, 0.95)
    alone: float = 7.0
    weak: float = 0.9
    clear: float = 0.97
    most_levels: int = 32
    told_levels: int = 16


SETTINGS = SearchSettings()


Measure = Callable[[str, Sequence[tuple[str, ...]]], tuple[NoisyTable, ...]]
"""Measures tables for a named round and charges the share of that round.

It is called at most once per round.
"""

ROUND_OF_ORDER = {0: "pairs", 2: "triples", 3: "quadruples"}
"""The round of the tests given so many columns; tests given one column need pairs alone."""


def measured_pc(
    measure: Measure,
    plan: MeasurePlan,
    domain: Domain,
    knowledge: Knowledge,
    *,
    shared: Shared = MappingProxyType({}),
    known: Sequence[NoisyTable] = (),
    pairs: Sequence[Pair] | None = None,
    unseen: bool = False,
) -> CausalGraph:
    """Learn a graph from noisy tables.

    `shared` says which levels of a column are groups of several. `known` are tables that were paid
    for before: their margins make tests sharper. Links are `learned`, or
    `undecided` and then outside the structure. `pairs` are the open pairs to look at, in column
    order: all of them by default. Others are undecided. If there may be `unseen` causes, the graph
    also says what holds in spite of them (`orient.with_marks`).

    Raises:
        SynthdpError: more pairs are open than may be measured.
    """
    plan.refuse_too_many(domain, knowledge)
    search = _Search(measure, plan, domain, knowledge, shared, NoisyTables((), known))
    skeleton = pc.pc_skeleton(
        search.test,
        knowledge,
        pairs=pairs,
        max_order=search.order,
        separators=search.candidate_sets,
        separates=lambda answer, tests: separates(answer, tests, level=search.effort.level),
    )
    hidden = {p for p in skeleton.linked if search.hides(skeleton.evidence.get(p, ()))}
    skeleton = replace(skeleton, linked=skeleton.linked - hidden)
    links = sorted(skeleton.linked, key=lambda p: (domain.index(p[0]), domain.index(p[1])))
    sure: list[Collider] = []

    def colliders(graph: Pdag) -> list[Collider]:
        sure.extend(search.colliders(graph, skeleton))
        return sure

    silent = (pair for pair in knowledge.undecided_pairs if pair not in skeleton.evidence)
    graph = oriented(knowledge, links, colliders, shielded=(*knowledge.untested, *silent, *hidden))
    read = pc.reading(
        search.turned(graph),
        knowledge,
        unclear=skeleton.unclear(knowledge),
        strength=skeleton.effect,
        max_parents=plan.max_parents,
        probability=partial(search.probability, skeleton.evidence, screened=pairs is not None),
    )
    return with_marks(read, skeleton, knowledge, sure, cache(search.verdict)) if unseen else read


def separates(answer: Answer, evidence: Sequence[pc.Test], *, level: float = 1.0) -> bool:
    """Whether an answer removes its pair.

    It must be not dependent, and sharp enough to have seen the pair's marginal effect. Where hardly
    anything of that effect can be left, it must only not be dependent at the smaller `level`.
    """
    marginal = evidence[0][1]
    if answer is marginal:
        return answer.verdict != "dependent"
    if answer.verdict == "dependent":
        small = answer.effect_upper <= SETTINGS.max_left * marginal.effect
        return small and answer.p_value > level
    order = next(len(given) for given, other in evidence if other is answer)
    most = min(SETTINGS.blunt[order - 1] * marginal.effect, SETTINGS.max_separated_effect)
    return answer.effect_upper <= most


@dataclass
class _Search:
    """One run: what was measured so far, and how its tests are answered."""

    measure: Measure
    plan: MeasurePlan
    domain: Domain
    knowledge: Knowledge
    shared: Shared
    tables: NoisyTables

    def __post_init__(self) -> None:
        self.joint = self.plan.joint(self.domain)
        self.ordered = OrderedTests(self.domain, self.tables, self.shared)
        self.order = self.plan.joint_order if self.joint else self.plan.order
        self.effort = Effort(1.0, self.plan.candidates)
        if self.joint and self.knowledge.undecided_pairs:
            self.tables = self.tables.plus(self.measure("joint", [self.domain.names]))

    def test(self, order: int, queries: Sequence[Query]) -> list[Answer]:
        """Answer a batch, after a measurement of what it needs.

        Marginal tests share the level of the plan; each later test has its own.
        """
        if not self.joint and order in ROUND_OF_ORDER:
            self._measure(ROUND_OF_ORDER[order], queries)
        level = SETTINGS.levels[order - 1] if order else self.plan.level / len(queries)
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
        plain = self.tables.average_partial(others, level=level, margin=margin)
        trends = self.ordered.answers(ordered, level=level, margin=margin)
        found = dict(zip((*others, *ordered), (*plain, *trends), strict=True))
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
            if all(self.domain.cells(columns) <= most for columns in needed):
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
        self, adjacency: Mapping[str, set[str]], pair: Pair, order: int, evidence: pc.Evidence
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
            strength = dict[str, float]()  # the weaker effect on an end; infinite where it is fixed
            for z in candidates:
                tests = [evidence.get(self._pair(z, end)) for end in pair]
                strength[z] = min(found[0][1].effect if found else math.inf for found in tests)
            strongest = sorted(candidates, key=lambda z: -strength[z])
            candidates = tuple(strongest[: self.effort.candidates[order]])
        for given in pc.subsets_of_either(candidates, adjacency[a], adjacency[b], order):
            yield self._sorted(given)

    def _pair(self, a: str, b: str) -> Pair:
        return (a, b) if self.domain.index(a) < self.domain.index(b) else (b, a)

    def probability(
        self, evidence: pc.Evidence, pair: Pair, *, screened: bool = False
    ) -> float | None:
        """The probability of a link; unknown where the whole table was measured at once, or one of
        the columns has many levels, and below the highest where a screen left pairs out: what
        separates a pair may be among them.
        """
        tests = evidence.get(self._pair(*pair))
        many = any(self.domain[name].levels > SETTINGS.told_levels for name in pair)
        if self.joint or many or not tests:
            return None
        told = link_probability(tests, ordered=self.ordered.applies((*pair, ())))
        return None if screened and (told or 0.0) < SETTINGS.clear else told

    def turned(self, graph: Pdag) -> Pdag:
        """With the arrows of a second opinion, where tests are blunt, and none uses an order."""
        idle = self.joint or self.effort.level < 1 or any(map(has_order, self.domain.columns))
        return graph if idle else second_opinion(graph, self.tables, self.domain, self.knowledge)

    def colliders(self, graph: Pdag, skeleton: pc.Skeleton) -> list[Collider]:
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
        into: dict[str, set[str]] = {name: set() for name in self.domain.names}
        kept = []
        for a, b, c in surest_colliders(triples, tests, larger):
            few = self.domain[b].levels <= SETTINGS.most_levels
            if few or len(into[b] | {a, c}) <= self.plan.max_parents:
                into[b] |= {a, c}
                kept.append((a, b, c))
        return kept

    def hides(self, tests: Sequence[pc.Test]) -> bool:
        """Whether a column of many levels may explain a link: the test given it found nothing, and
        was too blunt to separate the pair. Where no table allows that test, none says so.
        """
        many = {c.name for c in self.domain.columns if c.levels > SETTINGS.most_levels}
        made = [(given, a) for given, a in tests if math.isfinite(a.effect_upper)]
        return any(a.verdict != "dependent" and many & {*given} for given, a in made)

    def _collider_queries(self, graph: Pdag, pair: Pair, middle: str) -> Iterator[Query]:
        if not self.joint:
            yield (*pair, (middle,))
            return
        first, second = map(graph.around, pair)
        names = self._sorted((first | second) - set(pair))
        for order in range(self.order + 1):
            for given in pc.subsets_of_either(names, first, second, order):
                yield (*pair, given)

    def _veto_queries(self, graph: Pdag, pair: Pair, middle: str) -> Iterator[Query]:
        """Of sharp tests: the middle column and a neighbour of an end, on tables that there are."""
        if self.joint or self.effort.level == 1:
            return
        around = graph.around(pair[0]) | graph.around(pair[1])
        for other in self._sorted(around - {*pair, middle}):
            yield (*pair, self._sorted((middle, other)))


@dataclass(frozen=True)
class Effort:
    """How hard to look for a separator: the level of a dependence that is hardly there, and the
    candidates of tests, by size of the set.

    Where noise hides much, each further test of a true link may separate it, so that few are made.
    Where tests are sharp, a false link stays because its separator was not tried, or because chance
    made that test significant. So what the tests of one size can see, `weakest` (Cohen's w; it
    follows from the noise and the rows), decides on the next: below `sharp`, the level is
    `sharp_level` times (weakest / sharp)^2, and candidates grow with the square root of sharp /
    weakest. The level then tends to 0 like 1 / rows, as a consistent search needs: what a link adds
    to a test's statistic grows like the rows, and its critical value only like their logarithm.

    >>> Effort.of(0.05, {1: 24, 2: 8, 3: 5})
    Effort(level=1.0, candidates={1: 24, 2: 8, 3: 5})
    >>> Effort.of(0.005, {1: 24, 2: 8, 3: 5})
    Effort(level=6.25e-05, candidates={1: 24, 2: 24, 3: 15})
    """

    level: float
    candidates: Mapping[int, int]

    @classmethod
    def of(cls, weakest: float, candidates: Mapping[int, int]) -> Effort:
        """The effort where half of the last tests see an effect of `weakest`."""
        sharp, most = SETTINGS.sharp, SETTINGS.max_candidates
        if not weakest <= sharp:
            return cls(1.0, candidates)
        more = 1.5 * math.sqrt(sharp / max(weakest, sharp / 100))
        return cls(
            SETTINGS.sharp_level * (weakest / sharp) ** 2,
            {n: min(round(more * tried), most[n - 1]) for n, tried in candidates.items()},
        )


def link_probability(tests: Sequence[pc.Test], *, ordered: bool) -> float | None:
    """The probability that a pair with these tests, which found it linked, is linked; None where
    that is not known well.

    It is that of a class of its weakest evidence: minus log10 of the largest p-value of all tests
    that might have separated it, or of that of the pair alone where none was made. On random
    networks and tables, whose truth is known, the share of true links grows with it in steps. These
    are public constants: they were counted on `benchmarks/random_networks.py`, seeds 1000 to 1159,
    and `benchmarks/random_tables.py`, seeds 3000 to 3079, at epsilon .3, 1 and 3 and 2,000 to
    200,000 rows. `python -m benchmarks.link_calibration` holds them against others.

    >>> from synthdp.graph.chi_square import Answer
    >>> alone = Answer("dependent", 1e-20, 90.0, 0.3, 0.4, 0.02)
    >>> given = Answer("dependent", 1e-3, 11.0, 0.1, 0.2, 0.03)
    >>> link_probability([((), alone), (("z",), given)], ordered=False)
    0.95
    """
    able = [answer.p_value for given, answer in tests if given and math.isfinite(answer.detectable)]
    weakest = -math.log10(max(*able, 1e-300) if able else max(tests[0][1].p_value, 1e-300))
    if not able:
        return SETTINGS.clear if weakest >= SETTINGS.alone else SETTINGS.weak
    shares = SETTINGS.ordered if ordered else SETTINGS.plain
    return shares[bisect_right(SETTINGS.evidence, weakest)]
