"""Tests of trends along ordered columns, from the sums of products of a few scores of each column.

A chi-square test of two columns of r and c levels has (r - 1)(c - 1) degrees of freedom, and the
noise of as many coordinates. Most dependence of ordered columns lies in a few of them: straight
trends and bends. So a column is described by a few scores of its levels: polynomials of its ridits
up to order `order`, and whether a value is missing; a column without an order, or of few levels, by
one score per level but one. Scores P are orthonormal under the column's shares a: P' diag(a) P = I
and P' a = 0. A noisy table N of two columns then gives their correlations S = P' N Q / n, which do
not change to first order with errors of a and b, and whose noise has the covariance (s / n)^2
(P'P) (x) (Q'Q).

Given other columns z, the partial sums are C = S_xy - B_x' S_zy with B_x = S_zz^-1 S_zx, B_y alike:
the residuals' covariance. They need tables of pairs alone, however many columns are given. To first
order their noise is e_xy - B_x' e_zy - e_xz B_y + B_x' e_zz B_y, with e the noise of S; under
independence sampling adds (R_x (x) R_y) / n, with R the residuals' own covariances [derived here,
the delta method; the two terms of one e_zz are bounded by twice the sum of their covariances].

A column that is counted on groups of levels explains less than it could, which would leave
dependence behind. A polynomial of order k of uniform ridits loses the share k (k + 1)(2 k + 1) / 6
times sum m^3 of its variance inside groups of mass m [derived here: the mean square of its slope is
12 times that factor, and ridits vary by m^2 / 12 inside a group]. So S_zz has what is left of each
score's variance on its diagonal: the correction for attenuation.

The statistic is sum c_i f_i y_i^2 / v_i, with v the variances of y = n C, f = sampling's part of
them, and c = 4 / (k (k + 1) l (l + 1)) where scores of order k and l meet: the weights of Anderson
and Darling, which cumulative chi-squared tests have [Hirotsu, "Cumulative chi-squared statistic as
a tool for testing goodness of fit", Biometrika 73 (1986)]. Its null law is the mixture with the
eigenvalues of the scores' covariance under these weights. Effects are (partial) correlations of
straight trends.

Tests of pairs of which a column is ordered and has many levels, beside the tests of all others.

Such a pair is tested twice: for trends (`graph.trend`), and for dependence of any shape by
chi-square. Each test has half of the level, so that together they hold it (Bonferroni). Given
other columns it is tested for trends alone, and only a test that was able to see the pair's own
trend may say that hardly any is left: one that was not says "undecided", whatever it saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.graph import chi_square
from synthdp.graph.chi_square import Answer, Floats, Mixture, Query, kron, normal
from synthdp.graph.knowledge import Pair
from synthdp.graph.margins import pooled
from synthdp.graph.tables import UNDECIDED, NoisyTables, batches, place

Places = npt.NDArray[np.intp]
Shared = Mapping[str, npt.NDArray[np.bool_]]
"""For each column that is counted on groups: which of them hold several levels, `[groups]`."""


@dataclass(frozen=True)
class TrendSettings:
    """Tuning of the tests.

    `few_levels`: up to so many levels a column of numbers is described by all of them, as any
    other; `order`: largest of the polynomials; `min_variance`: least variance that is left to a
    combination of scores, since noise can make it negative. `able`: a test given other columns is
    able if it sees so much of the pair's trend with probability .8; `less`: largest upper bound of
    a test that separates, in trends of the pair alone; `left`: so much of a pair's trend may be
    left by what scores and groups of the given columns miss. `batch`: tests answered at once.
    """

    few_levels: int = 4
    order: int = 3
    min_variance: float = 0.1
    able: float = 1.0
    less: float = 1.0
    left: float = 0.3
    batch: int = 256


SETTINGS = TrendSettings()


def has_order(column: ColumnDomain) -> bool:
    """Whether the order of a column's levels is used."""
    return column.ranged and len(column.centres) > SETTINGS.few_levels


@dataclass(frozen=True)
class Scores:
    """The scores of one column: `values` `[levels, scores]`, orthonormal under its shares.

    `weights` `[scores]` is what each counts for, and `kept` the share of its variance that groups
    of levels keep.
    """

    values: Floats
    weights: Floats
    kept: Floats

    @classmethod
    def of(cls, column: ColumnDomain, share: Floats, shared: npt.NDArray[np.bool_]) -> Scores:
        """The scores under `share` `[levels]`; `shared` says which levels are groups of several."""
        share = normal(np.maximum(normal(share), 1e-6))
        if not has_order(column):
            raw = np.eye(column.levels)[:, 1:]
            ones = np.ones(raw.shape[1])
            return cls(_orthonormal(raw, share), ones, ones)
        present = np.arange(column.levels) < len(column.centres)
        ascending = np.argsort(column.centres)
        held = share[ascending] / share[present].sum()
        ridit = np.zeros(column.levels)
        ridit[ascending] = held.cumsum() - held / 2 - 0.5
        order = np.arange(1, SETTINGS.order + 1)
        raw = np.where(present[:, None], ridit[:, None] ** order, 0.0)
        lost = (share[shared] ** 3).sum() * order * (order + 1) * (2 * order + 1) / 6
        weights, kept = 2 / (order * (order + 1)), np.maximum(1 - lost, 0.5)
        if column.missing:
            raw = np.column_stack([~present, raw])
            weights, kept = np.append(1.0, weights), np.append(1.0, kept)
        return cls(_orthonormal(raw, share), weights, kept)


