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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame
from synthdp.inference.figures import (
    Figure,
    Floats,
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
from synthdp.inference.least_squares import Functionals, LeastSquares, measured
from synthdp.inference.words import whom
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NUMBER, Bounded, NoisyProducts, ProductSums
from synthdp.spec.expressions.query import Query
from synthdp.spec.model import ReleaseSpec

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


def about_sums(query: Query, spec: ReleaseSpec) -> Iterator[str]:
    """What figures by sums are of, in sentences."""
    yield f"measured: sums of the numbers of {query.column} themselves, beside the tables"
    yield from whom(query, spec, measured=True)
