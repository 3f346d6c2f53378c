"""PC on noisy moments, through the plan and the mechanisms: numeric and mixed tables, background
knowledge, and tables it cannot serve.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.numeric import SIMULATED
from benchmarks.numeric import fork as fork_of_five
from synthdp.data import ColumnDomain, Domain, encode
from synthdp.errors import SynthdpError
from synthdp.graph import (
    RCIT_PC,
    CausalGraph,
    GraphEdge,
    Knowledge,
    Orientation,
    ValidationReport,
    find_graph,
    planned_moments,
    rounds,
    turn,
)
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.private import Released
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph

Make = Callable[[int, np.random.Generator], pd.DataFrame]


def number(name: str, lower: float, upper: float) -> ColumnDomain:
    edges = tuple(np.linspace(lower, upper, 17)[:-1])
    return ColumnDomain(
        name,
        "number",
        tuple(f"b{i}" for i in range(16)),
        False,
        edges=edges,
        stop=upper,
        lower=lower,
        upper=upper,
    )


def collider(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    a, b = rng.normal(size=(2, rows))
    c = a + np.sin(b) + rng.normal(0, 0.5, rows)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": np.tanh(c) + rng.normal(0, 0.3, rows)}).clip(
        -4, 4
    )


NUMBERS = Domain(tuple(number(n, -4, 4) for n in "abcd"))
TRUE = frozenset({("a", "c"), ("b", "c"), ("c", "d")})


def learn(
    domain: Domain, frame: pd.DataFrame, *, epsilon: float, settings: Graph | None = None
) -> CausalGraph:
    settings = settings or Graph(mode="learn")
    plan = make_search_plan(
        RCIT_PC.spends(settings, domain, float(len(frame))), epsilon=epsilon, delta=1e-5
    )
    codes, _ = encode(domain, frame)
    found = RCIT_PC.search(Rehearsal(codes, domain, plan, frame=frame), settings, domain)
    return found.value if isinstance(found, Released) else found


@pytest.mark.check
def test_arrows_of_a_collider_are_found() -> None:
    graph = learn(NUMBERS, collider(20_000, np.random.default_rng(0)), epsilon=3.0)
    assert set(graph.directed) == TRUE
    assert not graph.undirected


def test_units_and_skew_of_a_column_do_not_matter() -> None:
    """Ranks by the noisy tables: an exponential of a column is as good as the column."""
    frame = np.exp(collider(20_000, np.random.default_rng(1)))
    geometric = tuple(np.geomspace(0.02, 55, 17)[:-1])
    domain = Domain(tuple(replace(number(n, 0, 55), edges=(0.0, *geometric[1:])) for n in "abcd"))
    graph = learn(domain, frame, epsilon=3.0)
    joined = {frozenset(p) for p in (*graph.directed, *graph.undirected)}
    assert {frozenset(p) for p in TRUE} <= joined


def test_too_little_data_gives_undecided_pairs_and_no_arrows() -> None:
    graph = learn(NUMBERS, collider(100, np.random.default_rng(2)), epsilon=0.05)
    assert len(graph.open_pairs) >= 5
    assert len(graph.directed) <= 1


def test_discrete_and_missing_columns_take_part() -> None:
    rng = np.random.default_rng(3)
    rows = 20_000
    group = rng.integers(3, size=rows)
    x = rng.normal(0, 1, rows) + np.array([-1.0, 0.0, 1.0])[group]
    y = np.where(rng.random(rows) < np.where(group == 2, 0.6, 0.1), np.nan, rng.normal(0, 1, rows))
    frame = pd.DataFrame(
        {
            "group": np.array(["u", "v", "w"])[group],
            "x": x.clip(-4, 4),
            "y": np.clip(y, -4, 4),
            "free": rng.uniform(-4, 4, rows),
        }
    )
    missing = number("y", -4, 4)
    missing = ColumnDomain(
        **{**missing.__dict__, "labels": (*missing.labels, "missing"), "missing": True}
    )
    domain = Domain(
        (
            ColumnDomain("group", "categorical", ("u", "v", "w"), False),
            number("x", -4, 4),
            missing,
            number("free", -4, 4),
        )
    )
    graph = learn(domain, frame, epsilon=3.0)
    joined = {frozenset(p) for p in (*graph.directed, *graph.undirected)}
    arrows = {frozenset(("group", "x")), frozenset(("group", "y"))}
    assert (
        arrows <= joined and len(joined - arrows) <= 1
    )  # of four pairs that nothing joins each is joined with the chance of the level


def test_background_knowledge_is_kept() -> None:
    settings = Graph(mode="learn", tiers=(("d",), ("a", "b", "c")))
    graph = learn(
        NUMBERS, collider(20_000, np.random.default_rng(4)), epsilon=3.0, settings=settings
    )
    assert ("d", "c") in graph.directed
    assert ("c", "d") not in graph.directed


def test_the_degree_grows_with_the_data_and_is_public() -> None:
    degrees = [
        planned_moments(NUMBERS, rows, mu).basis.degree
        for rows, mu in ((500, 0.2), (20_000, 0.3), (1_000_000, 0.3))
    ]
    assert degrees == [1, 2, 3]


def test_a_column_of_many_categories_is_refused_when_the_plan_is_made() -> None:
    domain = Domain(
        (
            *NUMBERS.columns,
            ColumnDomain("postcode", "categorical", tuple(map(str, range(40))), False),
        )
    )
    spends = RCIT_PC.spends(Graph(mode="learn"), domain, 1000.0)
    with pytest.raises(SynthdpError, match="'postcode' has 40 categories"):
        make_search_plan(spends, epsilon=1.0, delta=1e-5)


def test_the_whole_budget_is_planned_and_two_values_are_released() -> None:
    settings = Graph(mode="learn")
    plan = make_search_plan(RCIT_PC.spends(settings, NUMBERS, 5000.0), epsilon=1.0, delta=1e-5)
    assert [s.purpose for s in plan.spends] == ["graph: margins", "graph: moments"]
    assert 0.99 <= plan.epsilon_spent <= 1.0
    assert isinstance(plan.spends[1].mechanism, MomentMatrix)


@pytest.mark.check
def test_links_that_pc_leaves_open_are_turned_at_a_planned_price() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1.2, 1.2, 40_000)
    frame = pd.DataFrame({"y": np.clip(x**3 + rng.uniform(-0.3, 0.3, len(x)), -2, 2), "x": x})
    domain = Domain((number("y", -2, 2), number("x", -2, 2)))
    assert learn(domain, frame, epsilon=2.0).undirected == (("y", "x"),)
    settings = Graph(mode="learn", orient_share=0.5)
    assert learn(domain, frame, epsilon=2.0, settings=settings).directed == (("x", "y"),)
    plan = make_search_plan(RCIT_PC.spends(settings, domain, 40_000.0), epsilon=2.0, delta=1e-5)
    assert [s.purpose for s in plan.spends] == ["graph: margins", "graph: moments", "graph: orient"]


def test_readings_that_knowledge_forbids_are_left_out() -> None:
    graph = CausalGraph(
        ("a", "b", "c"),
        tuple(
            GraphEdge(a, b, directed=False, provenance="learned")
            for a, b in (("a", "b"), ("b", "c"))
        ),
    )
    readings = [Orientation("a", "b", 0.99, "hsic"), Orientation("c", "b", 0.6, "hsic")]
    free = Knowledge(("a", "b", "c"))
    assert set(turn(graph, readings, free).directed) == {
        ("a", "b"),
        ("b", "c"),
    }  # the second by Meek's first rule
    tiers = Knowledge(("a", "b", "c"), tiers=(("b",), ("a",)))
    assert not turn(graph, readings, tiers).directed


FORK = ("z1", "z2", "z3", "z4", "z5")


def validated(
    causes: tuple[str, ...], *, rows: int, epsilon: float, seed: int
) -> tuple[ValidationReport, list[str]]:
    """The validation of `causes` -> x, y where all five are causes, and what was spent on it."""
    settings = Graph(
        mode="validate", algorithm="rcit_pc", edges=({"causes": causes, "effects": ("x", "y")},)
    )
    frame = fork_of_five(rows, np.random.default_rng(seed))
    codes, _ = encode(SIMULATED, frame)
    plan = make_search_plan(rounds(settings, SIMULATED, rows=rows), epsilon=epsilon, delta=1e-5)
    releaser = Rehearsal(codes, SIMULATED, plan, frame=frame)
    found = find_graph(releaser, settings, SIMULATED).validation
    assert found is not None
    return found, [spend.purpose for spend in plan.spends]


def test_every_claim_of_a_given_graph_is_tested_on_the_moments_that_learn_has() -> None:
    """Also that of two columns given five, whose table nobody can measure."""
    found, spent = validated(FORK, rows=8000, epsilon=2.0, seed=0)
    assert spent == ["graph: margins", "graph: moments"]
    assert not found.untested and len(found.findings) == 10 + 11
    claims = {(f.claim.x, f.claim.y, f.claim.given) for f in found.findings}
    assert ("x", "y", FORK) in claims and len(found.refuted) <= 2  # one in about ten runs
    assert {f.status for f in found.findings if f.claim.kind == "arrow"} == {"supported"}
    without, _ = validated(FORK[:-1], rows=8000, epsilon=2.0, seed=1)
    refuted = {(f.claim.x, f.claim.y, f.claim.given) for f in without.refuted}
    assert ("x", "y", FORK[:-1]) in refuted


@pytest.mark.check
def test_a_search_conditions_on_more_than_three_columns_where_its_tests_are_sharp() -> None:
    """x and y are independent given five columns alone, which 17 of 24 runs found."""
    kept = 0
    for seed in range(10):
        graph = learn(SIMULATED, fork_of_five(8000, np.random.default_rng(seed)), epsilon=4.0)
        links = {frozenset(p) for p in (*graph.directed, *graph.undirected)}
        kept += frozenset(("x", "y")) in links
    assert kept <= 8


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "epsilon"), [(2000, 2.0), (8000, 1.0), (8000, 4.0)])
def test_a_true_graph_of_numbers_stands_and_a_missing_cause_is_found(
    rows: int, epsilon: float, figure: Callable[..., None]
) -> None:
    """Family-wise. `bent` is calculated; that it was missing showed on other draws of this law."""
    runs, name = 100, f"{rows:,} rows and epsilon {epsilon:g}"
    true = [validated(FORK, rows=rows, epsilon=epsilon, seed=s)[0] for s in range(runs)]
    false = [validated(FORK[:-1], rows=rows, epsilon=epsilon, seed=s)[0] for s in range(runs)]
    stood = sum(not report.refuted for report in true)
    missed = {("x", "y"), ("z5", "x"), ("z5", "y"), ("x", "z5"), ("y", "z5")}
    found = sum(any((f.claim.x, f.claim.y) in missed for f in r.refuted) for r in false)
    assert stood >= 89, "binomial(100, .95) is below that with probability .005"
    assert found >= 95
    figure(f"{name}: true graphs of numbers that stand", stood, runs)
    figure(f"{name}: graphs without a cause that are refuted", found, runs)
