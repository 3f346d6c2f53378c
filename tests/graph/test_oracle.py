"""Perfect answers: PC then finds the true CPDAG of every network and random DAG, and with knowledge
or unseen causes only true arrows.
"""

import json
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.bif import BayesianNetwork
from synthdp.data import Domain
from synthdp.graph import (
    CausalGraph,
    GraphEdge,
    Knowledge,
    Links,
    Pdag,
    colliders,
    cpdag_of,
    difference,
    extend,
    find_graph,
    meek,
)
from synthdp.graph import graph_of as ranked_graph
from synthdp.graph.discovery import Releaser
from synthdp.spec.model import Categorical, Graph
from tests.graph.oracle import oracle_pc

NETWORKS = ("asia", "cancer", "earthquake", "survey", "sachs", "child", "alarm")
TRUTH: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "graphs.json").read_text()
)


def graph_of(
    names: Iterable[str],
    arrows: Iterable[tuple[str, str]],
    latent: tuple[tuple[str, ...], ...] = (),
) -> CausalGraph:
    return CausalGraph(
        tuple(names),
        tuple(GraphEdge(a, b, directed=True, provenance="given") for a, b in arrows),
        latent=latent,
    )


@st.composite
def random_dag(draw: st.DrawFn, most: int = 7) -> CausalGraph:
    names = [f"n{i}" for i in range(draw(st.integers(2, most)))]
    order = draw(st.permutations(names))
    return graph_of(names, [pair for pair in combinations(order, 2) if draw(st.booleans())])


@pytest.mark.check
@pytest.mark.parametrize("name", [*NETWORKS, pytest.param("win95pts", marks=pytest.mark.slow)])
def test_pc_finds_the_true_cpdag_of_every_network(
    name: str, network: Callable[[str], BayesianNetwork], figure: Callable[..., None]
) -> None:
    truth = network(name).graph()
    found = oracle_pc(
        truth, Knowledge(truth.nodes), max_order=max(len(truth.parents(n)) for n in truth.nodes)
    )
    known = TRUTH[name]
    assert {tuple(a) for a in known["directed"]} == set(found.directed)
    assert {frozenset(a) for a in known["undirected"]} == {frozenset(p) for p in found.undirected}
    assert difference(truth.cpdag(), found).distance == 0
    figure("networks whose equivalence class PC finds with perfect answers", 1, 1)


@pytest.mark.check
@settings(max_examples=80, deadline=None)
@given(random_dag())
def test_pc_finds_the_true_cpdag_of_random_dags(truth: CausalGraph) -> None:
    assert difference(oracle_pc(truth, Knowledge(truth.nodes)), truth.cpdag()).distance == 0


@settings(max_examples=60, deadline=None)
@given(random_dag(most=5))
def test_a_cpdag_is_what_all_equivalent_dags_share(truth: CausalGraph) -> None:
    """By brute force: every orientation of the skeleton without cycles and with the same
    v-structures.
    """
    pairs, wanted = [tuple(sorted(p)) for p in truth.directed], set(colliders(truth.pdag()))
    if len(pairs) > 8:
        return
    members = []
    for turns in np.ndindex(*(2,) * len(pairs)):
        arrows = [p if t else p[::-1] for p, t in zip(pairs, turns, strict=True)]
        if (
            nx.is_directed_acyclic_graph(nx.DiGraph(arrows))
            and set(colliders(Pdag(truth.nodes, directed=arrows))) == wanted
        ):
            members.append(set(arrows))
    assert set(truth.cpdag().directed) == (set.intersection(*members) if members else set())


