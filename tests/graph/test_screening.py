"""Wide tables: a screen chooses the pairs that a search measures, and the others stay undecided."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.errors import SynthdpError
from synthdp.graph import (
    MEASURED_PC,
    SCREEN,
    SHARES,
    CausalGraph,
    GraphEdge,
    Knowledge,
    as_ranges,
    from_ranges,
    rounds,
    scores_by_chance,
    screened,
)
from synthdp.graph.discovery import algorithm_named, measuring
from synthdp.graph.discovery.measured_pc import MeasurePlan
from synthdp.graph.level_groups import LevelLaw
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.mechanisms.pair_screen import PairScreen, association_scores
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph

COLUMNS, ROWS = 14, 20_000


def towns(count: int) -> Domain:
    return Domain(
        tuple(ColumnDomain(f"t{i}", "categorical", ("p", "q", "r"), False) for i in range(count))
    )


def chains(rng: np.random.Generator) -> Any:
    """Columns 0 to 13, each a noisy copy of the one before it but for 0, 5 and 10."""
    codes = rng.integers(0, 3, (ROWS, COLUMNS)).astype(np.uint16)
    for i in set(range(COLUMNS)) - {0, 5, 10}:
        copied = rng.random(ROWS) < 0.6
        codes[copied, i] = codes[copied, i - 1]
    return codes


@pytest.fixture
def narrow_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 50 open pairs are screened: of 14 columns all 91."""
    monkeypatch.setattr(
        measuring,
        "_measure_plan",
        lambda settings: MeasurePlan(max_pairs=50, max_screened=100),
    )


def learned(settings: Graph, *, epsilon: float) -> CausalGraph:
    domain, codes = towns(COLUMNS), chains(np.random.default_rng(0))
    plan = make_search_plan(MEASURED_PC.spends(settings, domain, ROWS), epsilon=epsilon, delta=1e-6)
    found: Any = MEASURED_PC.search(Rehearsal(codes, domain, plan), settings, domain)
    graph: CausalGraph = found.value
    return graph


@pytest.mark.check
@pytest.mark.usefixtures("narrow_limit")
def test_a_screened_search_finds_the_links_and_calls_nothing_absent_that_it_did_not_see() -> None:
    """Links of scores of 10,000 under noise of a few hundred: one is lost with chance below 1e-9.
    91 pairs are open, 42 are looked at.
    """
    graph = learned(Graph(mode="learn"), epsilon=8.0)
    true = {(f"t{i - 1}", f"t{i}") for i in set(range(COLUMNS)) - {0, 5, 10}}
    linked = {frozenset(pair) for pair in (*graph.directed, *graph.undirected)}
    assert linked >= set(map(frozenset, true))
    # the 49 that were left out, at least
    assert len(graph.open_pairs) >= 91 - MeasurePlan.kept_per_column * COLUMNS


@pytest.mark.check
@pytest.mark.usefixtures("narrow_limit")
def test_what_the_spec_decides_stays_as_it_says() -> None:
    """Required arrows are kept and tiers obeyed, whatever the screen tells."""
    tiers = (tuple(f"t{i}" for i in range(2)), tuple(f"t{i}" for i in range(2, COLUMNS)))
    settings = Graph.model_validate(
        {"mode": "learn", "tiers": tiers, "edges": [{"causes": ["t0"], "effects": ["t13"]}]}
    )
    graph = learned(settings, epsilon=8.0)
    assert ("t0", "t13") in graph.directed
    first = set(tiers[0])
    assert not any(b in first and a not in first for a, b in graph.directed)


@pytest.mark.usefixtures("narrow_limit")
def test_the_screen_has_its_share_and_others_keep_theirs() -> None:
    domain, settings = towns(COLUMNS), Graph(mode="learn")
    planned = MEASURED_PC.spends(settings, domain, ROWS)
    assert list(planned) == ["columns", SCREEN, "pairs", "triples", "quadruples"]
    screen = planned[SCREEN](0.5)
    assert isinstance(screen, PairScreen) and screen.kept == MeasurePlan.kept_per_column * COLUMNS
    later: list[Any] = [make(0.5) for name, make in planned.items() if name != SCREEN]
    mus = [screen.kept / screen.noise**2, *(round_.noise_multiplier**-2 for round_ in later)]
    assert mus[0] == pytest.approx(SHARES[SCREEN] * 0.25) and sum(mus) == pytest.approx(0.25)
    few = MEASURED_PC.spends(settings, towns(10), ROWS)
    assert SCREEN not in few


@pytest.mark.usefixtures("narrow_limit")
def test_what_is_too_wide_for_a_screen_is_refused() -> None:
    with pytest.raises(SynthdpError, match="105 pairs of columns are open, at most 100"):
        MEASURED_PC.spends(Graph(mode="learn"), towns(15), ROWS)


@pytest.mark.check
def test_the_default_screens_from_25_000_open_pairs_on_and_from_5_000_with_many_categories() -> (
    None
):
    own, settings = algorithm_named("measured_pc"), Graph(mode="learn")
    assert SCREEN in own.spends(settings, towns(225), 1e4)
    assert SCREEN not in own.spends(settings, towns(224), 1e4)
    assert SCREEN in own.spends(settings, towns(1000), 1e4)
    with pytest.raises(SynthdpError, match="500500 pairs of columns are open, at most 500000"):
        own.spends(settings, towns(1001), 1e4)
    codes = ColumnDomain("code", "categorical", tuple(map(str, range(33))), False)
    assert SCREEN in own.spends(settings, Domain((*towns(100).columns, codes)), 1e4)
    assert SCREEN not in own.spends(settings, Domain((*towns(99).columns, codes)), 1e4)


