"""Texts and numbers that many rows have, found without a list of them: partition selection.

The keys of a table are its pairs of a column and a text, or a number, that some row has there. What
key a row has in a column is a function of its own value alone. Each key's count
gets Gaussian noise, and a key is told, with its noisy count, where that reaches a threshold. A key
that no row has gets no noise and is never told, so which keys are told depends on which occur; the
threshold makes that rare for keys of one unit. The first such mechanism is that of Korolova et al.
("Releasing Search Queries and Clicks Privately", WWW 2009), with Laplace noise. With Gaussian noise
it is that of Gopi et al. ("Differentially Private Set Union", arXiv:2002.09745), for users who give
the same weight to all their items, and of Wilkins et al. ("Exact Privacy Analysis of the Gaussian
Sparse Histogram Mechanism", arXiv:2202.01100).

Claim [derived here]. Let a unit have at most r rows, and let it be added to a table D, which makes
D'. Of the keys of D' let N be those that D lacks: only rows of the unit have them. Let d bound the
probability that any key of N is told of D'. Then for both orders of (D, D'), and every e, the
hockey-stick divergence of what is told is at most d + (1 - d) g(e), where g is that of one Gaussian
mechanism whose hidden value moves by r sqrt(c) in L2, for c columns.

- Noise is independent for each key. So the law of D' is p X + (1 - p) Y: p >= 1 - d is the
  probability that no key of N is told, X is the law of what is told of the other keys, which are
  those of D, and Y is what it is where some key of N is told. Let Z be the law of D.
- X and Z are the same function (threshold, order of the keys) of noisy counts of the keys of D,
  which differ by what the unit adds: in each column at most r in L1, hence in L2, hence r sqrt(c)
  over c columns. Counts are whole, so rounding the noise is post-processing.
- H(p X + (1 - p) Y | Z) <= p H(X | Z) + (1 - p), since H is convex in its first argument and at
  most 1. The other way round, for every set S, Z(S) - e^e (p X(S) + (1 - p) Y(S)) <= Z(S) - e^e p
  X(S) <= p (Z(S) - e^e X(S)) + (1 - p) Z(S) <= p H(Z | X) + (1 - p). As H <= 1, both are largest
  where 1 - p is: d + (1 - d) g.

That is what the composition of the Gaussian with a mechanism has that is (0, d)-DP: such a pair
dominates. Where a unit is replaced, both tables may have keys that the other lacks. With p for one
and q for the other, P = p Z + (1 - p) Z', Q = q X + (1 - q) Y, and the common keys move by sqrt(2)
r sqrt(c) (`events.kernel.RoundedGaussianDpEvent`): P(S) - e^e Q(S) <= (1 - p) + p Z(S) - e^e q X(S)
<= (1 - p) + p q (Z(S) - e^e X(S)) + p (1 - q) <= 1 - p q (1 - g). That is the Gaussian with two
such mechanisms. QED.

The probability d. In one column the unit's rows fill k <= r keys of N, with counts a_1, ..., a_k >=
1 whose sum is at most r. A key with a rows is told with probability q(a) = Q((t - 1/2 - a) / s): t
is the threshold, a whole number, s the noise of a count, Q the upper tail of the normal law, as a +
round(N) >= t means N >= t - 1/2 - a. For t - 1/2 >= r, q is convex on [0, r], so the sum of the
q(a_i) is largest at a corner of what is allowed: (r - k + 1, 1, ..., 1) for some k, and, as a
function of k, at an end: max(q(r), r q(1)). Over c columns: d <= c max(q(r), r q(1)). `threshold`
is the least t for which this is at most the planned delta, so the price is fixed before c is known.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import dp_accounting
import numpy as np

from synthdp.data.cells import key_of, pointed, whole_of
from synthdp.errors import BudgetError
from synthdp.privacy.events.kernel import ThresholdedGaussianDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.noise import Key, Randomness
from synthdp.privacy.table import Table

Reading = Literal["text", "whole", "whole with commas", "number"]
READINGS: Mapping[Reading, Callable[[Any], str | None]] = MappingProxyType(
    {
        "text": key_of,
        "whole": whole_of,
        "whole with commas": lambda text: whole_of(pointed(text)),
        "number": lambda number: repr(float(number)),
    }
)
"""What key a value is, by itself: the text, if a category may be so; its whole number; or, of
values that are numbers, the number.
"""


@dataclass(frozen=True, eq=False)
class NoisyTexts:
    """The keys that were told of each column, with their noisy counts; `sigma` is their noise."""

    counts: Mapping[str, Mapping[str, int]]
    sigma: float
    threshold: int


@dataclass(frozen=True)
class TextBudget:
    """Frequent texts or numbers of columns that are chosen later, at a price fixed when the plan is
    made.

    With c columns each count has noise of standard deviation `noise_multiplier * sqrt(c)`, and the
    threshold is for units of at most `rows_per_unit` rows. The module's docstring has the proof.
    """

    noise_multiplier: float
    delta: float
    rows_per_unit: int = 1
    keys: Literal["texts", "numbers"] = "texts"

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on {self.keys} that"
            " occur, told above a threshold"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """A Gaussian on counts, and the delta of the threshold.

        Raises:
            BudgetError: the threshold is for units of fewer rows.
        """
        if rows_per_unit > self.rows_per_unit:
            raise BudgetError(
                f"the threshold is for units of at most {self.rows_per_unit} rows, and a unit may"
                f" have {rows_per_unit}"
            )
        return ThresholdedGaussianDpEvent(self.noise_multiplier, self.delta, rows_per_unit)

    def scaled(self, factor: float) -> TextBudget:
        """The same with `factor` times the noise, and the same delta."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def choose(self, columns: Mapping[str, Reading]) -> FrequentTexts:
        """The mechanism for `columns`, at least one, each with how its texts are read."""
        return FrequentTexts(self, tuple(columns.items()))


