"""Is a model that learnt on synthetic rows as good on real ones as a model that learnt on real
rows?

Train on synthetic, test on real (TSTR) beside train on real, test on real (TRTR): same learners,
same features, same held-out real rows. The interval of the difference is a bootstrap over those
test rows, so it says what the size of the test set allows to conclude, not how much another release
would differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.evaluate import scores
from synthdp.evaluate.features import (
    Features,
    build_features,
    category_mask,
    clamped_numbers,
    join,
    target_levels,
)

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.evaluate.learners import Learner

RESAMPLES = 200
SIDES = ("real", "synthetic")
LEVEL = 0.95

Metric = Callable[[npt.NDArray[Any], npt.NDArray[Any], scores.Weights], scores.FloatArray]


@dataclass(frozen=True)
class UtilityRow:
    """One figure of one learner on one target.

    `real` and `synthetic` say what it learnt on; `difference` is real - synthetic with its 95%
    interval `low` to `high`. Figures that are not defined on these rows are None.
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
    """All rows, in the order targets x learners x metrics; `notes` says what was left out or gave a
    warning.
    """

    rows: tuple[UtilityRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def mean_auc_real(self) -> float | None:
        """Mean AUC, over targets and classifiers, of learning on real rows."""
        return self._mean_auc("real")

    @property
    def mean_auc_synthetic(self) -> float | None:
        """Mean AUC, over targets and classifiers, of learning on synthetic rows."""
        return self._mean_auc("synthetic")

    @property
    def tstr_ratio(self) -> float | None:
        """Synthetic-trained mean AUC as a share of the real-trained one."""
        real, synthetic = self.mean_auc_real, self.mean_auc_synthetic
        return synthetic / real if real and synthetic is not None else None

    def _mean_auc(self, side: str) -> float | None:
        rows = [
            r
            for r in self.rows
            if r.metric == "auc" and r.real is not None and r.synthetic is not None
        ]
        return float(np.mean([getattr(r, side) for r in rows])) if rows else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "mean_auc_real": self.mean_auc_real,
            "mean_auc_synthetic": self.mean_auc_synthetic,
            "tstr_ratio": self.tstr_ratio,
            "rows": [asdict(row) for row in self.rows],
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
    """TSTR beside TRTR for every target and learner; ranged targets get regressors instead of
    `classifiers`.

    Each of the three tables is cut to `max_rows` uniformly chosen rows. Degenerate tables give
    notes, not errors. `begin` hears of each training by name, also of those that these tables leave
    out: that they do says something of the rows.
    """
    for why, missing in (
        ("no real rows were held out for testing", real_test),
        ("a table to learn from has no rows", real_train),
        ("a table to learn from has no rows", synthetic),
    ):
        if targets and not len(missing):
            _left_out(trainings(domain, targets, classifiers), begin)
            return UtilityReport((), (f"not available: {why}",))
    if not targets:
        return UtilityReport((), ("not available: the spec names no evaluation targets",))
    frames = _Frames(
        *(_choose(frame, max_rows, rng) for frame in (real_train, real_test, synthetic))
    )
    columns = {
        side: build_features(domain, frame, domain.names) for side, frame in frames.items().items()
    }
    rows: list[UtilityRow] = []
    notes: list[str] = []
    for target in targets:
        found, said = _one_target(frames, columns, domain, target, classifiers, rng, begin)
        rows += found
        notes += said
    return UtilityReport(tuple(rows), tuple(notes))


def trainings(domain: Domain, targets: Sequence[str], classifiers: Sequence[str]) -> list[str]:
    """The models that `utility` trains where no table is degenerate, in order, by name."""
    from synthdp.evaluate.learners import REGRESSORS

    return [
        f"{t} by {name} on {side} rows"
        for t in targets
        for name in (REGRESSORS if domain[t].ranged else classifiers)
        for side in SIDES
    ]


def _left_out(names: Sequence[str], begin: Callable[[str], None]) -> None:
    for name in names:
        begin(name)


@dataclass(frozen=True)
class _Frames:
    real: pd.DataFrame
    test: pd.DataFrame
    synthetic: pd.DataFrame

    def items(self) -> dict[str, pd.DataFrame]:
        return {"real": self.real, "test": self.test, "synthetic": self.synthetic}


def _choose(frame: pd.DataFrame, most: int, rng: np.random.Generator) -> pd.DataFrame:
    # Also shuffles: a learner that takes fewer rows takes the first ones.
    return frame.iloc[rng.permutation(len(frame))[:most]]


@dataclass(frozen=True)
class _Task:
    """One target: learners, metrics, the three tables' features and target values, and what turns
    output into predictions.
    """

    target: str
    learners: Mapping[str, Learner]
    metrics: Mapping[str, Metric]
    run: Callable[[Learner, str, int], tuple[npt.NDArray[Any], tuple[str, ...]]]
    values: npt.NDArray[Any]


def _one_target(
    frames: _Frames,
    columns: Mapping[str, Mapping[str, Features]],
    domain: Domain,
    target: str,
    classifiers: Sequence[str],
    rng: np.random.Generator,
    begin: Callable[[str], None],
) -> tuple[list[UtilityRow], list[str]]:
    names = [n for n in domain.names if n != target]
    if not names:
        _left_out(trainings(domain, [target], classifiers), begin)
        return [], [f"{target}: not available: there is no other column to predict it from"]
    features = {side: join([own[n] for n in names]) for side, own in columns.items()}
    make = _regression if domain[target].ranged else _classification
    task = make(domain, target, names, frames, features, classifiers)
    if task is None:
        _left_out(trainings(domain, [target], classifiers), begin)
        return [], [f"{target}: not available: too few rows in which it is present"]
    weights = scores.resample_weights(len(task.values), RESAMPLES, rng=rng)
    rows: list[UtilityRow] = []
    notes: list[str] = []
    for name, learner in task.learners.items():
        outputs = {}
        seed = int(rng.integers(2**31))  # one for both sides: they differ by their rows alone
        for side in SIDES:
            begin(f"{target} by {name} on {side} rows")
            outputs[side], said = task.run(learner, side, seed)
            notes += [f"{target}, {name} on {side} rows: {text}" for text in said]
        rows += [
            _row(target, name, metric, fn, outputs, task.values, weights)
            for metric, fn in task.metrics.items()
        ]
    return rows, notes


def _classification(
    domain: Domain,
    target: str,
    names: Sequence[str],
    frames: _Frames,
    features: Mapping[str, Features],
    classifiers: Sequence[str],
) -> _Task:
    from synthdp.evaluate.learners import CLASSIFIERS, MAX_TREE_LEVELS, class_scores

    mask = category_mask(domain, names, most_levels=MAX_TREE_LEVELS)
    labels = {
        side: target_levels(domain[target], frame[target]) for side, frame in frames.items().items()
    }

    def run(learner: Learner, side: str, seed: int) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        trained = class_scores(
            learner,
            features[side],
            labels[side],
            features["test"],
            classes=domain[target].levels,
            mask=mask,
            seed=seed,
        )
        return trained.output, trained.warnings

    metrics: dict[str, Metric] = {
        "auc": scores.macro_auc,
        "accuracy": lambda s, y, w: scores.accuracy(s.argmax(axis=1), y, w),
        "macro_f1": lambda s, y, w: scores.macro_f1(s.argmax(axis=1), y, w),
    }
    return _Task(
        target, {name: CLASSIFIERS[name] for name in classifiers}, metrics, run, labels["test"]
    )


def _regression(
    domain: Domain,
    target: str,
    names: Sequence[str],
    frames: _Frames,
    features: Mapping[str, Features],
    classifiers: Sequence[str],
) -> _Task | None:
    from synthdp.evaluate.learners import MAX_TREE_LEVELS, REGRESSORS, predictions

    column = domain[target]
    mask = category_mask(domain, names, most_levels=MAX_TREE_LEVELS)
    numbers = {
        side: clamped_numbers(column, frame[target]) for side, frame in frames.items().items()
    }
    known = {side: np.flatnonzero(~np.isnan(values)) for side, values in numbers.items()}
    if min(len(rows) for rows in known.values()) < 2:
        return None
    values = {side: numbers[side][rows] for side, rows in known.items()}
    kept = {side: features[side].take(rows) for side, rows in known.items()}
    width = column.upper - column.lower

    def run(learner: Learner, side: str, seed: int) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        scaled = (values[side] - column.lower) / width
        trained = predictions(learner, kept[side], scaled, kept["test"], mask=mask, seed=seed)
        return np.clip(
            column.lower + width * trained.output, column.lower, column.upper
        ), trained.warnings

    metrics: dict[str, Metric] = {"r2": scores.r_squared, "mae": scores.mean_absolute_error}
    return _Task(target, REGRESSORS, metrics, run, values["test"])


def _row(
    target: str,
    learner: str,
    metric: str,
    fn: Metric,
    outputs: Mapping[str, npt.NDArray[Any]],
    values: npt.NDArray[Any],
    weights: scores.Weights,
) -> UtilityRow:
    real, synthetic = (fn(outputs[side], values, weights) for side in ("real", "synthetic"))
    difference = real - synthetic
    resampled = difference[1:][~np.isnan(difference[1:])]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail]) if len(resampled) else (np.nan, np.nan)
    return UtilityRow(
        target,
        learner,
        metric,
        *(_defined(v) for v in (real[0], synthetic[0], difference[0], low, high)),
    )


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
