"""Ceilings that differential privacy puts on attacks, and lower bounds that attacks put on
epsilon.
"""

from math import exp, log
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from synthdp_attacks import (
    AttackError,
    Claim,
    Counts,
    Interval,
    ceiling_advantage,
    ceiling_from_profile,
    choose_threshold,
    epsilon_lower_bound,
    power_warnings,
    profile_excess,
    provable_epsilon,
)


def gaussian_delta(epsilon: float, sigma: float) -> float:
    """Balle and Wang (2018), Theorem 8 (v3), sensitivity 1."""
    return float(
        norm.cdf(0.5 / sigma - epsilon * sigma)
        - exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    )


SIGMA = brentq(lambda s: gaussian_delta(1.0, s) - 1e-5, 0.5, 20)
PROFILE = tuple((float(e), gaussian_delta(e, SIGMA)) for e in np.linspace(0, 3, 61))


def test_ceiling_closed_forms() -> None:
    assert ceiling_advantage(0, 0) == 0
    assert ceiling_advantage(0.1, 0) == pytest.approx(0.05, abs=2e-4)
    assert ceiling_advantage(1, 1e-5) == pytest.approx((exp(1) - 1 + 2e-5) / (1 + exp(1)))
    assert ceiling_advantage(1, 0) == pytest.approx(0.462, abs=2e-4)
    assert ceiling_advantage(0, 0.3) == pytest.approx(0.3)
    assert ceiling_advantage(5000, 0) == 1 and ceiling_advantage(0, 1) == 1


def test_randomised_response_attains_the_ceiling() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        keep = exp(epsilon) / (1 + exp(epsilon))
        assert ceiling_advantage(epsilon, 0) == pytest.approx(2 * keep - 1)


def test_gaussian_at_epsilon_1_allows_far_less_than_pure_epsilon() -> None:
    ceiling = ceiling_from_profile(PROFILE)
    assert ceiling <= 0.107
    assert ceiling == pytest.approx(
        2 * norm.cdf(0.5 / SIGMA) - 1
    )  # total variation of two Gaussians
    assert Claim(1.0, 1e-5, PROFILE).ceiling_advantage() == ceiling
    assert Claim(1.0, 1e-5).ceiling_advantage() == pytest.approx(0.462, abs=2e-4)


def test_every_pair_of_a_tight_profile_lies_above_total_variation() -> None:
    assert min(ceiling_advantage(e, d) for e, d in PROFILE[1:]) >= PROFILE[0][1]


@pytest.mark.parametrize(("epsilon", "delta"), [(-0.1, 0), (1, 1.1), (1, -0.1), (float("nan"), 0)])
def test_ceiling_refuses_what_is_no_guarantee(epsilon: float, delta: float) -> None:
    with pytest.raises(AttackError, match="epsilon >= 0"):
        ceiling_advantage(epsilon, delta)


def test_an_empty_profile_is_refused() -> None:
    with pytest.raises(AttackError, match="empty privacy profile"):
        ceiling_from_profile([])


def test_what_runs_can_prove() -> None:
    assert provable_epsilon(100) == pytest.approx(3.28, abs=0.005)
    assert provable_epsilon(1000) == pytest.approx(5.6, abs=0.005)
    tail = 0.025 ** (1 / 100)
    assert provable_epsilon(100) == pytest.approx(log(tail / (1 - tail)))


def test_lower_bound_looks_in_both_directions_and_never_below_zero() -> None:
    sure_in, sure_out = Counts(60, 100, 0, 100), Counts(100, 100, 40, 100)
    assert epsilon_lower_bound(sure_in) == pytest.approx(epsilon_lower_bound(sure_out))
    assert epsilon_lower_bound(sure_in) > 2
    assert epsilon_lower_bound(sure_in, delta=0.3) < epsilon_lower_bound(sure_in)
    assert epsilon_lower_bound(Counts(50, 100, 50, 100)) == 0


