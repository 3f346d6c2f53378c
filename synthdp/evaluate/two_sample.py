"""A two-sample classifier test: can a classifier tell synthetic rows from real ones that the
synthesizer never saw?

D. Lopez-Paz and M. Oquab, "Revisiting Classifier Two-Sample Tests", ICLR 2017. AUC .5 is guessing.
Beside it stands the same test of real training rows against held-out ones, which no table can do
better than.
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
    """AUC of one classifier on rows it did not learn from, with its 95% interval; `compared` says
    which rows were to be told apart.
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
    """Held-out real rows against synthetic ones, then against training rows; empty where a table
    has too few rows.

    Both comparisons have as many rows of either kind, so that they can be compared with each other.
    """
    size = min(MAX_ROWS, *(len(frame) for frame in (real_train, real_test, synthetic)))
    if size < MIN_ROWS:
        return ()
    names = {"synthetic from real": synthetic, "real from real": real_train}
    drawn = {
        name: _features(domain, frame, size, rng)
        for name, frame in ({"held out": real_test} | names).items()
    }
    found = []
    for name in names:
        for learner in LEARNERS:
            found.append(_row(name, learner, domain, drawn["held out"], drawn[name], rng))
    return tuple(found)


def _features(domain: Domain, frame: pd.DataFrame, size: int, rng: np.random.Generator) -> Features:
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
    """Learn on half of the rows of either kind, judge on the others."""
    from synthdp.evaluate.learners import CLASSIFIERS, MAX_TREE_LEVELS, class_scores

    half = len(real) // 2
    parts = [
        _stacked(real.take(rows), other.take(rows))
        for rows in (np.arange(half), np.arange(half, len(real)))
    ]
    (train, labels), (test, truth) = parts
    mask = category_mask(domain, domain.names, most_levels=MAX_TREE_LEVELS)
    said = class_scores(
        CLASSIFIERS[learner],
        train,
        labels,
        test,
        classes=2,
        mask=mask,
        seed=int(rng.integers(2**31)),
    ).output[:, 1]
    resampled = scores.auc(
        said, truth == 1, scores.resample_weights(len(truth), RESAMPLES, rng=rng)
    )
    low, high = np.nanquantile(resampled[1:], TAILS)
    return TwoSampleRow(name, learner, float(resampled[0]), float(low), float(high))


def _stacked(real: Features, other: Features) -> tuple[Features, npt.NDArray[np.int64]]:
    both = Features(np.vstack([real.wide, other.wide]), np.vstack([real.narrow, other.narrow]))
    return both, np.repeat([0, 1], [len(real), len(other)])
