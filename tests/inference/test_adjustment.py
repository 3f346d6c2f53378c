"""Adjustment sets against the criterion's definition by paths, and against exact interventions."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import networkx as nx
import numpy as np
import pytest

from synthdp.errors import OutputError
from synthdp.graph import CausalGraph, GraphEdge, Knowledge, Provenance
from synthdp.inference import SETTINGS, Adjustment, Reading, choose, readings

NODES = ("t", "y", "a", "b", "c")
SIZES = dict.fromkeys("abc", 2)
SUBSETS = [frozenset(z) for k in range(4) for z in combinations("abc", k)]
Arrows = list[tuple[str, str]]


def graph_of(
    arrows: Arrows, latent: Sequence[tuple[str, str]] = (), provenance: Provenance = "given"
) -> CausalGraph:
    edges = (GraphEdge(a, b, directed=True, provenance=provenance) for a, b in arrows)
    return CausalGraph(NODES, tuple(edges), latent=tuple(latent))


def read(graph: CausalGraph, knowledge: Knowledge | None = None) -> list[Reading]:
    return readings(graph, knowledge or Knowledge(NODES), "t", "y", "abc")


def random_graphs(count: int, seed: int, unseen: int = 3) -> Iterator[tuple[Arrows, Arrows]]:
    """Arrows along a random order, and pairs with an unseen common cause."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        order = rng.permutation(NODES).tolist()
        arrows = [pair for pair in combinations(order, 2) if rng.random() < 0.5]
        pairs = list(combinations(NODES, 2))
        drawn = rng.choice(len(pairs), rng.integers(0, unseen + 1), replace=False)
        yield arrows, [pairs[i] for i in drawn]


# --- the definition, by paths in the graph with two-headed arrows ---


def paths(arrows: Arrows, latent: Arrows) -> Iterator[list[tuple[str, str, str]]]:
    """Every path from t to y as steps (node, kind, node); kinds are ->, <- and <->."""
    steps = [(a, "->", b) for a, b in arrows] + [(b, "<-", a) for a, b in arrows]
    steps += [s for a, b in latent for s in ((a, "<->", b), (b, "<->", a))]

    def walk(path: list[tuple[str, str, str]], seen: set[str]) -> Iterator[Any]:
        end = path[-1][2] if path else "t"
        if end == "y":
            yield path
            return
        for step in steps:
            if step[0] == end and step[2] not in seen:
                yield from walk([*path, step], seen | {step[2]})

    return walk([], {"t"})


def after(arrows: Arrows, name: str) -> set[str]:
    found = {name}
    while more := {b for a, b in arrows if a in found} - found:
        found |= more
    return found


def valid_by_paths(arrows: Arrows, latent: Arrows, z: frozenset[str]) -> bool:
    """The generalised adjustment criterion, word by word."""
    every = list(paths(arrows, latent))
    causal = [p for p in every if all(kind == "->" for _, kind, _ in p)]
    if any(z & after(arrows, node) for p in causal for _, _, node in p):
        return False

    def blocked(path: list[tuple[str, str, str]]) -> bool:
        for (_, first, node), (_, second, _) in pairwise(path):
            collider = first in ("->", "<->") and second in ("<-", "<->")
            if (not z & after(arrows, node)) if collider else node in z:
                return True
        return False

    return all(blocked(p) for p in every if p not in causal)


def test_sets_are_valid_as_the_definition_says() -> None:
    """400 graphs, 8 sets each; a set is chosen if and only if there is a valid one."""
    seen = {True: 0, False: 0}
    for arrows, latent in random_graphs(400, seed=1):
        (reading,) = read(graph_of(arrows, latent))
        truth = {z: valid_by_paths(arrows, latent, z) for z in SUBSETS}
        assert {z: reading.valid(z) for z in SUBSETS} == truth, (arrows, latent)
        try:
            (chosen,) = choose([reading], [], SIZES).sets
        except OutputError:
            assert not any(truth.values()), (arrows, latent)
        else:
            assert truth[frozenset(chosen)], (arrows, latent)
        for valid in truth.values():
            seen[valid] += 1
    assert min(seen.values()) > 500


