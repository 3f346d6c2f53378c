"""The law of a noisy two-way table of which most cells are empty: of a function, or nearly one.

A Gaussian process (`graph.predict`) leaves some noise in every cell. Where a column is a function
of another, few cells hold all rows, and the noise of all empty ones, cut at zero, adds up to as
many rows again. Here a cell is empty with a probability that is the same for all, or holds any
share of rows up to the smaller of its margins, all alike: a spike and a slab [Mitchell and
Beauchamp, "Bayesian Variable Selection in Linear Regression" (1988); the means are those of
truncated normals]. The likelihood chooses the probability, and says which of the two laws a table
follows. Free post-processing of released tables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from synthdp.graph.margins import Floats

FULL = tuple(0.5**k for k in range(1, 8))
"""Probabilities of a cell that is not empty, of which one is chosen."""
TINY = 1e-300


class FewCells(NamedTuple):
    """The best such law of a table: its log likelihood, less the constant that a normal has, the
    mean of each cell `[levels, levels]`, and how many cells are expected to hold rows.
    """

    likelihood: float
    means: Floats
    full: float


def few_cells(shares: Floats, first: Floats, second: Floats, sigma: float) -> FewCells:
    """The law of noisy `shares` `[levels, levels]` of deviation `sigma`, with margins `first` and
    `second`.
    """
    most = np.minimum.outer(first, second)
    low, high = -shares / sigma, (most - shares) / sigma  # the slab's ends, in deviations
    # Of the two tails take the one that is small: differences of ones would cancel.
    mass = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    spike = -(low**2) / 2 - math.log(sigma)
    slab = np.log(mass, where=mass > TINY, out=np.full(shares.shape, -np.inf)) - np.log(most)
    slab += math.log(2 * math.pi) / 2
    ends = np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)
    held = shares + sigma * ends / math.sqrt(2 * math.pi) / np.maximum(mass, TINY)
    held = np.clip(held, 0, most)
    best: FewCells | None = None
    for full in FULL:
        logs = np.logaddexp(math.log(1 - full) + spike, math.log(full) + slab)
        if best is None or logs.sum() > best.likelihood:
            holds = np.exp(math.log(full) + slab - logs)
            best = FewCells(float(logs.sum()), holds * held, float(holds.sum()))
    assert best is not None
    return best
