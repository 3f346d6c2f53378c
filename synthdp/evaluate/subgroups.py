"""Small groups by themselves: noise and smoothing act there most, and a mean over all rows does not
show it.

A group is one category of a column that the spec names; by default of the few columns with the
fewest categories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.features import build_features, category_mask, join, target_levels

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_COLUMNS, DEFAULT_LEVELS = 3, 8
LEARNER, MAX_ROWS = "logistic", 10_000
MIN_TEST_ROWS = 20  # of a group: fewer tell no accuracy


@dataclass(frozen=True)
class SubgroupRow:
    """One group. `tv1` is the mean total variation of the other columns within it, `floor` that of
    held-out real rows; `accuracy_*` are on held-out rows of the group, learnt on all real and on
    all synthetic rows, for the spec's first target. None where there are too few rows.
    """

    column: str
    level: str
    share_real: float
    share_synthetic: float
    tv1: float | None
    floor: float | None
    accuracy_real: float | None
    accuracy_synthetic: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def group_columns(domain: Domain, named: Sequence[str]) -> tuple[str, ...]:
    """The columns whose categories are groups: those named, or else the few with the fewest
    categories (and at least two).
    """
    if named:
        return tuple(named)
    small = [c for c in domain.columns if not c.ranged and 2 <= c.levels <= DEFAULT_LEVELS]
    return tuple(c.name for c in sorted(small, key=lambda c: c.levels)[:DEFAULT_COLUMNS])


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
    """Every group, smallest real share first; the tables are values and levels `[rows, columns]`.
    `target`: a column of categories, or None.
    """
    if not len(real[1]) or not len(synthetic[1]):
        return ()
    right = (
        _predicted_right(real[0], held_out[0], synthetic[0], domain, target, rng)
        if target and len(held_out[0])
        else None
    )
    rows = [
        row
        for name in columns
        for row in _rows(real[1], held_out[1], synthetic[1], domain, name, right)
    ]
    return tuple(sorted(rows, key=lambda row: row.share_real))


def _rows(
    real: Codes,
    held_out: Codes,
    synthetic: Codes,
    domain: Domain,
    name: str,
    right: tuple[npt.NDArray[np.bool_], ...] | None,
) -> Iterator[SubgroupRow]:
    at = domain.index(name)
    for level, label in enumerate(domain[name].labels):
        ours, fresh, drawn = (table[table[:, at] == level] for table in (real, held_out, synthetic))
        inside = held_out[:, at] == level
        known = right is not None and inside.sum() >= MIN_TEST_ROWS
        accuracies = (
            [float(side[inside].mean()) for side in right]
            if right is not None and known
            else [None, None]
        )
        yield SubgroupRow(
            name,
            label,
            len(ours) / len(real),
            len(drawn) / len(synthetic),
            _tv1(ours, drawn, domain, at),
            _tv1(ours, fresh, domain, at),
            *accuracies,
        )


def _tv1(a: Codes, b: Codes, domain: Domain, without: int) -> float | None:
    """Mean total variation of all other columns; None where a side has no rows."""
    others = [i for i in range(len(domain)) if i != without]
    if not len(a) or not len(b) or not others:
        return None
    shares = [
        [np.bincount(t[:, i], minlength=domain.sizes[i]) / len(t) for i in others] for t in (a, b)
    ]
    return float(np.mean([0.5 * np.abs(x - y).sum() for x, y in zip(*shares, strict=True)]))


def _predicted_right(
    real: pd.DataFrame,
    held_out: pd.DataFrame,
    synthetic: pd.DataFrame,
    domain: Domain,
    target: str,
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.bool_], ...] | None:
    """Which held-out rows are predicted right by a learner on real and by one on synthetic rows,
    shape `[held-out rows]` each.
    """
    from synthdp.evaluate.learners import CLASSIFIERS, MAX_TREE_LEVELS, class_scores

    names = [n for n in domain.names if n != target]
    if not names:
        return None
    mask, seed = (
        category_mask(domain, names, most_levels=MAX_TREE_LEVELS),
        int(rng.integers(2**31)),
    )
    test, truth = (
        join([*build_features(domain, held_out, names).values()]),
        target_levels(domain[target], held_out[target]),
    )
    found = []
    for frame in (real, synthetic):
        chosen = frame.iloc[rng.permutation(len(frame))[:MAX_ROWS]]
        train = join([*build_features(domain, chosen, names).values()])
        labels = target_levels(domain[target], chosen[target])
        said = class_scores(
            CLASSIFIERS[LEARNER],
            train,
            labels,
            test,
            classes=domain[target].levels,
            mask=mask,
            seed=seed,
        )
        found.append(said.output.argmax(axis=1) == truth)
    return tuple(found)
