"""Stand-in laws: how the values of a column are taken to spread before any row is read."""

from __future__ import annotations

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.margin_smoothing import FEW_LEVELS, body_of
from synthdp.graph.margins import Probabilities

BELL_CENTRE, BELL_WIDTH = 0.3, 0.15
"""Of the stand-in law of a number, as shares of its range: bounds are rarely tight."""
OTHER_LEVELS = 0.2
"""Share of a number's spikes and missing level in its stand-in law."""


def stand_in_law(column: ColumnDomain) -> Probabilities:
    """Probabilities `[levels]` of a column that nothing is known of.

    >>> stand_in_law(ColumnDomain("x", "categorical", ("a", "b"), False)).round(2).tolist()
    [0.67, 0.33]
    """
    law: Probabilities = 1 / np.arange(1.0, column.levels + 1)
    if column.ranged:
        body = body_of(column)
        place = (np.arange(len(body)) + 0.5) / len(body)
        bell = np.exp(-(((place - BELL_CENTRE) / BELL_WIDTH) ** 2) / 2)
        law = np.full(column.levels, OTHER_LEVELS / max(1, column.levels - len(body)))
        law[body] = bell / bell.sum() * (1 - OTHER_LEVELS)
    law /= law.sum()
    return law


def law_for_tests(column: ColumnDomain) -> Probabilities:
    """The stand-in law `[levels]` where columns are tested for dependence: few bins hold equally
    many rows, since whoever declares few of them seldom leaves one nearly empty.

    >>> few = ColumnDomain("x", "integer", tuple("abcd"), False, edges=(0, 1, 2, 3), stop=4)
    >>> law_for_tests(few).round(2).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    law, body = stand_in_law(column), body_of(column)
    if column.ranged and len(body) <= FEW_LEVELS:
        law[body] = law[body].mean()
    return law
