"""Sieve and examine: the sparse vector under a search that asks its next question in the light of
earlier answers.

The search is a strategy (`privacy.mechanisms.strategy`). A sieve pass says of each question whether
the noisy answer is below the noisy threshold, and ends at the first that is not; that one question
is then examined with its own noise on all rows. [Wang, Pang and Song (2020), Algorithms 1 and 2,
with three corrections: the sensitivities are those of
`privacy.mechanisms.ranks`; every pass is charged, also one that nothing ends; and there are
`passes` of them at most, fixed in the plan, so that the charge is the same whatever the rows say.]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import SparseVectorDpEvent
from synthdp.privacy.mechanisms.conditional_counts import GroupedRows, RankQuery, level, level_moves
from synthdp.privacy.mechanisms.mechanism import Arrays, Prepaid
from synthdp.privacy.mechanisms.ranks import STATISTICS, STEPS, VARIANCE_STEPS, RankTest
from synthdp.privacy.mechanisms.strategy import next_request
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table


@dataclass(frozen=True)
class SparseVectorReply:
    """Whether the noisy answer was yes; if so and if it was examined, the noisy score and its noisy
    variance, else not a number.
    """

    above: bool
    score: float = math.nan
    variance: float = math.nan


Strategy = Callable[[], Generator[RankQuery, SparseVectorReply | None, Any]]
"""A fresh search."""


@dataclass(frozen=True)
class SparseVectorBudget:
    """Public settings of a search by sieve and examine, planned before any row is read.

    `rows`: declared rows that a fit is expected to see; `rate`: part of them that a pass looks at.
    Noise in units
    of what one row moves: scales of discrete Laplace noise for `threshold_noise` and `query_noise`,
    deviation of rounded Gaussian noise for `examine_noise`; None examines nothing, and the sieve's
    word is final.
    """

    domain: Domain
    test: RankTest
    passes: int
    rate: float
    rows: float
    threshold_noise: float
    query_noise: float
    examine_noise: float | None

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        examined = (
            ""
            if self.examine_noise is None
            else f", each examined with noise multiplier {self.examine_noise:.4g}"
        )
        return (
            f"sparse vector on {self.test.capitalize()}'s statistic, {self.passes} passes{examined}"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """`passes` times a sparse vector on a sample, then a Gaussian on all rows.

        Proofs: `events.kernel.SparseVectorDpEvent` for a pass, `conditional_counts.level` for what
        a row moves a query, `privacy.mechanisms.ranks` for what it moves an examined score and
        variance. Questions come from earlier answers; the events do not.
        """
        moves = level_moves(self.test)
        one: dp_accounting.DpEvent = SparseVectorDpEvent(
            self.threshold_noise * moves, self.query_noise * moves, moves, self.rate, rows_per_unit
        )
        if self.examine_noise is not None:
            one = dp_accounting.ComposedDpEvent(
                (one, dp_accounting.GaussianDpEvent(self.examine_noise / rows_per_unit))
            )
        return dp_accounting.SelfComposedDpEvent(one, self.passes)

    def scaled(self, factor: float) -> SparseVectorBudget:
        """The same search with `factor` times the noise."""
        examine = None if self.examine_noise is None else self.examine_noise * factor
        return replace(
            self,
            threshold_noise=self.threshold_noise * factor,
            query_noise=self.query_noise * factor,
            examine_noise=examine,
        )

    @property
    def sieve_deviation(self) -> float:
        """Standard deviation of a sieve's answer about its threshold, both noises together, in the
        score's own units.
        """
        return (
            math.sqrt(2)
            * math.hypot(self.threshold_noise, self.query_noise)
            * level_moves(self.test)
            / STEPS
        )

    @property
    def examine_deviation(self) -> float:
        """Standard deviation of the noise of an examined score, in its own units."""
        return (self.examine_noise or 0.0) * STATISTICS[self.test].examined_moves / STEPS

    def choose(self, strategy: Strategy) -> SparseVector:
        """The mechanism for a strategy."""
        return SparseVector(self, strategy)


@dataclass(frozen=True, eq=False)
class SparseVector(Prepaid[SparseVectorBudget]):
    """`SparseVectorBudget` with its strategy. Releases the transcript."""

    strategy: Strategy

    def run(self, table: Table, randomness: Randomness) -> tuple[SparseVectorReply, ...]:
        """Answer the strategy's questions until it ends or the passes are used up."""
        rows = GroupedRows.of(table.fit_codes, self.budget.domain)
        search, replies = self.strategy(), list[SparseVectorReply]()
        question = next(search, None)
        for _ in range(self.budget.passes):
            if question is not None:
                question = self._one_pass(rows, randomness, search, question, replies)
        search.close()
        return tuple(replies)

    def _one_pass(
        self,
        rows: GroupedRows,
        randomness: Randomness,
        search: Generator[RankQuery, SparseVectorReply | None, Any],
        question: RankQuery,
        replies: list[SparseVectorReply],
    ) -> RankQuery | None:
        """Ask on until one answer is above. Returns the question after it; None if the search has
        come to its end.
        """
        budget, moves = self.budget, level_moves(self.budget.test)
        sample = (
            rows
            if budget.rate == 1
            else rows.sample(randomness.poisson_batch(len(rows), rate=budget.rate))
        )
        threshold = randomness.discrete_laplace(
            np.zeros(1, dtype=np.int64), scale=budget.threshold_noise * moves
        )[0]
        asked: RankQuery | None = question
        while asked is not None:
            answer = np.array(
                [level(budget.test, asked, sample.measure(budget.test, asked))], dtype=np.int64
            )
            above = (
                randomness.discrete_laplace(answer, scale=budget.query_noise * moves)[0]
                >= threshold
            )
            replies.append(
                self._examined(rows, randomness, asked) if above else SparseVectorReply(False)
            )
            asked = next_request(search, replies[-1])
            if above:
                break
        return asked

    def _examined(
        self, rows: GroupedRows, randomness: Randomness, asked: RankQuery
    ) -> SparseVectorReply:
        """The noisy score and variance on all rows."""
        noise = self.budget.examine_noise
        if noise is None:
            return SparseVectorReply(True)
        measured = rows.measure(self.budget.test, asked)
        exact = np.array([measured.score, measured.variance], dtype=np.int64)
        score, variance = randomness.rounded_gaussian(
            exact, sigma=noise * STATISTICS[self.budget.test].examined_moves
        )
        return SparseVectorReply(True, float(score) / STEPS, float(variance) / VARIANCE_STEPS)

    def pack(self, value: tuple[SparseVectorReply, ...]) -> Arrays:
        """One entry per question."""
        return {
            "above": np.array([r.above for r in value], dtype=np.bool_),
            "score": np.array([r.score for r in value], dtype=np.float64),
            "variance": np.array([r.variance for r in value], dtype=np.float64),
        }

    def unpack(self, arrays: Arrays) -> tuple[SparseVectorReply, ...]:
        """Replies from their arrays."""
        columns = (arrays[name].tolist() for name in ("above", "score", "variance"))
        return tuple(SparseVectorReply(*reply) for reply in zip(*columns, strict=True))