def test_a_database_that_gives_counts_alone_counts_all_pairs_or_is_refused_before_a_charge() -> (
    None
):
    settings = Graph(mode="learn")
    with pytest.raises(SynthdpError, match="engine sql gives counts, and no rows"):
        rounds(settings, towns(225), rows=1e4, counts_only=True)
    codes = ColumnDomain("code", "categorical", tuple(map(str, range(33))), False)
    wide = Domain((*towns(110).columns, codes))
    assert SCREEN in rounds(settings, wide, rows=1e4)
    assert SCREEN not in rounds(settings, wide, rows=1e4, counts_only=True)


# --- what large tables score by chance ---


def test_a_score_by_chance_is_what_independent_columns_have() -> None:
    """The mean of 40 tables of each shape, even and skewed: within 5%, with a fixed seed."""
    rng, rows = np.random.default_rng(0), 5000
    laws = {
        "two": np.array([0.8, 0.2]),
        "ten": np.full(10, 0.1),
        "skewed": np.array([0.9, *[0.0125] * 8]),
    }
    pairs = list(combinations(laws, 2))
    sums = np.zeros(len(pairs))
    for _ in range(40):
        drawn = [rng.choice(len(law), rows, p=law) for law in laws.values()]
        columns = tuple(
            ColumnDomain(name, "categorical", tuple(map(str, range(len(law)))), False)
            for name, law in laws.items()
        )
        groups = LevelGroups(Domain(columns), {})
        sums += association_scores(np.column_stack(drawn).astype(np.uint16), groups, pairs)
    assert np.array(scores_by_chance(pairs, laws, rows)) == pytest.approx(sums / 40, rel=0.05)


@pytest.mark.check
@pytest.mark.usefixtures("narrow_limit")
def test_large_tables_do_not_fill_the_screen_by_chance() -> None:
    """Four linked pairs of two levels score 1,600, and independent ones of 30 levels some 3,000 by
    chance: links are kept all the same, and each large table is kept with no more chance than any
    other. 28 of 91 pairs are told; noise of scale 40 loses a link with chance below 1e-9.
    """
    rng, rows = np.random.default_rng(0), 20_000
    levels = {f"b{i}": 2 for i in range(8)} | {f"w{i}": 30 for i in range(6)}
    codes = np.column_stack([rng.integers(0, size, rows) for size in levels.values()])
    for i in range(0, 8, 2):
        copied = rng.random(rows) < 0.08
        codes[copied, i + 1] = codes[copied, i]
    domain = Domain(
        tuple(
            ColumnDomain(name, "categorical", tuple(map(str, range(size))), False)
            for name, size in levels.items()
        )
    )
    settings = Graph(mode="learn")
    spends = MEASURED_PC.spends(settings, domain, rows)
    plan = make_search_plan(spends, epsilon=30.0, delta=1e-6)
    rehearsal: Any = Rehearsal(codes.astype(np.uint16), domain, plan)
    margins = measuring.measure_round(rehearsal, "columns", [(name,) for name in levels]).value
    pairs = Knowledge.from_spec(settings, domain.names).undecided_pairs
    told = screened(rehearsal, pairs, LevelLaw(LevelGroups(domain, {}), margins)).value
    assert {(f"b{i}", f"b{i + 1}") for i in range(0, 8, 2)} <= set(told)
    wide = sum(a[0] == b[0] == "w" for a, b in told)
    assert wide < 13, "of 15 pairs of large tables, which all came first before"


# --- very many pairs without an answer ---


def test_ranges_hold_the_pairs() -> None:
    nodes = [f"n{i}" for i in range(30)]
    rng = np.random.default_rng(0)
    pairs = [p for p in combinations(nodes, 2) if rng.random() < 0.5]
    shuffled = [pair[:: rng.choice([-1, 1])] for pair in rng.permutation(pairs).tolist()]
    assert list(from_ranges(as_ranges(map(tuple, shuffled), nodes), nodes)) == pairs
    assert as_ranges([], nodes) == {}


@pytest.mark.parametrize(
    "stated",
    [{"a": "0-1"}, {"a": "2-1"}, {"a": "1-3"}, {"b": "1-1"}, {"z": "1-1"}, {"a": "1-1 1-2"}]
    + [{"a": "1"}, {"a": "-1-2"}, {"a": "1-9999999999"}, {"a": ["1-1"]}],
)
def test_wrong_ranges_are_refused(stated: Any) -> None:
    with pytest.raises(SynthdpError, match="range"):
        list(from_ranges(stated, "abc"))


def test_no_file_states_more_pairs_than_a_screen_leaves() -> None:
    nodes = [f"n{i}" for i in range(500_000)]
    with pytest.raises(SynthdpError, match="range"):
        list(from_ranges({"n0": "1-499999", "n1": "2-9"}, nodes))


@pytest.mark.check
def test_a_wide_graph_is_small_in_json_and_in_its_picture() -> None:
    nodes = tuple(f"n{i}" for i in range(300))
    pairs = list(combinations(nodes, 2))
    edges = [GraphEdge(*pairs[0], directed=True, provenance="learned")]
    edges += [GraphEdge(*p, directed=False, provenance="undecided") for p in pairs[1:]]
    graph = CausalGraph(nodes, tuple(edges))
    text = json.dumps(graph.to_json())
    assert graph.by_ranges
    assert len(text) < 20_000 and CausalGraph.from_json(json.loads(text)) == graph
    picture = graph.to_svg()
    assert len(picture) < 1_000_000 and f"{len(pairs) - 1} pairs have no answer" in picture
    assert picture == CausalGraph.from_json(json.loads(text)).to_svg()
    few = CausalGraph(nodes, tuple(edges[:100]))
    assert "no_answer" not in few.to_json()
