"""Wide tables: a screen chooses the pairs that a search measures, and the others stay undecided."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.discovery import ALGORITHMS, measuring
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.discovery.measuring import MEASURED_PC
from synthdp.graph.discovery.screening import KEPT_PER_COLUMN, SCREEN, SHARE
from synthdp.graph.open_pairs import LISTED, MAX_PAIRS, as_ranges, from_ranges
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.mechanisms.pair_screen import PairScreen
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
        measuring, "_measure_plan", lambda settings: MeasurePlan(max_pairs=50, max_screened=100)
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
    assert len(graph.open_pairs) >= 91 - KEPT_PER_COLUMN * COLUMNS


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
    rounds = MEASURED_PC.spends(settings, domain, ROWS)
    assert list(rounds) == [SCREEN, "pairs", "triples", "quadruples"]
    screen = rounds[SCREEN](0.5)
    assert isinstance(screen, PairScreen) and screen.kept == KEPT_PER_COLUMN * COLUMNS
    mus = [screen.kept / screen.noise**2]
    mus += [rounds[name](0.5).noise_multiplier ** -2 for name in list(rounds)[1:]]  # type: ignore[attr-defined]
    assert mus[0] == pytest.approx(SHARE * 0.25) and sum(mus) == pytest.approx(0.25)
    few = MEASURED_PC.spends(settings, towns(10), ROWS)
    assert SCREEN not in few


@pytest.mark.usefixtures("narrow_limit")
def test_what_is_too_wide_for_a_screen_is_refused() -> None:
    with pytest.raises(SynthdpError, match="105 pairs of columns are open, at most 100"):
        MEASURED_PC.spends(Graph(mode="learn"), towns(15), ROWS)


def test_the_default_screens_from_25_000_open_pairs_on() -> None:
    own, settings = ALGORITHMS["measured_pc"], Graph(mode="learn")
    assert SCREEN in own.spends(settings, towns(225), 1e4)
    assert SCREEN not in own.spends(settings, towns(224), 1e4)
    assert SCREEN in own.spends(settings, towns(1000), 1e4)
    with pytest.raises(SynthdpError, match="500500 pairs of columns are open, at most 500000"):
        own.spends(settings, towns(1001), 1e4)


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
    nodes = [f"n{i}" for i in range(MAX_PAIRS)]
    with pytest.raises(SynthdpError, match="range"):
        list(from_ranges({"n0": f"1-{MAX_PAIRS - 1}", "n1": "2-9"}, nodes))


def test_a_wide_graph_is_small_in_json_and_in_its_picture() -> None:
    nodes = tuple(f"n{i}" for i in range(300))
    pairs = list(combinations(nodes, 2))
    assert len(pairs) > LISTED
    edges = [GraphEdge(*pairs[0], directed=True, provenance="learned")]
    edges += [GraphEdge(*p, directed=False, provenance="undecided") for p in pairs[1:]]
    graph = CausalGraph(nodes, tuple(edges))
    text = json.dumps(graph.to_json())
    assert len(text) < 20_000 and CausalGraph.from_json(json.loads(text)) == graph
    picture = graph.to_svg()
    assert len(picture) < 1_000_000 and f"{len(pairs) - 1} pairs have no answer" in picture
    assert picture == CausalGraph.from_json(json.loads(text)).to_svg()
    few = CausalGraph(nodes, tuple(edges[:100]))
    assert "no_answer" not in few.to_json()
