"""Test of a claimed trade-off curve: do the scores of many runs contradict it?

A claim is the whole profile delta(eps) of the charged events, as `accounting` composes it, for both
directions of the neighbour relation. A distinguisher looks at runs on D ("out") and on D' ("in").
It guesses "in" for scores above a threshold. Its false-positive rate is a, its false-negative rate
is b. Under the claim, for every eps [Dong, Roth, Su, "Gaussian Differential Privacy",
arXiv:1905.02383v3, section 2, on the trade-off function of (eps, delta)]

    e^eps a + b >= 1 - delta(eps)      and      a + e^eps b >= 1 - delta(eps).          (*)

Both are the definition itself: the event "guess in" has probability 1 - b on D' and a on D, the
event "guess out" 1 - a on D and b on D'.

False alarms have probability at most 5%, by construction. Thresholds are chosen on one half of the
runs and tested on the other, so given the first half they are constants. On the second half each
threshold's a and b get one-sided Clopper-Pearson upper limits A and B. The truth exceeds each with
probability at most 0.05 / (2 thresholds). By the union bound all of a <= A, b <= B hold together
with probability >= 95%. An alarm is raised only where (A, B) breaks (*) for some eps. The left
sides of (*) grow with a and b. If the claim is true, an alarm therefore needs an (a, b) above its
(A, B), which has probability at most 5%. No correction for the number of eps or directions is due,
since all use the same limits. The lower bound on epsilon is read off those limits too. It exceeds
the true epsilon with probability at most 5%. Whenever it exceeds the claimed one there is an alarm.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from synthdp.audit.mechanisms.canaries import CurveClaim, Scores
from synthdp.privacy.noise import fresh_generator

CONFIDENCE = 0.95
THRESHOLDS = 2  # one for the curve, one for the lower bound on epsilon
MAX_CANDIDATES = 400  # thresholds from which the first half of the runs chooses


@dataclass(frozen=True)
class CurveVerdict:
    """The result on the second half of the runs."""

    alarm: bool
    epsilon_lower: float


def judge(out: Scores, inside: Scores, claim: CurveClaim) -> CurveVerdict:
    """Test `claim` by scores `[runs]` on D and D': thresholds of the first half, on the second."""
    choose_out, judge_out = _halves(out)
    choose_in, judge_in = _halves(inside)
    candidates = _candidates(np.concatenate([choose_out, choose_in]))
    rates = _limits(choose_out, choose_in, candidates)
    for_curve = _best(candidates, excess(claim, *rates))
    for_epsilon = _best(candidates, epsilon_bound(*rates, delta=claim.delta))
    rates = _limits(judge_out, judge_in, np.array([for_curve, for_epsilon]))
    alarm = bool(excess(claim, *rates).max() > 0)
    epsilon_lower = float(epsilon_bound(*rates, delta=claim.delta).max())
    return CurveVerdict(alarm, max(0.0, epsilon_lower))


def excess(claim: CurveClaim, false_positive: Scores, false_negative: Scores) -> Scores:
    """How far each pair of rates `[n]` lies below the claimed curve; above 0 contradicts (*)."""
    epsilon, delta = np.array(claim.profile).T[:, :, None]
    grown = np.exp(np.minimum(epsilon, 700.0))
    least = 1 - delta
    below: Scores = np.maximum(
        least - grown * false_positive - false_negative,
        least - grown * false_negative - false_positive,
    ).max(axis=0)
    return below


def epsilon_bound(false_positive: Scores, false_negative: Scores, *, delta: float) -> Scores:
    """Least epsilon that each pair of rates `[n]` allows at `delta`: (*) solved for eps.

    It is -inf where the rates imply nothing. It falls as the rates grow, so upper limits of the
    rates give a lower limit of it [derived here].
    """

    def solved(a: Scores, b: Scores) -> Scores:
        left = 1 - delta - b
        ratio = np.maximum(left, 1e-300) / np.maximum(a, 1e-300)
        bound: Scores = np.where(left > 0, np.log(ratio), -np.inf)
        return bound

    return np.maximum(
        solved(false_positive, false_negative), solved(false_negative, false_positive)
    )


def provable_epsilon(runs: int, *, delta: float) -> float:
    """Lower bound that `judge` gives when it guesses `runs` runs right, half in each world."""
    limit = upper_limit(np.zeros(1), runs // 2 - runs // 4)
    return float(epsilon_bound(limit, limit, delta=delta)[0])


def detection_rate(
    out: Scores, inside: Scores, claim: CurveClaim, *, runs: int, repeats: int
) -> float:
    """Share of `repeats` audits of `runs` scores, drawn from both pools, that raise the alarm."""
    rng = fresh_generator()
    each, alarms = runs // 2, 0
    for _ in range(repeats):
        alarms += judge(rng.choice(out, each), rng.choice(inside, each), claim).alarm
    return alarms / repeats


def upper_limit(mistakes: npt.NDArray[Any], trials: int) -> Scores:
    """One-sided Clopper-Pearson upper limit of a share, at the confidence of one rate.

    [Clopper and Pearson, Biometrika 26 (1934); derived here: at that share, so few mistakes or
    fewer have probability 1 - confidence, and at a larger share a smaller one; P[Binomial(n, p) <=
    k] = 1 - I_p(k + 1, n - k).]
    """
    confidence = 1 - (1 - CONFIDENCE) / (2 * THRESHOLDS)
    quantile = betaincinv(mistakes + 1, np.maximum(trials - mistakes, 1), confidence)
    limit: Scores = np.where(mistakes < trials, quantile, 1.0)
    return limit


def _limits(out: Scores, inside: Scores, thresholds: Scores) -> tuple[Scores, Scores]:
    """Upper limits of the false-positive and false-negative rates of "in if score > threshold"."""
    positives = len(out) - np.searchsorted(np.sort(out), thresholds, side="right")
    negatives = np.searchsorted(np.sort(inside), thresholds, side="right")
    return _upper_limits(len(out))[positives], _upper_limits(len(inside))[negatives]


@cache
def _upper_limits(trials: int) -> Scores:
    """Upper limits for 0 to `trials` mistakes: repeated audits ask for the same ones."""
    return upper_limit(np.arange(trials + 1), trials)


def _halves(scores: Scores) -> tuple[Scores, Scores]:
    if len(scores) < 2:
        raise ValueError(
            f"{len(scores)} runs in one world; an audit needs at least 2, and about 1000 to see"
            " anything"
        )
    return scores[: len(scores) // 2], scores[len(scores) // 2 :]


def _candidates(scores: Scores) -> Scores:
    """Midpoints of neighbouring scores, thinned to at most `MAX_CANDIDATES` at equal ranks."""
    levels = np.unique(scores)
    middles = (levels[:-1] + levels[1:]) / 2 if len(levels) > 1 else levels
    ranks = np.linspace(0, len(middles) - 1, min(len(middles), MAX_CANDIDATES)).astype(int)
    kept: Scores = middles[np.unique(ranks)]
    return kept


def _best(thresholds: Scores, worth: Scores) -> float:
    """The middle one of the best thresholds, so that a clean gap is cut in its middle."""
    best = np.arange(len(worth))
    if np.isfinite(worth.max()):
        best = np.flatnonzero(worth >= worth.max() - 1e-12)
    return float(thresholds[best[len(best) // 2]])
