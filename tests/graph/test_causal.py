"""The graph as a value: the spec's groups and arrows, what the graph implies, and its distances."""

import json

import networkx as nx
import numpy as np
import pytest

from synthdp.errors import SynthdpError
from synthdp.graph import CausalGraph, GraphEdge, Knowledge, arc_f1, difference
from synthdp.spec.model import Graph


def graph(nodes: str, *links: str) -> CausalGraph:
    """`graph("abc", "a>b", "b-c")`."""
    edges = tuple(GraphEdge(s[0], s[2], directed=s[1] == ">", provenance="given") for s in links)
    return CausalGraph(tuple(nodes), edges)


def test_groups_expand_to_a_complete_order_inside_and_to_every_column_outside() -> None:
    spec = Graph(edges=("q -> d",), groups={"q": ("a", "b", "c")})
    made = CausalGraph.from_spec(spec, "dcba")
    assert set(made.directed) == {
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("a", "d"),
        ("b", "d"),
        ("c", "d"),
    }
    assert made.parents("d") == ("c", "b", "a")
    assert made.order() == ("a", "b", "c", "d")


def test_provenance_follows_the_mode() -> None:
    given = CausalGraph.from_spec(Graph(edges=("a -> b",), groups={"g": ("c", "d")}), "abcd")
    learnt = CausalGraph.from_spec(
        Graph(mode="learn", edges=("a -> b",), groups={"g": ("c", "d")}), "abcd"
    )
    assert {e.pair: e.provenance for e in given.edges} == {("a", "b"): "given", ("c", "d"): "given"}
    assert {e.pair: e.provenance for e in learnt.edges} == {
        ("a", "b"): "required",
        ("c", "d"): "given",
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Graph(edges=("a -> b", "b -> c", "c -> a")), "cycle: a -> b -> c -> a"),
        (Graph(edges=("a -> x",)), "'x' is neither a column nor a group"),
        (Graph(edges=("a -> a",)), "a -> a is required, and forbidden"),
        (Graph(groups={"g": ("a", "x")}), "'x' is neither a column nor a group"),
        (Graph(edges=("a -> b",), tiers=(("b",), ("a",))), "a -> b is required, and forbidden"),
    ],
)
def test_contradictions_are_named(spec: Graph, words: str) -> None:
    with pytest.raises(SynthdpError, match=words):
        CausalGraph.from_spec(spec, "abc")


def test_knowledge_says_which_pairs_are_worth_paying_for() -> None:
    spec = Graph(
        edges=("a -> b",),
        forbidden=("c -> d", "d -> c"),
        tiers=(("a", "b"), ("c", "d")),
        groups={"g": ("e", "f")},
        latent=(("b", "e"),),
    )
    known = Knowledge.from_spec(spec, "abcdef")
    decided = {("a", "b"), ("c", "d"), ("e", "f"), ("b", "e")}
    assert (
        set(known.undecided_pairs)
        == {(a, b) for a in "abcdef" for b in "abcdef" if a < b} - decided
    )
    assert known.allows("a", "c") and not known.allows("c", "a") and not known.allows("b", "a")


def test_d_separation_sees_colliders_and_latent_causes() -> None:
    plain = graph("abc", "a>b", "c>b")
    assert plain.d_separated("a", "c") and not plain.d_separated("a", "c", ["b"])
    hidden = CausalGraph(plain.nodes, plain.edges, latent=(("a", "c"),))
    assert not hidden.d_separated("a", "c")
    assert plain.separator("a", "c") == () and hidden.separator("a", "c") is None


def test_extension_adds_no_v_structure_and_keeps_the_class() -> None:
    for seed in range(30):
        dag = random_dag(8, 0.35, np.random.default_rng(seed))
        edges = (
            GraphEdge(*arrow, directed=True, provenance="given") for arrow in dag.cpdag().dag.edges
        )
        extended = CausalGraph(dag.nodes, tuple(edges))
        assert extended.is_dag
        assert difference(extended.cpdag(), dag.cpdag()).distance == 0


def test_an_extension_without_a_consistent_one_is_still_a_dag() -> None:
    cycle = graph(
        "abcd", "a-b", "b-c", "c-d", "d-a"
    )  # chordless: any orientation makes a v-structure
    assert nx.is_directed_acyclic_graph(cycle.dag) and len(cycle.dag.edges) == 4


def random_dag(size: int, density: float, rng: np.random.Generator) -> CausalGraph:
    names = [f"n{i}" for i in rng.permutation(size)]
    edges = [
        GraphEdge(a, b, directed=True, provenance="given")
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if rng.random() < density
    ]
    return CausalGraph(tuple(sorted(names)), tuple(edges))


def test_cpdag_of_a_chain_is_undirected_and_of_a_collider_is_not() -> None:
    assert set(graph("abc", "a>b", "b>c").cpdag().undirected) == {("a", "b"), ("b", "c")}
    collider = graph("abcd", "a>b", "c>b", "b>d").cpdag()
    assert set(collider.directed) == {("a", "b"), ("c", "b"), ("b", "d")} and collider.is_dag


def test_distances_in_closed_cases() -> None:
    truth = graph("abcd", "a>b", "c>b", "b-d")
    assert difference(truth, truth).distance == 0 and arc_f1(truth, truth) == 1
    found = graph("abcd", "b>a", "b-c", "a-d")
    assert difference(found, truth).distance == 4
    # arcs found: ba, bc, cb, ad, da; true: ab, cb, bd, db; one in common
    assert arc_f1(found, truth) == pytest.approx(2 * 1 / (5 + 4))
    assert arc_f1(graph("ab"), graph("ab")) == 1 and arc_f1(graph("ab"), graph("ab", "a-b")) == 0


def test_pairs_without_an_answer_are_no_part_of_the_graph() -> None:
    unclear = CausalGraph(
        ("a", "b"), (GraphEdge("a", "b", directed=False, provenance="undecided"),)
    )
    assert unclear.open_pairs == (("a", "b"),)
    assert unclear.undirected == ()
    assert unclear.parents("b") == ()
    weak = CausalGraph(("a", "b"), (GraphEdge("a", "b", directed=True, provenance="undecided"),))
    assert weak.parents("b") == ("a",)


def test_json_round_trip_and_refusal() -> None:
    made = CausalGraph.from_spec(
        Graph(edges=("q -> d",), groups={"q": ("a", "b")}, latent=(("c", "d"),)), "abcd"
    )
    assert CausalGraph.from_json(json.loads(json.dumps(made.to_json()))) == made
    for broken in (
        {},
        {**made.to_json(), "edges": [{"from": "a"}]},
        {**made.to_json(), "nodes": ["a"]},
    ):
        with pytest.raises(SynthdpError):
            CausalGraph.from_json(broken)
    with pytest.raises(SynthdpError, match="provenance is one of"):
        CausalGraph.from_json(
            {
                **made.to_json(),
                "edges": [{"from": "a", "to": "b", "directed": True, "provenance": "guessed"}],
            }
        )


def test_double_links_are_refused() -> None:
    with pytest.raises(SynthdpError, match="a and b"):
        graph("ab", "a>b", "a-b")


def test_the_probability_of_a_link_is_kept_and_checked() -> None:
    link = GraphEdge("a", "b", directed=False, provenance="learned", probability=0.95)
    made = CausalGraph(("a", "b"), (link,))
    told = made.to_json()
    assert told["edges"][0]["probability"] == 0.95
    assert CausalGraph.from_json(told) == made
    told["edges"][0]["probability"] = 2
    with pytest.raises(SynthdpError, match="not a probability"):
        CausalGraph.from_json(told)
