"""Marks of a partial ancestral graph hold of the truth, whatever columns are hidden."""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest

from synthdp.graph import Pag, Pair, unsettled
from synthdp.graph.chi_square import Query, Verdict
from synthdp.graph.discovery import orient as unseen_causes
from synthdp.graph.discovery.orient import Ask, Separators, orient

GRAPHS = 240


def pag_of(
    nodes: Iterable[str],
    links: Iterable[Pair],
    apart: Separators,
    ask: Ask,
    known: Iterable[Pair] = (),
) -> Pag:
    pag = Pag(nodes, links)
    for a, b in known:
        pag.put("tail", at=a, other=b)
        pag.put("arrow", at=b, other=a)
    orient(pag, apart, ask)
    return pag


def searched(dag: nx.DiGraph, seen: list[str]) -> tuple[list[Pair], Separators, Ask]:
    """Links, separating sets and perfect answers, by PC's questions of at most three columns."""

    @cache
    def ask(query: Query) -> Verdict:
        a, b, given = query
        return "independent" if nx.is_d_separator(dag, {a}, {b}, set(given)) else "dependent"

    links = {frozenset(pair) for pair in combinations(seen, 2)}
    apart: dict[frozenset[str], list[tuple[str, ...]]] = {}
    for order in range(4):
        near = {n: sorted({m for p in links if n in p for m in p} - {n}) for n in seen}
        for pair in sorted(map(sorted, links)):
            sets = [s for e in pair for s in combinations([*{*near[e]} - {*pair}], order)]
            a, b = pair
            found = [s for s in sorted({*sets}) if ask((a, b, s)) == "independent"]
            if found:
                apart[frozenset(pair)] = found[:1]
        links -= set(apart)
    return [(min(p), max(p)) for p in links], apart, ask


def learned(dag: nx.DiGraph, seen: list[str]) -> Pag:
    """The graph of perfect answers."""
    return pag_of(seen, *searched(dag, seen))


@cache
def drawn(seed: int) -> tuple[nx.DiGraph, list[str], list[Pair], Separators, Ask, list[Pair]]:
    """A random graph with one or two hidden nodes, the others, what is found of them, and causes
    that are known: all that no rule has a part in.
    """
    rng = np.random.default_rng(seed)
    names = [f"n{i}" for i in range(int(rng.integers(5, 10)))]
    dag = nx.DiGraph()
    dag.add_nodes_from(names)
    dag.add_edges_from(p for p in combinations(names, 2) if rng.random() < 2.6 / len(names))
    hidden = set(rng.choice(names, size=int(rng.integers(1, 3)), replace=False))
    seen = [str(n) for n in rng.permutation([n for n in names if n not in hidden])]
    links, apart, ask = searched(dag, seen)
    true = [(a, b) for p in links for a, b in (p, p[::-1]) if a in nx.ancestors(dag, b)]
    return dag, seen, links, apart, ask, [p for p in true if rng.random() < 0.3]


def cases() -> Iterator[tuple[nx.DiGraph, Pag, Separators]]:
    """Random graphs, and what perfect answers show of them."""
    for dag, seen, links, apart, ask, known in map(drawn, range(GRAPHS)):
        yield dag, pag_of(seen, links, apart, ask, known), apart


def errors() -> tuple[int, int]:
    """Marks, and those that are false of the true ancestors."""
    marks = false = 0
    for dag, pag, _ in cases():
        for a in pag.nodes:
            for b in pag.around[a]:
                mark = pag.mark(at=a, other=b)
                marks += mark != "circle"
                false += mark != "circle" and (mark == "tail") != (a in nx.ancestors(dag, b))
    return marks, false


def wrong_effects() -> tuple[int, int]:
    """Columns whose effects the graph settles, and those whose parents leave a back door open.

    Parents in the graph must block every path into the column in the truth (Pearl 2009, theorem
    3.3.2), to each other column.
    """
    settled = wrong = 0
    for dag, pag, apart in cases():
        links = pag.links(apart)
        for x in pag.nodes:
            if not pag.around[x] or unsettled(links, x):
                continue
            settled += 1
            parents = {n for n in pag.around[x] if pag.arrow(n, x)}
            cut = dag.copy()
            cut.remove_edges_from(list(dag.out_edges(x)))
            others = {*pag.nodes} - parents - {x}
            wrong += bool(parents & nx.descendants(dag, x)) or not all(
                nx.is_d_separator(cut, {x}, {v}, parents) for v in others
            )
    return settled, wrong


@pytest.mark.check
def test_every_mark_holds_on_random_graphs_with_hidden_columns() -> None:
    marks, false = errors()
    assert marks > 500 and false == 0, (marks, false)


@pytest.mark.check
def test_what_is_settled_leaves_no_back_door_open() -> None:
    settled, wrong = wrong_effects()
    assert settled > 60 and wrong == 0, (settled, wrong)


@pytest.mark.check
def test_an_arrow_that_is_not_visible_leaves_one_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def arrow(pag: Pag, a: str, b: str, _: Separators) -> bool:
        return pag.arrow(a, b)

    monkeypatch.setattr(Pag, "visible", arrow)
    assert wrong_effects()[1] > 0


@pytest.mark.check
def test_r9_and_r10_find_marks_that_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    marks, _ = errors()
    monkeypatch.setattr(unseen_causes, "_led", lambda *_: ())
    assert errors()[0] < marks


def marks(rule: Any, pag: Pag, passing: Collection[tuple[str, str, str]] = ()) -> bool:
    """Whether a rule sets a mark."""
    found = rule(pag, passing)
    return any([pag.put(mark, at=at, other=other) for mark, at, other in found])


