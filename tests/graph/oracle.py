"""PC with a perfect test: what any search could learn of a known graph, given the same background
knowledge.

The answers come from d-separation, unseen common causes included, instead of tables. Where all
causes are declared this finds the true CPDAG, closed under the knowledge; it is the mark that
searches on data are held against, and the check that skeleton and orientation are right.
"""

from collections.abc import Sequence

from synthdp.graph import (
    CausalGraph,
    GraphEdge,
    Knowledge,
    Pdag,
    meek,
    orient_colliders,
    orient_known,
    unshielded,
)
from synthdp.graph import chi_square as independence
from synthdp.graph.chi_square import Answer, Floats, Query
from synthdp.graph.discovery import CiTest, pc_skeleton


def chi_square(tables: Floats, sigma: Floats, *, level: float, margin: float) -> list[Answer]:
    """Chi-square tests of tables of one shape, as the search makes them."""
    mixture = independence.mixture_of(tables, sigma)
    return independence.answers(mixture, level=level, margin=margin)


def mantel_haenszel(
    tables: independence.Tables, *, level: float, margin: float, max_contrasts: int = 144
) -> list[Answer]:
    """Mantel-Haenszel tests of tables of one shape, as the search makes them."""
    mixture = independence.partial_mixture(tables, max_contrasts)
    return independence.answers(mixture, level=level, margin=margin)


def separation_test(truth: CausalGraph) -> CiTest:
    """A test that is never wrong about `truth`."""

    def answer(_: int, queries: Sequence[Query]) -> list[Answer]:
        return [
            Answer("independent", 1.0, 0.0, 0.0, 0.0, 0.0)
            if truth.d_separated(*q)
            else Answer("dependent", 0.0, 1.0, 1.0, 1.0, 0.0)
            for q in queries
        ]

    return answer


def oracle_pc(
    truth: CausalGraph, knowledge: Knowledge, *, max_order: int | None = None
) -> CausalGraph:
    """PC-stable (Colombo and Maathuis 2014) with perfect answers, and conditioning sets of at most
    `max_order` columns (default: any).
    """
    order = len(truth.nodes) if max_order is None else max_order
    skeleton = pc_skeleton(separation_test(truth), knowledge, max_order=order)
    graph = Pdag(
        knowledge.columns,
        directed=knowledge.fixed,
        undirected=sorted(skeleton.linked),
        shielded=knowledge.untested,
    )
    separators = {
        frozenset(pair): set(skeleton.separators(pair)[0][0])
        for pair in skeleton.evidence
        if pair not in skeleton.linked
    }
    found = [(a, b, c) for a, b, c in unshielded(graph) if b not in separators[frozenset((a, c))]]
    orient_known(graph, knowledge)
    orient_colliders(graph, found, knowledge)
    meek(graph, knowledge)
    learned = [
        GraphEdge(a, b, directed=True, provenance="learned")
        for a, b in graph.directed()
        if (a, b) not in knowledge.fixed
    ]
    learned += [
        GraphEdge(a, b, directed=False, provenance="learned") for a, b in graph.undirected()
    ]
    return CausalGraph.from_knowledge(knowledge, provenance="required", arrows=learned)
