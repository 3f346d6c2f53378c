"""One noisy moment matrix of a public basis: all second moments of a row's functions, released
together.

Functions are scaled down to a declared norm and cut, towards zero, to multiples of `GRID`, so that
every sum is a whole number of `GRID`^2 that floating point adds exactly in any order: neighbouring
tables differ by exactly one row's products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.basis import Basis, Scale
from synthdp.data.encoding import Codes
from synthdp.privacy.events.kernel import GaussianSumsDpEvent
from synthdp.privacy.mechanisms import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

if TYPE_CHECKING:  # a plan adds up nothing
    import pandas as pd

Integers = npt.NDArray[np.int64]

GRID = 2.0**-10


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Released sums of products of functions, symmetric `[terms, terms]`, with independent noise
    `sigma` on and above the diagonal.

    The first function is the constant, so the first entry is a noisy number of rows (less what
    scaling took from them).
    """

    basis: Basis
    sums: npt.NDArray[np.float64]
    sigma: float


@dataclass(frozen=True)
class MomentMatrix:
    """Sum of the outer products of the rows' functions f, upper triangle, plus rounded Gaussian
    noise.

    Sensitivity [derived here]: with |f| <= `norm` = C and every |f_i| <= 1, one row moves the upper
    triangle by sqrt(sum_{i<=j} f_i^2 f_j^2) = sqrt((|f|^4 + sum f_i^4) / 2) <= sqrt((C^4 + C^2) /
    2) in L2, reached by C^2 functions of size one. |f_i| <= 1 because Legendre polynomials on [-1,
    1], contrasts and indicators are at most one, and weights are too. Removing a row does the same;
    a unit of k rows at most k times as much. For rows of functions f and g the product of their
    moves is sum_{i<=j} f_i f_j g_i g_j = ((f.g)^2 + sum f_i^2 g_i^2) / 2 >= 0, and so is that of
    the moves A of k rows that leave and B of k that come: |A - B|^2 <= |A|^2 + |B|^2, so that
    replacing a unit moves them by sqrt(2) times as much at most, reached by functions of size one
    that no two rows share. Scaling and cutting act on
    each row alone and only shrink f. The sums are whole numbers in units of `GRID`^2, so that
    rounding the noise is post-processing (as for counts).
    """

    basis: Basis
    norm: float
    noise_multiplier: float

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on the moments of"
            f" {len(self.basis.terms)} functions"
        )

    @property
    def sensitivity(self) -> float:
        """Of the upper triangle to one row, in L2."""
        return math.sqrt((self.norm**4 + self.norm**2) / 2)

    @property
    def sigma(self) -> float:
        """Noise of each entry."""
        return self.noise_multiplier * self.sensitivity

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return GaussianSumsDpEvent(self.noise_multiplier / rows_per_unit, math.sqrt(2))

    def scaled(self, factor: float) -> MomentMatrix:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def with_scales(self, scales: tuple[tuple[str, Scale], ...]) -> MomentMatrix:
        """The same moments on other scales, which must come from public or released facts; what is
        charged stays.
        """
        return replace(self, basis=replace(self.basis, scales=scales))

    @property
    def reads(self) -> frozenset[str]:
        """Columns of the basis."""
        return frozenset(self.basis.columns)

    @property
    def size(self) -> int:
        """Entries of the upper triangle."""
        return math.comb(len(self.basis.terms) + 1, 2)

    def run(self, table: Table, randomness: Randomness) -> NoisyMoments:
        """Add up the products of all rows, then the noise."""
        return self.release(table.add_up(self), randomness)

    def block(self, frame: pd.DataFrame, codes: Codes) -> Integers:
        """Upper triangle over some rows, in units of `GRID`^2.

        A block's sums are exact in floating point; those of 2^33 rows would not be.
        """
        functions = self.bounded(self.basis.matrix(frame, codes))
        upper = np.triu_indices(len(self.basis.terms))
        return (functions.T @ functions)[upper].astype(np.int64)

    def bounded(self, functions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Functions of norm at most `norm`, whole numbers in units of `GRID`, `[rows, terms]`.

        [Derived here: a norm of at most 1,024 doubles, as many as a `Basis` has, is computed to a
        relative error below 2^-40, less than the 1e-9 that is kept free; and cutting towards
        zero makes no function larger.]
        """
        size, bound = np.sqrt((functions**2).sum(1, keepdims=True)), self.norm * (1 - 1e-9)
        scaled: npt.NDArray[np.float64] = np.trunc(
            functions * (bound / np.maximum(size, bound)) / GRID
        )
        return scaled

    def release(self, upper: Integers, randomness: Randomness) -> NoisyMoments:
        """The noisy matrix of an exact upper triangle."""
        noisy = randomness.rounded_gaussian(upper, sigma=self.sigma / GRID**2) * GRID**2
        terms = len(self.basis.terms)
        sums = np.zeros((terms, terms))
        sums[np.triu_indices(terms)] = noisy
        return NoisyMoments(self.basis, sums + np.triu(sums, 1).T, self.sigma)

    def pack(self, value: NoisyMoments) -> Arrays:
        """The matrix."""
        return {"sums": value.sums}

    def unpack(self, arrays: Arrays) -> NoisyMoments:
        """The matrix with its basis."""
        return NoisyMoments(self.basis, arrays["sums"], self.sigma)
