"""Levels of a target that are drawn evenly over rows that are alike. All of it is post-processing
of drawn rows.

Where a target is drawn for each row by a coin of its own, rows that are alike differ in it by
chance, and what is learned from few neighbours learns that chance. Here the coins of neighbours are
spread: rows are put in an order in which neighbours are close, and get uniform numbers in that
order of which any block of 2^k has one in each 2^-k of the unit interval. Each row's number is
uniform, so that its level has just the chance that the model gives it; blocks of neighbours have as
many of a level as their chances add up to, but for one or two [stratified sampling along sorted
chains; L'Ecuyer, Lecot and Tuffin, "A Randomized Quasi-Monte Carlo Simulation Method for Markov
Chains" (2008)]. Every target has coins of its own: given its causes, one says nothing of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain
from synthdp.data.encoding import Codes
from synthdp.model.row_selection import MeasuredPair, blended

DIRECTIONS = 20  # principal ones, in which rows are split
LEAF = 4  # rows that are not split any more
ROUNDS = 10  # of proportional fitting
DOUBT = (
    0.5,
    50.0,
    # standard error of the model's rows with a cause's level and a target's: a part of them, and at
    # most so many
)

Points = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float64]


def stratified_draw(
    probabilities: Probabilities, order: npt.NDArray[np.intp], *, rng: np.random.Generator
) -> npt.NDArray[np.uint16]:
    """A level of each row, `[rows]`, with the `probabilities` `[rows, levels]`, evenly along
    `order`, a permutation of the rows.
    """
    uniform = np.empty(len(order))
    uniform[order] = even_numbers(len(order), rng=rng)
    sums = np.cumsum(probabilities[:, :-1], 1) / probabilities.sum(1, keepdims=True)
    levels: npt.NDArray[np.uint16] = (sums <= uniform[:, None]).sum(1).astype(np.uint16)
    return levels


def even_numbers(count: int, *, rng: np.random.Generator) -> Probabilities:
    """Uniform numbers `[count]`; of each 2^k that follow each other from a multiple of 2^k on, one
    is in each 2^-k of the unit interval.

    Binary digits from the first on: of the two numbers of a block that agree in all digits before,
    one is in its left half, one in its right; which of them has a 1 next is a coin's choice.
    """
    position, prefix = np.arange(count), np.zeros(count, np.int64)
    digits = int(count - 1).bit_length()
    for k in range(digits):
        coins = rng.integers(0, 2, size=((count - 1 >> k + 1) + 1, 1 << k))
        prefix = 2 * prefix + (coins[position >> k + 1, prefix] ^ (position >> k & 1))
    return (prefix + rng.random(count)) / (1 << digits)


def raked_probabilities(
    probabilities: Probabilities,
    codes: Codes,
    target: int,
    margin: Probabilities,
    measured: Sequence[MeasuredPair],
    sizes: Sequence[int],
) -> Probabilities:
    """`probabilities` `[rows, levels]` of the target at position `target` of `codes` `[rows,
    columns]`, changed as little as its tables ask for.

    On average over the rows they are then its `margin` `[levels]`, and over those with a level of
    another column what model and measurement
    say together where that pair was `measured`: iterative proportional fitting, of chances instead
    of counts.
    """
    raked = probabilities.copy()
    wanted: list[tuple[npt.NDArray[np.intp], Probabilities]] = [
        (np.zeros(len(codes), np.intp), margin[None] * len(codes))
    ]
    for table in measured:
        if target in table.columns:
            (other,) = set(table.columns) - {target}
            level = codes[:, other].astype(np.intp)
            model = _sums(raked, level, sizes[other])
            both = blended(model if other < target else model.T, table, doubt=DOUBT)
            wanted.append((level, both if other < target else both.T))
    for _ in range(ROUNDS):
        for level, counts in wanted:
            now, rows = _sums(raked, level, len(counts)), counts.sum(1, keepdims=True)
            asked = (now > 0) & (rows > 0)  # of levels that neither has rows of, nothing is known
            ratio = np.divide(
                counts * now.sum(1, keepdims=True), now * rows, out=np.ones_like(now), where=asked
            )
            raked *= ratio[level]
            raked /= np.maximum(raked.sum(1, keepdims=True), 1e-12)
    return raked


def _sums(probabilities: Probabilities, level: npt.NDArray[np.intp], levels: int) -> Probabilities:
    """Sums of `probabilities` `[rows, target levels]` over the rows with each `level`, `[levels,
    target levels]`.
    """
    return np.stack(
        [np.bincount(level, weights=own, minlength=levels) for own in probabilities.T], 1
    )


def kd_tree_order(codes: Codes, columns: Sequence[ColumnDomain]) -> npt.NDArray[np.intp]:
    """An order of the rows of levels `[rows, columns]` in which neighbours are alike, `[rows]`.

    Rows are halved at the median of the principal direction in which they differ most, and so are
    the halves: a k-d tree, read from left to right.
    """
    points = _points(codes, columns)
    turned: Points = points @ np.linalg.eigh(points.T @ points)[1][:, -DIRECTIONS:]
    order, waiting = np.arange(len(turned)), [(0, len(turned))]
    while waiting:
        start, end = waiting.pop()
        if end - start > LEAF:
            rows, middle = order[start:end], (end - start) // 2
            widest = turned[rows].var(0).argmax()
            order[start:end] = rows[np.argpartition(turned[rows, widest], middle)]
            waiting += [(start, start + middle), (start + middle, end)]
    return order


def _points(codes: Codes, columns: Sequence[ColumnDomain]) -> Points:
    """Rows as centred points `[rows, dimensions]`: levels in order as standardised numbers, others
    as indicators.
    """
    parts: list[Points] = []
    for level, column in zip(codes.T, columns, strict=True):
        if column.ordered:
            number = level.astype(np.float32)[:, None]
            parts.append(number / max(float(number.std()), 1e-6))
        else:
            parts.append(np.eye(column.levels, dtype=np.float32)[level])
    points: Points = np.concatenate(parts, 1)
    points -= points.mean(0)
    return points
