"""A sparse vector and a noisy maximum on counts, right ones and wrong ones: name -> (how to build
it, what the replay must say, or None).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import GumbelMaxDpEvent, SparseVectorDpEvent
from synthdp.privacy.mechanisms.counting import count_tables
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table


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
}
