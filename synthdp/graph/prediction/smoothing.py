"""Noisy two-way tables without most of their noise: free post-processing.

A noisy table is a signal plus white noise of known size. The signal is taken to be a Gaussian
process: the ratio of the table to the product of its margins is 1 plus a function g of mean zero,
and g is alike at neighbouring levels where a column is ordered. The posterior mean is the smoothed
table [Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Section 2.2]. How
strong and how smooth the signal is, the table says itself: the marginal likelihood chooses among a
few kernels and strengths (empirical Bayes, Section 5.4 there). A table that shows no dependence
beyond its noise becomes the product of its margins.

With margins r and c, kernels K and L, strength s and noise v per cell, the signal's covariance is s
(RKR) x (CLC), with R = diag(r) and C = diag(c): a Kronecker product, so that two small
eigendecompositions solve all of it [Saatci, "Scalable Inference for Structured Gaussian Process
Models" (2011), Chapter 5].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.margin_smoothing import body_of, distances, shrunk

Floats = npt.NDArray[np.float64]

MIN_EVIDENCE = 1.0
"""Gain in log likelihood below which two columns count as independent, in nats.

Of independent pairs, noise alone passes it with a probability of .03 (2 x 2 levels) to .17 (20 x 20
ordered levels); 2 would be passed by .005 to .05.
"""
STRENGTHS = 4.0 ** np.arange(-6, 3)
"""Variances of g."""
OU_RANGE, OU_ROUGHNESS, RBF_RANGE, RBF_ROUGHNESS = 0.6, 0.02, 0.35, 1e-4
"""The two kernels of ordered columns: rough (Ornstein-Uhlenbeck), and smooth (squared distance)."""
MIN_ROWS = 2.0
"""A margin in a table of two columns is at least that of so many rows."""


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues `[levels]` and eigenvectors `[levels, levels]` of RKR, for one kernel K."""

    values: Floats
    vectors: Floats


@dataclass(frozen=True)
class Axis:
    """One column of a two-way table: its margin `[levels]`, without a zero, and its kernels."""

    column: ColumnDomain
    margin: Floats

    @cached_property
    def spectra(self) -> tuple[Spectrum, ...]:
        """One for each kernel that a column of this type may have."""
        return tuple(self._spectrum(kernel) for kernel in _kernels(self.column))

    def _spectrum(self, kernel: Floats) -> Spectrum:
        """g has mean zero under the margin: the kernel is centred before it is scaled."""
        centre = np.eye(len(self.margin)) - self.margin
        scaled = self.margin[:, None] * (centre @ kernel @ centre.T) * self.margin
        values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        return Spectrum(np.maximum(values, 0), vectors)


def axis(column: ColumnDomain, margin: Floats, rows: float) -> Axis:
    """The axis of a column with the `margin` `[levels]`, in a table of `rows` rows."""
    raised = np.maximum(margin, MIN_ROWS / rows)
    return Axis(column, raised / raised.sum())


@dataclass(frozen=True)
class SmoothPair:
    """A two-way table after smoothing.

    `probabilities` is `[levels, levels]`; `evidence` the gain in log likelihood over independence,
    in nats; `strength`, `first` and `second` are the variance of g and the chosen kernels.
    """

    probabilities: Floats
    evidence: float
    strength: float
    first: Spectrum
    second: Spectrum

    @property
    def dependent(self) -> bool:
        """Whether the table shows a dependence."""
        return self.evidence > MIN_EVIDENCE

    def expected_error(self, sigma: float) -> float:
        """Expected total variation from the truth if it is measured with noise `sigma` per cell.

        `sigma` is in probabilities. The posterior's standard deviations give it: a normal error of
        standard deviation t has the mean size sqrt(2 / pi) t.
        """
        if not self.dependent:
            return 0.0
        signal = self.strength * np.outer(self.first.values, self.second.values)
        left = signal * sigma**2 / (signal + sigma**2)
        variance = (self.first.vectors**2) @ left @ (self.second.vectors**2).T
        return float(math.sqrt(2 / math.pi) / 2 * np.sqrt(np.maximum(variance, 0)).sum())


def smoothed_pair(first: Axis, second: Axis, shares: Floats, sigma: float) -> SmoothPair:
    """The noisy `shares` `[levels, levels]` of two columns, smoothed.

    `sigma` is the standard deviation of a share.
    """
    product = np.outer(first.margin, second.margin)
    rest, noise = shares - product, sigma**2
    nothing = -0.5 * float((math.log(noise) + rest**2 / noise).sum())
    best: SmoothPair | None = None
    for a in first.spectra:
        for b in second.spectra:
            turned, spectrum = a.vectors.T @ rest @ b.vectors, np.outer(a.values, b.values)
            for strength in STRENGTHS:
                likelihood, kept = shrunk(turned, strength * spectrum, noise)
                if best is None or likelihood - nothing > best.evidence:
                    best = SmoothPair(kept, likelihood - nothing, float(strength), a, b)
    assert best is not None
    signal = best.first.vectors @ best.probabilities @ best.second.vectors.T
    table = np.maximum(product + signal, 0) if best.dependent else product
    return replace(best, probabilities=table / table.sum())


def fitted_to_margins(table: Floats, rows: Floats, columns: Floats, *, rounds: int = 20) -> Floats:
    """`table` `[levels, levels]` with the margins `rows` and `columns`: proportional fitting."""
    fitted = table + 1e-9 * np.outer(rows, columns)
    for _ in range(rounds):
        fitted = fitted * (rows / np.maximum(fitted.sum(1), 1e-300))[:, None]
        fitted = fitted * (columns / np.maximum(fitted.sum(0), 1e-300))
    return fitted


def _kernels(column: ColumnDomain) -> Sequence[Floats]:
    """Covariances of g along a column `[levels, levels]`: levels alone, rough, smooth."""
    alone, body = np.eye(column.levels), body_of(column)
    if not column.ordered or len(body) < 2:
        return (alone,)
    distance, inner = distances(len(body)), np.ix_(body, body)
    rough, smooth = alone.copy(), alone.copy()
    rough[inner] = np.exp(-distance / OU_RANGE)
    smooth[inner] = np.exp(-((distance / RBF_RANGE) ** 2) / 2)
    return (
        alone,
        rough + OU_ROUGHNESS * np.eye(column.levels),
        smooth + RBF_ROUGHNESS * np.eye(column.levels),
    )
