"""Private searches, each question in the light of earlier answers: sieve and examine by sparse
vectors, and selection by noisy maxima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import dp_accounting
import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import GumbelMaxDpEvent, SparseVectorDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.mechanisms.ranks import (
    STATISTICS,
    STEPS,
    VARIANCE_STEPS,
    GroupedRows,
    RankQuery,
    RankTest,
    level,
    level_moves,
)
from synthdp.privacy.noise import Integers, Randomness
from synthdp.privacy.table import Table


@dataclass(frozen=True)
class SparseVectorReply:
    """Whether the noisy answer was yes; if so and if it was examined, the noisy score and its noisy
    variance, else not a number.
    """

    above: bool
    score: float = math.nan
    variance: float = math.nan


SieveStrategy = Callable[[], Generator[RankQuery, SparseVectorReply | None, Any]]
"""A fresh search."""


@dataclass(frozen=True)
class SparseVectorBudget:
    """Public settings of a search by sieve and examine, planned before any row is read.

    `rows`: declared rows that a fit is expected to see; `rate`: part of them that a pass looks at.
    Noise in units of what one row moves: scales of discrete Laplace noise for `threshold_noise` and
    `query_noise`, deviation of rounded Gaussian noise for `examine_noise`; None examines nothing,
    and the sieve's word is final.

    Sieve and examine: the sparse vector under a search that asks its next question in the light of
    earlier answers.

    The search is a strategy (`privacy.mechanisms.private_search`). A sieve pass says of each
    question whether the noisy answer is below the noisy threshold, and ends at the first that is
    not; that one question is then examined with its own noise on all rows. [Wang, Pang and Song
    (2020), Algorithms 1 and 2, with three corrections: the sensitivities are those of
    `privacy.mechanisms.ranks`; every pass is charged, also one that nothing ends; and there are
    `passes` of them at most, fixed in the plan, so that the charge is the same whatever the rows
    say.]
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

        Proofs: `events.kernel.SparseVectorDpEvent` for a pass, `ranks.level` for what
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

    def choose(self, strategy: SieveStrategy) -> SparseVector:
        """The mechanism for a strategy."""
        return SparseVector(self, strategy)


@dataclass(frozen=True, eq=False)
class SparseVector(Prepaid[SparseVectorBudget]):
    """`SparseVectorBudget` with its strategy. Releases the transcript."""

    strategy: SieveStrategy

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


# --- noisy max ---


@dataclass(frozen=True)
class HowMany:
    """How many of these groups hold a query that is true?"""

    groups: tuple[tuple[RankQuery, ...], ...]


@dataclass(frozen=True)
class Which:
    """Which of these queries is most clearly true?"""

    queries: tuple[RankQuery, ...]


SelectionStrategy = Callable[[], Generator[HowMany | Which, int | None, Any]]
"""A fresh search."""


