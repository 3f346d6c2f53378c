"""Marks of a search with noise, what the spec's knowledge adds, and what they refuse."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork, parse_bif
from synthdp.errors import OutputError, SynthdpError
from synthdp.graph import CausalGraph, GraphEdge, Knowledge, PagLink, Pair, adjustment
from synthdp.graph.chi_square import Answer
from synthdp.graph.discovery import Skeleton
from synthdp.graph.discovery.measured_pc import JOINT_SHARES, ROUND_SHARES, MeasurePlan, measured_pc
from synthdp.graph.discovery.orient import with_marks
from synthdp.sample import check_interventions
from synthdp.spec import Boolean
from synthdp.spec.model import Effect

LINKED = Answer("dependent", 1e-9, 90.0, 0.3, 0.4, 0.02)
APART = Answer("independent", 0.6, 0.1, 0.0, 0.05, 0.02)
OPEN = Answer("undecided", 0.2, 1.0, 0.0, 0.4, 0.3)


def marked(
    knowledge: Knowledge, linked: Iterable[Pair], answers: dict[Pair, Answer]
) -> dict[str, str]:
    """The links of a search of these answers, where each triple may be a v-structure."""
    pairs = set(linked) | knowledge.fixed
    evidence = {p: [((), answers.get(p, LINKED))] for p in knowledge.undecided_pairs}
    sure = [(a, b, c) for a in knowledge.columns for b in knowledge.columns for c in "abcd"]
    graph = CausalGraph(knowledge.columns)
    skeleton = Skeleton(frozenset(pairs), evidence)
    pag = with_marks(graph, skeleton, knowledge, sure, lambda _: "dependent").pag
    return {f"{link.a}{link.b}": str(link)[2:-2] for link in pag or ()}


def test_pairs_without_an_answer_direct_nothing() -> None:
    links, columns = [("a", "b"), ("b", "c")], Knowledge(("a", "b", "c"))
    assert marked(columns, links, {("a", "c"): APART}) == {"ab": "o->", "bc": "<-o"}
    assert marked(columns, links, {("a", "c"): OPEN}) == {"ab": "o-o", "bc": "o-o"}


def test_what_the_spec_knows() -> None:
    names, links = ("a", "b", "c"), [("a", "b"), ("b", "c"), ("a", "c")]
    assert marked(Knowledge(names, frozenset({("a", "b")})), links[1:], {})["ab"] == "-->"
    tiers = marked(Knowledge(names, tiers=(("a",), ("b", "c"))), links, {})
    assert tiers == {"ab": "o->", "ac": "o->", "bc": "o-o"}
    forbidden = Knowledge(names, forbidden=frozenset({("b", "a")}))
    assert marked(forbidden, links, {})["ab"] == "o-o", "b may be a cause of a through c"
    alone = marked(forbidden, links[:2], {("a", "c"): APART})
    assert alone["ab"] == "o->", "nothing leads from b to a"
    group = marked(Knowledge(names, groups={"g": ("a", "b")}), [("b", "c")], {("a", "c"): OPEN})
    assert group["ab"] == "o-o"
    shared = marked(Knowledge(names, latent=(("a", "b"),)), links[1:2], {("a", "c"): APART})
    assert shared["ab"] == "<->", "c lies behind b alone, and b has no arrow to a"


def test_nothing_is_said_where_the_spec_decides_all() -> None:
    known = Knowledge(("a", "b"), required=frozenset({("a", "b")}))
    graph = CausalGraph.from_knowledge(known, provenance="required")
    assert with_marks(graph, Skeleton(known.fixed, {}), known, (), lambda _: "dependent") is graph


# --- a search with noise ---


def hidden_cause() -> BayesianNetwork:
    """x -> a <- u -> b <- y, each of two levels."""
    names, parents = "xyuab", {"a": "xu", "b": "yu"}
    text = "network n { }\n"
    for n in names:
        text += f"variable {n} {{ type discrete [ 2 ] {{ s0, s1 }}; }}\n"
    for n in names:
        if n not in parents:
            text += f"probability ( {n} ) {{ table 0.5, 0.5; }}\n"
            continue
        rows = "".join(
            f"  (s{i}, s{j}) {0.9 - 0.35 * i - 0.35 * j:.2f}, {0.1 + 0.35 * i + 0.35 * j:.2f};\n"
            for i in (0, 1)
            for j in (0, 1)
        )
        text += f"probability ( {n} | {', '.join(parents[n])} ) {{\n{rows}}}\n"
    return parse_bif(text, file="hidden.bif")


@pytest.mark.parametrize("joint_cells", [4096, 1])
def test_a_search_with_noise_finds_two_arrowheads(
    measurer: Callable[..., Any], joint_cells: int
) -> None:
    """All draws are seeded."""
    net, rng = hidden_cause(), np.random.default_rng(3)
    whole = net.domain()
    kept = [i for i, name in enumerate(whole.names) if name != "u"]
    domain = type(whole)(tuple(whole.columns[i] for i in kept))
    codes = net.sample(100_000, rng=rng)[:, kept]
    shares = {**JOINT_SHARES, **ROUND_SHARES}
    found = []
    for unseen in (False, True):
        rng = np.random.default_rng(4)
        measure = measurer(codes, domain, shares=shares, epsilon=2.0, rng=rng)
        plan = MeasurePlan(joint_cells=joint_cells)
        found.append(measured_pc(measure, plan, domain, Knowledge(domain.names), unseen=unseen))
    plain, graph = found
    assert plain.pag is None and graph.edges == plain.edges, "the graph itself stays as it is"
    assert {str(link) for link in graph.pag or ()} == {"x o-> a", "y o-> b", "a <-> b"}
    assert CausalGraph.from_json(graph.to_json()) == graph
    assert "pag" not in plain.to_json()


# --- what is refused ---


def given(*arrows: str, pag: Iterable[PagLink]) -> CausalGraph:
    edges = tuple(GraphEdge(*a, directed=True, provenance="learned") for a in arrows)
    return CausalGraph(("a", "b", "c", "d"), edges, pag=tuple(pag))


KNOWN = PagLink("a", "b", "tail", "arrow")
SEEN = PagLink("b", "c", "tail", "arrow", visible=True)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (PagLink("b", "c", "arrow", "arrow"), "b <-> c"),
        (PagLink("b", "c", "circle", "arrow"), "b o-> c"),
        (PagLink("b", "c", "circle", "circle"), "b o-o c"),
        (PagLink("b", "c", "tail", "arrow"), "b --> c"),
        (PagLink("c", "b", "circle", "arrow"), "c o-> b"),
    ],
)
def test_an_intervention_that_an_unseen_cause_may_explain_is_refused(
    link: PagLink, words: str
) -> None:
    graph = given("ab", "bc", pag=[KNOWN, link])
    with pytest.raises(OutputError, match=f"may explain what b has in common.*{words}"):
        check_interventions(graph, ["b"])
    check_interventions(graph, ["d"])
    check_interventions(given("ab", "bc", pag=[KNOWN, SEEN]), ["b"])


def test_a_model_of_other_causes_is_refused() -> None:
    for graph in (given("bc", pag=[KNOWN, SEEN]), given("ab", "bc", "db", pag=[KNOWN, SEEN])):
        with pytest.raises(OutputError, match="draws b by other columns than its causes"):
            check_interventions(graph, ["b"])


def test_an_adjustment_says_that_it_may_be_confounded() -> None:
    effect = Effect(treated="b == 'yes'", outcome="c")
    columns = {"b": Boolean(type="boolean", false="no", true="yes")}
    seen, unseen = (given("ab", "bc", pag=[KNOWN, s]) for s in (SEEN, replace(SEEN, visible=False)))
    assert adjustment(effect, columns, seen) == (("a",), "")
    assert "unseen causes may confound" in adjustment(effect, columns, unseen)[1]


@pytest.mark.parametrize(
    "pag",
    [
        3,
        [3],
        [{"a": "a", "b": "b", "at_a": "tail"}],
        [{"a": "a", "b": "b", "at_a": "tail", "at_b": "point"}],
        [{"a": "a", "b": "a", "at_a": "tail", "at_b": "arrow"}],
        [{"a": "a", "b": "z", "at_a": "tail", "at_b": "arrow"}],
        [{"a": "a", "b": "b", "at_a": "circle", "at_b": "arrow", "visible": True}],
        [{"a": "a", "b": "b", "at_a": "tail", "at_b": "arrow", "visible": "yes"}],
        [KNOWN.to_json(), KNOWN.to_json()],
    ],
)
def test_what_is_no_pag_is_refused(pag: object) -> None:
    good = given("ab", pag=[KNOWN]).to_json()
    assert CausalGraph.from_json(good).pag == (KNOWN,)
    with pytest.raises(SynthdpError, match=r"pag|marks|link|visible"):
        CausalGraph.from_json(good | {"pag": pag})
