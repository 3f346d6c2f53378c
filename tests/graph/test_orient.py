"""Search and orientation: with a perfect test PC finds the true CPDAG; each of Meek's rules does
its work.
"""

import numpy as np
import pytest

from synthdp.graph import (
    CausalGraph,
    GraphEdge,
    Knowledge,
    Pdag,
    colliders,
    difference,
    meek,
    orient_colliders,
)
from tests.graph.oracle import oracle_pc


def random_dag(size: int, density: float, rng: np.random.Generator) -> CausalGraph:
    names = [f"n{i}" for i in rng.permutation(size)]
    edges = [
        GraphEdge(a, b, directed=True, provenance="given")
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if rng.random() < density
    ]
    return CausalGraph(tuple(sorted(names)), tuple(edges))


def pc_with_oracle(dag: CausalGraph, knowledge: Knowledge) -> Pdag:
    return oracle_pc(dag, knowledge).pdag()


@pytest.mark.parametrize("seed", range(10))
def test_tiers_only_add_true_directions(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    dag = random_dag(7, 0.4, rng)
    order = dag.order()
    found = pc_with_oracle(dag, Knowledge(dag.nodes, tiers=(order[:3], order[3:])))
    assert set(found.directed()) <= set(dag.directed)
    assert set(found.directed()) >= set(dag.cpdag().directed)
    assert {(a, b) for a, b in dag.directed if a in order[:3] and b in order[3:]} <= set(
        found.directed()
    )


def test_a_full_order_in_tiers_gives_the_dag() -> None:
    dag = random_dag(7, 0.5, np.random.default_rng(5))
    found = pc_with_oracle(dag, Knowledge(dag.nodes, tiers=tuple((n,) for n in dag.order())))
    assert set(found.directed()) == set(dag.directed) and not found.undirected()


def test_required_arrows_stay_and_spread() -> None:
    dag = CausalGraph(
        tuple("abc"),
        tuple(GraphEdge(x, y, directed=True, provenance="given") for x, y in ("ab", "bc")),
    )
    found = pc_with_oracle(dag, Knowledge(tuple("abc"), required=frozenset({("a", "b")})))
    assert found.directed() == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize(
    ("directed", "undirected", "expected"),
    [
        (["ca"], ["ab"], {("c", "a"), ("a", "b")}),  # rule 1
        (["ac", "cb"], ["ab"], {("a", "c"), ("c", "b"), ("a", "b")}),  # rule 2
        (["cb", "db"], ["ab", "ac", "ad"], {("c", "b"), ("d", "b"), ("a", "b")}),  # rule 3
        (["dc", "cb"], ["ab", "ad", "ac"], {("d", "c"), ("c", "b"), ("a", "b")}),  # rule 4
        ([], ["ab", "bc"], set()),
    ],
)
def test_each_of_meeks_rules(
    directed: list[str], undirected: list[str], expected: set[tuple[str, str]]
) -> None:
    graph = Pdag(
        "abcd", directed=[(x, y) for x, y in directed], undirected=[(x, y) for x, y in undirected]
    )
    meek(graph)
    assert set(graph.directed()) == expected


def test_a_v_structure_against_knowledge_is_left_out_whole() -> None:
    graph = Pdag("abc", undirected=[("a", "b"), ("b", "c")])
    orient_colliders(
        graph, [("a", "b", "c")], Knowledge(tuple("abc"), forbidden=frozenset({("a", "b")}))
    )
    assert graph.directed() == []
    orient_colliders(graph, [("a", "b", "c")], Knowledge(tuple("abc")))
    assert colliders(graph) == [("a", "b", "c")]


def test_no_orientation_closes_a_cycle() -> None:
    graph = Pdag("abc", directed=[("a", "b"), ("b", "c")], undirected=[("a", "c")])
    assert not graph.orient("c", "a") and graph.undirected() == [("a", "c")]
    assert graph.orient("a", "c")


def test_distance_of_equivalent_dags_is_zero_only_between_cpdags() -> None:
    one, other = (
        CausalGraph(tuple("ab"), (GraphEdge(x, y, directed=True, provenance="given"),))
        for x, y in ("ab", "ba")
    )
    assert (
        difference(one, other).distance == 1
        and difference(one.cpdag(), other.cpdag()).distance == 0
    )
