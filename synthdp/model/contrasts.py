"""How the one sum of an effect by strata is chosen, from the sums by stratum that came before.

A row of stratum z, treated (t = 1) or not (0), weighs t - p_z, with p_z the share of treated rows
in its stratum. Then the sum of (t - p_z) (u - m_z) is that of n_1z n_0z / n_z times the effect in
z [Robinson 1988], and of what the noise of p_z and m_z leaves [derived in docs/inference.md].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    design = ContrastDesign.of(sums, budget.sigma)
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
    """`weights` `[2, strata]` and `centres`, of the sum and of its squares, with the `guess` of the
    effect in both. By the released counts and sums, without bias: the squared weights `squared`,
    what of them is `lost` to wrong shares, and what the sum has `beside` effects, of `variance`.
    """

    weights: Floats
    centres: tuple[Floats, Floats]
    guess: float
    squared: float
    lost: float
    beside: float
    variance: float

    @classmethod
    def of(cls, sums: NoisySums, noise: float) -> ContrastDesign:
        """The design by the sums of two arms, for a sum whose noise is so many times the most that
        a row adds: centres are cut at the ends of least noise.
        """
        n, total = sums.counts.reshape(2, -1), sums.sums.reshape(2, -1)
        sigma, ends = sums.sigma, (SETTINGS.least, 1 - SETTINGS.least)
        rows, size = max(float(n.sum()), 1.0), np.maximum(n.sum(0), 0.0)
        few, drawn = np.maximum(size, SETTINGS.fewest * sigma), SETTINGS.share * sigma
        overall = np.clip(n[0].sum() / rows, *ends)
        p = np.clip((n[0] + drawn * overall) / (size + drawn), *ends)
        kept = np.where((p == ends[0]) | (p == ends[1]), 1.0, drawn / (size + drawn))
        weights, odd = np.stack([1 - p, -p]), 1 - 2 * p
        uneven, off = (weights**2).sum(0), n[0] - p * n.sum(0)
        slope = odd * (1 - kept) / few  # of p, by both counts
        squared = (weights**2 * n).sum() + 2 * sigma**2 * (uneven @ ((1 - kept) / few))
        lost = off**2 + sigma**2 * ((1 - 2 * kept) * uneven + 2 * off * slope)
        h = 1 / np.maximum(n.sum(0), 4 * math.sqrt(2) * sigma)
        rough = h @ (n[1] * total[0] - n[0] * total[1]) / max(float(h @ (n[0] * n[1])), 1.0)
        guess, drawn = float(np.clip(rough, -1, 1)), SETTINGS.mean * sigma
        overall = np.clip(total.sum() / rows, -1, 1)
        means = np.clip((total.sum(0) + drawn * overall) / (size + drawn), -1, 1)

        def beside(centre: Floats) -> tuple[float, float]:
            rest, cut = total.sum(0) - centre * n.sum(0), centre != means
            of_mean = np.where(cut, 1.0, drawn / (few + drawn))
            # Shares and centres have the noise of the same counts [Stein's lemma].
            shared = (kept + of_mean - 1) * centre * odd + rest * slope
            shared -= 2 * off * np.where(cut, 0.0, centre / (few + drawn))
            of_share, of_rest = sigma**2 * uneven, 2 * sigma**2 * (1 + centre**2)
            both = (1 - kept - of_mean) ** 2 - kept**2 - of_mean**2
            variance = off**2 * of_rest + rest**2 * of_share + both * of_share * of_rest
            found = (off * rest + sigma**2 * shared) @ (1 / few)
            return float(found), max(float(variance @ few**-2.0), 0.0)

        def tried(end: float) -> tuple[float, Floats, float, float]:
            centre = np.clip(means, -end, end)
            most = (np.abs(weights) * (1 + np.abs(centre + weights * guess))).max()
            bias, variance = beside(centre)
            return variance + (noise * float(most)) ** 2, centre, bias, variance

        every = map(tried, np.linspace(0, 1, SETTINGS.ends))
        _, centre, bias, variance = min(every, key=lambda one: one[0])
        centres = centre + weights * guess, means + weights * guess
        lost_all = max(float(lost @ (1 / few)), 0.0)
        return cls(weights, centres, guess, float(squared), lost_all, bias, variance)
