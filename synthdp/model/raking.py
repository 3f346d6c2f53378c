"""Raking: rows that follow given margins. All of it is post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities

RAKING_ROUNDS = 50
"""Most rounds of proportional fitting."""
RAKING_TOLERANCE = 1e-4
"""Total variation of the worst margin at which fitting stops."""


def rake(
    codes: Codes,
    targets: Sequence[Probabilities],
    *,
    columns: Sequence[int],
    rows: int,
    rng: np.random.Generator,
) -> Codes:
    """`rows` rows resampled from `codes` so that the named columns follow `targets`.

    Rows are weighted by `raking_factors`. Systematic resampling then uses a row at most one time
    more or less than its weight says. Only rows of `codes` are returned, so a target on levels that
    none of them has is met only as far as they allow.
    """
    weights = raking_weights(
        codes, raking_factors(codes, targets, columns=columns), columns=columns
    )
    points = (np.arange(rows) + rng.random()) / rows
    chosen = np.searchsorted(np.cumsum(weights / weights.sum()), points, side="right")
    resampled: Codes = codes[rng.permutation(np.minimum(chosen, len(codes) - 1))]
    return resampled


def raking_weights(
    codes: Codes, factors: Sequence[npt.NDArray[np.float64]], *, columns: Sequence[int]
) -> npt.NDArray[np.float64]:
    """The product of each row's factors, `[rows]`."""
    weights = np.ones(len(codes))
    for factor, column in zip(factors, columns, strict=True):
        weights *= factor[codes[:, column]]
    return weights


def raking_factors(
    codes: Codes,
    targets: Sequence[Probabilities],
    *,
    columns: Sequence[int],
    start: npt.NDArray[np.float64] | None = None,
) -> list[npt.NDArray[np.float64]]:
    """A factor of each level of the named columns, `[levels]` each.

    Rows weighted by the product of their factors (and `start` `[rows]`, if there is one) follow
    `targets`. Iterative proportional fitting
    of row weights (Deming and Stephan, 1940). A level that `codes` lacks has the factor 1.
    """
    weights = np.full(len(codes), 1 / len(codes)) if start is None else start / start.sum()
    factors = [np.ones(len(target)) for target in targets]
    for _ in range(RAKING_ROUNDS):
        worst = 0.0
        for factor, column, target in zip(factors, columns, targets, strict=True):
            current = np.bincount(codes[:, column], weights=weights, minlength=len(target))
            worst = max(worst, float(np.abs(current - target).sum()) / 2)
            ratio = np.divide(target, current, out=np.ones_like(target), where=current > 0)
            moved = weights * ratio[codes[:, column]]
            # If no row has a level that the target wants, the column stays as drawn.
            if moved.sum() > 0:
                weights = moved / moved.sum()
                factor *= ratio / moved.sum()
        if worst < RAKING_TOLERANCE:
            break
    return factors