def test_a_fault_names_an_open_path_or_what_follows() -> None:
    for arrows, latent in random_graphs(150, seed=2):
        (reading,) = read(graph_of(arrows, latent))
        for z in SUBSETS:
            if valid_by_paths(arrows, latent, z):
                assert reading.open_path(z) == [] or z & reading.forbidden
            elif z & reading.forbidden:
                assert "is part of its effect: t -> " in reading.fault(z)
            else:
                assert "this path stays open: t " in reading.fault(z), (arrows, latent, z)


# --- exact laws: the g-formula is the intervention, and only then ---


def law(arrows: Arrows, latent: Arrows, do: int | None, *, seed: int) -> Any:
    """The joint law of NODES, all binary, `[2] * 5`; of an intervention on t if `do` is given."""
    rng = np.random.default_rng(seed)
    unseen = [f"u{i}" for i in range(len(latent))]
    every = [*unseen, *NODES]
    parents = {n: [a for a, b in arrows if b == n] for n in NODES}
    for name, pair in zip(unseen, latent, strict=True):
        for end in pair:
            parents[end].append(name)
    whole = np.ones([2] * len(every))
    for name in every:
        known = parents.get(name, [])
        one = rng.uniform(0.1, 0.9, [2] * len(known))
        if name == "t" and do is not None:
            one = np.full(one.shape, float(do))
        table = np.stack([1 - one, one], axis=-1)
        axes = [every.index(n) for n in (*known, name)]
        order = np.argsort(axes)
        shape = [2 if i in axes else 1 for i in range(len(every))]
        whole = whole * table.transpose(order).reshape(shape)
    return whole.sum(axis=tuple(range(len(unseen))))


def standardised(joint: Any, z: frozenset[str], t: int) -> float:
    """sum_z p(z) p(y = 1 | t, z) of a joint law."""
    axes = tuple(i for i, n in enumerate(NODES) if n not in z and n not in "ty")
    joint = joint.sum(axis=axes).reshape(2, 2, -1)
    return float((joint.sum(axis=(0, 1)) * joint[t, 1] / joint[t].sum(axis=0)).sum())


def test_the_g_formula_over_a_valid_set_is_the_intervention() -> None:
    """300 models with unseen causes; over a set that is not valid it is something else."""
    apart = 0
    for model, (arrows, latent) in enumerate(random_graphs(300, seed=4)):
        (reading,) = read(graph_of(arrows, latent))
        seen = law(arrows, latent, None, seed=model)
        for t in (0, 1):
            truth = float(law(arrows, latent, t, seed=model).sum(axis=(2, 3, 4))[t, 1])
            for z in SUBSETS:
                error = abs(standardised(seen, z, t) - truth)
                assert (error < 1e-12) is reading.valid(z), (arrows, latent, z, error)
                apart += error > 0.01
    assert apart > 500  # wrong sets are wrong by much


# --- links without a direction ---


def test_undecided_pairs_may_point_either_way_or_be_absent() -> None:
    """The chosen set is valid in every graph that the open pairs allow, absent ones included."""
    found = 0
    for number, (arrows, latent) in enumerate(random_graphs(200, seed=5, unseen=1)):
        loose = arrows[: 1 + number % 3]
        rest = arrows[len(loose) :]
        edges = [GraphEdge(a, b, directed=True, provenance="given") for a, b in rest]
        kind: Provenance = "predictive" if number % 2 == 0 else "undecided"
        edges += [GraphEdge(*p, directed=kind == "predictive", provenance=kind) for p in loose]
        graph = CausalGraph(NODES, tuple(edges), latent=tuple(latent))
        try:
            made = choose(read(graph), [], SIZES)
        except OutputError:
            continue
        for turned in product(*([pair, pair[::-1], None] for pair in loose)):
            every = [*rest, *(pair for pair in turned if pair)]
            if nx.is_directed_acyclic_graph(nx.DiGraph(every)):
                holds = [valid_by_paths(every, latent, frozenset(z)) for z in made.sets]
                null = "y" not in after(every, "t")
                assert any(holds) or (made.none and null), (every, latent, made)
                assert len(made.sets) > 1 or made.none or all(holds)
        found += 1
    assert found > 50


