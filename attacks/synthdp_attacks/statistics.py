"""Numbers of a membership attack, each with its uncertainty. Pure functions of scores and truth.

`members` are the secret bits, shape `[models]`; a score above 0 guesses "member". Models of one
world are independent of each other. Two models of a pair may share their other rows and so be
positively correlated: that narrows the difference of their rates, so intervals that treat them as
independent err on the wide side.

Differential privacy and an attack's figures: ceilings of a claim, lower bounds on epsilon.

Ceiling. Let t = P[guess member | in], f = P[guess member | out] for any attack on an (eps,
delta)-private release, in either direction of the neighbour relation. Then for the event "guess
member" and for its complement

    t     <= e^eps f       + delta
    1 - f <= e^eps (1 - t) + delta.

Adding both, with a = t - f:  1 + a <= e^eps (1 - a) + 2 delta, so

    a <= (e^eps - 1 + 2 delta) / (e^eps + 1),        accuracy = (1 + a) / 2 <= (e^eps + delta) /
    (e^eps + 1).

A mechanism satisfies every pair (eps, delta(eps)) of its profile at once, so the least of these
bounds holds. At eps = 0 it reads a <= delta(0), and delta(0) = sup_S P(S) - Q(S) is the total
variation distance itself, which the best attack attains: with the whole tight profile the least
bound is delta(0), and it is exact. For one Gaussian with epsilon 1 at delta 1e-5 that is .107,
where the pair (1, 1e-5) alone would allow .462.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import exp, inf, log

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
    collapses. The lower end holds. The upper one may be too low for an attack that is nearly always
    right: both hold in .93 of games of 30 models at rates of .99 and .01.
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
    """Fewest models of each world with which an attack that is always right shows an advantage."""
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


LARGEST_EPSILON = (
    700.0  # beyond it e^epsilon is no number of the machine; so much allows every attack already
)
Profile = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Claim:
    """A release's claim: (epsilon, delta), and further pairs (epsilon, delta) of its profile.

    The pairs cover both directions.
    """

    epsilon: float
    delta: float
    profile: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no claim before anything is trained against it."""
        if not isinstance(self.profile, (list, tuple)) or any(
            not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in self.profile
        ):
            raise AttackError(
                f"profile={self.profile!r}; needs pairs ((epsilon, delta), ...), or leave it out"
            )
        for epsilon, delta in self.pairs():
            _check_pair(epsilon, delta)

    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Every pair the claim makes."""
        return ((self.epsilon, self.delta), *self.profile)

    def ceiling_advantage(self) -> float:
        """Greatest advantage any attack can have if the claim is true."""
        return ceiling_from_profile(self.pairs())


def _check_pair(epsilon: object, delta: object) -> None:
    numbers = all(
        isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool)
        for v in (epsilon, delta)
    )
    if not numbers or not epsilon >= 0 or not 0 <= delta <= 1:  # type: ignore[operator]
        raise AttackError(
            f"epsilon={epsilon!r}, delta={delta!r}; needs numbers with epsilon >= 0 and 0 <= delta"
            " <= 1: correct the claim"
        )


def ceiling_advantage(epsilon: float, delta: float) -> float:
    """Greatest TPR - FPR of any attack on an (epsilon, delta)-private release."""
    _check_pair(epsilon, delta)
    odds = exp(-epsilon)  # divided through by e^eps, which may overflow
    return min(1.0, (1 - odds + 2 * delta * odds) / (1 + odds))


def ceiling_from_profile(profile: Profile) -> float:
    """Greatest advantage that all pairs (epsilon, delta) of a profile allow together.

    Include epsilon 0 for the exact one.
    """
    if not profile:
        raise AttackError(
            "an empty privacy profile allows nothing to be said: give at least one (epsilon, delta)"
        )
    return min(ceiling_advantage(epsilon, delta) for epsilon, delta in profile)


def proven_rates(counts: Counts, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Lower limit of the TPR and upper limit of the FPR, together with `confidence`.

    The two limits are joined by a union bound.
    """
    hits = clopper_pearson(counts.true_positives, counts.positives, confidence=confidence).lower
    alarms = clopper_pearson(counts.false_positives, counts.negatives, confidence=confidence).upper
    return hits, alarms


