"""Rank statistics of two ordered columns within strata, as whole numbers with proven sensitivities.

Each is a sum over strata: a score that is zero on average under independence, a weight, which is
the score's variance then if no values are tied, and a variance that allows for ties. For a stratum
of n rows let s_ij = sgn(x_i - x_j), t_ij = sgn(y_i - y_j); a row that lacks either value is tied
with every other in both.

Kendall   S = sum over pairs of s_ij t_ij:      score 9 S / (2 n + 5),      weight 9 n (n - 1) / (4
n + 10)
Spearman  Q = sum_i a_i b_i, a_i = sum_j s_ij:  score 3 Q / (n (n + 1)),    weight n - 1

With f = (n^3 - sum p^3) (n^3 - sum q^3) / n^5, p and q the rows at each level of x and y, missing
ones at a level of their own, the variance is 9 f / 4 for Kendall and f for Spearman: the leading
term of the known variance with ties.

Score and weight are sum w tau and sum w of inverse-variance weighting [Taylor, "Kendall's and
Spearman's correlation coefficients in the presence of a blocking variable", Biometrics 43 (1987)].
No stratum is left out, however small: to drop one because of what it holds is what breaks the
published bound [Wang, Pang and Song, "Towards practical differentially private causal graph
discovery" (2020), Theorem 3].

Adding one row (derived here; the strata it is not in do not change):

Kendall score, 27/4. S' = S + r with |r| <= n and |S| <= n (n - 1) / 2, so the score changes by 9 r
/ (2 n + 7) - 18 S / ((2 n + 5) (2 n + 7)), at most 9 n (3 n + 4) / ((2 n + 5) (2 n + 7)) < 27/4.
Reached as n grows: rows that are all discordant, and one that is concordant with each of them.

Kendall weight, 9/4. It grows by 9 n (n + 6) / ((2 n + 5) (2 n + 7)) < 9/4, and never shrinks.

Spearman score, 5. With u_i, v_i the signs of row i against the new one, Q' - Q = sum a_i v_i + sum
u_i b_i + sum u_i v_i + (sum u_i)(sum v_i). In any set A of rows, sum of a_i <= |A| (n - |A|), as
s_ij + s_ji = 0. So with p signs +1 and m signs -1 among v, sum a_i v_i <= p (n - p) + m (n - m) <=
(n^2 - (p - m)^2) / 2, and likewise for b; the three terms together are at most n^2 - (sum u - sum
v)^2 / 2, so |Q' - Q| <= n (n + 1). Further |Q| <= n (n^2 - 1) / 3. The score changes by 3 (Q' - Q)
/ ((n + 1) (n + 2)) - 6 Q / (n (n + 1) (n + 2)), at most (5 n - 2) / (n + 2) < 5. Reached as n
grows, by the tables of Kendall's bound.

Spearman weight, 1: it grows by 1 and never shrinks.

f, 3. Let A = n^3 - sum p^3, B likewise. The new row, at a level that had p rows, turns A into A' =
A + 3 (n^2 - p^2) + 3 (n - p), at most A + c with c = 3 n (n + 1). So f' - f <= (A + c) (B + c) / (n
+ 1)^5 - A B / n^5, which is linear in A and in B and largest at a corner of [0, n^3]^2: there 9 n^2
/ (n + 1)^3 <= 4/3, 3 n / (n + 1) < 3, or below 1, as c < (n + 1)^3 - n^3. On the other side, A <=
n^3 - p^3 gives 1 - (p/n)^2 >= 1 - (1 - A/n^3)^(2/3) >= 2 A / (3 n^3), so A' >= A (1 + 2/n), and f -
f' <= n (1 - n^3 (n + 2)^2 / (n + 1)^5) < 3/2. At n = 1, A = B = 0 and f' <= 36/32.

Replacing a row removes one and adds one: twice each bound (13.5 for Kendall's score, 10 for
Spearman's), though weights, which never shrink, then move by one bound only. The accounting charges
twice for all.

Scores and weights are told in whole steps of 1 / STEPS, variances in steps of 1 / VARIANCE_STEPS,
each stratum rounded down by itself in exact integer arithmetic. Rounding down keeps a change below
a whole number at most that number, so that the bounds above hold
exactly: no rounding error is left over.

Counts of two columns within strata of others, for searches that ask one question after another.

Rows that are alike are counted once: a search asks hundreds of questions of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes

Counts = npt.NDArray[np.int64]
Strata = npt.NDArray[Any]
"""One whole number per stratum; Python's own where int64 would overflow."""

STEPS = 16
VARIANCE_STEPS = 4
"""Coarser, for a variance need not be known well: it is released beside the score with little noise
for either.
"""

