"""The law of few cells: its likelihood and means by brute force, and which tables follow it."""

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from synthdp.data import ColumnDomain
from synthdp.graph import FEW_CELLS, few_cells
from synthdp.graph.predict import SmoothPair, axis, smoothed_pair

Floats = npt.NDArray[np.float64]
ROWS = 4000


def smooth(table: Floats, sigma: float, seed: int = 0) -> SmoothPair:
    """A table of probabilities with noise of `sigma` rows, smoothed by its true margins."""
    noisy = table + np.random.default_rng(seed).normal(0, sigma / ROWS, table.shape)
    first, second = (
        axis(ColumnDomain(n, "categorical", tuple(map(str, range(len(m)))), False), m, ROWS)
        for n, m in (("a", table.sum(1)), ("b", table.sum(0)))
    )
    return smoothed_pair(first, second, noisy, sigma / ROWS)


def function(levels: int) -> Floats:
    """b is a function of a: levels 2 k and 2 k + 1 of a have level k."""
    table = np.zeros((levels, levels // 2))
    table[np.arange(levels), np.arange(levels) // 2] = np.arange(1, levels + 1)
    return table / table.sum()


@pytest.mark.parametrize("sigma", [0.003, 0.05])
def test_likelihood_and_means_are_those_of_a_spike_and_a_slab(sigma: float) -> None:
    """By numerical integration over the slab, for all numbers that are tried."""
    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])
    shares = np.array([[0.49, 0.02], [-0.01, 0.28], [0.11, 0.1]])
    laws = []
    for spread, full in product((0.0, *FEW_CELLS.spread), FEW_CELLS.full):
        likelihood, means, cells = 0.0, spread * np.outer(first, second), 0.0
        for i, j in np.ndindex(3, 2):
            y, most = shares[i, j] - spread * first[i] * second[j], min(first[i], second[j])
            near = [max(0, y - 8 * sigma), min(most, max(0, y) + 8 * sigma)]
            slab = full / most * quad(lambda t, y=y: norm.pdf(y, t, sigma), *near)[0]
            mean = full / most * quad(lambda t, y=y: t * norm.pdf(y, t, sigma), *near)[0]
            density = max((1 - full) * norm.pdf(y, 0, sigma) + slab, 1e-300)
            likelihood += math.log(density * math.sqrt(2 * math.pi))
            means[i, j] += mean / density
            cells += slab / density
        laws.append((likelihood, means, cells))
    plain, other = (
        max(some, key=lambda law: law[0]) for some in (laws[: len(FEW_CELLS.full)], laws)
    )
    best = other if other[0] > plain[0] + FEW_CELLS.spread_evidence else plain
    found = few_cells(shares, first, second, sigma)
    assert found.likelihood == pytest.approx(best[0], rel=1e-6)
    assert found.means == pytest.approx(best[1], rel=1e-5, abs=1e-9)
    assert found.full == pytest.approx(best[2], rel=1e-5)


def test_far_outliers_have_finite_means_and_a_likelihood_that_falls() -> None:
    margins = np.array([0.5, 0.5])
    shares = np.array([[0.5, 0.0], [0.0, 0.5]])
    found = [few_cells(shares + off, margins, margins, 1e-3) for off in (0.0, 0.2, 5.0, -5.0)]
    assert all(np.isfinite(law.means).all() and law.means.min() >= 0 for law in found)
    assert [law.likelihood for law in found[:3]] == sorted(f.likelihood for f in found[:3])[::-1]
    assert found[3].likelihood < found[1].likelihood


def test_a_function_keeps_most_of_its_information_under_noise() -> None:
    """16 to 8 levels, noise of 20 rows in cells of 29 to 470: a process is off by .18 to .21."""
    table = function(16)
    pair = smooth(table, 20.0)
    assert 10 < pair.full < 30
    assert np.abs(pair.probabilities - table).sum() / 2 < 0.12
    true = smooth(table, 1e-3).mutual_information
    assert pair.mutual_information > 0.7 * true
    assert pair.expected_error(10 / ROWS) == pytest.approx(pair.expected_error(20 / ROWS) / 2)
    assert 0.3 < 2 * pair.expected_error(20 / ROWS) / np.abs(pair.probabilities - table).sum() < 3


def test_rows_that_are_spread_beside_a_function_stay_spread() -> None:
    """A fifth of all rows, whatever their column; a law of empty cells alone would lose them."""
    table = 0.8 * function(16) + 0.2 * np.outer(function(16).sum(1), function(16).sum(0))
    pair = smooth(table, 15.0)
    assert pair.full and np.abs(pair.probabilities - table).sum() / 2 < 0.12


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.5])
def test_a_table_that_a_process_explains_stays_one(strength: float) -> None:
    """Neighbours that depend: twenty tables of each strength."""
    place = np.linspace(-2, 2, 8)
    one, other = np.meshgrid(place, place)
    square = one**2 + other**2 - 2 * strength * one * other
    table = np.exp(-square / 2 / (1 - strength**2))
    assert [smooth(table / table.sum(), 20.0, s).full for s in range(20)] == [0.0] * 20
