"""Kernels broken on purpose, for audits to find: each differs from the real one in one way."""

import numpy as np
import numpy.typing as npt

from synthdp.privacy.noise import Floats, Integers, Streams


class HalfNoise(Streams):
    """Half the noise that was asked for."""

    part = 0.5

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return super().discrete_gaussian(counts, sigma=sigma * self.part)

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return super().rounded_gaussian(counts, sigma=sigma * self.part)

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        return super().lattice_gaussian(values, sigma=sigma * self.part, spacing=spacing)


class LittleLessNoise(HalfNoise):
    """Seven tenths of the noise that was asked for."""

    part = 0.7


class FixedBatches(Streams):
    """Batches of fixed size, drawn without replacement, where Poisson batches are charged."""

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        return np.sort(self.sampling.permutation(rows)[: int(rows * rate)])


class EveryoneSampled(Streams):
    """All units, where a secret sample is charged."""

    def secret_sample(self, units: int, *, rate: float) -> npt.NDArray[np.intp]:
        return np.arange(units)
