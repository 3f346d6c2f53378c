"""Classifier two-sample test: can a classifier separate synthetic rows from held-out real ones?

Source: D. Lopez-Paz and M. Oquab, "Revisiting Classifier Two-Sample Tests", ICLR 2017. AUC .5 is
guessing. Beside it stands the same test of real training rows against held-out ones, which is the
best that a table can reach.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.evaluate import scores
from synthdp.evaluate.features import Features, build_features, category_mask, join

if TYPE_CHECKING:
    import pandas as pd

LEARNERS = ("logistic", "boosted_trees")
MAX_ROWS = 5000  # of each table
MIN_ROWS = 40
RESAMPLES, TAILS = 200, (0.025, 0.975)


@dataclass(frozen=True)
class TwoSampleRow:
    """AUC of one classifier on rows it was not trained on, with its 95% interval.

    `compared` names the two kinds of rows.
    """

    compared: str
    classifier: str
    auc: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def two_sample(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    rng: np.random.Generator,
) -> tuple[TwoSampleRow, ...]:
    """Test held-out real rows against synthetic ones, then against training rows.

    The result is empty where a table has too few rows. Both tests use equally many rows of each
    kind, so that they can be compared with each other.
    """
    size = min(MAX_ROWS, *(len(frame) for frame in (real_train, real_test, synthetic)))
    if size < MIN_ROWS:
        return ()
    held_out = _features(domain, real_test, size, rng)
    others = {
        "synthetic from real": _features(domain, synthetic, size, rng),
        "real from real": _features(domain, real_train, size, rng),
    }
    return tuple(
        _row(name, learner, domain, held_out, other, rng)
        for name, other in others.items()
        for learner in LEARNERS
    )


def _features(domain: Domain, frame: pd.DataFrame, size: int, rng: np.random.Generator) -> Features:
    """Features of `size` random rows."""
    chosen = frame.iloc[rng.permutation(len(frame))[:size]]
    return join([*build_features(domain, chosen, domain.names).values()])


def _row(
    name: str,
    learner: str,
    domain: Domain,
    real: Features,
    other: Features,
    rng: np.random.Generator,
) -> TwoSampleRow:
    """Train on half of the rows of each kind, test on the other half."""
    from synthdp.evaluate.learners import CLASSIFIERS, MAX_TREE_LEVELS, class_scores

    half = len(real) // 2
    first, second = np.arange(half), np.arange(half, len(real))
    train, labels = _stacked(real.take(first), other.take(first))
    test, truth = _stacked(real.take(second), other.take(second))
    trained = class_scores(
        CLASSIFIERS[learner],
        train,
        labels,
        test,
        classes=2,
        mask=category_mask(domain, domain.names, most_levels=MAX_TREE_LEVELS),
        seed=int(rng.integers(2**31)),
    )
    weights = scores.resample_weights(len(truth), RESAMPLES, rng=rng)
    resampled = scores.auc(trained.output[:, 1], truth == 1, weights)
    low, high = np.nanquantile(resampled[1:], TAILS)
    return TwoSampleRow(name, learner, float(resampled[0]), float(low), float(high))


def _stacked(real: Features, other: Features) -> tuple[Features, npt.NDArray[np.int64]]:
    """Rows of both kinds one after the other, and their labels: 0 is real."""
    both = Features(np.vstack([real.wide, other.wide]), np.vstack([real.narrow, other.narrow]))
    return both, np.repeat([0, 1], [len(real), len(other)])
