"""The additive noise model as published, for comparison only: neither form here protects all rows.

`probabilities`: what Table 2 of Kusner et al. ("Private Causal Inference", AISTATS 2016) reports,
the chance of the right order of two scores by Theorems 2 and 4, where only the test half is
protected
and each score costs epsilon of its own. `textbook`: ANM-HSIC without any privacy (Mooij et al.,
JMLR 17, 2016, section 4.1), with kernel ridge regression.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from synthdp.privacy.mechanisms.anm import NoisyScores

Floats = npt.NDArray[np.float64]

TEXTBOOK_ROWS = 300
BANDWIDTHS, PENALTIES = (0.1, 0.3, 1.0, 2.0), np.logspace(-3, 2, 11)


def probabilities(exact: NoisyScores, *, rows: int, epsilon: float) -> dict[str, float]:
    """Chance that noisy scores put the first column as the cause, by score.

    `exact`: scores of `rows` test rows, without noise to speak of. Sensitivities are those proved
    for a replaced row, not the paper's looser ones (tests/graph/test_published_numeric_bounds.py).
    IQR: Laplace noise of 1 / epsilon on each of four logarithms, given that propose-test-release
    does not refuse.
    """
    spearman, kendall, root_hsic = (
        np.diff(exact.scores[s])[0] / rows for s in ("spearman", "kendall", "hsic")
    )
    hsic = root_hsic * float(exact.scores["hsic"].sum()) / rows  # a difference of squares
    first, residual_of_second, second, residual_of_first = (
        _log_iqr(table) for table in exact.scores["iqr"]
    )
    return {
        "spearman": _of_two(spearman * epsilon * (rows + 1) / 6),
        "kendall": _of_two(kendall * epsilon * rows / 4),
        "hsic": _of_two(hsic * epsilon * (rows - 1) / 4),
        "iqr": _of_four((second + residual_of_first - first - residual_of_second) * epsilon),
    }


def _of_two(margin: float) -> float:
    """Theorem 2: P[g + two Laplace draws > 0], the margin in units of the noise's scale."""
    size = abs(margin)
    wrong = 0.0 if math.isinf(size) else (size + 2) / 4 * math.exp(-size)
    return 1 - wrong if margin > 0 else wrong


def _of_four(margin: float) -> float:
    """Theorem 4: the same with four draws."""
    size = abs(margin)
    wrong = (
        0.0 if math.isinf(size) else math.exp(-size) / 96 * (48 + 33 * size + 9 * size**2 + size**3)
    )
    return 1 - wrong if margin > 0 else wrong


def _log_iqr(table: Floats) -> float:
    """Of counts in equal bins of [-1, 1]."""
    shares = np.concatenate([[0.0], np.cumsum(table)]) / table.sum()
    low, high = np.interp([0.25, 0.75], shares, np.linspace(-1, 1, len(shares)))
    return math.log(max(high - low, 1e-6))


def textbook(values: Floats, rng: np.random.Generator) -> float:
    """HSIC of the backward less that of the forward residual, `values` `[rows, 2]`: positive where
    the first column is the cause.

    At most `TEXTBOOK_ROWS` rows at random, standardised; bandwidth and penalty of each regression
    by leave-one-out errors; median bandwidths of HSIC.
    """
    chosen = values[rng.permutation(len(values))[:TEXTBOOK_ROWS]]
    x, y = ((column - column.mean()) / column.std() for column in chosen.T)
    return _hsic(y, _residual(y, x)) - _hsic(x, _residual(x, y))


def _residual(causes: Floats, effects: Floats) -> Floats:
    best, least = effects, math.inf
    for bandwidth in BANDWIDTHS:
        values, vectors = np.linalg.eigh(
            np.exp(-((causes[:, None] - causes) ** 2) / (2 * bandwidth**2))
        )
        for penalty in PENALTIES * len(causes) / 100:
            shrunk = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + penalty)
            left = effects - vectors @ (shrunk * (vectors.T @ effects))
            error = float(np.mean((left / (1 - vectors**2 @ shrunk + 1e-9)) ** 2))
            if error < least:
                best, least = left, error
    return best


def _hsic(first: Floats, second: Floats) -> float:
    kernels = []
    for values in (first, second):
        distances = np.abs(values[:, None] - values)
        width = float(np.median(distances[distances > 0]))
        kernels.append(np.exp(-(distances**2) / (2 * width**2)))
    centred = kernels[0] - kernels[0].mean(0)
    return float(((centred - centred.mean(1)[:, None]) * kernels[1]).mean())
