"""PC by rank statistics: Priv-PC, SVT-PC and EM-PC, made sound, on one search engine.

Rank statistics read the order of levels, so a column must be ordered or have two levels. A search
asks about a pair given other columns only where the declared rows fill the strata. A question that
is not asked separates nothing.

Priv-PC: Wang, Pang and Song, "Towards practical differentially private causal graph discovery"
(2020), Algorithm 2: PC by sieve and examine. The differences from the paper, and their reasons,
stand in `privacy.mechanisms.ranks` (sensitivities) and `privacy.mechanisms.private_search`
(charges). Also, the bound is on the score itself and not on a p-value, and examined pairs are
judged by z = score / sqrt(variance + noise^2), with ties taken into account.

SVT-PC: PC by the sparse vector technique alone, the same paper's baseline. The published code draws
the threshold anew with Gaussian noise at a Laplace scale and charges nothing for the last pass;
here every pass is a sparse vector of its own, planned and charged.

EM-PC: Xu, Yuan and Wu, "Differential privacy preserving causal graph discovery" (2017): for each
order, how many links to delete, and then which. The paper's choice of separating sets is a maximum
without noise; here a link and its separating set are chosen together, so that orientation uses
released choices alone. The number of links to delete is chosen once per order, not once per column
and order. The number of choices is fixed in the plan: one per order, and one per link that can be
deleted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from scipy.stats import norm

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph import discovery as pc
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import POWER, Answer, Query, Verdict
from synthdp.graph.knowledge import Knowledge, Pair, oriented, unshielded
from synthdp.privacy.mechanisms import private_search as private
from synthdp.privacy.mechanisms.private_search import SparseVectorBudget, SparseVectorReply
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankQuery, RankTest, variance_floor
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph


@dataclass(frozen=True)
class RankSettings:
    """Tuning of the searches.

    `max_order`: largest conditioning set; `max_em_order`: that of EM-PC, which scores every set of
    every linked pair, and is slow; `rows_per_stratum`: a question is asked if there are so many
    declared rows per stratum; `min_weight`: share of its weight without strata that a separating
    test must have. Of Priv-PC: `examined`: share of the budget for examining; `tweak`: slack of the
    sieve's bound above the test's, in standard deviations of the sieve's noise, with which few
    independent pairs go undetected; `margin`: effect below which a pair counts as independent.
    """

    max_order: int = 3
    max_em_order: int = 2
    rows_per_stratum: int = 20
    min_weight: float = 0.5
    examined: float = 0.5
    tweak: float = 0.5
    margin: float = 0.1


SETTINGS = RankSettings()


@dataclass(frozen=True)
class Questions:
    """Questions about `rows` declared rows.

    A pair counts as independent if its score is within so many standard deviations as the two-sided
    normal quantile of `level` says, plus `slack`. `noise` is the standard deviation of what is
    added to the answer; it widens the test like any other spread of the score.
    """

    domain: Domain
    test: RankTest
    _: KW_ONLY
    rows: float
    level: float
    noise: float
    slack: float = 0.0

    def fills(self, given: Iterable[str]) -> bool:
        """Whether the declared rows fill the strata."""
        strata = math.prod(self.domain[n].levels for n in given)
        return strata * SETTINGS.rows_per_stratum <= self.rows

    def ask(self, query: Query) -> RankQuery:
        critical = float(norm.isf(self.level / 2))
        spare = max(self.noise**2, variance_floor(self.test, critical))
        weight = SETTINGS.min_weight * STATISTICS[self.test].per_row * self.rows
        return RankQuery(*query, critical, spare, self.slack, weight)


@dataclass
class Links:
    """The working skeleton of a search.

    `open` holds the pairs that are still linked, `separators` the set that separated each other
    pair, and `undecided` the pairs with open questions when the budget was used up.
    """

    knowledge: Knowledge

    def __post_init__(self) -> None:
        self.open: dict[Pair, None] = dict.fromkeys(self.knowledge.undecided_pairs)
        self.separators: dict[Pair, tuple[str, ...]] = {}
        self.undecided: tuple[Pair, ...] = ()
        self._strength: dict[Pair, float] = {}
        links, columns = {*self.open, *self.knowledge.fixed}, self.knowledge.columns
        self._near = {
            a: [b for b in columns if (a, b) in links or (b, a) in links] for a in columns
        }

    def sets(self, pair: Pair, order: int) -> Iterator[tuple[str, ...]]:
        """Conditioning sets of one order, from the present neighbours of either end."""
        ends = ([n for n in self._near[a] if n != b] for a, b in (pair, pair[::-1]))
        return pc.unique_subsets(ends, order)

    def examined(self, pair: Pair, strength: float) -> None:
        """Record the strength that a released score shows of a pair that stays linked."""
        self._strength[pair] = min(strength, self.strength(*pair))

    def strength(self, a: str, b: str) -> float:
        """Least strength released of a link; infinite if only "dependent" was ever released."""
        return self._strength.get((a, b), self._strength.get((b, a), math.inf))

    def separate(self, pair: Pair, given: tuple[str, ...]) -> None:
        a, b = pair
        del self.open[pair]
        self.separators[pair] = given
        self._near[a].remove(b)
        self._near[b].remove(a)


def graph_of(links: Links, *, max_parents: int) -> CausalGraph:
    """The graph of a skeleton: v-structures from the separating sets, then Meek's rules.

    Undecided pairs are listed as such, outside the structure. A column with more than
    `max_parents` parents loses its weakest learned links. Links without a released strength count
    as strongest, and among equals the last columns go.
    """
    knowledge, unclear = links.knowledge, dict.fromkeys(links.undecided)
    rank = {n: i for i, n in enumerate(knowledge.columns)}

    def collides(a: str, b: str, c: str) -> bool:
        given = links.separators.get((a, c), links.separators.get((c, a)))
        return given is not None and b not in given

    def strength(a: str, b: str) -> tuple[float, int] | None:
        return None if (a, b) in knowledge.fixed else (links.strength(a, b), -rank[a])

    # A pair without an answer may be linked, and one without a test has no separating set. Neither
    # shows that a triple is unshielded.
    graph = oriented(
        knowledge,
        [p for p in links.open if p not in unclear],
        lambda graph: [t for t in unshielded(graph) if collides(*t)],
        shielded=(*knowledge.untested, *unclear),
    )
    return pc.reading(graph, knowledge, unclear=unclear, strength=strength, max_parents=max_parents)


def pc_search(
    knowledge: Knowledge,
    questions: Questions,
    separated: Callable[[SparseVectorReply], bool] = lambda reply: reply.above,
    strength: Callable[[SparseVectorReply], float] | None = None,
) -> Generator[RankQuery, SparseVectorReply | None, Links]:
    """The original PC: by order, pair by pair and set by set, until one set separates.

    `strength` gives the strength of a link that was examined and stays. Where the passes are used
    up, linked pairs with a question left are undecided: those that are not finished in this order,
    and those with sets of a higher order.
    """
    links = Links(knowledge)
    for order in range(SETTINGS.max_order + 1):
        pairs = list(links.open)
        for position, pair in enumerate(pairs):
            for given in filter(questions.fills, links.sets(pair, order)):
                reply = yield questions.ask((*pair, given))
                if reply is None:
                    higher = range(order + 1, SETTINGS.max_order + 1)
                    links.undecided = tuple(
                        p
                        for p in links.open
                        if p in pairs[position:]
                        or any(questions.fills(s) for k in higher for s in links.sets(p, k))
                    )
                    return links
                if separated(reply):
                    links.separate(pair, given)
                    break
                if reply.above and strength is not None:
                    links.examined(pair, strength(reply))
    return links


def deletions(
    knowledge: Knowledge, questions: Questions
) -> Generator[private.HowMany | private.Which, int | None, Links]:
    """For each order: how many links to delete, then which, each with its separating set."""
    links = Links(knowledge)
    for order in range(SETTINGS.max_em_order + 1):
        sets = {p: list(filter(questions.fills, links.sets(p, order))) for p in links.open}
        groups = {
            p: tuple(questions.ask((*p, s)) for s in some) for p, some in sets.items() if some
        }
        if not groups:
            continue
        many = yield private.HowMany(tuple(groups.values()))
        for _ in range(many or 0):
            queries = tuple(query for group in groups.values() for query in group)
            which = yield private.Which(queries)
            if which is None:
                return links
            pair: Pair = (queries[which].x, queries[which].y)
            links.separate(pair, queries[which].given)
            del groups[pair]
    return links


def priv_pc(
    knowledge: Knowledge, level: float, budget: SparseVectorBudget
) -> private.SieveStrategy:
    """PC that separates a pair where neither the sieve nor the examined test finds dependence."""
    sampled = Questions(
        *(budget.domain, budget.test),
        rows=budget.rows * budget.rate,
        level=level,
        noise=0.0,
        slack=SETTINGS.tweak * budget.sieve_deviation,
    )
    examined = partial(
        noisy_rank_answer,
        noise=budget.examine_deviation,
        rows=budget.rows,
        level=level,
        margin=SETTINGS.margin,
    )
    return partial(
        pc_search,
        knowledge,
        sampled,
        lambda r: r.above and examined(r.score, r.variance).verdict != "dependent",
        lambda r: examined(r.score, r.variance).effect,
    )


def svt_pc(knowledge: Knowledge, level: float, budget: SparseVectorBudget) -> private.SieveStrategy:
    """PC that separates a pair where the sparse vector finds no dependence."""
    test, noise = (budget.domain, budget.test), budget.sieve_deviation
    questions = Questions(*test, rows=budget.rows, level=level, noise=noise)
    return partial(pc_search, knowledge, questions)


def em_pc(
    knowledge: Knowledge, level: float, budget: private.SelectionBudget
) -> private.SelectionStrategy:
    test, noise = (budget.domain, budget.test), budget.deviation
    questions = Questions(*test, rows=budget.rows, level=level, noise=noise)
    return partial(deletions, knowledge, questions)


def sieve_start(domain: Domain, pairs: int, rows: float, *, examined: float) -> MechanismFactory:
    """A sparse vector of about Gaussian cost mu; the share `examined` of mu^2 goes to examining.

    It has a pass for each open pair: a separated pair takes one, and so does a false alarm of
    Priv-PC; where nothing is examined each pass takes a pair out, so that they always suffice. A
    pass of small pure cost e weighs like a Gaussian of mu = e. Threshold and query share a pass as
    1 : 2^(2/3) (Lyu, Su and Li, arXiv:1603.01699v4, Section 4.2).
    """

    def start(mu: float) -> SparseVectorBudget:
        per_pass = mu * math.sqrt((1 - examined) / pairs)
        threshold = per_pass / (1 + 2 ** (2 / 3))
        examine = math.sqrt(pairs / examined) / mu if examined else None
        noise = (1 / threshold, 2 / (per_pass - threshold), examine)
        return SparseVectorBudget(domain, "kendall", pairs, 1.0, rows, *noise)

    return start


def selection_start(domain: Domain, pairs: int, rows: float) -> MechanismFactory:
    """Noisy maxima: many choices of small range r weigh like Gaussians of mu = r / 2
    (`concentrated.bounded_range_pld`).
    """
    draws = pairs + SETTINGS.max_em_order + 1
    return lambda mu: private.SelectionBudget(
        domain, "kendall", draws, rows, noise=math.sqrt(draws) / mu
    )


def _searching(
    purpose: str,
    kind: type[Any],
    start: Callable[[Domain, int, float], MechanismFactory],
    strategy_of: Callable[[Knowledge, float, Any], Any],
) -> pc.Algorithm:
    """The engine of all three: one planned spend of a `kind`, whose strategy finds the links."""

    def spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
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
        pairs = len(Knowledge.from_spec(settings, domain.names).undecided_pairs)
        return {purpose: start(domain, pairs, rows)} if pairs else {}

    def search(
        releaser: pc.Releaser, settings: Graph, domain: Domain, known: pc.KnownTables = None
    ) -> Released[CausalGraph] | CausalGraph:
        knowledge = Knowledge.from_spec(settings, domain.names)
        if not knowledge.undecided_pairs:
            return CausalGraph.from_knowledge(knowledge, provenance="required")
        planned = needed(releaser.plan.in_graph(purpose, kind), graph_purpose(purpose))
        strategy = strategy_of(knowledge, settings.level, planned)
        transcript: Released[Any] = releaser.release(
            planned.choose(strategy), purpose=graph_purpose(purpose)
        )
        return transcript.map(
            lambda replies: graph_of(
                private.result_of(strategy, replies), max_parents=settings.max_parents
            )
        )

    return pc.Algorithm(spends, search)


PRIV_PC = _searching(
    "search", SparseVectorBudget, partial(sieve_start, examined=SETTINGS.examined), priv_pc
)
SVT_PC = _searching("search", SparseVectorBudget, partial(sieve_start, examined=0.0), svt_pc)
EM_PC = _searching("selection", private.SelectionBudget, selection_start, em_pc)


def rank_answer(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """Answer of a rank test within strata.

    The test has a score, its `variance` under independence and the deviation of its `noise`; the
    score is then about normal. Effects are on the scale of a correlation, and for two columns of
    two levels Cohen's w: |score| / sqrt(variance * rows). `rows` is the number of rows of the
    score, `level` that of the two-sided test. An upper bound of the effect below `margin` counts as
    evidence for independence. The answer is undecided where the score has no spread.

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
    verdict: Verdict = "independent" if upper <= margin else "undecided"
    verdict = "dependent" if p_value <= level else verdict
    return Answer(verdict, p_value, score / deviation, abs(score) / per_effect, upper, detectable)


def noisy_rank_answer(score: float, variance: float, **settings: float) -> Answer:
    """As `rank_answer`, of a noisy variance: a negative one counts as one row's worth."""
    return rank_answer(score, max(variance, 1.0), **settings)
