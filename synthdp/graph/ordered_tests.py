"""Tests of pairs of which a column is ordered and has many levels, beside the tests of all others.

Such a pair is tested twice: for trends (`ci_tests.trend`), and for dependence of any shape by
chi-square. Each test has half of the level, so that together they hold it (Bonferroni). Given other
columns it is tested for trends alone, and only a test that was able to see the pair's own trend may
say that hardly any is left: one that was not says "undecided", whatever it saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.graph.ci_tests.answer import Answer, Query
from synthdp.graph.ci_tests.mixture import answers as answers_of
from synthdp.graph.ci_tests.trend import Asked, Scores, ScoreSums, has_order
from synthdp.graph.knowledge import Pair
from synthdp.graph.margins import pooled
from synthdp.graph.tables import UNDECIDED, NoisyTables

ABLE = 1.0
"""A test given other columns is able if it sees so much of the pair's trend with probability .8."""
LESS = 1.0
"""Largest upper bound of a test that separates, in trends of the pair alone."""
LEFT = 0.3
"""So much of a pair's trend may be left by what scores and groups of the given columns miss."""
BATCH = 256
Shared = Mapping[str, npt.NDArray[np.bool_]]
"""For each column that is counted on groups: which of them hold several levels, `[groups]`."""


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
        for query, trend in zip(
            given, self.trend_answers(given, level=level, margin=margin), strict=True
        ):
            found[query] = self._if_able(query, trend)
        return [found[query] for query in queries]

    def _if_able(self, query: Query, answer: Answer) -> Answer:
        trend = self.trends.get(query[:2], 0.0)
        if answer.detectable <= ABLE * trend and answer.effect_upper <= LESS * trend:
            left = answer.verdict == "dependent" and answer.effect_upper <= LEFT * trend
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
            x, y, *z = (self.domain.index(name) for name in (a, b, *given))
            shape = self._sums.shape(x, y, z)
            if shape is not None:
                by_shape.setdefault(shape, []).append((i, [x, y, *z]))
        for placed in by_shape.values():
            for start in range(0, len(placed), BATCH):
                batch = placed[start : start + BATCH]
                columns = np.array([columns for _, columns in batch])
                asked = Asked(columns[:, 0], columns[:, 1], columns[:, 2:])
                mixture = self._sums.mixture_of(asked)
                got = answers_of(mixture, level=level, margin=margin)
                for (i, _), answer in zip(batch, got, strict=True):
                    found[i] = answer
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
