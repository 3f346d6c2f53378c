"""Raking: rows that follow given margins. All of it is post-processing.

Stratified draws of a target over similar rows. All of it is post-processing of drawn rows.

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, decode_column
from synthdp.graph.margins import Probabilities
from synthdp.model.estimands import estimand_name, sums_of
from synthdp.model.row_selection import SETTINGS, MeasuredPair, blended
from synthdp.privacy.mechanisms.sums import NoisySums, StratumSums, Sums
from synthdp.spec.model import ReleaseSpec

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


def rake(
    codes: Codes,
    targets: Sequence[Probabilities],
    *,
    columns: Sequence[int],
    rows: int,
    rng: np.random.Generator,
) -> Codes:
    """`rows` rows resampled from `codes` so that the named columns follow `targets`.

    Rows are weighted by `raking_factors`. Systematic resampling then uses a row at most one time
    more or less than its weight says. Only rows of `codes` are returned, so a target on levels that
    none of them has is met only as far as they allow.
    """
    weights = raking_weights(
        codes, raking_factors(codes, targets, columns=columns), columns=columns
    )
    points = (np.arange(rows) + rng.random()) / rows
    chosen = np.searchsorted(np.cumsum(weights / weights.sum()), points, side="right")
    resampled: Codes = codes[rng.permutation(np.minimum(chosen, len(codes) - 1))]
    return resampled


def raking_weights(
    codes: Codes, factors: Sequence[npt.NDArray[np.float64]], *, columns: Sequence[int]
) -> npt.NDArray[np.float64]:
    """The product of each row's factors, `[rows]`."""
    weights = np.ones(len(codes))
    for factor, column in zip(factors, columns, strict=True):
        weights *= factor[codes[:, column]]
    return weights


def raking_factors(
    codes: Codes,
    targets: Sequence[Probabilities],
    *,
    columns: Sequence[int],
    start: npt.NDArray[np.float64] | None = None,
) -> list[npt.NDArray[np.float64]]:
    """A factor of each level of the named columns, `[levels]` each.

    Rows weighted by the product of their factors (and `start` `[rows]`, if there is one) follow
    `targets`, all up to a total variation of 1e-4. Iterative proportional fitting of row weights
    (Deming and Stephan, 1940). A level that `codes` lacks has the factor 1.
    """
    weights = np.full(len(codes), 1 / len(codes)) if start is None else start / start.sum()
    factors = [np.ones(len(target)) for target in targets]
    levels = [np.ascontiguousarray(codes[:, column]) for column in columns]
    for _ in range(50):
        worst = 0.0
        for factor, level, target in zip(factors, levels, targets, strict=True):
            current = np.bincount(level, weights=weights, minlength=len(target))
            worst = max(worst, float(np.abs(current - target).sum()) / 2)
            ratio = np.divide(target, current, out=np.ones_like(target), where=current > 0)
            total = float(current @ ratio)
            # If no row has a level that the target wants, the column stays as drawn.
            if total > 0:
                ratio /= total
                weights *= ratio.take(level)
                factor *= ratio
        if worst < 1e-4:
            break
    return factors


# --- strata ---
#
# The counts of an estimand's strata are a table, and their sums are means. Weights of drawn rows
# are changed until both are followed as far as they are clear of their noise: each stratum by a
# factor, and the rows inside by exp(b u), u the bounded number (calibration of weights; Deville
# and Särndal, "Calibration estimators in survey sampling", 1992).


@dataclass(frozen=True)
class Placed:
    """The stratum of each row, the last of all for none, and its bounded number. Alike in shape."""

    strata: Integers
    numbers: Floats


@dataclass(frozen=True, eq=False)
class Strata:
    """The strata of one estimand, what was measured of them, and the noisy number of all `rows`."""

    mechanism: StratumSums
    sums: NoisySums
    rows: float

    @property
    def size(self) -> int:
        """Number of strata; one more holds all other rows."""
        return self.sums.counts.size

    @property
    def deciding(self) -> tuple[str, ...]:
        """The columns that decide a row's stratum."""
        read = [n for arm in self.mechanism.arms for e, _ in arm.conditions for n in e.columns]
        return tuple(dict.fromkeys([*self.mechanism.by, *read]))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide a row's stratum, or are its number."""
        number = self.mechanism.number
        return tuple(dict.fromkeys([*self.deciding, *((number.column,) if number else ())]))

    def placed(self, codes: Codes, rng: np.random.Generator) -> Placed:
        """Where drawn rows `[rows, columns]` lie; values are drawn inside their levels."""
        domain = self.mechanism.domain
        frame = pd.DataFrame(
            {n: decode_column(domain[n], codes[:, domain.index(n)], rng=rng) for n in self.columns}
        )
        strata, numbers = self.mechanism.strata(frame, codes), self.mechanism.numbers(frame, codes)
        nowhere = (strata < 0) | np.isnan(numbers)
        return Placed(np.where(nowhere, self.size, strata), np.where(nowhere, 0.0, numbers))

    def pull(self, weights: Floats, placed: Placed) -> Pull:
        """What the rows are to follow, if these are their weights without it.

        Counts are blended as two-way tables are. Differences of means are taken to have one
        variance over all strata, which is the excess of their squares over the noise (method of
        moments). No mean of fewer than 20 rows is followed.
        """
        ids, flat = placed.strata.ravel(), weights.ravel() * (self.rows / float(weights.sum()))
        counts = self.sums.counts.ravel()
        table = np.append(counts, self.rows - counts.sum())[None]
        now: Floats = np.bincount(ids, weights=flat, minlength=self.size + 1).astype(np.float64)
        wanted = blended(now[None], MeasuredPair((0, 1), table, self.sums.sigma))[0]
        means, _ = _moments(flat, placed, self.size)
        if self.mechanism.number is None:
            return Pull(placed, wanted, np.full(self.size, np.nan))
        clear = counts > max(20.0, SETTINGS.clear * self.sums.sigma)
        safe = np.where(clear, counts, 1.0)
        told = np.clip(self.sums.sums.ravel() / safe, -1, 1)
        noise = self.sums.sigma**2 * (1 + told**2) / safe**2
        beyond = np.where(clear, (told - means) ** 2 - noise, 0.0).sum()
        variance = max(0.0, float(beyond)) / max(1, clear.sum())
        goal = means + (told - means) * variance / (variance + noise)
        return Pull(placed, wanted, np.where(clear, goal, np.nan))