def members(arrows: Arrows) -> Iterator[Arrows]:
    """All DAGs with the same links and v-structures."""

    def shape(directed: Arrows) -> set[Any]:
        links = {frozenset(pair) for pair in directed}
        return {
            (frozenset((a, c)), b)
            for a, b in directed
            for c, d in directed
            if b == d and a != c and frozenset((a, c)) not in links
        }

    for turned in product(*((pair, pair[::-1]) for pair in arrows)):
        if nx.is_directed_acyclic_graph(nx.DiGraph(turned)) and shape([*turned]) == shape(arrows):
            yield [*turned]


def test_a_learned_graph_stands_for_its_class() -> None:
    for arrows, _ in random_graphs(120, seed=6):
        graph = graph_of(arrows, provenance="learned")
        if len(arrows) > SETTINGS.max_open:
            continue
        found = read(graph)
        truth = {frozenset(m) for m in members(arrows)}
        assert {frozenset(r.dag.edges) for r in found} == truth, arrows


def test_knowledge_directs_what_data_do_not() -> None:
    graph = graph_of([("a", "t"), ("a", "y"), ("t", "y")], provenance="learned")
    assert len(read(graph)) == 6
    tiers = Knowledge(NODES, tiers=(("a",), ("t",), ("y",)))
    (reading,) = read(graph, tiers)
    assert choose([reading], [], SIZES) == Adjustment((("a",),))


# --- what is chosen, and what is refused ---


def test_a_set_that_a_table_has_comes_first() -> None:
    graph = graph_of([("a", "t"), ("a", "b"), ("b", "y"), ("t", "y")])
    assert choose(read(graph), [], {"a": 2, "b": 3, "c": 2}).sets == (("a",),)
    assert choose(read(graph), [("t", "y", "b")], {"a": 2, "b": 3, "c": 2}).sets == (("b",),)
    assert choose(read(graph), [("b", "y"), ("b", "t")], {"a": 2, "b": 3}).sets == (("a",),)


def test_refusals_say_why() -> None:
    with pytest.raises(OutputError, match=r"not identified by adjustment: .* block t <-> y"):
        choose(read(graph_of([("t", "y")], [("t", "y")])), [], SIZES)
    with pytest.raises(OutputError, match="no effect on y in this graph: no arrows lead from t"):
        choose(read(graph_of([("y", "t")])), [], SIZES)
    pairs = [*combinations(NODES, 2)]
    edges = tuple(GraphEdge(a, b, directed=False, provenance="undecided") for a, b in pairs)
    with pytest.raises(OutputError, match="rests on 10 links whose direction nothing shows"):
        read(CausalGraph(NODES, edges))
    link = GraphEdge("t", "y", directed=False, provenance="undecided")
    undecided = graph_of([("a", "t"), ("a", "y")])
    both = CausalGraph(NODES, (*undecided.edges, link))
    assert choose(read(both), [], SIZES) == Adjustment((("a",),), True, 2, (("t", "y"),))


def test_columns_of_the_outcomes_group_are_left_alone() -> None:
    edges = [GraphEdge(*p, directed=True, provenance="given") for p in [("t", "y"), ("t", "a")]]
    inner = GraphEdge("a", "y", directed=True, provenance="given")
    graph = CausalGraph(NODES, (*edges, inner), groups={"g": ("a", "y")})
    (reading,) = read(graph)
    assert not reading.valid(["a"]) and reading.valid([])
    assert "a is of one node with y" in reading.fault(["a"])
