"""Validation of given graphs: what is tested is fixed in advance, true graphs stand, missing arrows
are noticed.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork
from synthdp.errors import GateError
from synthdp.graph import (
    CausalGraph,
    GraphEdge,
    ValidationReport,
    doubtful,
    implications,
    judged,
    rejudge,
    required_tables,
    rounds,
    validate,
    validated,
)
from synthdp.graph.chi_square import Answer, Query
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import count_tables
from synthdp.spec.model import Graph

Network = Callable[[str], BayesianNetwork]
Check = Callable[..., ValidationReport]
CELLS = 1024


@pytest.fixture
def check(network: Network) -> Check:
    def run(
        name: str, graph: CausalGraph, *, seed: int, rows: int = 20_000, epsilon: float = 1.0
    ) -> ValidationReport:
        net = network(name)
        domain, codes = net.domain(), net.sample(rows, rng=np.random.default_rng(seed))
        plan = make_search_plan(
            rounds(Graph(mode="validate"), domain, rows=rows), epsilon=epsilon, delta=1e-3
        )
        return validated(Rehearsal(codes, domain, plan), graph, domain, level=0.05).value

    return run


def without(graph: CausalGraph, index: int) -> CausalGraph:
    return replace(graph, edges=graph.edges[:index] + graph.edges[index + 1 :])


@pytest.mark.check
@pytest.mark.parametrize("name", ["asia", "survey", "sachs"])
def test_the_true_graph_stands(name: str, network: Network, check: Check) -> None:
    refuted = [bool(check(name, network(name).graph(), seed=seed).refuted) for seed in range(10)]
    assert sum(refuted) <= 2  # family-wise level .05: more than 2 of 10 has probability .01


@pytest.mark.slow
@pytest.mark.parametrize("rows", [20_000, 100_000])
@pytest.mark.parametrize("name", ["asia", "survey", "sachs"])
def test_the_true_graph_stands_in_95_of_100(
    name: str, rows: int, network: Network, check: Check
) -> None:
    refuted = sum(
        bool(check(name, network(name).graph(), seed=seed, rows=rows).refuted)
        for seed in range(100)
    )
    assert refuted <= 10  # binomial(100, .05) exceeds 10 with probability .01


@pytest.mark.check
@pytest.mark.parametrize("name", ["asia", "sachs"])
def test_deleted_arrows_are_noticed(name: str, network: Network, check: Check) -> None:
    graph = network(name).graph()
    found = [bool(check(name, without(graph, i), seed=i).refuted) for i in range(len(graph.edges))]
    assert np.mean(found) >= 7 / 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["child", "alarm"])
def test_deleted_arrows_of_large_networks_are_noticed(
    name: str, network: Network, check: Check
) -> None:
    graph = network(name).graph()
    chosen = np.random.default_rng(5).permutation(len(graph.edges))[:8]
    found = sum(
        bool(check(name, without(graph, int(i)), seed=int(i), rows=100_000).refuted) for i in chosen
    )
    assert found >= 6


def test_what_looks_worst_is_measured_again_and_judged_by_that_alone(network: Network) -> None:
    """A true graph and tables without noise, but for a first round that shows one dependence that
    is not there.
    """
    net = network("asia")
    graph, domain = net.graph(), net.domain()
    codes = net.sample(50_000, rng=np.random.default_rng(3))

    def tables(columns: Iterable[tuple[str, ...]], wrong: str = "") -> list[NoisyTable]:
        made = []
        for names in columns:
            counts = count_tables(codes, domain, [names])[0].astype(np.float64)
            if wrong in names and len(names) == 2:
                counts = counts + np.array([[900.0, -900.0], [-900.0, 900.0]])
            made.append(NoisyTable(names, counts, 1.0))
        return made

    required = required_tables(implications(graph, domain, max_cells=CELLS), domain, max_tables=500)
    first = validate(
        graph, tables(required, wrong="smoke"), domain=domain, level=0.05, max_cells=CELLS
    )
    claims = doubtful(first)
    assert {f.claim for f in first.refuted} <= set(claims) and first.refuted
    assert len(claims) == 4 and all(c.kind == "independence" for c in claims)
    second = rejudge(first, claims, tables(required_tables(claims, domain)))
    assert not {f.claim for f in second.refuted} & set(claims)
    assert [f for f in second.findings if f.claim not in claims] == [
        f for f in first.findings if f.claim not in claims
    ]
    again = rejudge(first, claims, tables(required_tables(claims, domain), wrong="smoke"))
    assert {f.claim for f in again.refuted} == {f.claim for f in first.refuted}


@pytest.mark.check
def test_strong_arrows_are_supported_and_invented_ones_refuted(
    network: Network, check: Check
) -> None:
    true = network("sachs").graph()
    false = GraphEdge("PIP2", "Erk", directed=True, provenance="given")
    report = check(
        "sachs", replace(true, edges=(*true.edges, false)), seed=1, rows=2_000_000, epsilon=20.0
    )
    found = (f for f in report.findings if f.claim.kind == "arrow")
    status = {(f.claim.x, f.claim.y): f.status for f in found}
    assert status["PIP2", "Erk"] == "refuted"
    assert sum(s == "supported" for s in status.values()) >= 15
    assert "refuted" not in {s for pair, s in status.items() if pair != ("PIP2", "Erk")}
    flagged, dropped = report.apply("flag"), report.apply("drop")
    assert {e.provenance for e in flagged.edges if e.pair == ("PIP2", "Erk")} == {"refuted"}
    assert ("PIP2", "Erk") not in dropped.directed and len(dropped.edges) == len(flagged.edges) - 1
    with pytest.raises(GateError, match="PIP2 -> Erk"):
        report.apply("fail")


@pytest.mark.check
def test_little_budget_decides_nothing(network: Network, check: Check) -> None:
    """But for the errors that the level allows: noise alone seems to support some arrow in at most
    one of 20 runs.
    """
    reports = [
        check("asia", network("asia").graph(), seed=seed, epsilon=1e-4) for seed in range(20)
    ]
    undecided = [r for r in reports if {f.status for f in r.findings} == {"undecided"}]
    assert len(undecided) >= 14  # binomial(20, .05) exceeds 6 with probability 3e-5
    assert {e.provenance for e in undecided[0].apply("fail").edges} == {"undecided"}


def test_tables_are_fixed_by_the_graph_and_the_caps(network: Network) -> None:
    net = network("sachs")
    graph, domain = net.graph(), net.domain()
    tables = required_tables(implications(graph, domain, max_cells=CELLS), domain, max_tables=200)
    assert tables == required_tables(
        implications(graph, domain, max_cells=CELLS), domain, max_tables=200
    )
    assert all(domain.cells(t) <= CELLS for t in tables)
    held = set(map(frozenset, tables))
    claims = implications(graph, domain, max_cells=CELLS)
    assert held == {t for c in claims for t in c.tables}, "what the claims need and nothing else"
    assert (
        len(required_tables(implications(graph, domain, max_cells=CELLS), domain, max_tables=5))
        == 5
    )


def test_every_claimed_independence_is_implied(network: Network) -> None:
    for name in ("asia", "sachs", "survey"):
        net = network(name)
        graph = net.graph()
        claims = implications(graph, net.domain(), max_cells=10**9)
        assert all(graph.d_separated(c.x, c.y, c.given) for c in claims if c.kind == "independence")
        absent = len(graph.nodes) * (len(graph.nodes) - 1) // 2 - len(graph.edges)
        assert sum(c.kind == "independence" for c in claims) == absent


class Asked:
    """Tests that call everything independent, and write down what they were asked."""

    negligible = 0.1

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        self.asked = queries, level, margin
        return [Answer("independent", 0.5, 0.0, 0.0, 0.05, 0.01) for _ in queries]


def test_tests_of_any_query_judge_every_claim_at_one_level(network: Network) -> None:
    net, tests = network("asia"), Asked()
    graph = replace(net.graph(), groups={"g": ("tub", "asia")})
    report = judged(graph, tests, domain=net.domain(), level=0.05)
    queries, level, margin = tests.asked
    assert [(f.claim.x, f.claim.y, f.claim.given) for f in report.findings] == list(queries)
    assert level == pytest.approx(0.05 / len(queries)) and margin == report.negligible == 0.1
    assert len(queries) + len(report.untested) == 8 * 7 / 2
    assert {u.reason for u in report.untested} == {"within a group"}
    assert {f.status for f in report.findings if f.claim.kind == "arrow"} == {"refuted"}


def test_what_is_not_tested_is_listed_with_its_reason(network: Network) -> None:
    """And with what is tested that is every arrow and every absent pair."""
    net = network("asia")
    domain, true = net.domain(), net.graph()
    graph = replace(true, groups={"g": ("tub", "asia")}, latent=(("smoke", "lung"),))
    report = validate(graph, (), domain=domain, level=0.05)
    assert not report.findings
    why = {frozenset((u.claim.x, u.claim.y)): u.reason for u in report.untested}
    assert why[frozenset(("asia", "tub"))] == "within a group"
    assert why[frozenset(("smoke", "lung"))] == "an unseen cause of both"
    assert len(why) == len(report.untested) == 8 * 7 / 2
    small = {u.reason for u in validate(true, (), domain=domain, level=0.05, max_cells=3).untested}
    assert small == {"a table of more than 3 cells"}


def test_groups_and_latent_causes_claim_nothing(network: Network) -> None:
    net = network("cancer")
    free = CausalGraph(
        tuple(net.levels), groups={"g": ("Cancer", "Xray")}, latent=(("Smoker", "Pollution"),)
    )
    pairs = {frozenset((c.x, c.y)) for c in implications(free, net.domain(), max_cells=CELLS)}
    assert frozenset({"Cancer", "Xray"}) not in pairs
    assert frozenset({"Smoker", "Pollution"}) not in pairs
    assert len(pairs) == 8


def test_report_is_json(network: Network, check: Check) -> None:
    report = check("asia", network("asia").graph(), seed=3)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert (
        sum(n for kind in data["counts"].values() for n in kind.values())
        == len(data["findings"])
        == len(report.findings)
    )
    assert {
        "x",
        "y",
        "given",
        "kind",
        "status",
        "p_value",
        "effect",
        "smallest_detectable_effect",
    } <= set(data["findings"][0])
