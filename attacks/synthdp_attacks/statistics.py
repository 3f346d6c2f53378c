"""Numbers of a membership attack, each with its uncertainty. Pure functions of scores and truth.

`members` are the secret bits, shape `[models]`; a score above 0 guesses "member". Models of one
world are independent of each other. Two models of a pair may share their other rows and so be
positively correlated: that narrows the difference of their rates, so intervals that treat them as
independent err on the wide side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from scipy.stats import beta, binom, norm, rankdata

from synthdp_attacks.threat import AttackError, BoolArray, FloatArray

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its two-sided confidence interval."""

    value: float
    lower: float
    upper: float

    def contains(self, value: float) -> bool:
        return self.lower <= value <= self.upper


def shared_confidence(attacks: int) -> float:
    """The confidence of each of so many declared attacks.

    All of them together are wrong with probability at most 5%.
    """
    return 1 - (1 - CONFIDENCE) / attacks


@dataclass(frozen=True)
class Counts:
    """Guesses of "member" among `positives` models with the target and `negatives` without."""

    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    @classmethod
    def at(cls, scores: FloatArray, members: BoolArray, *, threshold: float = 0.0) -> Counts:
        """Count guesses `score > threshold`.

        Raises:
            AttackError: one of the two worlds has no model.
        """
        guess, members = scores > threshold, np.asarray(members, dtype=bool)
        if members.all() or not members.any():
            raise AttackError(
                "scores of one world only: an attack needs models with and without the target"
            )
        counts = (guess & members, members, guess & ~members, ~members)
        return cls(*(int(each.sum()) for each in counts))

    @property
    def precision(self) -> float | None:
        """Share of "member" guesses that are right; None when there was no such guess."""
        guesses = self.true_positives + self.false_positives
        return self.true_positives / guesses if guesses else None