def test_a_way_around_of_triples_that_were_not_tested_leads_nowhere() -> None:
    """R9: a - b - d - c and a o-> c, where b and c are not linked, nor a and d."""
    links = [("a", "b"), ("b", "d"), ("d", "c"), ("a", "c")]
    passing = {("c", "a", "b"), ("a", "b", "d"), ("b", "d", "c")}
    both = passing | {triple[::-1] for triple in passing}
    pag = Pag("abcd", links)
    pag.put("arrow", at="c", other="a")
    for left in sorted(passing):
        assert not marks(unseen_causes._led, pag, both - {left, left[::-1]})
    assert marks(unseen_causes._led, pag, both) and pag.arrow("a", "c")


def test_two_ways_to_causes_make_a_cause() -> None:
    """R10: b -> c <- d, and b - a - d a non-collider."""
    pag = Pag("abcd", [("a", "b"), ("a", "d"), ("b", "c"), ("d", "c"), ("a", "c")])
    passing = {("b", "a", "d"), ("d", "a", "b")}
    for cause in "bd":
        assert not marks(unseen_causes._led, pag, passing)
        pag.put("tail", at=cause, other="c")
        pag.put("arrow", at="c", other=cause)
    assert marks(unseen_causes._led, pag, passing) and pag.mark(at="a", other="c") == "tail"


@pytest.mark.check
def test_a_broken_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def along(pag: Pag, passing: set[unseen_causes.Triple]) -> Any:
        return (("tail", b, c) for _, b, c in sorted(passing))

    monkeypatch.setattr(unseen_causes, "_along", along)
    assert errors()[1] > 0


def test_false_separating_sets_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = orient

    def blind(pag: Pag, apart: Separators, _: Ask) -> None:
        whole(pag, {pair: [()] for pair in apart}, lambda _: "dependent")

    monkeypatch.setitem(globals(), "orient", blind)
    assert errors()[1] > 0


def test_a_hidden_common_cause_has_two_arrowheads() -> None:
    """x -> a <- hidden -> b <- y: a <-> b, where a DAG would need an arrow."""
    dag = nx.DiGraph([("x", "a"), ("u", "a"), ("u", "b"), ("y", "b")])
    pag = learned(dag, ["x", "a", "b", "y"])
    assert pag.arrow_at("a", "b") and pag.arrow_at("b", "a")
    assert pag.mark(at="x", other="a") == "circle"


def test_a_chain_behind_a_collider_is_directed() -> None:
    dag = nx.DiGraph([("x", "a"), ("y", "a"), ("a", "b")])
    pag = learned(dag, ["x", "y", "a", "b"])
    assert pag.arrow("a", "b") and pag.mark(at="x", other="a") == "circle"


def test_what_no_answer_shows_stays_open() -> None:
    links, apart = [("a", "b"), ("b", "c")], {frozenset("ac"): [()]}
    pag = pag_of("abc", links, apart, lambda query: "undecided")
    assert {pag.mark(at=a, other=b) for a in "abc" for b in pag.around[a]} == {"circle"}


@pytest.mark.parametrize(
    ("rest", "marks"), [("dependent", ("tail", "arrow")), ("independent", ("circle", "circle"))]
)
def test_a_set_with_a_member_too_many_directs_nothing(
    rest: Verdict, marks: tuple[str, str]
) -> None:
    """x -> b <- y would make b -> c of a set that holds b without need."""

    def ask(query: Query) -> Verdict:
        return rest if query == ("c", "x", ()) else "dependent"

    links = [("x", "b"), ("y", "b"), ("b", "c")]
    pag = pag_of("xybc", links, {frozenset("xy"): [()], frozenset("xc"): [("b",)]}, ask)
    assert (pag.mark(at="b", other="c"), pag.mark(at="c", other="b")) == marks


def test_arrows_close_triangles() -> None:
    """R2, R8 and R3 of marks that are there."""
    pag = Pag("abc", combinations("abc", 2))
    for tail, head in ("ab", "bc"):
        pag.put("tail", at=tail, other=head)
        pag.put("arrow", at=head, other=tail)
    assert (
        marks(unseen_causes._closed, pag)
        and pag.arrow("a", "c")
        and not marks(unseen_causes._closed, pag)
    )
    pag = Pag("abcd", [(p[0], p[1]) for p in ("ab", "cb", "db", "ad", "cd")])
    pag.put("arrow", at="b", other="a")
    assert not marks(unseen_causes._between, pag, {("a", "d", "c")})
    pag.put("arrow", at="b", other="c")
    assert marks(unseen_causes._between, pag, {("a", "d", "c")}) and pag.arrow_at("b", "d")


def test_an_arrow_is_visible_by_a_pair_that_was_found_independent() -> None:
    """c o-> a -> b, and d <-> e where e is a cause of g and c o-> d."""
    pag = Pag("abcdeg", [("c", "a"), ("a", "b"), ("c", "d"), ("d", "e"), ("e", "g"), ("d", "g")])
    for tail, head in ("ab", "eg", "dg"):
        pag.put("tail", at=tail, other=head)
        pag.put("arrow", at=head, other=tail)
    pag.put("arrow", at="a", other="c")
    for at, other in ("dc", "de", "ed"):
        pag.put("arrow", at=at, other=other)
    assert pag.visible("a", "b", {frozenset("cb")}) and not pag.visible("a", "b", set())
    assert pag.visible("e", "g", {frozenset("cg")}) and not pag.visible("e", "g", set())
    assert not pag.visible("b", "a", {frozenset("cb")})
