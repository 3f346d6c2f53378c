"""PCD as published (Zhang et al. 2023, Algorithm 1 with RCIT): for comparison only, it is not
private.

Its noise has the scale of the local sensitivity, and none where "the decision cannot flip", so that
some answers have probability zero on one table and not on its neighbour
(tests/graph/test_published_numeric_bounds.py); a release refuses it. Kernel ridge regressions of x
and y on the given columns at lambda = 1, HSIC with median bandwidths, 100 permutations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LAMBDA = 1.0
PERMUTATIONS = 100


def gaussian_kernel(values: Floats, *, bandwidth: float | None = None) -> Floats:
    """`[rows, rows]` of values `[rows, columns]`; default bandwidth: the median distance."""
    squares = ((values[:, None] - values[None]) ** 2).sum(2)
    width = bandwidth or float(np.median(np.sqrt(squares[np.triu_indices(len(values), 1)])))
    kernel: Floats = np.exp(-squares / (2 * width**2))
    return kernel


def ridge_residuals(target: Floats, given: Floats, *, penalty: float = LAMBDA) -> Floats:
    """Residuals of the regression that minimises penalty/2 |w|^2 + mean squared error."""
    kernel = gaussian_kernel(given)
    rows = len(target)
    return np.asarray(
        target - kernel @ np.linalg.solve(kernel + penalty * rows / 2 * np.eye(rows), target)
    )


def published_sensitivity(
    rows: int, penalty: float, bandwidths: tuple[float, float], *, given: bool
) -> float:
    """Theorem 3 of the paper, which is false: see the tests."""
    if not given:
        return (12 * rows - 11) / (rows - 1) ** 2
    moved = [np.exp(-128 / (rows**2 * penalty**3 * width**2)) for width in bandwidths]
    return float(2 * (rows**2 - rows) * (2 - sum(moved)) / (rows - 1) ** 2)


def pcd_deletes(
    score: float,
    shuffled: Floats,
    sensitivity: float,
    *,
    alpha: float,
    epsilon: float,
    rng: np.random.Generator,
) -> bool:
    """Algorithm 1, lines 3 to 17: whether the edge is deleted."""
    p = float((score < shuffled).mean())
    if p > alpha:
        moved = p - float((score < shuffled - 2 * sensitivity).mean())
        if p - moved > alpha:
            return True
    else:
        moved = float((score < shuffled + 2 * sensitivity).mean()) - p
        if p + moved < alpha:
            return False
    return bool(
        p + rng.laplace(0, 4 * moved / epsilon) >= alpha + rng.laplace(0, 2 * moved / epsilon)
    )


def pcd_independent(
    x: Floats, y: Floats, given: Floats, *, alpha: float, epsilon: float, rng: np.random.Generator
) -> bool:
    """One conditional test of `x`, `y` `[rows]` given `[rows, columns]`."""
    u, v = (ridge_residuals(t, given) if given.shape[1] else t for t in (x, y))
    rows = len(u)
    centring = np.eye(rows) - 1 / rows
    first, second = (centring @ gaussian_kernel(r[:, None]) @ centring for r in (u, v))
    orders = [rng.permutation(rows) for _ in range(PERMUTATIONS)]
    scale = (rows - 1) ** 2
    score = float((first * second).sum() / scale)
    shuffled = np.array([(first * second[np.ix_(order, order)]).sum() / scale for order in orders])
    widths = tuple(
        float(np.median(np.abs(r[:, None] - r)[np.triu_indices(rows, 1)])) for r in (u, v)
    )
    bound = published_sensitivity(rows, LAMBDA, (widths[0], widths[1]), given=bool(given.shape[1]))
    return pcd_deletes(score, shuffled, bound, alpha=alpha, epsilon=epsilon, rng=rng)
