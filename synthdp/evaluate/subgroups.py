"""Fidelity and accuracy within small groups, where noise and smoothing act most.

A mean over all rows does not show them. A group is one category of a column that the spec names; by
default of the few columns with the fewest categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate import utility
from synthdp.evaluate.utility import Features, build_features, category_mask, join, target_levels

if TYPE_CHECKING:
    import pandas as pd


Right = tuple[npt.NDArray[np.bool_], ...]


@dataclass(frozen=True)
class SubgroupRow:
    """One group; figures are None where there are too few rows.

    `tv1` is the mean total variation of the other columns within the group, `floor` that of
    held-out real rows. `accuracy_*` are on held-out rows of the group, for the spec's first target,
    after training on all real and on all synthetic rows.
    """

    column: str
    level: str
    share_real: float
    share_synthetic: float
    tv1: float | None
    floor: float | None
    accuracy_real: float | None
    accuracy_synthetic: float | None


def group_columns(domain: Domain, named: Sequence[str]) -> tuple[str, ...]:
    """The columns whose categories are groups.

    They are those `named`, or else three with the fewest categories: at least two, at most eight.
    """
    if named:
        return tuple(named)
    small = [c for c in domain.columns if not c.ranged and 2 <= c.levels <= 8]
    return tuple(c.name for c in sorted(small, key=lambda c: c.levels)[:3])


def subgroups(
    real: tuple[pd.DataFrame, Codes],
    held_out: tuple[pd.DataFrame, Codes],
    synthetic: tuple[pd.DataFrame, Codes],
    *,
    domain: Domain,
    columns: Sequence[str],
    target: str | None,
    rng: np.random.Generator,
) -> tuple[SubgroupRow, ...]:
    """Every group, smallest real share first; each table is values and levels `[rows, columns]`.

    `target` is a column of categories, or None.
    """
    if not len(real[1]) or not len(synthetic[1]):
        return ()
    right = None
    if target and len(held_out[0]):
        right = _predicted_right(real[0], held_out[0], synthetic[0], domain, target, rng)
    rows: list[SubgroupRow] = []
    for name in columns:
        at = domain.index(name)
        for level, label in enumerate(domain[name].labels):
            one, two = (codes[codes[:, at] == level] for codes in (real[1], synthetic[1]))
            inside = held_out[1][:, at] == level
            shares = len(one) / len(real[1]), len(two) / len(synthetic[1])
            distances = (_tv1(one, other, domain, at) for other in (two, held_out[1][inside]))
            accuracies: list[float | None] = [None, None]
            if right is not None and inside.sum() >= 20:  # else too few to estimate an accuracy
                accuracies = [float(side[inside].mean()) for side in right]
            rows.append(SubgroupRow(name, label, *shares, *distances, *accuracies))
    return tuple(sorted(rows, key=lambda row: row.share_real))


def _tv1(a: Codes, b: Codes, domain: Domain, without: int) -> float | None:
    """Mean total variation of all other columns; None where a side has no rows."""
    others = [i for i in range(len(domain)) if i != without]
    if not len(a) or not len(b) or not others:
        return None
    distances = []
    for i in others:
        shares_a = np.bincount(a[:, i], minlength=domain.sizes[i]) / len(a)
        shares_b = np.bincount(b[:, i], minlength=domain.sizes[i]) / len(b)
        distances.append(0.5 * np.abs(shares_a - shares_b).sum())
    return float(np.mean(distances))


def _predicted_right(
    real: pd.DataFrame,
    held_out: pd.DataFrame,
    synthetic: pd.DataFrame,
    domain: Domain,
    target: str,
    rng: np.random.Generator,
) -> Right | None:
    """Which held-out rows are predicted right, shape `[held-out rows]` for each side.

    The first side is trained on real rows, the second on synthetic rows. None where there is no
    other column to predict from.
    """
    from synthdp.evaluate.learners import CLASSIFIERS, class_scores

    names = [n for n in domain.names if n != target]
    if not names:
        return None
    settings: dict[str, Any] = {
        "classes": domain[target].levels,
        "mask": category_mask(domain, names),
    }
    seed = int(rng.integers(2**31))
    test = join([*build_features(domain, held_out, names).values()])
    truth = target_levels(domain[target], held_out[target])
    right = []
    for frame in (real, synthetic):
        chosen = frame.iloc[rng.permutation(len(frame))[:10_000]]
        train = join([*build_features(domain, chosen, names).values()])
        labels = target_levels(domain[target], chosen[target])
        learner = CLASSIFIERS["logistic"]
        trained = class_scores(learner, train, labels, test, seed=seed, **settings)
        right.append(trained.output.argmax(axis=1) == truth)
    return tuple(right)


# --- classifier two-sample test ---


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


def two_sample(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    rng: np.random.Generator,
    min_rows: int = 40,
    max_rows: int = 5000,
) -> tuple[TwoSampleRow, ...]:
    """Can a classifier separate held-out real rows from synthetic ones, and from training rows?

    AUC .5 is guessing; the second test is the best that a table can reach. Source: D. Lopez-Paz and
    M. Oquab, "Revisiting Classifier Two-Sample Tests", ICLR 2017. At most `max_rows` rows of each
    table are used; the result is empty where one has fewer than `min_rows`. Both tests use equally
    many rows of each kind, so that they can be compared with each other.
    """
    size = min(max_rows, *(len(frame) for frame in (real_train, real_test, synthetic)))
    if size < min_rows:
        return ()
    held_out, drawn, trained_on = (
        join([*build_features(domain, chosen, domain.names).values()])
        for frame in (real_test, synthetic, real_train)
        for chosen in (frame.iloc[rng.permutation(len(frame))[:size]],)
    )
    mask, rows = category_mask(domain, domain.names), []
    for name, other in (("synthetic from real", drawn), ("real from real", trained_on)):
        for learner in ("logistic", "boosted_trees"):
            scores, truth = _separated(
                learner, held_out, other, mask, seed=int(rng.integers(2**31))
            )
            weights = utility.resample_weights(len(truth), 200, rng=rng)
            resampled = utility.auc(scores, truth == 1, weights)
            low, high = np.nanquantile(resampled[1:], (0.025, 0.975))
            rows.append(TwoSampleRow(name, learner, float(resampled[0]), float(low), float(high)))
    return tuple(rows)


def _separated(
    name: str, real: Features, other: Features, mask: npt.NDArray[np.bool_], *, seed: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Train on half of the rows of each kind; scores and labels of the other half."""
    from synthdp.evaluate.learners import CLASSIFIERS, class_scores

    half, learner = len(real) // 2, CLASSIFIERS[name]
    (train, labels), (test, truth) = (
        _stacked(real.take(rows), other.take(rows))
        for rows in (np.arange(half), np.arange(half, len(real)))
    )
    trained = class_scores(learner, train, labels, test, classes=2, mask=mask, seed=seed)
    return trained.output[:, 1], truth


def _stacked(real: Features, other: Features) -> tuple[Features, npt.NDArray[np.int64]]:
    """Rows of both kinds one after the other, and their labels: 0 is real."""
    both = Features(np.vstack([real.wide, other.wide]), np.vstack([real.narrow, other.narrow]))
    return both, np.repeat([0, 1], [len(real), len(other)])
