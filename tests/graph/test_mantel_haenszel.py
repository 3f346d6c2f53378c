"""The Mantel-Haenszel test from margins: agreement with the textbook, size, power, and what it
cannot see.
"""

import numpy as np
import pytest

from synthdp.graph.chi_square import (
    Tables,
    partial_mixture,
)
from tests.graph.oracle import chi_square, mantel_haenszel


def margins(counts: np.ndarray, sigma: float, rng: np.random.Generator) -> Tables:
    """The three noisy tables of exact counts `[tests, strata, rows, columns]`."""
    noisy = [
        m + np.rint(rng.normal(0, sigma, m.shape))
        for m in (counts.sum(1), counts.sum(3), counts.sum(2))
    ]
    noise = np.full(len(counts), sigma)
    return Tables(*noisy, (noise, noise, noise))


def draws(shares: np.ndarray, rows: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    return (
        rng.multinomial(rows, shares.ravel() / shares.sum(), size=runs)
        .reshape(runs, *shares.shape)
        .astype(float)
    )


def independent(
    shape: tuple[int, int, int], sparsity: float, rng: np.random.Generator
) -> np.ndarray:
    strata, rows, columns = shape
    weights = rng.dirichlet(np.full(strata, sparsity))
    left, right = (
        rng.dirichlet(np.full(rows, sparsity), strata),
        rng.dirichlet(np.full(columns, sparsity), strata),
    )
    return np.einsum("s,sa,sb->sab", weights, left, right)


def rejected(tables: Tables, level: float = 0.05) -> float:
    return float(
        np.mean([a.p_value <= level for a in mantel_haenszel(tables, level=level, margin=0.1)])
    )


def test_without_noise_it_is_cochrans_statistic() -> None:
    """Two by two: (sum of residuals)^2 over the sum of their binomial variances (Cochran 1954)."""
    counts = np.array([[[[30.0, 50.0], [40.0, 20.0]], [[200.0, 90.0], [110.0, 80.0]]]])
    (answer,) = mantel_haenszel(
        margins(counts, 0.0, np.random.default_rng(1)), level=0.05, margin=0.1
    )
    n, row, column = counts.sum((2, 3)), counts.sum(3)[..., 0], counts.sum(2)[..., 0]
    residual = (counts[..., 0, 0] - row * column / n).sum()
    variance = (row * (n - row) * column * (n - column) / n**3).sum()
    assert answer.statistic == pytest.approx(residual**2 / variance, rel=1e-6)


def test_with_one_stratum_and_no_noise_it_is_the_chi_square() -> None:
    counts = np.array([[[[200.0, 310.0, 90.0], [150.0, 220.0, 130.0]]]])
    (mine,) = mantel_haenszel(
        margins(counts, 0.0, np.random.default_rng(1)), level=0.05, margin=0.1
    )
    (other,) = chi_square(counts, np.zeros(1), level=0.05, margin=0.1)
    assert mine.statistic == pytest.approx(other.statistic, rel=1e-6)
    assert mine.effect == pytest.approx(other.effect, rel=1e-6)


@pytest.mark.parametrize("sigma", [1.0, 30.0, 300.0])
@pytest.mark.parametrize(
    ("shape", "sparsity"), [((2, 2, 2), 2.0), ((3, 3, 4), 0.3), ((16, 2, 3), 0.3)]
)
def test_size_quick(shape: tuple[int, int, int], sparsity: float, sigma: float) -> None:
    rng = np.random.default_rng(7)
    counts = np.concatenate(
        [draws(independent(shape, sparsity, rng), 20_000, 60, rng) for _ in range(10)]
    )
    assert rejected(margins(counts, sigma, rng)) <= 0.07 + 2 * np.sqrt(0.07 * 0.93 / 600)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2_000, 20_000, 100_000])
@pytest.mark.parametrize("sigma", [1.0, 10.0, 50.0, 300.0])
@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 3, 3), (4, 2, 5), (9, 3, 4), (64, 2, 3)])
@pytest.mark.parametrize("sparsity", [0.3, 2.0])
def test_size(rows: int, sigma: float, shape: tuple[int, int, int], sparsity: float) -> None:
    rng = np.random.default_rng(11)
    counts = np.concatenate(
        [draws(independent(shape, sparsity, rng), rows, 100, rng) for _ in range(40)]
    )
    assert rejected(margins(counts, sigma, rng)) <= 0.07


def test_understated_noise_is_noticed() -> None:
    rng = np.random.default_rng(3)
    tables = margins(draws(independent((3, 3, 3), 2.0, rng), 20_000, 400, rng), 300.0, rng)
    small = np.full(400, 200.0)
    assert rejected(Tables(tables.pair, tables.left, tables.right, (small, small, small))) > 0.2


