"""The verdict of an audit: limits that cover, false alarms below 5%, a curve that is right."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from synthdp.audit.mechanisms.canaries import CurveClaim, Scores
from tests.audit.conftest import gaussian_claim
from tests.audit.statistical.f_curve import (
    detection_rate,
    epsilon_bound,
    excess,
    judge,
    provable_epsilon,
    upper_limit,
)

DELTA = 1e-5
PER_LIMIT = 0.05 / 4  # two thresholds with two limits each
Draw = Callable[[np.random.Generator, int], tuple[Scores, Scores]]


def pure_claim(epsilon: float) -> CurveClaim:
    """Only epsilon-DP, where randomised response sits in the corner of the curve."""
    return CurveClaim(epsilon, DELTA, ((0.0, math.tanh(epsilon / 2)), (epsilon, 0.0)))


def gaussian_runs(mu: float) -> Draw:
    return lambda rng, runs: (rng.normal(0, 1, runs), rng.normal(mu, 1, runs))


def response_runs(epsilon: float) -> Draw:
    lie = 1 / (1 + math.exp(epsilon))
    return lambda rng, runs: (
        (rng.random(runs) < lie).astype(float),
        (rng.random(runs) >= lie).astype(float),
    )


def test_limits_cover_and_waste_little() -> None:
    for trials in (1, 20, 400):
        mistakes = np.arange(trials + 1)
        limits = upper_limit(mistakes, trials)
        missed = [
            float(binom.pmf(mistakes, trials, p)[limits < p].sum())
            for p in np.linspace(0.001, 0.999, 499)
        ]
        assert max(missed) <= PER_LIMIT
        assert max(missed) >= PER_LIMIT / 2
        assert limits[-1] == 1.0


def test_the_curve_of_a_gaussian_is_its_own_trade_off() -> None:
    mu = 0.7
    claim = gaussian_claim(mu)
    cuts = np.linspace(-1, 2, 31)
    on_curve = excess(claim, norm.sf(cuts), norm.cdf(cuts - mu))
    assert on_curve.max() <= 1e-9
    assert on_curve[10:20].min() >= -2e-3  # the grid of the profile costs little
    assert excess(claim, norm.sf(cuts), norm.cdf(cuts - 1.05 * mu)).max() > 0.005
    swapped = excess(claim, norm.cdf(cuts - 1.05 * mu), norm.sf(cuts))
    assert swapped.max() > 0.005  # the roles of the errors


def test_rates_of_a_corner_give_back_its_epsilon() -> None:
    lie = np.array([1 / (1 + math.exp(1.5))])
    assert epsilon_bound(lie, lie, delta=0.0)[0] == pytest.approx(1.5)
    assert epsilon_bound(np.array([0.5]), np.array([0.6]), delta=0.0)[0] < 0
    assert epsilon_bound(np.ones(1), np.ones(1), delta=0.0)[0] == -math.inf


def test_the_largest_provable_bound_is_reached_by_perfect_separation() -> None:
    apart = judge(np.zeros(500), np.ones(500), gaussian_claim(0.1))
    limit = 1 - PER_LIMIT ** (1 / 250)
    assert apart.epsilon_lower == pytest.approx(math.log((1 - DELTA - limit) / limit))
    assert apart.epsilon_lower == pytest.approx(provable_epsilon(1000, delta=DELTA))
    assert apart.alarm


def test_scores_that_all_tie_prove_nothing() -> None:
    verdict = judge(np.zeros(500), np.zeros(500), gaussian_claim(0.1))
    assert not verdict.alarm
    assert verdict.epsilon_lower == 0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        judge(np.zeros(1), np.zeros(9), gaussian_claim(1))


@pytest.mark.check
@pytest.mark.parametrize(
    ("claim", "draw", "epsilon"),
    [
        (gaussian_claim(0.3), gaussian_runs(0.3), gaussian_claim(0.3).epsilon),
        (gaussian_claim(2.0), gaussian_runs(2.0), gaussian_claim(2.0).epsilon),
        (pure_claim(1.0), response_runs(1.0), 1.0),
    ],
    ids=["narrow gaussian", "wide gaussian", "randomised response"],
)
def test_a_true_claim_is_let_pass(
    claim: CurveClaim, draw: Draw, epsilon: float, figure: Callable[..., None]
) -> None:
    rng, repeats = np.random.default_rng(0), 400
    verdicts = [judge(*draw(rng, 400), claim) for _ in range(repeats)]
    alarms = sum(v.alarm for v in verdicts)
    below = sum(v.epsilon_lower <= epsilon for v in verdicts)
    assert alarms <= binom.ppf(1 - 1e-6, repeats, 0.05)
    assert below >= repeats - binom.ppf(1 - 1e-6, repeats, 0.05)
    assert all(v.alarm for v in verdicts if v.epsilon_lower > claim.epsilon)
    figure("simulated audits of a true claim without an alarm", repeats - alarms, repeats)
    figure("simulated audits whose lower bound is at most the truth", below, repeats)


@pytest.mark.parametrize(
    ("claim", "draw"),
    [
        (gaussian_claim(0.5), gaussian_runs(1.0)),
        (pure_claim(1.0), response_runs(1.6)),
        (gaussian_claim(2.0), gaussian_runs(4.0)),
    ],
    ids=["half the noise", "randomised response that lies too little", "half the noise, wide"],
)
def test_a_false_claim_is_refuted(claim: CurveClaim, draw: Draw) -> None:
    rng = np.random.default_rng(1)
    assert sum(judge(*draw(rng, 1000), claim).alarm for _ in range(20)) >= 19


def test_the_half_that_chooses_does_not_judge() -> None:
    alike = np.linspace(0, 1, 250)
    chosen_apart = judge(
        np.concatenate([np.zeros(250), alike]),
        np.concatenate([np.ones(250), alike]),
        gaussian_claim(0.1),
    )
    assert not chosen_apart.alarm
    judged_apart = judge(
        np.concatenate([np.linspace(0, 0.6, 250), np.zeros(250)]),
        np.concatenate([np.linspace(0.4, 1, 250), np.ones(250)]),
        gaussian_claim(0.1),
    )
    assert judged_apart.alarm


def test_detection_rate_tells_right_from_wrong() -> None:
    rng, claim = np.random.default_rng(2), gaussian_claim(1.0)
    right, wrong = gaussian_runs(1.0)(rng, 5000), gaussian_runs(2.0)(rng, 5000)
    assert detection_rate(*right, claim, runs=1000, repeats=40) <= 0.2
    assert detection_rate(*wrong, claim, runs=1000, repeats=40) >= 0.9
