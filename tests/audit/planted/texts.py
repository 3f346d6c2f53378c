"""Frequent texts with one thing wrong in each: name -> (how to build it for a domain, what the
replay must say).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.mechanisms.frequent_texts import FrequentTexts, NoisyTexts, TextBudget
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Key, Randomness
from synthdp.privacy.table import Table

Counts = dict[Key, int]


@dataclass(frozen=True)
class Planted(FrequentTexts):
    """Frequent texts with holes where a bug goes: the keys, and how they are told."""

    keys: Callable[[str, str], list[Key]] = lambda name, text: [(name, text)]
    tell: Callable[[Planted, Counts, Table, Randomness], Counts] = lambda own, counts, _, draw: (
        draw.kept_counts(counts, sigma=own.sigma, threshold=own.threshold)
    )
    leak: bool = False

    def run(self, table: Table, randomness: Randomness) -> NoisyTexts:
        counts: Counts = {}
        for name, _ in self.columns:
            for text in table.frame[name][~table.held_out].dropna():
                for key in self.keys(name, text):
                    counts[key] = counts.get(key, 0) + 1
        told = self._value(self.tell(self, counts, table, randomness))
        if not self.leak:
            return told
        return NoisyTexts({**told.counts, "all": {"keys": len(counts)}}, told.sigma, told.threshold)

    def pack(self, value: NoisyTexts) -> Arrays:
        return {"counts": np.array([n for own in value.counts.values() for n in own.values()])}


def planted(**changes: Any) -> Callable[[Domain], Planted]:
    """With these holes filled, for the columns of texts."""

    def build(domain: Domain) -> Planted:
        columns = tuple((c.name, "text") for c in domain.columns if not c.ranged)
        return Planted(TextBudget(1.5, 1e-4, 3), columns, **changes)  # type: ignore[arg-type]

    return build


BUGS: dict[str, tuple[Callable[[Domain], Any], str | None]] = {
    "a threshold for one row": (
        planted(tell=lambda own, c, t, draw: draw.kept_counts(c, sigma=own.sigma, threshold=9)),
        "moved",
    ),
    "noise for one column": (
        planted(
            tell=lambda own, c, t, draw: draw.kept_counts(
                c, sigma=own.budget.noise_multiplier, threshold=own.threshold
            )
        ),
        "moved",
    ),
    "two keys of a text": (
        planted(keys=lambda name, text: [(name, text), (name, text[:1])]),
        "moved",
    ),
    "a threshold of the data": (
        planted(
            tell=lambda own, c, t, draw: draw.kept_counts(
                c, sigma=own.sigma, threshold=own.threshold + len(t.fit_codes)
            )
        ),
        "threshold",
    ),
    "noise of the data": (
        planted(
            tell=lambda own, c, t, draw: draw.kept_counts(
                c, sigma=own.sigma + len(c), threshold=own.threshold
            )
        ),
        "sigma",
    ),
    "counts of each column by themselves": (
        planted(
            tell=lambda own, c, t, draw: {
                key: n
                for name, _ in own.columns
                for key, n in draw.kept_counts(
                    {k: v for k, v in c.items() if k[0] == name},
                    sigma=own.sigma,
                    threshold=own.threshold,
                ).items()
            }
        ),
        "charged",
    ),
    "the number of keys": (planted(leak=True), "output"),
}
