"""Every statistic of an attack against scipy, scikit-learn, brute force, or a value worked out by
hand.
"""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm
from sklearn.metrics import roc_auc_score

from synthdp_attacks import (
    AttackError,
    Counts,
    accuracy,
    advantage,
    auc,
    best_advantage,
    clopper_pearson,
    models_needed,
    roc,
    tpr_at_fpr,
    true_negative_rate,
    true_positive_rate,
)

SCORES = np.array([0.9, 0.8, -0.1, 0.4, -0.5, -0.7])
MEMBERS = np.array([True, True, True, False, False, False])


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 10), (97, 100), (1, 1)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_clopper_pearson_is_scipys_exact_interval(
    successes: int, trials: int, confidence: float
) -> None:
    ours, theirs = (
        clopper_pearson(successes, trials, confidence=confidence),
        binomtest(successes, trials).proportion_ci(confidence, method="exact"),
    )
    assert (ours.value, ours.lower, ours.upper) == pytest.approx(
        (successes / trials, theirs.low, theirs.high)
    )


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (0, 0)])
def test_clopper_pearson_refuses_impossible_counts(successes: int, trials: int) -> None:
    with pytest.raises(AttackError, match="0 <= successes <= trials"):
        clopper_pearson(successes, trials)


def test_rates_by_hand() -> None:
    counts = Counts.at(SCORES, MEMBERS)
    assert counts == Counts(2, 3, 1, 3)
    assert true_positive_rate(counts).value == pytest.approx(2 / 3)
    assert true_negative_rate(counts).value == pytest.approx(2 / 3)
    assert counts.precision == pytest.approx(2 / 3)
    assert advantage(counts).value == pytest.approx(1 / 3)
    assert accuracy(counts).value == pytest.approx(4 / 6)
    assert Counts(0, 3, 0, 3).precision is None


def test_accuracy_is_mean_of_both_worlds_as_in_the_papers_tables() -> None:
    # Causally constrained synthesis, Table 5, first row: PA 76.97, NA 82.42, accuracy 79.7 (165
    # models each).
    counts = Counts(127, 165, 29, 165)
    assert 100 * true_positive_rate(counts).value == pytest.approx(76.97, abs=0.005)
    assert 100 * true_negative_rate(counts).value == pytest.approx(82.42, abs=0.005)
    assert 100 * accuracy(counts).value == pytest.approx(79.7, abs=0.01)


def test_one_world_alone_is_refused() -> None:
    with pytest.raises(AttackError, match="one world only"):
        Counts.at(SCORES, np.ones(6, dtype=bool))


@pytest.mark.parametrize("models", [10, 20, 30, 50])
@pytest.mark.parametrize(
    ("hit", "alarm"), [(0.5, 0.5), (0.05, 0.05), (0.632, 0.01), (0.9, 0.3), (0.99, 0.01)]
)
def test_advantage_interval_covers_as_promised(models: int, hit: float, alarm: float) -> None:
    """Exact coverage by summing over every pair of counts. Of an attack that is nearly always right
    the upper end is too low in up to .07: one miss and one alarm of 30 say .979 at most.
    """
    counts, truth = range(models + 1), hit - alarm
    hits, alarms = (binom.pmf(counts, models, rate) for rate in (hit, alarm))
    covered = above = 0.0
    for t, f in product(counts, counts):
        if (probability := hits[t] * alarms[f]) > 1e-9:
            found = advantage(Counts(t, models, f, models))
            covered += probability * found.contains(truth)
            above += probability * (found.lower > truth)
    assert covered >= (0.925 if (models, hit) == (30, 0.99) else 0.95) and above <= 0.025


def test_advantage_interval_is_not_needlessly_wide() -> None:
    gap = advantage(Counts(50, 100, 50, 100))
    assert (
        0.138 < gap.upper < 0.145
    )  # the normal interval, which is too narrow for rare events, has .1386


