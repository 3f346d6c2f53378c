"""Utility: is a model trained on synthetic rows as good on real ones as one trained on real ones?

Train on synthetic, test on real (TSTR) beside train on real, test on real (TRTR): same learners,
same features, same held-out real rows. The interval of the difference is a bootstrap over those
test rows. It says what the size of the test set allows to conclude, not how much another release
would differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import encode_column, to_numbers

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.evaluate.learners import Learner, Trained


# --- scores ---
#
# A bootstrap resample of `n` test rows is a row of counts that sum to `n`. Each function takes
# such weights, shape `[resamples, rows]`, and returns one figure for each resample, NaN where it
# is not defined. The first row of `resample_weights` is all ones: the plain estimate.


FloatArray = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def resample_weights(rows: int, resamples: int, *, rng: np.random.Generator) -> Weights:
    """How often each row is drawn, `[1 + resamples, rows]`, which float32 holds exactly."""
    weights = np.ones((1 + resamples, rows), dtype=np.float32)
    for i in range(1, 1 + resamples):
        weights[i] = np.bincount(rng.integers(0, rows, size=rows), minlength=rows)
    return weights


def auc(scores: FloatArray, positive: Mask, weights: Weights) -> FloatArray:
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
    return _ratio(np.nansum(table, axis=0), (~np.isnan(table)).sum(axis=0))


def _ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> FloatArray:
    """Quotient where the divisor is positive, NaN elsewhere."""
    none = np.full(len(below), np.nan)
    return np.asarray(np.divide(above, below, out=none, where=below > 0))


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
    columns = np.column_stack([(predicted - values) ** 2, centred, centred**2])
    sums = weights.astype(np.float64) @ columns
    n = weights.sum(axis=1, dtype=np.float64)
    spread = sums[:, 2] - sums[:, 1] ** 2 / n
    return 1.0 - _ratio(sums[:, 0], np.where(spread > 1e-12 * n, spread, 0.0))


def mean_absolute_error(predicted: FloatArray, values: FloatArray, weights: Weights) -> FloatArray:
    """Mean absolute error, shape `[resamples]`, in the values' unit."""
    return _row_mean(weights, np.abs(predicted - values))


def _row_mean(weights: Weights, values: npt.NDArray[Any]) -> FloatArray:
    """Weighted mean of one value per row, shape `[resamples]`."""
    sums = (weights.astype(np.float64) @ values[:, None].astype(np.float64))[:, 0]
    return np.asarray(sums / weights.sum(axis=1, dtype=np.float64))


# --- utility ---


SIDES = ("real", "synthetic")

Metric = Callable[[npt.NDArray[Any], npt.NDArray[Any], Weights], FloatArray]
Frames = Mapping[str, "pd.DataFrame"]  # "real" and "synthetic" rows to train on, "test" rows


