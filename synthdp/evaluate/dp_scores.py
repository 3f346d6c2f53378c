"""DP scores of a release: estimates and intervals from noisy counts that the budget paid for.

The published scores are the mean total variation of one-way and of two-way tables against the
fitted rows, and the accuracy on held-out real rows of a model that was trained on synthetic rows.
The accuracy of a model trained on *real* rows is not published: training it privately would cost
far more than counting its answers. All intervals include the noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import sparse

from synthdp.data.domain import Domain, level_features
from synthdp.data.encoding import Codes
from synthdp.evaluate.effects import NORMAL_95
from synthdp.graph.discovery import Releaser
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.scores import Scorecard, Scored, compared
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import SCORES, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Model, ReleaseSpec

LEVEL, Z = 0.95, NORMAL_95


class ChargedScore(Model):
    """One published score with its noisy counts and its 95% interval.

    `counts` are the released values: misplaced rows, or wrong and right answers, with noise of
    parameter `sigma`. `value`, `low` and `high` follow from them and from released tables. `value`
    is None where the noise hides whether there are any rows. `tables` is the number of tables over
    which a distance is averaged.
    """

    name: Literal["tv1", "tv2", "tstr_accuracy"]
    target: str | None = None
    tables: int | None = None
    counts: tuple[int, ...] = Field(min_length=1, max_length=2)
    sigma: float = Field(gt=0)
    value: float | None
    low: float
    high: float


DpScores = tuple[ChargedScore, ...]


def dp_scores_of(
    spec: ReleaseSpec, domain: Domain, scored: Scored, tables: Sequence[NoisyTable]
) -> DpScores:
    """Scores and intervals, from noisy counts and released one-way `tables` alone."""
    together = spec.dataset.privacy_unit.max_rows
    targets = [t for t in spec.evaluation.targets if not domain[t].ranged]
    rows, variance = counted_rows(tables)
    scores = list[dict[str, Any]]()
    distances = zip(compared(domain).items(), scored.misplaced.tolist(), strict=True)
    for (name, averaged), misplaced in distances:
        interval = distance(misplaced, rows, variance, sigma=scored.sigma)
        facts = {"name": name, "tables": len(averaged), "counts": (misplaced,)}
        scores.append(facts | dict(zip(("value", "low", "high"), interval, strict=True)))
    for target, answers in zip(targets, scored.answers.tolist(), strict=True):
        interval = accuracy(*answers, sigma=scored.sigma, together=together)
        facts = {"name": "tstr_accuracy", "target": target, "counts": tuple(answers)}
        scores.append(facts | dict(zip(("value", "low", "high"), interval, strict=True)))
    return tuple(ChargedScore.model_validate(s | {"sigma": scored.sigma}) for s in scores)


class Headline(NamedTuple):
    """A score that gates and tracking know, and its 95% interval."""

    value: float
    low: float
    high: float


def headline(scores: Sequence[ChargedScore]) -> dict[str, Headline]:
    """The scores that gates and tracking know, by name; scores without a value are left out.

    The names are tv1_dp, tv2_dp, and tstr_accuracy_dp for the mean accuracy over targets. The mean
    is left out where a target has no value. Its interval is the mean of theirs, which is right
    where their errors move together, and wider than it must be where they do not.
    """
    known = {s: Headline(s.value, s.low, s.high) for s in scores if s.value is not None}
    figures = {f"{s.name}_dp": found for s, found in known.items() if s.target is None}
    targets = [s for s in scores if s.target is not None]
    if targets and known.keys() >= {*targets}:
        ends = zip(*(known[s] for s in targets), strict=True)
        figures["tstr_accuracy_dp"] = Headline(*(math.fsum(e) / len(targets) for e in ends))
    return figures


def with_ends(scores: Sequence[ChargedScore]) -> dict[str, float]:
    """The same by name, and the ends of their intervals as `..._low` and `..._high`."""
    figures, ends = headline(scores).items(), ("", "_low", "_high")
    return {f"{n}{end}": v for n, found in figures for end, v in zip(ends, found, strict=True)}


def counted_rows(tables: Sequence[NoisyTable]) -> tuple[float, float]:
    """Estimate of the number of fitted rows, and the variance of that estimate.

    Each released one-way table gives one estimate, the sum of its counts. A sum over L cells has
    variance at most L sigma^2 (the variance of a discrete Gaussian is at most sigma^2: Canonne,
    Kamath and Steinke, arXiv:2004.00010v4, Corollary 9). The first table of each column is used.
    The sums are weighted by their precision.
    """
    single = {table.columns[0]: table for table in reversed(tables) if len(table.columns) == 1}
    weights = [1 / (t.counts.size * t.sigma**2) for t in single.values()]
    sums = [w * float(t.counts.sum()) for w, t in zip(weights, single.values(), strict=True)]
    return math.fsum(sums) / math.fsum(weights), 1 / math.fsum(weights)


def distance(
    misplaced: int, rows: float, variance: float, *, sigma: float
) -> tuple[float | None, float, float]:
    """Total variation and its 95% interval: noisy `misplaced` rows over noisy `rows`.

    The interval [derived here, as Fieller's] contains each t for which misplaced - t rows, of mean
    0 at the true t and variance sigma^2 + t^2 `variance`, lies within 1.96 standard deviations.
    Rows were rounded down, so the upper end counts one more.
    """
    square = rows**2 - Z**2 * variance
    if rows <= 0 or square <= 0:
        return None, 0.0, 1.0
    low = _roots(square, -2 * misplaced * rows, misplaced**2 - (Z * sigma) ** 2)[0]
    high = _roots(square, -2 * (misplaced + 1) * rows, (misplaced + 1) ** 2 - (Z * sigma) ** 2)[1]
    return _share((misplaced + 0.5) / rows), _share(low), _share(high)


def accuracy(
    wrong: int, right: int, *, sigma: float, together: int
) -> tuple[float | None, float, float]:
    """Accuracy and its 95% interval, which covers the noise and the choice of the test rows.

    [Derived here: Wilson's interval with noise.] Let n = wrong + right, and let a be the true
    share. Then `right - a n` has mean 0 and variance at most

        sigma^2 (a^2 + (1 - a)^2) + together a (1 - a) n.

    The first term is the noise on both counts. The second term allows for units of at most
    `together` rows, whose answers may all be equal. The interval contains each a for which `right -
    a n` lies within 1.96 standard deviations.
    """
    rows = wrong + right
    noise, sampling = (Z * sigma) ** 2, Z**2 * together * rows
    square = rows**2 - 2 * noise + sampling
    # Where the noise alone may account for all counted rows, every share is possible.
    if rows <= 0 or rows**2 <= 2 * noise:
        return None, 0.0, 1.0
    low, high = _roots(square, -(2 * right * rows - 2 * noise + sampling), right**2 - noise)
    return _share(right / rows), _share(low), _share(high)


def _roots(a: float, b: float, c: float) -> tuple[float, float]:
    """Roots of a x^2 + b x + c, with a > 0; where it has none, its minimum twice."""
    middle, half = -b / (2 * a), math.sqrt(max(0.0, b * b - 4 * a * c)) / (2 * a)
    return middle - half, middle + half


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


# --- scorecards ---


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

    It is a logistic regression over levels, and sees no real row. Its weights are rounded to whole
    numbers, so that the kernel counts its right answers on real rows exactly
    (`privacy.mechanisms.scores`). At most `max_rows` rows are used. A class that is absent from
    them is never predicted.
    """
    codes = synthetic[rng.permutation(len(synthetic))[:max_rows]]
    labels = codes[:, domain.index(target)]
    others = [i for i, name in enumerate(domain.names) if name != target]
    present = np.unique(labels)
    log_odds = [np.zeros((size, domain[target].levels)) for size in domain.sizes]
    most = 2**40  # points: sums over tens of thousands of columns stay whole numbers of 64 bits
    start = np.full(domain[target].levels, -float(most))
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
    points = (np.clip(np.rint(table * 2.0**20), -most, most) for table in log_odds)
    return Scorecard(target, tuple(table.astype(np.int64) for table in points))


def _logistic(features: sparse.csr_matrix, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `[classes, features]` and intercepts `[classes]` of the classes that occur."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is scored as it is
        # The penalty is that of the logistic regression of the internal report.
        model = LogisticRegression(C=10.0, max_iter=300).fit(features, labels)
    if len(model.classes_) > 2:
        return model.coef_, model.intercept_
    return np.vstack([np.zeros_like(model.coef_), model.coef_]), np.append(0.0, model.intercept_)
