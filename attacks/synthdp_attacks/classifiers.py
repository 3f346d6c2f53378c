"""The classifiers of the base paper (section 5.4) as scikit-learn pipelines.

They share one scale of scores: above 0 is "member".

The likelihood ratios of white-box scores go by the same road, being classifiers of one feature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from synthdp_attacks.likelihood import LIKELIHOODS
from synthdp_attacks.threat import BoolArray, Codes, FloatArray

# Regularised: there are often more features than models, and few models.
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "kernel_svc": lambda seed: make_pipeline(
        StandardScaler(), SVC(kernel="rbf", C=1.0, gamma="scale")
    ),
    "linear_svc": lambda seed: make_pipeline(
        StandardScaler(), LinearSVC(C=1e-3, max_iter=50_000, random_state=seed)
    ),
    "logistic": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(C=1e-2, max_iter=5_000)
    ),
    "random_forest": lambda seed: RandomForestClassifier(
        n_estimators=200, min_samples_leaf=2, random_state=seed, n_jobs=1
    ),
    "knn": lambda seed: make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors=5)),
}


def scores_after_fit(
    name: str, features: FloatArray, members: BoolArray, asked: FloatArray, *, seed: int
) -> FloatArray:
    """Fit on `features` `[models, features]` and score `asked`.

    Scores have shape `[asked models]`; above 0 is "member".
    """
    if (
        len(members) < 2 * 5 and name == "knn"
    ):  # fewer models than neighbours: the nearest one decides
        model = make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors=1))
    elif name in LIKELIHOODS:
        model = LIKELIHOODS[name]()
    else:
        model = CLASSIFIERS[name](seed)
    model.fit(features, members)
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(asked), dtype=np.float64)
    return np.asarray(model.predict_proba(asked)[:, 1] - 0.5, dtype=np.float64)


def held_out_scores(
    name: str, features: FloatArray, members: BoolArray, pairs: Codes, *, seed: int, folds: int = 5
) -> FloatArray:
    """Out-of-fold scores of the training models, for choosing thresholds.

    Each model is scored by a classifier that saw neither it nor the other model of its pair.
    """
    scores = np.empty(len(members))
    for kept, held in GroupKFold(n_splits=min(folds, len(np.unique(pairs)))).split(
        features, members, groups=pairs
    ):
        scores[held] = scores_after_fit(
            name, features[kept], members[kept], features[held], seed=seed
        )
    return scores
