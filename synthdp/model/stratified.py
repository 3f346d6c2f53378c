"""Stratified draws of a target over similar rows. All of it is post-processing of drawn rows.

If a target is drawn for each row by an independent random number, similar rows differ in it at
random, and a learner that uses few neighbours learns that randomness. Here the random numbers of
neighbours are stratified. Rows are put in an order in which neighbours are close, and get uniform
numbers in that order, of which any block of 2^k has one in each 2^-k of the unit interval. Each
row's number is uniform, so that its level has exactly the model's probability. In a block of
neighbours the number of rows with a level is the sum of their probabilities, up to one or two
[stratified sampling along sorted chains; L'Ecuyer, Lecot and Tuffin, "A Randomized Quasi-Monte
Carlo Simulation Method for Markov Chains" (2008)]. Every target has independent numbers: given
their causes, two targets are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain
from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities
from synthdp.model.row_selection import MeasuredPair, blended

DOUBT = (0.5, 50.0)
"""Standard error of the model's counts of a cause's and a target's level: share, and most rows."""

Points = npt.NDArray[np.float32]


def stratified_draw(
    probabilities: Probabilities, order: npt.NDArray[np.intp], *, rng: np.random.Generator
) -> npt.NDArray[np.uint16]:
    """A level of each row by `probabilities` `[rows, levels]`, stratified along `order`."""
    uniform = np.empty(len(order))
    uniform[order] = stratified_uniforms(len(order), rng=rng)
    sums = np.cumsum(probabilities[:, :-1], 1) / probabilities.sum(1, keepdims=True)
    levels: npt.NDArray[np.uint16] = (sums <= uniform[:, None]).sum(1).astype(np.uint16)
    return levels


def stratified_uniforms(count: int, *, rng: np.random.Generator) -> Probabilities:
    """Uniform numbers `[count]`, stratified along their positions.

    Of each 2^k successive numbers from a multiple of 2^k on, one is in each 2^-k of the unit
    interval. Binary digits are drawn from the first on: of the two numbers of a block that agree in
    all digits before, one gets the digit 0 and one the digit 1, in random order.
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
    """`probabilities` `[rows, levels]` of a target, changed as little as its tables ask for.

    The target is at position `target` of `codes` `[rows, columns]`. On average over the rows the
    result is its `margin` `[levels]`. Over the rows with a level of another column it is what model
    and measurement together say, where that pair was `measured`. The method is iterative
    proportional fitting of probabilities instead of counts.
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
    for _ in range(10):
        for level, counts in wanted:
            now, rows = _sums(raked, level, len(counts)), counts.sum(1, keepdims=True)
            wanted_counts = counts * now.sum(1, keepdims=True)
            known = (now > 0) & (rows > 0)  # other levels keep their probabilities
            ratio = np.divide(wanted_counts, now * rows, out=np.ones_like(now), where=known)
            raked *= ratio[level]
            raked /= np.maximum(raked.sum(1, keepdims=True), 1e-12)
    return raked


def _sums(probabilities: Probabilities, level: npt.NDArray[np.intp], levels: int) -> Probabilities:
    """Sums of `probabilities` `[rows, k]` over the rows of each `level` `[rows]`: `[levels, k]`."""
    sums = [np.bincount(level, weights=column, minlength=levels) for column in probabilities.T]
    return np.stack(sums, 1)


def kd_tree_order(codes: Codes, columns: Sequence[ColumnDomain]) -> npt.NDArray[np.intp]:
    """An order `[rows]` of the rows of levels `[rows, columns]` in which neighbours are similar.

    Rows are halved at the median of the principal direction of largest variance, and so are the
    halves, down to four: a k-d tree of 20 directions, read from left to right. Ordered levels are
    standardised numbers, others indicators.
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
    turned: Points = points @ np.linalg.eigh(points.T @ points)[1][:, -20:]
    order, waiting = np.arange(len(turned)), [(0, len(turned))]
    while waiting:
        start, end = waiting.pop()
        if end - start > 4:
            rows, middle = order[start:end], (end - start) // 2
            widest = turned[rows].var(0).argmax()
            order[start:end] = rows[np.argpartition(turned[rows, widest], middle)]
            waiting += [(start, start + middle), (start + middle, end)]
    return order
