"""Marks of a partial ancestral graph hold of the truth, whatever columns are hidden."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from synthdp.graph.ci_tests.answer import Query, Verdict
from synthdp.graph.pag import orient
from synthdp.graph.pag.marks import Pag
from synthdp.graph.pag.orient import pag_of

GRAPHS = 240


def learned(dag: nx.DiGraph, seen: list[str], most: int = 3) -> Pag:
    """The graph of perfect answers, by PC's questions of at most `most` columns."""

    def ask(query: Query) -> Verdict:
        a, b, given = query
        return "independent" if nx.is_d_separator(dag, {a}, {b}, set(given)) else "dependent"

    links = {frozenset(pair) for pair in combinations(seen, 2)}
    apart: dict[frozenset[str], tuple[str, ...]] = {}
    for order in range(most + 1):
        near = {n: sorted({m for p in links if n in p for m in p} - {n}) for n in seen}
        for pair in sorted(map(sorted, links)):
            sets = [s for e in pair for s in combinations([*{*near[e]} - {*pair}], order)]
            found = next((s for s in sorted(sets) if ask((*pair, s)) == "independent"), None)  # type: ignore[arg-type]
            if found is not None:
                apart[frozenset(pair)] = found
        links -= set(apart)
    return pag_of(seen, [tuple(sorted(p)) for p in links], apart, ask)  # type: ignore[misc]


def errors(seeds: range) -> tuple[int, int]:
    """Marks, and those that are false of the true ancestors, on random graphs with hidden nodes."""
    marks = false = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        names = [f"n{i}" for i in range(int(rng.integers(5, 10)))]
        dag = nx.DiGraph()
        dag.add_nodes_from(names)
        dag.add_edges_from(p for p in combinations(names, 2) if rng.random() < 2.6 / len(names))
        hidden = set(rng.choice(names, size=int(rng.integers(1, 3)), replace=False))
        pag = learned(dag, [str(n) for n in rng.permutation([n for n in names if n not in hidden])])
        for a in pag.nodes:
            for b in pag.around[a]:
                mark = pag.mark(at=a, other=b)
                marks += mark != "circle"
                false += mark != "circle" and (mark == "tail") != (a in nx.ancestors(dag, b))
    return marks, false


def test_every_mark_holds_on_random_graphs_with_hidden_columns() -> None:
    marks, false = errors(range(GRAPHS))
    assert marks > 500 and false == 0, (marks, false)


@pytest.mark.parametrize("broken", ["_collides", "_along"])
def test_a_broken_rule_is_seen(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def along(pag: Pag, passing: set[tuple[str, str, str]]) -> bool:
        return any([pag.put("tail", at=b, other=c) for _, b, c in sorted(passing)])

    wrong = along if broken == "_along" else lambda *_: True
    monkeypatch.setattr(orient, broken, wrong)
    assert errors(range(GRAPHS))[1] > 0


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
    links, apart = [("a", "b"), ("b", "c")], {frozenset("ac"): ()}
    pag = pag_of("abc", links, apart, lambda query: "undecided")
    assert {pag.mark(at=a, other=b) for a in "abc" for b in pag.around[a]} == {"circle"}


def test_a_set_with_a_member_too_many_directs_nothing() -> None:
    """x -> b <- y would make b -> c of a set that holds b without need."""
    links, apart = [("x", "b"), ("y", "b"), ("b", "c")], {frozenset("xy"): ()}
    marks = {}
    for rest in ("dependent", "independent"):
        asked = {("x", "c", ()): rest, ("c", "x", ()): rest}
        pag = pag_of(
            "xybc",
            links,
            apart | {frozenset("xc"): ("b",)},
            lambda q, a=asked: a.get(q, "dependent"),
        )
        marks[rest] = pag.mark(at="b", other="c"), pag.mark(at="c", other="b")
    assert marks == {"dependent": ("tail", "arrow"), "independent": ("circle", "circle")}


def test_arrows_close_triangles() -> None:
    """R2, R8 and R3 of marks that are there."""
    pag = Pag("abc", combinations("abc", 2))
    for tail, head in ("ab", "bc"):
        pag.put("tail", at=tail, other=head)
        pag.put("arrow", at=head, other=tail)
    assert orient._closed(pag) and pag.arrow("a", "c") and not orient._closed(pag)
    pag = Pag("abcd", ["ab", "cb", "db", "ad", "cd"])
    pag.put("arrow", at="b", other="a")
    assert not orient._between(pag, {("a", "d", "c")})
    pag.put("arrow", at="b", other="c")
    assert orient._between(pag, {("a", "d", "c")}) and pag.arrow_at("b", "d")
