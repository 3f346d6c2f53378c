"""A public basis of bounded functions of a row: what moment matrices are made of.

Every column becomes a few functions with values in [-1, 1] and mean zero under a uniform reference:
ranged columns are taken to [-1, 1] by a public monotone scale and get Legendre polynomials;
categories get orthogonal contrasts of their indicator vector. Products of functions of different
columns model interactions. A missing number is a
state: its polynomials are zero and one more function says that it is missing.

Nothing here is fitted to rows: scales, degrees and weights are constants of the spec, or come from
released tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from numpy.polynomial import legendre
from scipy.linalg import helmert

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, to_numbers
from synthdp.errors import SynthdpError

if TYPE_CHECKING:
    import pandas as pd


Floats = npt.NDArray[np.float64]

MAX_LEVELS = 12  # categories of an unordered column that still get a contrast each


@dataclass(frozen=True)
class Scale:
    """A monotone public map of a column's numbers to [-1, 1].

    Linear between `knots`, whose images are `values`; constant beyond. It comes from the declared
    range, or from a released table of the column's levels.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, numbers: Floats) -> Floats:
        """Scaled numbers, same shape; NaN stays. Between knots that lie nearer than doubles have a
        slope for, `interp` may be infinite.
        """
        return np.clip(np.interp(numbers, self.knots, self.values), -1.0, 1.0)


def range_scale(column: ColumnDomain) -> Scale:
    """The declared range to [-1, 1]."""
    return Scale((column.lower, column.upper), (-1.0, 1.0))


def rank_scale(column: ColumnDomain, counts: Floats) -> Scale:
    """Twice the distribution function minus one, by a noisy table of the levels, `[levels]`.

    A column of that distribution becomes uniform, whatever its units and tails; a spike goes to the
    middle of its step. Without any count above zero it is the range's scale.
    """
    mass = np.maximum(counts[: column.levels - column.missing], 0.0)
    if mass.sum() <= 0:
        return range_scale(column)
    # A spike's numbers are the spike itself, so that any narrow interval holds them.
    half = 1e-6 * (column.upper - column.lower) if column.continuous else 0.5
    steps = [(s - half, s + half, m) for s, m in zip(column.spikes, mass, strict=False)]
    ends = (*column.edges[1:], column.stop)
    bins = [
        (a, b, m) for a, b, m in zip(column.edges, ends, mass[len(column.spikes) :], strict=True)
    ]
    knots = np.unique([x for a, b, _ in steps + bins for x in (a, b)])
    total = np.zeros(len(knots))
    for a, b, m in steps + bins:
        total += m * np.clip((knots - a) / (b - a), 0.0, 1.0)
    return Scale(tuple(map(float, knots)), tuple(map(float, 2 * total / mass.sum() - 1)))


@dataclass(frozen=True)
class Term:
    """A product of elementary functions `(column, k)`, 1 without any, times `weight`."""

    factors: tuple[tuple[str, int], ...]
    weight: float

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(c for c, _ in self.factors)


