"""One noisy two-way table of a pair of numeric columns: all that an additive noise model in both
directions is read from.

The scores of Kusner et al. (2016, see `privacy.mechanisms.anm`) are released one by one, and each
moves by several units with one row, on half of the rows. A table of counts moves by one, on all of
them, and both regressions, the residuals and their dependence are post-processing of it
(`graph.discovery.pair_reading`).
"""

from __future__ import annotations

from dataclasses import dataclass

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import RoundedGaussianDpEvent
from synthdp.privacy.mechanisms.hsic import scaled_columns
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CELLS = 16
"""Along each column's declared range: on simulated pairs finer grids lose more to noise than
coarser ones lose to width.
"""


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """Released counts `[CELLS, CELLS]` of x by y, with noise of deviation `sigma` in each; may be
    negative.
    """

    counts: Floats
    sigma: float


@dataclass(frozen=True)
class PairTable:
    """Count the rows in a public grid of equal cells of both ranges, and add rounded Gaussian
    noise.

    Sensitivity [derived here]: a row lies in one cell, or in none if either number is missing,
    whatever the other rows are. Adding or removing it moves one count by one, so 1 in L2; k rows of
    a unit at most k, reached in one cell. Counts are whole numbers, so that rounding the noise is
    post-processing (`events.kernel.RoundedGaussianDpEvent`).

    Raises:
        ValueError: a column is no number or instant.
    """

    domain: Domain
    x: str
    y: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not (self.domain[self.x].ranged and self.domain[self.y].ranged):
            raise ValueError(
                f"an additive noise model needs two columns of numbers or instants, got {self.x!r}"
                f" and {self.y!r}"
            )

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on a two-way table of"
            f" {CELLS} x {CELLS} cells"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism on counts."""
        return RoundedGaussianDpEvent(self.noise_multiplier, rows_per_unit)

    def run(self, table: Table, randomness: Randomness) -> NoisyPair:
        """Count, then the noise."""
        x, y = scaled_columns(table, self.domain, (self.x, self.y))
        known = ~np.isnan(x) & ~np.isnan(y)
        counts = count_cells(x[known], y[known])
        return NoisyPair(
            np.asarray(
                randomness.rounded_gaussian(counts, sigma=self.noise_multiplier), dtype=np.float64
            ),
            self.noise_multiplier,
        )

    def pack(self, value: NoisyPair) -> Arrays:
        """The table."""
        return {"counts": value.counts}

    def unpack(self, arrays: Arrays) -> NoisyPair:
        """The table."""
        counts = arrays["counts"]
        if (
            counts.shape != (CELLS, CELLS)
            or counts.dtype != np.float64
            or not np.isfinite(counts).all()
        ):
            raise ValueError("not the counts of a pair")
        return NoisyPair(counts, self.noise_multiplier)


def count_cells(x: Floats, y: Floats) -> Integers:
    """Rows by cell, `[CELLS, CELLS]`; numbers on [-1, 1], those beyond count in the outermost
    cells.
    """
    rows, columns = (np.clip(((v + 1) / 2 * CELLS).astype(np.intp), 0, CELLS - 1) for v in (x, y))
    return np.bincount(rows * CELLS + columns, minlength=CELLS**2).reshape(CELLS, CELLS)
