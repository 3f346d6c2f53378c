"""Which cells of a margin are told apart, and the law that meets the sums of all others.

A law has no negative cell, and noise knows no such bound: to cut the counts of rare cells at zero
would lift what they add up to. So cells that are not well above zero are put into blocks with their
neighbours until each block is. A drawn law has the drawn sums of blocks; how a block's rows fall on
its cells is the same in all draws, and is not said to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.inference.tables import Axes, Measured

Floats = npt.NDArray[np.float64]

CLEAR = 3.0
"""Deviations of a draw that each block is above zero at least. A Gaussian that is cut there moves
its mean by .0044 of its deviation."""
SWEEPS = 1000
"""Most rounds of proportional fitting."""


@dataclass(frozen=True)
class Blocks:
    """The cells of the margin over `axes` in `count` blocks.

    `labels` has the block of each cell, one axis per column (1 where summed).
    """

    axes: Axes
    labels: npt.NDArray[np.intp]
    count: int

    def sums(self, margin: Floats) -> Floats:
        """Sums `[count]` of a margin over these axes."""
        return np.bincount(self.labels.ravel(), margin.ravel(), self.count)

    def sums_of(self, cells: Floats) -> Floats:
        """Sums `[count]` of the cells of all columns."""
        return self.sums(_summed(cells, self.axes))

    def tells(self, other: Blocks) -> bool:
        """Whether these sums determine those of `other`."""
        if not other.axes <= self.axes:
            return False
        wide = np.broadcast_to(other.labels, self.labels.shape)
        return len(np.unique(self.labels * other.count + wide)) == self.count


def find_blocks(
    known: Measured, counts: Floats, sets: Sequence[Axes], *, per_unit: int
) -> dict[Axes, Blocks]:
    """The blocks of each of the `sets` of axes, which hold their subsets.

    `counts` are the least-squares estimates of all cells. A block is fine if its estimate is
    `CLEAR` deviations above zero, of the noise and of the sampling of rows together. Of a set of
    axes T, levels of one are put together within each block of the others: neighbours where their
    order means something, else those of the fewest rows. A row that is one block stays as it is,
    since the others' blocks tell its sum.
    """
    found: dict[Axes, Blocks] = {}
    for axes in sorted(sets, key=lambda s: (len(s), sorted(s))):
        if axes:
            found[axes] = _blocks(known, counts, axes, found, per_unit)
    return found


def _blocks(
    known: Measured, counts: Floats, axes: Axes, found: dict[Axes, Blocks], per_unit: int
) -> Blocks:
    shape = tuple(size if i in axes else 1 for i, size in enumerate(known.shape))
    if len(axes) == 1:
        (along,) = axes
        rows, columns = np.zeros(1, np.intp), np.arange(known.shape[along])
    else:
        along = max(sorted(axes), key=lambda i: found[frozenset({i})].count)
        rows = found[axes - {along}].labels.ravel()
        columns = found[frozenset({along})].labels.ravel()

    def matrix(margin: Floats) -> Floats:
        wide = np.moveaxis(np.broadcast_to(margin, shape), along, -1).reshape(len(rows), -1)
        summed = np.zeros((rows.max() + 1, columns.max() + 1))
        np.add.at(summed, (rows[:, None], columns[None, :]), wide)
        return summed

    estimate, noise = matrix(_summed(counts, axes)), matrix(_noise(known, axes))
    ordered = known.columns[along].ordered
    names = np.zeros(estimate.shape, np.intp)
    total = 0
    for row, (values, variances) in enumerate(zip(estimate, noise, strict=True)):
        order = np.arange(len(values)) if ordered else np.argsort(values)
        for group in _groups(values[order], variances[order], per_unit):
            names[row, order[group]] = total
            total += 1
    labels = names[rows[:, None], columns[None, :]]
    others = [size for i, size in enumerate(shape) if i != along]
    return Blocks(axes, np.moveaxis(labels.reshape([*others, -1]), -1, along), total)


def _groups(estimate: Floats, noise: Floats, per_unit: int) -> list[list[int]]:
    """Neighbours put together until each group is well above zero, or one is left."""
    groups = [[i] for i in range(len(estimate))]
    while len(groups) > 1:
        sums = np.array([estimate[group].sum() for group in groups])
        left = np.array([noise[group].sum() for group in groups]) + per_unit * sums.clip(0)
        above = sums - CLEAR * np.sqrt(left)
        worst = int(above.argmin())
        if above[worst] >= 0:
            break
        beside = [i for i in (worst - 1, worst + 1) if 0 <= i < len(groups)]
        other = min(beside, key=lambda i: float(sums[i]))
        low, high = sorted((worst, other))
        groups[low : high + 1] = [groups[low] + groups[high]]
    return groups


def _noise(known: Measured, axes: Axes) -> Floats:
    """Variance of the noise in the margin over `axes`, by the margin that tells it best.

    Least squares has at most this variance, where that of a margin's cells does not differ.
    """
    summed = (_summed(m.variances, axes) for s, m in known.margins.items() if axes <= s)
    return min(summed, key=lambda variances: float(variances.mean()))


def _summed(cells: Floats, axes: Axes) -> Floats:
    others = tuple(i for i in range(cells.ndim) if i not in axes)
    summed: Floats = cells.sum(axis=others, keepdims=True)
    return summed


def needed(blocks: Sequence[Blocks]) -> list[Blocks]:
    """The blocks that no others tell."""
    kept: list[Blocks] = []
    for one in sorted(blocks, key=lambda b: -len(b.axes)):
        if not any(other.tells(one) for other in kept):
            kept.append(one)
    return kept


def fitted(
    start: Floats, blocks: Sequence[Blocks], sums: Sequence[Floats], *, within: float
) -> Floats | None:
    """The law of these `sums` of blocks that is nearest to `start`; None if none is found.

    Of all laws with these sums it has the least relative entropy to `start` [Csiszar 1975]: each
    sweep scales the cells of each block to its sum, until no sum is off by more than `within`.
    """
    law = start / start.sum()
    for _ in range(SWEEPS):
        worst = 0.0
        for block, wanted in zip(blocks, sums, strict=True):
            found = block.sums_of(law)
            worst = max(worst, float(np.abs(found - wanted).max()))
            law = law * (wanted / np.maximum(found, 1e-300))[block.labels]
        if worst <= within:
            return law
    return None
