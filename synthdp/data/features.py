"""What a column's type says of how alike its levels are, as one vector of features for each level.

Levels of an ordered column that lie side by side behave alike: each level's features are the dyadic
intervals that it lies in, so that what is learned for a level is in part learned for all levels
near it. A model that sees little of a level through the noise then still knows its neighbourhood.
Spikes and the missing state stand apart from the bins; categories stand alone.
"""

from __future__ import annotations

import numpy as np

from synthdp.data.domain import ColumnDomain, FloatArray

MAX_LEVELS = 256  # of a column whose order is used; longer ones have levels that stand alone


def level_features(column: ColumnDomain) -> FloatArray:
    """Features of the levels, `[levels, features]`; rows have norm 1.

    For categories the matrix is the identity.
    """
    spikes, body = len(column.spikes), column.levels - column.missing
    if not column.ordered or not 2 < body - spikes <= MAX_LEVELS:
        return np.eye(column.levels)
    alone = [*range(spikes), *range(body, column.levels)]
    members = [*([level] for level in alone), *_halves(list(range(spikes, body)), whole=spikes > 0)]
    features = np.zeros((column.levels, len(members)))
    for k, levels in enumerate(members):
        features[levels, k] = 1
    normal: FloatArray = features / np.linalg.norm(features, axis=1, keepdims=True)
    return normal


def _halves(levels: list[int], *, whole: bool = True) -> list[list[int]]:
    """`levels`, its two halves, their halves, and so on down to single levels.

    Without `whole`, `levels` itself is left out.

    All levels of a column together say nothing, unless there are spikes that they are set apart
    from.
    """
    middle = (len(levels) + 1) // 2
    parts = [] if len(levels) == 1 else [*_halves(levels[:middle]), *_halves(levels[middle:])]
    return [levels, *parts] if whole else parts
