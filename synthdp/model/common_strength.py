"""One strength for many arrows: what a few measured pairs of cause and effect say of all the
others.

Where a table has many columns and few rows, no arrow of its graph can be told from the noise, but
all of them together can. Here an effect's logit grows with the sum of its causes' scores, at a
strength that is the same for every arrow between boolean or ordered columns (complete pooling;
Gelman and Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models" (2007), chapter
12). The strength is that at which simulated rows have the covariances that were measured, summed
over pairs: the method of simulated moments [McFadden, "A Method of Simulated Moments for Estimation
of Discrete Response Models Without Numerical Integration" (1989)]. Signs that differ pull it
towards zero, which assumes nothing. All of it is post-processing of noisy tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain
from synthdp.model.raking import Probabilities
from synthdp.privacy.mechanisms.marginals import NoisyTable

MIN_PAIRS = 8  # measured arrows, fewer of which say little of the others
CLEAR = 2.5  # standard deviations of its noise that the summed covariance must exceed
ROWS = 4096  # simulated
MOST, STEPS = (
    8.0,
    10,
    # largest strength that is looked for, in logits between least and greatest score, and halvings
    # of the search
)
ROUNDS = 4  # that bring a simulated column to its margin

Scores = npt.NDArray[np.float64]
Arrows = Mapping[
    int, Sequence[int]
]  # positions of the scored causes of each effect, effects in causal order


def scores(column: ColumnDomain) -> Scores | None:
    """A number of each level from 0 to 1, `[levels]`, by its order, missing 0; None for categories
    without order.
    """
    body = column.levels - column.missing
    if body < 2 or not (column.ordered or column.type == "boolean"):
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
    """The strength of all `arrows`, in logits; 0 where fewer than `MIN_PAIRS` of them were
    measured, or noise explains what was.

    `margins[c]` `[levels]` are of column c and have no zero. `rng` only draws the simulated rows.
    """
    own = {c: s for c, column in enumerate(columns) if (s := scores(column)) is not None}
    position = {column.name: c for c, column in enumerate(columns)}
    centred = {c: s - margins[c] @ s for c, s in own.items()}
    found, variance, pairs = 0.0, 0.0, []
    for table in tables:
        first, second = (
            (position[name] for name in table.columns) if len(table.columns) == 2 else (-1, -1)
        )
        cause, effect = (first, second) if first in arrows.get(second, ()) else (second, first)
        if cause not in arrows.get(effect, ()):
            continue
        weight, total = (
            np.outer(centred[first], centred[second]),
            max(1.0, float(table.counts.sum())),
        )
        found += float((table.counts * weight).sum()) / total
        variance += (table.sigma / total) ** 2 * float((weight**2).sum())
        pairs.append((cause, effect))
    if len(pairs) < MIN_PAIRS or abs(found) <= CLEAR * math.sqrt(variance):
        return 0.0
    seed = int(rng.integers(2**63))

    def simulated(strength: float) -> float:
        drawn = _simulated(strength, own, arrows, margins, np.random.default_rng(seed))
        return math.fsum(
            float(np.mean((drawn[c] - margins[c] @ own[c]) * (drawn[e] - margins[e] @ own[e])))
            for c, e in pairs
        )

    low, high = -MOST, MOST
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(middle) < found else (low, middle)
    return (low + high) / 2


def _simulated(
    strength: float,
    own: Mapping[int, Scores],
    arrows: Arrows,
    margins: Sequence[Probabilities],
    rng: np.random.Generator,
) -> dict[int, npt.NDArray[np.float64]]:
    """Scores of `ROWS` rows by column: effects after their causes, each by its margin and the sum
    of its causes' scores.
    """
    effects = list(arrows)
    drawn: dict[int, npt.NDArray[np.float64]] = {}
    for column in [*(c for c in own if c not in arrows), *effects]:
        causes = arrows.get(column, ())
        push = sum((drawn[c] - margins[c] @ own[c] for c in causes), np.zeros(ROWS))
        odds = np.exp(strength * push[:, None] * own[column]) * margins[column]
        for _ in range(ROUNDS if causes else 0):
            odds /= odds.sum(1, keepdims=True)
            odds *= margins[column] / np.maximum(odds.mean(0), 1e-12)
        sums = np.cumsum(odds, 1)
        level = (sums < rng.random((ROWS, 1)) * sums[:, -1:]).sum(1)
        drawn[column] = own[column][level]
    return drawn
