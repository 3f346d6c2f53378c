"""Released noisy tables, and the least noisy margin over any columns that they contain."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.graph import chi_square
from synthdp.graph.chi_square import Answer, Mixture, Query
from synthdp.privacy.mechanisms.marginals import NoisyTable

Counts = npt.NDArray[np.float64]
View = tuple[Counts, float]
"""Counts, one axis per column, and the standard deviation of the noise per cell."""

T = TypeVar("T")
Placed = tuple[int, T]
"""The position of a query in its batch, and what answers it."""
Views = Placed[tuple[View, ...]]
Weakest = npt.NDArray[np.float64]
UNDECIDED = Answer("undecided", 1.0, 0.0, 0.0, float("inf"), float("inf"))
"""The answer where no table contains the columns."""


class NoisyTables:
    """Noisy tables by their columns. A sum over a column adds up the noise of its cells.

    `known` are more tables of the same rows, which say what the margins of the others are. Those of
    grouped levels say it of the others alone.
    """

    def __init__(self, tables: Iterable[NoisyTable] = (), known: Iterable[NoisyTable] = ()) -> None:
        self.tables, self.known = tuple(tables), tuple(known)
        self._margins: dict[tuple[tuple[str, ...], str | None], View | None] = {}

    def plus(self, more: Iterable[NoisyTable]) -> NoisyTables:
        return NoisyTables((*self.tables, *more), self.known)

    @cached_property
    def _positions(self) -> dict[str, set[int]]:
        positions: dict[str, set[int]] = {}
        for i, table in enumerate(self.tables):
            for name in table.columns:
                if table.has([name]):
                    positions.setdefault(name, set()).add(i)
        return positions

    def best(
        self, columns: Sequence[str], *, without: str | None = None
    ) -> tuple[int, float] | None:
        """Where the table is whose margin over `columns` has the least noise, and that noise.

        Tables that contain the column `without` are left out. Returns None if no table contains all
        columns.
        """
        containing = [self._positions.get(name, set()) for name in columns]
        positions = set.intersection(*containing) - self._positions.get(without or "", set())
        views = []
        for i in sorted(positions):
            table = self.tables[i]
            sizes = zip(table.columns, table.counts.shape, strict=True)
            summed = math.prod(size for name, size in sizes if name not in columns)
            views.append((i, table.sigma * math.sqrt(summed)))
        return min(views, key=lambda view: view[1], default=None)

    @cached_property
    def _pools(self) -> Mapping[str | None, Pool]:
        """What all tables say of the levels of each column, and (None) of the number of rows."""
        parts: dict[str | None, dict[int, View]] = {None: {}}
        for i, table in enumerate((*self.tables, *self.known)):
            cells = table.counts.size
            parts[None][i] = table.counts.sum(keepdims=True).ravel(), table.sigma**2 * cells
            for axis, name in enumerate(table.columns):
                if table.has([name]):
                    rest = tuple(a for a in range(table.counts.ndim) if a != axis)
                    counts = table.counts.sum(rest)
                    view = counts, table.sigma**2 * cells / len(counts)
                    parts.setdefault(name, {})[i] = view
        return {name: Pool(found) for name, found in parts.items()}

    def _other_margins(self, a: str, b: str, noise: float) -> tuple[View, View, View] | None:
        """Levels of two columns and the number of rows, by all tables but the pair's best one.

        None where some level has more than the `noise` of the pair's cells: a column's law would
        then be seen by the same noise as the residuals of its levels.
        """
        best = self.best((a, b))
        if best is None:
            return None
        left, right, rows = (self._pools[name].without(best[0]) for name in (a, b, None))
        if left is None or right is None or rows is None:
            return None
        return (left, right, rows) if max(left[1], right[1]) <= noise else None

    def margin(self, columns: tuple[str, ...], *, without: str | None = None) -> View | None:
        """The noise and counts of the `best` table over `columns`, one axis each in this order."""
        key = columns, without
        if key not in self._margins:
            best = self.best(columns, without=without)
            self._margins[key] = None
            if best is not None:
                table = self.tables[best[0]]
                axes = list(map(table.columns.index, columns))
                rest = [i for i, n in enumerate(table.columns) if n not in columns]
                moved = table.counts.transpose(*axes, *rest)
                counts = moved.sum(tuple(range(len(axes), moved.ndim))) if rest else moved
                self._margins[key] = counts, best[1]
        return self._margins[key]

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """Noise-aware chi-square test of every query, batched by shape.

        Where nothing is given, the margins are those of all other tables, if these have no more
        noise than a cell of the pair's. The answer is `undecided` where no table contains all
        columns of the query. `level` is of each test; `margin` is the effect (Cohen's w) below
        which a pair counts as independent.
        """
        answers = [UNDECIDED] * len(queries)
        for batch, mixture in self._whole(queries):
            place(answers, batch, chi_square.answers(mixture, level=level, margin=margin))
        return answers

    def average_partial(
        self, queries: Sequence[Query], *, level: float, margin: float
    ) -> list[Answer]:
        """Mantel-Haenszel test of every query, batched by shape.

        A test uses three tables: both ends, and each end with the given columns. They are three
        different tables, so that their noises are independent. The answer is `undecided` where one
        of them is missing. Queries without given columns are answered by chi-square, which is the
        same test then.
        """
        answers = [UNDECIDED] * len(queries)
        plain = [(i, query) for i, query in enumerate(queries) if not query[2]]
        place(answers, plain, self.answer([q for _, q in plain], level=level, margin=margin))
        for batch, mixture in self._partial(queries):
            place(answers, batch, chi_square.answers(mixture, level=level, margin=margin))
        return answers

    def weakest(self, queries: Sequence[Query], *, level: float, partial: bool = False) -> Weakest:
        """Effect (Cohen's w) that the test of each query sees with probability .8, `[queries]`.

        The tests are those of `answer`, or with `partial` those of `average_partial`, and the
        tables are what they would be without noise if no column depended on another
        (`chi_square.weakest_effects`). Infinite where a test sees nothing. Seeded: it draws no
        noise of a release.
        """
        found, rng = np.full(len(queries), np.inf), np.random.default_rng(0)
        plain = [i for i, (_, _, given) in enumerate(queries) if not (partial and given)]
        for batch, mixture in chain(
            self._whole([queries[i] for i in plain]), self._partial(queries) if partial else ()
        ):
            places = [i if len(views) > 1 else plain[i] for i, views in batch]
            found[places] = chi_square.weakest_effects(mixture, level=level, rng=rng)
        return found

    def _whole(self, queries: Sequence[Query]) -> Iterator[tuple[list[Views], Mixture]]:
        """Chi-square statistics of the queries that some table holds, batched by shape."""
        by_shape: dict[Hashable, list[Views]] = {}
        for i, (a, b, given) in enumerate(queries):
            view = self.margin((*given, a, b))
            if view is not None:
                counts = view[0].reshape(-1, *view[0].shape[-2:])
                others = None if given else self._other_margins(a, b, view[1])
                views = ((counts, view[1]), *(others or ()))
                by_shape.setdefault((counts.shape, len(views)), []).append((i, views))
        for batch in batches(by_shape):
            (counts, sigma), *margins_of = _stacked(batch)
            margins = None
            if margins_of:
                (rows, p), (columns, q), (total, t) = margins_of
                margins = chi_square.Margins(rows, columns, total[:, 0], (p, q, t))
            yield batch, chi_square.mixture_of(counts, sigma, margins)

    def _partial(self, queries: Sequence[Query]) -> Iterator[tuple[list[Views], Mixture]]:
        """Mantel-Haenszel statistics of the queries with given columns, batched by shape."""
        by_shape: dict[Hashable, list[Views]] = {}
        for i, query in enumerate(queries):
            views = self._three_margins(query)
            if views is not None:
                shapes = tuple(counts.shape for counts, _ in views)
                by_shape.setdefault(shapes, []).append((i, views))
        for batch in batches(by_shape):
            (pair, pair_noise), (left, left_noise), (right, right_noise) = _stacked(batch)
            tables = chi_square.Tables(pair, left, right, (pair_noise, left_noise, right_noise))
            yield batch, chi_square.partial_mixture(tables)

    def _three_margins(self, query: Query) -> tuple[View, View, View] | None:
        """Margins of both ends, and of each end by stratum; None where one of them is missing."""
        a, b, given = query
        if not given:
            return None
        both = self.margin((a, b))
        left, right = self.margin((*given, a), without=b), self.margin((*given, b), without=a)
        if both is None or left is None or right is None:
            return None
        by_stratum = [(n.reshape(-1, n.shape[-1]), noise) for n, noise in (left, right)]
        return both, by_stratum[0], by_stratum[1]


@dataclass(frozen=True)
class Pool:
    """Noisy counts of the same levels: `parts` has counts and variance of each table, by its
    position.
    """

    parts: Mapping[int, View]

    @cached_property
    def _whole(self) -> tuple[Counts, float]:
        """Counts and weights of all tables, summed by their weight, one over the variance."""
        weights = [1 / max(variance, 1e-12) for _, variance in self.parts.values()]
        counts = [counts for counts, _ in self.parts.values()]
        return np.average(counts, axis=0, weights=weights) * sum(weights), sum(weights)

    def without(self, position: int) -> View | None:
        """The mean of the other tables by the weight of each, and its deviation per level."""
        counts, weight = self._whole
        own = 0.0
        if position in self.parts:
            own = 1 / max(self.parts[position][1], 1e-12)
            counts = counts - self.parts[position][0] * own
        left = weight - own
        if left <= 1e-6 * weight:  # nothing, or what rounding leaves
            return None
        return counts / left, math.sqrt(1 / left)


def batches(by_shape: Mapping[Any, list[Placed[T]]], most: int = 512) -> Iterator[list[Placed[T]]]:
    """Tests of one shape, so few at a time that their tables fit the processor's cache."""
    for batch in by_shape.values():
        for start in range(0, len(batch), most):
            yield batch[start : start + most]


def _stacked(batch: Sequence[Views]) -> list[tuple[Counts, Counts]]:
    """For each view of a test: counts `[tests, ...]` and noise `[tests]` of the whole batch."""
    by_view = zip(*(views for _, views in batch), strict=True)
    return [
        (np.stack([counts for counts, _ in views]), np.array([noise for _, noise in views]))
        for views in by_view
    ]


def place(answers: list[Answer], batch: Sequence[Placed[Any]], results: Sequence[Answer]) -> None:
    """Put the results of a batch where its queries are."""
    for (i, _), answer in zip(batch, results, strict=True):
        answers[i] = answer
