"""An additive noise model in both directions, read from one noisy two-way table.

Each column is regressed on the other from the table's own rows and sums; residuals are those of the
cells' middles; their dependence on the cause is rows squared times HSIC (Gretton et al. 2005) with
Gaussian kernels as wide as half the released spreads. The noise's own contribution to it, sigma^2
times the sum of squared centred features, is known up to plug-in means and taken off. All of it is
post-processing: nothing here sees rows.

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
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
BANDWIDTHS = (
    0.05,
    0.07,
    0.1,
    0.14,
    0.2,
    0.28,
    0.4,
    0.56,
)  # a fixed list, so that each kernel is decomposed once
OF_SPREAD = 0.5  # bandwidth over standard deviation
SMOOTHNESS, SMOOTHNESS_OF_NOISE = (
    1.0,
    40.0,
)  # rows that a bend of one unit weighs, and how that grows with the noise
FEW = 16.0
"""Rows per unit of all the table's noise at which its regressions are half noise: there the error
is doubled. Below it readings soon become guesses, for what noise leaves in residuals differs
between the directions.
"""


def compare(pair: NoisyPair) -> tuple[float, float]:
    """Dependence of the backward less that of the forward residual, and its error; positive where x
    is the cause.

    The error is the spread over fresh draws of the public noise upon the noisy table: a draw upon
    noise spreads more than one upon the exact table does, so it is an upper estimate where the
    table is mostly rows.
    """
    rng = np.random.default_rng(0)  # of post-processing, not of noise that hides rows
    drawn = [
        _difference(
            pair.counts + rng.normal(0, pair.sigma, pair.counts.shape), math.sqrt(2) * pair.sigma
        )
        for _ in range(BOOTSTRAPS)
    ]
    rows_per_noise = max(float(pair.counts.sum()), 1.0) / (CELLS * pair.sigma)
    return _difference(pair.counts, pair.sigma), max(float(np.std(drawn)), 1e-9) * (
        1 + (FEW / rows_per_noise) ** 4
    )


def _difference(counts: Floats, sigma: float) -> float:
    return dependence(counts.T, sigma) - dependence(counts, sigma)


def dependence(counts: Floats, sigma: float) -> float:
    """Squared rows times HSIC of the first axis and the residual of the second, less the noise's
    part; may be negative.
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
    """Mean of the second axis in each cell of the first, `[CELLS]`: weighted least squares with a
    penalty on second differences (Whittaker 1923), the heavier the noisier the table is.
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
    """Standard deviation under noisy weights; zero where noise has driven the variance below
    that.
    """
    total = max(float(weights.sum()), 1.0)
    mean = float((weights * values).sum()) / total
    return math.sqrt(max(float((weights * values**2).sum()) / total - mean**2, 0.0))


def _features(spread: float, values: Floats) -> Floats:
    """Kernel features of values in [-1, 1], `[..., features]`."""
    wanted = math.log(max(OF_SPREAD * spread, BANDWIDTHS[0]))
    features = _decomposed(min(BANDWIDTHS, key=lambda b: abs(math.log(b) - wanted)))
    points = np.rint((np.clip(values, -1.0, 1.0) + 1) / 2 * (POINTS - 1)).astype(np.intp)
    return np.asarray(features[points], dtype=np.float64)


@cache
def _decomposed(bandwidth: float) -> Floats:
    return KernelGrid(bandwidth).features
