"""Figures of noisy sums by stratum: shares, counts, means, and effects by the g-formula.

The sums of a stratum are its rows n, the sum S of u = (number - middle) / half, and the sum Q of
u^2, with independent noise of deviations sigma, sigma and sigma / `SQUARE`.
[`docs/inference.md` has the derivations.]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from synthdp.inference.estimate import Functionals
from synthdp.inference.figures import Figure, Rows, Value, count_figure, ratio_figure
from synthdp.inference.intervals import CERTAIN, FEWEST, Z
from synthdp.privacy.mechanisms.stratum_sums import SQUARE, Bounded, NoisySums
from synthdp.spec.expressions.query import Query

Floats = npt.NDArray[np.float64]


def stratum_figures(
    query: Query,
    sums: NoisySums,
    number: Bounded | None,
    rows: Rows,
    groups: Sequence[str | None],
) -> tuple[Figure, ...]:
    """The figures of a question, one for each of `groups`, whose sums are the last axis."""
    counts = sums.counts.reshape(len(sums.counts), -1)
    figures = []
    for at, group in enumerate(groups):
        if query.statistic == "count":
            found = _functionals(counts[:1, at], np.ones((1, 1)), [sums.sigma])
            figures.append(count_figure(found, rows, group))
        elif query.statistic == "share":
            taken = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
            found = _functionals(counts[:, at], taken, [sums.sigma] * 2)
            figures.append(ratio_figure("share", found, (0.0, 1.0), rows, group))
        else:
            assert number is not None
            figures.append(_mean(sums, number, at, rows, group))
    return tuple(figures)


def _mean(sums: NoisySums, number: Bounded, at: int, rows: Rows, group: str | None) -> Figure:
    """The mean of one stratum: that of u, taken to the number's own unit."""
    seen = np.array([part.reshape(1, -1)[0, at] for part in (sums.counts, sums.sums, sums.squares)])
    taken = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    found = _functionals(seen, taken, [sums.sigma, sums.sigma, sums.sigma / SQUARE])
    scaled = ratio_figure("mean", found, (-1.0, 1.0), rows, group)
    if scaled.estimate is None:
        return scaled

    def unscaled(value: Value) -> float:
        return number.middle + number.half * float(value)

    def both(ends: tuple[Value, Value] | None) -> tuple[Value, Value] | None:
        return None if ends is None else (unscaled(ends[0]), unscaled(ends[1]))

    return replace(
        scaled,
        estimate=unscaled(scaled.estimate),
        interval=both(scaled.interval),
        of_rows=both(scaled.of_rows),
    )


def _functionals(seen: Floats, taken: Floats, sigmas: Sequence[float]) -> Functionals:
    """Numerator, denominator and squares `[3, k]` of noisy sums `[k]`, twice: low and high."""
    once = np.vstack([taken] * (6 // len(taken)))
    return Functionals(once @ seen, (once * np.square(sigmas)) @ once.T)


def effect_figure(sums: NoisySums, number: Bounded, rows: Rows) -> Figure:
    """The effect of the first arm against the second, averaged over the rows of both.

    psi = sum_z w_z (m_1z - m_0z), with w_z the share of stratum z among the rows of both arms. It
    is refused where a stratum of an arm has too few rows for a mean.
    """
    n, total, squares = (part.reshape(2, -1) for part in (sums.counts, sums.sums, sums.squares))
    about = max(0.0, float(n.sum())) / (1 - rows.holdout)
    least = max(FEWEST, CERTAIN * sums.sigma)
    thin = int((n < least).sum())
    if thin:
        return Figure(
            None,
            rows=about,
            refused=(
                f"{thin} of {n.size} strata have fewer than {least:,.0f} rows, which is what their"
                " noise asks for"
            ),
        )
    weights, everyone = n.sum(0) / n.sum(), float(n.sum())
    # A noisy denominator makes a weighted mean too long by sigma^2 / n^2, less what it adds to its
    # own weight: in many strata these biases would add up.
    means = total / n * (1 - n[::-1] / n.sum(0) * (sums.sigma / n) ** 2)
    difference = means[0] - means[1]
    effect = float(weights @ difference)
    sign = np.array([[1.0], [-1.0]])
    by_sum = sign * weights / n
    by_count = -by_sum * means + (difference - effect) / everyone
    noise = sums.sigma**2 * float((by_count**2 + by_sum**2).sum())
    within = np.maximum(squares / n - means**2, 0.0) / n
    sampling = float((weights**2 * within.sum(0)).sum())
    sampling += float(weights @ (difference - effect) ** 2) / everyone

    def ends(variance: float) -> tuple[float, float]:
        reach = Z * math.sqrt(variance)
        return number.half * (effect - reach), number.half * (effect + reach)

    return Figure(
        None,
        about,
        number.half * effect,
        ends(noise + rows.per_unit * sampling),
        ends(noise),
    )