def _orthonormal(raw: Floats, share: Floats) -> Floats:
    """`raw` `[levels, scores]` made orthonormal, and of mean zero, one after another."""
    root = np.sqrt(share)[:, None]
    return np.linalg.qr(np.hstack([root, root * raw]))[0][:, 1:] / root


class ScoreSums:
    """The scores' correlations over all pairs that were measured.

    `tables` has the noisy counts of pairs of positions `(i, j)`, with the noise of a cell; `scores`
    those of all columns; `rows` the number of rows.
    """

    def __init__(
        self,
        tables: Mapping[tuple[int, int], tuple[Floats, float]],
        scores: Sequence[Scores],
        rows: float,
    ) -> None:
        self.rows, self.scores = rows, scores
        counts = [len(s.weights) for s in scores]
        ends = np.cumsum([0, *counts])
        self._places = [np.arange(a, b) for a, b in pairwise(ends)]
        self._kept = np.concatenate([s.kept for s in scores])
        self._inner = [s.values.T @ s.values for s in scores]
        self._sums, self._noise = np.eye(ends[-1]), np.full((len(scores), len(scores)), np.nan)
        for (i, j), (table, sigma) in tables.items():
            block = scores[i].values.T @ table @ scores[j].values / rows
            self._sums[np.ix_(self._places[i], self._places[j])] = block
            self._sums[np.ix_(self._places[j], self._places[i])] = block.T
            self._noise[i, j] = self._noise[j, i] = (sigma / rows) ** 2

    def shape(self, x: int, y: int, given: Sequence[int]) -> tuple[int, ...] | None:
        """How many scores each column of a test has; None where a table is lacking."""
        names = [x, y, *given]
        lacking = any(np.isnan(self._noise[a, b]) for a in names for b in names if a < b)
        return None if lacking else tuple(len(self._places[i]) for i in names)

    def mixture_of(self, asked: Places) -> Mixture:
        """The statistic and weights of tests of one shape; x, y, given are `[columns, tests]`."""
        x, y, *z = (np.stack([self._places[i] for i in column]) for column in asked)
        every = np.concatenate(z, axis=1) if z else np.zeros((len(x), 0), np.intp)
        whole, diagonal = self._block(every, every), np.arange(every.shape[1])
        whole[:, diagonal, diagonal] = self._kept[every]
        values, vectors = np.linalg.eigh(whole)
        spread = vectors / np.maximum(values, SETTINGS.min_variance)[:, None, :]
        inverse = spread @ np.swapaxes(vectors, 1, 2)
        to_x, to_y = (inverse @ self._block(every, side) for side in (x, y))
        left = self._block(x, y) - np.swapaxes(to_x, 1, 2) @ self._block(every, y)
        own = [
            np.eye(side.shape[1]) - np.swapaxes(to, 1, 2) @ self._block(every, side)
            for side, to in ((x, to_x), (y, to_y))
        ]
        own_x, own_y = (
            chi_square.with_eigenvalues(
                (matrices + np.swapaxes(matrices, 1, 2)) / 2,
                lambda values: np.maximum(values, SETTINGS.min_variance / 10),
            )
            for matrices in own
        )
        ends = np.cumsum([0, *(places.shape[1] for places in z)])
        parts = [slice(a, b) for a, b in pairwise(ends)]
        noise = self._noise_of(asked, [to_x[:, p] for p in parts], [to_y[:, p] for p in parts])
        sampling = kron(own_x, own_y) * self.rows
        covariance = sampling + noise * self.rows**2
        weights = np.stack(
            [np.outer(self.scores[i].weights, self.scores[j].weights).ravel()
             for i, j in zip(asked[0], asked[1], strict=True)]
        )  # fmt: skip
        return self._mixture((left * self.rows).reshape(len(x), -1), sampling, covariance, weights)

    def _block(self, first: Places, second: Places) -> Floats:
        return self._sums[first[:, :, None], second[:, None, :]]

    def _noise_of(self, asked: Places, to_x: Sequence[Floats], to_y: Sequence[Floats]) -> Floats:
        """Covariance of the partial sums' noise, `[tests, products, products]`."""
        x, y, *z = asked
        of_x, of_y, *inner = (np.stack([self._inner[i] for i in column]) for column in asked)

        def size(first: Places, second: Places) -> Floats:
            return np.asarray(self._noise[first, second][:, None, None], dtype=np.float64)

        by_x = [np.swapaxes(to, 1, 2) @ own @ to for own, to in zip(inner, to_x, strict=True)]
        by_y = [np.swapaxes(to, 1, 2) @ own @ to for own, to in zip(inner, to_y, strict=True)]
        noise = size(x, y) * kron(of_x, of_y)
        for i, column in enumerate(z):
            noise += size(column, y) * kron(by_x[i], of_y)
            noise += size(x, column) * kron(of_x, by_y[i])
            for j in range(i):
                both = kron(by_x[i], by_y[j]) + kron(by_x[j], by_y[i])
                noise += 2 * size(column, z[j]) * both
        return noise

    def _mixture(self, y: Floats, sampling: Floats, covariance: Floats, weights: Floats) -> Mixture:
        own = np.diagonal(sampling, axis1=1, axis2=2)
        variance = np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1.0)
        part = np.clip(own / variance, 0.0, 1.0)
        pull = weights * part
        root = np.sqrt(pull / variance)
        law = np.linalg.eigvalsh(root[:, :, None] * covariance * root[:, None, :])
        straight = weights == 1
        gain = self.rows * (part**2 * straight).sum(1) / straight.sum(1)
        statistic = (pull * y**2 / variance).sum(1)
        return Mixture(statistic, np.maximum(law, 0.0), gain, np.ones(len(y)))


