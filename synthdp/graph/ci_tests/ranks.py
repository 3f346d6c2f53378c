"""The answer of a rank test within strata.

Under independence a score is about normal with a known variance; released scores add their known
noise. Effects are on the scale of a correlation, and for two columns of two levels Cohen's w:
|score| / sqrt(variance * rows).
"""

from __future__ import annotations

import math

from scipy.stats import norm

from synthdp.graph.ci_tests.answer import Answer, Verdict

POWER = 0.8
"""Probability of detection that defines a detectable effect."""


def rank_answer(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """Answer from a score, its `variance` under independence and the deviation of its `noise`.

    `rows` is the number of rows of the score, `level` that of the two-sided test. An upper bound of
    the effect below `margin` counts as evidence for independence. The answer is undecided where the
    score has no spread.

    That bound is one-sided: a normal score of mean m and that deviation has |m| > |score| + z
    deviation only where it lies more than z deviations from m towards zero, which has probability
    at most `level` [derived here; the deviation is that under independence, so it holds for effects
    near zero, which are those that `margin` asks about].
    """
    if not variance > 0 or not rows > 0:
        return Answer("undecided", 1.0, 0.0, 0.0, math.inf, math.inf)
    deviation, per_effect = math.hypot(math.sqrt(variance), noise), math.sqrt(variance * rows)
    p_value = float(2 * norm.sf(abs(score) / deviation))
    upper = (abs(score) + float(norm.isf(level)) * deviation) / per_effect
    detectable = (float(norm.isf(level / 2)) + float(norm.isf(1 - POWER))) * deviation / per_effect
    verdict: Verdict = "undecided"
    if p_value <= level:
        verdict = "dependent"
    elif upper <= margin:
        verdict = "independent"
    return Answer(verdict, p_value, score / deviation, abs(score) / per_effect, upper, detectable)


def noisy_rank_answer(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """As `rank_answer`, for a score and a variance that are both released with Gaussian noise.

    `noise` is the standard deviation of the score's noise. A variance that noise has made negative
    counts as one row's worth.
    """
    return rank_answer(
        score, max(variance, 1.0), noise=noise, rows=rows, level=level, margin=margin
    )
