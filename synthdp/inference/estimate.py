"""Weighted least squares over all margins: unbiased, linear, and of known noise.

Let N be the true counts of the cells of a question's columns. A margin over the axes S is
y_S = A_S N + noise, where A_S sums over the other axes. The normal equations of weights w_S,

    M N = sum_S w_S A_S' y_S,   M = sum_S w_S A_S' A_S,

are solved in closed form. Let P_T be the projection of tables on the interaction of the axes T:
mean over the other axes, deviation from the mean along those of T. A_S' A_S is the product of the
sizes of the axes outside S on P_T where T is part of S, and 0 elsewhere, so that

    M = sum_T lambda_T P_T,   lambda_T = sum over S that contain T of w_S prod_{i not in S} L_i.

A functional c'N is determined by the margins if and only if P_T c = 0 wherever lambda_T = 0
[derived in docs/inference.md]. Nothing is clipped or smoothed: that would bias, and an interval
could not say by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from synthdp.inference.tables import Axes, Margin, Measured

Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""Part of a functional that may lie outside of what was measured: rounding."""


@dataclass(frozen=True)
class Functionals:
    """Estimates `[k]` of k linear functionals of the counts, and their covariance `[k, k]`.

    The covariance is that of the tables' noise alone; the counts are fixed.
    """

    values: Floats
    covariance: Floats


@dataclass(frozen=True)
class Agreement:
    """How well the margins of different tables agree: a chi-square statistic of the noise."""

    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """Probability of a statistic at least as large, if every table counts the same rows."""
        return float(chdtrc(self.degrees, self.statistic))

    def to_json(self) -> dict[str, float]:
        """The same in plain JSON."""
        return {"chi_square": self.statistic, "degrees": self.degrees, "p": self.p}


@dataclass(frozen=True)
class LeastSquares:
    """The least-squares estimator of a question's counts."""

    measured: Measured

    @cached_property
    def weights(self) -> dict[Axes, float]:
        """One weight for each margin: the inverse of its mean variance.

        Where the variance differs between the cells of a margin (sums over groups of levels), the
        estimator is unbiased still, and `functionals` computes its true covariance.
        """
        return {axes: 1 / float(m.variances.mean()) for axes, m in self.measured.margins.items()}

    @cached_property
    def eigenvalues(self) -> dict[Axes, float]:
        """lambda_T of each set of axes T."""
        sizes = dict(enumerate(self.measured.shape))
        return {
            t: math.fsum(
                weight * math.prod(size for i, size in sizes.items() if i not in axes)
                for axes, weight in self.weights.items()
                if t <= axes
            )
            for t in _subsets(len(sizes))
        }

    def missing(self, functionals: Floats) -> list[Axes]:
        """The interactions that `functionals` `[k, *cells]` need and no table has.

        It is empty where the margins determine all of them.
        """
        scale = np.sqrt((functionals**2).sum())
        return [
            axes
            for axes, part in _interactions(functionals, len(self.measured.shape))
            if not self.eigenvalues[axes]
            and np.sqrt((part**2).sum()) * math.sqrt(functionals[0].size / part[0].size)
            > TOLERANCE * scale
        ]

    def solved(self, right: Floats) -> Floats:
        """The solution of least norm of M x = `right`, `[k, *cells]` both."""
        found = np.zeros(right.shape)
        for axes, part in _interactions(right, len(self.measured.shape)):
            if self.eigenvalues[axes]:
                found += part / self.eigenvalues[axes]
        return found

    @cached_property
    def counts(self) -> Floats:
        """Estimated rows of each cell; some may be negative. Unbiased where one table is whole."""
        counts: Floats = self.solved(self._right[None])[0]
        return counts

    @cached_property
    def _right(self) -> Floats:
        right = np.zeros(self.measured.shape)
        for axes, margin in self.measured.margins.items():
            right += self.weights[axes] * margin.counts
        return right

    def functionals(self, functionals: Floats) -> Functionals:
        """Estimates of functionals `[k, *cells]`, none of which has an interaction `missing`."""
        k = len(functionals)
        values, covariance = np.zeros(k), np.zeros((k, k))
        for a, margin in self._loadings(functionals):
            values += a @ margin.counts.ravel()
            covariance += (a * margin.variances.ravel()) @ a.T
        return Functionals(values, covariance)

    def each(self, functionals: Floats) -> tuple[Floats, Floats]:
        """As `functionals`, without covariances: estimates and their variances, `[k]` both."""
        values, variances = np.zeros(len(functionals)), np.zeros(len(functionals))
        for a, margin in self._loadings(functionals):
            values += a @ margin.counts.ravel()
            variances += a**2 @ margin.variances.ravel()
        return values, variances

    def _loadings(self, functionals: Floats) -> Iterator[tuple[Floats, Margin]]:
        """Each margin with what functionals make of its cells, `[k, cells of the margin]`.

        c'N is estimated by sum_S a_S'y_S with a_S = w_S A_S M^+ c.
        """
        solved = self.solved(functionals)
        for axes, margin in self.measured.margins.items():
            others = tuple(i + 1 for i in range(len(self.measured.shape)) if i not in axes)
            summed = solved.sum(axis=others, keepdims=True)
            yield self.weights[axes] * summed.reshape(len(functionals), -1), margin

    def agreement(self) -> Agreement | None:
        """Whether the tables agree on what they share, within their noise.

        r'V^-1 r of all residuals is chi-square with as many degrees of freedom as there are cells
        of margins beyond the rank of M. Where the variance differs between the cells of a margin
        the fit is not the best, and only tables over the same columns are compared. None where
        nothing was counted twice.
        """
        margins = self.measured.margins.values()
        statistic = math.fsum(m.statistic for m in margins)
        degrees = sum(m.degrees for m in margins)
        if all(np.ptp(m.variances) <= 1e-9 * m.variances.mean() for m in margins):
            statistic += self._left()
            degrees += sum(m.counts.size for m in margins) - self._rank()
        return Agreement(statistic, degrees) if degrees else None

    def _rank(self) -> int:
        sizes = self.measured.shape
        found = (axes for axes, value in self.eigenvalues.items() if value)
        return sum(math.prod(sizes[i] - 1 for i in axes) for axes in found)

    def _left(self) -> float:
        """The sum of squared residuals of the margins over the variance of their noise."""
        left = 0.0
        for axes, margin in self.measured.margins.items():
            others = tuple(i for i in range(len(self.measured.shape)) if i not in axes)
            residual = margin.counts - self.counts.sum(axis=others, keepdims=True)
            left += float((residual**2 / margin.variances).sum())
        return left


def _subsets(count: int) -> Iterator[Axes]:
    """All sets of axes, the empty one first."""
    for size in range(count + 1):
        yield from map(frozenset, combinations(range(count), size))


def _interactions(tables: Floats, count: int) -> Iterator[tuple[Axes, Floats]]:
    """P_T of tables `[k, *cells]` for every set of axes T; axes outside T have length 1."""
    parts: list[tuple[Axes, Floats]] = [(frozenset(), tables)]
    for axis in range(count):
        following: list[tuple[Axes, Floats]] = []
        for axes, part in parts:
            mean = part.mean(axis=axis + 1, keepdims=True)
            following += [(axes, mean), (axes | {axis}, part - mean)]
        parts = following
    yield from parts
