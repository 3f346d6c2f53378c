"""Strength of association of pairs of columns: Cramér's V with Bergsma's bias correction.

Source: W. Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean
Statistical Society 42 (2013), equation for V tilde. Levels that never occur do not count as levels.
"""

from __future__ import annotations

import numpy as np

from synthdp.evaluate.counting import FloatArray, IntArray


def cramers_v(counts: IntArray, starts: IntArray) -> FloatArray:
    """V of one column with each of several others, shape `[others]`; 0 where a column has a single
    level (no room is left then) or there is one row.

    `counts` has shape `[levels of the others one after the other, levels of the column]`; `starts`
    is where each other begins.
    """
    cells = counts.astype(np.float64)
    ours, theirs = np.add.reduceat(cells, starts, axis=0)[0], cells.sum(axis=1)
    n = ours.sum()
    r, c = np.add.reduceat(theirs > 0, starts, dtype=np.int64), int((ours > 0).sum())
    if n < 2 or c < 2:
        return np.zeros(len(starts))
    # chi² / n = sum n_ij² / (n_i n_j) - 1; a level that does not occur has empty cells alone
    inverse = [
        np.divide(1.0, total, out=np.zeros_like(total), where=total > 0) for total in (theirs, ours)
    ]
    phi2 = np.add.reduceat((cells**2 @ inverse[1]) * inverse[0], starts) - 1.0
    phi2 = np.maximum(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    room = np.minimum(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    ratio = np.divide(phi2, room, out=np.zeros(len(starts)), where=room > 0)
    strength: FloatArray = np.minimum(1.0, np.sqrt(ratio))
    return strength
