"""Bins for a range, suggested from its declared bounds, unit and spikes.

The rules are public. No row is looked at.

A bin should be as wide as people care about, and no wider: five years of age, five hours a week.
Values that are very common by themselves, such as forty hours, are spikes with a level of their
own, so that a bin around them stays smooth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

MAX_BINS, MAX_SINGLE = 40, 40
# Widths that people use, by unit; a range that they would cut into more than MAX_BINS bins gets
# wider ones.
WIDTHS: tuple[tuple[str, float], ...] = (
    (r"years?|yrs?|age", 5),
    (r"hours?|hrs?|h|hours?[ /]+(per[ /])?(week|w)|h/w(eek)?", 5),
    (r"minutes?|min", 5),
    (r"percent|%|per cent", 5),
    (r"kg|kilograms?|pounds?|lbs?", 5),
    (r"cm|centimet(er|re)s?|inch(es)?", 5),
    (r"mmhg|bpm", 10),
    (r"°?c|celsius|°?f|fahrenheit", 1),
)
MONEY = r"(us)?\$|usd|eur|euros?|€|gbp|£|dollars?|pounds sterling|yen|¥|chf|francs?"
WIDE = 1000  # times the smallest step: money over such a range is cut at 1, 2, 5, 10, 20, ...


def suggested_edges(
    *,
    lower: float,
    upper: float,
    whole: bool,
    unit: str = "",
    spikes: Sequence[float] = (),
    money: bool = False,
) -> tuple[float, ...]:
    """Left ends of bins from `lower` to `upper`, ascending.

    The first one is `lower`, or the next whole number where `lower` is a spike.

    `whole`: the values are whole numbers. `money`: they are amounts of it, whatever `unit` is.
    Needs `lower < upper`. Nothing where spikes leave nothing to be binned.
    """
    first = lower + 1 if whole and lower in spikes else lower
    if first == upper and upper in spikes:
        return ()
    inner = (
        _decades(lower, upper)
        if _is_wide(lower, upper) and (money or re.fullmatch(MONEY, unit.strip().lower()))
        else _multiples(lower, upper, _width(lower, upper, whole=whole, unit=unit))
    )
    edges = [first, *(e for e in inner if first < e < upper)]
    single = whole and all(b - a == 1 for a, b in pairwise(edges))
    # Where every value is a bin, the bin of a spike would hold nothing but it: the bin before
    # reaches over it.
    kept = [e for e in edges if e == first or not (single and e in spikes)]
    return tuple(int(e) if float(e).is_integer() else e for e in kept)


def describe_edges(edges: Sequence[float], upper: float) -> str:
    """Edges in a few words: how many bins, and where they begin."""
    shown = [f"{e:.12g}" for e in edges]
    some = shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]]
    return (
        f"{len(edges)} bin{'s' if len(edges) != 1 else ''} from {', '.join(some)} (to {upper:.12g})"
    )


def _width(lower: float, upper: float, *, whole: bool, unit: str) -> Fraction:
    """The unit's width, or else 1, 2 or 5 times a power of ten.

    It gives as many bins as `MAX_BINS` allows.
    """
    if whole and upper - lower < MAX_SINGLE:
        return Fraction(1)
    width = next(
        (Fraction(w) for pattern, w in WIDTHS if re.fullmatch(pattern, unit.strip().lower())), None
    )
    span = Fraction(upper) - Fraction(lower)
    if width is not None and 4 * width <= span <= MAX_BINS * width:
        return width
    power = Fraction(10) ** math.floor(math.log10(span / MAX_BINS))
    nice = next(power * m for m in (1, 2, 5, 10, 20) if span <= MAX_BINS * power * m)
    return max(nice, Fraction(1)) if whole else nice


def _multiples(lower: float, upper: float, width: Fraction) -> list[float]:
    first = math.floor(Fraction(lower) / width) + 1
    return [float(k * width) for k in range(first, math.ceil(Fraction(upper) / width))]


def _is_wide(lower: float, upper: float) -> bool:
    return lower >= 0 and upper >= WIDE * max(lower, 1)


def _decades(lower: float, upper: float) -> list[float]:
    """1, 2, 5, 10, ... from a ten-thousandth of `upper` on.

    Below that, differences of money mean little.
    """
    last = math.floor(math.log10(upper))
    steps = [float(m) * 10**k for k in range(max(last - 4, 0), last + 1) for m in (1, 2, 5)]
    return [s for s in steps if lower < s < upper]
