"""Public settings of DP-SGD: one frozen object states the event, scales the noise and draws the batches.

Apart from `dpsgd`, so that a plan can be made without importing torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.privacy.accounting import unit_sampled_gaussian

FLOAT_SLACK = 1e-3
LATTICE_BITS = 24  # lattice spacing = noise standard deviation / 2^bits


@dataclass(frozen=True)
class DpSgd:
    """Public settings of DP-SGD; states its event, makes its noise and draws its batches."""

    rate: float
    steps: int
    expected_batch: float
    clip: float
    noise_multiplier: float
    learning_rate: float
    ema: float
    checkpoint_every: int

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return f"DP-SGD, {self.steps} steps, rate {self.rate:.4g}, clip {self.clip:g}, noise multiplier {self.noise_multiplier:.4g}"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Poisson-subsampled Gaussians, `steps` of them."""
        return unit_sampled_gaussian(noise_multiplier=self.noise_multiplier, rate=self.rate, rows=rows_per_unit, steps=self.steps)

    def sensitivity(self, dimension: int) -> float:
        """Most that one row moves the rounded sum of `dimension` coordinates, in L2."""
        rounding = self.noise_multiplier * math.sqrt(dimension) / 2.0**LATTICE_BITS
        return self.clip * (1 + FLOAT_SLACK) / (1 - rounding)

    def draw_batch(self, rows: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        """Positions of the rows in one Poisson batch: an independent coin of chance `rate` for each."""
        return np.flatnonzero(rng.random(rows) < self.rate)
