"""Independence tests of numeric columns without any privacy: what the private ones are measured
against in benchmarks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.data.kernel import KernelGrid, scatter

Floats = npt.NDArray[np.float64]


def fisher_z(correlation: Floats, rows: int, *, x: int, y: int, given: Sequence[int]) -> float:
    """p-value of zero partial correlation of columns `x` and `y` given others, from the correlation
    matrix of `rows` rows.
    """
    columns = [x, y, *given]
    precision = np.linalg.pinv(correlation[np.ix_(columns, columns)])
    partial = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    bounded = float(np.clip(partial, -1 + 1e-12, 1 - 1e-12))
    return float(2 * norm.sf(np.sqrt(max(rows - len(given) - 3, 0)) * abs(np.arctanh(bounded))))


def hsic_p_value(
    first: Floats,
    second: Floats,
    *,
    permutations: int,
    rng: np.random.Generator,
    kernel: KernelGrid | None = None,
) -> float:
    """p-value of the HSIC permutation test (Gretton et al. 2008) of two columns `[rows]` with
    values in [-1, 1].
    """
    kernel = kernel or KernelGrid()
    a, b = kernel(first), kernel(second)
    shuffled = np.array([scatter(a, b[rng.permutation(len(b))]) for _ in range(permutations)])
    return float((1 + (shuffled >= scatter(a, b)).sum()) / (permutations + 1))
