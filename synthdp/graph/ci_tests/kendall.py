"""Conditional Kendall test: tau-a within strata, weighted by inverse variance (Korn 1984, Taylor
1987).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from synthdp.graph.ci_tests.answer import Answer
from synthdp.graph.ci_tests.ranks import rank_answer
from synthdp.privacy.mechanisms.ranks import STEPS, kendall


def noisy_kendall(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """Test on a released score, with Gaussian noise of deviation `noise`, and its released
    variance.

    A variance that noise has driven below zero counts as one row's worth.
    """
    return rank_answer(
        score, max(variance, 1.0), noise=noise, rows=rows, level=level, margin=margin
    )


def exact_kendall(counts: npt.NDArray[np.int64], *, level: float, margin: float) -> Answer:
    """Test on exact counts `[strata, levels of x, levels of y]`, with the exact variance under
    ties. Not private.
    """
    n = counts.sum((1, 2))
    score = kendall(counts, n)[0] / STEPS
    variance = float(
        np.sum((9 / (2 * n + 5)) ** 2 * _tied_variance(counts.sum(2), counts.sum(1), n))
    )
    return rank_answer(score, variance, noise=0.0, rows=float(n.sum()), level=level, margin=margin)


def _tied_variance(
    x: npt.NDArray[np.int64], y: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Variance of S per stratum with its margins fixed (Kendall, "Rank Correlation Methods", 1970,
    equation 4.4).
    """
    m = n.astype(float)

    def sums(tied: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], ...]:
        t = tied.astype(float)
        pairs = t * (t - 1)
        return pairs.sum(1), (pairs * (t - 2)).sum(1), (pairs * (2 * t + 5)).sum(1)

    (x2, x3, x5), (y2, y3, y5) = sums(x), sums(y)
    first = (m * (m - 1) * (2 * m + 5) - x5 - y5) / 18
    second = x3 * y3 / np.maximum(9 * m * (m - 1) * (m - 2), 1)
    return np.asarray(first + second + x2 * y2 / np.maximum(2 * m * (m - 1), 1), dtype=np.float64)
