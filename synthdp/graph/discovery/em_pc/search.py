"""EM-PC, made sound: choose privately how many links to delete, and then which, for each order.

Source: Xu, Yuan and Wu, "Differential privacy preserving causal graph discovery" (2017). The
paper's choice of separating sets is a maximum without noise; here a link and its separating set are
chosen together, so that orientation uses released choices alone. The number of links to delete is
chosen once per order, not once per column and order. The number of choices is fixed in the plan:
one per order, and one per link that can be deleted.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from functools import partial

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.ranked import Links, Questions, check_ordered, graph_of
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.privacy.mechanisms.noisy_max import HowMany, SelectionBudget, Strategy, Which
from synthdp.privacy.mechanisms.strategy import result_of
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

PURPOSE = "selection"
MAX_ORDER = 2
"""Largest conditioning set. Every set of every linked pair is scored, which makes EM-PC slow."""


def _spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    check_ordered(domain)
    pairs = len(Knowledge.from_spec(settings, domain.names).undecided_pairs())
    if not pairs:
        return {}
    draws = pairs + MAX_ORDER + 1
    # Many choices of small range r weigh like Gaussians of mu = r / 2
    # (`concentrated.bounded_range_pld`).
    return {
        PURPOSE: lambda mu: SelectionBudget(
            domain, "kendall", draws, rows, noise=math.sqrt(draws) / mu
        )
    }


def _search(
    releaser: Releaser, settings: Graph, domain: Domain
) -> Released[CausalGraph] | CausalGraph:
    knowledge = Knowledge.from_spec(settings, domain.names)
    if not knowledge.undecided_pairs():
        return CausalGraph.from_knowledge(knowledge, provenance="required")
    planned = releaser.plan.in_graph(PURPOSE, SelectionBudget)
    if planned is None:
        raise SynthdpError("the plan has no selection for a graph search")
    own = strategy(knowledge, settings.level, planned)
    chosen = releaser.release(planned.choose(own), purpose=graph_purpose(PURPOSE))
    return chosen.map(
        lambda choices: graph_of(result_of(own, choices), (), max_parents=settings.max_parents)
    )


def strategy(knowledge: Knowledge, level: float, budget: SelectionBudget) -> Strategy:
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
    for order in range(MAX_ORDER + 1):
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


EM_PC = Algorithm(_spends, _search)
