"""The classifiers and regressors that judge a synthetic table; all are quick and repeatable.

Linear and distance models see indicators (`wide`), trees see one number for each column (`narrow`).
All learn in float32 on one core. A model that does not converge still counts. Its warning goes to
the report, not to stderr.

A table with one row is enough. From one class every model learns to predict that class; its AUC is
.5 and its accuracy is the frequency of that class. A column of one value, or of none, is ignored.
Of fewer rows than a nearest-neighbour model asks for, all are neighbours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn import ensemble
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC, LinearSVC

from synthdp.data.domain import Domain
from synthdp.evaluate.utility import Features, FloatVector, IntVector, UtilityReport

# Without the penalty, boosting with many classes diverges on rare ones (AUC .69 instead of .84 on
# Adult's occupation).
TREES: dict[str, Any] = dict(max_leaf_nodes=16, l2_regularization=10.0, early_stopping=False)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Learner:
    """How to make one model: `build(seed, mask of categories)`, its encoding, and its most rows."""

    build: Callable[[int, Mask], Any]
    form: Literal["wide", "narrow"]
    max_rows: int | None = None


class _Nearest(KNeighborsClassifier):  # type: ignore[misc]
    """A fixed number of nearest neighbours, or all rows where there are fewer."""

    def fit(self, rows: Any, target: Any) -> _Nearest:
        self.set_params(n_neighbors=min(self.get_params()["n_neighbors"], len(rows)))
        super().fit(rows, target)
        return self


def _linear(model: Any) -> Pipeline:
    # Features are in [0, 1] by the domain. This only stretches a range whose rows fill a small part
    # of wide bounds.
    return make_pipeline(MaxAbsScaler(), model)


CLASSIFIERS: Mapping[str, Learner] = {
    "logistic": Learner(
        lambda seed, mask: _linear(LogisticRegression(C=10.0, max_iter=500)), "wide"
    ),
    "boosted_trees": Learner(
        lambda seed, mask: ensemble.HistGradientBoostingClassifier(
            **TREES, categorical_features=mask, random_state=seed
        ),
        "narrow",
    ),
    "random_forest": Learner(
        lambda seed, mask: ensemble.RandomForestClassifier(
            100, min_samples_leaf=3, max_samples=0.5, random_state=seed
        ),
        "narrow",
    ),
    "knn": Learner(lambda seed, mask: _Nearest(15), "wide"),
    "linear_svc": Learner(
        lambda seed, mask: _linear(LinearSVC(dual=False, max_iter=300, random_state=seed)), "wide"
    ),
    # Time grows with the square of the rows.
    "kernel_svc": Learner(
        lambda seed, mask: SVC(gamma="scale", random_state=seed), "wide", max_rows=5000
    ),
}

REGRESSORS: Mapping[str, Learner] = {
    "ridge": Learner(lambda seed, mask: _linear(Ridge(alpha=1.0)), "wide"),
    "boosted_trees": Learner(
        lambda seed, mask: ensemble.HistGradientBoostingRegressor(
            **TREES, categorical_features=mask, random_state=seed
        ),
        "narrow",
    ),
}


@dataclass(frozen=True, eq=False)
class Trained:
    """A model's output on the test rows, and the warnings it gave while learning."""

    output: npt.NDArray[np.float64]
    warnings: tuple[str, ...]


def class_scores(
    learner: Learner,
    train: Features,
    labels: IntVector,
    test: Features,
    *,
    classes: int,
    mask: Mask,
    seed: int,
) -> Trained:
    """Train a classifier and score the test rows, shape `[test rows, classes]`.

    A larger score is likelier. A class that the training rows lack gets the lowest score. With a
    single class there is nothing to learn, and that class gets 1.
    """
    present = np.unique(labels)
    scores = np.full((len(test), classes), -np.inf)
    if len(present) < 2:
        scores[:, present] = 1.0
        return Trained(scores, ("the training target has a single class",))
    train, labels = _limit(learner, train, labels)
    present = np.unique(labels)
    if len(present) < 2:
        scores[:, present] = 1.0
        return Trained(scores, ("the training rows this model can take have a single class",))
    model, warned = _fit(learner, train, labels, mask, seed)
    scores[:, present] = _decision(model, getattr(test, learner.form))
    return Trained(scores, warned)


