"""What acts together: the rule, what is screened, what is found, and the units that hold it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.audit import without_privacy
from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.graph import ActsTogether, CausalGraph, GraphEdge, GraphResult
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import pair_tables
from synthdp.model import (
    CausalVae,
    InteractionSettings,
    LogLinear,
    Together,
    ancestral,
    arrays,
    fit_log_linear,
    floor_of,
    plan_for,
    screened,
    screened_targets,
    splits,
    target_splits,
    with_acting,
    with_arrows,
)
from synthdp.model.fit import all_tables, architecture_for, measure, with_interactions
from synthdp.privacy import SameLevel
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import INTERACTIONS
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import count_tables
from synthdp.spec.model import ReleaseSpec, rules
from tests.builders import build_spec, skeleton

Floats = npt.NDArray[np.float64]
SIGN = {"type": "boolean", "false": "no", "true": "yes"}
ROWS = 8000
HALF = np.array([1.0, -1.0])


def spec_of(columns: dict[str, Any], **sections: Any) -> ReleaseSpec:
    """A spec of mode predict whose last column is the target."""
    usual = {"graph": {"mode": "predict"}, "evaluation": {"targets": [list(columns)[-1]]}}
    return rules.fill_defaults(build_spec(columns, rows=ROWS, **usual | sections))


def signs_spec(count: int = 5, **sections: Any) -> ReleaseSpec:
    return spec_of({**{f"s{i}": SIGN for i in range(count)}, "label": SIGN}, **sections)


# --- the rule ---

IDS = {"kind": "id", "column": "person", "max_rows": 4, "meaning": "one person"}


@pytest.mark.parametrize(
    ("sections", "found"),
    [
        ({}, True),
        ({"privacy": {"epsilon": 0.5, "delta": 1e-5}}, False),
        ({"privacy": {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}}, False),
        ({"dataset": skeleton(ROWS, privacy_unit=IDS)["dataset"]}, False),
        ({"evaluation": {"targets": []}}, False),
        ({"evaluation": {"targets": ["s1"]}}, True),
        (
            {"graph": {"mode": "predict", "tiers": [["s1"]]}, "evaluation": {"targets": ["s1"]}},
            False,
        ),
        ({"graph": {"mode": "none"}}, False),
        ({"compute": {"engine": "arrow"}}, False),
    ],
)
def test_a_public_rule_says_where_interactions_are_looked_for(
    sections: dict[str, Any], found: bool
) -> None:
    spec = signs_spec(**sections)
    assert bool(screened_targets(spec)) == found
    domain = Domain.from_spec(spec.columns)
    if spec.dataset.privacy_unit.kind == "row":
        assert (INTERACTIONS in plan_for(spec, domain).graph) == found


def test_a_share_of_the_graphs_budget_is_taken_from_its_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = signs_spec()
    domain = Domain.from_spec(spec.columns)
    plan = plan_for(spec, domain)
    monkeypatch.setattr("synthdp.model.interactions.screened_targets", lambda spec: ())
    before = plan_for(spec, domain)
    assert set(plan.graph) - set(before.graph) == {INTERACTIONS}
    for name, mechanism in before.graph.items():
        noise = plan.graph[name].noise_multiplier / mechanism.noise_multiplier  # type: ignore[attr-defined]
        assert noise == pytest.approx((1 - InteractionSettings().share) ** -0.5, rel=0.02)


# --- what is screened ---


def column(levels: int, kind: str = "categorical", *, missing: bool = False) -> ColumnDomain:
    labels = tuple(str(i) for i in range(levels - missing)) + ("missing",) * missing
    return ColumnDomain("x", kind, labels, missing)


def minus(found: list[Any]) -> list[list[int]]:
    return [np.flatnonzero(one).tolist() for one in found]


def test_levels_are_split_evenly_and_in_different_ways() -> None:
    assert minus(splits(column(2), np.array([0.5, 0.5]))) == [[1]]
    assert minus(splits(column(3), np.full(3, 1 / 3))) == [[1], [2], [0]]
    assert minus(splits(column(4), np.full(4, 0.25))) == [[2, 3], [1, 2], [1, 3]]
    heavy = np.array([0.6, *np.full(9, 0.4 / 9)])
    assert minus(splits(column(10), heavy))[0] == list(range(1, 10))
    assert minus(splits(column(5, missing=True), np.array([0.2, 0.2, 0.2, 0.2, 0.2])))[0] == [2, 3]
    # no room on one side; nothing to split
    assert splits(column(2), np.array([0.97, 0.03])) == []
    assert splits(column(1), np.ones(1)) == []
    many = splits(column(40), np.full(40, 1 / 40))
    assert [int(one.sum()) for one in many] == [20, 20, 20]


def test_targets_are_split_by_class_where_all_are_common() -> None:
    assert minus(target_splits(column(2), np.array([0.8, 0.2]))) == [[1]]
    assert target_splits(column(2), np.array([0.86, 0.14])) == []
    assert minus(target_splits(column(4), np.array([0.5, 0.2, 0.2, 0.1]))) == [[0], [1], [2]]
    number = ColumnDomain(
        "x", "integer", tuple("abcd"), False, edges=(0, 1, 2, 3), stop=4, upper=3.0
    )
    assert minus(target_splits(number, np.full(4, 0.25))) == [[2, 3]]


def name_of(sign: Any) -> str:
    return str(sign.column)


def test_fifty_columns_need_no_list_of_all_sets() -> None:
    ranges = {f"x{i}": {"type": "integer", "lower": 0, "upper": 99} for i in range(40)}
    spec = spec_of({**ranges, **{f"s{i}": SIGN for i in range(10)}, "label": SIGN})
    domain = Domain.from_spec(spec.columns)
    asked = screened(spec, domain, [np.full(c.levels, 1 / c.levels) for c in domain.columns])
    sizes = {2: 0, 3: 0, 4: 0}
    for family in asked.families:
        sizes[len(family.shared)] += family.size
        names = [name_of(asked.signs[i]) for i in (*family.shared, family.first, family.stop - 1)]
        assert names[0] == "label" and "label" not in names[1:]
        assert len(set(names[: len(family.shared)])) == len(family.shared)
        assert not set(names[-2:]) & set(names[: len(family.shared)])
    # all splits of pairs, one of triples, and of four the most even columns
    assert sizes[2] == math.comb(40, 2) * 9 + 400 * 3 + math.comb(10, 2)
    assert sizes[3] == math.comb(50, 3) and 10_000 < sizes[4] <= 20_000


def test_columns_of_the_same_categories_may_have_the_same_one() -> None:
    suit = {"type": "categorical", "categories": ["c", "d", "h", "s"]}
    spec = spec_of({"a": suit, "b": suit, "c": SIGN, "d": SIGN, "label": SIGN})
    domain = Domain.from_spec(spec.columns)
    asked = screened(spec, domain, [np.full(c.levels, 1 / c.levels) for c in domain.columns])
    assert asked.signs[-1] == SameLevel("a", "b") and asked.families[-1].size == 1
    assert not any(isinstance(sign, SameLevel) for sign in asked.signs[:-1])


def test_few_columns_have_all_products_once() -> None:
    spec = signs_spec(5)
    domain = Domain.from_spec(spec.columns)
    asked = screened(spec, domain, [np.array([0.5, 0.5])] * 6)
    products = [
        frozenset(name_of(asked.signs[i]) for i in (*family.shared, last))
        for family in asked.families
        for last in range(family.first, family.stop)
    ]
    assert len(products) == len(set(products)) == 10 + 10 + 5


# --- what is found ---


def law_of(
    spec: ReleaseSpec, codes: Any, *, arrows: tuple[Any, ...] = (), **how: Any
) -> tuple[GraphResult, Any]:
    """Graph and interactions of a rehearsal on `codes`, with no `arrows` but these, whose pairs are
    known exactly.
    """
    domain = Domain.from_spec(spec.columns)
    plan = plan_for(spec, domain)
    rehearsal = Rehearsal(codes, domain, without_privacy(plan) if how else plan)
    edges = tuple(GraphEdge(*pair, directed=True, provenance="predictive") for pair in arrows)
    known = [
        NoisyTable(pair, count_tables(codes, domain, [pair])[0].astype(float), 0.5)
        for pair in arrows
    ]
    marginals = measure(rehearsal).map(lambda tables: (*tables, *known))
    graph = GraphResult(CausalGraph(domain.names, edges))
    law = LevelLaw.of_tables(all_tables(marginals, graph).value, domain)
    return with_interactions(rehearsal, spec, law, marginals, graph)


def parity(order: int, rng: np.random.Generator, columns: int = 5) -> Any:
    codes = rng.integers(0, 2, (ROWS, columns + 1)).astype(np.uint16)
    flipped = rng.random(ROWS) < 0.2
    codes[:, -1] = codes[:, :order].sum(1) % 2 ^ flipped
    return codes


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("how", [{}, {"noise": "none"}], ids=["private", "without noise"])
def test_a_parity_is_found_alone_with_noise_and_without(order: int, how: dict[str, str]) -> None:
    """Six in ten: far beyond a floor of less than one in ten."""
    graph, acting = law_of(signs_spec(), parity(order, np.random.default_rng(order)), **how)
    names = tuple(f"s{i}" for i in range(order))
    assert graph.graph.together == (ActsTogether(names, "label"),)
    assert set(graph.graph.directed) == {(name, "label") for name in names}
    (found,) = acting.together
    assert abs(found.mean) == pytest.approx(0.6, abs=0.06)


def test_that_two_columns_are_the_same_is_found() -> None:
    """A label that is true for nine of ten rows of one rank, and for half of the others."""
    rank = {"type": "categorical", "categories": [f"r{i}" for i in range(9)]}
    spec = spec_of({"a": rank, "b": rank, "c": SIGN, "label": SIGN})
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, n, ROWS) for n in (9, 9, 2, 2)]).astype(np.uint16)
    same = codes[:, 0] == codes[:, 1]
    codes[same, 3] = rng.random(same.sum()) < 0.95
    graph, acting = law_of(spec, codes)
    assert graph.graph.together == (ActsTogether(("a", "b"), "label"),)
    assert acting.together[0].signs == ()


def test_a_target_that_one_column_says_is_left_to_the_pairs() -> None:
    """Its cause is a parity, so that it seems to be one, too; nothing is looked at."""
    codes = parity(3, np.random.default_rng(0))
    codes[:, 4] = codes[:, -1]
    graph, acting = law_of(signs_spec(), codes, arrows=(("s4", "label"),))
    assert graph.graph.together == () and acting.together == ()


def test_where_nothing_acts_together_the_graph_stays() -> None:
    """The model of pairs is kept, and not fitted again."""
    codes = np.random.default_rng(0).integers(0, 2, (ROWS, 6)).astype(np.uint16)
    graph, acting = law_of(signs_spec(), codes)
    assert graph.graph.together == () and graph.graph.directed == () and acting.together == ()


def test_a_floor_counts_chance_the_model_and_noise() -> None:
    few, many = (floor_of(16_000, 32_000, size, 64.0) for size in (100, 100_000))
    assert few < many < floor_of(16_000, 32_000, 100_000, 640.0)
    assert floor_of(16_000, 1000, 100, 64.0) > 2 * few
    assert floor_of(1e7, 1 << 30, 100, 1e-9) == InteractionSettings().min_apart * 1e7


def test_arrows_are_drawn_once_and_ways_are_counted() -> None:
    arrow = GraphEdge("a", "y", directed=True, provenance="predictive")
    graph = CausalGraph(("a", "b", "y"), (arrow,))
    one = Together("y", ("b", "a"), (HALF, HALF), HALF, 0.4)
    found = with_arrows(graph, [one, replace(one, columns=("a", "b"))])
    assert found.directed == (("a", "y"), ("b", "y")) and found.units == 4
    assert found.together == (ActsTogether(("a", "b"), "y", ways=2),)
    assert CausalGraph.from_json(found.to_json()) == found
    assert "together" not in graph.to_json() and found.cpdag().together == ()


# --- units ---


def small(order: int, sizes: tuple[int, ...] = (2, 3)) -> tuple[Domain, CausalGraph]:
    columns = tuple(
        ColumnDomain(f"c{i}", "categorical", tuple(map(str, range(sizes[i % 2]))), False)
        for i in range(order + 1)
    )
    names = tuple(c.name for c in columns)
    edges = (GraphEdge(n, names[-1], directed=True, provenance="predictive") for n in names[:-1])
    return Domain(columns), CausalGraph(names, tuple(edges))


def acting_law(order: int, ways: int, sizes: tuple[int, ...]) -> tuple[Domain, LogLinear]:
    """What acts on the last column, in so many ways, with known weights. Where all columns have as
    many levels, the last way is that the first two have the same.
    """
    domain, graph = small(order, sizes)
    target = domain.columns[-1]
    rng = np.random.default_rng(order)

    def sign(levels: int) -> Floats:
        return np.where(np.arange(levels) == rng.integers(levels), -1.0, 1.0)

    together = [
        Together(
            target.name,
            domain.names[:-1],
            tuple(sign(c.levels) for c in domain.columns[:-1]),
            sign(target.levels),
            0.5,
        )
        for _ in range(ways)
    ]
    spec = spec_of({n: SIGN for n in domain.names})
    shape = architecture_for(spec, domain, with_arrows(graph, together))
    biases = [torch.zeros(size) for size in domain.sizes]
    if domain.sizes[0] == domain.sizes[1]:
        together[-1] = replace(together[-1], columns=domain.names[:2], signs=())
    acting = tuple((one, 0.7 + i) for i, one in enumerate(together))
    direct = torch.from_numpy(rng.normal(0, 1, shape.shapes()["direct"])).float()
    return domain, LogLinear(shape, direct, biases, np.zeros((0, order + 1), np.int64), acting)


@pytest.mark.parametrize(
    ("order", "ways", "sizes"),
    [
        (2, 1, (2, 3)),
        (3, 1, (2, 3)),
        (4, 1, (2, 3)),
        (3, 2, (2, 3)),
        (2, 3, (5, 5)),
        (3, 2, (4, 4)),
    ],
)
def test_units_hold_the_law_exactly(order: int, ways: int, sizes: tuple[int, ...]) -> None:
    domain, law = acting_law(order, ways, sizes)
    shape, target = law.architecture, order
    assert shape.hidden == order * ways
    network = CausalVae(shape, generator=torch.Generator().manual_seed(0))
    network.start_from_tables(law.direct, law.biases)
    weights = arrays(
        with_acting(network.plain(dict(network.named_parameters())), law, domain.names)
    )
    every = np.array(list(product(*map(range, domain.sizes))), dtype=np.int32)
    samplers = ancestral.column_samplers(shape, weights)
    (sampler,) = (s for s in samplers if s.column == target)
    z = ancestral.latents(
        shape.hidden and len(shape.latent_of), len(every), np.random.default_rng(0)
    )
    logits = sampler.logits(every.T, z)
    begin, offsets = shape.rows_of(target).start, shape.offsets_of(target)
    size = domain.sizes[target]
    rows = [begin + o + every[:, c] for c, o in enumerate(offsets)]
    expected = sum(law.direct.numpy()[r, :size] for r in rows)
    for one, weight in law.acting:
        expected = expected + weight * np.outer(one.unit(every, domain), one.along)
    assert np.abs(logits.T - expected).max() < 1e-5
    others = [s for s in samplers if s.column != target]
    assert not any(s.latent.size for s in others)  # nothing is drawn by units without weights


def independent(domain: Domain, rows: float) -> list[NoisyTable]:
    tables = [
        NoisyTable((c.name,), np.full(c.levels, rows / c.levels), 1.0) for c in domain.columns
    ]
    names = domain.names
    for i, first in enumerate(domain.columns):
        for second in domain.columns[i + 1 :]:
            shape = (first.levels, second.levels)
            pair = (names[i], second.name)
            tables.append(NoisyTable(pair, np.full(shape, rows / math.prod(shape)), 1.0))
    return tables


def laws(order: int) -> Iterator[Any]:
    domain, graph = small(order)
    law = LevelLaw(LevelGroups(domain, {}), independent(domain, 20_000.0))
    spec = spec_of({n: SIGN for n in domain.names})
    yield domain
    yield architecture_for(spec, domain, graph)
    yield pair_tables(law)


@pytest.mark.parametrize("order", [2, 3])
def test_a_fit_meets_what_acts_together_and_keeps_the_pairs(order: int) -> None:
    """.5 of 20,000 rows, +- .02; and no pair is off by more than chance (four deviations)."""
    domain, shape, tables = laws(order)
    rng = np.random.default_rng(0)
    before = fit_log_linear(shape, domain, tables, rows=10_000, rng=rng)
    half = tuple(np.where(np.arange(c.levels) % 2, -1.0, 1.0) for c in domain.columns)
    one = Together(domain.names[-1], domain.names[:-1], half[:-1], half[-1], 0.5)
    after = fit_log_linear(
        shape, domain, tables, rows=10_000, rng=rng, together=(one,), before=before
    )
    drawn = after.drawn
    met = (one.unit(drawn, domain) * half[-1][drawn[:, -1]]).mean()
    assert met == pytest.approx(0.5, abs=0.02)
    ((_, weight),) = after.acting
    assert weight > 0.3
    assert (drawn[:, :-1] == before.drawn[:, :-1]).all()  # what comes before is not fitted again
    assert (drawn[:, -1] != before.drawn[:, -1]).mean() > 0.2
    for column, size in enumerate(domain.sizes[:-1]):
        counts = np.zeros((size, domain.sizes[-1]))
        np.add.at(counts, (drawn[:, column], drawn[:, -1]), 1 / len(drawn))
        assert np.abs(counts - 1 / counts.size).max() < 4 * math.sqrt(0.25 / len(drawn))


def test_what_comes_after_a_target_is_fitted_and_drawn_again() -> None:
    domain, graph = small(3)
    edges = [*graph.edges[:2], GraphEdge("c2", "c3", directed=True, provenance="predictive")]
    edges += [GraphEdge(n, "c2", directed=True, provenance="predictive") for n in ("c0", "c1")]
    graph = CausalGraph(graph.nodes, tuple(edges))
    spec = spec_of({n: SIGN for n in domain.names})
    shape = architecture_for(spec, domain, graph)
    tables = pair_tables(LevelLaw(LevelGroups(domain, {}), independent(domain, 20_000.0)))
    rng = np.random.default_rng(0)
    before = fit_log_linear(shape, domain, tables, rows=5000, rng=rng)
    signs = tuple(np.where(np.arange(c.levels) % 2, -1.0, 1.0) for c in domain.columns)
    one = Together("c2", ("c0", "c1"), signs[:2], signs[2], 0.4)
    after = fit_log_linear(
        shape, domain, tables, rows=5000, rng=rng, together=(one,), before=before
    )
    same = [(after.drawn[:, c] == before.drawn[:, c]).all() for c in range(4)]
    assert same == [True, True, False, False]
