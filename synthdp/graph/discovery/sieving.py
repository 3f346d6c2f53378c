"""PC that asks a sparse vector one question after another: what Priv-PC and SVT-PC share."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.algorithm import Releaser
from synthdp.graph.discovery.ranked import MAX_ORDER, Links, Questions, graph_of
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.privacy.mechanisms.conditional_counts import RankQuery
from synthdp.privacy.mechanisms.sparse_vector import SparseVectorBudget, SparseVectorReply, Strategy
from synthdp.privacy.mechanisms.strategy import result_of
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

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
    strategy_of: Callable[[Knowledge, float, SparseVectorBudget], Strategy],
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