@pytest.mark.check
@pytest.mark.parametrize("models", [20, 60])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_lower_bound_exceeds_the_truth_in_at_most_one_run_of_twenty(
    models: int, epsilon: float
) -> None:
    """Exactly, on randomised response, by summing over every pair of counts."""
    keep, k = exp(epsilon) / (1 + exp(epsilon)), np.arange(models + 1)
    hits, alarms = binom.pmf(k, models, keep), binom.pmf(k, models, 1 - keep)
    wrong = sum(
        hits[t] * alarms[f]
        for t in range(models + 1)
        for f in range(models + 1)
        if hits[t] * alarms[f] > 1e-9
        and epsilon_lower_bound(Counts(t, models, f, models)) > epsilon
    )
    assert wrong <= 0.05


def test_profile_refutes_what_the_single_pair_cannot() -> None:
    """TPR .35 at FPR .10 is possible for (1, 1e-5) alone with room to spare, not for the Gaussian
    behind it.
    """
    counts = Counts(700, 2000, 400, 2000)
    assert epsilon_lower_bound(counts, delta=1e-5) < 1
    assert profile_excess(counts, ((1.0, 1e-5),)) < 0
    assert profile_excess(counts, PROFILE) > 0
    assert profile_excess(Counts(500, 2000, 400, 2000), PROFILE) < 0


def test_threshold_is_the_one_with_most_proof() -> None:
    scores = np.concatenate([np.linspace(-1, 1, 40), np.linspace(-2, 0, 40)])
    members = np.arange(80) < 40
    chosen = choose_threshold(scores, members)
    best = max(
        epsilon_lower_bound(Counts.at(scores, members, threshold=t))
        for t in np.linspace(-2, 1, 301)
    )
    assert epsilon_lower_bound(Counts.at(scores, members, threshold=chosen)) == pytest.approx(best)


def test_warnings_say_what_cannot_be_shown() -> None:
    none = Interval(0.0, -0.05, 0.05)
    few = power_warnings(10, Claim(3.0, 1e-5), none)
    assert any("10 test models" in w for w in few) and any("at most epsilon 0.81" in w for w in few)
    assert power_warnings(1000, Claim(1.0, 1e-5, PROFILE), none) == ()
    assert any(
        "neither confirms nor refutes" in w
        for w in power_warnings(1000, Claim(1.0, 1e-5, PROFILE), Interval(0.09, 0.02, 0.15))
    )
    assert power_warnings(1000, None, none) == ()


@pytest.mark.parametrize(
    "claim",
    [
        (-1, 0),
        (float("nan"), 0),
        (1, -0.1),
        (1, 1.1),
        (1, float("nan")),
        ("1", 0),
        (1, None),
        (True, 0),
        (1, 0, ((0.5, 2),)),
        (1, 0, (0.5, 0.1)),
        (1, 0, ((1,),)),
    ],
)
def test_what_is_no_claim_is_refused_when_it_is_made(claim: tuple[Any, ...]) -> None:
    with pytest.raises(
        AttackError,
        match=r"needs (numbers with epsilon >= 0 and 0 <= delta <= 1: correct the claim|pairs)",
    ):
        Claim(*claim)


@pytest.mark.parametrize("epsilon", [709.0, 1000.0, 1e300, float("inf")])
def test_a_claim_too_large_for_an_exponential_is_kept_by_everyone(epsilon: float) -> None:
    claim = Claim(epsilon, 0.0)
    assert claim.ceiling_advantage() == 1
    assert profile_excess(Counts(50, 50, 0, 50), claim.pairs()) <= 0
    assert power_warnings(50, claim, Interval(1.0, 0.9, 1.0))


def test_a_large_claim_is_judged_as_a_smaller_one_that_allows_as_much() -> None:
    counts = Counts(50, 50, 0, 50)
    assert profile_excess(counts, ((700.0, 0.0),)) == profile_excess(counts, ((1000.0, 0.0),))
    assert (
        profile_excess(counts, ((1000.0, 0.0), (0.1, 0.0)))
        == profile_excess(counts, ((0.1, 0.0),))
        > 0
    )
