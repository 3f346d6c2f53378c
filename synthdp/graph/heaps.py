"""Numbers that many rows have, as parts of the levels that hold them.

A bin's values are drawn evenly, and what is common among them is lost: round sums, a fee, the
end of a scale. A private look tells such numbers with noisy counts
(`privacy.mechanisms.frequent_texts`). All else here is post-processing of what it told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.kinds.ranges import level_of
from synthdp.graph.margins import pooled
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable


def with_heaps(domain: Domain, told: NoisyTexts | None, tables: Sequence[NoisyTable]) -> Domain:
    """The domain whose columns know the heaps that were told, by noisy one-way `tables`."""
    if told is None:
        return domain
    columns = (
        _heaped(column, told.counts[column.name], pooled(tables, (column.name,)))
        if told.counts.get(column.name)
        else column
        for column in domain.columns
    )
    return replace(domain, columns=tuple(columns))


def _heaped(column: ColumnDomain, counts: Mapping[str, int], levels: NoisyTable) -> ColumnDomain:
    """The column with its heaps. A level has at least the rows of its heaps.

    A heap's part of its level is its noisy count over the level's: both have noise, and the level's
    is drawn by a margin that is smoother, so that a heap has about the rows that were counted.
    """
    numbers = np.clip([*map(float, counts)], column.lower, column.upper)
    rows, level = np.array([*counts.values()], dtype=float), level_of(column, numbers)
    inside = level >= len(column.spikes)
    heaped = np.bincount(level[inside], rows[inside], minlength=column.levels)
    shares = rows / np.maximum(heaped, levels.counts)[level].clip(min=1.0)
    found = zip(level.tolist(), numbers.tolist(), shares.tolist(), strict=True)
    return replace(column, heaps=tuple(h for h, kept in zip(found, inside, strict=True) if kept))
