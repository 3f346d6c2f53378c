"""Discovery by rank statistics: which questions to ask, and the graph that answers give.

Rank statistics read the order of levels, so a column must be ordered or have two levels. A search
asks about a pair given other columns only where the declared rows fill the strata. A question that
is not asked separates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from scipy.stats import norm

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.ci_tests.chi_square import Answer, Query, Verdict
from synthdp.graph.discovery.skeleton import Algorithm, Releaser
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Pdag, extend, meek, orient_colliders, orient_known, unshielded
from synthdp.privacy.mechanisms.private_search import (
    HowMany,
    SelectionBudget,
    SelectionStrategy,
    SieveStrategy,
    SparseVectorBudget,
    SparseVectorReply,
    Which,
    result_of,
)
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankQuery, RankTest, variance_floor
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

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


# --- sieving ---
#
# PC that asks a sparse vector one question after another: what Priv-PC and SVT-PC share.


PURPOSE = "search"


@dataclass(frozen=True)
class SieveOutcome:
    """A skeleton, and the pairs with open questions when the passes were used up."""

    links: Links
    undecided: tuple[Pair, ...]


def pc_search(
    knowledge: Knowledge,
    questions: Questions,
    separated: Callable[[SparseVectorReply], bool],
    strength: Callable[[SparseVectorReply], float] | None = None,
) -> Generator[RankQuery, SparseVectorReply | None, SieveOutcome]:
    """The original PC: by order, pair by pair and set by set, until one set separates.

    `strength` gives the strength of a link that was examined and stays.
    """
    links = Links(knowledge)
    for order in range(MAX_ORDER + 1):
        pairs = list(links.open)
        for position, pair in enumerate(pairs):
            for given in links.sets(pair, order):
                if not questions.fills(given):
                    continue
                reply = yield questions.ask((*pair, given))
                if reply is None:
                    return SieveOutcome(
                        links,
                        tuple(
                            _unasked(
                                links, questions, pairs[: position + 1], order, pairs[position:]
                            )
                        ),
                    )
                if separated(reply):
                    links.separate(pair, given)
                    break
                if reply.above and strength is not None:
                    links.examined(pair, strength(reply))
    return SieveOutcome(links, ())


def _unasked(
    links: Links, questions: Questions, done: Iterable[Pair], order: int, rest: Iterable[Pair]
) -> Iterable[Pair]:
    """Linked pairs with a question left.

    These are the pairs of `rest`, not finished in this order, and those of `done` with sets of a
    higher order.
    """
    rest = list(rest)
    for pair in links.open:
        higher = (given for k in range(order + 1, MAX_ORDER + 1) for given in links.sets(pair, k))
        if pair in rest or any(questions.fills(given) for given in higher):
            yield pair


def run_search(
    strategy_of: Callable[[Knowledge, float, SparseVectorBudget], SieveStrategy],
    releaser: Releaser,
    settings: Graph,
    domain: Domain,
) -> Released[CausalGraph] | CausalGraph:
    """Release the transcript of a search and compute the graph from it.

    Nothing is released if the spec leaves no pair open. `strategy_of` makes the strategy from
    knowledge, level of a test and budget.

    Raises:
        SynthdpError: the plan has no sparse vector for a graph search.
    """
    knowledge = Knowledge.from_spec(settings, domain.names)
    if not knowledge.undecided_pairs():
        return CausalGraph.from_knowledge(knowledge, provenance="required")
    planned = releaser.plan.in_graph(PURPOSE, SparseVectorBudget)
    if planned is None:
        raise SynthdpError("the plan has no sieve for a graph search")
    strategy = strategy_of(knowledge, settings.level, planned)
    replies = releaser.release(planned.choose(strategy), purpose=graph_purpose(PURPOSE))

    def read(transcript: tuple[SparseVectorReply, ...]) -> CausalGraph:
        found: SieveOutcome = result_of(strategy, transcript)
        return graph_of(found.links, found.undecided, max_parents=settings.max_parents)

    return replies.map(read)


def sieve_start(
    budget_of: Callable[[float, float, float | None], SparseVectorBudget],
    *,
    passes: int,
    rate: float,
    examined: float,
) -> MechanismFactory:
    """A sparse vector of about Gaussian cost mu; the share `examined` of mu^2 goes to examining.

    A pass of small pure cost e weighs like a Gaussian of mu = e, and sampling costs about its rate.
    Threshold and query share a pass as 1 : 2^(2/3) (Lyu, Su and Li, arXiv:1603.01699v4, Section
    4.2).
    """

    def start(mu: float) -> SparseVectorBudget:
        per_pass = mu * math.sqrt((1 - examined) / passes)
        unsampled = math.log1p(math.expm1(per_pass) / rate)
        threshold = unsampled / (1 + 2 ** (2 / 3))
        examine = math.sqrt(passes / examined) / mu if examined else None
        return budget_of(1 / threshold, 2 / (unsampled - threshold), examine)

    return start


# --- search ---
#
# Priv-PC, made sound: PC by sieve and examine.
#
# Source: Wang, Pang and Song, "Towards practical differentially private causal graph discovery"
# (2020), Algorithm 2. The differences from the paper, and their reasons, stand in
# `privacy.mechanisms.ranks` (sensitivities) and `privacy.mechanisms.private_search` (charges).
# Also, the bound is on the score itself and not on a p-value, and examined pairs are judged by z =
# score / sqrt(variance + noise^2), with ties taken into account.


PASSES_PER_PAIR = 1.0
"""Passes planned for each pair that the spec leaves open.

