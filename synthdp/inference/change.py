"""The change of a figure from an earlier wave to this one, with an interval.

Each wave's own noisy tables answer the question, with an interval of 95%. Noise of different waves
is independent. So is the sampling of rows, where these are of different people; the same people's
rows go together, which makes the true change less uncertain than said. With estimates a and b, and
intervals (a1, a2) and (b1, b2), the change a - b lies within

    a - b - sqrt((a - a1)^2 + (b2 - b)^2)   and   a - b + sqrt((a2 - a)^2 + (b - b1)^2):

variances of independent estimates add up, each recovered from its own interval on the side that
counts [Zou and Donner, "Construction of confidence limits about effect measures", Statistics in
Medicine 27 (2008)]. The tables of earlier waves do not make the interval narrower: how far a series
drifts is estimated, and an interval must not rest on that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from synthdp.errors import OutputError
from synthdp.inference.figures import Figure

if TYPE_CHECKING:
    from synthdp.inference.answer import Answer

INDEPENDENT = (
    "both waves' own noisy tables answer, and their errors are taken to be independent; people who"
    " are in both make the interval wider than need be"
)


def change_of(now: Answer, then: Answer, text: str, since: str) -> Answer:
    """The change from one wave's answer to another's.

    Raises:
        OutputError: the groups of the question differ.
    """
    if now.groups != then.groups:
        raise OutputError(
            f"the levels of {', '.join(now.query.by)} were others in wave {since}",
            hint="ask for one group at a time, with `where`",
        )
    figures = tuple(map(difference, now.figures, then.figures))
    about = (f"change since wave {since}: {INDEPENDENT}", *now.about)
    tier = max(now.tier, then.tier)
    query = replace(now.query, text=text)
    return replace(now, query=query, tier=tier, figures=figures, about=about, agreement=None)


def difference(now: Figure, then: Figure) -> Figure:
    """The change of one figure."""
    (a, b), ends = (now.estimate, then.estimate), (now.interval, then.interval)
    numbers = [x for x in (a, b, *(ends[0] or ()), *(ends[1] or ())) if isinstance(x, int | float)]
    if len(numbers) < 6:
        why = now.refused or then.refused or "one of the waves has no number with an interval"
        return Figure(now.group, refused=why)
    one, other, low, high, other_low, other_high = numbers
    below = math.hypot(one - low, other_high - other)
    above = math.hypot(high - one, other - other_low)
    change = one - other
    return Figure(now.group, now.rows, change, (change - below, change + above))
