"""Fieller's intervals and quantiles' intervals, against their definitions and by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp.inference import (
    Cuts,
    Functionals,
    Quadratic,
    Rows,
    Z,
    certain,
    count_figure,
    mean_sampling,
    quantile_estimate,
    quantile_interval,
    ratio_interval,
    share_sampling,
    sum_figure,
)


@given(st.floats(-50, 500), st.floats(80, 500), st.floats(0.5, 15), st.floats(0.5, 15),
       st.floats(-0.9, 0.9))  # fmt: skip
def test_the_ends_solve_the_inequality(
    n: float, d: float, sd_n: float, sd_d: float, correlation: float
) -> None:
    noise = Quadratic(sd_n**2, correlation * sd_n * sd_d, sd_d**2)
    interval = ratio_interval(n, d, noise)
    assert interval is not None and interval[0] <= n / d <= interval[1]
    for end in interval:
        variance = noise.nn - 2 * end * noise.nd + end**2 * noise.dd
        assert (n - end * d) ** 2 == pytest.approx(Z**2 * variance, rel=1e-4, abs=1e-4)


def test_a_share_is_wilsons_where_there_is_no_noise() -> None:
    n, d, z2 = 7.0, 40.0, Z**2
    centre, half = (n + z2 / 2) / (d + z2), Z * np.sqrt(n * (d - n) / d + z2 / 4) / (d + z2)
    assert ratio_interval(n, d, share_sampling(d)) == pytest.approx((centre - half, centre + half))


def test_a_mean_of_many_rows_is_the_textbooks() -> None:
    x = np.random.default_rng(1).gamma(2.0, 3.0, 4000)
    n, d = float(x.sum()), float(len(x))
    interval = ratio_interval(n, d, mean_sampling(n, d, float((x**2).sum())))
    half = Z * x.std() / np.sqrt(d)
    assert interval == pytest.approx((x.mean() - half, x.mean() + half), rel=1e-3)


@pytest.mark.parametrize("per_unit", [1, 5])
def test_coins_of_whole_units_spread_a_count_and_its_estimate_is_the_middle(per_unit: int) -> None:
    """800 to 840 counted rows, four fifths of all: K rows have coins of k K h / (1 - h)."""
    found = Functionals(np.array([800.0, 0, 0, 840.0, 0, 0]), 900 * np.eye(6))
    figure = count_figure(found, Rows(0.2, per_unit), None)
    noise = 900 / 0.8**2
    low, high = (
        k + z * np.sqrt(noise + per_unit * k * 0.2 / 0.8) for k, z in ((1000, -Z), (1050, Z))
    )
    assert figure.interval == pytest.approx((low, high)) and figure.bounds == (1000.0, 1050.0)
    assert figure.estimate == figure.rows == pytest.approx(1025)
    found = Functionals(np.array([4000.0, 800, 30_000] * 2), 900 * np.eye(6))
    figure = sum_figure(found, (0.0, 9.0), Rows(0.2, per_unit), None)
    half = Z * np.sqrt(noise + per_unit * 30_000 / 0.8 * 0.2 / 0.8)
    assert figure.interval == pytest.approx((5000 - half, 5000 + half))


def test_a_denominator_that_may_be_zero_has_no_interval() -> None:
    assert ratio_interval(5.0, 10.0, Quadratic(100.0, 0.0, 100.0)) is None
    assert not certain(30.0, 64.0) and not certain(19.0, 0.1) and certain(33.0, 64.0)


def test_a_share_of_all_rows_is_one() -> None:
    noise = Quadratic(81.0, 81.0, 81.0)
    interval = ratio_interval(300.0, 300.0, noise.plus(share_sampling(300.0)))
    assert interval is not None and interval[0] > 0.98 and interval[1] >= 1.0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_interval_of_a_quantile_covers(p: float) -> None:
    """600 tables of 500 rows with noise 4; fewer than 550 of 600 at .95 has probability 2e-4."""
    rng = np.random.default_rng(int(10 * p))
    law = rng.dirichlet(np.full(12, 3.0))
    truth = int(np.argmax(np.cumsum(law) >= p))
    ends = np.arange(12.0)
    covered = 0
    for _ in range(600):
        noisy = rng.multinomial(500, law) + rng.normal(0, 4, 12)
        below = np.cumsum(noisy) - p * noisy.sum()
        a = np.tril(np.ones((12, 12))) - p
        sd = np.sqrt(16 * (a**2).sum(1) + 500 * p * (1 - p))
        cuts = Cuts(-p * float(noisy.sum()), below, sd, below, sd)
        low, high = quantile_interval(cuts, ends, ends)
        assert low <= quantile_estimate(cuts, ends, ends) <= high
        covered += low <= truth <= high
    assert covered >= 550