def epsilon_lower_bound(
    counts: Counts, *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """Lower bound on epsilon with `confidence`, by Clopper-Pearson limits on both rates.

    As Jagielski, Ullman and Oprea, "Auditing Differentially Private Machine Learning", 2020.

    [Derived here: the module's two lines solved for eps, log((t - delta) / f) and log((1 - f -
    delta) / (1 - t)); both grow with t and fall with f, so a lower limit of t and an upper limit of
    f give a lower limit.]

    The guess must have been fixed before these models were looked at. Both directions of the
    definition use the same two limits, each wrong with at most half of 1 - confidence, so looking
    at both costs nothing more.
    """
    hits, alarms = proven_rates(counts, confidence=confidence)
    return max(0.0, _ratio(hits - delta, alarms), _ratio(1 - alarms - delta, 1 - hits))


def provable_epsilon(models: int, *, delta: float = 0.0, confidence: float = CONFIDENCE) -> float:
    """The greatest lower bound on epsilon that `models` test models in each world can give.

    An attack that is always right reaches it.
    """
    return epsilon_lower_bound(
        Counts(models, models, 0, models), delta=delta, confidence=confidence
    )


def profile_excess(counts: Counts, profile: Profile, *, confidence: float = CONFIDENCE) -> float:
    """Distance of the proven rates from the region that a whole profile allows.

    Above 0 it refutes the profile with `confidence`.

    The greatest of TPR_lower - e^eps FPR_upper - delta and the same for the complement (Dong et
    al., 2022: the trade-off function of a profile is the envelope of these lines).
    """
    hits, alarms = proven_rates(counts, confidence=confidence)
    odds = [(exp(min(eps, LARGEST_EPSILON)), delta) for eps, delta in profile]
    return max(max(hits - e * alarms, (1 - alarms) - e * (1 - hits)) - delta for e, delta in odds)


def allowed_true_positives(profile: Profile, false_positives: float) -> float:
    """The greatest TPR that a whole profile allows at an FPR; both in 0 .. 1.

    Each pair gives the two lines of the module's docstring.
    """
    kept = ((min(eps, LARGEST_EPSILON), delta) for eps, delta in profile)
    lines = (
        (exp(eps) * false_positives + delta, 1 - exp(-eps) * (1 - false_positives - delta))
        for eps, delta in kept
    )
    return min(1.0, *(bound for pair in lines for bound in pair))


def choose_threshold(scores: FloatArray, members: BoolArray, *, delta: float = 0.0) -> float:
    """The threshold with the greatest lower bound on epsilon on *these* scores.

    Use it on other models only.
    """
    levels = np.unique(scores)
    middles = np.concatenate([[levels[0] - 1], (levels[:-1] + levels[1:]) / 2])
    counts = (Counts.at(scores, members, threshold=t) for t in middles)
    bounds = [epsilon_lower_bound(found, delta=delta) for found in counts]
    best = np.flatnonzero(np.isclose(bounds, max(bounds)))
    return float(middles[best[len(best) // 2]])


def power_warnings(
    models: int, claim: Claim | None, gap: Interval, *, confidence: float = CONFIDENCE
) -> tuple[str, ...]:
    """What so many test models in each world cannot show, in words; empty without a warning.

    `confidence`: what one attack may claim by itself, of `gap` too: less error where several
    attacks share it.
    """
    warnings = []
    if models < 50:
        warnings.append(
            f"{models} test models in each world are few: about 100 pairs (50 test models) are"
            " needed for a stable result"
        )
    if claim is not None:
        provable = provable_epsilon(models, delta=claim.delta, confidence=confidence)
        if provable < claim.epsilon:
            warnings.append(
                f"too few models to refute the claim: {models} test models in each world can prove"
                f" at most epsilon {provable:.2f}, the claim is {claim.epsilon:g}"
            )
        if gap.upper > claim.ceiling_advantage() >= gap.lower:
            warnings.append(
                "the interval of the advantage reaches over the claim's ceiling"
                f" {claim.ceiling_advantage():.3f}: this run neither confirms nor refutes it"
            )
    return tuple(warnings)


def _ratio(numerator: float, denominator: float) -> float:
    """log(numerator / denominator), with no proof (-inf) from a numerator that is not positive."""
    if numerator <= 0:
        return -inf
    return log(numerator / denominator) if denominator > 0 else inf
