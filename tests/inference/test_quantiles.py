"""Quantiles of noisy histograms: right without noise, and covered with it."""

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.errors import QueryError
from synthdp.inference import Figure, Rows
from synthdp.inference.estimands import quantile_figures
from synthdp.spec import parse_query
from synthdp.spec.model import Column, Integer, Number

COLUMNS: dict[str, Column] = {
    "pay": Number(type="number", lower=0, upper=100, bins=50, missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=100),
}
PAY = Domain.from_spec(COLUMNS)["pay"]
BINS = 50


def histogram(values: np.ndarray, lost: int = 0) -> np.ndarray:
    found = np.histogram(values, bins=BINS, range=(0, 100))[0]
    return np.append(found, lost).astype(float)


def quantile(counts: np.ndarray, sigma: float, p: float = 0.5, rows: Rows | None = None) -> Figure:
    (found,) = quantile_figures(counts[None], sigma, p, PAY, rows or Rows(), [None])
    return found


def drawn(rows: int, rng: np.random.Generator) -> np.ndarray:
    return 100 * rng.beta(2, 5, rows)


def test_without_noise_it_is_that_of_the_rows_up_to_a_level_and_lost_rows_do_not_count() -> None:
    values = drawn(4000, np.random.default_rng(0))
    for p in (0.1, 0.5, 0.9):
        found = quantile(histogram(values, lost=700), 1e-9, p)
        assert found.rows == pytest.approx(4000)
        assert float(found.estimate or 0) == pytest.approx(np.quantile(values, p), abs=0.1)
        assert found.of_rows is not None
        assert float(found.of_rows[1]) - float(found.of_rows[0]) <= 2.0  # one level


def test_a_histogram_under_its_noise_has_no_figure() -> None:
    found = quantile(histogram(drawn(400, np.random.default_rng(1))), 20.0)
    assert found.estimate is None and "too few rows" in (found.refused or "")


def test_rows_of_one_person_widen_the_interval_by_sampling_alone() -> None:
    counts = histogram(drawn(500, np.random.default_rng(2)))
    one, nine = (quantile(counts, 1.0, rows=Rows(per_unit=k)) for k in (1, 9))
    assert one.of_rows == nine.of_rows and one.interval and nine.interval
    assert nine.interval[0] < one.interval[0] and one.interval[1] < nine.interval[1]


def coverage(releases: int, rows: int, sigma: float, told: float, p: float, seed: int) -> float:
    """How many intervals hold the population's quantile, with noise of `sigma`, said `told`."""
    rng, inside = np.random.default_rng(seed), 0
    truth = float(np.quantile(drawn(2_000_000, np.random.default_rng(9)), p))
    for _ in range(releases):
        exact = histogram(drawn(rows, rng))
        found = quantile(exact + rng.normal(0, sigma, len(exact)), told, p)
        assert found.interval is not None
        inside += float(found.interval[0]) <= truth <= float(found.interval[1])
    return inside / releases


def test_intervals_hold_the_quantile() -> None:
    """They end where levels end, so that coverage may be above 95%, and no less."""
    assert coverage(200, 2000, 20.0, 20.0, 0.5, seed=3) >= 0.93


def test_an_interval_without_the_noise_would_not() -> None:
    assert coverage(200, 2000, 60.0, 5.0, 0.5, seed=3) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("rows", "sigma"), [(2000, 5.0), (2000, 30.0), (20_000, 30.0)])
def test_intervals_hold_quantiles_of_all_kinds(p: float, rows: int, sigma: float) -> None:
    """Of 1,000 releases at 95%, fewer than 925 would be 3.6 standard deviations away."""
    found = coverage(1000, rows, sigma, sigma, p, seed=4)
    print(f"quantile of {p}: {rows} rows, noise {sigma}: coverage {found:.3f}")
    assert found >= 0.925


def test_the_median_is_a_quantile_in_another_word() -> None:
    median = parse_query("median(pay) where age > 3", COLUMNS)
    assert (median.statistic, median.column, median.p) == ("quantile", "pay", 0.5)
    assert median.asks_like(parse_query("quantile(pay, 0.5) where age > 3", COLUMNS))
    with pytest.raises(QueryError, match="name of one column"):
        parse_query("median(pay, 0.5)", COLUMNS)
