"""Weighted scores equal scikit-learn's on the resampled rows."""

import numpy as np
import pytest
from sklearn import metrics

from synthdp.evaluate import utility

ROWS = 120


@pytest.fixture
def weights() -> np.ndarray:
    return utility.resample_weights(ROWS, 5, rng=np.random.default_rng(0))


def drawn(weights: np.ndarray, resample: int) -> np.ndarray:
    return np.repeat(np.arange(ROWS), weights[resample].astype(int))


def test_weights_are_the_table_itself_then_resamples(weights: np.ndarray) -> None:
    assert weights.shape == (6, ROWS)
    assert (weights[0] == 1).all() and (weights.sum(axis=1) == ROWS).all()
    assert (weights[1] != weights[2]).any()


def test_auc_with_ties(weights: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    score, labels = rng.integers(0, 6, ROWS).astype(float), rng.random(ROWS) < 0.4
    found = utility.auc(score, labels, weights)
    for i in range(len(weights)):
        rows = drawn(weights, i)
        assert found[i] == pytest.approx(metrics.roc_auc_score(labels[rows], score[rows]))


def test_macro_auc_of_three_classes(weights: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    probability, labels = rng.dirichlet(np.ones(3), ROWS), rng.integers(0, 3, ROWS)
    found = utility.macro_auc(probability, labels, weights)
    for i in range(len(weights)):
        rows = drawn(weights, i)
        assert found[i] == pytest.approx(
            metrics.roc_auc_score(
                labels[rows], probability[rows], multi_class="ovr", labels=[0, 1, 2]
            )
        )


def test_macro_auc_leaves_out_what_the_test_rows_lack() -> None:
    labels = np.array([0, 0, 1, 1])
    aligned = np.column_stack([1 - labels, labels, np.full(4, -np.inf)]).astype(float)
    assert utility.macro_auc(aligned, labels, np.ones((1, 4), np.float32))[0] == 1.0
    assert np.isnan(utility.macro_auc(aligned, np.zeros(4, int), np.ones((1, 4), np.float32))[0])


def test_accuracy_and_f1(weights: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    predicted, labels = rng.integers(0, 3, ROWS), rng.integers(0, 3, ROWS)
    for i in range(len(weights)):
        rows = drawn(weights, i)
        assert utility.accuracy(predicted, labels, weights)[i] == pytest.approx(
            metrics.accuracy_score(labels[rows], predicted[rows])
        )
        assert utility.macro_f1(predicted, labels, weights)[i] == pytest.approx(
            metrics.f1_score(labels[rows], predicted[rows], average="macro")
        )


def test_regression_scores(weights: np.ndarray) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(1e6, 5, ROWS)
    predicted = values + rng.normal(0, 2, ROWS)
    for i in range(len(weights)):
        rows = drawn(weights, i)
        assert utility.r_squared(predicted, values, weights)[i] == pytest.approx(
            metrics.r2_score(values[rows], predicted[rows])
        )
        assert utility.mean_absolute_error(predicted, values, weights)[i] == pytest.approx(
            np.abs(values - predicted)[rows].mean()
        )


def test_r_squared_of_a_constant_is_undefined() -> None:
    assert np.isnan(utility.r_squared(np.ones(4), np.full(4, 3.0), np.ones((1, 4), np.float32))[0])