def predictions(
    learner: Learner, train: Features, values: FloatVector, test: Features, *, mask: Mask, seed: int
) -> Trained:
    """Train a regressor and predict a number for each test row, shape `[test rows]`."""
    train, values = _limit(learner, train, values)
    model, warned = _fit(learner, train, values, mask, seed)
    predicted = np.asarray(model.predict(getattr(test, learner.form)), dtype=np.float64)
    return Trained(predicted, warned)


def _limit(
    learner: Learner, train: Features, target: npt.NDArray[Any]
) -> tuple[Features, npt.NDArray[Any]]:
    """At most as many rows as the learner can take: the first, which are in random order."""
    if learner.max_rows is None or len(train) <= learner.max_rows:
        return train, target
    return train.take(np.arange(learner.max_rows)), target[: learner.max_rows]


def _fit(
    learner: Learner, train: Features, target: npt.NDArray[Any], mask: Mask, seed: int
) -> tuple[Any, tuple[str, ...]]:
    """The trained model, and the kinds of the warnings it gave."""
    model, rows = learner.build(seed, mask), getattr(train, learner.form)
    # Histogram trees cannot make bins of no values.
    rows = np.where(np.isnan(rows).all(axis=0), 0, rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, target)
    # The kind only: some warnings quote values.
    return model, tuple(sorted({w.category.__name__ for w in caught}))


def _decision(model: Any, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """One score per row and class, shape `[rows, classes]`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(rows), dtype=np.float64)
        margins = np.asarray(model.decision_function(rows), dtype=np.float64)
    return np.column_stack([-margins, margins]) if margins.ndim == 1 else margins


# --- random targets ---


PAPER_CLASSIFIERS = ("kernel_svc", "linear_svc", "logistic", "random_forest", "knn")


@dataclass(frozen=True)
class Gap:
    """Mean loss from training on synthetic rows, in `unit`, with its 95% interval.

    `targets` is the number of targets. A negative loss is a gain. `low` and `high` are None where
    there is one target.
    """

    metric: str
    unit: str
    targets: int
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PaperReport:
    """The protocol of the base paper: random targets, five classifiers (or regressors) each.

    Table 2 of that paper gives the difference in points of accuracy between training on real and on
    synthetic rows. Here the mean gap of each metric has an interval over targets.
    """

    targets: tuple[str, ...]
    utility: UtilityReport
    gaps: tuple[Gap, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "targets": list(self.targets),
            "utility": self.utility.to_json(),
            "gaps": list(map(asdict, self.gaps)),
        }


def random_targets(domain: Domain, count: int) -> tuple[str, ...]:
    """At most `count` columns of two levels or more, in order, by a public seed."""
    usable = [c.name for c in domain.columns if c.levels > 1]
    chosen = np.random.default_rng(0).permutation(len(usable))[:count]
    return tuple(usable[i] for i in sorted(chosen.tolist()))


def summarize(targets: Sequence[str], utility: UtilityReport) -> PaperReport:
    """The mean gap over targets; a target counts once, by the mean over its learners."""
    metrics = (("accuracy", "points of accuracy", 100.0), ("auc", "AUC", 1.0), ("r2", "R²", 1.0))
    gaps = (_gap(utility, *metric) for metric in metrics)
    return PaperReport(tuple(targets), utility, tuple(g for g in gaps if g is not None))


def _gap(utility: UtilityReport, metric: str, unit: str, scale: float) -> Gap | None:
    """The mean gap of one metric; None where no target has it."""
    by_target: dict[str, list[float]] = {}
    for row in utility.rows:
        if row.metric == metric and row.difference is not None:
            by_target.setdefault(row.target, []).append(scale * row.difference)
    means = [float(np.mean(losses)) for losses in by_target.values()]
    if not means:
        return None
    middle = float(np.mean(means))
    if len(means) < 2:
        return Gap(metric, unit, len(means), middle, None, None)
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means)))
    return Gap(metric, unit, len(means), middle, middle - half, middle + half)
