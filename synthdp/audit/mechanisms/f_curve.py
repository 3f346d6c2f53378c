"""Verdict of an audit: does what was seen contradict the trade-off curve that is claimed?

A claim is the whole profile delta(eps) of the events that were charged, as `accounting` composes
it, both directions of the neighbour relation covered. A distinguisher looks at runs on D ("out")
and on D' ("in"), and guesses "in" for scores above a threshold; its false-positive rate is a, its
false-negative rate b. Under the claim, for every eps [Dong, Roth, Su, "Gaussian Differential
Privacy", arXiv:1905.02383v3, section 2, on the trade-off function of (eps, delta)]

    e^eps a + b >= 1 - delta(eps)      and      a + e^eps b >= 1 - delta(eps).          (*)

Both are the definition itself: the event "guess in" has chance 1 - b on D' and a on D, the event
"guess out" 1 - a on D and b on D'.

False alarms are at most 5%, by construction. Thresholds are chosen on one half of the runs and
judged on the other, so given the first half they are constants. On the second half each threshold's
a and b get one-sided Clopper-Pearson upper limits A and B, each exceeded by the truth with
probability at most 0.05 / (2 thresholds). By the union bound all of a <= A, b <= B hold together
with probability >= 95%. An alarm is raised only where (A, B) breaks (*) for some eps; the left
sides of (*) grow with a and b, so if the claim is true an alarm needs an (a, b) above its (A, B):
probability at most 5%. No correction for the number of eps or directions is due, since all use the
same limits. The lower bound on epsilon is read off those limits too: it exceeds the true epsilon
with probability at most 5%, and whenever it exceeds the claimed one there is an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from synthdp.privacy import accounting
from synthdp.privacy.event_base import Adjacency
from synthdp.privacy.noise import fresh_generator

Scores = npt.NDArray[np.float64]

CONFIDENCE = 0.95
THRESHOLDS = 2  # one for the curve, one for the lower bound on epsilon
MAX_CANDIDATES = 400  # thresholds looked at on the choosing half
PROFILE_POINTS = 80


@dataclass(frozen=True)
class CurveClaim:
    """(epsilon, delta) and the profile it lies on: pairs (eps, delta(eps)) that all hold, in both
    directions.
    """

    epsilon: float
    delta: float
    profile: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls,
        events: Iterable[dp_accounting.DpEvent],
        *,
        delta: float,
        adjacency: Adjacency,
    ) -> CurveClaim:
        """What the accountant says of `events`; a finite grid of its curve, so never more than it
        says.
        """
        composed = accounting.compose(events, adjacency)
        epsilon = float(composed.get_epsilon_for_delta(delta))
        last = max(epsilon, 0.1) if math.isfinite(epsilon) else 30.0
        grid = np.append(
            np.linspace(0, last, PROFILE_POINTS), [epsilon] if math.isfinite(epsilon) else []
        )
        return cls(
            epsilon,
            delta,
            tuple(
                (float(e), max(0.0, float(composed.get_delta_for_epsilon(e))))
                for e in np.unique(grid)
            ),
        )


@dataclass(frozen=True)
class CurveVerdict:
    """What the judging half says."""

    alarm: bool
    epsilon_lower: float


@dataclass(frozen=True)
class AuditResult:
    """One audit, ready to print: what was claimed, what was proved, and what could have been.

    `unit_rows` is the number of rows of the unit that the two tables differ in; `epsilon_claimed`
    at `delta` is the claim for that unit. `epsilon_provable` is the bound that as many runs prove
    when every guess is right; `detects_fault` the probability that this audit raises the alarm on a
    mechanism with the `fault` it looks for (mostly half the noise), from scores simulated
    beforehand.
    """

    mechanism: str
    method: str
    unit_rows: int
    runs: int
    epsilon_claimed: float
    delta: float
    epsilon_lower: float
    epsilon_provable: float
    fault: str
    detects_fault: float
    alarm: bool
    seconds: float

    @property
    def passed(self) -> bool:
        """No contradiction of the claim was found; how much that means is `detects_fault`."""
        return not self.alarm

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; what is not finite as text."""
        values = {
            k: str(v) if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in asdict(self).items()
        }
        return values | {"passed": self.passed}


def judge(out: Scores, inside: Scores, claim: CurveClaim) -> CurveVerdict:
    """Choose thresholds on the first half of the scores of each world, judge `claim` on the second.

    `out` and `inside` are scores `[runs]` of runs on D and D', in the order they were made.
    """
    choose_out, judge_out = _halves(out)
    choose_in, judge_in = _halves(inside)
    candidates = _candidates(np.concatenate([choose_out, choose_in]))
    rates = _limits(choose_out, choose_in, candidates)
    picked = np.array(
        [
            _best(candidates, excess(claim, *rates)),
            _best(candidates, epsilon_bound(*rates, delta=claim.delta)),
        ]
    )
    rates = _limits(judge_out, judge_in, picked)
    return CurveVerdict(
        bool(excess(claim, *rates).max() > 0),
        max(0.0, float(epsilon_bound(*rates, delta=claim.delta).max())),
    )


