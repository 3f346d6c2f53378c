"""PC for numeric columns from one noisy moment matrix (a sound form of RCIT and of PCD).

Sources: Strobl et al., arXiv:1702.03877v2 (RCIT); Zhang et al. 2023 (PCD). There are two planned
releases. Noisy one-way tables of the ranged columns turn every column into ranks on [-1, 1],
whatever its units and tails. The moment matrix is that of a polynomial basis of those ranks. Its
degree is a public constant, chosen by the noise that the plan can afford: noise below a fixed share
of a column's variance. All tests of PC-stable, of any order, and all orientation are
post-processing of the matrix.

A pair once found dependent is separated only by a test that explains half of the effect away, or
that could have seen the effect again. Discrete columns of few categories take part through
contrasts of their indicators.

With `graph.orient_share`, links between numbers that PC leaves undirected are oriented by private
additive noise models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from synthdp.data.basis import Basis
from synthdp.data.domain import Domain
from synthdp.data.scales import Scale, rank_scale
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.answer import Answer, Query
from synthdp.graph.ci_tests.rcit import MomentTests
from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.anm_direction import ORIENT, orient, turn
from synthdp.graph.discovery.colliders import surest_colliders, tested_triples
from synthdp.graph.discovery.reading import limit_parents, reading
from synthdp.graph.discovery.skeleton import Skeleton, Test, pc_skeleton, subsets_of_either
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Collider, Pdag, meek, orient_colliders, orient_known
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.moments import MomentMatrix, NoisyMoments
from synthdp.privacy.mechanisms.orientations import OrientationBudget
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

MARGINS, MOMENTS = "margins", "moments"  # names of what is planned
MARGINS_PART = 0.2
"""Share of the search's budget, in squared mu, for the one-way tables."""
AFFORDABLE: Mapping[int, float] = {2: 6e-3, 3: 5e-4}
"""Largest noise of an entry, as a share of a uniform column's variance, by degree of the basis.

With more noise, a basis of this degree is not worth it.
"""
MAX_TERMS = 400
"""Most functions of a basis of higher degree."""
DEVIATIONS = 2.0
"""The declared norm lies so many standard deviations above the mean of uniform columns.

Rows beyond it are scaled down.
"""
MAX_ORDER = 3
"""Largest conditioning set."""
COLLIDER_ORDER = 2
"""Largest conditioning set of the tests for v-structures."""
MARGIN = 0.1
"""Effect below which a pair counts as independent."""


def rcit_pc(
    moments: NoisyMoments, knowledge: Knowledge, *, level: float, max_parents: int
) -> CausalGraph:
    """The graph of a released moment matrix.

    Links are `learned`, or `undecided` and then outside the structure.
    """
    tests = MomentTests(moments)

    def test(order: int, queries: Sequence[Query]) -> Sequence[Answer]:
        return tests.answer(queries, level=level, margin=MARGIN)

    skeleton = pc_skeleton(test, knowledge, max_order=MAX_ORDER, separates=explains)
    rank = {n: i for i, n in enumerate(knowledge.columns)}
    links = sorted(skeleton.linked, key=lambda p: (rank[p[0]], rank[p[1]]))
    graph = Pdag(
        knowledge.columns, directed=knowledge.fixed, undirected=links, shielded=knowledge.untested
    )
    orient_known(graph, knowledge)
    orient_colliders(graph, _colliders(graph, skeleton, tests, level), knowledge)
    meek(graph, knowledge)
    return reading(graph, skeleton, knowledge, limit_parents(graph, skeleton.evidence, max_parents))


def explains(answer: Answer, evidence: Sequence[Test]) -> bool:
    """Whether an answer separates its pair.

    It must be not dependent, and either half of the marginal effect is gone or the test was sharp
    enough to see that effect.
    """
    if answer.verdict == "dependent":
        return False
    marginal = evidence[0][1]
    return (
        answer is marginal
        or answer.effect <= marginal.effect / 2
        or answer.detectable <= marginal.effect
    )


def _colliders(graph: Pdag, skeleton: Skeleton, tests: MomentTests, level: float) -> list[Collider]:
    """V-structures with enough evidence, the most certain first.

    More tests of the matrix cost nothing.
    """
    triples = tested_triples(graph, skeleton.evidence)
    queries = sorted({query for a, _, c in triples for query in _around(graph, (a, c))})
    answers = tests.answer(queries, level=level, margin=MARGIN)
    tried: dict[Pair, dict[tuple[str, ...], Answer]] = {}
    for (a, c, given), answer in zip(queries, answers, strict=True):
        tried.setdefault((a, c), {})[given] = answer
    return surest_colliders(triples, tried)


