"""Public settings of DP-SGD: one frozen object states the event, scales the noise and sets the rate
of the batches.

Apart from `training`, so that a plan can be made without importing torch.

Secret sample [derived here]. Where `DpSgd.sample` is below 1, all steps draw their batches from one
sample of the units, by coins that are drawn once, are in memory alone and are told to nobody. The
steps are those of `training`, on a table that is the sample, and any table may be it: their proof
holds for each. `secret_sample_pld` has the proof of what the sample gains. The coupling of two runs
puts the same others into both samples. Over both kinds of coins a row is in a batch as if it were
drawn from all rows at the product of the rates, so chunks have the same room. Nothing that leaves a
training depends on the sample but through the noisy sums: ticks count steps, shapes are public. It
has no checkpoints: a run that was killed would go on with another sample, where one for all steps
is charged. What it had done was used by nobody, as are steps after a last checkpoint; it begins
anew, under the same charge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dp_accounting

from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.events.kinds import SecretSampleDpEvent

if TYPE_CHECKING:
    from synthdp.data.encoding import Codes
    from synthdp.privacy.noise import Randomness
    from synthdp.privacy.table import Table

# What arithmetic adds to a clipped sum, relative to the clipping norm: 32-bit norms (proof in
# `layers`), and the sums of blocks of examples (proof in `layers.stable_sum`). Larger blocks
# cost noise, more of them time.
NORM_SLACK = 1e-3
MAX_TERMS = 2**15  # of a norm that is summed in 32 bits
MAX_SINGLE = 96  # examples of a block, which is summed in 32 bits
MAX_STRETCH = 16  # of what public features do to a sum; their layers are summed in 64 bits
BLOCK_SLACK, DOUBLE_SLACK = 4 * (MAX_SINGLE + 1) ** 2 * 2.0**-24, MAX_STRETCH * 2.0**-14
MAX_WEIGHT = 64.0  # bound of a trained weight; see `training`
LATTICE_BITS = 20  # rounding to the lattice moves a sum by at most clip / 2^bits in L2


@dataclass(frozen=True)
class DpSgd:
    """Public settings of DP-SGD; states its event, its noise and the rate of its batches.

    Below 1, `sample` is the probability with which a unit is in the secret sample that all steps
    draw their batches from, each of its rows with probability `rate`.
    """

    rate: float
    steps: int
    expected_batch: float
    clip: float
    noise_multiplier: float
    learning_rate: float
    ema: float
    checkpoint_every: int
    sample: float = 1.0

    @property
    def name(self) -> str:
        sample = f", on a secret sample of {self.sample:.4g} of the units" if self.sampled else ""
        return (
            f"DP-SGD, {self.steps} steps, rate {self.rate:.4g}, clip {self.clip:g}, noise"
            f" multiplier {self.noise_multiplier:.4g}{sample}"
        )

    @property
    def sampled(self) -> bool:
        """Whether a secret sample is trained on."""
        return self.sample < 1

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Poisson-subsampled Gaussians, `steps` of them; all on one secret sample, if there is
        one.
        """
        steps = unit_sampled_gaussian(
            noise_multiplier=self.noise_multiplier,
            rate=self.rate,
            rows=rows_per_unit,
            steps=self.steps,
        )
        return SecretSampleDpEvent(self.sample, steps) if self.sampled else steps

    def rows_of(self, table: Table, randomness: Randomness) -> Codes:
        """Levels of the rows that all steps of one training draw their batches from."""
        return table.sampled_codes(self.sample, randomness) if self.sampled else table.fit_codes

    def scaled(self, factor: float) -> DpSgd:
        """The same training with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    @property
    def sensitivity(self) -> float:
        """Most that one row moves the sum rounded to the lattice, in L2; see `training` for the
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
        """Places of a chunk, with room for batches up to 6 deviations above the expected one."""
        return max(128, self.expected_batch + 6 * math.sqrt(self.expected_batch))

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
        """Learning rate of a step, counted from 0: over the last 30% of steps it fades to zero."""
        decay_from = self.steps * 0.7
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
