"""Association of pairs of columns: Cramér's V with Bergsma's bias correction.

Source: W. Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean
Statistical Society 42 (2013), equation for V tilde. Levels that never occur do not count as levels.
"""

from __future__ import annotations

import numpy as np

from synthdp.evaluate.counting import FloatArray, IntArray


def cramers_v(counts: IntArray, starts: IntArray) -> FloatArray:
    """Cramér's V of one column with each of several others, shape `[others]`.

    `counts` has shape `[levels of the others one after the other, levels of the column]`. It holds
    one contingency table for each other column, one below the other. `starts` gives the first row
    of each table. V is 0 where a column has a single level or the table has a single row: the
    corrected maximum is then 0.

    >>> cramers_v(np.array([[50, 0], [0, 50]]), np.array([0]))
    array([1.])
    """
    cells = counts.astype(np.float64)
    row_totals = cells.sum(axis=1)
    column_totals = np.add.reduceat(cells, starts, axis=0)[0]  # the same in every table
    n = column_totals.sum()
    r = np.add.reduceat(row_totals > 0, starts, dtype=np.int64)
    c = int((column_totals > 0).sum())
    if n < 2 or c < 2:
        return np.zeros(len(starts))
    # chi² / n = sum n_ij² / (n_i n_j) - 1; a level that does not occur has only empty cells
    by_row = (cells**2 @ _inverse(column_totals)) * _inverse(row_totals)
    phi2 = np.add.reduceat(by_row, starts) - 1.0
    phi2 = np.maximum(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    maximum = np.minimum(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    ratio = np.divide(phi2, maximum, out=np.zeros(len(starts)), where=maximum > 0)
    strength: FloatArray = np.minimum(1.0, np.sqrt(ratio))
    return strength


def _inverse(totals: FloatArray) -> FloatArray:
    """1 / total, and 0 where a total is 0."""
    inverse: FloatArray = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return inverse
