"""Quantiles of noisy histograms that were paid for: a column's levels, by strata.

[`docs/inference.md` has the derivations.]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.inference.cells import value_bounds
from synthdp.inference.figures import NOTHING, Figure, Rows, ordered_levels, too_few
from synthdp.inference.intervals import Cuts, certain, quantile_estimate, quantile_interval

Floats = npt.NDArray[np.float64]


def quantile_figures(
    counts: Floats,
    sigma: float,
    p: float,
    column: ColumnDomain,
    rows: Rows,
    groups: Sequence[str | None],
) -> tuple[Figure, ...]:
    """The quantile of p of a number, one figure for each of `groups`.

    `counts` `[groups, levels]` has independent noise of deviation `sigma`.
    """
    return tuple(
        _quantile(levels, sigma, p, column, rows, group)
        for levels, group in zip(counts, groups, strict=True)
    )


def _quantile(
    counts: Floats, sigma: float, p: float, column: ColumnDomain, rows: Rows, group: str | None
) -> Figure:
    """With F_k the rows of the first k places, F_k - p d is a sum of counts times 1 - p or -p."""
    place, low, high = ordered_levels(*value_bounds(column))
    known = place < len(low)  # all levels but the missing one
    total = float(counts[known].sum())
    about, variance = total / (1 - rows.holdout), float(known.sum()) * sigma**2
    if not certain(total, variance):
        return too_few(group, about, variance, rows)
    up_to = place[known] <= np.arange(len(low))[:, None]
    weights = up_to - p
    at, noise = weights @ counts[known], (weights**2).sum(axis=1) * sigma**2
    sampling = rows.per_unit * p * (1 - p) * total

    def cuts(extra: float) -> Cuts:
        sd = np.sqrt(noise + extra)
        return Cuts(-p * total, at, sd, at, sd)

    found = cuts(sampling)
    ends = quantile_interval(found, low, high)
    if ends == (float(low[0]), float(high[-1])) and len(low) > 1:
        return Figure(group, about, refused=NOTHING)
    of_rows = quantile_interval(cuts(0.0), low, high)
    return Figure(group, about, quantile_estimate(found, low, high), ends, of_rows)
