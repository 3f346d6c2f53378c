"""Undecided is not absent: what a learned graph keeps of pairs that the search left open."""

from dataclasses import replace

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import Domain
from synthdp.errors import OutputError
from synthdp.graph import CausalGraph, GraphEdge, Knowledge, with_predictive_arrows
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.sample import check_interventions, intervention_warning
from synthdp.spec.model import Categorical, Graph

NAMES = ("a", "b", "c", "d")
ROWS = 10_000.0


def domain_of(names: tuple[str, ...] = NAMES) -> Domain:
    return Domain.from_spec(
        {n: Categorical(type="categorical", categories=("0", "1", "2")) for n in names}
    )


def open_pair(one: str, other: str) -> GraphEdge:
    return GraphEdge(one, other, directed=False, provenance="undecided")


def learned(cause: str, effect: str) -> GraphEdge:
    return GraphEdge(cause, effect, directed=True, provenance="learned")


def pair_table(one: str, other: str, dependence: float) -> NoisyTable:
    """Counts without noise, said to have noise of 10."""
    table: npt.NDArray[np.float64] = np.full((3, 3), 1 / 9) * (1 - dependence)
    table += np.eye(3) / 3 * dependence
    return NoisyTable((one, other), ROWS * table, 10.0)


def one_way(names: tuple[str, ...] = NAMES) -> list[NoisyTable]:
    return [NoisyTable((n,), np.full(3, ROWS / 3), 10.0) for n in names]


def kept(
    graph: CausalGraph, tables: list[NoisyTable], settings: Graph, targets: tuple[str, ...] = ()
) -> CausalGraph:
    knowledge = Knowledge.from_spec(settings, graph.nodes)
    domain = domain_of(graph.nodes)
    return with_predictive_arrows(
        graph, knowledge, domain, [*one_way(graph.nodes), *tables], targets
    )


LEARN = Graph(mode="learn")


def test_a_pair_whose_table_shows_a_dependence_becomes_an_arrow_that_predicts() -> None:
    graph = CausalGraph(NAMES, (open_pair("a", "b"), open_pair("a", "c"), open_pair("a", "d")))
    found = kept(graph, [pair_table("a", "b", 0.3), pair_table("a", "c", 0.0)], LEARN)
    assert found.edges == (
        GraphEdge("a", "b", directed=True, provenance="predictive"),
        open_pair("a", "c"),  # its table shows none
        open_pair("a", "d"),  # it has no table
    )
    assert found.parents("b") == ("a",) and found.parents("c") == ()


def test_arrows_follow_what_was_learned_tiers_and_targets() -> None:
    tables = [pair_table(*pair, 0.3) for pair in ("ab", "ac", "bc", "ad")]
    graph = CausalGraph(NAMES, (learned("c", "a"), open_pair("a", "b"), open_pair("b", "c")))
    found = set(kept(graph, tables, LEARN).directed)
    assert found == {("c", "a"), ("b", "c"), ("b", "a")}  # b comes first, and then c before a
    late = kept(graph, tables, LEARN, targets=("a",))
    assert late.is_dag and late.parents("a") == ("b", "c")
    tiers = Graph(mode="learn", tiers=(("d",), ("a", "b")))
    turned = kept(CausalGraph(NAMES, (open_pair("a", "d"),)), tables, tiers)
    assert turned.directed == (("d", "a"),)
    forbidden = Graph(mode="learn", forbidden=("a -> b",))
    assert kept(CausalGraph(NAMES, (open_pair("a", "b"),)), tables, forbidden).directed == ()


def test_a_column_has_so_many_predictors_at_most() -> None:
    names = (*(f"x{i:02d}" for i in range(27)), "y")
    graph = CausalGraph(names, tuple(open_pair(n, "y") for n in names[:-1]))
    strong = {n: 0.2 + 0.02 * i for i, n in enumerate(names[:-1])}
    found = kept(graph, [pair_table(n, "y", s) for n, s in strong.items()], LEARN)
    assert found.parents("y") == names[3:-1]  # those with the most evidence


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_undecided_no_cycle_comes_of_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(8)
    names = tuple("abcdefgh")
    edges, tables = [], []
    for i in range(8):
        for j in range(i):
            one, other = names[order[j]], names[order[i]]
            kind = rng.integers(4)
            if kind == 0:
                edges.append(learned(one, other))
            elif kind == 3 and seed % 2:
                edges.append(replace(learned(one, other), directed=False))
            elif kind == 1:
                edges.append(open_pair(*sorted((one, other))))
            tables.append(pair_table(one, other, 0.3))
    tiers = (tuple(names[k] for k in order[:3]), tuple(names[k] for k in order[5:]))
    graph = CausalGraph(names, tuple(edges))
    settings = Graph(mode="learn", tiers=tiers)
    found = kept(graph, tables, settings)
    knowledge = Knowledge.from_spec(settings, names)
    assert nx.is_directed_acyclic_graph(found.dag) and set(graph.dag.edges) <= set(found.dag.edges)
    assert found.undirected == graph.undirected and set(graph.directed) <= set(found.directed)
    assert all(knowledge.allows(*pair) for pair in set(found.directed) - set(graph.directed))
    assert not any({*e.pair} <= {*tiers[0]} for e in found.edges if not e.structural)


# --- interventions ---

MIXED = CausalGraph(
    NAMES,
    (
        learned("a", "b"),
        GraphEdge("b", "c", directed=True, provenance="predictive"),
        open_pair("a", "d"),
    ),
)


def test_an_intervention_that_rests_on_an_undecided_pair_is_refused() -> None:
    for column in ("a", "b", "c"):
        with pytest.raises(OutputError, match="left open whether one causes the other: b and c"):
            check_interventions(MIXED, [column])
    check_interventions(MIXED, [])
    check_interventions(MIXED, ["d"])
    assert intervention_warning(MIXED, ["a"]) is None  # it is refused
    told = intervention_warning(MIXED, ["d"])
    assert told is not None and "no answer on a and d" in told


def test_an_intervention_that_rests_on_an_unknown_direction_is_refused() -> None:
    """a - b, and c -> d beside it: whether a moves b nobody knows."""
    graph = CausalGraph(NAMES, (replace(learned("a", "b"), directed=False), learned("c", "d")))
    for column in ("a", "b"):
        with pytest.raises(OutputError, match="nothing shows which is the cause of a and b"):
            check_interventions(graph, [column])
    check_interventions(graph, ["c"])


def test_a_graph_that_only_predicts_has_nothing_to_intervene_on() -> None:
    graph = CausalGraph(NAMES, (GraphEdge("a", "b", directed=True, provenance="predictive"),))
    assert graph.predictive and not MIXED.predictive
    with pytest.raises(OutputError, match="predict, and are no causes"):
        check_interventions(graph, ["a"])


def test_arrows_that_were_given_need_no_answer_of_a_search() -> None:
    graph = CausalGraph(
        NAMES,
        (
            GraphEdge("a", "b", directed=True, provenance="undecided"),  # by a validation
            GraphEdge("c", "d", directed=True, provenance="given"),
        ),
    )
    for column in NAMES:
        check_interventions(graph, [column])
        assert intervention_warning(graph, [column]) is None
