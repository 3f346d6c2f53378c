"""Differential privacy and an attack's figures: ceilings of a claim, lower bounds on epsilon.

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
from math import exp, inf, log

import numpy as np

from synthdp_attacks.statistics import CONFIDENCE, Counts, Interval, clopper_pearson
from synthdp_attacks.threat import AttackError, BoolArray, FloatArray

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


def ceiling_accuracy(epsilon: float, delta: float) -> float:
    """Greatest accuracy of any attack on an (epsilon, delta)-private release.

    Both worlds are equally likely: (e^eps + delta) / (1 + e^eps).
    """
    return (1 + ceiling_advantage(epsilon, delta)) / 2


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
