"""Scores of predictions under row weights, for all bootstrap resamples at once.

A bootstrap resample of `n` test rows is a row of counts that sum to `n`. Each function takes such
weights, shape `[resamples, rows]`, and returns one figure for each resample, NaN where it is not
defined. The first row of `resample_weights` is all ones: the plain estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


def resample_weights(rows: int, resamples: int, *, rng: np.random.Generator) -> Weights:
    """How often each row is drawn, shape `[1 + resamples, rows]`.

    Float32 holds such counts exactly.
    """
    weights = np.ones((1 + resamples, rows), dtype=np.float32)
    for i in range(1, 1 + resamples):
        weights[i] = np.bincount(rng.integers(0, rows, size=rows), minlength=rows)
    return weights


def auc(scores: FloatArray, positive: npt.NDArray[np.bool_], weights: Weights) -> FloatArray:
    """Area under the ROC curve of scores `[rows]`, shape `[resamples]`; ties count half.

    >>> auc(np.array([0.1, 0.4, 0.8]), np.array([False, True, True]), np.ones((1, 3), np.float32))
    array([1.])
    """
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)
    ordered = weights[:, order]
    ones = np.add.reduceat(ordered * positive[order], starts, axis=1, dtype=np.float64)
    zeros = np.add.reduceat(ordered * ~positive[order], starts, axis=1, dtype=np.float64)
    below = np.cumsum(zeros, axis=1) - zeros
    pairs = ones.sum(axis=1) * zeros.sum(axis=1)
    won = (ones * (below + 0.5 * zeros)).sum(axis=1)
    return _ratio(won, pairs)


def macro_auc(scores: FloatArray, labels: IntVector, weights: Weights) -> FloatArray:
    """Mean one-versus-rest AUC, shape `[resamples]`, over the classes that a resample contains.

    A class that is the only one is left out. `scores` has shape `[rows, classes]`. With two classes
    this is the usual AUC.
    """
    present = np.unique(labels)
    # Two classes have the same one-versus-rest AUC where their scores mirror each other.
    if len(present) == 2 and scores.shape[1] == 2:
        present = present[1:]
    return _mean_defined([auc(scores[:, k], labels == k, weights) for k in present])


def _mean_defined(parts: Sequence[FloatArray]) -> FloatArray:
    """Mean over the parts that are not NaN, shape `[resamples]`."""
    table = np.stack(parts)
    known = ~np.isnan(table)
    total = np.where(known, table, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    return _ratio(total, count)


def _ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> FloatArray:
    """Quotient where the divisor is positive, NaN elsewhere."""
    quotient: FloatArray = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return quotient


def _sums(weights: Weights, columns: npt.NDArray[Any]) -> FloatArray:
    """Weighted column sums, shape `[resamples, columns]`."""
    summed: FloatArray = weights.astype(np.float64) @ columns
    return summed


def accuracy(predicted: IntVector, labels: IntVector, weights: Weights) -> FloatArray:
    """Share of correct predictions, shape `[resamples]`."""
    return _row_mean(weights, predicted == labels)


def macro_f1(predicted: IntVector, labels: IntVector, weights: Weights) -> FloatArray:
    """Unweighted mean F1, shape `[resamples]`, over the classes that occur or are predicted."""
    classes = np.union1d(predicted, labels)
    parts = []
    for k in classes:
        says, is_k = predicted == k, labels == k
        columns = np.column_stack([says & is_k, says, is_k]).astype(np.float32)
        true_positives, positives, actual = (weights @ columns).astype(np.float64).T
        parts.append(_ratio(2 * true_positives, positives + actual))
    return _mean_defined(parts)


def r_squared(predicted: FloatArray, values: FloatArray, weights: Weights) -> FloatArray:
    """1 - squared error / variance, shape `[resamples]`; NaN where the values do not vary."""
    centred = values - values.mean()
    sums = _sums(weights, np.column_stack([(predicted - values) ** 2, centred, centred**2]))
    n = weights.sum(axis=1, dtype=np.float64)
    spread = sums[:, 2] - sums[:, 1] ** 2 / n
    return 1.0 - _ratio(sums[:, 0], np.where(spread > 1e-12 * n, spread, 0.0))


def mean_absolute_error(predicted: FloatArray, values: FloatArray, weights: Weights) -> FloatArray:
    """Mean absolute error, shape `[resamples]`, in the values' unit."""
    return _row_mean(weights, np.abs(predicted - values))


def _row_mean(weights: Weights, values: npt.NDArray[Any]) -> FloatArray:
    """Weighted mean of one value per row, shape `[resamples]`."""
    sums = _sums(weights, values[:, None].astype(np.float64))[:, 0]
    mean: FloatArray = sums / weights.sum(axis=1, dtype=np.float64)
    return mean
