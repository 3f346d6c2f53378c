"""Means by sums of numbers that a release measured: their intervals narrow with rows and epsilon.

The sum of u = (number - middle) / half over the rows of a group is found by least squares on the
sums over all rows and over the rows of each level of some columns, as counts are
(`least_squares`). Over the noisy number of rows it is a mean, with the interval of a ratio [derived
in docs/inference.md].

Of linked tables, with S_i the sum of u over the visits of person i, and C_i how many they are, both
as parts of the most visits, a mean over visits is the ratio R of sum S_i and sum C_i. Its sampling
goes by persons, whatever the visits of one have in common: its variance is the sum of (S_i - R
C_i)^2, made of the sums of S_i^2, S_i C_i and C_i^2 [derived here; the ratio estimator of Cochran,
"Sampling Techniques", 1977, 6.3, of clusters of unequal size]. How many visits there are is told by
the table of their numbers, unless some lack the column.

A linear regression is made of noisy sums of products, and an effect where both arms overlap of the
one sum over all strata that measured it [`docs/inference.md` has the derivation].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.inference import figures as of_cells
from synthdp.inference.figures import (
    Figure,
    Floats,
    Interval,
    Quadratic,
    Rows,
    Z,
    along,
    by_groups,
    certain,
    noise_width,
    ratio_figure,
    ratio_interval,
    roles,
    too_few,
    value_bounds,
)
from synthdp.inference.least_squares import SETTINGS, Functionals, LeastSquares, measured
from synthdp.inference.words import POPULATION, clamped, counted, listed
from synthdp.model.estimands import SETTINGS as ESTIMANDS
from synthdp.model.estimands import ContrastDesign, Design
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import (
    NUMBER,
    SQUARE,
    Bounded,
    NoisyProducts,
    NoisySums,
    Part,
    ProductSums,
    most_of,
)
from synthdp.spec.expressions.query import Query
from synthdp.spec.model import RegressionEstimand, ReleaseSpec

if TYPE_CHECKING:
    from synthdp.data.visits import VisitFrame

Summed = tuple[Figure, float]
"""A figure, and how wide noise alone makes its interval."""


@dataclass(frozen=True)
class MeanSums:
    """The sums of the number that a question asks the mean of, and the tables beside them.

    `by_level` has the sums as tables, of no column and of one each; `squares` is the sum of u^2.
    `others` are the columns of `where` and `by`.
    """

    query: Query
    others: tuple[str, ...]
    number: Bounded
    by_level: tuple[NoisyTable, ...]
    squares: float
    domain: Domain
    tables: Sequence[NoisyTable]

    @classmethod
    def of(
        cls,
        query: Query,
        mechanism: ProductSums,
        domain: Domain,
        tables: Sequence[NoisyTable],
        moments: NoisyProducts,
    ) -> MeanSums | None:
        """Those of a question; None where it is not of a mean, or cuts by the number itself."""
        named = {*query.by, *(query.where.columns if query.where else ())}
        number = next((n for n in mechanism.numbers if n.column == query.column), None)
        if query.statistic != "mean" or query.weight or number is None or number.column in named:
            return None
        found, alone = dict[str, dict[int, float]](), (number.column, NUMBER)
        for product, value in zip(mechanism.products, moments.sums.tolist(), strict=True):
            if len(product) == 1 and alone in product:
                found.setdefault("", {})[0] = value
            elif product == (alone, alone):
                squares = value
            elif alone in product:
                ((name, level),) = (part for part in product if part != alone)
                found.setdefault(name, {})[level] = value
        by_level = tuple(
            NoisyTable(
                (name,) if name else (),
                np.array([*values.values()]).reshape([-1] if name else []),
                moments.sigma,
            )
            for name, values in found.items()
        )
        others = tuple(name for name in query.columns if name in named)
        return cls(query, others, number, by_level, squares, domain, tables)

    def figures(self, rows: Rows) -> tuple[Summed, ...] | None:
        """Each group's figure and how wide noise makes it; None where sums do not tell all of them.

        Raises:
            OutputError: there are too many cells or groups.
        """
        plain = replace(self.query, statistic="count", column=None, columns=self.others)
        sums = self._solver(self.by_level, self.others)
        found = list[Summed]()
        cells = roles(plain, [self.domain[name] for name in self.others])
        known = roles(self.query, self._pairs.measured.columns)
        both = zip(by_groups(plain, cells), by_groups(self.query, known), strict=True)
        for (group, asked), (_, whole) in both:
            inside = asked.one[None].astype(np.float64)
            counted = self._counted(inside, whole.one)
            if asked.cut.any() or sums.missing(inside) or counted is None:
                return None
            total = sums.functionals(inside)
            n, d = float(total.values[0]), float(counted.values[0])
            values = [n, d, self._squares(whole.one, n, d)] * 2
            noise = [total.covariance[0, 0], counted.covariance[0, 0], 0.0] * 2
            told = Functionals(np.array(values), np.diag(noise))
            of_mean = ratio_figure("mean", told, (-1.0, 1.0), rows, group)
            if of_mean.estimate in (-1.0, 1.0):
                of_mean = replace(of_mean, estimate=None)
            half = self.number.half
            found.append((of_mean.in_unit(half, self.number.middle), half * noise_width(told)))
        return tuple(found)

    @cached_property
    def _pairs(self) -> LeastSquares:
        """Counts of all columns of the question, on the groups of levels that pairs have."""
        return LeastSquares(measured(self.tables, self.domain, self.query.columns, grouped=True))

    def _solver(self, tables: Sequence[NoisyTable], names: Sequence[str]) -> LeastSquares:
        return LeastSquares(measured(tables, self.domain, names, grouped=False))

    @cached_property
    def _without(self) -> LeastSquares:
        return self._solver(self.tables, self.others)

    def _counted(self, inside: Floats, whole: npt.NDArray[np.bool_]) -> Functionals | None:
        """The rows of a group that have the number; None where no tables tell them."""
        solver = self._without
        if self.domain[self.number.column].missing:
            solver, inside = self._pairs, whole[None].astype(np.float64)
        return None if solver.missing(inside) else solver.functionals(inside)

    def _squares(self, whole: npt.NDArray[np.bool_], n: float, d: float) -> float:
        """The sum of u^2 over a group of d rows whose u add up to `n`.

        Its variance is that of middles of levels, and of numbers that lie evenly in theirs, where
        tables tell it; else squares are at most those of all rows. A deviation of the noise is
        added, as half of the intervals would else leave out the sampling that noise took away.
        """
        if not self.others or d <= 0:
            return self.squares + self.by_level[0].sigma
        columns = self._pairs.measured.columns
        axis = [column.name for column in columns].index(self.number.column)
        low, high = (np.array(value_bounds(columns[axis])) - self.number.middle) / self.number.half
        middle, within = np.nan_to_num((low + high) / 2), np.nan_to_num((high - low) ** 2 / 12)
        asked = np.stack(
            [along(v, axis, len(columns)) * whole for v in (middle, middle**2 + within)]
        )
        if self._pairs.missing(asked):
            return min(self.squares + self.by_level[0].sigma, d)
        found = self._pairs.functionals(asked)
        first, second = map(float, found.values / d)
        by = np.array([-2 * first, 1.0]) / d
        noise = float(np.sqrt(by @ found.covariance @ by))
        return n**2 / d + d * (max(second - first**2, 0.0) + noise)


def mean_figures(
    query: Query,
    mechanism: ProductSums,
    domain: Domain,
    tables: Sequence[NoisyTable],
    moments: NoisyProducts,
    rows: Rows,
) -> tuple[Summed, ...] | None:
    """The figures of a mean by the sums of its number; None where they do not tell it."""
    sums = MeanSums.of(query, mechanism, domain, tables, moments)
    return None if sums is None else sums.figures(rows)


def visits_mean(
    query: Query,
    frame: VisitFrame,
    moments: NoisyProducts,
    persons: tuple[Domain, Sequence[NoisyTable]],
    holdout: float,
) -> tuple[Summed, ...] | None:
    """The figure of a mean over all visits; None where the sums do not tell it. `persons` are the
    tables of persons, and their domain.
    """
    own = next((c for c in frame.added[1] if frame.now(c.name) == query.column), None)
    if own is None or query.statistic != "mean" or query.by or query.where or query.weight:
        return None
    s, c = frame.now(own.name), frame.many(own.name if own.missing else "number")
    from synthdp.model.visits.planning import person_sums  # pandas: single tables do without

    products = person_sums(frame).products
    sums = dict(zip(products, moments.sums.tolist(), strict=True))

    def of(*names: str) -> float:
        return float(sums[tuple((name, NUMBER) for name in sorted(names))])

    total, squares, both, sigma = of(s), of(s, s), of(s, c), moments.sigma
    if own.missing:
        count, counts, noise = of(c), of(c, c), (sigma**2, sigma**2)
    else:
        domain, tables = persons
        known = measured(tables, domain, (frame.now("number"),), grouped=False)
        part = np.arange(frame.most + 1) / frame.most
        found = LeastSquares(known).functionals(np.stack([part, part**2]))
        count, counts = found.values.tolist()
        noise = float(found.covariance[0, 0]), float(found.covariance[1, 1])
    rows, most = Rows(holdout), frame.most
    about, variance = max(0.0, count * most) / (1 - holdout), noise[0] * most**2
    if not certain(count * most, variance):
        return ((too_few(None, count * most, variance, rows), math.inf),)
    r, of_noise = total / count, Quadratic(sigma**2, 0.0, noise[0])
    # A deviation of the noise is added: it may have taken as much of the spread away.
    spread = max(squares - 2 * r * both + r**2 * counts, 0.0)
    spread += math.sqrt(sigma**2 * (1 + 4 * r**2) + r**4 * noise[1])
    population = ratio_interval(total, count, of_noise.plus(Quadratic(spread, 0.0, 0.0)))
    of_rows = ratio_interval(total, count, of_noise)
    low, high = np.clip((-1.0, 1.0) if population is None else population, -1, 1).tolist()
    inner = None if of_rows is None else tuple(np.clip(of_rows, -1, 1).tolist())
    estimate = r if -1 < r < 1 else None
    half = (own.upper - own.lower) / 2
    figure = Figure(None, about, estimate, (low, high), inner).in_unit(half, own.lower + half)
    return ((figure, 2 * Z * half * math.sqrt(sigma**2 + r**2 * noise[0]) / count),)


def narrower(summed: Summed, by_levels: Figure, width: float) -> Figure:
    """A figure by sums, beside that of tables, if noise makes it narrower than `width`; else the
    other. What noise makes of both intervals is not asked: the lucky one would be taken.
    """
    by_sums, own = summed
    if by_sums.refused or (by_levels.refused is None and width <= own):
        return by_levels
    return replace(by_sums, by_levels=by_levels.interval)


SPREAD = (
    "the sampling is right where the outcome spreads about the line by the same everywhere; where"
    " it spreads more in a rare group, the interval of that group's coefficient is too narrow"
)
TWO_VALUED = (
    "of two categories the spread is the most that their shares allow in each group: the interval"
    " is right if the line is, and may be wider than it need be"
)


def regression_figures(design: Design, noisy: NoisyProducts, rows: Rows) -> tuple[Figure, ...]:
    """One figure for each coefficient; those are refused whose own direction noise leaves unsure.

    Estimates are those of the steadied moment matrix; whether one is sure is asked of the noisy
    one, in which noise alone would leave nothing. The spread about the line is that about the line
    of the directions that noise leaves sure, which is no less.
    """
    moments, size = design.moments(noisy.sums), len(design.names)
    gram, count = moments[:-1, :-1], float(moments[0, 0])
    about = max(0.0, count) / (1 - rows.holdout)
    why = "too few rows, or a term that hardly differs from others, for this noise"
    if count < SETTINGS.fewest + size:
        return tuple(Figure(name, about, refused=why) for name in design.names)
    values, axes = np.linalg.eigh(gram)
    seen = values > max(ESTIMANDS.least * noisy.sigma * math.sqrt(size), 1e-12 * float(values[-1]))
    line = axes[:, seen] @ (axes[:, seen].T @ moments[:-1, -1] / values[seen])
    residual = np.append(-line, 1.0)
    squares = max(float(residual @ moments @ residual), 0.0) / (count - size)
    groups = shares_of(design, moments, noisy.sigma) if design.two_valued else None
    steady = design.steadied(gram, noisy.sigma)
    theta = np.linalg.pinv(steady, hermitian=True) @ moments[:-1, -1]
    found = []
    each = zip(design.functions, design.names, design.directions(steady), strict=True)
    for function, name, (c, w, d) in each:
        both = of_rows = None
        if d and design.sure(w, float(w @ gram @ w), noisy.sigma):
            sampling = squares * d if groups is None else min(d, two_valued(design, groups, w))
            both, of_rows = (
                _interval(design, noisy.sigma, w, d, theta, float(c @ theta), variance)
                for variance in (rows.per_unit * sampling, 0.0)
            )
        if both is None or of_rows is None:
            found.append(Figure(name, about, refused=why))
            continue
        shift = design.outcome.middle if function == () else 0.0
        scaled = Figure(name, about, float(c @ theta), both, of_rows)
        found.append(scaled.in_unit(design.outcome.half, shift))
    return tuple(found)


@dataclass(frozen=True)
class Group:
    """Rows with one level of a category (all rows: None), and the most that their outcome, of two
    values, spreads about its mean: the sum of its variances.
    """

    level: Part | None
    spread: float


def shares_of(design: Design, moments: Floats, sigma: float) -> list[list[Group]]:
    """All rows as one group, and for each category the groups of its levels.

    n rows whose outcome in {-1, 1} has the sum s have variances of n (1 - m^2) at most in sum, with
    m = s / n, whatever each row's probability is (Jensen). Of noisy n and s the least extreme
    within `caution` deviations is taken.
    """

    def group(level: Part | None, n: float, s: float, sd: float) -> Group:
        most = max(n + SETTINGS.caution * sd, 0.0)
        least = max(abs(s) - SETTINGS.caution * sd, 0.0)
        return Group(level, most - least**2 / most if 0 < least < most else most)

    n, s = float(moments[0, 0]), float(moments[0, -1])
    found = [[group(None, n, s, sigma)]]
    alone = {f[0]: i for i, f in enumerate(design.functions) if len(f) == 1 and f[0][1] != NUMBER}
    for name in dict.fromkeys(name for name, _ in alone):
        places = {part: i for part, i in alone.items() if part[0] == name}
        rows, sums = moments[[*places.values()], 0], moments[[*places.values()], -1]
        wide = sigma * math.sqrt(1 + len(places))  # of the first level, which is what others leave
        first = group((name, 0), n - float(rows.sum()), s - float(sums.sum()), wide)
        others = zip(places, rows.tolist(), sums.tolist(), strict=True)
        found.append([first, *(group(part, k, t, sigma) for part, k, t in others)])
    return found


def two_valued(design: Design, groupings: list[list[Group]], w: Floats) -> float:
    """A bound of the sum of (w' x)^2 times the variance of an outcome of two values.

    In a group it is at most the square of the largest |w' x| there times the group's spread.
    """
    return min(
        sum(reach(design, w, group.level) ** 2 * group.spread for group in groups)
        for groups in groupings
    )


def reach(design: Design, w: Floats, given: Part | None) -> float:
    """A bound of |w' x| over rows (of one level): of a term's functions a row has one at most."""
    low, high = 0.0, 0.0
    terms: dict[frozenset[str], list[tuple[float, float]]] = {}
    for function, weight in zip(design.functions, w.tolist(), strict=True):
        levels = {part for part in function if part[1] != NUMBER}
        if given and any(name == given[0] for name, _ in levels) and given not in levels:
            continue
        if len(levels) < len(function):
            ends = (-abs(weight), abs(weight))
        elif levels <= {given}:  # each of these rows has it
            low, high = low + weight, high + weight
            continue
        else:
            ends = (weight, weight)
        terms.setdefault(frozenset(name for name, _ in function), []).append(ends)
    for ways in terms.values():
        low += min(0.0, *(least for least, _ in ways))
        high += max(0.0, *(most for _, most in ways))
    return max(abs(low), abs(high))


def _interval(
    design: Design,
    sigma: float,
    w: Floats,
    d: float,
    theta: Floats,
    t: float,
    sampling: float,
) -> Interval | None:
    """The interval of c' theta: all t with (w' (s - S theta_t))^2 <= z^2 variance(t).

    theta_t solves the equations but for the direction w, under c' theta_t = t. `sampling` is the
    part of the variance that is the sample's.
    """
    of_start = design.by_product(w, np.append(t * w - theta, 1.0))
    of_t = design.by_product(w, np.append(w, 0.0))
    nn, nd, dd = (sigma**2 * float(a @ b) for a, b in (
        (of_start, of_start), (of_start, of_t), (of_t, of_t)
    ))  # fmt: skip
    return ratio_interval(d * t, d, Quadratic(nn + sampling, nd, dd))


def about_regression(
    spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, design: Design
) -> Iterator[str]:
    """What the coefficients are of, in sentences."""
    columns = dict.fromkeys(n for f in design.functions for n, _ in f)
    yield "measured: sums of products that this release paid for; least squares"
    for name in columns:
        if not domain[name].ranged:
            yield f"{name}: its levels are compared with {domain[name].labels[0]}"
    lacking = [n for n in (*columns, estimand.outcome) if spec.columns[n].missing]
    if lacking:
        yield f"rows that lack {listed(lacking)} are left out"
    yield f"{POPULATION}; {TWO_VALUED if design.two_valued else SPREAD}"
    yield from counted(spec, [n for n in columns if not domain[n].ranged])
    yield from map(clamped, (*design.numbers, design.outcome))


OVERLAP = "where both groups overlap"


@dataclass(frozen=True)
class MeasuredContrast:
    """`rest`, the sum of n_1 n_0 / n (effect - `guess`) over strata, and `overlap`, that of
    n_1 n_0 / n, with the `noise` of rest - t overlap; `spread`, the sampling variance of `rest`.
    """

    guess: float
    rest: float
    overlap: float
    noise: Quadratic
    spread: float

    @classmethod
    def of(cls, sums: NoisySums) -> MeasuredContrast | None:
        """What the contrast of released sums says; None where none was measured."""
        if sums.contrast is None:
            return None
        sigma, drawn = sums.sigma, sums.contrast.sigma
        design = ContrastDesign.of(sums, drawn)
        most = most_of(design.weights, *design.centres)
        rest, spread, squares = (sums.contrast.sums * most / [1.0, SQUARE, SQUARE]).tolist()
        # The squared weights, measured and by the counts, as much of both as has least noise.
        of_counts = sigma**2 * float((design.weights**4).sum())
        of_squares = (drawn * float(most[2]) / SQUARE) ** 2
        part = of_counts / (of_counts + of_squares)
        total = part * squares + (1 - part) * design.squared
        # Likewise how far numbers spread.
        n, sums_of, squares_of = (
            part.reshape(2, -1) for part in (sums.counts, sums.sums, sums.squares)
        )
        a, about = design.weights**2, design.centres[1]
        by_strata = float((a * (squares_of - 2 * about * sums_of + about**2 * n)).sum())
        of_strata = sigma**2 * float((a**2 * (SQUARE**-2 + 4 * about**2 + about**4)).sum())
        of_sum = (drawn * float(most[1]) / SQUARE) ** 2
        spread = (of_strata * spread + of_sum * by_strata) / (of_strata + of_sum)
        spread = above_zero(spread, math.sqrt(of_strata * of_sum / (of_strata + of_sum)))
        strata = design.weights.shape[1]
        freedom = 1 / (1 - strata / max(float(sums.counts.sum()), 2.0 * strata))  # of their means
        extra = design.variance + (drawn * float(most[0])) ** 2
        return cls(
            design.guess,
            rest - design.beside + design.guess * design.lost,
            total - design.lost,
            Quadratic(extra, 0.0, part * of_squares),
            freedom * spread,
        )


def above_zero(seen: float, sd: float) -> float:
    """The mean of what is known to be at least 0 and was seen with normal noise `sd`.

    >>> above_zero(9.0, 1.0), round(above_zero(0.0, 1.0), 3)
    (9.0, 0.798)
    """
    x = max(seen / sd, -5.0)
    density = math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return max(seen, -5.0 * sd) + sd * density / (math.erfc(-x / math.sqrt(2)) / 2)


def contrast_figure(sums: NoisySums, number: Bounded, rows: Rows) -> Figure:
    """The effect of the first arm against the second where both arms overlap (ATO).

    psi = guess + rest / overlap, with the interval of the ratio.
    """
    found = MeasuredContrast.of(sums)
    assert found is not None
    about, noise = 4 * found.overlap / (1 - rows.holdout), found.noise
    refused = of_cells.too_few(OVERLAP, about, 16 * noise.dd, rows)
    if float(sums.counts.sum(0).mean()) < SETTINGS.fewest:
        why = f"fewer than {SETTINGS.fewest:,.0f} rows in an average stratum"
        return Figure(OVERLAP, refused.rows, refused=why)
    if not of_cells.certain(4 * found.overlap, 16 * noise.dd):
        return refused
    sampling = Quadratic(rows.per_unit * found.spread, 0.0, 0.0)
    both, of_rows = (
        of_cells.ratio_interval(found.rest, found.overlap, variance)
        for variance in (noise.plus(sampling), noise)
    )
    if both is None or of_rows is None:
        return refused
    told = Figure(OVERLAP, about, found.rest / found.overlap, both, of_rows)
    return told.in_unit(number.half, found.guess * number.half)