@dataclass(frozen=True)
class UtilityRow:
    """One score of one learner on one target.

    `real` and `synthetic` name the training rows. `difference` is real - synthetic with its 95%
    interval `low` to `high`. Scores that are not defined on these rows are None.
    """

    target: str
    classifier: str
    metric: str
    real: float | None
    synthetic: float | None
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class UtilityReport:
    """All rows, targets x learners x metrics; `notes` name what was left out, and warnings."""

    rows: tuple[UtilityRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def mean_auc_real(self) -> float | None:
        return self._mean_auc(0)

    @property
    def mean_auc_synthetic(self) -> float | None:
        return self._mean_auc(1)

    @property
    def tstr_ratio(self) -> float | None:
        """Mean AUC of synthetic training over that of real training."""
        real, synthetic = self.mean_auc_real, self.mean_auc_synthetic
        return synthetic / real if real and synthetic is not None else None

    def _mean_auc(self, side: int) -> float | None:
        pairs = ((row.real, row.synthetic) for row in self.rows if row.metric == "auc")
        known: list[Any] = [pair[side] for pair in pairs if None not in pair]
        return float(np.mean(known)) if known else None

    def to_json(self) -> dict[str, Any]:
        return {
            "mean_auc_real": self.mean_auc_real,
            "mean_auc_synthetic": self.mean_auc_synthetic,
            "tstr_ratio": self.tstr_ratio,
            "rows": list(map(asdict, self.rows)),
            "notes": list(self.notes),
        }


def utility(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    targets: Sequence[str],
    classifiers: Sequence[str],
    max_rows: int,
    rng: np.random.Generator,
    begin: Callable[[str], None] = lambda what: None,
) -> UtilityReport:
    """TSTR beside TRTR for every target and learner; ranged targets get regressors.

    Each of the three tables is cut to `max_rows` uniformly chosen rows. Degenerate tables give
    notes, not errors. `begin` is called with the name of each training, also of those that these
    tables leave out: leaving out a name would reveal something about the rows.
    """
    missing = ""
    if not targets:
        missing = "the spec names no evaluation targets"
    elif not len(real_test):
        missing = "no real rows were held out for testing"
    elif not len(real_train) or not len(synthetic):
        missing = "a table to learn from has no rows"
    if missing:
        for name in trainings(domain, targets, classifiers):
            begin(name)
        return UtilityReport((), (f"not available: {missing}",))
    # In random order: a learner that takes fewer rows takes the first ones.
    frames = {
        side: frame.iloc[rng.permutation(len(frame))[:max_rows]]
        for side, frame in (("real", real_train), ("test", real_test), ("synthetic", synthetic))
    }
    judge = _Judge(domain, frames, classifiers, rng, begin)
    reports = list(map(judge.report, targets))
    rows, notes = ([x for r in reports for x in getattr(r, part)] for part in ("rows", "notes"))
    return UtilityReport(tuple(rows), tuple(notes))


def trainings(domain: Domain, targets: Sequence[str], classifiers: Sequence[str]) -> list[str]:
    """Names of the models that `utility` trains where no table is degenerate, in order."""
    from synthdp.evaluate.learners import REGRESSORS

    return [
        f"{t} by {name} on {side} rows"
        for t in targets
        for name in (REGRESSORS if domain[t].ranged else classifiers)
        for side in SIDES
    ]


@dataclass(frozen=True)
class _Task:
    """One target: its learners, its metrics, how one is run, and the true test values."""

    learners: Mapping[str, Learner]
    metrics: Mapping[str, Metric]
    run: Callable[[Learner, str, int], Trained]
    values: npt.NDArray[Any]


@dataclass(frozen=True)
class _Judge:
    """Rows by side and test, the classifiers, and who hears of each training."""

    domain: Domain
    frames: Frames
    classifiers: Sequence[str]
    rng: np.random.Generator
    begin: Callable[[str], None]

    @cached_property
    def columns(self) -> Mapping[str, Mapping[str, Features]]:
        names = self.domain.names
        return {side: build_features(self.domain, f, names) for side, f in self.frames.items()}

    def report(self, target: str) -> UtilityReport:
        names, task = [n for n in self.domain.names if n != target], None
        if names:
            parts_of = self.columns.items()
            features = {side: join([parts[n] for n in names]) for side, parts in parts_of}
            make = self.regression if self.domain[target].ranged else self.classification
            task = make(target, category_mask(self.domain, names), features)
        if task is None:
            for name in trainings(self.domain, [target], self.classifiers):
                self.begin(name)
            few = "too few rows in which it is present"
            why = few if names else "there is no other column to predict it from"
            return UtilityReport((), (f"{target}: not available: {why}",))
        weights = resample_weights(len(task.values), 200, rng=self.rng)
        rows: list[UtilityRow] = []
        notes: list[str] = []
        for name, learner in task.learners.items():
            outputs = []
            seed = int(self.rng.integers(2**31))  # one for both sides: only their rows differ
            for side in SIDES:
                self.begin(f"{target} by {name} on {side} rows")
                trained = task.run(learner, side, seed)
                outputs.append(trained.output)
                notes += [f"{target}, {name} on {side} rows: {text}" for text in trained.warnings]
            for metric, fn in task.metrics.items():
                scores = (fn(output, task.values, weights) for output in outputs)
                rows.append(_row((target, name, metric), *scores))
        return UtilityReport(tuple(rows), tuple(notes))

    def classification(self, target: str, mask: Mask, features: Mapping[str, Features]) -> _Task:
        from synthdp.evaluate.learners import CLASSIFIERS, class_scores

        column = self.domain[target]
        labels = {side: target_levels(column, f[target]) for side, f in self.frames.items()}

        def run(learner: Learner, side: str, seed: int) -> Trained:
            train, test, classes = features[side], features["test"], column.levels
            return class_scores(
                *(learner, train, labels[side], test), classes=classes, mask=mask, seed=seed
            )

        metrics: dict[str, Metric] = {
            "auc": macro_auc,
            "accuracy": lambda s, y, w: accuracy(s.argmax(axis=1), y, w),
            "macro_f1": lambda s, y, w: macro_f1(s.argmax(axis=1), y, w),
        }
        learners = {name: CLASSIFIERS[name] for name in self.classifiers}
        return _Task(learners, metrics, run, labels["test"])

    def regression(self, target: str, mask: Mask, features: Mapping[str, Features]) -> _Task | None:
        """None where a table has fewer than 2 values."""
        from synthdp.evaluate.learners import REGRESSORS, predictions

        column = self.domain[target]
        numbers = {side: clamped_numbers(column, f[target]) for side, f in self.frames.items()}
        known = {side: np.flatnonzero(~np.isnan(values)) for side, values in numbers.items()}
        if min(map(len, known.values())) < 2:
            return None
        values = {side: numbers[side][rows] for side, rows in known.items()}
        kept = {side: features[side].take(rows) for side, rows in known.items()}
        width = column.upper - column.lower

        def run(learner: Learner, side: str, seed: int) -> Trained:
            scaled = (values[side] - column.lower) / width
            trained = predictions(learner, kept[side], scaled, kept["test"], mask=mask, seed=seed)
            predicted = column.lower + width * trained.output
            return replace(trained, output=np.clip(predicted, column.lower, column.upper))

        metrics: dict[str, Metric] = {"r2": r_squared, "mae": mean_absolute_error}
        return _Task(REGRESSORS, metrics, run, values["test"])


def _row(names: tuple[str, str, str], real: FloatArray, synthetic: FloatArray) -> UtilityRow:
    """One metric of one learner, with a bootstrap interval of the difference."""
    difference = real - synthetic
    resampled = difference[1:][~np.isnan(difference[1:])]
    low = high = np.nan
    if len(resampled):
        low, high = np.quantile(resampled, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2])
    figures = map(float, (real[0], synthetic[0], difference[0], low, high))
    return UtilityRow(*names, *(f if np.isfinite(f) else None for f in figures))


