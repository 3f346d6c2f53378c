"""Which of two numeric columns is the cause: an additive noise model, read from its released noisy
scores.

The model y = f(x) + noise with noise independent of x holds, but for special cases, in one
direction only (Hoyer et al. 2009), so the direction whose residual depends less on its cause is
taken. The probability that comes with it concerns the
privacy noise alone: the chance that the scores without noise are in the same order, given the noisy
ones (Kusner et al. 2016, Theorems 2 and 4, for Gaussian noise, and with a term for the noise in the
regressions; for a two-way table by `graph.discovery.pair_reading`). That the model fits the columns
at all, it does not say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.pair_reading import compare
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import meek
from synthdp.privacy.mechanisms.anm import NoisyScores, OrientationBudget, Score
from synthdp.privacy.mechanisms.pair_table import NoisyPair
from synthdp.privacy.plan import MechanismFactory
from synthdp.privacy.private import Released

if TYPE_CHECKING:  # algorithms use this module
    from synthdp.graph.discovery.algorithm import Releaser

Floats = npt.NDArray[np.float64]

PURPOSE = "graph: orient"
SURE = 0.95
"""Probability from which a reading turns an undirected link."""
BOOTSTRAPS = 200
QUARTILES = (0.25, 0.75)
NARROWEST = 1e-3  # spread: one that is mostly noise has no logarithm
DRIFT_OF_RANKS = 8.0
"""What noisy regressions leave in residuals counts that much more in ranks, which show little else
of a residual: chosen on simulated pairs, where these scores agree with themselves without noise
hardly more often than by chance.
"""


@dataclass(frozen=True)
class Orientation:
    """Cause, effect, and the probability that the scores without privacy noise say the same; 0.5 is
    a guess.
    """

    cause: str
    effect: str
    probability: float
    score: Score

    def to_json(self) -> dict[str, str | float]:
        """JSON object."""
        return {
            "cause": self.cause,
            "effect": self.effect,
            "probability": self.probability,
            "score": self.score,
        }


def read(released: NoisyScores | NoisyPair, pair: Pair) -> tuple[Orientation, ...]:
    """Readings of one released pair: of its two-way table, or one per score."""
    return (
        read_scores(released, pair)
        if isinstance(released, NoisyScores)
        else (_reading(*compare(released), pair, "table"),)
    )


def _reading(difference: float, error: float, pair: Pair, score: Score) -> Orientation:
    cause, effect = pair if difference > 0 else pair[::-1]
    return Orientation(cause, effect, float(norm.cdf(abs(difference) / error)), score)


def read_scores(scores: NoisyScores, pair: Pair) -> tuple[Orientation, ...]:
    """One reading per released score, in their order. With Gaussian noise of sigma on both of a
    pair of scores that differ by g, and no opinion beforehand, the true difference has the sign of
    g with probability Phi(g / (sigma sqrt 2)) [derived here: under a flat prior it is normal about
    g with variance 2 sigma^2]. What noisy regressions may have left counts as more noise; not so
    for IQR, whose probability is of its tables alone.
    """
    found = []
    for name, values in scores.scores.items():
        difference, error = (
            _spread_difference(values, scores.sigma[name])
            if name == "iqr"
            else (
                values[1] - values[0],
                math.hypot(
                    math.sqrt(2) * scores.sigma[name],
                    *scores.drift * (1.0 if name == "hsic" else DRIFT_OF_RANKS),
                ),
            )
        )
        found.append(_reading(difference, error, pair, name))
    return tuple(found)


def _spread_difference(tables: Floats, sigma: float) -> tuple[float, float]:
    """log IQR of y and its residual, less that of x and its, with its error from fresh draws of the
    public noise.
    """
    rng = np.random.default_rng(0)  # of post-processing, not of noise that hides rows
    drawn = [_log_spreads(tables + rng.normal(0, sigma, tables.shape)) for _ in range(BOOTSTRAPS)]
    return _log_spreads(tables), max(float(np.std(drawn)), NARROWEST)


def _log_spreads(tables: Floats) -> float:
    grid = np.linspace(-1, 1, tables.shape[1] + 1)
    logs = []
    for table in tables:
        # Sums of noisy counts may fall back: their running maximum is the nearest distribution from
        # above.
        cumulated = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(table)]))
        low, high = np.interp([q * max(cumulated[-1], 1.0) for q in QUARTILES], cumulated, grid)
        logs.append(math.log(max(float(high - low), NARROWEST)))
    return logs[2] + logs[3] - logs[0] - logs[1]


def orientation_spends(
    domain: Domain, pair: Pair, *, scores: tuple[Score, ...] = ("table",)
) -> Mapping[str, MechanismFactory]:
    """The planned spend of orienting one pair alone, for `privacy.plan.make_search_plan`.

    Raises:
        SynthdpError: a column is no number or instant.
    """
    wrong = [name for name in pair if not domain[name].ranged]
    if wrong or pair[0] == pair[1]:
        what = (
            f"{wrong[0]!r} is {domain[wrong[0]].type}" if wrong else f"{pair[0]!r} is given twice"
        )
        raise SynthdpError(
            f"an additive noise model orients two different columns of numbers or instants; {what}"
        )
    return {PURPOSE.removeprefix("graph: "): lambda mu: OrientationBudget(domain, 1 / mu, scores)}


def orient(
    releaser: Releaser, pairs: Sequence[Pair]
) -> Released[tuple[tuple[Orientation, ...], ...]]:
    """Release the planned spend for `pairs`, and read every score of each.

    Raises:
        SynthdpError: the plan has no such spend.
    """
    planned = releaser.plan.find(PURPOSE)
    if planned is None or not isinstance(planned.mechanism, OrientationBudget):
        raise SynthdpError(f"the plan has no spend {PURPOSE!r}")
    released = releaser.release(planned.mechanism.choose(pairs), purpose=PURPOSE)
    return released.map(
        lambda many: tuple(read(one, pair) for one, pair in zip(many, pairs, strict=True))
    )


def turn(graph: CausalGraph, readings: Sequence[Orientation], knowledge: Knowledge) -> CausalGraph:
    """`graph` with undirected links turned as the sure readings say, surest first, and what follows
    from them by Meek's rules.

    Readings that background knowledge forbids, or that would close a cycle, are left out.
    """
    working = graph.pdag()
    for reading in sorted(readings, key=lambda r: -r.probability):
        if reading.probability >= SURE and knowledge.allows(reading.cause, reading.effect):
            working.orient(reading.cause, reading.effect)
    meek(working, knowledge)
    arrows = set(working.directed())
    edges = tuple(
        edge
        if edge.directed or not arrows & {edge.pair, edge.pair[::-1]}
        else replace(edge, cause=cause, effect=effect, directed=True)
        for edge in graph.edges
        for cause, effect in [edge.pair if edge.pair in arrows else edge.pair[::-1]]
    )
    return replace(graph, edges=edges)
