"""The direction between two numeric columns, by an additive noise model of released noisy scores.

The model y = f(x) + noise, with noise independent of x, holds in one direction only, but for
special cases (Hoyer et al. 2009). So the chosen direction is the one whose residual depends less on
its cause. Its probability concerns the privacy noise alone: it is the probability that the scores
without noise are in the same order, given the noisy ones (Kusner et al. 2016, Theorems 2 and 4, for
Gaussian noise, and with a term for the noise in the regressions; for a two-way table by
`graph.discovery.pair_reading`). It does not say that the model fits the columns.
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
from synthdp.privacy.mechanisms.anm import NoisyScores
from synthdp.privacy.mechanisms.orientations import OrientationBudget, Score
from synthdp.privacy.mechanisms.pair_table import NoisyPair
from synthdp.privacy.plan import MechanismFactory, graph_purpose
from synthdp.privacy.private import Released

if TYPE_CHECKING:  # algorithms use this module
    from synthdp.graph.discovery.algorithm import Releaser

Floats = npt.NDArray[np.float64]

ORIENT = "orient"
"""Name of the planned spend."""
SURE = 0.95
"""Probability from which a reading orients an undirected link."""
BOOTSTRAPS = 200
"""Fresh draws of the public noise, for the error of a difference of spreads."""
QUARTILES = (0.25, 0.75)
MIN_SPREAD = 1e-3
"""A spread that is mostly noise is raised to this, so that it has a logarithm."""
DRIFT_OF_RANKS = 8.0
"""Factor of the error that noisy regressions leave in residuals, for scores by ranks.

Ranks show little else of a residual. The value was chosen on simulated pairs, where these scores
agree with themselves without noise hardly more often than a coin would.
"""


@dataclass(frozen=True)
class Orientation:
    """Cause, effect, and the probability that the scores without privacy noise have the same order.

    A probability of 0.5 is a guess.
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
    if isinstance(released, NoisyScores):
        return read_scores(released, pair)
    return (_reading(*compare(released), pair, "table"),)


def _reading(difference: float, error: float, pair: Pair, score: Score) -> Orientation:
    cause, effect = pair if difference > 0 else pair[::-1]
    return Orientation(cause, effect, float(norm.cdf(abs(difference) / error)), score)


def read_scores(scores: NoisyScores, pair: Pair) -> tuple[Orientation, ...]:
    """One reading per released score, in their order.

    With Gaussian noise of sigma on both of a pair of scores that differ by g, and no prior opinion,
    the true difference has the sign of g with probability Phi(g / (sigma sqrt 2)) [derived here:
    under a flat prior it is normal about g with variance 2 sigma^2]. What noisy regressions may
    have left counts as more noise; not so for IQR, whose probability is that of its tables alone.
    """
    readings = []
    for name, values in scores.scores.items():
        sigma = scores.sigma[name]
        if name == "iqr":
            difference, error = _spread_difference(values, sigma)
        else:
            drift = scores.drift * (1.0 if name == "hsic" else DRIFT_OF_RANKS)
            difference, error = values[1] - values[0], math.hypot(math.sqrt(2) * sigma, *drift)
        readings.append(_reading(difference, error, pair, name))
    return tuple(readings)


def _spread_difference(tables: Floats, sigma: float) -> tuple[float, float]:
    """log IQR of y and its residual, less that of x and its residual, with its error.

    The error is the spread over fresh draws of the public noise.
    """
    rng = np.random.default_rng(0)  # for post-processing, not for noise that protects rows
    drawn = [_log_spreads(tables + rng.normal(0, sigma, tables.shape)) for _ in range(BOOTSTRAPS)]
    return _log_spreads(tables), max(float(np.std(drawn)), MIN_SPREAD)


def _log_spreads(tables: Floats) -> float:
    grid = np.linspace(-1, 1, tables.shape[1] + 1)
    logs = []
    for table in tables:
        # Cumulative sums of noisy counts may decrease; their running maximum does not.
        cumulated = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(table)]))
        low, high = np.interp([q * max(cumulated[-1], 1.0) for q in QUARTILES], cumulated, grid)
        logs.append(math.log(max(float(high - low), MIN_SPREAD)))
    return logs[2] + logs[3] - logs[0] - logs[1]


def orientation_spends(
    domain: Domain, pair: Pair, *, scores: tuple[Score, ...] = ("table",)
) -> Mapping[str, MechanismFactory]:
    """The planned spend to orient one pair alone, for `privacy.plan.make_search_plan`.

    Raises:
        SynthdpError: a column is neither a number nor an instant, or the pair is one column.
    """
    wrong = [f"{name!r} is {domain[name].type}" for name in pair if not domain[name].ranged]
    if pair[0] == pair[1]:
        wrong.append(f"{pair[0]!r} is given twice")
    if wrong:
        raise SynthdpError(
            "an additive noise model orients two different columns of numbers or instants;"
            f" {wrong[0]}"
        )
    return {ORIENT: lambda mu: OrientationBudget(domain, 1 / mu, scores)}


def orient(
    releaser: Releaser, pairs: Sequence[Pair]
) -> Released[tuple[tuple[Orientation, ...], ...]]:
    """Release the planned spend for `pairs`, and read every score of each.

    Raises:
        SynthdpError: the plan has no such spend.
    """
    purpose, planned = graph_purpose(ORIENT), releaser.plan.in_graph(ORIENT, OrientationBudget)
    if planned is None:
        raise SynthdpError(f"the plan has no spend {purpose!r}")
    released = releaser.release(planned.choose(pairs), purpose=purpose)
    return released.map(
        lambda many: tuple(read(one, pair) for one, pair in zip(many, pairs, strict=True))
    )


def turn(graph: CausalGraph, readings: Sequence[Orientation], knowledge: Knowledge) -> CausalGraph:
    """`graph` with undirected links oriented by the sure readings, and closed under Meek's rules.

    Readings are used from the most certain one on. Those that background knowledge forbids, or that
    would close a cycle, are left out.
    """
    working = graph.pdag()
    for reading in sorted(readings, key=lambda r: -r.probability):
        if reading.probability >= SURE and knowledge.allows(reading.cause, reading.effect):
            working.orient(reading.cause, reading.effect)
    meek(working, knowledge)
    arrows = {frozenset(pair): pair for pair in working.directed()}
    edges = []
    for edge in graph.edges:
        if not edge.directed and frozenset(edge.pair) in arrows:
            cause, effect = arrows[frozenset(edge.pair)]
            edge = replace(edge, cause=cause, effect=effect, directed=True)
        edges.append(edge)
    return replace(graph, edges=tuple(edges))