@dataclass(frozen=True, eq=False)
class Pull:
    """The rows `[strata + 1]`, the last outside of all, and means `[strata]` (NaN: any) that rows
    `placed` there are to follow.
    """

    placed: Placed
    counts: Floats
    means: Floats

    def on(self, weights: Floats) -> Floats:
        """Weights of the same total and shape that follow them, by three Newton steps to means.

        No step changes the logarithm of a weight by more than 2, and means of strata whose numbers
        have no variance are left.
        """
        ids, total = self.placed.strata.ravel(), float(weights.sum())
        flat, numbers = weights.ravel(), self.placed.numbers.ravel()
        for _ in range(0 if np.isnan(self.means).all() else 3):
            now, spread = _moments(flat, self.placed, len(self.means))
            movable = (spread > 1e-6) & ~np.isnan(self.means)
            step = np.divide(self.means - now, spread, out=np.zeros_like(now), where=movable)
            by = np.append(np.clip(step, -2.0, 2.0), 0.0)
            flat = flat * np.exp(by[ids] * numbers)
        held = np.bincount(ids, weights=flat, minlength=len(self.counts)).astype(np.float64)
        flat = flat * np.divide(self.counts, held, out=np.ones_like(held), where=held > 0)[ids]
        out: Floats = (flat * (total / flat.sum())).reshape(weights.shape)
        return out


def _moments(flat: Floats, placed: Placed, size: int) -> tuple[Floats, Floats]:
    """Mean and variance of the numbers of each stratum, `[size]` each; 0 where it has no rows."""
    ids, numbers = placed.strata.ravel(), placed.numbers.ravel()
    n, total, squares = (
        np.bincount(ids, weights=flat * numbers**k, minlength=size + 1)[:size] for k in range(3)
    )
    mean = np.divide(total, n, out=np.zeros(size), where=n > 0)
    return mean, np.divide(squares, n, out=np.zeros(size), where=n > 0) - mean**2


def strata_to_follow(
    spec: ReleaseSpec, domain: Domain, sums: Mapping[str, Sums], rows: float
) -> list[Strata]:
    """The strata of all questions and effects that were paid for; `rows` is the noisy total."""
    found = []
    for i, estimand in enumerate(spec.estimands):
        measured = sums.get(estimand_name(i))
        if isinstance(measured, NoisySums):
            mechanism = sums_of(spec, domain, estimand)
            assert isinstance(mechanism, StratumSums)
            found.append(Strata(mechanism, measured, rows))
    return found


def followed_weights(
    codes: Codes,
    margins: Sequence[Probabilities],
    strata: Sequence[Strata],
    placed: Sequence[Placed],
) -> Floats:
    """Weights `[rows]` of rows of groups `[rows, columns]` under which they follow the `margins` of
    all columns, and the strata in which they were `placed`.
    """
    columns = range(len(margins))

    def raked(weights: Floats | None) -> Floats:
        factors = raking_factors(codes, margins, columns=columns, start=weights)
        found = raking_weights(codes, factors, columns=columns)
        return found if weights is None else weights * found

    weights = raked(None)
    pulls = [one.pull(weights, rows) for one, rows in zip(strata, placed, strict=True)]
    for _ in range(SETTINGS.strata_rounds if pulls else 0):
        for pull in pulls:
            weights = pull.on(weights)
        weights = raked(weights)
    return weights


def joined(parts: Iterable[Placed]) -> Placed:
    """Rows `[rows]` at each of some levels, as one `[rows, levels]`."""
    found = list(parts)
    return Placed(np.stack([p.strata for p in found], 1), np.stack([p.numbers for p in found], 1))


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
    order, waiting = np.arange(len(turned)), {len(turned): [np.zeros(1, np.intp)]}
    while waiting:  # parts of one size together: they begin at `starts`
        halves = dict[int, list[Integers]]()
        for size, starts in ((k, np.concatenate(v)) for k, v in waiting.items() if k > 4):
            middle, at_once = size // 2, max(1, (1 << 14) // size)
            for some in np.split(starts, range(at_once, len(starts), at_once)):
                places = some[:, None] + np.arange(size)
                rows = order[places]
                inside = turned[rows]
                widest = inside.var(1).argmax(1)[:, None, None]
                along = np.take_along_axis(inside, widest, 2)[:, :, 0]
                halved = np.argpartition(along, middle, axis=1)
                order[places] = np.take_along_axis(rows, halved, 1)
            halves.setdefault(middle, []).append(starts)
            halves.setdefault(size - middle, []).append(starts + middle)
        waiting = halves
    return order