def clopper_pearson(successes: int, trials: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Exact two-sided interval of a binomial share (Clopper and Pearson, 1934)."""
    if not 0 <= successes <= trials or trials < 1:
        raise AttackError(
            f"{successes} successes of {trials} trials; needs 0 <= successes <= trials and a trial"
        )
    tail = (1 - confidence) / 2
    lower = float(beta.ppf(tail, successes, trials - successes + 1)) if successes else 0.0
    upper = (
        float(beta.ppf(1 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    )
    return Interval(successes / trials, lower, upper)


def true_positive_rate(counts: Counts) -> Interval:
    """Share of models with the target that are recognised: recall, and the base paper's PA."""
    return clopper_pearson(counts.true_positives, counts.positives)


def true_negative_rate(counts: Counts) -> Interval:
    """Share of models without the target that are recognised: the base paper's NA."""
    return clopper_pearson(counts.negatives - counts.false_positives, counts.negatives)


def advantage(counts: Counts, *, confidence: float = CONFIDENCE) -> Interval:
    """TPR - FPR, which is 2 x accuracy - 1 for as many models in each world; in -1 .. 1.

    The interval recovers variances from Clopper-Pearson limits of the two rates (Newcombe, 1998,
    method 10, with exact limits in place of Wilson's): it stays wide where the plain normal one
    collapses.
    """
    tpr = clopper_pearson(counts.true_positives, counts.positives, confidence=confidence)
    fpr = clopper_pearson(counts.false_positives, counts.negatives, confidence=confidence)
    gap = difference(tpr, fpr)
    return Interval(gap.value, max(-1.0, gap.lower), min(1.0, gap.upper))


def difference(first: Interval, second: Interval) -> Interval:
    """`first` less `second`, of independent games: variances recovered from both intervals, as
    `advantage` does (Newcombe, 1998).
    """
    value = first.value - second.value
    down = float(np.hypot(first.value - first.lower, second.upper - second.value))
    up = float(np.hypot(first.upper - first.value, second.value - second.lower))
    return Interval(value, value - down, value + up)


def models_to_tell(confidence: float = CONFIDENCE) -> int:
    """Fewest models of each world that can show an advantage above 0.

    An attack that is always right reaches it.
    """
    return next(
        models
        for models in count(1)
        if advantage(Counts(models, models, 0, models), confidence=confidence).lower > 0
    )


def accuracy(counts: Counts, *, confidence: float = CONFIDENCE) -> Interval:
    """Accuracy when both worlds are equally likely: (1 + advantage) / 2, with its interval.

    It is in 0 .. 1.
    """
    gap = advantage(counts, confidence=confidence)
    return Interval(*((1 + bound) / 2 for bound in (gap.value, gap.lower, gap.upper)))


def roc(scores: FloatArray, members: BoolArray) -> FloatArray:
    """Points (FPR, TPR) for falling thresholds, from (0, 0) to (1, 1): `[points, 2]`.

    Tied scores make one step.
    """
    order = np.argsort(-scores, kind="stable")
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    hits = np.cumsum(members[order])[last_of_tie] / members.sum()
    alarms = np.cumsum(~members[order])[last_of_tie] / (~members).sum()
    return np.concatenate([np.zeros((1, 2)), np.stack([alarms, hits], axis=1)])


def best_advantage(scores: FloatArray, members: BoolArray) -> float:
    """Greatest TPR - FPR over all thresholds; no verdict.

    It is chosen and measured on the same scores, so it is biased upwards.
    """
    points = roc(scores, members)
    return float((points[:, 1] - points[:, 0]).max())


def auc(scores: FloatArray, members: BoolArray, *, confidence: float = CONFIDENCE) -> Interval:
    """Area under the ROC with DeLong's variance, on the logit scale.

    DeLong et al., 1988; midranks: Sun and Xu, 2014.

    Where that variance is 0 (worlds fully apart, or all scores tied) it says nothing; then the
    exact interval of as many independent comparisons of one model of each world is given instead,
    which is wider.
    """
    inside, outside = scores[members], scores[~members]
    if not len(inside) or not len(outside):
        raise AttackError(
            "scores of one world only: an attack needs models with and without the target"
        )
    ranks = rankdata(np.concatenate([inside, outside]))
    beaten = (ranks[: len(inside)] - rankdata(inside)) / len(outside)
    beats = 1 - (ranks[len(inside) :] - rankdata(outside)) / len(inside)
    value = float(beaten.mean())
    variance = sum(
        float(np.var(part, ddof=1)) / len(part) if len(part) > 1 else 0.25
        for part in (beaten, beats)
    )
    if variance < 1e-12 or not 0 < value < 1:
        trials = min(len(inside), len(outside))
        low, high = int(np.floor(value * trials + 1e-9)), int(np.ceil(value * trials - 1e-9))
        least, most = (clopper_pearson(n, trials, confidence=confidence) for n in (low, high))
        return Interval(value, least.lower, most.upper)
    logit = np.log(value / (1 - value))
    reach = norm.ppf((1 + confidence) / 2) * np.sqrt(variance) / (value * (1 - value))
    lower, upper = 1 / (1 + np.exp(-np.clip([logit - reach, logit + reach], -700, 700)))
    return Interval(value, float(lower), float(upper))


def models_needed(false_positive_rate: float) -> int:
    """Models without the target that it takes to see such a false-positive rate at all."""
    return int(np.ceil(1 / false_positive_rate - 1e-9))


def tpr_at_fpr(
    scores: FloatArray, members: BoolArray, *, false_positive_rate: float
) -> Interval | None:
    """Greatest TPR with an FPR of at most `false_positive_rate`, a.

    None where the models are too few to show that rate.

    The value takes the threshold from these same scores. The interval covers the true TPR,
    threshold and all, ties or not. [Derived here: let t be the least threshold with P(score > t |
    out) <= a, a fixed number, and s the error of one side.

    - Upper limit. The models without the target above t are Bin(n, p) with p <= a. So, but for an
      error d = P(Bin(n, a) >= k), fewer than k are: the k-th highest score without the target, X_k,
      is at most t, and the hits above X_k are no fewer than those above t. The latter are Bin(m,
      TPR), and limits of Clopper and Pearson grow with the hits: their upper limit at error s - d
      of the hits above X_k holds but for s.
    - Lower limit, likewise: those *at or above* t are Bin(n, p) with p >= a; but for d = P(Bin(n,
      a) < k) at least k are, so that X_k >= t, and the hits above X_k are no more than those above
      t.

    The errors of a side are added, so that scores of the two worlds may depend on each other.] That
    X_k are nonparametric limits of a quantile: David and Nagaraja, "Order Statistics", 3rd ed.
    (2003), section 7.1. Below some 430 models for a = 1% (no k >= 1 has d <= s / 2) the lower limit
    is 0 whatever the scores are: so few cannot show that any threshold has so few false alarms.
    """
    inside, outside = scores[members], np.sort(scores[~members])[::-1]
    side, models = (1 - CONFIDENCE) / 2, len(outside)
    # The greatest k with P(Bin < k) <= s / 2, and the least with P(Bin >= k) <= s / 2.
    highest = int(binom.ppf(side / 2, models, false_positive_rate))
    lowest = int(binom.isf(side / 2, models, false_positive_rate)) + 1
    if models < models_needed(false_positive_rate) or (highest < 1 and lowest > models):
        return None
    value = float((inside > outside[int(np.floor(false_positive_rate * models + 1e-9))]).mean())
    lower, upper = 0.0, 1.0
    if highest >= 1:
        left = side - binom.cdf(highest - 1, models, false_positive_rate)
        hits = int((inside > outside[highest - 1]).sum())
        lower = clopper_pearson(hits, len(inside), confidence=1 - 2 * left).lower
    if lowest <= models:
        left = side - binom.sf(lowest - 1, models, false_positive_rate)
        hits = int((inside > outside[lowest - 1]).sum())
        upper = clopper_pearson(hits, len(inside), confidence=1 - 2 * left).upper
    return Interval(value, lower, upper)
