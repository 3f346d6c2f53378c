"""Rank tests: the libraries' p-values, the size they promise, and answers that admit what they
cannot tell.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from benchmarks.exact_tests import exact_kendall, exact_spearman
from synthdp.graph import noisy_rank_answer
from synthdp.graph.chi_square import Answer
from synthdp.privacy import STATISTICS, STEPS, VARIANCE_STEPS

Ints = npt.NDArray[np.int64]
Exact = Callable[..., Answer]


def table_of(x: Ints, y: Ints, z: Ints | None = None) -> Ints:
    z = np.zeros(len(x), dtype=int) if z is None else z
    table = np.zeros((z.max() + 1, x.max() + 1, y.max() + 1), dtype=np.int64)
    np.add.at(table, (z, x, y), 1)
    return table


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_without_strata_p_values_are_the_libraries(slope: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, 400)
    y = rng.binomial(4, 0.3 + slope * x / 4)
    got = [test(table_of(x, y), level=0.05, margin=0.1) for test in (exact_kendall, exact_spearman)]
    # scipy tests tau-b by the same normal law with ties; rho by a t law, which is close to normal
    # at 400 rows.
    assert got[0].p_value == pytest.approx(
        stats.kendalltau(x, y, method="asymptotic").pvalue, rel=0.03
    )
    assert got[1].statistic == pytest.approx(
        stats.spearmanr(x, y).statistic * math.sqrt(399), rel=0.01
    )
    assert [a.verdict == "dependent" for a in got] == [slope > 0] * 2


@pytest.mark.parametrize("test", [exact_kendall, exact_spearman])
def test_exact_tests_keep_their_size_within_strata(test: Exact) -> None:
    rng, rejected, runs = np.random.default_rng(1), 0, 1000
    for _ in range(runs):
        z = rng.integers(0, 4, 300)
        x, y = rng.binomial(1, 0.1 + 0.2 * z), rng.binomial(3, 0.8 - 0.2 * z)
        rejected += test(table_of(x, y, z), level=0.05, margin=0.1).verdict == "dependent"
    assert 0.025 < rejected / runs < 0.08


@pytest.mark.check
@pytest.mark.parametrize("name", ["kendall", "spearman"])
def test_noisy_tests_keep_their_size(name: str) -> None:
    """At much noise and little, for rare levels and common ones."""
    rng = np.random.default_rng(2)
    for noise, rare in ((2.0, 0.5), (60.0, 0.5), (60.0, 0.02)):
        rejected = 0
        for _ in range(600):
            x, y = rng.binomial(1, rare, 2000), rng.binomial(1, rare, 2000)
            measured = STATISTICS[name].measure(table_of(x, y), present=(slice(None), slice(None)))  # type: ignore[index]
            score, variance = np.array(
                [measured.score / STEPS, measured.variance / VARIANCE_STEPS]
            ) + rng.normal(0, noise, 2)
            answer = noisy_rank_answer(
                score, variance, noise=noise, rows=2000.0, level=0.05, margin=0.1
            )
            rejected += answer.verdict == "dependent"
        assert 0.02 < rejected / 600 < 0.09


def test_answers_are_three_valued() -> None:
    clear = noisy_rank_answer(9000.0, 2.25e5, noise=50.0, rows=1e5, level=0.05, margin=0.1)
    none = noisy_rank_answer(100.0, 2.25e5, noise=50.0, rows=1e5, level=0.05, margin=0.1)
    unclear = noisy_rank_answer(100.0, 225.0, noise=500.0, rows=100.0, level=0.05, margin=0.1)
    assert [a.verdict for a in (clear, none, unclear)] == ["dependent", "independent", "undecided"]
    assert clear.effect == pytest.approx(9000 / math.sqrt(2.25e5 * 1e5))
    assert none.effect_upper < 0.1 < unclear.effect_upper


@pytest.mark.check
def test_detectable_effects_are_found_four_times_in_five() -> None:
    rng, noise, variance, rows = np.random.default_rng(3), 300.0, 2.25e5, 1e5
    detectable = noisy_rank_answer(
        0.0, variance, noise=noise, rows=rows, level=0.05, margin=0.1
    ).detectable
    scores = detectable * math.sqrt(variance * rows) + rng.normal(
        0, math.hypot(noise, math.sqrt(variance)), 4000
    )
    found = [
        noisy_rank_answer(s, variance, noise=noise, rows=rows, level=0.05, margin=0.1).verdict
        == "dependent"
        for s in scores
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_where_nothing_varies_nothing_is_said() -> None:
    constant = np.array([[[50, 50], [0, 0]]])
    for test in (exact_kendall, exact_spearman):
        assert test(constant, level=0.05, margin=0.1).verdict == "undecided"
    assert (
        exact_kendall(np.zeros((2, 2, 2), dtype=np.int64), level=0.05, margin=0.1).verdict
        == "undecided"
    )