@dataclass
class OrderedTests:
    """The tests on `tables`, which hold every pair that is asked for."""

    domain: Domain
    tables: NoisyTables
    shared: Shared
    trends: dict[Pair, float] = field(default_factory=dict)
    """The trend of each pair in which one was found."""

    def applies(self, query: Query) -> bool:
        """Whether a pair has an ordered column of many levels."""
        return any(name in self.shared or has_order(self.domain[name]) for name in query[:2])

    def answers(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """Answers to queries of pairs alone, or of pairs given others, each at its `level`."""
        found = dict[Query, Answer]()
        alone = [q for q in queries if not q[2]]
        straight = self.trend_answers(alone, level=level / 2, margin=margin)
        shapes = self.tables.answer(alone, level=level / 2, margin=margin)
        for query, trend, shape in zip(alone, straight, shapes, strict=True):
            found[query] = together(trend, shape)
            if trend.verdict == "dependent":
                self.trends[query[:2]] = trend.effect
        given = [q for q in queries if q[2]]
        trends = self.trend_answers(given, level=level, margin=margin)
        found |= {q: self._if_able(q, trend) for q, trend in zip(given, trends, strict=True)}
        return [found[query] for query in queries]

    def _if_able(self, query: Query, answer: Answer) -> Answer:
        trend = self.trends.get(query[:2], 0.0)
        able, upper = answer.detectable <= SETTINGS.able * trend, answer.effect_upper
        if able and upper <= SETTINGS.less * trend:
            left = answer.verdict == "dependent" and upper <= SETTINGS.left * trend
            return replace(answer, verdict="undecided") if left else answer
        if answer.verdict == "dependent":
            return answer
        return replace(answer, verdict="undecided", effect_upper=math.inf)

    @cached_property
    def _sums(self) -> ScoreSums:
        tables, none = self.tables.tables, np.zeros(0, np.bool_)
        rows = max(1.0, float(pooled(tables, ()).counts))
        held = {name for table in tables for name in table.columns}
        scores = []
        for column in self.domain.columns:
            share = np.ones(column.levels)
            if column.name in held:
                share = pooled(tables, (column.name,)).counts
            shared = np.resize(self.shared.get(column.name, none), column.levels)
            scores.append(Scores.of(column, share, shared))
        pairs = {
            (self.domain.index(t.columns[0]), self.domain.index(t.columns[1])): (t.counts, t.sigma)
            for t in tables
            if len(t.columns) == 2
        }
        return ScoreSums(pairs, scores, rows)

    def trend_answers(
        self, queries: Sequence[Query], *, level: float, margin: float
    ) -> list[Answer]:
        """Trend tests of every query, batched by shape."""
        found = [UNDECIDED] * len(queries)
        by_shape: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
        for i, (a, b, given) in enumerate(queries):
            x, y, *z = map(self.domain.index, (a, b, *given))
            shape = self._sums.shape(x, y, z)
            if shape is not None:
                by_shape.setdefault(shape, []).append((i, [x, y, *z]))
        for batch in batches(by_shape, SETTINGS.batch):
            mixture = self._sums.mixture_of(np.array([columns for _, columns in batch]).T)
            place(found, batch, chi_square.answers(mixture, level=level, margin=margin))
        return found


def together(first: Answer, second: Answer) -> Answer:
    """One answer of two tests at half the level each: dependent if one is, independent if both are.

    Figures are those of the test with the smaller p-value, or, where neither finds dependence, of
    the second.
    """
    p = min(1.0, 2 * min(first.p_value, second.p_value))
    if "dependent" in (first.verdict, second.verdict):
        return replace(min(first, second, key=lambda a: a.p_value), verdict="dependent", p_value=p)
    both = first.verdict == second.verdict == "independent"
    return replace(second, verdict="independent" if both else "undecided", p_value=p)
