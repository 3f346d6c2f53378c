"""Monotone public maps of a column's numbers to [-1, 1].

A map comes from the declared range, or from a released table of the column's levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain

Floats = npt.NDArray[np.float64]

SPIKE_WIDTH = 1e-6
"""Of the range: a spike's numbers are the spike itself, so that any narrow interval holds them."""


@dataclass(frozen=True)
class Scale:
    """Linear between `knots`, whose images are `values`; constant beyond."""

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, numbers: Floats) -> Floats:
        """Scaled numbers, same shape; NaN stays."""
        scaled: Floats = np.interp(numbers, self.knots, self.values)
        return scaled


def range_scale(column: ColumnDomain) -> Scale:
    """The declared range to [-1, 1]."""
    return Scale((column.lower, column.upper), (-1.0, 1.0))


def rank_scale(column: ColumnDomain, counts: Floats) -> Scale:
    """Twice the distribution function minus one, by a noisy table of the levels, `[levels]`.

    A column of that distribution becomes uniform, whatever its units and tails; a spike goes to the
    middle of its step. Without any count above zero it is the range's scale.
    """
    mass = np.maximum(counts[: column.levels - column.missing], 0.0)
    if mass.sum() <= 0:
        return range_scale(column)
    half = SPIKE_WIDTH * (column.upper - column.lower) if column.continuous else 0.5
    steps = [(s - half, s + half, m) for s, m in zip(column.spikes, mass, strict=False)]
    ends = (*column.edges[1:], column.stop)
    bins = [
        (a, b, m) for a, b, m in zip(column.edges, ends, mass[len(column.spikes) :], strict=True)
    ]
    knots = np.unique([x for a, b, _ in steps + bins for x in (a, b)])
    total = np.zeros(len(knots))
    for a, b, m in steps + bins:
        total += m * np.clip((knots - a) / (b - a), 0.0, 1.0)
    return Scale(tuple(map(float, knots)), tuple(map(float, 2 * total / mass.sum() - 1)))
