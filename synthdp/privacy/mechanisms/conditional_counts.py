"""Counts of two columns within strata of others, for searches that ask one question after another.

Rows that are alike are counted once: a search asks hundreds of questions of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.mechanisms.ranks import (
    STATISTICS,
    STEPS,
    VARIANCE_STEPS,
    Counts,
    MeasuredRanks,
    RankTest,
)

BOUND_MOVES = 4
"""Steps that a row may move a bound by, on top of what it moves the score: more noise for a sharper
bound.
"""
MAX_KEYS = (
    1 << 53
)  # up to here a row is one whole number, and rows that are alike are found by sorting


@dataclass(frozen=True)
class RankQuery:
    """How strongly do two columns move together within the strata of others? Answered by a rank
    statistic.

    As a yes-or-no question: is |score| at most `critical` sqrt(variance + spare) + slack, and the
    weight at least `least_weight`? The weight guards against "yes" where strata are too small for
    any pair of rows to be compared. Everything in the score's own units; all are public, or chosen
    in the light of released answers.
    """

    x: str
    y: str
    given: tuple[str, ...]
    critical: float
    spare: float
    slack: float
    least_weight: float


@dataclass(frozen=True, repr=False)
class GroupedRows:
    """Rows grouped by what they hold: `kinds` `[kinds, columns]`, how many of each, and the kind of
    each row.
    """

    domain: Domain
    kinds: Codes
    counts: Counts
    kind_of: npt.NDArray[np.intp]

    @classmethod
    def of(cls, codes: Codes, domain: Domain) -> GroupedRows:
        """All rows of a table of levels."""
        if math.prod(domain.sizes) > MAX_KEYS or not len(codes):
            return cls(domain, codes, np.ones(len(codes), dtype=np.int64), np.arange(len(codes)))
        keys = np.zeros(len(codes), dtype=np.int64)
        for column, size in zip(codes.T, domain.sizes, strict=True):
            keys = keys * size + column
        _, first, kind_of, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(domain, codes[first], counts.astype(np.int64), kind_of)

    def __len__(self) -> int:
        return len(self.kind_of)

    def sample(self, positions: npt.NDArray[np.intp]) -> GroupedRows:
        """Some of the rows, by position."""
        kind_of = self.kind_of[positions]
        return GroupedRows(
            self.domain,
            self.kinds,
            np.bincount(kind_of, minlength=len(self.kinds)).astype(np.int64),
            kind_of,
        )

    def measure(self, test: RankTest, query: RankQuery) -> MeasuredRanks:
        """The statistic of a query."""
        present = (
            slice(self.domain[query.x].missing_level),
            slice(self.domain[query.y].missing_level),
        )
        return STATISTICS[test].measure(
            self._table((*query.given, query.x, query.y)), present=present
        )

    def _table(self, names: Sequence[str]) -> Counts:
        """Counts `[strata of all but the last two, levels, levels]`."""
        cell = np.zeros(len(self.kinds), dtype=np.intp)
        for name in names:
            cell = cell * self.domain[name].levels + self.kinds[:, self.domain.index(name)]
        sizes = [self.domain[name].levels for name in names]
        # Weighted sums of whole numbers below 2^53 are exact.
        counts = np.bincount(cell, weights=self.counts, minlength=math.prod(sizes)).astype(np.int64)
        return counts.reshape(-1, *sizes[-2:])


def level(test: RankTest, query: RankQuery, measured: MeasuredRanks) -> int:
    """How clearly the answer is yes, in steps: at least 0 where it is. A row moves it by at most
    `level_moves(test)`.

    [Derived here.] sqrt(v + spare) moves by at most (move of v) / (2 sqrt(spare)), which
    `variance_floor` keeps so small that the bound moves by less than `BOUND_MOVES` steps, and its
    floor by no more than these. The smaller of two numbers moves by no more than the larger of
    their moves; the weight's moves are multiplied up to the score's.

    Raises:
        ValueError: `spare` is smaller than that.
    """
    if query.spare < variance_floor(test, query.critical):
        raise ValueError(
            f"spare variance {query.spare:g} is below {variance_floor(test, query.critical):g}"
        )
    statistic = STATISTICS[test]
    deviation = math.sqrt(measured.variance / VARIANCE_STEPS + query.spare)
    close = math.floor(STEPS * (query.critical * deviation + query.slack)) - abs(measured.score)
    heavy = (measured.weight - math.floor(STEPS * query.least_weight)) * (
        statistic.score_moves // statistic.weight_moves
    )
    return min(close, heavy)


def level_moves(test: RankTest) -> int:
    """The most that one row moves a level."""
    return STATISTICS[test].score_moves + BOUND_MOVES


def variance_floor(test: RankTest, critical: float) -> float:
    """Spare variance from which on a row's effect on the variance moves the bound by less than
    `BOUND_MOVES` steps.
    """
    return (
        critical
        * STEPS
        * (STATISTICS[test].variance_moves + 1)
        / VARIANCE_STEPS
        / (2 * BOUND_MOVES)
    ) ** 2
