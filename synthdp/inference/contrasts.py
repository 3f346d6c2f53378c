"""The effect where both arms overlap, by the one sum over all strata that measured it.

[`docs/inference.md` has the derivation.]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from synthdp.inference import figures as of_cells
from synthdp.inference.figures import Figure, Quadratic, Rows
from synthdp.inference.least_squares import SETTINGS
from synthdp.model.contrasts import ContrastDesign
from synthdp.privacy.mechanisms.contrasts import most_of
from synthdp.privacy.mechanisms.sums import SQUARE, Bounded, NoisySums

OVERLAP = "where both groups overlap"


@dataclass(frozen=True)
class MeasuredContrast:
    """`rest`, the sum of n_1 n_0 / n (effect - `guess`) over strata, and `overlap`, that of
    n_1 n_0 / n, with the `noise` of rest - t overlap; `spread`, the sampling variance of `rest`.
    """

    guess: float
    rest: float
    overlap: float
    noise: Quadratic
    spread: float

    @classmethod
    def of(cls, sums: NoisySums) -> MeasuredContrast | None:
        """What the contrast of released sums says; None where none was measured."""
        if sums.contrast is None:
            return None
        sigma, drawn = sums.sigma, sums.contrast.sigma
        design = ContrastDesign.of(sums, drawn)
        most = most_of(design.weights, *design.centres)
        rest, spread, squares = (sums.contrast.sums * most / [1.0, SQUARE, SQUARE]).tolist()
        # The squared weights, measured and by the counts, as much of both as has least noise.
        of_counts = sigma**2 * float((design.weights**4).sum())
        of_squares = (drawn * float(most[2]) / SQUARE) ** 2
        part = of_counts / (of_counts + of_squares)
        total = part * squares + (1 - part) * design.squared
        # Likewise how far numbers spread.
        n, sums_of, squares_of = (
            part.reshape(2, -1) for part in (sums.counts, sums.sums, sums.squares)
        )
        a, about = design.weights**2, design.centres[1]
        by_strata = float((a * (squares_of - 2 * about * sums_of + about**2 * n)).sum())
        of_strata = sigma**2 * float((a**2 * (SQUARE**-2 + 4 * about**2 + about**4)).sum())
        of_sum = (drawn * float(most[1]) / SQUARE) ** 2
        spread = (of_strata * spread + of_sum * by_strata) / (of_strata + of_sum)
        spread = above_zero(spread, math.sqrt(of_strata * of_sum / (of_strata + of_sum)))
        strata = design.weights.shape[1]
        freedom = 1 / (1 - strata / max(float(sums.counts.sum()), 2.0 * strata))  # of their means
        extra = design.variance + (drawn * float(most[0])) ** 2
        return cls(
            design.guess,
            rest - design.beside + design.guess * design.lost,
            total - design.lost,
            Quadratic(extra, 0.0, part * of_squares),
            freedom * spread,
        )


def above_zero(seen: float, sd: float) -> float:
    """The mean of what is known to be at least 0 and was seen with normal noise `sd`.

    >>> above_zero(9.0, 1.0), round(above_zero(0.0, 1.0), 3)
    (9.0, 0.798)
    """
    x = max(seen / sd, -5.0)
    density = math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return max(seen, -5.0 * sd) + sd * density / (math.erfc(-x / math.sqrt(2)) / 2)


def contrast_figure(sums: NoisySums, number: Bounded, rows: Rows) -> Figure:
    """The effect of the first arm against the second where both arms overlap (ATO).

    psi = guess + rest / overlap, with the interval of the ratio.
    """
    found = MeasuredContrast.of(sums)
    assert found is not None
    about, noise = 4 * found.overlap / (1 - rows.holdout), found.noise
    refused = of_cells.too_few(OVERLAP, about, 16 * noise.dd, rows)
    if float(sums.counts.sum(0).mean()) < SETTINGS.fewest:
        why = f"fewer than {SETTINGS.fewest:,.0f} rows in an average stratum"
        return Figure(OVERLAP, refused.rows, refused=why)
    if not of_cells.certain(4 * found.overlap, 16 * noise.dd):
        return refused
    sampling = Quadratic(rows.per_unit * found.spread, 0.0, 0.0)
    both, of_rows = (
        of_cells.ratio_interval(found.rest, found.overlap, variance)
        for variance in (noise.plus(sampling), noise)
    )
    if both is None or of_rows is None:
        return refused
    told = Figure(OVERLAP, about, found.rest / found.overlap, both, of_rows)
    return told.in_unit(number.half, found.guess * number.half)
