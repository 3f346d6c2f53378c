"""Laws of some columns, drawn as the noisy tables leave them open.

The estimates of least squares are linear in the tables. With fresh noise of the same law on each
table they move by as much as they are off: so are the population's shares drawn, with the sampling
of rows added. The law of maximum entropy with the drawn margins is what rows are drawn from
[derived in docs/inference.md].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.errors import OutputError
from synthdp.inference.blocks import CLEAR, Blocks, find_blocks, fitted, needed, noise_of
from synthdp.inference.estimate import LeastSquares
from synthdp.inference.tables import Axes, Measured

Floats = npt.NDArray[np.float64]

WITHIN = 0.1
"""Rows that a block of a law may be off."""
LEAST = 0.5
"""Deviations of its noise that a cell has at least where a block is shared out."""
SHARED_SWEEPS = 5
"""Rounds of fitting margins that disagree where they were raised to `LEAST`."""


@dataclass(frozen=True)
class Posterior:
    """What noisy margins say of the law of their columns.

    `per_unit` is how many rows one person may have: the sampling has at most that many times the
    variance of independent rows.
    """

    solver: LeastSquares
    per_unit: int = 1

    @property
    def known(self) -> Measured:
        """The margins."""
        return self.solver.measured

    @cached_property
    def sets(self) -> list[Axes]:
        """The sets of axes whose margin is determined: those in one table together."""
        return [axes for axes, value in self.solver.eigenvalues.items() if value and axes]

    @cached_property
    def rows(self) -> float:
        """Rows that the tables count, as estimated."""
        return float(self.solver.counts.sum())

    @cached_property
    def blocks(self) -> dict[Axes, Blocks]:
        """The levels that are told apart, by set of axes.

        Raises:
            OutputError: neither the number of rows nor any level is seen above the noise.
        """
        variance = min(float(m.variances.sum()) for m in self.known.margins.values())
        known = self.rows >= CLEAR * math.sqrt(variance + max(self.rows, 0.0))
        found = (
            find_blocks(self.known, self.solver.counts, self.sets, per_unit=self.per_unit)
            if known
            else {}
        )
        if not found:
            raise OutputError(
                f"the tables count about {max(self.rows, 0):,.0f} rows, give or take"
                f" {2 * math.sqrt(variance):,.0f}: too few to draw copies of",
                hint="ask for single figures with `synthdp answer`",
            )
        return found

    @cached_property
    def held(self) -> list[Blocks]:
        """The blocks whose sums a law is given."""
        return needed(list(self.blocks.values()))

    @cached_property
    def law(self) -> Floats:
        """The law of maximum entropy of the estimates, `[*cells]`.

        Raises:
            OutputError: no law has them.
        """
        start = np.ones(self.known.shape)
        single = needed(
            [
                Blocks({i: np.arange(start.shape[i]) for i in sorted(axes)}, start.ndim)
                for axes in self.sets
            ]
        )
        raised = []
        for block in single:
            least = LEAST * np.sqrt(block.sums(noise_of(self.known, frozenset(block.groups))))
            raised.append(np.maximum(block.sums_of(self.solver.counts), least) / self.rows)
        for _ in range(SHARED_SWEEPS):
            for block, wanted in zip(single, raised, strict=True):
                start = start * (wanted / block.sums_of(start))[block.labels]
        found = self._fitted(start, self.solver.counts)
        if found is None:
            raise OutputError(
                "no law of these columns has the counts of all their noisy tables: the noise is too"
                " large for so many columns at once",
                hint="name fewer columns with --columns",
            )
        return found

    def drawn(self, rng: np.random.Generator) -> Floats | None:
        """A law `[*cells]`; None where the draw has a negative block, or no law has it."""
        margins = {
            axes: replace(
                m, counts=m.counts + np.sqrt(m.variances) * rng.normal(size=m.counts.shape)
            )
            for axes, m in self.known.margins.items()
        }
        noisy = LeastSquares(replace(self.known, margins=margins)).counts
        rows = round(self.rows)
        seen = rng.multinomial(rows, self.law.ravel()).reshape(self.law.shape)
        return self._fitted(self.law, noisy + math.sqrt(self.per_unit) * (seen - rows * self.law))

    def _fitted(self, start: Floats, counts: Floats) -> Floats | None:
        total = float(counts.sum())
        sums = [block.sums_of(counts) / total for block in self.held]
        if total <= 0 or any((s <= 0).any() for s in sums):
            return None
        found = fitted(start, self.held, sums, within=WITHIN / self.rows)
        return None if found is None else found / found.sum()
