"""Private selection under a search: how many, and which, by noisy maxima, each of a fixed and
planned price.

The search is a strategy (`privacy.mechanisms.strategy`) that is sent whole numbers. Scores are the
levels of rank queries (`privacy.mechanisms.conditional_counts.level`): at least 0 where
"independent" holds, moved by a row by at most s. Both requests choose among scores that a row moves
by at most s:

HowMany   Of groups, in each of which the best query counts, how many are at least 0? With q(1) >=
q(2) >= ... the
          groups' scores, k scores min(q(k), -q(k + 1)): at least 0 for the true number and below 0
          for all others, but where q(k + 1) is 0, when k too scores 0, and any of the tied numbers
          may be chosen. Order statistics and minima move by no more than what they are taken of
          [derived here].
Which     The position of the best query in a list.

The noisy maximum is by Gumbel noise, which is the exponential mechanism, as in Xu, Yuan and Wu,
"Differential privacy preserving causal graph discovery" (2017). At one noise exponential noise
chooses better [McKenna and Sheldon, "Permute-and-Flip", arXiv:2010.12603v1, Theorem 2]; for one
price of many choices Gumbel noise is about half as much (`events.kernel.GumbelMaxDpEvent`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import GumbelMaxDpEvent
from synthdp.privacy.mechanisms.conditional_counts import GroupedRows, RankQuery, level, level_moves
from synthdp.privacy.mechanisms.mechanism import Arrays, Prepaid
from synthdp.privacy.mechanisms.ranks import STEPS, RankTest
from synthdp.privacy.mechanisms.strategy import next_request
from synthdp.privacy.noise import Integers, Randomness
from synthdp.privacy.table import Table


@dataclass(frozen=True)
class HowMany:
    """How many of these groups hold a query that is true?"""

    groups: tuple[tuple[RankQuery, ...], ...]


@dataclass(frozen=True)
class Which:
    """Which of these queries is most clearly true?"""

    queries: tuple[RankQuery, ...]


Strategy = Callable[[], Generator[HowMany | Which, int | None, Any]]
"""A fresh search."""


@dataclass(frozen=True)
class SelectionBudget:
    """Public settings of a search by selection: at most `draws` noisy maxima, of Gumbel noise of
    scale `noise` times what a row moves.

    `rows`: declared rows that a fit is expected to see.
    """

    domain: Domain
    test: RankTest
    draws: int
    rows: float
    noise: float

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return (
            f"noisy maximum of {self.test.capitalize()}'s statistics, noise {self.noise:.4g},"
            f" {self.draws} times"
        )

    @property
    def _moves(self) -> int:
        return level_moves(self.test)

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """`draws` noisy maxima. Proofs: `events.kernel.GumbelMaxDpEvent`, and for what a row moves
        a score, this module and `conditional_counts.level`.
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

    def choose(self, strategy: Strategy) -> Selection:
        """The mechanism for a strategy."""
        return Selection(self, strategy)


@dataclass(frozen=True, eq=False)
class Selection(Prepaid[SelectionBudget]):
    """`SelectionBudget` with its strategy. Releases what was chosen."""

    strategy: Strategy

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
