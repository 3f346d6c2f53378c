"""How the one sum of an effect by strata is chosen, from the sums by stratum that came before.

A row of stratum z, treated (t = 1) or not (0), weighs t - p_z, with p_z the share of treated rows
in its stratum. Then the sum of (t - p_z) (u - m_z) is that of n_1z n_0z / n_z times the effect in
z [Robinson 1988], and of what the noise of p_z and m_z leaves [derived in docs/inference.md].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.privacy.mechanisms.contrasts import Contrast, ContrastBudget
from synthdp.privacy.mechanisms.sums import SQUARE, NoisySums, StratumSums, SumMechanism
from synthdp.spec.model import Estimand

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ContrastSettings:
    """All but the last are deviations of a count's noise, but for `least`, the least share of an
    arm. `share`: rows by which a stratum's share of treated ones is drawn to that of all; `mean`:
    likewise its mean; `fewest`: what a stratum's rows are at least taken to be in a denominator.
    `ends`: how many ends of the centres are tried.
    """

    share: float = 1.0
    mean: float = 2.0
    least: float = 0.02
    fewest: float = 3.0
    ends: int = 21


SETTINGS = ContrastSettings()


def contrast_budget(estimand: Estimand, strata: SumMechanism) -> ContrastBudget | None:
    """What an effect that is measured by `strata` pays for after them, at the same price; None
    where there is one stratum alone, and for other kinds.
    """
    if estimand.kind != "effect" or not isinstance(strata, StratumSums):
        return None
    if math.prod(strata.shape[1:]) == 1:
        return None
    return ContrastBudget(strata.scaled(1 / strata.noise_multiplier), strata.noise_multiplier)


def chosen_contrast(budget: ContrastBudget, sums: NoisySums) -> Contrast:
    """The contrast that the released sums by stratum ask for."""
    design = ContrastDesign(sums, budget.sigma)
    return budget.choose(design.weights, *design.centres)


def contrast_of_sums(contrast: Contrast, exact: NoisySums) -> Floats:
    """The three sums of the rows whose sums by stratum are these, `[3]`."""
    a, m, about = contrast.weights, contrast.centres, contrast.about
    n, total, squares = (part.reshape(2, -1) for part in (exact.counts, exact.sums, exact.squares))
    spread = a**2 * (squares - 2 * about * total + about**2 * n)
    found = np.array([(a * (total - m * n)).sum(), spread.sum(), (a**2 * n).sum()])
    return np.asarray(found * [1.0, SQUARE, SQUARE] / contrast.most)


@dataclass(frozen=True, eq=False)
class ContrastDesign:
    """Weights and centres by the released `sums` of two arms, `[2, strata]` or `[strata]` each, for
    a sum under noise of `sigma` times the most that a row adds.
    """

    sums: NoisySums
    sigma: float

    @cached_property
    def counts(self) -> Floats:
        return np.asarray(self.sums.counts.reshape(2, -1))

    @cached_property
    def size(self) -> Floats:
        """Rows of a stratum, where noise does not take them below 0."""
        return np.asarray(np.maximum(self.counts.sum(0), 0.0))

    @cached_property
    def everyone(self) -> float:
        return max(float(self.counts.sum()), 1.0)

    @property
    def drawn(self) -> float:
        """Rows for which a share is drawn in."""
        return SETTINGS.share * self.sums.sigma

    @cached_property
    def shares(self) -> Floats:
        """p, the share of a stratum's rows that is treated."""
        ends = SETTINGS.least, 1 - SETTINGS.least
        overall = np.clip(self.counts[0].sum() / self.everyone, *ends)
        drawn = (self.counts[0] + self.drawn * overall) / (self.size + self.drawn)
        return np.asarray(np.clip(drawn, *ends))

    @cached_property
    def kept(self) -> Floats:
        """How much of n_1 - p n of the released counts is noise that p does not have: all of it
        where p is cut.
        """
        cut = (self.shares == SETTINGS.least) | (self.shares == 1 - SETTINGS.least)
        return np.where(cut, 1.0, self.drawn / (self.size + self.drawn))

    @cached_property
    def means(self) -> Floats:
        """m, the mean of u in a stratum."""
        total, drawn = self.sums.sums.reshape(2, -1).sum(0), SETTINGS.mean * self.sums.sigma
        overall = np.clip(total.sum() / self.everyone, -1, 1)
        return np.asarray(np.clip((total + drawn * overall) / (self.size + drawn), -1, 1))

    @cached_property
    def guess(self) -> float:
        """The effect by the sums of strata alone, roughly: what is measured is the rest."""
        n, total = self.counts, self.sums.sums.reshape(2, -1)
        h = 1 / np.maximum(n.sum(0), 4 * math.sqrt(2) * self.sums.sigma)
        found = h @ (n[1] * total[0] - n[0] * total[1]) / max(float(h @ (n[0] * n[1])), 1.0)
        return float(np.clip(found, -1, 1))

    @cached_property
    def weights(self) -> Floats:
        """t - p: 1 - p of the treated, and -p."""
        return np.stack([1 - self.shares, -self.shares])

    @cached_property
    def uneven(self) -> Floats:
        """(1 - p)^2 + p^2: times sigma^2, the noise of n_1 - p n."""
        return np.asarray((self.weights**2).sum(0))

    @cached_property
    def off(self) -> Floats:
        """n_1 - p n of the released counts."""
        return np.asarray(self.counts[0] - self.shares * self.counts.sum(0))

    @cached_property
    def centred(self) -> tuple[Floats, float, float]:
        """The centres `[strata]` of the sum, m cut at the ends of least noise (a row then adds
        less), with what the sum has beside the effects, and the variance of that.
        """
        w, shift = np.abs(self.weights), self.weights * self.guess
        found = list[tuple[float, Floats, float, float]]()
        for end in np.linspace(0, 1, SETTINGS.ends):
            centre = np.clip(self.means, -end, end)
            beside, variance = self._beside(centre)
            limit = float((w * (1 + np.abs(centre + shift))).max())
            found.append((variance + (self.sigma * limit) ** 2, centre, beside, variance))
        return min(found, key=lambda one: one[0])[1:]

    def _beside(self, centre: Floats) -> tuple[float, float]:
        """The sum of (n_1 - p n) (mean - centre) over strata, without bias, and its variance."""
        sigma, size, drawn = self.sums.sigma, self.floored, SETTINGS.mean * self.sums.sigma
        rest = self.sums.sums.reshape(2, -1).sum(0) - centre * self.counts.sum(0)
        free, kept, odd = centre == self.means, self.kept, 1 - 2 * self.shares
        of_mean = np.where(free, drawn / (size + drawn), 1.0)
        # p and centre have the noise of the same counts [Stein's lemma].
        shared = (kept + of_mean - 1) * centre * odd
        shared += rest * self.slope - 2 * self.off * np.where(free, centre / (size + drawn), 0.0)
        off, mean = sigma**2 * self.uneven, 2 * sigma**2 * (1 + centre**2)
        variance = self.off**2 * mean + rest**2 * off + (1 - kept - of_mean) ** 2 * off * mean
        variance -= (kept**2 + of_mean**2) * off * mean
        beside = self.off * rest + sigma**2 * shared
        return float(beside @ (1 / size)), max(float(variance @ size**-2.0), 0.0)

    @cached_property
    def floored(self) -> Floats:
        """Rows of a stratum by which is divided."""
        return np.asarray(np.maximum(self.size, SETTINGS.fewest * self.sums.sigma))

    @cached_property
    def slope(self) -> Floats:
        """How p moves with both counts."""
        return np.asarray((1 - 2 * self.shares) * (1 - self.kept) / self.floored)

    @cached_property
    def lost(self) -> float:
        """The sum of (n_1 - p n)^2 / n over strata, without bias."""
        sigma = self.sums.sigma
        squares = self.off**2 + sigma**2 * (1 - 2 * self.kept) * self.uneven
        squares += 2 * sigma**2 * self.off * self.slope
        return max(float(squares @ (1 / self.floored)), 0.0)

    @property
    def centres(self) -> tuple[Floats, Floats]:
        """Of the sum and of its squares, `[2, strata]` each: with the guessed effect of an arm."""
        shift = self.weights * self.guess
        return self.centred[0] + shift, self.means + shift
