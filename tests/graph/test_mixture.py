"""Tails of weighted sums of chi-squares, as far out as family-wise levels of hundreds of claims
reach.
"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

from synthdp.graph.chi_square import Mixture, answers, upper_tail


@pytest.mark.parametrize("p", [0.02, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("coordinates", [1, 2, 5, 20])
def test_equal_weights_are_a_chi_square(coordinates: int, p: float) -> None:
    (found,) = upper_tail(
        np.array([3.0 * chi2.isf(p, coordinates)]), np.full((1, coordinates), 3.0)
    )
    assert p <= found <= 1.12 * p


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights", [[1.0, 0.3, 0.1, 0.05, 0.01], [1.0, 0.9, 0.1], [5.0, 1.0, 1.0, 1.0, 0.0], [1.0, 0.5]]
)
@pytest.mark.parametrize("x", [8.0, 14.0, 20.0])
def test_unequal_weights_against_imhofs_integral(weights: list[float], x: float) -> None:
    """Imhof 1961, formula 3.2, integrated numerically. Three moments alone make the rarest of these
    a third too rare.
    """
    w = np.array(weights)
    x *= w.max()

    def integrand(u: float) -> float:
        return float(
            np.sin(np.arctan(w * u).sum() / 2 - x * u / 2)
            / (u * np.prod((1 + (w * u) ** 2) ** 0.25))
        )

    period = 4 * np.pi / x
    parts = [
        quad(integrand, k * period + 1e-12, (k + 1) * period, limit=200)[0] for k in range(4000)
    ]
    exact = 0.5 + float(np.sum(parts)) / np.pi
    (found,) = upper_tail(np.array([x]), w[None])
    assert found == pytest.approx(exact, rel=0.12, abs=2e-6)


def test_a_statistic_that_is_improbably_low_bounds_an_effect_as_one_at_its_mean_does() -> None:
    """Variances are bounds: where they are far too large, nothing was seen, and not nothing."""
    weights = np.full((2, 9), 0.8)
    tests = Mixture(np.array([0.5, 7.2]), weights, np.full(2, 1e3), np.ones(2))
    below, at = answers(tests, level=0.05, margin=0.01)
    assert below.effect_upper == at.effect_upper > 0.01
    assert below.verdict == at.verdict == "undecided"
