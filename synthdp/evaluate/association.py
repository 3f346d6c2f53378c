"""Strength of association of every pair of columns: Cramér's V with Bergsma's bias correction.

Source: W. Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean Statistical
Society 42 (2013), equation for V tilde. Levels that never occur do not count as levels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from synthdp.evaluate.counting import CrossTable, FloatArray


def association_matrix(pairs: Iterable[CrossTable], columns: int) -> FloatArray:
    """Cramér's V of each pair, shape `[columns, columns]`: symmetric, 1 on the diagonal, 0 to 1."""
    matrix = np.eye(columns)
    for table in pairs:
        i, j = table.columns
        matrix[i, j] = matrix[j, i] = cramers_v(table)
    return matrix


def cramers_v(table: CrossTable) -> float:
    """Bias-corrected Cramér's V of one 2-way table; 0 where a column has a single level or there is one row."""
    keys, counts = table.occupied()
    rows, columns = np.divmod(keys, table.sizes[1])
    row_totals = np.bincount(rows, weights=counts, minlength=table.sizes[0])
    column_totals = np.bincount(columns, weights=counts, minlength=table.sizes[1])
    r, c, n = int((row_totals > 0).sum()), int((column_totals > 0).sum()), int(counts.sum())
    if n < 2 or min(r, c) < 2:
        return 0.0
    # chi² / n = sum n_ij² / (n_i n_j) - 1 needs the cells that occur alone
    phi2 = float((counts.astype(np.float64) ** 2 / (row_totals[rows] * column_totals[columns])).sum()) - 1.0
    phi2 = max(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    r_corrected, c_corrected = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    room = min(r_corrected, c_corrected) - 1
    return min(1.0, float(np.sqrt(phi2 / room))) if room > 0 else 0.0
