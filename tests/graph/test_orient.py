"""Search and orientation: with a perfect test PC finds the true CPDAG; each of Meek's rules does
its work.
"""

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
