"""A set of released noisy tables, asked for the least noisy view of any columns they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.graph.ci_tests.answer import Answer, Query
from synthdp.graph.ci_tests.chi_square import chi_square
from synthdp.graph.ci_tests.mantel_haenszel import Tables, mantel_haenszel
from synthdp.privacy.mechanisms.marginals import NoisyTable

T = TypeVar("T")
View = tuple[npt.NDArray[np.float64], float]
"""Counts, one axis per column, and the noise per cell."""

BATCH = 512
SILENT = Answer("undecided", 1.0, 0.0, 0.0, float("inf"), float("inf"))
"""The answer where no table holds the columns."""


def cells(domain: Domain, names: Iterable[str]) -> int:
    """Cells of a table; exact however large."""
    return math.prod(domain[n].levels for n in names)


class NoisyTables:
    """Noisy tables by the columns they hold. Summing over a column adds up its cells' noise."""

    def __init__(self, tables: Iterable[NoisyTable] = ()) -> None:
        self.tables = tuple(tables)

    def plus(self, more: Iterable[NoisyTable]) -> NoisyTables:
        """These tables and more."""
        return NoisyTables((*self.tables, *more))

    @cached_property
    def _holding(self) -> dict[str, set[int]]:
        holding: dict[str, set[int]] = {}
        for i, table in enumerate(self.tables):
            for name in table.columns:
                holding.setdefault(name, set()).add(i)
        return holding

    def best(
        self, columns: Sequence[str], *, without: str | None = None
    ) -> tuple[NoisyTable, float] | None:
        """The table whose margin over `columns` has the least noise, and that noise; None if no
        table holds them all.

        Tables that hold the column `without` are left out.
        """
        found = set.intersection(
            *(self._holding.get(n, set()) for n in columns)
        ) - self._holding.get(without or "", set())
        return min(
            ((self.tables[i], _margin_noise(self.tables[i], columns)) for i in sorted(found)),
            key=lambda t: t[1],
            default=None,
        )

    def margin(self, columns: tuple[str, ...], *, without: str | None = None) -> View | None:
        """Least noisy counts over `columns`, one axis each in this order, and their noise per
        cell.
        """
        key = columns, without
        if key not in self._margins:
            found = self.best(columns, without=without)
            self._margins[key] = None if found is None else (_project(found[0], columns), found[1])
        return self._margins[key]

    @cached_property
    def _margins(self) -> dict[tuple[tuple[str, ...], str | None], View | None]:
        return {}

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """Noise-aware chi-square of every query, batched by shape; `undecided` where no table holds
        all its columns.
        """
        by_shape: dict[tuple[int, ...], list[tuple[int, View]]] = {}
        for i, (a, b, given) in enumerate(queries):
            found = self.margin((*given, a, b))
            if found is not None:
                by_stratum = found[0].reshape(-1, *found[0].shape[-2:])
                by_shape.setdefault(by_stratum.shape, []).append((i, (by_stratum, found[1])))
        answers = [SILENT] * len(queries)
        for batch in _batches(by_shape):
            tables, sigma = (
                np.stack([counts for _, (counts, _) in batch]),
                np.array([noise for _, (_, noise) in batch]),
            )
            for (i, _), answer in zip(
                batch, chi_square(tables, sigma, level=level, margin=margin), strict=True
            ):
                answers[i] = answer
        return answers

    def average_partial(
        self, queries: Sequence[Query], *, level: float, margin: float
    ) -> list[Answer]:
        """Mantel-Haenszel test of every query, batched by shape, from three tables: both ends, and
        each end with the given columns.

        `undecided` where one of them is missing. They are three different tables, so that their
        noises are independent. Queries that give nothing are answered by chi-square, which is the
        same test then.
        """
        plain = [i for i, (_, _, given) in enumerate(queries) if not given]
        by_shape: dict[tuple[tuple[int, ...], ...], list[tuple[int, tuple[View, View, View]]]] = {}
        for i, (a, b, given) in ((i, q) for i, q in enumerate(queries) if q[2]):
            both, first, second = (
                self.margin((a, b)),
                self.margin((*given, a), without=b),
                self.margin((*given, b), without=a),
            )
            if both is not None and first is not None and second is not None:
                views = both, _by_stratum(first), _by_stratum(second)
                by_shape.setdefault(tuple(v[0].shape for v in views), []).append((i, views))
        answers = [SILENT] * len(queries)
        for i, answer in zip(
            plain, self.answer([queries[i] for i in plain], level=level, margin=margin), strict=True
        ):
            answers[i] = answer
        for batch in _batches(by_shape):
            (pair, s0), (left, s1), (right, s2) = (
                (np.stack([v[k][0] for _, v in batch]), np.array([v[k][1] for _, v in batch]))
                for k in range(3)
            )
            tables = Tables(pair, left, right, (s0, s1, s2))
            for (i, _), answer in zip(
                batch, mantel_haenszel(tables, level=level, margin=margin), strict=True
            ):
                answers[i] = answer
        return answers


def _by_stratum(view: View) -> View:
    return view[0].reshape(-1, view[0].shape[-1]), view[1]


def _batches(by_shape: Mapping[Any, list[T]]) -> Iterator[list[T]]:
    """Tests of one shape in pieces that fit the processor's cache."""
    for batch in by_shape.values():
        for start in range(0, len(batch), BATCH):
            yield batch[start : start + BATCH]


def _project(table: NoisyTable, columns: Sequence[str]) -> npt.NDArray[np.float64]:
    axes = [table.columns.index(n) for n in columns]
    rest = [i for i, n in enumerate(table.columns) if n not in columns]
    moved = table.counts.transpose(*axes, *rest)
    return moved.sum(tuple(range(len(axes), moved.ndim))) if rest else moved


def _margin_noise(table: NoisyTable, columns: Sequence[str]) -> float:
    """Noise per cell after summing `table` over the columns that are not wanted."""
    summed = [
        size
        for name, size in zip(table.columns, table.counts.shape, strict=True)
        if name not in columns
    ]
    return table.sigma * math.sqrt(math.prod(summed))
