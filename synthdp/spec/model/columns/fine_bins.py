"""Fine bins for a range whose bins are left out, by its bounds, decimals and spikes alone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from synthdp.spec.model.columns.ranges import Datetime, Ranged

FEW_BINS = 256
"""Up to so many bins, resolution is worth more than where a bin begins."""


def with_fine_bins(column: Ranged, most: int) -> Ranged:
    """The column with about `most` bins at most.

    Where 0 is the lower bound and would share a bin with other values, it becomes a spike, unless
    the spec names spikes: nothing is as common in numbers as none of something.
    """
    edges = fine_edges(column, most)
    alone = "spikes" in column.model_fields_set or isinstance(column, Datetime) or column.lower != 0
    if alone or _width(column, most) == _step(column):
        return column.model_copy(update={"edges": edges})
    spiked = column.model_copy(update={"spikes": (column.lower,)})
    return spiked.model_copy(update={"edges": fine_edges(spiked, most)})


def fine_edges(column: Ranged, most: int) -> tuple[Any, ...]:
    """Left edges of about `most` bins at most, whose width is a round number of steps.

    Every bin holds the same number of the values that can be written, but for the ends. Where each
    whole number is a bin, a spike has none: the bin before reaches over it.

    >>> from synthdp.spec.model import Integer
    >>> fine_edges(Integer(type="integer", lower=3, upper=40), 10)
    (3, 5, 10, 15, 20, 25, 30, 35, 40)
    """
    lower, upper = (Fraction(column.number(end)) for end in (column.lower, column.upper))
    width = _width(column, most)
    last = math.ceil(upper / width) - 1 if column.continuous else math.floor(upper / width)
    inner = (float(k * width) for k in range(math.floor(lower / width) + 1, last + 1))
    single = width == 1 and not column.continuous
    spikes = set(map(column.number, column.spikes))
    # A spike at the lower end of whole numbers is not part of the bins beside it.
    first = float(lower) + (not column.continuous and float(lower) in spikes)
    rest = (edge for edge in inner if edge > first and not (single and edge in spikes))
    return tuple(map(column.value, (first, *rest)))


def _step(column: Ranged) -> Fraction:
    """The difference of two neighbouring values, on the column's numeric scale."""
    return Fraction(1, 10 ** getattr(column, "decimals", 0))


def _width(column: Ranged, most: int) -> Fraction:
    """Width of the bins."""
    step = _step(column)
    span = Fraction(column.number(column.upper)) - Fraction(column.number(column.lower))
    return _round_width(span / step / most, most) * step


def _round_width(steps: Fraction, most: int) -> int:
    """The least of 1, 2, 5, 10, 20, ... that is not below `steps`; of many bins none is 2 wide.

    Values that people round lie on multiples of 5 and 10: there a bin begins. In bins of 2 half of
    a heap at 65 would be drawn below it. Where bins are many, 1 takes the place of 2, so that
    there are up to twice as many.
    """
    power = 1
    while 10 * power < steps:
        power *= 10
    reach = {1: 2, 5: 5, 10: 10} if most > FEW_BINS else {1: 1, 2: 2, 5: 5, 10: 10}
    return next(power * m for m, most_steps in reach.items() if steps <= power * most_steps)