def excess(claim: CurveClaim, false_positive: Scores, false_negative: Scores) -> Scores:
    """How far each pair of rates `[n]` lies below the claimed curve; above 0 contradicts (*)."""
    epsilon, delta = np.array(claim.profile).T[:, :, None]
    grown = np.exp(np.minimum(epsilon, 700.0))
    need = 1 - delta
    below: Scores = np.maximum(
        need - grown * false_positive - false_negative,
        need - grown * false_negative - false_positive,
    ).max(axis=0)
    return below


def epsilon_bound(false_positive: Scores, false_negative: Scores, *, delta: float) -> Scores:
    """Least epsilon that each pair of rates `[n]` leaves possible at `delta`: (*) solved for eps;
    -inf where it says nothing.

    It falls as rates grow, so that upper limits of the rates give a lower limit of it [derived
    here].
    """

    def solved(a: Scores, b: Scores) -> Scores:
        room = 1 - delta - b
        bound: Scores = np.where(
            room > 0, np.log(np.maximum(room, 1e-300) / np.maximum(a, 1e-300)), -np.inf
        )
        return bound

    return np.maximum(
        solved(false_positive, false_negative), solved(false_negative, false_positive)
    )


def provable_epsilon(runs: int, *, delta: float) -> float:
    """Lower bound that `judge` gives when `runs` runs, half in each world, are told apart without a
    mistake.
    """
    limit = upper_limit(np.zeros(1), runs // 2 - runs // 4)
    return float(epsilon_bound(limit, limit, delta=delta)[0])


def detection_rate(
    out: Scores, inside: Scores, claim: CurveClaim, *, runs: int, repeats: int
) -> float:
    """Share of `repeats` audits of `runs` runs that raise the alarm, their scores drawn from these
    two pools.
    """
    rng = fresh_generator()
    each = runs // 2
    return float(
        np.mean(
            [
                judge(rng.choice(out, each), rng.choice(inside, each), claim).alarm
                for _ in range(repeats)
            ]
        )
    )


def upper_limit(mistakes: npt.NDArray[Any], trials: int) -> Scores:
    """One-sided Clopper-Pearson upper limit of a share, at the confidence of one rate of one
    threshold.

    [Clopper and Pearson, Biometrika 26 (1934); derived here: at that share, so few mistakes or
    fewer have chance 1 - confidence, and at a larger share less; P[Binomial(n, p) <= k] = 1 - I_p(k
    + 1, n - k).]
    """
    confidence = 1 - (1 - CONFIDENCE) / (2 * THRESHOLDS)
    limit: Scores = np.where(
        mistakes < trials,
        betaincinv(mistakes + 1, np.maximum(trials - mistakes, 1), confidence),
        1.0,
    )
    return limit


def _limits(out: Scores, inside: Scores, thresholds: Scores) -> tuple[Scores, Scores]:
    """Upper limits of the false-positive and false-negative rates of "in if score > threshold"."""
    positives = len(out) - np.searchsorted(np.sort(out), thresholds, side="right")
    negatives = np.searchsorted(np.sort(inside), thresholds, side="right")
    return upper_limit(positives, len(out)), upper_limit(negatives, len(inside))


def _halves(scores: Scores) -> tuple[Scores, Scores]:
    if len(scores) < 2:
        raise ValueError(
            f"{len(scores)} runs in one world; an audit needs at least 2, and about 1000 to see"
            " anything"
        )
    return scores[: len(scores) // 2], scores[len(scores) // 2 :]


def _candidates(scores: Scores) -> Scores:
    """Middles between neighbouring scores, thinned evenly."""
    levels = np.unique(scores)
    middles = (levels[:-1] + levels[1:]) / 2 if len(levels) > 1 else levels
    kept: Scores = middles[
        np.unique(np.linspace(0, len(middles) - 1, min(len(middles), MAX_CANDIDATES)).astype(int))
    ]
    return kept


def _best(thresholds: Scores, worth: Scores) -> float:
    """The middle one of the best, so that a clean gap is cut in its middle."""
    best = (
        np.flatnonzero(worth >= worth.max() - 1e-12)
        if np.isfinite(worth.max())
        else np.arange(len(worth))
    )
    return float(thresholds[best[len(best) // 2]])
