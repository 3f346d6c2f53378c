"""Public settings of DP-SGD: one frozen object states the event, scales the noise and sets the rate
of the batches.

Apart from `dpsgd`, so that a plan can be made without importing torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import dp_accounting

from synthdp.privacy.events.gaussian import unit_sampled_gaussian

# What arithmetic adds to a clipped sum, relative to the clipping norm: 32-bit norms (proof in
# `layers`), and the sums of blocks of examples (proof in `clipped_layer.stable_sum`). Larger blocks
# cost noise, more of them time.
NORM_SLACK = 1e-3
MAX_TERMS = 2**15  # of a norm that is summed in 32 bits
MAX_SINGLE = 96  # examples of a block, which is summed in 32 bits
MAX_STRETCH = 16  # of what public features do to a sum; their layers are summed in 64 bits
BLOCK_SLACK, DOUBLE_SLACK = 4 * (MAX_SINGLE + 1) ** 2 * 2.0**-24, MAX_STRETCH * 2.0**-14
MIN_SLOTS, SPARE = (
    128,
    6.0,
)  # of a chunk, and standard deviations of a batch above the expected one for which it has room
MAX_WEIGHT = 64.0  # bound of a trained weight; see `dpsgd`
DECAY_FROM = 0.7  # the learning rate falls linearly to zero over the last 30% of the steps
LATTICE_BITS = 20  # rounding to the lattice moves a sum by at most clip / 2^bits in L2


@dataclass(frozen=True)
class DpSgd:
    """Public settings of DP-SGD; states its event, its noise and the rate of its batches."""

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
        return (
            f"DP-SGD, {self.steps} steps, rate {self.rate:.4g}, clip {self.clip:g}, noise"
            f" multiplier {self.noise_multiplier:.4g}"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Poisson-subsampled Gaussians, `steps` of them."""
        return unit_sampled_gaussian(
            noise_multiplier=self.noise_multiplier,
            rate=self.rate,
            rows=rows_per_unit,
            steps=self.steps,
        )

    def scaled(self, factor: float) -> DpSgd:
        """The same training with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def sensitivity(self) -> float:
        """Most that one row moves the sum rounded to the lattice, in L2; see `dpsgd` for the
        proof.
        """
        return self.clip * (
            (1 + NORM_SLACK) * (1 + BLOCK_SLACK + DOUBLE_SLACK) + 2.0**-LATTICE_BITS
        )

    @property
    def block(self) -> int:
        """Public number of slots whose examples are summed in 32 bits."""
        return math.ceil(self._room / math.ceil(self._room / MAX_SINGLE))

    @property
    def slots(self) -> int:
        """Public number of examples that go through the model together: whole blocks, with room for
        nearly every batch.
        """
        return self.block * math.ceil(self._room / MAX_SINGLE)

    @property
    def _room(self) -> float:
        return max(MIN_SLOTS, self.expected_batch + SPARE * math.sqrt(self.expected_batch))

    def lattice_spacing(self, dimension: int) -> float:
        """Public spacing of the lattice in `dimension` coordinates: whatever the noise,
        sqrt(dimension) of it stay below clip / 2^bits.
        """
        return self.clip / (2.0**LATTICE_BITS * math.sqrt(dimension))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.sensitivity

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0: it fades from `DECAY_FROM` of the steps on."""
        decay_from = self.steps * DECAY_FROM
        return self.learning_rate * (
            min(1.0, (self.steps - step) / (self.steps - decay_from))
            if self.steps > decay_from
            else 1.0
        )

    def average_decay_at(self, step: int) -> float:
        """What is kept of the weight average at a step; less in the first steps, which are far from
        where the training ends.
        """
        return min(self.ema, (1 + step) / (10 + step))
