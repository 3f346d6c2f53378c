"""DP scoring of a synthetic table: classifiers trained on it, whose answers the kernel counts.

They are logistic regressions over levels, and see no real row. Their weights are rounded to whole
numbers, so that the kernel counts their right answers on real rows exactly
(`privacy.mechanisms.scores`).
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import sparse

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.features import level_features
from synthdp.graph.discovery import Releaser
from synthdp.privacy.mechanisms.scores import Scorecard, Scored
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import SCORES, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec

STRENGTH = 10.0  # inverse of the penalty, as for the logistic regression of the internal report
POINT = 2.0**-20  # of log odds: points are whole multiples of it
MAX_POINTS = 2**40  # sums over tens of thousands of columns stay whole numbers of 64 bits


def score_table(
    releaser: Releaser, spec: ReleaseSpec, domain: Domain, codes: Released[Codes]
) -> Released[Scored]:
    """Train scorecards on the synthetic table and count their answers, for the planned charge.

    A run that was interrupted after the charge gets back the table that was scored then. That table
    is the one to publish.
    """
    planned = needed(releaser.plan.scores, SCORES)
    max_rows = spec.evaluation.max_rows
    cards = [
        fit_scorecard(codes.value, domain, target, max_rows=max_rows, rng=fresh_generator())
        for target in planned.targets
    ]
    counted = releaser.release(planned.choose(codes.value, cards), purpose=SCORES)
    return codes.zip(counted).map(lambda pair: pair[1])


def fit_scorecard(
    synthetic: Codes, domain: Domain, target: str, *, max_rows: int, rng: np.random.Generator
) -> Scorecard:
    """Learn `target` from the other columns of synthetic levels `[rows, columns]`.

    At most `max_rows` rows are used. A class that is absent from them is never predicted.
    """
    codes = synthetic[rng.permutation(len(synthetic))[:max_rows]]
    labels = codes[:, domain.index(target)]
    others = [i for i, name in enumerate(domain.names) if name != target]
    present = np.unique(labels)
    log_odds = [np.zeros((size, domain[target].levels)) for size in domain.sizes]
    start = np.full(domain[target].levels, -float(MAX_POINTS))
    start[present] = 0.0
    if len(present) > 1 and others:
        features = [sparse.csr_matrix(level_features(domain.columns[i])) for i in others]
        blocks = [f[codes[:, i]] for f, i in zip(features, others, strict=True)]
        weights, start[present] = _logistic(sparse.hstack(blocks, format="csr"), labels)
        ends = np.cumsum([f.shape[1] for f in features])[:-1]
        by_column = zip(others, features, np.split(weights, ends, axis=1), strict=True)
        for i, feature, column_weights in by_column:
            log_odds[i][:, present] = feature @ column_weights.T
    else:
        start[np.bincount(labels).argmax()] = 1.0
    log_odds[domain.index(target)] += start
    return Scorecard(target, tuple(_points(table) for table in log_odds))


def _points(log_odds: np.ndarray) -> np.ndarray:
    """Log odds as whole multiples of `POINT`, at most `MAX_POINTS` in size, the same shape."""
    return np.clip(np.rint(log_odds / POINT), -MAX_POINTS, MAX_POINTS).astype(np.int64)


def _logistic(features: sparse.csr_matrix, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `[classes, features]` and intercepts `[classes]` of the classes that occur."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is scored as it is
        model = LogisticRegression(C=STRENGTH, max_iter=300).fit(features, labels)
    if len(model.classes_) > 2:
        return model.coef_, model.intercept_
    return np.vstack([np.zeros_like(model.coef_), model.coef_]), np.append(0.0, model.intercept_)
