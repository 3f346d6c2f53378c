"""A set of released noisy tables, asked for the least noisy view of any columns they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.graph.tests.answer import Answer, Query
from synthdp.graph.tests.chi_square import chi_square
from synthdp.privacy.mechanisms import NoisyTable

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

    def best(self, columns: Sequence[str]) -> tuple[NoisyTable, float] | None:
        """The table whose margin over `columns` has the least noise, and that noise; None if no table holds them all."""
        found = set.intersection(*(self._holding.get(n, set()) for n in columns))
        return min(((self.tables[i], _margin_noise(self.tables[i], columns)) for i in sorted(found)), key=lambda t: t[1], default=None)

    def view(self, query: Query) -> tuple[npt.NDArray[np.float64], float] | None:
        """Counts `[strata, levels of x, levels of y]` of a query (x, y, given), and noise per cell."""
        a, b, given = query
        wanted = (*given, a, b)
        found = self.best(wanted)
        if found is None:
            return None
        table, sigma = found
        axes = [table.columns.index(n) for n in wanted]
        rest = tuple(i for i, n in enumerate(table.columns) if n not in wanted)
        counts = table.counts.transpose(*axes, *rest).reshape(*(table.counts.shape[i] for i in axes), -1).sum(-1)
        return counts.reshape(-1, *counts.shape[-2:]), sigma

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """Noise-aware chi-square of every query, batched by shape; `undecided` where no table serves it."""
        answers = [SILENT] * len(queries)
        by_shape: dict[tuple[int, ...], list[tuple[int, npt.NDArray[np.float64], float]]] = {}
        for i, query in enumerate(queries):
            found = self.view(query)
            if found is not None:
                by_shape.setdefault(found[0].shape, []).append((i, *found))
        for batch in by_shape.values():
            indices, counts, sigmas = zip(*batch, strict=True)
            for i, answer in zip(indices, chi_square(np.stack(counts), np.array(sigmas), level=level, margin=margin), strict=True):
                answers[i] = answer
        return answers


def _margin_noise(table: NoisyTable, columns: Sequence[str]) -> float:
    """Noise per cell after summing `table` over the columns that are not wanted."""
    summed = [size for name, size in zip(table.columns, table.counts.shape, strict=True) if name not in columns]
    return float(table.sigma * np.sqrt(np.prod(summed, dtype=np.float64)))
