"""How far two real samples of one table would be from each other: the floor of every distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.counting import count_tables

FloatArray = npt.NDArray[np.float64]

MAX_TABLES = 200


def sampling_distance(shares: FloatArray, first: int, second: int) -> float:
    """About the mean total variation of two samples, of `first` and `second` rows, of one law.

    `shares` are the law's, of any shape. A cell of share p differs by a normal variable of variance
    p (1 - p) (1/first + 1/second), whose mean absolute value is its deviation times sqrt(2 / pi);
    rare cells, where that fails, differ by at most 2 p on average.

    >>> round(sampling_distance(np.full(10, 0.1), 1000, 1000), 3)
    0.054
    """
    p = np.asarray(shares, dtype=np.float64)
    normal = np.sqrt(2 / np.pi * p * (1 - p) * (1 / first + 1 / second))
    return float(0.5 * np.minimum(normal, 2 * p).sum())


def sampling_floor(
    codes: Codes, domain: Domain, tables: Sequence[tuple[str, ...]], *, first: int, second: int
) -> float:
    """The mean of `sampling_distance` over the first `MAX_TABLES` of `tables`.

    Their law is taken from levels `[rows, columns]` of a table of synthetic rows.
    """
    chosen = [tuple(domain.index(name) for name in names) for names in tables[:MAX_TABLES]]
    counted = count_tables(codes, domain.sizes, chosen)
    distances = [
        sampling_distance(table.occupied()[1] / table.total, first, second) for table in counted
    ]
    return float(np.mean(distances))
