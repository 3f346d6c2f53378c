"""An additive noise model in both directions, from one noisy two-way table.

Each column is regressed on the other from the table's rows and sums. Residuals are those of the
midpoints of cells. Their dependence on the cause is rows squared times HSIC (Gretton et al. 2005)
with Gaussian kernels of half the released spreads as bandwidth. The noise's contribution to it,
sigma^2 times the sum of squared centred features, is known up to plug-in means and subtracted. All
of it is post-processing: nothing here sees rows.

The constants below were chosen on simulated pairs, random smooth curves with noise of several laws;
benchmarks/orientation.py measures on others.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from synthdp.data.kernel import POINTS, KernelGrid
from synthdp.privacy.mechanisms.pair_table import CELLS, NoisyPair

Floats = npt.NDArray[np.float64]

BOOTSTRAPS = 100
"""Fresh draws of the public noise, for the error of the difference."""
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
"""Midpoints of the cells on [-1, 1]."""
BANDWIDTHS = (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56)
"""A fixed list, so that each kernel is decomposed once."""
BANDWIDTH_OF_SPREAD = 0.5
"""Bandwidth over standard deviation."""
SMOOTHNESS = 1.0
"""Rows that a second difference of one weighs in a regression without noise."""
SMOOTHNESS_OF_NOISE = 40.0
"""Increase of that weight with the standard deviation of the noise."""
FEW = 16.0
"""Rows per unit of all the table's noise at which its regressions are half noise.

There the error is doubled. Below it readings soon become guesses, because what noise leaves in
residuals differs between the directions.
"""


def compare(pair: NoisyPair) -> tuple[float, float]:
    """Dependence of the backward less that of the forward residual, and its standard error.

    The difference is positive where x is the cause. The error is the spread over fresh draws of the
    public noise, added to the noisy table. A draw added to noise spreads more than one added to the
    exact table does, so this is an upper estimate where the table is mostly rows.
    """
    rng = np.random.default_rng(0)  # for post-processing, not for noise that protects rows
    noise = (rng.normal(0, pair.sigma, pair.counts.shape) for _ in range(BOOTSTRAPS))
    drawn = [_difference(pair.counts + fresh, math.sqrt(2) * pair.sigma) for fresh in noise]
    rows_per_noise = max(float(pair.counts.sum()), 1.0) / (CELLS * pair.sigma)
    error = max(float(np.std(drawn)), 1e-9) * (1 + (FEW / rows_per_noise) ** 4)
    return _difference(pair.counts, pair.sigma), error


def _difference(counts: Floats, sigma: float) -> float:
    return dependence(counts.T, sigma) - dependence(counts, sigma)


def dependence(counts: Floats, sigma: float) -> float:
    """Squared rows times HSIC of the first axis and the residual of the second.

    The noise's part is subtracted, so the value may be negative.
    """
    rows, total = counts.sum(1), max(float(counts.sum()), 1.0)
    left = (MIDDLES - regression(counts, sigma)[:, None]) / 2
    causes = _features(_spread(rows, MIDDLES), MIDDLES)
    residuals = _features(_spread(counts, left), left)
    sums = np.einsum("ij,ijk->ik", counts, residuals)
    centred, mean = causes - causes.T @ rows / total, sums.sum(0) / total
    of_noise = (centred**2).sum(1) @ ((residuals - mean) ** 2).sum(2)
    return float(
        ((centred.T @ (sums - np.outer(rows, mean))) ** 2).sum() - sigma**2 * of_noise.sum()
    )


def regression(counts: Floats, sigma: float) -> Floats:
    """Mean of the second axis in each cell of the first, `[CELLS]`.

    Weighted least squares with a penalty on second differences (Whittaker 1923), which grows with
    the noise of the table.
    """
    bends = np.diff(np.eye(CELLS), 2, axis=0)
    weighted = (
        np.diag(np.maximum(counts.sum(1), 0.0))
        + (SMOOTHNESS + SMOOTHNESS_OF_NOISE * sigma) * bends.T @ bends
        + 1e-3 * np.eye(CELLS)
    )
    return np.asarray(
        np.clip(np.linalg.solve(weighted, counts @ MIDDLES), -1.0, 1.0), dtype=np.float64
    )


def _spread(weights: Floats, values: Floats) -> float:
    """Standard deviation under noisy weights; zero where noise makes the variance negative."""
    total = max(float(weights.sum()), 1.0)
    mean = float((weights * values).sum()) / total
    return math.sqrt(max(float((weights * values**2).sum()) / total - mean**2, 0.0))


def _features(spread: float, values: Floats) -> Floats:
    """Kernel features of values in [-1, 1], `[..., features]`."""
    wanted = math.log(max(BANDWIDTH_OF_SPREAD * spread, BANDWIDTHS[0]))
    features = _decomposed(min(BANDWIDTHS, key=lambda b: abs(math.log(b) - wanted)))
    points = np.rint((np.clip(values, -1.0, 1.0) + 1) / 2 * (POINTS - 1)).astype(np.intp)
    return np.asarray(features[points], dtype=np.float64)


@cache
def _decomposed(bandwidth: float) -> Floats:
    return KernelGrid(bandwidth).features
