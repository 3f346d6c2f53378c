"""Which levels a margin tells apart, and the law that meets the sums of their blocks.

A law has no negative cell, and noise knows no such bound: to cut the counts of rare cells at zero
would lift what they add up to. So levels are put into groups until each combination of groups, a
block, is well above zero. A drawn law has the drawn sums of blocks; how a block's rows fall on its
cells is the same in all draws, up to what other margins say, and is not said to be known.

Groups are of whole levels. Were single cells put together, the sums of their row and column would
still tell them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from synthdp.inference.tables import Axes, Measured

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
"""The group of each level, `[levels]`."""

CLEAR = 3.0
"""Deviations of a draw that each block is above zero at least. A Gaussian that is cut there moves
its mean by .0044 of its deviation."""
SWEEPS = 1000
"""Most rounds of proportional fitting."""


@dataclass(frozen=True)
class Blocks:
    """The margin over some of `columns` columns, on the `groups` of their levels, by axis."""

    groups: Mapping[int, Labels]
    columns: int

    @property
    def sizes(self) -> dict[int, int]:
        """Groups of each axis."""
        return {axis: int(labels.max()) + 1 for axis, labels in self.groups.items()}

    @property
    def count(self) -> int:
        """Number of blocks."""
        return math.prod(self.sizes.values())

    @property
    def exact(self) -> bool:
        """Whether each level is told apart."""
        return all(
            len(g) == n for g, n in zip(self.groups.values(), self.sizes.values(), strict=True)
        )

    @cached_property
    def labels(self) -> Labels:
        """The block of each cell of the margin, one axis per column (1 where summed)."""
        wide = (
            labels.reshape([-1 if i == axis else 1 for i in range(self.columns)])
            for axis, labels in self.groups.items()
        )
        found: Labels = np.ravel_multi_index(
            tuple(np.broadcast_arrays(*wide)), [*self.sizes.values()]
        )
        return found

    def sums(self, margin: Floats) -> Floats:
        """Sums `[count]` of a margin over these axes, one axis per column."""
        return np.asarray(np.bincount(self.labels.ravel(), margin.ravel(), self.count), np.float64)

    def sums_of(self, cells: Floats) -> Floats:
        """Sums `[count]` of the cells of all columns."""
        return self.sums(summed(cells, frozenset(self.groups)))

    def tells(self, other: Blocks) -> bool:
        """Whether these sums determine those of `other`."""
        return all(
            axis in self.groups
            and len(np.unique(self.groups[axis] * len(labels) + labels)) == self.sizes[axis]
            for axis, labels in other.groups.items()
        )


def find_blocks(
    known: Measured, counts: Floats, sets: Sequence[Axes], *, per_unit: int
) -> dict[Axes, Blocks]:
    """The blocks of each of the `sets` of axes, which hold their subsets; not those that tell
    nothing more than their subsets.

    `counts` are the least-squares estimates of all cells. A block is fine if its estimate is
    `CLEAR` deviations above zero, of the noise and of the sampling of rows together. While one is
    not, its level that is lightest for its column is put together with another: a neighbour where
    order means something, else the lightest. No column is left with one group while another has
    three. Groups of a set are never finer than those of its subsets.
    """
    found: dict[Axes, Blocks] = {}
    for axes in sorted(sets, key=lambda s: (len(s), sorted(s))):
        groups = {
            i: joined([found[s].groups[i] for s in found if i in s < axes], known.shape[i])
            for i in sorted(axes)
        }
        start = Blocks(groups, len(known.shape))
        shape = [*start.sizes.values()]
        estimate = start.sums(summed(counts, axes)).reshape(shape)
        noise = start.sums(noise_of(known, axes)).reshape(shape)
        ordered = [known.columns[i].ordered for i in groups]
        merged = _merged(estimate, noise, ordered, per_unit)
        found[axes] = Blocks(
            {i: new[old] for (i, old), new in zip(groups.items(), merged, strict=True)},
            start.columns,
        )
    return {axes: blocks for axes, blocks in found.items() if min(blocks.sizes.values()) > 1}


def joined(groupings: Sequence[Labels], levels: int) -> Labels:
    """The finest groups that are not finer than any of some groupings of levels."""
    labels: Labels = np.arange(levels)
    for other in groupings:
        size = levels + int(other.max()) + 1
        links = coo_array((np.ones(levels), (labels, levels + other)), shape=(size, size))
        parts = connected_components(links, directed=False)[1][labels]
        labels = np.unique(parts, return_inverse=True)[1]
    return labels


def _merged(
    estimate: Floats, noise: Floats, ordered: Sequence[bool], per_unit: int
) -> list[Labels]:
    """Groups of the levels of each axis, so that each block is well above zero."""
    members = [[[level] for level in range(size)] for size in estimate.shape]
    while True:
        above = estimate - CLEAR * np.sqrt(noise + per_unit * estimate.clip(0))
        worst = np.unravel_index(int(above.argmin()), above.shape)
        weights = [
            estimate.sum(axis=tuple(j for j in range(estimate.ndim) if j != i))
            for i in range(estimate.ndim)
        ]
        free = [i for i, groups in enumerate(members) if len(groups) > 2]
        free = free or [i for i, groups in enumerate(members) if len(groups) > 1]
        if above[worst] >= 0 or not free:
            break
        axis = min(free, key=lambda i: float(weights[i][worst[i]] * len(members[i])))
        one, weight = int(worst[axis]), weights[axis]
        others = (
            [one - 1, one + 1] if ordered[axis] else [*range(one), *range(one + 1, len(weight))]
        )
        other = min((i for i in others if 0 <= i < len(weight)), key=lambda i: float(weight[i]))
        low, high = sorted((one, other))
        members[axis][low] += members[axis].pop(high)
        estimate, noise = (_added(values, axis, low, high) for values in (estimate, noise))
    found = [np.zeros(sum(map(len, groups)), np.intp) for groups in members]
    for labels, groups in zip(found, members, strict=True):
        for label, levels in enumerate(groups):
            labels[levels] = label
    return found


def _added(values: Floats, axis: int, low: int, high: int) -> Floats:
    """Values whose entry `high` along an axis is added to the one at `low`."""
    moved = np.moveaxis(np.delete(values, high, axis), axis, 0)
    moved[low] += np.take(values, high, axis)
    return np.moveaxis(moved, 0, axis)


def noise_of(known: Measured, axes: Axes) -> Floats:
    """Variance of the noise in the margin over `axes`, by the margin that tells it best.

    Least squares has at most this variance, where that of a margin's cells does not differ.
    """
    found = (summed(m.variances, axes) for s, m in known.margins.items() if axes <= s)
    return min(found, key=lambda variances: float(variances.mean()))


def summed(cells: Floats, axes: Axes) -> Floats:
    """The margin of cells over some axes; the others have length 1."""
    others = tuple(i for i in range(cells.ndim) if i not in axes)
    margin: Floats = cells.sum(axis=others, keepdims=True)
    return margin


def needed(blocks: Sequence[Blocks]) -> list[Blocks]:
    """The blocks that no others tell."""
    kept: list[Blocks] = []
    for one in sorted(blocks, key=lambda b: -len(b.groups)):
        if not any(other.tells(one) for other in kept):
            kept.append(one)
    return kept


def fitted(
    start: Floats, blocks: Sequence[Blocks], sums: Sequence[Floats], *, within: float
) -> Floats | None:
    """The law of these `sums` of blocks that is nearest to `start`; None if none is found.

    Of all laws with these sums it has the least relative entropy to `start` [Csiszár 1975]: each
    sweep scales the cells of each block to its sum, until no sum is off by more than `within`.
    """
    law: Floats = start / start.sum()
    for _ in range(SWEEPS):
        worst = 0.0
        for block, wanted in zip(blocks, sums, strict=True):
            found = block.sums_of(law)
            worst = max(worst, float(np.abs(found - wanted).max()))
            law = law * (wanted / np.maximum(found, 1e-300))[block.labels]
        if worst <= within:
            return law
    return None
