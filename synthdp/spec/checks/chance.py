"""What attacks reach by chance in a release without any leak, and what they can prove at most.

A gate between the two decides something.

A gate takes the largest figure of all declared attacks, so that no leak passes in 95% of releases
only if each attack alone passes in `LUCK` of them (Bonferroni: they see the same releases). The
figures come from the attacks' own functions, called on outcomes of an attack that guesses and is as
lucky as it is in 1 - LUCK of all releases. Luck is that of independent models: those of a pair
share their other rows, which can only lessen it, and so do ties and the many more releases on which
the tables' attack is judged.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
from scipy.stats import binom, nbinom, norm

from synthdp_attacks import provable_epsilon, shared_confidence
from synthdp_attacks.statistics import Counts, advantage, auc, models_needed, tpr_at_fpr

# attacks that share the 5% of error: on the synthetic rows, on the released model and on the noisy
# tables
DECLARED = 3
LUCK = shared_confidence(DECLARED)
LOW_RATE = 0.01  # of false positives
TPR_MODELS = models_needed(LOW_RATE)  # without the target, that it takes to see that rate


def provable(models: int, delta: float) -> float:
    """The most that attacks which are always right prove of epsilon, by `models` in each world."""
    return provable_epsilon(models, delta=delta, confidence=LUCK)


def lowest_limit(figure: str, models: int) -> float:
    """The lowest limit on `figure` that chance exceeds in at most 5% of releases without any leak.

    `figure` is advantage_upper, auc_upper or tpr_upper. `models` counts the test models in each
    world. The limit is in thousandths, rounded up. It is 1 where chance exceeds every limit below 1
    more often than that.
    """
    return ceil(LUCKY[figure](models) * 1000 - 1e-6) / 1000


def lucky_advantage(models: int) -> float:
    """The advantage that chance exceeds in a fraction 1 - `LUCK` of releases.

    Right guesses of both worlds together are binomial. Equal numbers in each world give the widest
    interval.
    """
    right = int(binom.ppf(LUCK, 2 * models, 0.5))
    return advantage(Counts((right + 1) // 2, models, models - right // 2, models)).upper


def lucky_auc(models: int) -> float:
    """The AUC that chance exceeds in a fraction 1 - `LUCK` of releases.

    Two normal laws are so far apart that their AUC is that quantile of Mann and Whitney's statistic
    without ties, by its normal approximation.
    """
    value = 0.5 + norm.ppf(LUCK) * sqrt((2 * models + 1) / 12) / models
    if value >= 1:
        return 1.0
    outside = norm.ppf((np.arange(models) + 0.5) / models)
    return auc(
        np.concatenate([outside, outside + sqrt(2) * norm.ppf(value)]),
        np.repeat([False, True], models),
    ).upper


def lucky_tpr(models: int) -> float:
    """As `lucky_auc`, of the true-positive rate at 1% false positives.

    It is 1 where the models are too few to see that rate. In falling order each score is as likely
    of either world, so how many members come before the r-th other is negative binomial (of endless
    worlds, which vary a little more). Members are as many before each other as luck makes them
    there, whichever is the threshold.
    """
    before = np.minimum(nbinom.ppf(LUCK, np.arange(1, models + 1), 0.5), models)
    inside = 0.5 - np.searchsorted(before, np.arange(models), side="right")
    scores = np.concatenate([-np.arange(models, dtype=np.float64), inside])
    rate = tpr_at_fpr(scores, np.repeat([False, True], models), false_positive_rate=LOW_RATE)
    return 1.0 if rate is None else rate.upper


LUCKY = {"advantage_upper": lucky_advantage, "auc_upper": lucky_auc, "tpr_upper": lucky_tpr}
