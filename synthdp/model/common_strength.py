"""One strength for many arrows, estimated from a few measured pairs of cause and effect.

Where a table has many columns and few rows, noise hides every single arrow of its graph, but not
all of them together. Here an effect's logit grows with the sum of its causes' scores, at a strength
that is the same for every arrow between boolean or ordered columns (complete pooling; Gelman and
Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models" (2007), chapter 12). The
estimate is the strength at which simulated rows have the measured covariances, summed over pairs:
the method of simulated moments [McFadden, "A Method of Simulated Moments for Estimation of Discrete
Response Models Without Numerical Integration" (1989)]. Signs that differ pull it towards zero,
which assumes nothing. All of it is post-processing of noisy tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain
from synthdp.graph.margins import Probabilities
from synthdp.privacy.mechanisms.marginals import NoisyTable

MIN_PAIRS = 8
"""Fewest measured arrows; fewer say little of the others."""
CLEAR = 2.5
"""Standard deviations of its noise that the summed covariance must exceed."""
ROWS = 4096
"""Rows that are simulated."""
MAX_STRENGTH = 8.0
"""Largest strength in the search, in logits between the smallest and the largest score."""
STEPS = 10
"""Halvings of the search."""
ROUNDS = 4
"""Rounds of proportional fitting that bring a simulated column to its margin."""

Scores = npt.NDArray[np.float64]
"""A score per level, `[levels]`."""
Arrows = Mapping[int, Sequence[int]]
"""Positions of the scored causes of each effect, effects in causal order."""


def scores(column: ColumnDomain) -> Scores | None:
    """A score from 0 to 1 of each level by its order, `[levels]`; missing is 0.

    None for categories without order.
    """
    body = column.levels - column.missing
    if body < 2 or not (column.ordered or column.truth):
        return None
    return np.concatenate([np.linspace(0, 1, body), np.zeros(int(column.missing))])


def common_strength(
    tables: Sequence[NoisyTable],
    columns: Sequence[ColumnDomain],
    arrows: Arrows,
    margins: Sequence[Probabilities],
    *,
    rng: np.random.Generator,
) -> float:
    """The strength of all `arrows`, in logits.

    It is 0 where fewer than `MIN_PAIRS` of them were measured, or where noise explains the measured
    covariance. `margins[c]` `[levels]` are the probabilities of column c, without a zero. `rng`
    only draws the simulated rows.
    """
    all_scores = {c: scores(column) for c, column in enumerate(columns)}
    centred = {c: s - margins[c] @ s for c, s in all_scores.items() if s is not None}
    position = {column.name: c for c, column in enumerate(columns)}
    covariance, variance = 0.0, 0.0
    pairs: list[tuple[int, int]] = []
    for table in tables:
        if len(table.columns) != 2:
            continue
        first, second = (position[name] for name in table.columns)
        if second not in arrows.get(first, ()) and first not in arrows.get(second, ()):
            continue
        weight = np.outer(centred[first], centred[second])
        total = max(1.0, float(table.counts.sum()))
        covariance += float((table.counts * weight).sum()) / total
        variance += (table.sigma / total) ** 2 * float((weight**2).sum())
        pairs.append((first, second))
    if len(pairs) < MIN_PAIRS or abs(covariance) <= CLEAR * math.sqrt(variance):
        return 0.0
    seed = int(rng.integers(2**63))

    def simulated(strength: float) -> float:
        drawn = _simulated(strength, centred, arrows, margins, np.random.default_rng(seed))
        return math.fsum(float(np.mean(drawn[a] * drawn[b])) for a, b in pairs)

    low, high = -MAX_STRENGTH, MAX_STRENGTH
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(middle) < covariance else (low, middle)
    return (low + high) / 2


def _simulated(
    strength: float,
    centred: Mapping[int, Scores],
    arrows: Arrows,
    margins: Sequence[Probabilities],
    rng: np.random.Generator,
) -> dict[int, npt.NDArray[np.float64]]:
    """Centred scores `[ROWS]` by column: effects after their causes.

    Each column follows its margin and the sum of its causes' scores.
    """
    roots = [c for c in centred if c not in arrows]
    drawn: dict[int, npt.NDArray[np.float64]] = {}
    for column in [*roots, *arrows]:
        causes = arrows.get(column, ())
        push = sum((drawn[c] for c in causes), np.zeros(ROWS))
        odds = np.exp(strength * push[:, None] * centred[column]) * margins[column]
        for _ in range(ROUNDS if causes else 0):
            odds /= odds.sum(1, keepdims=True)
            odds *= margins[column] / np.maximum(odds.mean(0), 1e-12)
        sums = np.cumsum(odds, 1)
        level = (sums < rng.random((ROWS, 1)) * sums[:, -1:]).sum(1)
        drawn[column] = centred[column][level]
    return drawn
