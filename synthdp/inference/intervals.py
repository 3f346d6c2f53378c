"""Intervals of ratios and of quantiles, from estimates of counts and their covariance.

A ratio R = n / d is inside where (n - R d)^2 <= z^2 Var(n - R d) [Fieller, 1954]. Both sides are
quadratic in R, so that the set is solved for. It is right for every denominator, where the delta
method is not for small ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

Z = 1.959963984540054
"""Of 95%, two-sided."""
CERTAIN = 4.0
"""Deviations of its noise that a denominator must be above zero."""
ROUNDING = 1e-9
"""Part of a sum that rounding may take away: a share of all rows is 1, and has no width."""
FEWEST = 20.0
"""Rows that a denominator must have: below, sums are not normal."""


@dataclass(frozen=True)
class Quadratic:
    """A variance of n - R d as a function of R: `nn` - 2 R `nd` + R^2 `dd`."""

    nn: float
    nd: float
    dd: float

    def plus(self, other: Quadratic, *, times: float = 1.0) -> Quadratic:
        """The sum with a multiple of another."""
        return Quadratic(
            self.nn + times * other.nn, self.nd + times * other.nd, self.dd + times * other.dd
        )


def share_sampling(d: float) -> Quadratic:
    """Sampling variance of a share's n - R d, d R (1 - R): of d rows, each counts 1 with R."""
    return Quadratic(0.0, -d / 2, -d)


def mean_sampling(n: float, d: float, squares: float) -> Quadratic:
    """Sampling variance of a mean's n - R d: the sum over d rows of (v - R)^2."""
    return Quadratic(max(squares, n**2 / d), n, d)


def ratio_interval(n: float, d: float, variance: Quadratic) -> Interval | None:
    """All R with (n - R d)^2 <= z^2 variance(R); None where they are no interval.

    >>> low, high = ratio_interval(50.0, 100.0, share_sampling(100.0))
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    z2 = Z**2
    a = d**2 - z2 * variance.dd
    b = n * d - z2 * variance.nd
    c = n**2 - z2 * variance.nn
    root = b**2 - a * c
    if a <= 0 or root < -ROUNDING * b**2:
        return None
    half = math.sqrt(max(root, 0.0)) + ROUNDING * (abs(b) + abs(a))
    return (b - half) / a, (b + half) / a


def certain(d: float, variance: float) -> bool:
    """Whether a denominator is so far above zero that a ratio means something."""
    return d >= max(FEWEST, CERTAIN * math.sqrt(variance))


@dataclass(frozen=True)
class Cuts:
    """What is known at the K cuts between the levels of a column, and after the last.

    `below` and `above` bound n - p d, the rows up to the cut less p times all rows, and `below_sd`
    and `above_sd` are their deviations, all `[K]`. `start` is -p d, before the first level.
    """

    start: float
    below: Floats
    below_sd: Floats
    above: Floats
    above_sd: Floats


def quantile_interval(cuts: Cuts, low: Floats, high: Floats) -> Interval:
    """The numbers that can be the quantile, by levels whose numbers are `low` to `high`, `[K]`.

    The true quantile lies in the first level k with F_k >= p. That F_k is rarely seen below p by
    more than z deviations, nor F_(k-1) above it [Woodruff, 1952].
    """
    reached = cuts.above + Z * cuts.above_sd >= 0
    reached[-1] = True
    open_before = np.append(True, (cuts.below - Z * cuts.below_sd)[:-1] <= 0)
    return float(low[np.argmax(reached)]), float(high[np.flatnonzero(open_before)[-1]])


def quantile_estimate(cuts: Cuts, low: Floats, high: Floats) -> float:
    """The quantile by the middle of both bounds, where values lie evenly inside their level."""
    middle = (cuts.below + cuts.above) / 2
    before = np.append(cuts.start, middle[:-1])
    reached = middle >= 0
    reached[-1] = True
    # Noise may let the estimated distribution cross p twice: between both crossings lies the half.
    level = (int(np.argmax(reached)) + int(np.flatnonzero(before <= 0)[-1])) // 2
    start, end = float(before[level]), float(middle[level])
    part = float(np.clip(-start / (end - start), 0, 1)) if end > start else 0.5
    return float(low[level] + part * (high[level] - low[level]))