@dataclass(frozen=True)
class SelectionBudget:
    """Public settings of a search by selection: at most `draws` noisy maxima.

    Their Gumbel noise has the scale `noise` times what a row moves.

    `rows`: declared rows that a fit is expected to see.

    Private selection under a search: how many, and which, by noisy maxima, each of a fixed and
    planned price.

    The search is a strategy (`privacy.mechanisms.private_search`) that is sent whole numbers.
    Scores are the levels of rank queries (`privacy.mechanisms.ranks.level`): at least 0 where
    "independent" holds, moved by a row by at most s. Both requests choose among scores that a row
    moves by at most s:

    - `HowMany`: of groups, in each of which the best query counts, how many are at least 0? With
      q(1) >= q(2) >= ... the groups' scores, k scores min(q(k), -q(k + 1)): at least 0 for the true
      number and below 0 for all others, but where q(k + 1) is 0, when k too scores 0, and any of
      the tied numbers may be chosen. Order statistics and minima move by no more than what they are
      taken of [derived here].
    - `Which`: the position of the best query in a list.

    The noisy maximum is by Gumbel noise, which is the exponential mechanism, as in Xu, Yuan and Wu,
    "Differential privacy preserving causal graph discovery" (2017). At one noise exponential noise
    chooses better [McKenna and Sheldon, "Permute-and-Flip", arXiv:2010.12603v1, Theorem 2]; for one
    price of many choices Gumbel noise is about half as much (`events.kernel.GumbelMaxDpEvent`).
    """

    domain: Domain
    test: RankTest
    draws: int
    rows: float
    noise: float

    @property
    def name(self) -> str:
        return (
            f"noisy maximum of {self.test.capitalize()}'s statistics, noise {self.noise:.4g},"
            f" {self.draws} times"
        )

    @property
    def _moves(self) -> int:
        return level_moves(self.test)

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """`draws` noisy maxima. Proofs: `events.kernel.GumbelMaxDpEvent`, and for what a row moves
        a score, this module and `ranks.level`.
        """
        return dp_accounting.SelfComposedDpEvent(
            GumbelMaxDpEvent(self.noise * self._moves, self._moves, rows_per_unit), self.draws
        )

    def scaled(self, factor: float) -> SelectionBudget:
        """The same search with `factor` times the noise."""
        return replace(self, noise=self.noise * factor)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of a score, in its own units."""
        return math.pi / math.sqrt(6) * self.noise * self._moves / STEPS

    def choose(self, strategy: SelectionStrategy) -> Selection:
        """The mechanism for a strategy."""
        return Selection(self, strategy)


@dataclass(frozen=True, eq=False)
class Selection(Prepaid[SelectionBudget]):
    """`SelectionBudget` with its strategy. Releases what was chosen."""

    strategy: SelectionStrategy

    def run(self, table: Table, randomness: Randomness) -> tuple[int, ...]:
        """Answer the strategy's requests until it ends or the draws are used up."""
        rows = GroupedRows.of(table.fit_codes, self.budget.domain)
        levels: dict[RankQuery, int] = {}
        search, chosen = self.strategy(), list[int]()
        request = next(search, None)
        while request is not None and len(chosen) < self.budget.draws:
            scores = self._scores(rows, levels, request)
            chosen.append(
                randomness.noisy_max(scores, scale=self.budget.noise * self.budget._moves)
            )
            request = next_request(search, chosen[-1])
        search.close()
        return tuple(chosen)

    def _scores(
        self, rows: GroupedRows, levels: dict[RankQuery, int], request: HowMany | Which
    ) -> Integers:
        """Whole scores, one for each possible answer; `levels` remembers queries of earlier
        requests.
        """

        def level_of(query: RankQuery) -> int:
            if query not in levels:
                levels[query] = level(
                    self.budget.test, query, rows.measure(self.budget.test, query)
                )
            return levels[query]

        if isinstance(request, Which):
            return np.array([level_of(q) for q in request.queries], dtype=np.int64)
        best = sorted((max(map(level_of, group)) for group in request.groups), reverse=True)
        # None at all has no group above to be true, all have no group below to be false.
        above, below = [None, *best], [*(-b for b in best), None]
        return np.array(
            [min(q for q in pair if q is not None) for pair in zip(above, below, strict=True)],
            dtype=np.int64,
        )

    def pack(self, value: tuple[int, ...]) -> Arrays:
        """One entry per request."""
        return {"chosen": np.array(value, dtype=np.int64)}

    def unpack(self, arrays: Arrays) -> tuple[int, ...]:
        """Choices from their array."""
        return tuple(arrays["chosen"].tolist())


# --- strategy ---


Request = TypeVar("Request")
Reply = TypeVar("Reply")
Result = TypeVar("Result")


def next_request(search: Generator[Request, Reply | None, Any], reply: Reply) -> Request | None:
    """Send a reply; None if the search has come to its end."""
    try:
        return search.send(reply)
    except StopIteration:
        return None


def result_of(
    strategy: Callable[[], Generator[Any, Reply | None, Result]], replies: Iterable[Reply]
) -> Result:
    """What a strategy makes of released replies. Where they end first, the budget was used up."""
    search = strategy()
    try:
        next(search)
        for reply in replies:
            search.send(reply)
        while True:
            search.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