RankTest = Literal["kendall", "spearman"]


@dataclass(frozen=True)
class MeasuredRanks:
    """One statistic of some rows, in whole steps."""

    score: int
    weight: int
    variance: int


@dataclass(frozen=True)
class RankStatistic:
    """A score and its weight, and the most that one row moves each of them and the variance, in
    their steps.

    `of(counts, totals)`: score and weight from counts `[strata, levels of x, levels of y]` of rows
    where both are
    present, and all rows per stratum. `per_row`: the limit of weight / rows without ties, not in
    steps.
    """

    of: Callable[[Counts, Counts], tuple[int, int]]
    score_moves: int
    weight_moves: int
    variance_moves: int
    per_row: float

    @property
    def examined_moves(self) -> float:
        """The most that one row moves score and variance together, in L2: each by at most its own
        bound, proved above.
        """
        return math.hypot(self.score_moves, self.variance_moves)

    def measure(self, table: Counts, *, present: tuple[slice, slice]) -> MeasuredRanks:
        """All three of a table `[strata, levels, levels]`; `present` are the levels that are not
        missing.
        """
        totals = table.sum((1, 2))
        score, weight = self.of(table[:, present[0], present[1]], totals)
        return MeasuredRanks(score, weight, _variance(table, totals, round(self.per_row * 4)))


def kendall_sums(counts: Counts, totals: Counts) -> tuple[int, int]:
    """Score and weight of Kendall's tau-a."""
    n = _exact(totals)
    s = (_exact(counts, totals) * _smaller(counts, totals)).sum((1, 2))
    return int((9 * STEPS * s // (2 * n + 5)).sum()), int(
        (9 * STEPS * n * (n - 1) // (4 * n + 10)).sum()
    )


def spearman_sums(counts: Counts, totals: Counts) -> tuple[int, int]:
    """Score and weight of Spearman's rho with mid-ranks."""
    n = _exact(totals)
    a = _standing(counts.sum(2), totals)
    b = _standing(counts.sum(1), totals)
    q = (_exact(counts, totals) * a[:, :, None] * b[:, None, :]).sum((1, 2))
    return int((3 * STEPS * q // np.maximum(n * (n + 1), 1)).sum()), int(
        (STEPS * np.maximum(n - 1, 0)).sum()
    )


def _variance(table: Counts, totals: Counts, quarters: int) -> int:
    """`quarters` / 4 times f, in steps."""
    n = totals.astype(object)
    a = n**3 - (table.sum(2).astype(object) ** 3).sum(1)
    b = n**3 - (table.sum(1).astype(object) ** 3).sum(1)
    return int((VARIANCE_STEPS * quarters * a * b // (4 * np.maximum(n, 1) ** 5)).sum())


def _smaller(counts: Counts, totals: Counts) -> Strata:
    """For each cell: rows that are smaller in both columns, less those that are smaller in x and
    larger in y.
    """
    padded = np.zeros((counts.shape[0], counts.shape[1] + 1, counts.shape[2] + 1), dtype=np.int64)
    padded[:, 1:, 1:] = counts.cumsum(1).cumsum(2)
    above = padded[:, :-1, :]
    return _exact(above[:, :, :-1] - (above[:, :, -1:] - above[:, :, 1:]), totals)


def _standing(levels: Counts, totals: Counts) -> Strata:
    """For each level: rows at smaller levels less rows at larger ones, `[strata, levels]`."""
    upto = levels.cumsum(1)
    return _exact((upto - levels) - (upto[:, -1:] - upto), totals)


def _exact(values: Counts, totals: Counts | None = None) -> Strata:
    """Whole numbers that no product of both sums overflows: up to 2^18 rows of a stratum all but
    the sixth powers stay far inside int64.
    """
    largest = int((values if totals is None else totals).max(initial=0))
    return values if largest <= 1 << 18 else values.astype(object)


STATISTICS: Mapping[RankTest, RankStatistic] = {
    "kendall": RankStatistic(
        kendall_sums, score_moves=108, weight_moves=36, variance_moves=27, per_row=2.25
    ),
    "spearman": RankStatistic(
        spearman_sums, score_moves=80, weight_moves=16, variance_moves=12, per_row=1.0
    ),
}
"""27/4, 9/4, 27/4 and 5, 1, 3 in steps."""


# --- conditional counts ---


BOUND_MOVES = 4
"""Steps that a row may move a bound by, on top of what it moves the score: more noise for a sharper
bound.
"""


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
        # Up to here a row is one whole number, and rows that are alike are found by sorting.
        if math.prod(domain.sizes) > 1 << 53 or not len(codes):
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
