"""Trend tests of ordered columns: their level under known noise, what they see, and when they may
say that a dependence is gone.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, spearmanr

from benchmarks.random_tables import RandomTable, random_table
from synthdp.data import ColumnDomain, Domain, LevelGroups
from synthdp.graph import (
    MIXED_SHARES,
    ORDERED_SHARES,
    CausalGraph,
    NoisyTables,
    OrderedTests,
    Scores,
    TrendSettings,
    has_order,
    together,
)
from synthdp.graph.chi_square import Answer
from synthdp.graph.discovery import algorithm_named
from synthdp.graph.level_groups import GroupSettings, how_many
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import Streams
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import Table
from synthdp.spec.model import Graph
from tests.audit.mechanism_examples import SmallModel
from tests.chance import seeded

pytestmark = pytest.mark.usefixtures("seeded")

Codes = np.ndarray


def number(name: str, bins: int = 8, *, missing: bool = False) -> ColumnDomain:
    labels = (*map(str, range(bins)), *(["missing"] if missing else []))
    edges = tuple(map(float, range(bins)))
    return ColumnDomain(name, "number", labels, missing, edges=edges, stop=float(bins))


def town(name: str, levels: int = 3) -> ColumnDomain:
    return ColumnDomain(name, "categorical", tuple(map(str, range(levels))), False)


def ordered_on(
    codes: Codes, domain: Domain, sigma: float, rng: np.random.Generator
) -> OrderedTests:
    """Tests on noisy tables of all pairs."""
    tables = []
    for a, b in combinations(domain.names, 2):
        i, j = domain.index(a), domain.index(b)
        shape = domain[a].levels, domain[b].levels
        counts = np.bincount(codes[:, i] * shape[1] + codes[:, j], minlength=shape[0] * shape[1])
        noisy = counts.reshape(shape) + np.rint(rng.normal(0, sigma, shape))
        tables.append(NoisyTable((a, b), noisy.astype(np.float64), sigma))
    return OrderedTests(domain, NoisyTables(tables), {})


def grouped(values: np.ndarray, groups: int) -> Codes:
    """Ranks in groups of equal size."""
    return (values.argsort().argsort() * groups // len(values)).astype(np.int64)


@pytest.mark.parametrize(("rows", "sigma"), [(3_000, 0.5), (3_000, 30.0), (20_000, 60.0)])
def test_independent_columns_are_found_dependent_at_the_level(rows: int, sigma: float) -> None:
    """435 pairs of skewed numbers, some with missing values, and towns. Seeded.

    Pairs of a table share columns and are still nearly independent tests.
    """
    rng, count = np.random.default_rng(3), 0
    columns = [number(f"n{i}", 6 + i % 6, missing=i % 3 == 0) for i in range(24)]
    domain = Domain((*columns, *(town(f"t{i}", 2 + i) for i in range(6))))
    laws = [rng.dirichlet(np.full(c.levels, 1.5)) for c in domain.columns]
    codes = np.column_stack([rng.choice(len(p), rows, p=p) for p in laws])
    tests = ordered_on(codes, domain, sigma, rng)
    asked = [(a, b, ()) for a, b in combinations(domain.names, 2) if tests.applies((a, b, ()))]
    for level in (0.05, 0.005):
        told = tests.answers(asked, level=level, margin=0.1)
        count = sum(answer.verdict == "dependent" for answer in told)
        assert count <= binom.isf(1e-3, len(asked), level), level
    p_values = [a.p_value for a in tests.trend_answers(asked, level=0.05, margin=0.1)]
    assert 0.4 < np.mean(p_values) < 0.6


def test_given_what_explains_them_columns_are_found_dependent_at_the_level() -> None:
    """Twelve effects of one number, 66 pairs; and without it all are dependent. Seeded."""
    rng, rows = np.random.default_rng(4), 30_000
    cause = rng.normal(size=rows)
    effects = 0.6 * cause[:, None] + rng.normal(size=(rows, 12))
    codes = np.column_stack([grouped(v, 12) for v in (cause, *effects.T)])
    domain = Domain(tuple(number(f"n{i}", 12) for i in range(13)))
    tests = ordered_on(codes, domain, 40.0, rng)
    tests.shared = {name: np.ones(12, bool) for name in domain.names}
    pairs = list(combinations(domain.names[1:], 2))
    alone = tests.answers([(a, b, ()) for a, b in pairs], level=0.05 / 66, margin=0.1)
    assert all(answer.verdict == "dependent" for answer in alone)
    given = tests.trend_answers([(a, b, ("n0",)) for a, b in pairs], level=0.05, margin=0.1)
    assert sum(a.p_value <= 0.05 for a in given) <= binom.isf(1e-3, 66, 0.05)


def test_a_trend_is_seen_that_the_chi_square_test_misses() -> None:
    """Correlation .4, 5,000 rows, noise 46 in each of 64 cells. Seeded."""
    rng, domain = np.random.default_rng(5), Domain((number("a"), number("b")))
    seen = np.zeros(2)
    for _ in range(30):
        x = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], 5_000)
        codes = np.column_stack([grouped(v, 8) for v in x.T])
        tests, query = ordered_on(codes, domain, 46.0, rng), [("a", "b", ())]
        trend = tests.answers(query, level=1e-3, margin=0.1)
        shape = tests.tables.answer(query, level=1e-3, margin=0.1)
        seen += [answers[0].verdict == "dependent" for answers in (trend, shape)]
        assert trend[0].effect < 0.7
    assert seen[0] >= 24 and seen[1] <= 15


def test_a_bend_and_a_missing_value_are_seen() -> None:
    rng, rows = np.random.default_rng(6), 20_000
    x = rng.normal(size=rows)
    bent, gone = grouped(x**2 + rng.normal(size=rows), 8), rng.random(rows) < 0.1 + 0.2 * (x > 1)
    codes = np.column_stack([grouped(x, 8), bent, np.where(gone, 8, grouped(rng.random(rows), 8))])
    domain = Domain((number("x"), number("bent"), number("gone", missing=True)))
    told = ordered_on(codes, domain, 30.0, rng).trend_answers(
        [("x", "bent", ()), ("x", "gone", ())], level=1e-3, margin=0.1
    )
    assert [answer.verdict for answer in told] == ["dependent"] * 2


def test_a_test_that_could_not_see_the_trend_does_not_say_that_it_is_gone() -> None:
    rng, rows = np.random.default_rng(7), 10_000
    x = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.3) + 0.7 * np.eye(3), rows)
    domain = Domain(tuple(map(number, "abc")))
    codes = np.column_stack([grouped(v, 8) for v in x.T])
    for sigma, able in ((20.0, True), (300.0, False)):
        tests = ordered_on(codes, domain, sigma, rng)
        tests.answers([("a", "b", ())], level=0.5, margin=0.1)
        (given,) = tests.answers([("a", "b", ("c",))], level=1e-3, margin=0.1)
        if able:
            assert given.verdict == "dependent"
        else:
            assert given.verdict == "undecided" and given.effect_upper == np.inf


def test_scores_are_orthonormal_and_of_mean_zero() -> None:
    share = np.array([0.5, 0.0, 0.2, 0.1, 0.05, 0.05, 0.05, 0.05])
    for column in (number("a"), number("a", 7, missing=True), town("a", 8)):
        scores = Scores.of(column, share, np.zeros(8, bool))
        held = np.maximum(share, 1e-6) / np.maximum(share, 1e-6).sum()
        inner = scores.values.T @ (held[:, None] * scores.values)
        assert np.allclose(inner, np.eye(len(scores.weights)), atol=1e-8)
        assert np.allclose(held @ scores.values, 0, atol=1e-9) and (scores.kept == 1).all()
    assert len(Scores.of(number("a"), share, np.zeros(8, bool)).weights) == TrendSettings().order
    assert not has_order(number("a", 4)) and not has_order(town("a", 40))
    kept = Scores.of(number("a"), np.full(8, 1 / 8), np.ones(8, bool)).kept
    assert kept == pytest.approx([1 - 1 / 64, 1 - 5 / 64, 1 - 14 / 64])


def test_two_tests_share_one_level() -> None:
    def answer(verdict: str, p: float) -> Answer:
        return Answer(verdict, p, 1.0, p, 1.0, 0.1)  # type: ignore[arg-type]

    both = together(answer("dependent", 0.01), answer("undecided", 0.4))
    assert (both.verdict, both.p_value, both.effect) == ("dependent", 0.02, 0.01)
    assert together(answer("independent", 0.9), answer("undecided", 0.4)).verdict == "undecided"
    assert together(answer("independent", 0.9), answer("independent", 0.4)).verdict == "independent"


def test_groups_follow_the_noise() -> None:
    assert how_many(100, 1e6) == GroupSettings.min_groups
    assert how_many(1e9, 1.0) == GroupSettings.max_groups
    assert how_many(10_000, 46.0) < how_many(100_000, 46.0)


def test_rounds_follow_from_public_facts() -> None:
    own = algorithm_named("measured_pc")
    ordered = Domain((number("a", 40), number("b", 40), number("c", 40)))
    mixed = Domain((*ordered.columns, town("d", 5), town("e", 7)))
    settings = Graph(mode="learn")
    assert own.spends(settings, ordered, 1e4).keys() == ORDERED_SHARES.keys()
    assert own.spends(settings, mixed, 1e4).keys() == MIXED_SHARES.keys()
    assert sum(ORDERED_SHARES.values()) == pytest.approx(sum(MIXED_SHARES.values())) == 1
    few = Domain((number("a", 8), *(town(f"t{i}", 9) for i in range(4))))
    assert "columns" not in own.spends(settings, few, 1e4)


def searched(table: RandomTable, rows: int) -> CausalGraph:
    """By the real mechanism at epsilon 1; its noise is seeded here."""
    own, settings = algorithm_named("measured_pc"), Graph(mode="learn")
    plan = make_search_plan(own.spends(settings, table.domain, rows), epsilon=1.0, delta=1e-5)
    found = own.search(Rehearsal(table.codes, table.domain, plan), settings, table.domain)
    graph: CausalGraph = found.value  # type: ignore[union-attr]
    return graph


@pytest.mark.check
def test_strong_trends_are_found_at_epsilon_one() -> None:
    """Links with |Spearman| > .3 at 10,000 rows, on tables that no constant was chosen on."""
    true = linked = 0
    for seed in (101, 102, 103):
        table = random_table(seed, 10_000)
        graph = searched(table, 10_000)
        links = {frozenset(p) for p in (*graph.directed, *graph.undirected)}
        rank, names = spearmanr(table.codes.astype(float)).statistic, table.domain.names
        for i, j in combinations(range(len(names)), 2):
            pair = frozenset((names[i], names[j]))
            if abs(rank[i, j]) > 0.3 and pair in table.links:
                true, linked = true + 1, linked + (pair in links)
        assert any(e.probability for e in graph.edges if e.provenance == "learned")
    assert true >= 10 and linked >= 0.85 * true


@pytest.mark.slow
def test_columns_without_links_get_none_at_the_level() -> None:
    """100 tables whose columns are shuffled: some link in at most 5% (binomial, 1e-4). Seeded."""
    rng, count = np.random.default_rng(8), 0
    for seed in range(201, 301):
        table = random_table(seed, 3_000)
        shuffled = np.column_stack([rng.permutation(column) for column in table.codes.T])
        graph = searched(replace(table, codes=shuffled), 3_000)
        count += bool(graph.directed or graph.undirected)
    assert count <= binom.isf(1e-4, 100, 0.05)


@pytest.mark.check
def test_a_model_is_trained_on_the_groups_that_the_search_counted() -> None:
    """The same coins, on levels that are groups and on fine levels with their groups."""
    domain = Domain((number("a", 8), number("b", 8), town("c", 2)))
    groups = LevelGroups(domain, {"a": (0, 3, 6), "b": (0, 4)})
    codes = np.random.default_rng(9).integers(0, [8, 8, 2], (50, 3)).astype(np.uint16)
    settings = DpSgd(
        rate=0.5,
        steps=3,
        expected_batch=25,
        clip=1.0,
        noise_multiplier=1.0,
        learning_rate=0.01,
        ema=0.9,
        checkpoint_every=2,
    )

    def trained(codes: np.ndarray, groups: LevelGroups | None, levels: Domain) -> list[bytes]:
        stage = Training(settings, SmallModel(levels), lambda *_: None, None, groups=groups)
        table = Table(codes, None, np.zeros(len(codes), bool), {})
        with seeded("groups"):
            weights = stage.run(table, Streams.fresh())
        return [weights[name].numpy().tobytes() for name in sorted(weights)]

    assert trained(codes, groups, groups.coarse) == trained(groups.of(codes), None, groups.coarse)
