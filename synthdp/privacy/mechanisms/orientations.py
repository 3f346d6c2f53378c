"""Which way pairs of columns point: additive noise models of pairs that are chosen late.

A pair is measured by a two-way table (`pair_table`), the default, or by dependence scores (`anm`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import dp_accounting

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import RoundedGaussianDpEvent
from synthdp.privacy.mechanisms.anm import AdditiveNoiseScores, NoisyScores, Published
from synthdp.privacy.mechanisms.mechanism import Arrays, Prepaid
from synthdp.privacy.mechanisms.pair_table import NoisyPair, PairTable
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Score = Literal["table"] | Published


@dataclass(frozen=True)
class OrientationBudget:
    """Additive noise models of pairs that are chosen later, in the light of earlier releases, at a
    price fixed when the plan is made.

    k pairs get `noise_multiplier * sqrt(k)` each: k Gaussian mechanisms that compose to the planned
    one whatever k is, for k / (`noise_multiplier` sqrt(k))^2 is the planned squared mu [Dong, Roth
    and Su, "Gaussian Differential Privacy", arXiv:1905.02383v3, Corollary 3.3]. k depends on
    earlier releases alone.
    """

    domain: Domain
    noise_multiplier: float
    scores: tuple[Score, ...] = ("table",)

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on additive noise"
            " models of pairs chosen from earlier releases"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; on counts, where each pair has a two-way table."""
        if self.scores == ("table",):
            return RoundedGaussianDpEvent(self.noise_multiplier, rows_per_unit)
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / rows_per_unit)

    def scaled(self, factor: float) -> OrientationBudget:
        """The same with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def choose(self, pairs: Sequence[tuple[str, str]]) -> ChosenOrientations:
        """The mechanism for `pairs`."""
        noise = self.noise_multiplier * math.sqrt(len(pairs))
        published = tuple(score for score in self.scores if score != "table")
        if self.scores != ("table",) and published != self.scores:
            raise ValueError(f"a two-way table is released alone, got scores {self.scores}")
        models = (
            (
                AdditiveNoiseScores(self.domain, a, b, noise, published)
                if published
                else PairTable(self.domain, a, b, noise)
            )
            for a, b in pairs
        )
        return ChosenOrientations(self, tuple(models))


@dataclass(frozen=True)
class ChosenOrientations(Prepaid[OrientationBudget]):
    """`OrientationBudget` with its pairs chosen."""

    models: tuple[AdditiveNoiseScores | PairTable, ...]

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyScores | NoisyPair, ...]:
        """One model after the other, each with its own split if it has one."""
        return tuple(model.run(table, randomness) for model in self.models)

    def pack(self, value: tuple[NoisyScores | NoisyPair, ...]) -> Arrays:
        """Arrays by pair and name."""
        packed = [model.pack(one) for model, one in zip(self.models, value, strict=True)]  # type: ignore[arg-type]
        return {
            f"{i:06d}.{name}": array for i, one in enumerate(packed) for name, array in one.items()
        }

    def unpack(self, arrays: Arrays) -> tuple[NoisyScores | NoisyPair, ...]:
        """Arrays by pair and name."""
        own = [
            {n[7:]: a for n, a in arrays.items() if n[:7] == f"{i:06d}."}
            for i in range(len(self.models))
        ]
        return tuple(model.unpack(one) for model, one in zip(self.models, own, strict=True))
