"""What one run proves: the papers' printed numbers, exact tails, a linear programme as oracle."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

from synthdp.audit.mechanisms.canaries import (
    CurveClaim,
    curve_allows,
    epsilon_lower_bound,
    epsilon_p_value,
    right_guesses,
)
from tests.audit.conftest import gaussian_claim


def curve_p_value(claim: CurveClaim, *, canaries: int, guesses: int, right: int) -> float:
    """Greatest probability of `right` or more right guesses that the claimed curve allows."""
    low, high = 0.0, 1.0
    if curve_allows(claim, 1.0, canaries=canaries, guesses=guesses, right=right):
        return 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if curve_allows(claim, middle, canaries=canaries, guesses=guesses, right=right):
            low = middle
        else:
            high = middle
    return high


def pure_claim(epsilon: float, delta: float = 0.0) -> CurveClaim:
    return CurveClaim(epsilon, delta, ((epsilon, delta),))


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "printed"),
    [
        (100, 100, 75, 0.0, 0.702),
        (100, 100, 75, 1e-4, 0.699),
        (1000, 100, 75, 1e-4, 0.673),
        (100_000, 1510, 1439, 1e-5, 2.675),
    ],
)
def test_lower_bounds_printed_by_steinke_et_al(
    canaries: int, guesses: int, right: int, delta: float, printed: float
) -> None:
    """arXiv:2305.08846v1, Appendix D (pages 45-46) and Section 7 (page 28), to three places."""
    bound = epsilon_lower_bound(
        canaries=canaries, guesses=guesses, right=right, delta=delta, significance=0.05
    )
    assert abs(bound - printed) < 1e-3


def test_p_value_printed_by_steinke_et_al() -> None:
    assert epsilon_p_value(
        canaries=100, guesses=100, right=75, epsilon=math.log(3), delta=0
    ) == pytest.approx(0.553, abs=5e-4)


def test_randomised_response_attains_the_pure_bound() -> None:
    """Right guesses are Binomial(m, e^eps / (1 + e^eps)): the bound is as tight as it may be."""
    for right in (5, 8, 10):
        exact = binom.sf(right - 1, 10, 1 / (1 + math.exp(-0.8)))
        assert epsilon_p_value(
            canaries=10, guesses=10, right=right, epsilon=0.8, delta=0
        ) == pytest.approx(exact)


def tail_of_leak(canaries: int, epsilon: float, delta: float, right: int) -> float:
    """Exact P[`right` or more right]: all coins told with chance delta, else randomised."""
    truth = 1 / (1 + math.exp(-epsilon))
    tail = 0.0
    for answers in product((0, 1), repeat=canaries):
        if sum(answers) >= right:
            tail += math.prod(truth if a else 1 - truth for a in answers)
    return delta + (1 - delta) * tail


@pytest.mark.parametrize("right", [4, 6, 8])
def test_a_mechanism_that_leaks_with_chance_delta_stays_below_the_bound(right: int) -> None:
    exact = tail_of_leak(8, 1.0, 0.01, right)
    bound = epsilon_p_value(canaries=8, guesses=8, right=right, epsilon=1.0, delta=0.01)
    assert exact <= bound
    assert exact > epsilon_p_value(
        canaries=8, guesses=8, right=right, epsilon=1.0, delta=0
    )  # delta must not be dropped
    assert curve_p_value(pure_claim(1.0, 0.01), canaries=8, guesses=8, right=right) >= exact


def oracle(claim: CurveClaim, canaries: int, guesses: int, right: int) -> float:
    """The largest P[C >= right] that (1) leaves possible, for all tails and both forms of lines."""
    j = np.arange(guesses + 1)
    rows, bounds = [], []
    for first in range(1, guesses + 1):
        hit = np.where(j >= first, j, 0) / canaries
        miss = np.where(j >= first - 1, guesses - j, 0) / canaries
        for epsilon, delta in claim.profile:
            rows += [hit - math.exp(epsilon) * miss, hit - math.exp(-epsilon) * miss]
            bounds += [delta, 1 - math.exp(-epsilon) * (1 - delta)]
    whole = {"A_eq": [np.ones(guesses + 1)], "b_eq": [1.0], "bounds": (0, 1)}
    answer = linprog(-(j >= right).astype(float), A_ub=rows, b_ub=bounds, **whole)
    assert answer.success
    return float(-answer.fun)


@pytest.mark.parametrize(
    "claim", [gaussian_claim(0.3), gaussian_claim(1.5), pure_claim(0.5), pure_claim(1.0, 0.02)]
)
@pytest.mark.parametrize(("canaries", "guesses"), [(20, 20), (100, 24)])
def test_recursion_finds_what_a_linear_programme_finds(
    claim: CurveClaim, canaries: int, guesses: int
) -> None:
    for right in (0, guesses // 2, round(0.7 * guesses), guesses - 1, guesses):
        expected = oracle(claim, canaries, guesses, right)
        assert curve_p_value(
            claim, canaries=canaries, guesses=guesses, right=right
        ) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_gaussian_canaries_stay_below_the_curve_bound(mu: float) -> None:
    """One Gaussian per canary, all guessed by sign: C is exactly Binomial(m, Phi(mu / 2))."""
    canaries, claim = 1000, gaussian_claim(mu)
    for likely in (0.5, 0.9, 0.999):
        right = int(binom.ppf(likely, canaries, norm.cdf(mu / 2)))
        exact = float(binom.sf(right - 1, canaries, norm.cdf(mu / 2)))
        assert curve_p_value(claim, canaries=canaries, guesses=canaries, right=right) >= exact


def test_with_abstentions_half_the_noise_is_refuted_and_the_noise_is_not() -> None:
    canaries, guesses, mu = 5000, 400, 0.5
    rng = np.random.default_rng(0)
    coins = rng.random(canaries) < 0.5
    right = {
        factor: right_guesses(factor * mu * coins + rng.standard_normal(canaries), coins, guesses)
        for factor in (1, 2)
    }
    claim = gaussian_claim(mu)
    assert curve_allows(claim, 0.025, canaries=canaries, guesses=guesses, right=right[1])
    assert not curve_allows(claim, 0.025, canaries=canaries, guesses=guesses, right=right[2])


def test_right_guesses_of_nothing_prove_nothing() -> None:
    assert epsilon_lower_bound(canaries=100, guesses=0, right=0, delta=1e-5, significance=0.05) == 0
    assert curve_p_value(gaussian_claim(0.1), canaries=100, guesses=100, right=0) == 1
    with pytest.raises(ValueError, match="right <= guesses"):
        epsilon_p_value(canaries=10, guesses=5, right=6, epsilon=1, delta=0)