@dataclass(frozen=True)
class Basis:
    """The constant, and weighted functions of columns and of combinations of columns.

    `columns`: those that take part; `degree`: of each ranged column's polynomials; `interaction`:
    most total degree of a product over several columns (1: no products); `weights`: by total
    degree, from degree 1 on; small weights keep costly terms from taking the noise budget of the
    others; none is above 1. `scales`: maps other than the declared range.
    """

    domain: Domain
    columns: tuple[str, ...]
    degree: int = 1
    interaction: int = 1
    weights: tuple[float, ...] = (1.0, 0.5, 0.5)
    scales: tuple[tuple[str, Scale], ...] = ()

    def __post_init__(self) -> None:
        if not self.weights or not all(0 <= w <= 1 for w in self.weights):
            message = "weights must lie between 0 and 1, so that no function exceeds 1"
            raise ValueError(f"{message}; got {self.weights}")
        for name in self.columns:
            column = self.domain[name]
            if not column.ranged and column.levels > MAX_LEVELS:
                raise SynthdpError(
                    f"column {name!r} has {column.levels} categories, at most {MAX_LEVELS} fit a"
                    " moment matrix",
                    hint="use algorithm measured_pc",
                )
        if len(self.terms) > 1024:
            message = f"a basis of {len(self.terms)} functions, at most 1024 are allowed"
            raise SynthdpError(message, hint="leave columns out")

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The constant first, then each column's own functions, then products."""
        single = [
            Term(((name, k),), self._weight(degree))
            for name in self.columns
            for k, degree in self._elements(name)
        ]
        return (Term((), 1.0), *single, *self._products())

    def _elements(self, name: str) -> list[tuple[int, int]]:
        """(k, degree) of a column's elementary functions."""
        column = self.domain[name]
        if not column.ranged:
            return [(k, 1) for k in range(1, column.levels)]
        polynomials = [(k, k) for k in range(1, self.degree + 1)]
        return polynomials + ([(0, 1)] if column.missing else [])

    def _products(self) -> list[Term]:
        products = []
        for size in range(2, self.interaction + 1):
            for names in combinations(self.columns, size):
                for chosen in product(*map(self._elements, names)):
                    total = sum(degree for _, degree in chosen)
                    if total <= self.interaction:
                        factors = tuple((n, k) for n, (k, _) in zip(names, chosen, strict=True))
                        products.append(Term(factors, self._weight(total)))
        return products

    def _weight(self, degree: int) -> float:
        return self.weights[min(degree, len(self.weights)) - 1]

    @cached_property
    def largest(self) -> float:
        """The largest squared norm of a row's functions, or more: each is at most its weight."""
        return float(sum(t.weight**2 for t in self.terms))

    def norm(self, *, deviations: float) -> float:
        """A norm that few rows exceed if columns are uniform and independent.

        It is the mean plus `deviations` of the squared norm; a public choice: rows beyond it are
        scaled down, whatever the columns' true law is.
        """
        squared = (self.reference() ** 2).sum(1)
        return float(np.sqrt(min(self.largest, squared.mean() + deviations * squared.std())))

    def reference(self, rows: int = 4096) -> Floats:
        """Functions of uniform and independent columns, `[rows, terms]`: public, and no data."""
        rng, values = np.random.Generator(np.random.Philox(key=0)), dict[str, Floats]()
        for column in map(self.domain.__getitem__, self.columns):
            low, high = (-1, 1) if column.ranged else (0, column.levels)
            drawn = rng.uniform(low, high, rows)
            values[column.name] = drawn if column.ranged else np.floor(drawn)
        return self._of(values)

    def matrix(self, frame: pd.DataFrame, codes: Codes) -> Floats:
        """Functions of each row, `[rows, terms]`. Each row's depend on that row alone.

        `frame`: cleaned values by column; `codes`: levels `[rows, columns of the domain]`.
        """
        return self._of(self.scaled(frame, codes))

    def scaled(self, frame: pd.DataFrame, codes: Codes) -> dict[str, Floats]:
        """Each column's scaled numbers (NaN where missing), or its levels, `[rows]`."""
        values: dict[str, Floats] = {}
        for name in self.columns:
            column, level = self.domain[name], codes[:, self.domain.index(name)]
            if not column.ranged:
                values[name] = level.astype(np.float64)
                continue
            if column.step_seconds is not None:
                # Cleaned instants are drawn inside their bins; the bin's centre is the row's own.
                numbers = np.append(column.centres, [np.nan] * column.missing)[level]
            else:
                numbers = to_numbers(column, frame[name])
            values[name] = (dict(self.scales).get(name) or range_scale(column))(numbers)
        return values

    def _of(self, values: Mapping[str, Floats]) -> Floats:
        elementary: dict[tuple[str, int], Floats] = {}
        for name in self.columns:
            column = self.domain[name]
            if column.ranged:
                known = ~np.isnan(values[name])
                powers = np.asarray(
                    legendre.legvander(np.where(known, values[name], 0.0), self.degree)
                    * known[:, None],
                    dtype=np.float64,
                )
                elementary.update({(name, k): powers[:, k] for k in range(1, self.degree + 1)})
                elementary[name, 0] = (~known).astype(np.float64)
            else:
                # Orthogonal Helmert contrasts of each level, rows of norm below 1.
                contrasts: Floats = helmert(column.levels).T[values[name].astype(np.intp)]
                elementary.update({(name, k): contrasts[:, k - 1] for k in range(1, column.levels)})
        rows = len(values[self.columns[0]])
        matrix = np.empty((rows, len(self.terms)))
        for i, term in enumerate(self.terms):
            matrix[:, i] = term.weight
            for factor in term.factors:
                matrix[:, i] *= elementary[factor]
        return matrix


@dataclass(frozen=True)
class KernelGrid:
    """A Gaussian kernel on a public grid of [-1, 1], as finitely many features.

    Each number in [-1, 1] is moved to the nearest of `points` of the grid; features are exact up to
    the grid and 1e-9. NaN is a state of its own, with features zero.
    """

    bandwidth: float = 0.5
    points: int = 257

    @cached_property
    def features(self) -> Floats:
        """Features of each point and of NaN; products make the kernel, `[points + 1, features]`."""
        grid = np.linspace(-1, 1, self.points)
        values, vectors = np.linalg.eigh(
            np.exp(-((grid[:, None] - grid) ** 2) / (2 * self.bandwidth**2))
        )
        kept = values > 1e-9
        return np.vstack([vectors[:, kept] * np.sqrt(values[kept]), np.zeros(kept.sum())])

    @cached_property
    def diameter(self) -> float:
        """Largest distance of two features."""
        squares = (self.features**2).sum(1)
        distances = squares[:, None] + squares - 2 * self.features @ self.features.T
        return float(np.sqrt(distances.max()))

    def __call__(self, numbers: Floats) -> Floats:
        """Features of each number, `[rows, features]`."""
        clipped = np.clip(np.where(np.isnan(numbers), 0.0, numbers), -1.0, 1.0)
        points = np.rint((clipped + 1) / 2 * (self.points - 1)).astype(np.intp)
        chosen: Floats = self.features[np.where(np.isnan(numbers), self.points, points)]
        return chosen


def scatter(first: Floats, second: Floats) -> float:
    """The norm of sum (a_i - mean a) (x) (b_i - mean b).

    It is rows times the square root of the biased HSIC of Gretton et al. (2005). `first`, `second`:
    features `[rows, .]`. Zero for no rows. Adding a row (a, b) to n others adds n / (n + 1) (a -
    mean a) (x) (b - mean b), so it moves the norm by at most the product of the diameters, whatever
    n: no number of rows is needed to state it [derived here; |u (x) v| = |u| |v|, and a mean of
    points is no further from a than the furthest of them].
    """
    if not len(first):
        return 0.0
    return float(np.linalg.norm((first - first.mean(0)).T @ second))
