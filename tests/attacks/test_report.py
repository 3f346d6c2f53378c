"""What the report says in words: many declared attacks cry wolf no more often than one, and a
refutation says what was refuted.
"""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from scipy.stats import binom, norm

from synthdp_attacks import (
    CONFIDENCE,
    AttackVerdict,
    Claim,
    Counts,
    GameOutcome,
    Interval,
    MembershipReport,
    advantage,
    allowed_true_positives,
    judged,
    models_to_tell,
    shared_confidence,
)

MU = 0.2673  # one Gaussian with epsilon 1 at delta 1e-5
GRID = tuple(
    (float(e), float(norm.cdf(MU / 2 - e / MU) - exp(e) * norm.cdf(-MU / 2 - e / MU)))
    for e in np.linspace(0, 2, 41)
)
CHANCE = Counts(20, 40, 20, 40)


def verdict(
    counts: Counts,
    *,
    name: str = "targeted",
    control: Counts | None = CHANCE,
    claim: Claim | None = None,
    confidence: float = CONFIDENCE,
) -> AttackVerdict:
    """On guesses of these counts."""
    hits, alarms = (
        np.arange(counts.positives) < counts.true_positives,
        np.arange(counts.negatives) < counts.false_positives,
    )
    outcome = GameOutcome(
        np.where(np.concatenate([hits, alarms]), 1.0, -1.0),
        np.repeat([True, False], [len(hits), len(alarms)]),
    )
    return judged(name, "knn", outcome, counts, control, claim=claim, confidence=confidence)


def report(main: AttackVerdict, *others: AttackVerdict) -> MembershipReport:
    return MembershipReport(
        verdict=main,
        per_target=(main.row.advantage,),
        table=(),
        baseline=Interval(0, -0.1, 0.1),
        epsilon_provable=3.0,
        roc=(),
        others=others,
    )


def test_an_exceeded_curve_is_no_bound_on_epsilon_and_says_where() -> None:
    """TPR .35 at FPR .2: epsilon is at least .41, far from the claim of 1, which the whole profile
    still makes impossible.
    """
    found = verdict(Counts(700, 2000, 400, 2000), claim=Claim(1.0, 1e-5, GRID))
    assert found.refutes_claim
    assert 0 < found.epsilon_lower < 1
    assert found.profile_excess is not None
    assert found.profile_excess > 0
    told = report(found).conclusion
    assert "epsilon is at least" not in told and "its whole curve" in told
    hits, alarms = found.proven
    allowed = allowed_true_positives(GRID, alarms)
    assert (
        allowed == pytest.approx(norm.cdf(norm.ppf(alarms) + MU), abs=1e-3)
        and alarms < allowed < hits
    )  # the curve of one Gaussian
    assert (
        f"at most {alarms:.2%} false positives come with at least {hits:.2%} true ones, where it"
        f" allows at most {allowed:.2%}" in told
    )
    single = report(verdict(Counts(700, 2000, 100, 2000), claim=Claim(1.0, 1e-5))).conclusion
    assert "refutes the claim: epsilon is at least 1.69 with 95% confidence" in single
    assert not verdict(Counts(700, 2000, 400, 2000), claim=Claim(1.0, 1e-5)).refutation


@pytest.mark.parametrize("profile", [((1.0, 1e-5),), ((0.0, 0.3), (2.0, 0.0)), GRID])
def test_the_curve_of_a_claim_is_where_its_excess_begins(
    profile: tuple[tuple[float, float], ...],
) -> None:
    for alarms in (0.0, 0.001, 0.1, 0.5, 0.99, 1.0):
        allowed = allowed_true_positives(profile, alarms)
        for hits in np.linspace(0, 1, 101):
            excess = max(
                max(hits - exp(e) * alarms, (1 - alarms) - exp(e) * (1 - hits)) - d
                for e, d in profile
            )
            assert (excess > 1e-9) == (hits > allowed + 1e-9) or abs(hits - allowed) < 1e-6


def test_a_gap_that_one_attack_could_tell_is_not_told_by_one_of_three() -> None:
    lucky, blind = Counts(32, 50, 21, 50), Counts(25, 50, 25, 50)
    alone = report(verdict(lucky)).conclusion
    assert alone.startswith("The attack tells") and "95% interval 0.01" in alone
    three = [
        verdict(counts, name=name, confidence=shared_confidence(3))
        for counts, name in ((blind, "a"), (lucky, "b"), (blind, "c"))
    ]
    told = report(*three).conclusion
    assert told.startswith("None of 3 attacks (a with knn, b with knn, c with knn)")
    assert "advantage 0.000, 98.3% interval" in told
    assert "98.3% interval -0.0" in report(three[1], three[0], three[2]).conclusion
    sure = verdict(Counts(40, 50, 10, 50), name="d", confidence=shared_confidence(3))
    assert report(*three[:2], sure).conclusion.startswith("The attack d with knn tells")
    assert sure.row.advantage == advantage(Counts(40, 50, 10, 50))
    assert sure.advantage.lower < sure.row.advantage.lower
    assert (
        report(*three).to_json()["declared"][0]["shared_advantage"]["lower"]
        == three[0].advantage.lower
        < 0
    )


@pytest.mark.check
@pytest.mark.parametrize("models", [20, 50])
def test_three_blind_attacks_tell_in_at_most_one_run_of_twenty(models: int) -> None:
    """Exactly, by summing over every pair of counts; at 95% each, three would in 6% of runs on 50
    models.
    """
    share = binom.pmf(np.arange(models + 1), models, 0.5)

    def tells(confidence: float) -> float:
        above = [
            [
                advantage(Counts(t, models, f, models), confidence=confidence).lower > 0
                for f in range(models + 1)
            ]
            for t in range(models + 1)
        ]
        return float(share @ np.array(above) @ share)

    assert 3 * tells(shared_confidence(3)) <= 0.05
    assert models == 20 or 1 - (1 - tells(CONFIDENCE)) ** 3 > 0.045


def test_warnings_share_the_error_too() -> None:
    claim, counts = Claim(2.2, 1e-5), Counts(20, 40, 20, 40)
    assert not any(
        "too few models to refute" in w for w in report(verdict(counts, claim=claim)).warnings
    )
    shared = report(verdict(counts, claim=claim, confidence=shared_confidence(3))).warnings
    assert any(
        "40 test models in each world can prove at most epsilon 2.06, the claim is 2.2" in w
        for w in shared
    )


def test_every_declared_control_warns() -> None:
    quiet, loud, none = (
        verdict(CHANCE, name=name, control=c)
        for name, c in (("a", CHANCE), ("b", Counts(40, 40, 0, 40)), ("c", None))
    )
    assert not any("control" in w for w in report(quiet, quiet).warnings)
    warned = report(quiet, loud, none).warnings
    assert any("the control of b with knn is not at chance" in w for w in warned)
    assert any("too few models for a control of c with knn" in w for w in warned)
    assert any(
        "the control of b with knn" in w for w in replace(report(quiet), others=(loud,)).warnings
    )  # declared elsewhere, added later


def test_a_control_that_could_not_differ_from_chance_is_none() -> None:
    assert [models_to_tell(shared_confidence(n)) for n in (1, 3, 5)] == [4, 4, 5]
    few, enough = (verdict(CHANCE, control=Counts(n, n, 0, n)) for n in (3, 4))
    assert few.control is None and enough.control is not None and enough.control.lower > 0
    assert any("4 take 28 pairs, or 7 control pairs" in w for w in report(few).warnings)
    assert (
        verdict(CHANCE, control=Counts(4, 4, 0, 4), confidence=shared_confidence(5)).control is None
    )