def test_roc_by_hand_with_ties() -> None:
    points = roc(np.array([2.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    assert points.tolist() == [[0, 0], [0, 0.5], [0.5, 1], [1, 1]]
    assert (
        best_advantage(np.array([2.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False])) == 0.5
    )


def _delong_by_definition(scores: np.ndarray, members: np.ndarray) -> float:
    wins = (scores[members][:, None] > scores[~members]) + 0.5 * (
        scores[members][:, None] == scores[~members]
    )
    return float(
        wins.mean(axis=1).var(ddof=1) / len(wins) + wins.mean(axis=0).var(ddof=1) / len(wins.T)
    )


def test_auc_and_its_variance_match_their_definitions() -> None:
    rng = np.random.default_rng(1)
    members = rng.integers(2, size=80).astype(bool)
    scores = np.round(rng.normal(size=80) + members, 1)  # rounded: ties
    got = auc(scores, members)
    assert got.value == pytest.approx(roc_auc_score(members, scores))
    spread = (
        np.log(got.upper / (1 - got.upper) * (1 - got.lower) / got.lower)
        / (2 * 1.959964)
        * got.value
        * (1 - got.value)
    )
    assert spread**2 == pytest.approx(_delong_by_definition(scores, members), rel=1e-5)


def test_auc_interval_stays_open_where_delong_says_nothing() -> None:
    apart = auc(np.arange(20.0), np.arange(20) >= 10)
    assert (apart.value, apart.upper) == (1, 1) and apart.lower == pytest.approx(0.025**0.1)
    tied = auc(np.zeros(20), np.arange(20) >= 10)
    assert tied.value == 0.5 and tied.lower < 0.25 and tied.upper > 0.75


def test_auc_interval_covers() -> None:
    rng = np.random.default_rng(2)
    members = np.arange(50) < 25
    truth = 0.7602499  # Phi(1 / sqrt 2)
    covered = np.mean(
        [auc(rng.normal(size=50) + members, members).contains(truth) for _ in range(600)]
    )
    assert 0.925 <= covered <= 0.985


def test_low_rates_need_enough_models() -> None:
    assert (models_needed(0.01), models_needed(0.001)) == (100, 1000)
    scores, members = (
        np.concatenate([np.full(100, 2.0), np.arange(100) / 100]),
        np.arange(200) < 100,
    )
    assert tpr_at_fpr(scores[:-1], members[:-1], false_positive_rate=0.01) is None
    got = tpr_at_fpr(scores, members, false_positive_rate=0.01)
    assert (
        got is not None and got.value == 1 and (got.lower, got.upper) == (0, 1)
    )  # no threshold is known to have one false alarm in 100
    assert (
        tpr_at_fpr(np.array([2.0, 2.0, 1.0, 0.0]), np.arange(4) < 2, false_positive_rate=0.5)
        is None
    )  # two models say nothing of any threshold


def test_tpr_at_fpr_spends_no_more_alarms_than_allowed() -> None:
    rng = np.random.default_rng(3)
    scores, members = rng.normal(size=400).round(1), np.arange(400) < 200
    for rate in (0.01, 0.05, 0.2):
        best = max((p[1] for p in roc(scores, members) if p[0] <= rate), default=0.0)
        got = tpr_at_fpr(scores, members, false_positive_rate=rate)
        assert got is not None and got.value == pytest.approx(best)


EDGE = norm.isf(0.01)
# how scores with the target come from Gaussian ones, and the true TPR at 1% false positives
SHAPES = {
    "chance": (lambda z: z, 0.01),
    "shifted": (lambda z: z + 1, norm.sf(EDGE - 1)),
    "shifted far": (lambda z: z + 2, norm.sf(EDGE - 2)),
    "wider": (lambda z: 2 * z, norm.sf(EDGE / 2)),
    "at the threshold": (
        lambda z: np.full_like(z, EDGE),
        0.0,
    ),  # the threshold's error is all there is
    "just above it": (lambda z: np.full_like(z, EDGE + 1e-9), 1.0),
}


@pytest.mark.check
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("models", [100, 250, 1000])
def test_the_interval_at_a_low_rate_covers_the_truth_on_both_sides(models: int, shape: str) -> None:
    """The threshold is read off the same scores; an interval of the TPR there alone covers in half
    of all games.
    """
    rng, games, (scored, truth) = np.random.default_rng(models), 400, SHAPES[shape]
    members, above, below = np.arange(2 * models) < models, 0, 0
    for _ in range(games):
        without = rng.normal(size=models)
        got = tpr_at_fpr(
            np.concatenate([scored(rng.normal(size=models)), without]),
            members,
            false_positive_rate=0.01,
        )
        assert got is not None and got.contains(got.value)
        above, below = above + (truth > got.upper), below + (truth < got.lower)
    assert max(above, below) <= binom.ppf(0.999, games, 0.025)


def test_the_interval_at_a_low_rate_covers_ties_and_worlds_that_depend_on_each_other() -> None:
    rng, games, models, above, below = np.random.default_rng(5), 400, 500, 0, 0
    members, truth = (
        np.arange(2 * models) < models,
        norm.sf(2.35 - 1),
    )  # rounded to tenths, P(score > 2.3 | out) = P(z > 2.35) = .0094
    for _ in range(games):
        shared = rng.normal(size=models)  # of a pair: both of its models lie alike
        got = tpr_at_fpr(
            np.concatenate([shared + 1, shared]).round(1), members, false_positive_rate=0.01
        )
        assert got is not None
        above, below = above + (truth > got.upper), below + (truth < got.lower)
    assert max(above, below) <= binom.ppf(0.999, games, 0.025)


def test_the_interval_at_a_low_rate_says_something_where_models_are_many() -> None:
    z, members = norm.ppf((np.arange(1000) + 0.5) / 1000), np.arange(2000) < 1000
    chance, far = (
        tpr_at_fpr(np.concatenate([z + shift, z]), members, false_positive_rate=0.01)
        for shift in (0, 2)
    )
    assert chance is not None and far is not None
    assert chance.upper < 0.04 and far.lower > 0.2 and far.upper < 0.55  # the truth: .010 and .372
    sure = tpr_at_fpr(members + 0.0, members, false_positive_rate=0.01)
    assert sure is not None and sure.lower > 0.99


def test_the_two_errors_of_a_side_at_a_low_rate_are_one_side_s_error_together() -> None:
    """Of 600 models without the target one, the highest, is the limit that errs seldom enough; all
    600 with it lie above, or none does.
    """
    members = np.arange(1200) < 600
    all_hit, none_hit = (
        tpr_at_fpr(np.where(members, inside, 0.0), members, false_positive_rate=0.01)
        for inside in (1.0, -1.0)
    )
    assert all_hit is not None and none_hit is not None
    assert all_hit.lower**600 + 0.99**600 == pytest.approx(0.025)
    assert (1 - none_hit.upper) ** 600 + binom.sf(12, 600, 0.01) == pytest.approx(
        0.025
    )  # thirteen alarms are too many for chance
