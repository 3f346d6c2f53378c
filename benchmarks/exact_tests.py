"""Conditional independence tests on exact values: what the private ones are measured against. Not
private.

Kendall's tau-a and Spearman's rho with mid-ranks are taken within strata and weighted by inverse
variance (Korn 1984, Taylor 1987).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.graph.chi_square import Answer
from synthdp.graph.contrib.rank_pc import rank_answer
from synthdp.privacy.mechanisms.ranks import STEPS, kendall_sums, spearman_sums

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def exact_kendall(counts: Ints, *, level: float, margin: float) -> Answer:
    """Test on counts `[strata, levels of x, levels of y]`, with the exact variance under ties."""
    n = counts.sum((1, 2))
    score = kendall_sums(counts, n)[0] / STEPS
    variance = float(
        np.sum((9 / (2 * n + 5)) ** 2 * _tied_variance(counts.sum(2), counts.sum(1), n))
    )
    return rank_answer(score, variance, noise=0.0, rows=float(n.sum()), level=level, margin=margin)


def _tied_variance(x: Ints, y: Ints, n: Ints) -> Floats:
    """Variance of S per stratum with its margins fixed (Kendall, "Rank Correlation Methods", 1970,
    equation 4.4).
    """
    m = n.astype(float)

    def sums(tied: Ints) -> tuple[Floats, ...]:
        t = tied.astype(float)
        pairs = t * (t - 1)
        return pairs.sum(1), (pairs * (t - 2)).sum(1), (pairs * (2 * t + 5)).sum(1)

    (x2, x3, x5), (y2, y3, y5) = sums(x), sums(y)
    first = (m * (m - 1) * (2 * m + 5) - x5 - y5) / 18
    second = x3 * y3 / np.maximum(9 * m * (m - 1) * (m - 2), 1)
    return np.asarray(first + second + x2 * y2 / np.maximum(2 * m * (m - 1), 1), dtype=np.float64)


def exact_spearman(counts: Ints, *, level: float, margin: float) -> Answer:
    """Test on counts `[strata, levels of x, levels of y]`, with the exact variance under ties."""
    n = counts.sum((1, 2))
    score, m = spearman_sums(counts, n)[0] / STEPS, n.astype(float)
    # Var(sum a b) over permutations is sum a^2 sum b^2 / (n - 1).
    spread = _spread(counts.sum(2)) * _spread(counts.sum(1)) / np.maximum(m - 1, 1)
    variance = float(np.sum((3 / np.maximum(m * (m + 1), 1)) ** 2 * spread))
    return rank_answer(score, variance, noise=0.0, rows=float(n.sum()), level=level, margin=margin)


def _spread(levels: Ints) -> Floats:
    """Sum over rows of the squares of twice their centred mid-ranks, per stratum."""
    upto = levels.cumsum(1)
    standing = (upto - levels) - (upto[:, -1:] - upto)
    return np.asarray((levels * standing.astype(float) ** 2).sum(1), dtype=np.float64)


def fisher_z(correlation: Floats, rows: int, *, x: int, y: int, given: Sequence[int]) -> float:
    """p-value of zero partial correlation of columns `x` and `y` given others, from the correlation
    matrix of `rows` rows.
    """
    columns = [x, y, *given]
    precision = np.linalg.pinv(correlation[np.ix_(columns, columns)])
    partial = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    bounded = float(np.clip(partial, -1 + 1e-12, 1 - 1e-12))
    return float(2 * norm.sf(np.sqrt(max(rows - len(given) - 3, 0)) * abs(np.arctanh(bounded))))
