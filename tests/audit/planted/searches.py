"""Sparse vectors, noisy maxima and screens of pairs, right ones and wrong ones: name -> (how to
build it, what the replay must say, or None).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import dp_accounting
import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.events.kernel import GumbelMaxDpEvent, SparseVectorDpEvent
from synthdp.privacy.mechanisms.pair_screen import (
    MOVES,
    ChosenScreen,
    PairScreen,
    association_scores,
)
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table, count_tables


@dataclass(frozen=True)
class Sieve:
    """Asks of each level of the first column whether it has many rows; two passes, half of the rows
    each.
    """

    domain: Domain
    again: bool = False  # goes on after an answer above
    threshold_moves: bool = False
    tells: bool = False  # returns the noisy answer
    weight: int = 1  # of a row
    threshold_scale: float = 4.0
    sampled: bool = True
    rate: float = 0.5

    name = "sieve"

    def event(self, rows_per_unit: int) -> Any:
        return dp_accounting.SelfComposedDpEvent(
            SparseVectorDpEvent(4.0, 8.0, 1, self.rate if self.sampled else 1.0, rows_per_unit), 2
        )

    def run(self, table: Table, randomness: Randomness) -> Any:
        replies: list[Any] = []
        for _ in range(2):
            codes = table.fit_codes
            if self.sampled:
                codes = codes[randomness.poisson_batch(len(codes), rate=0.5)]
            counts = self.weight * count_tables(codes, self.domain, [(self.domain.names[0],)])[0]
            bound = counts.sum() if self.threshold_moves else 5
            threshold = randomness.discrete_laplace(np.full(1, bound), scale=self.threshold_scale)[
                0
            ]
            for count in counts:
                noisy = randomness.discrete_laplace(np.full(1, count), scale=8.0)[0]
                replies.append(int(noisy) if self.tells else bool(noisy >= threshold))
                if noisy >= threshold and not self.again:
                    break
        return replies

    def pack(self, value: Any) -> Any:
        return {"replies": np.array(value)}

    def unpack(self, arrays: Any) -> Any:
        return arrays["replies"].tolist()


@dataclass(frozen=True)
class Selection:
    """The commonest level of the first column, twice."""

    domain: Domain
    weight: int = 1
    scale: float = 6.0
    draws: int = 2
    size: Callable[[Any], int] = lambda counts: len(counts)

    name = "selection"

    def event(self, rows_per_unit: int) -> Any:
        return dp_accounting.SelfComposedDpEvent(GumbelMaxDpEvent(6.0, 1, rows_per_unit), 2)

    def run(self, table: Table, randomness: Randomness) -> Any:
        counts = (
            self.weight * count_tables(table.fit_codes, self.domain, [(self.domain.names[0],)])[0]
        )
        return [
            randomness.noisy_max(counts[: self.size(counts)], scale=self.scale)
            for _ in range(self.draws)
        ]

    def pack(self, value: Any) -> Any:
        return {"chosen": np.array(value)}

    def unpack(self, arrays: Any) -> Any:
        return arrays["chosen"].tolist()


@dataclass(frozen=True)
class Screen(ChosenScreen):
    """A screen of all pairs with a hole where a bug goes."""

    weight: int = 1
    noise: float = 1.0
    off: Callable[[Any], int] = lambda codes: 0  # from the score of the first pair
    told: Callable[[Any], int] = lambda scores: 2
    tells: Callable[[Any, Any], Any] = lambda chosen, scores: chosen

    def run(self, table: Table, randomness: Randomness) -> Any:
        groups = LevelGroups(self.budget.domain, {})
        scores = self.weight * association_scores(table.fit_codes, groups, self.pairs)
        scores[0] -= self.off(table.fit_codes)
        scale = self.noise * self.budget.noise * MOVES
        told = randomness.noisy_top(scores, scale=scale, count=self.told(scores))
        return self.tells(tuple(self.pairs[i] for i in told.tolist()), scores)

    def pack(self, value: Any) -> Any:
        return {"pairs": np.array([len(value)])}


def screen(**bug: Any) -> Callable[[Domain], Screen]:
    """Two pairs of all are charged."""

    def of_all_pairs(domain: Domain) -> Screen:
        pairs = tuple(combinations(domain.names, 2))
        return Screen(PairScreen(domain, 2, 3.0), pairs, (0,) * len(pairs), **bug)

    return of_all_pairs


Bug = tuple[Callable[[Domain], Any], str | None]

BUGS: dict[str, Bug] = {
    "a right sieve on samples": (lambda domain: Sieve(domain), None),
    "a right sieve on all rows": (lambda domain: Sieve(domain, sampled=False), None),
    "a right selection": (lambda domain: Selection(domain), None),
    "a selection that ends early": (lambda domain: Selection(domain, draws=1), None),
    "a sieve that goes on after an answer above": (
        lambda domain: Sieve(domain, again=True),
        "charged",
    ),
    "a sieve whose threshold moves": (lambda domain: Sieve(domain, threshold_moves=True), "moved"),
    "a sieve that tells noisy answers": (lambda domain: Sieve(domain, tells=True), "output"),
    "a sieve of doubled counts": (lambda domain: Sieve(domain, weight=2), "moved"),
    "a sieve with half the noise on its threshold": (
        lambda domain: Sieve(domain, threshold_scale=2.0),
        "charged",
    ),
    "a sieve on larger samples than charged": (lambda domain: Sieve(domain, rate=0.4), "charged"),
    "a selection by doubled counts": (lambda domain: Selection(domain, weight=2), "moved"),
    "a selection with half the noise": (lambda domain: Selection(domain, scale=3.0), "charged"),
    "a selection drawn more often": (lambda domain: Selection(domain, draws=3), "charged"),
    "a selection among levels that occur": (
        lambda domain: Selection(domain, size=lambda c: int(np.flatnonzero(c).max(initial=0)) + 1),
        "shape",
    ),
    "a screen of doubled scores": (screen(weight=2), "moved"),
    "a screen that takes off what a row changes": (
        screen(off=lambda codes: 6 * int((codes[:, 0] == 0).sum())),
        "moved",
    ),
    "a screen with half the noise": (screen(noise=0.5), "charged"),
    "a screen with 99% of the noise": (screen(noise=0.99), "charged"),
    "a screen that tells one pair more": (screen(told=lambda scores: 3), "charged"),
    "a screen that tells pairs above zero": (
        screen(told=lambda scores: max(1, min(2, int((scores > 0).sum())))),
        "shape",
    ),
    "a screen that tells which scores are zero": (
        screen(tells=lambda chosen, scores: (*chosen, (scores == 0).tolist())),
        "output",
    ),
}
