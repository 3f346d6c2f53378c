"""What was asked of the randomness of a run, call by call: what a replay compares.

`recording` writes them down; `verdict` and `comparison` read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.privacy.noise import Key, NoiseKind

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class NoiseCall:
    """One draw of noise: the exact values that it hides, and the noisy ones that were returned.

    Of a noisy maximum, `noisy` is its position; of the largest of several, theirs `[told]`.
    """

    kind: NoiseKind
    exact: Array
    sigma: float  # the scale of noise that is not Gaussian
    spacing: float
    noisy: Array

    @property
    def rounded(self) -> npt.NDArray[np.float64]:
        """The exact values as the noise is added to them: on their lattice."""
        exact = self.exact.astype(np.float64)
        return np.rint(exact / self.spacing) * self.spacing if self.kind == "lattice" else exact


@dataclass(frozen=True)
class CoinCall:
    """One Poisson batch from `rows` rows, where a mechanism sees `of_rows`: `batch` rows are in it,
    `of_unit` of them the unit's.
    """

    rows: int
    rate: float
    batch: int
    of_unit: int
    of_rows: int


@dataclass(frozen=True)
class SampleCall:
    """One secret sample of `units` units, where a mechanism sees `of_units`."""

    units: int
    rate: float
    of_units: int


@dataclass(frozen=True)
class LatentCall:
    """Latents drawn for `rows` rows; the batch at hand `needed` them for so many."""

    batch_number: int
    rows: int
    needed: int
    width: int


@dataclass(frozen=True)
class KeysCall:
    """Noisy counts of the keys that occur, told above a threshold: all of them, and those told."""

    counts: Mapping[Key, int]
    sigma: float
    threshold: int
    kept: Mapping[Key, int]


Call = NoiseCall | CoinCall | SampleCall | KeysCall
