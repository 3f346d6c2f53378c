"""The law of a noisy two-way table of which most cells are empty: of a function, or nearly one.

A Gaussian process (`graph.predict`) leaves some noise in every cell. Where a column is a function
of another, few cells hold all rows, and the noise of all empty ones, cut at zero, adds up to as
many rows again. Here a share of the rows is spread by the margins, and beyond that a cell is empty
with a probability that is the same for all, or holds any share up to the smaller of its margins,
all alike: a spike and a slab [Mitchell and Beauchamp, "Bayesian Variable Selection in Linear
Regression" (1988); the means are those of truncated normals]. The likelihood chooses both numbers,
and says which of the two laws a table follows. Free post-processing of released tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from synthdp.graph.margins import Floats


@dataclass(frozen=True)
class FewCellsSettings:
    """What is tried.

    `full`: probabilities of a cell that holds more than its part of the spread rows; `spread`:
    shares of rows that are spread over all cells by the margins, where the log likelihood gains
    `spread_evidence` by it: noise alone makes functions look spread. `tiny`: no less mass divides.
    """

    full: tuple[float, ...] = tuple(0.5**k for k in range(1, 8))
    spread: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7)
    spread_evidence: float = 3.0
    tiny: float = 1e-300


SETTINGS = FewCellsSettings()


class FewCells(NamedTuple):
    """The best such law of a table: its log likelihood, less the constant that a normal has, the
    mean of each cell `[levels, levels]`, and how many cells are expected to hold more than their
    part of the spread rows.
    """

    likelihood: float
    means: Floats
    full: float


def few_cells(shares: Floats, first: Floats, second: Floats, sigma: float) -> FewCells:
    """The law of noisy `shares` `[levels, levels]` of deviation `sigma`, with margins `first` and
    `second`.
    """
    apart, most = np.outer(first, second), np.minimum.outer(first, second)
    spread, best = 0.0, _few_cells(shares, most, sigma)
    for part in SETTINGS.spread:
        law = _few_cells(shares - part * apart, most, sigma)
        if law.likelihood > best.likelihood + (0 if spread else SETTINGS.spread_evidence):
            spread, best = part, law
    return best._replace(means=best.means + spread * apart)


def _few_cells(shares: Floats, most: Floats, sigma: float) -> FewCells:
    """The best law where no rows are spread, and a cell holds `most` at most."""
    low, high = -shares / sigma, (most - shares) / sigma  # the slab's ends, in deviations
    # Of the two tails take the one that is small: differences of ones would cancel.
    mass = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    spike = -(low**2) / 2 - math.log(sigma)
    with np.errstate(divide="ignore"):
        slab = np.log(mass) - np.log(most) + math.log(2 * math.pi) / 2
    ends = np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)
    held = shares + sigma * ends / math.sqrt(2 * math.pi) / np.maximum(mass, SETTINGS.tiny)
    held = np.clip(held, 0, most)
    full = np.array(SETTINGS.full)[:, None, None]
    logs = np.logaddexp(np.log1p(-full) + spike, np.log(full) + slab)
    best = int(logs.sum((1, 2)).argmax())
    holds = np.exp(math.log(SETTINGS.full[best]) + slab - logs[best])
    return FewCells(float(logs[best].sum()), holds * held, float(holds.sum()))