@dataclass(frozen=True)
class FrequentTexts(Prepaid[TextBudget]):
    """`TextBudget` with its columns chosen, from public or released facts alone."""

    columns: tuple[tuple[str, Reading], ...]

    @property
    def sigma(self) -> float:
        """Noise of each count."""
        return self.budget.noise_multiplier * math.sqrt(len(self.columns))

    @property
    def threshold(self) -> int:
        """The least noisy count that is told: the module's docstring has the bound."""
        return threshold_for(
            self.sigma,
            delta=self.budget.delta / len(self.columns),
            rows_per_unit=self.budget.rows_per_unit,
        )

    def run(self, table: Table, randomness: Randomness) -> NoisyTexts:
        """Count the keys that occur, then add the noise and leave out what is below."""
        counts: dict[Key, int] = {}
        for name, reading in self.columns:
            values = table.frame[name][~table.held_out]
            for key, count in _counted(values, READINGS[reading]).items():
                counts[name, key] = count
        kept = randomness.kept_counts(counts, sigma=self.sigma, threshold=self.threshold)
        return self._value(kept)

    def pack(self, value: NoisyTexts) -> Arrays:
        """Keys as JSON in bytes, and their counts in the same order."""
        keys = [[name, text] for name, own in value.counts.items() for text in own]
        counts = [count for own in value.counts.values() for count in own.values()]
        return {
            "keys": np.frombuffer(json.dumps(keys).encode(), dtype=np.uint8),
            "counts": np.array(counts, dtype=np.int64),
        }

    def unpack(self, arrays: Arrays) -> NoisyTexts:
        """The texts that were told."""
        keys = [(str(name), str(text)) for name, text in json.loads(arrays["keys"].tobytes())]
        counts = arrays["counts"].tolist()
        if {name for name, _ in keys} - {name for name, _ in self.columns}:
            raise ValueError("texts of another column")
        return self._value(dict(zip(keys, counts, strict=True)))

    def _value(self, kept: Mapping[Key, int]) -> NoisyTexts:
        told = {
            name: {text: count for (column, text), count in kept.items() if column == name}
            for name, _ in self.columns
        }
        return NoisyTexts(told, self.sigma, self.threshold)


def threshold_for(sigma: float, *, delta: float, rows_per_unit: int) -> int:
    """The least whole t with max(q(r), r q(1)) <= `delta` for one column, and t - 1/2 >= r.

    >>> threshold_for(10.0, delta=1e-6, rows_per_unit=1)
    50
    """
    from scipy.stats import norm

    r = rows_per_unit
    least = float(max(r + sigma * norm.isf(delta), 1 + sigma * norm.isf(delta / r), r))
    return math.ceil(least + 0.5)


def _counted(values: Any, read: Callable[[Any], str | None]) -> Counter[str]:
    """Rows with each key, of a column. Distinct values are read once, each by itself."""
    import pyarrow as pa

    found = pa.array(values, from_pandas=True).value_counts()
    counted: Counter[str] = Counter()
    for value, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
        key = None if value is None else read(value)
        if key is not None:
            counted[key] += count
    return counted