# --- features ---


FloatMatrix = npt.NDArray[np.float32]
IntVector = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Features:
    """One table in two encodings, made by the public domain alone: nothing is fitted to rows.

    A category becomes indicators. A range is scaled by its public bounds. A missing value and each
    spike of a range get an indicator. Values outside the domain are clamped.

    `wide` has indicators, shape `[rows, indicators]`, for linear and distance models. `narrow` has
    one number for each column, shape `[rows, columns]`, for trees: scaled values (NaN where
    missing), or positions of categories.
    """

    wide: FloatMatrix
    narrow: FloatMatrix

    def __len__(self) -> int:
        return len(self.narrow)

    def take(self, rows: npt.NDArray[np.integer]) -> Features:
        return Features(self.wide[rows], self.narrow[rows])


def build_features(
    domain: Domain, frame: pd.DataFrame, names: Sequence[str]
) -> dict[str, Features]:
    """Features of each column of `names`, for every row, to be joined for each target."""
    return {name: Features(*_column(domain[name], frame[name])) for name in names}


def join(parts: Sequence[Features]) -> Features:
    """Features of several columns (at least one) side by side."""
    return Features(np.hstack([p.wide for p in parts]), np.hstack([p.narrow for p in parts]))


def _column(column: ColumnDomain, values: pd.Series[object]) -> tuple[FloatMatrix, FloatMatrix]:
    """The `wide` and the `narrow` features of one column."""
    if not column.ranged:
        codes = encode_column(column, values).codes
        places = codes.astype(np.float32)[:, None]
        if column.levels == 2:  # the second indicator would be the complement of the first
            return places, places
        most = 256  # indicators; further levels share them, so that memory stays bounded
        return np.eye(min(column.levels, most), dtype=np.float32)[codes % most], places
    numbers = clamped_numbers(column, values)
    scaled = ((numbers - column.lower) / (column.upper - column.lower)).astype(np.float32)
    absent = np.isnan(numbers)
    blocks = [np.where(absent, np.float32(0.5), scaled)[:, None]]
    blocks += [(numbers == spike).astype(np.float32)[:, None] for spike in column.spikes]
    if column.missing:
        blocks.append(absent.astype(np.float32)[:, None])
    return np.hstack(blocks), scaled[:, None]


def category_mask(domain: Domain, names: Sequence[str]) -> Mask:
    """Which of `narrow`'s columns are categories of 3 to 255 levels, which trees take."""
    return np.asarray([not domain[n].ordered and 2 < domain[n].levels <= 255 for n in names])


def clamped_numbers(column: ColumnDomain, values: pd.Series[object]) -> FloatVector:
    """A ranged column as numbers within its public bounds, `[rows]`; NaN where missing."""
    return np.clip(to_numbers(column, values), column.lower, column.upper)


def target_levels(column: ColumnDomain, values: pd.Series[object]) -> IntVector:
    """A discrete column's levels, shape `[rows]`; missing is a class."""
    return encode_column(column, values).codes.astype(np.int64)