A separated pair takes one pass, and so does a false alarm.
"""
RATE = 1.0
"""Sampling rate of the rows that a pass looks at."""
EXAMINED = 0.5
"""Share of the budget for examining."""
TWEAK = 0.5
"""Slack of the sieve's bound above the test's, in standard deviations of the sieve's noise.

With it, few independent pairs go undetected.
"""
MARGIN = 0.1
"""Effect below which a pair counts as independent."""


def _priv_pc_spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    passes = round(
        PASSES_PER_PAIR * len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    )
    if not passes:
        return {}
    budget = partial(SparseVectorBudget, domain, "kendall", passes, RATE, rows)
    return {PURPOSE: sieve_start(budget, passes=passes, rate=RATE, examined=EXAMINED)}


def priv_pc(knowledge: Knowledge, level: float, budget: SparseVectorBudget) -> SieveStrategy:
    """PC that separates a pair where neither the sieve nor the examined test finds dependence."""
    rows, noise = budget.rows * budget.rate, budget.sieve_deviation
    sampled = Questions.at_level(
        budget.domain, budget.test, rows=rows, level=level, noise=0.0, slack=TWEAK * noise
    )

    def examined(reply: SparseVectorReply) -> Answer:
        return noisy_rank_answer(
            reply.score,
            reply.variance,
            noise=budget.examine_deviation,
            rows=budget.rows,
            level=level,
            margin=MARGIN,
        )

    def separated(reply: SparseVectorReply) -> bool:
        return reply.above and examined(reply).verdict != "dependent"

    return partial(pc_search, knowledge, sampled, separated, lambda reply: examined(reply).effect)


PRIV_PC = Algorithm(_priv_pc_spends, partial(run_search, priv_pc))


# --- search ---
#
# SVT-PC, made sound: PC by the sparse vector technique alone, a baseline of Priv-PC.
#
# The published code draws the threshold anew with Gaussian noise at a Laplace scale and charges
# nothing for the last pass; here every pass is a sparse vector of its own, planned and charged
# (`privacy.mechanisms.private_search`).


def _svt_pc_spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    # Each pass takes a pair out, so that the passes always suffice.
    passes = len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    if not passes:
        return {}
    budget = partial(SparseVectorBudget, domain, "kendall", passes, 1.0, rows)
    return {PURPOSE: sieve_start(budget, passes=passes, rate=1.0, examined=0.0)}


def svt_pc(knowledge: Knowledge, level: float, budget: SparseVectorBudget) -> SieveStrategy:
    """PC that separates a pair where the sparse vector finds no dependence."""
    questions = Questions.at_level(
        budget.domain, budget.test, rows=budget.rows, level=level, noise=budget.sieve_deviation
    )
    return partial(pc_search, knowledge, questions, _above)


def _above(reply: SparseVectorReply) -> bool:
    return reply.above


SVT_PC = Algorithm(_svt_pc_spends, partial(run_search, svt_pc))


# --- search ---
#
# EM-PC, made sound: choose privately how many links to delete, and then which, for each order.
#
# Source: Xu, Yuan and Wu, "Differential privacy preserving causal graph discovery" (2017). The
# paper's choice of separating sets is a maximum without noise; here a link and its separating set
# are chosen together, so that orientation uses released choices alone. The number of links to
# delete is chosen once per order, not once per column and order. The number of choices is fixed in
# the plan: one per order, and one per link that can be deleted.


SELECTION = "selection"
MAX_EM_ORDER = 2
"""Largest conditioning set. Every set of every linked pair is scored, which makes EM-PC slow."""


def _em_pc_spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    pairs = len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    if not pairs:
        return {}
    draws = pairs + MAX_EM_ORDER + 1
    # Many choices of small range r weigh like Gaussians of mu = r / 2
    # (`concentrated.bounded_range_pld`).
    return {
        SELECTION: lambda mu: SelectionBudget(
            domain, "kendall", draws, rows, noise=math.sqrt(draws) / mu
        )
    }


def _em_pc_search(
    releaser: Releaser, settings: Graph, domain: Domain
) -> Released[CausalGraph] | CausalGraph:
    knowledge = Knowledge.from_spec(settings, domain.names)
    if not knowledge.undecided_pairs():
        return CausalGraph.from_knowledge(knowledge, provenance="required")
    planned = releaser.plan.in_graph(SELECTION, SelectionBudget)
    if planned is None:
        raise SynthdpError("the plan has no selection for a graph search")
    own = em_pc(knowledge, settings.level, planned)
    chosen = releaser.release(planned.choose(own), purpose=graph_purpose(SELECTION))
    return chosen.map(
        lambda choices: graph_of(result_of(own, choices), (), max_parents=settings.max_parents)
    )


def em_pc(knowledge: Knowledge, level: float, budget: SelectionBudget) -> SelectionStrategy:
    """For each order: how many links to delete, then which, each with its separating set."""
    questions = Questions.at_level(
        budget.domain, budget.test, rows=budget.rows, level=level, noise=budget.deviation
    )
    return partial(deletions, knowledge, questions)


def deletions(
    knowledge: Knowledge, questions: Questions
) -> Generator[HowMany | Which, int | None, Links]:
    """The search. It never needs more requests than there are planned draws."""
    links = Links(knowledge)
    for order in range(MAX_EM_ORDER + 1):
        groups = {
            pair: tuple(
                questions.ask((*pair, given))
                for given in links.sets(pair, order)
                if questions.fills(given)
            )
            for pair in links.open
        }
        groups = {pair: queries for pair, queries in groups.items() if queries}
        if not groups:
            continue
        many = yield HowMany(tuple(groups.values()))
        for _ in range(many or 0):
            queries = tuple(query for group in groups.values() for query in group)
            which = yield Which(queries)
            if which is None:
                return links
            pair: Pair = (queries[which].x, queries[which].y)
            links.separate(pair, queries[which].given)
            del groups[pair]
    return links


EM_PC = Algorithm(_em_pc_spends, _em_pc_search)


# --- ranks ---
#
# The answer of a rank test within strata.
#
# Under independence a score is about normal with a known variance; released scores add their known
# noise. Effects are on the scale of a correlation, and for two columns of two levels Cohen's w:
# |score| / sqrt(variance * rows).


POWER = 0.8
"""Probability of detection that defines a detectable effect."""


def rank_answer(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """Answer from a score, its `variance` under independence and the deviation of its `noise`.

    `rows` is the number of rows of the score, `level` that of the two-sided test. An upper bound of
    the effect below `margin` counts as evidence for independence. The answer is undecided where the
    score has no spread.

    That bound is one-sided: a normal score of mean m and that deviation has |m| > |score| + z
    deviation only where it lies more than z deviations from m towards zero, which has probability
    at most `level` [derived here; the deviation is that under independence, so it holds for effects
    near zero, which are those that `margin` asks about].
    """
    if not variance > 0 or not rows > 0:
        return Answer("undecided", 1.0, 0.0, 0.0, math.inf, math.inf)
    deviation, per_effect = math.hypot(math.sqrt(variance), noise), math.sqrt(variance * rows)
    p_value = float(2 * norm.sf(abs(score) / deviation))
    upper = (abs(score) + float(norm.isf(level)) * deviation) / per_effect
    detectable = (float(norm.isf(level / 2)) + float(norm.isf(1 - POWER))) * deviation / per_effect
    verdict: Verdict = "undecided"
    if p_value <= level:
        verdict = "dependent"
    elif upper <= margin:
        verdict = "independent"
    return Answer(verdict, p_value, score / deviation, abs(score) / per_effect, upper, detectable)


def noisy_rank_answer(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """As `rank_answer`, for a score and a variance that are both released with Gaussian noise.

    `noise` is the standard deviation of the score's noise. A variance that noise has made negative
    counts as one row's worth.
    """
    return rank_answer(
        score, max(variance, 1.0), noise=noise, rows=rows, level=level, margin=margin
    )
