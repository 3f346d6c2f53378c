"""A Gaussian kernel on a public grid of [-1, 1], as finitely many features.

The features are exact up to the grid and 1e-9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

POINTS = 257
SMALLEST = 1e-9  # of the eigenvalues kept


@dataclass(frozen=True)
class KernelGrid:
    """Each number in [-1, 1] is moved to the nearest of `POINTS` grid points.

    NaN is a state of its own, with features zero.
    """

    bandwidth: float = 0.5

    @cached_property
    def features(self) -> Floats:
        """Features of each grid point, and of NaN last, `[points + 1, features]`.

        Their inner products are the kernel.
        """
        grid = np.linspace(-1, 1, POINTS)
        values, vectors = np.linalg.eigh(
            np.exp(-((grid[:, None] - grid) ** 2) / (2 * self.bandwidth**2))
        )
        kept = values > SMALLEST
        return np.vstack([vectors[:, kept] * np.sqrt(values[kept]), np.zeros(kept.sum())])

    @cached_property
    def diameter(self) -> float:
        """Largest distance of two features."""
        squares = (self.features**2).sum(1)
        distances = squares[:, None] + squares - 2 * self.features @ self.features.T
        return float(np.sqrt(distances.max()))

    def __call__(self, numbers: Floats) -> Floats:
        """Features of each number, `[rows, features]`."""
        clipped = np.clip(np.where(np.isnan(numbers), 0.0, numbers), -1.0, 1.0)
        points = np.rint((clipped + 1) / 2 * (POINTS - 1)).astype(np.intp)
        chosen: Floats = self.features[np.where(np.isnan(numbers), POINTS, points)]
        return chosen


def scatter(first: Floats, second: Floats) -> float:
    """The norm of sum (a_i - mean a) (x) (b_i - mean b).

    It is rows times the square root of the biased HSIC of Gretton et al. (2005).

    `first`, `second`: features `[rows, .]`. Zero for no rows. Adding a row (a, b) to n others adds
    n / (n + 1) (a - mean a) (x) (b - mean b), so it moves the norm by at most the product of the
    diameters, whatever n: no number of rows is needed to state it [derived here; |u (x) v| = |u|
    |v|, and a mean of points is no further from a than the furthest of them].
    """
    if not len(first):
        return 0.0
    return float(np.linalg.norm((first - first.mean(0)).T @ second))
