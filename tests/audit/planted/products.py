"""Sums of products with one thing wrong in each: name -> (how to build it, what replay says)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.privacy.mechanisms.sums import GRID, Bounded, NoisyProducts, ProductSums
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from tests.audit.mechanism_examples import product_sums

Built = Callable[[Domain], ProductSums]


class Uncut(ProductSums):
    """Numbers beyond the clip count in full."""

    def _number(self, bounds: Bounded, frame: Any, codes: Any) -> Any:
        values = np.nan_to_num(self._values(bounds.column, frame, codes))
        return (values - bounds.middle) / bounds.half


class BoundsFromRows(ProductSums):
    """The largest number of the table becomes 1."""

    def _number(self, bounds: Bounded, frame: Any, codes: Any) -> Any:
        values = np.nan_to_num(self._values(bounds.column, frame, codes))
        return values / max(1e-9, np.abs(values).max(initial=0.0))


class OneProduct(ProductSums):
    """Charged as if a row were in one sum."""

    @property
    def sensitivity(self) -> float:
        return 1.0


class EveryLevel(ProductSums):
    """The reference level counts as the first one, too: indicators of one row add up."""

    def _parts(self, frame: Any, codes: Any) -> Mapping[Any, Any]:
        parts = dict(super()._parts(frame, codes))
        return {p: v if p[1] < 0 else np.ones_like(v) for p, v in parts.items()}


class ByRank(ProductSums):
    """A number is its rank in the table."""

    def _number(self, bounds: Bounded, frame: Any, codes: Any) -> Any:
        values = self._values(bounds.column, frame, codes)
        return 2 * np.argsort(np.argsort(values)) / max(1, len(values) - 1) - 1


@dataclass(frozen=True)
class LessNoise(ProductSums):
    factor: float = 1.0

    def run(self, table: Table, randomness: Randomness) -> NoisyProducts:
        exact = table.add_up(self)
        sigma = self.sigma * GRID * self.factor
        return NoisyProducts(randomness.rounded_gaussian(exact, sigma=sigma) / GRID, self.sigma)


class GrowingNoise(ProductSums):
    """Noise that grows with the table."""

    def run(self, table: Table, randomness: Randomness) -> NoisyProducts:
        exact = table.add_up(self)
        sigma = self.sigma * GRID * (1 + math.log1p(len(table.codes)))
        return NoisyProducts(randomness.rounded_gaussian(exact, sigma=sigma) / GRID, self.sigma)


def of(kind: type[ProductSums], *, example: int = 1, **fields: Any) -> Built:
    """The clipped example of positions, or, as the fourth, that of a range."""

    def build(domain: Domain) -> ProductSums:
        right = product_sums(domain)[example]
        return kind(right.domain, right.arm, right.numbers, right.products, 2.0, **fields)

    return build


BUGS: dict[str, tuple[Built, str | None]] = {
    "nothing": (of(ProductSums), None),
    "numbers that are not cut": (of(Uncut), "moved"),
    "bounds from the rows": (of(BoundsFromRows, example=4), "moved"),
    "ranks for numbers": (of(ByRank, example=4), "moved"),
    "the sensitivity of one sum": (of(OneProduct), "moved"),
    "a row in every level": (of(EveryLevel), "moved"),
    "99% of the noise": (of(LessNoise, factor=0.99), "moved"),
    "noise that grows with the table": (of(GrowingNoise), "sigma"),
}
