"""Means by sums of numbers that a release measured: their intervals narrow with rows and epsilon.

The sum of u = (number - middle) / half over the rows of a group is found by least squares on the
sums over all rows and over the rows of each level of some columns, as counts are
(`least_squares`). Over the noisy number of rows it is a mean, with the interval of a ratio [derived
in docs/inference.md].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.inference.figures import (
    Figure,
    Floats,
    Rows,
    along,
    by_groups,
    noise_width,
    ratio_figure,
    roles,
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
