"""A score on tables of pairs turns arrows of a graph, and leaves its links alone."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from benchmarks.bif import BayesianNetwork
from synthdp.graph import Knowledge, NoisyTables, Pdag
from synthdp.graph.discovery.orient import SETTINGS, Gram, second_opinion
from synthdp.privacy.mechanisms.marginals import NoisyTable

NAMES, ROWS = ("a", "b", "c", "d"), 100_000
ARROWS = [("a", "c"), ("b", "c"), ("c", "d")]
"""One v-structure, so that every arrow is compelled."""


def network() -> BayesianNetwork:
    """Effects of `a` and `b` on `c` add up, as the score has it."""
    levels = {name: ("no", "yes") for name in NAMES}
    yes = np.array([[0.05, 0.5], [0.5, 0.95]])
    half, last = np.array([0.5, 0.5]), np.array([[0.8, 0.2], [0.3, 0.7]])
    tables = {"a": half, "b": half, "c": np.stack([1 - yes, yes], -1), "d": last}
    return BayesianNetwork(levels, {"a": (), "b": (), "c": ("a", "b"), "d": ("c",)}, tables)


def tables(
    columns: tuple[str, ...] = NAMES, *, sigma: float = 0.0, independent: bool = False
) -> NoisyTables:
    """Tables of all pairs: exact expectations, and noise."""
    net, rng = network(), np.random.default_rng(1)
    joint = np.einsum("a,b,abc,cd->abcd", *(net.tables[name] for name in NAMES))
    noisy = []
    for pair in combinations(columns, 2):
        counts = joint.sum(tuple(i for i, name in enumerate(NAMES) if name not in pair))
        if independent:
            counts = np.outer(counts.sum(1), counts.sum(0))
        noise = rng.normal(0, sigma, counts.shape) if sigma else 0.0
        noisy.append(NoisyTable(pair, ROWS * counts + noise, sigma))
    return NoisyTables(noisy)


def opinion(start: Pdag, noisy: NoisyTables, knowledge: Knowledge | None = None) -> Pdag:
    return second_opinion(start, noisy, network().domain(), knowledge or Knowledge(NAMES))


@pytest.mark.parametrize("sigma", [0.0, 100.0])
def test_wrong_arrows_are_turned(sigma: float) -> None:
    wrong = Pdag(NAMES, directed=[("c", "a"), ("c", "b"), ("c", "d")])
    assert sorted(opinion(wrong, tables(sigma=sigma)).directed()) == ARROWS
    loose = Pdag(NAMES, undirected=ARROWS)
    assert sorted(opinion(loose, tables(sigma=sigma)).directed()) == ARROWS


def test_a_right_graph_stays_and_the_same_tables_say_the_same() -> None:
    right, noisy = Pdag(NAMES, directed=ARROWS), tables(sigma=100.0)
    first, again = opinion(right, noisy), opinion(right, noisy)
    assert first.directed() == again.directed() and sorted(first.directed()) == ARROWS


def test_arrows_that_the_spec_forbids_are_not_made() -> None:
    tiers = Knowledge(NAMES, tiers=(("c", "d"), ("a", "b")))
    start = Pdag(NAMES, directed=[("c", "a"), ("c", "b")], undirected=[("c", "d")])
    found = opinion(start, tables(), tiers)
    assert {("c", "a"), ("c", "b")} <= set(found.directed())
    one = Knowledge(NAMES, forbidden=frozenset({("a", "c")}))
    assert ("c", "a") in opinion(Pdag(NAMES, undirected=ARROWS), tables(), one).directed()


def test_without_the_table_of_a_pair_there_is_no_opinion() -> None:
    start = Pdag(NAMES, directed=[("c", "a"), ("c", "b")])
    some = NoisyTables(t for t in tables().tables if t.columns != ("a", "b"))
    assert opinion(start, some) is start


@pytest.mark.check
@pytest.mark.parametrize("sigma", [0.0, 30.0, 300.0])
def test_independent_columns_gain_no_more_than_stated(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a level of .05 in place of `level`, and a binomial bound of five deviations."""
    module = "synthdp.graph.discovery.orient"
    assert SETTINGS.level < 0.05
    monkeypatch.setattr(f"{module}.SETTINGS", replace(SETTINGS, level=0.05, spread=1.0))
    domain, rng = network().domain(), np.random.default_rng(2)
    drawn, above = 400, 0
    for _ in range(drawn):
        noisy = []
        for pair in combinations(NAMES, 2):
            sample = rng.multinomial(ROWS, [0.25] * 4).reshape(2, 2)
            noisy.append(NoisyTable(pair, sample + rng.normal(0, sigma, (2, 2)), sigma))
        gram = Gram(NoisyTables(noisy), domain)
        above += gram.gain(0, frozenset({1})) > 0
    assert above <= drawn * 0.05 + 5 * (drawn * 0.05 * 0.95) ** 0.5