def test_it_finds_what_the_test_of_the_whole_table_misses() -> None:
    """A dependence of w = .1 in every one of 16 strata, all tables with the same noise."""
    rng = np.random.default_rng(5)
    shares = np.repeat(0.25 * (1 + 0.1 * np.array([[[1.0, -1.0], [-1.0, 1.0]]])), 16, axis=0)
    counts, sigma = draws(shares, 20_000, 300, rng), 150.0
    whole = chi_square(
        counts + np.rint(rng.normal(0, sigma, counts.shape)),
        np.full(300, sigma),
        level=0.05,
        margin=0.1,
    )
    assert (
        rejected(margins(counts, sigma, rng))
        > 0.95
        > 0.5
        > np.mean([a.verdict == "dependent" for a in whole])
    )


def test_effect_is_estimated_and_bounded() -> None:
    rng = np.random.default_rng(6)
    shares = np.repeat(0.25 * (1 + 0.2 * np.array([[[1.0, -1.0], [-1.0, 1.0]]])), 3, axis=0)
    answers = mantel_haenszel(
        margins(draws(shares, 20_000, 500, rng), 50.0, rng), level=0.05, margin=0.1
    )
    assert np.median([a.effect for a in answers]) == pytest.approx(0.2, abs=0.01)
    assert np.mean([a.effect_upper >= 0.2 for a in answers]) >= 0.92


def test_dependence_that_cancels_is_not_seen() -> None:
    turn = np.array([[1.0, -1.0], [-1.0, 1.0]])
    counts = 2_500 * (1 + 0.5 * np.stack([turn, -turn]))[None]
    (answer,) = mantel_haenszel(
        margins(counts, 10.0, np.random.default_rng(8)), level=0.05, margin=0.1
    )
    assert answer.p_value > 1e-3
    assert chi_square(counts, np.array([10.0]), level=0.05, margin=0.1)[0].p_value < 1e-9


def test_tiny_strata_say_little_and_claim_nothing() -> None:
    counts = np.zeros((1, 8, 2, 2))
    counts[0, 0], counts[0, 1:] = 2_000.0, 100.0
    tables = margins(counts, 400.0, np.random.default_rng(9))
    (answer,) = mantel_haenszel(tables, level=0.05, margin=10.0)
    assert answer.verdict != "independent"


@pytest.mark.check
@pytest.mark.parametrize("sigma", [1.0, 30.0])
def test_many_levels_keep_their_size_on_few_contrasts(sigma: float) -> None:
    rng = np.random.default_rng(13)
    counts = np.concatenate(
        [draws(independent((3, 40, 25), 0.3, rng), 20_000, 20, rng) for _ in range(10)]
    )
    tables = margins(counts, sigma, rng)
    assert partial_mixture(tables).weights.shape == (200, 144)
    assert rejected(tables) <= 0.07 + 2 * np.sqrt(0.07 * 0.93 / 200)


@pytest.mark.check
def test_few_contrasts_see_what_frequent_levels_do() -> None:
    """Levels 0 to 4 of both columns depend on each other, and have most of the rows."""
    rng = np.random.default_rng(17)
    level = np.r_[np.full(5, 0.18), np.full(20, 0.005)]
    shares = np.repeat(np.outer(level, level)[None], 2, axis=0)
    shares[:, :5, :5] *= 1 + 0.1 * (5 * np.eye(5) - 1)
    tables = margins(draws(shares, 20_000, 5, rng), 30.0, rng)
    few = mantel_haenszel(tables, level=0.05, margin=0.1)
    all_of_them = mantel_haenszel(tables, level=0.05, margin=0.1, max_contrasts=24 * 24)
    assert {a.verdict for a in few} == {a.verdict for a in all_of_them} == {"dependent"}
    for one, other in zip(few, all_of_them, strict=True):
        assert one.effect == pytest.approx(other.effect, rel=0.2)


@pytest.mark.check
def test_independence_is_claimed_only_if_few_contrasts_hold_most_of_the_variance() -> None:
    rng = np.random.default_rng(19)
    frequent = np.r_[np.full(13, 0.0768), np.full(12, 0.0001)]  # 12 contrasts of each column
    for level, claimed in ((np.full(25, 0.04), False), (frequent, True)):
        counts = draws(np.outer(level, level)[None], 50_000, 20, rng)
        found = mantel_haenszel(margins(counts, 10.0, rng), level=0.001, margin=0.2)
        assert any(answer.verdict == "independent" for answer in found) == claimed