def _around(graph: Pdag, pair: Pair) -> list[Query]:
    """Queries of a pair given small sets of the neighbours of either end."""
    first, second = (graph.around(end) - set(pair) for end in pair)
    names = graph.ordered(first | second)
    queries: list[Query] = []
    for order in range(COLLIDER_ORDER + 1):
        queries += [(*pair, given) for given in subsets_of_either(names, first, second, order)]
    return queries


def planned_moments(domain: Domain, rows: float, mu: float) -> MomentMatrix:
    """The moment matrix that costs `mu`, of the highest degree that its noise allows.

    `rows` is the declared number of rows.
    """
    matrix = _moments(domain, 1, mu)
    for degree, limit in AFFORDABLE.items():
        # Products of all columns up to this degree, plus the constant.
        if math.comb(len(domain) + degree, degree) > MAX_TERMS:
            break
        richer = _moments(domain, degree, mu)
        if richer.sigma / (rows / 3) <= limit:
            matrix = richer
    return matrix


def _moments(domain: Domain, degree: int, mu: float) -> MomentMatrix:
    basis = Basis(domain, domain.names, degree=degree, interaction=degree)
    return MomentMatrix(basis, basis.norm(deviations=DEVIATIONS), 1 / mu)


def ranged_tables(domain: Domain) -> tuple[tuple[str], ...]:
    """One-way tables of the columns that are numbers or instants."""
    return tuple((c.name,) for c in domain.columns if c.ranged)


def _spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    tables = ranged_tables(domain)
    parts = {
        MARGINS: MARGINS_PART if tables else 0.0,
        ORIENT: settings.orient_share if len(tables) > 1 else 0.0,
    }
    rest = (1 - parts[MARGINS]) * (1 - parts[ORIENT])
    spends: dict[str, MechanismFactory] = {
        MOMENTS: lambda mu: planned_moments(domain, rows, mu * math.sqrt(rest))
    }
    if parts[MARGINS]:
        part = parts[MARGINS] * (1 - parts[ORIENT])
        spends = {
            MARGINS: lambda mu: NoisyMarginals(domain, tables, math.sqrt(len(tables) / part) / mu)
        } | spends
    if parts[ORIENT]:
        spends[ORIENT] = lambda mu: OrientationBudget(domain, 1 / (mu * math.sqrt(parts[ORIENT])))
    return spends


def _search(
    releaser: Releaser, settings: Graph, domain: Domain
) -> Released[CausalGraph] | CausalGraph:
    knowledge = Knowledge.from_spec(settings, domain.names)
    if not knowledge.undecided_pairs():
        return CausalGraph.from_knowledge(knowledge, provenance="required")
    learned = _measured(releaser, domain).map(
        lambda m: rcit_pc(m, knowledge, level=settings.level, max_parents=settings.max_parents)
    )
    pairs = [(a, b) for a, b in learned.value.undirected if domain[a].ranged and domain[b].ranged]
    if not pairs or ORIENT not in releaser.plan.graph:
        return learned
    readings = orient(releaser, pairs)
    return learned.zip(readings).map(
        lambda both: turn(both[0], list(chain.from_iterable(both[1])), knowledge)
    )


def _measured(releaser: Releaser, domain: Domain) -> Released[NoisyMoments]:
    """The moment matrix, of ranks where there are one-way tables to rank by."""
    planned = releaser.plan.in_graph(MOMENTS, MomentMatrix)
    if planned is None:
        raise SynthdpError("the plan has no moment matrix for algorithm rcit_pc")
    margins = releaser.plan.in_graph(MARGINS, NoisyMarginals)
    if margins is None:
        return releaser.release(planned, purpose=graph_purpose(MOMENTS))
    tables = releaser.release(margins, purpose=graph_purpose(MARGINS))
    scales: tuple[tuple[str, Scale], ...] = tuple(
        (t.columns[0], rank_scale(domain[t.columns[0]], t.counts)) for t in tables.value
    )
    moments = releaser.release(planned.with_scales(scales), purpose=graph_purpose(MOMENTS))
    return tables.zip(moments).map(lambda both: both[1])


RCIT_PC = Algorithm(_spends, _search)
