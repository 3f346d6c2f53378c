"""Conditional Spearman test: rho with mid-ranks within strata, weighted by inverse variance (Taylor
1987).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from synthdp.graph.ci_tests.answer import Answer
from synthdp.graph.ci_tests.ranks import rank_answer
from synthdp.privacy.mechanisms.ranks import STEPS, spearman


def noisy_spearman(
    score: float, variance: float, *, noise: float, rows: float, level: float, margin: float
) -> Answer:
    """Test on a released score, with Gaussian noise of deviation `noise`, and its released
    variance.

    A variance that noise has driven below zero counts as one row's worth.
    """
    return rank_answer(
        score, max(variance, 1.0), noise=noise, rows=rows, level=level, margin=margin
    )


def exact_spearman(counts: npt.NDArray[np.int64], *, level: float, margin: float) -> Answer:
    """Test on exact counts `[strata, levels of x, levels of y]`, with the exact variance under
    ties. Not private.
    """
    n = counts.sum((1, 2))
    score, m = spearman(counts, n)[0] / STEPS, n.astype(float)
    # Var(sum a b) over permutations is sum a^2 sum b^2 / (n - 1).
    spread = _spread(counts.sum(2)) * _spread(counts.sum(1)) / np.maximum(m - 1, 1)
    variance = float(np.sum((3 / np.maximum(m * (m + 1), 1)) ** 2 * spread))
    return rank_answer(score, variance, noise=0.0, rows=float(n.sum()), level=level, margin=margin)


def _spread(levels: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Sum over rows of the squares of twice their centred mid-ranks, per stratum."""
    upto = levels.cumsum(1)
    standing = (upto - levels) - (upto[:, -1:] - upto)
    return np.asarray((levels * standing.astype(float) ** 2).sum(1), dtype=np.float64)