@pytest.mark.parametrize("seed", range(40))
def test_the_stage_publishes_no_direction_that_the_class_leaves_open(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that is never wrong, as the graph stage hands it on."""
    rng = np.random.default_rng(seed)
    names = tuple(f"n{i}" for i in range(7))
    order, drawn = rng.permutation(7), rng.random((7, 7)) < 0.4
    arrows = [(names[order[i]], names[order[j]]) for j in range(7) for i in range(j) if drawn[i, j]]
    edges = (GraphEdge(*pair, directed=True, provenance="given") for pair in arrows)
    truth = CausalGraph(names, tuple(edges))

    class Search:
        def search(self, *_: object) -> CausalGraph:
            return oracle_pc(truth, Knowledge(names))

    monkeypatch.setattr("synthdp.graph.stage.algorithm_named", lambda _: Search())
    domain = Domain.from_spec(
        {n: Categorical(type="categorical", categories=("0", "1")) for n in names}
    )
    found = find_graph(cast("Releaser", None), Graph(mode="learn"), domain).graph
    assert set(found.directed) == set(truth.cpdag().directed)
    assert set(map(frozenset, found.undirected)) == set(map(frozenset, truth.cpdag().undirected))
    assert CausalGraph.from_json(found.to_json()) == found


# --- background knowledge ---


@pytest.mark.check
@settings(max_examples=80, deadline=None)
@given(random_dag(), st.data())
def test_knowledge_adds_true_arrows_and_never_a_false_one(
    truth: CausalGraph, data: st.DataObject
) -> None:
    order = truth.order()
    cut = data.draw(st.integers(0, len(order)))
    tiers = tuple(t for t in (order[:cut], order[cut:]) if t) if data.draw(st.booleans()) else ()
    required = frozenset(a for a in truth.directed if data.draw(st.integers(0, 3)) == 0)
    absent = [
        p
        for p in ((a, b) for a in truth.nodes for b in truth.nodes if a != b)
        if p not in truth.directed
    ]
    forbidden = frozenset(a for a in absent if data.draw(st.integers(0, 3)) == 0)
    knowledge = Knowledge(truth.nodes, required, forbidden, tiers)
    found = oracle_pc(truth, knowledge)
    assert {frozenset(e.pair) for e in found.edges} == {frozenset(p) for p in truth.directed}
    assert required <= set(found.directed) <= set(truth.directed)
    if not knowledge.untested:  # of a pair that is never tested nothing is learnt
        assert set(truth.cpdag().directed) <= set(found.directed)
    crossing = {
        (a, b)
        for a, b in truth.directed
        if tiers and len(tiers) == 2 and a in tiers[0] and b in tiers[1]
    }
    assert crossing | {(b, a) for a, b in forbidden if (b, a) in truth.directed} <= set(
        found.directed
    )


@settings(max_examples=60, deadline=None)
@given(random_dag(most=6))
def test_meeks_closure_with_required_arrows_is_what_all_members_share(truth: CausalGraph) -> None:
    """Completeness (Meek 1995, theorem 4): after rules 1 to 4 every undirected link can still point
    either way.
    """
    for pick in truth.cpdag().undirected[:3]:
        arrow = pick if pick in truth.directed else pick[::-1]
        closed = truth.cpdag().pdag()
        closed.orient(*arrow)
        meek(closed)
        for a, b in closed.undirected():
            for x, y in ((a, b), (b, a)):
                member = closed.copy()
                assert member.orient(x, y)
                meek(member)
                dag = extend(member)
                assert cpdag_of(dag).directed() == sorted(truth.cpdag().directed)
                assert y in dag.children[x]


def test_a_pair_that_the_spec_parts_is_not_tested_and_so_orients_nothing() -> None:
    """c -> a <- b, c - b forbidden: rule 1 would make a -> b of c -> a - b."""
    truth = graph_of("abcd", [("c", "a"), ("b", "a")])
    found = oracle_pc(
        truth,
        Knowledge(
            tuple("abcd"),
            required=frozenset({("c", "a")}),
            forbidden=frozenset({("b", "c"), ("c", "b")}),
        ),
    )
    assert found.directed == (("c", "a"),) and found.undirected == (("a", "b"),)


@pytest.mark.parametrize(
    ("forbidden", "unclear"),
    [(frozenset({("b", "c"), ("c", "b")}), ()), (frozenset(), (("b", "c"),))],
)
def test_searches_by_rank_orient_nothing_by_pairs_without_an_answer(
    forbidden: frozenset[tuple[str, str]], unclear: tuple[tuple[str, str], ...]
) -> None:
    """The same c -> a - b, where the search has no answer on c - b."""
    links = Links(Knowledge(tuple("abc"), required=frozenset({("c", "a")}), forbidden=forbidden))
    links.undecided = unclear
    found = ranked_graph(links, max_parents=6)
    assert found.directed == (("c", "a"),) and found.undirected == (("a", "b"),)


def test_groups_are_complete_inside_and_searched_outside() -> None:
    spec = Graph(mode="learn", groups={"g": ("a", "b")})
    truth = graph_of("abcd", [("a", "b"), ("a", "c"), ("b", "c"), ("d", "c")])
    found = oracle_pc(truth, Knowledge.from_spec(spec, "abcd"))
    assert {e.pair: e.provenance for e in found.edges}["a", "b"] == "given"
    assert set(found.directed) == set(truth.directed)


# --- unseen common causes ---


@pytest.mark.check
@settings(max_examples=120, deadline=None)
@given(random_dag(most=6), st.data())
def test_declared_unseen_causes_leave_only_true_arrows(
    dag: CausalGraph, data: st.DataObject
) -> None:
    linked = {frozenset(p) for p in dag.directed}
    free = [p for p in combinations(dag.nodes, 2) if frozenset(p) not in linked]
    latent = tuple(p for p in free if data.draw(st.integers(0, 2)) == 0)
    truth = graph_of(dag.nodes, dag.directed, latent)
    silent = {frozenset(p) for p in latent} | linked
    if any(
        truth.separator(a, b) is None
        for a, b in combinations(dag.nodes, 2)
        if frozenset((a, b)) not in silent
    ):
        # such a pair stays dependent whatever is conditioned on: no test can tell it from a link
        return
    found = oracle_pc(truth, Knowledge(dag.nodes, latent=latent))
    left = {frozenset(e.pair) for e in found.edges}
    assert left >= linked
    # PC conditions on neighbours alone. Where unseen causes hide the only separators further away
    # (FCI would look there), a link is left.
    assert not any(_separated_by_neighbours(truth, *sorted(pair), silent) for pair in left - linked)
    if left == linked:
        assert set(found.directed) <= set(truth.directed)


def _separated_by_neighbours(
    truth: CausalGraph, a: str, b: str, silent: set[frozenset[str]]
) -> bool:
    around = [
        [n for n in truth.nodes if n not in (a, b) and frozenset((n, end)) in silent]
        for end in (a, b)
    ]
    return any(
        truth.d_separated(a, b, some)
        for near in around
        for size in range(len(near) + 1)
        for some in combinations(near, size)
    )


def test_a_link_is_left_where_unseen_causes_put_all_separators_out_of_reach() -> None:
    """Of e and f, whose separators hold columns next to neither end alone; without the unseen
    causes PC finds the graph.
    """
    arrows = [
        ("c", "d"),
        ("c", "a"),
        ("c", "b"),
        ("c", "f"),
        ("d", "a"),
        ("d", "e"),
        ("d", "b"),
        ("a", "e"),
        ("b", "f"),
    ]
    unseen = (("a", "f"), ("b", "e"))
    truth, links = graph_of("abcdef", arrows, unseen), {frozenset(p) for p in arrows}
    assert truth.separator("e", "f") is not None
    assert not _separated_by_neighbours(truth, "e", "f", links)
    left = {
        frozenset(e.pair) for e in oracle_pc(truth, Knowledge(tuple("abcdef"), latent=unseen)).edges
    }
    assert left == links | {frozenset("ef")}
    seen = oracle_pc(graph_of("abcdef", arrows), Knowledge(tuple("abcdef")))
    assert {frozenset(e.pair) for e in seen.edges} == links


def test_a_triple_closed_by_an_unseen_cause_says_nothing_about_arrows() -> None:
    """c -> a <- b with c <-> b: were c and b taken as not adjacent, rule 1 would turn a - b into a
    -> b.
    """
    truth = graph_of("abcd", [("c", "a"), ("d", "a"), ("b", "a")], (("c", "b"),))
    found = oracle_pc(
        truth, Knowledge(tuple("abcd"), required=frozenset({("c", "a")}), latent=(("c", "b"),))
    )
    assert set(found.directed) == set(truth.directed)
    shut = Pdag("abc", directed=[("c", "a")], undirected=[("a", "b")], shielded=[("c", "b")])
    meek(shut)
    assert shut.undirected() == [("a", "b")]
    assert not colliders(Pdag("abc", directed=[("c", "a"), ("b", "a")], shielded=[("b", "c")]))


@settings(max_examples=60, deadline=None)
@given(random_dag(most=6), st.data())
def test_d_separation_with_unseen_causes_is_that_of_the_marginal_model(
    dag: CausalGraph, data: st.DataObject
) -> None:
    """A linear Gaussian model with the same causes: separated columns have zero partial covariance,
    others (almost surely) not.
    """
    latent = tuple(
        data.draw(
            st.lists(st.sampled_from(list(combinations(dag.nodes, 2))), max_size=2, unique=True)
        )
    )
    truth, rng = (
        graph_of(dag.nodes, dag.directed, latent),
        np.random.default_rng(data.draw(st.integers(0, 2**32))),
    )
    size = len(dag.nodes)
    weights = np.zeros((size + len(latent), size + len(latent)))
    place = {n: i for i, n in enumerate(dag.nodes)}
    for a, b in dag.directed:
        weights[place[b], place[a]] = rng.uniform(0.5, 1.5) * rng.choice([-1, 1])
    for i, names in enumerate(latent):
        for n in names:
            weights[place[n], size + i] = rng.uniform(0.5, 1.5) * rng.choice([-1, 1])
    spread = np.linalg.inv(np.eye(len(weights)) - weights)
    covariance = (spread @ spread.T)[:size, :size]
    for a, b in combinations(dag.nodes, 2):
        for order in range(3):
            for others in combinations([n for n in dag.nodes if n not in (a, b)], order):
                chosen = [place[n] for n in (a, b, *others)]
                precision = np.linalg.inv(covariance[np.ix_(chosen, chosen)])
                partial = abs(precision[0, 1]) / np.sqrt(precision[0, 0] * precision[1, 1])
                assert truth.d_separated(a, b, others) == (partial < 1e-9)
