"""The direction between two numeric columns, by an additive noise model of released noisy scores.

The model y = f(x) + noise, with noise independent of x, holds in one direction only, but for
special cases (Hoyer et al. 2009). So the chosen direction is the one whose residual depends less on
its cause. Its probability concerns the privacy noise alone: it is the probability that the scores
without noise are in the same order, given the noisy ones (Kusner et al. 2016, Theorems 2 and 4, for
Gaussian noise, and with a term for the noise in the regressions; for a two-way table by
`compare`). It does not say that the model fits the columns.

Where a noisy two-way table is released, each column is regressed on the other from the table's rows
and sums. Residuals are those of the midpoints of cells. Their dependence on the cause is rows
squared times HSIC (Gretton et al. 2005) with Gaussian kernels of half the released spreads as
bandwidth. The noise's contribution to it, sigma^2 times the sum of squared centred features, is
known up to plug-in means and subtracted. All of it is post-processing: nothing here sees rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.data.basis import KernelGrid
from synthdp.data.domain import Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import Releaser
from synthdp.graph.knowledge import Knowledge, Pair, meek
from synthdp.privacy.mechanisms.anm import CELLS, NoisyPair, NoisyScores, OrientationBudget, Score
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released

Floats = npt.NDArray[np.float64]

ORIENT = "orient"
"""Name of the planned spend."""
MIDDLES = (np.arange(CELLS) + 0.5) / CELLS * 2 - 1
"""Midpoints of the cells on [-1, 1]."""


@dataclass(frozen=True)
class DirectionSettings:
    """Tuning, chosen on simulated pairs, random smooth curves with noise of several laws;
    `benchmarks/orientation.py` measures on others.

    `sure`: probability from which a reading orients an undirected link; `bootstraps`: fresh draws
    of the public noise, for the error of a difference, and `spread_bootstraps` for one of spreads;
    `min_spread`: a spread that is mostly noise is raised to this, so that it has a logarithm;
    `drift_of_ranks`: factor of the error that noisy regressions leave in residuals, for scores by
    ranks, which show little else of a residual: on simulated pairs these scores agree with
    themselves without noise hardly more often than a coin would. `doubt_of_spreads`: of a
    difference of spreads, deviations that are taken off it, and a factor of what is left of its
    error: its noise pulls both directions to one side, and of 800 simulated readings told with .75
    of probability .4 agreed, with .98 .83; told with it, no class is more than .015 too sure.

    `bandwidths`: a fixed list, so that each kernel is decomposed once, and `bandwidth_of_spread`
    over a standard deviation; `smoothness`: rows that a second difference of one weighs in a
    regression without noise, and `smoothness_of_noise` its increase with the standard deviation of
    the noise; `few`: rows per unit of all the table's noise at which its regressions are half
    noise, and the error is doubled. Below it readings soon become guesses, because what noise
    leaves in residuals differs between the directions.
    """

    sure: float = 0.95
    bootstraps: int = 100
    spread_bootstraps: int = 200
    min_spread: float = 1e-3
    drift_of_ranks: float = 8.0
    doubt_of_spreads: tuple[float, float] = (1.0, 2.0)
    bandwidths: tuple[float, ...] = (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56)
    bandwidth_of_spread: float = 0.5
    smoothness: float = 1.0
    smoothness_of_noise: float = 40.0
    few: float = 16.0


SETTINGS = DirectionSettings()


@dataclass(frozen=True)
class Orientation:
    """Cause, effect, and the probability that scores without privacy noise agree; .5 is a guess."""

    cause: str
    effect: str
    probability: float
    score: Score

    def to_json(self) -> dict[str, str | float]:
        return asdict(self)


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
    have left counts as more noise. For IQR the error is the spread over fresh draws of the public
    noise, with `doubt_of_spreads`.
    """
    readings = []
    for name, values in scores.scores.items():
        sigma = scores.sigma[name]
        if name == "iqr":  # log IQR of y and its residual, less that of x and its residual
            rng = np.random.default_rng(0)  # for post-processing, not for noise that protects rows
            noise = (rng.normal(0, sigma, values.shape) for _ in range(SETTINGS.spread_bootstraps))
            drawn = [_log_spreads(values + fresh) for fresh in noise]
            difference, error = _log_spreads(values), max(float(np.std(drawn)), SETTINGS.min_spread)
            off, factor = SETTINGS.doubt_of_spreads
            left = max(abs(difference) - off * error, 1e-9 * error)  # not 0: it has a sign
            difference, error = math.copysign(left, difference), factor * error
        else:
            drift = scores.drift * (1.0 if name == "hsic" else SETTINGS.drift_of_ranks)
            difference, error = values[1] - values[0], math.hypot(math.sqrt(2) * sigma, *drift)
        readings.append(_reading(difference, error, pair, name))
    return tuple(readings)


def _log_spreads(tables: Floats) -> float:
    grid = np.linspace(-1, 1, tables.shape[1] + 1)
    logs = []
    for table in tables:
        # Cumulative sums of noisy counts may decrease; their running maximum does not.
        cumulated = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(table)]))
        quartiles = [q * max(cumulated[-1], 1.0) for q in (0.25, 0.75)]
        low, high = np.interp(quartiles, cumulated, grid)
        logs.append(math.log(max(float(high - low), SETTINGS.min_spread)))
    return logs[2] + logs[3] - logs[0] - logs[1]


def orientation_spends(
    domain: Domain, pair: Pair, *, scores: tuple[Score, ...] = ("table",)
) -> Mapping[str, MechanismFactory]:
    """The planned spend to orient one pair alone, for `privacy.calibration.make_search_plan`.

    Raises:
        SynthdpError: a column is neither a number nor an instant, or the pair is one column.
    """
    wrong = [f"{name!r} is {domain[name].type}" for name in pair if not domain[name].ranged]
    wrong += [f"{pair[0]!r} is given twice"] if pair[0] == pair[1] else []
    if wrong:
        message = "an additive noise model orients two different columns of numbers or instants"
        raise SynthdpError(f"{message}; {wrong[0]}")
    return {ORIENT: lambda mu: OrientationBudget(domain, 1 / mu, scores)}


def orient(
    releaser: Releaser, pairs: Sequence[Pair]
) -> Released[tuple[tuple[Orientation, ...], ...]]:
    """Release the planned spend for `pairs`, and read every score of each."""
    purpose = graph_purpose(ORIENT)
    planned = needed(releaser.plan.in_graph(ORIENT, OrientationBudget), purpose)
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
        if reading.probability >= SETTINGS.sure and knowledge.allows(reading.cause, reading.effect):
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


def compare(pair: NoisyPair) -> tuple[float, float]:
    """Dependence of the backward less that of the forward residual, and its standard error.

    The difference is positive where x is the cause. The error is the spread over fresh draws of the
    public noise, added to the noisy table. A draw added to noise spreads more than one added to the
    exact table does, so this is an upper estimate where the table is mostly rows.
    """
    rng = np.random.default_rng(0)  # for post-processing, not for noise that protects rows
    noise = (rng.normal(0, pair.sigma, pair.counts.shape) for _ in range(SETTINGS.bootstraps))

    def difference(counts: Floats, sigma: float) -> float:
        return dependence(counts.T, sigma) - dependence(counts, sigma)

    drawn = [difference(pair.counts + fresh, math.sqrt(2) * pair.sigma) for fresh in noise]
    rows_per_noise = max(float(pair.counts.sum()), 1.0) / (CELLS * pair.sigma)
    error = max(float(np.std(drawn)), 1e-9) * (1 + (SETTINGS.few / rows_per_noise) ** 4)
    return difference(pair.counts, pair.sigma), error


def dependence(counts: Floats, sigma: float) -> float:
    """Squared rows times HSIC of the first axis and the residual of the second.

    The noise's part is subtracted, so the value may be negative.
    """
    rows, total = counts.sum(1), max(float(counts.sum()), 1.0)
    left = (MIDDLES - regression(counts, sigma)[:, None]) / 2
    causes = _features(_spread(rows, MIDDLES), MIDDLES)
    residuals = _features(_spread(counts, left), left)
    sums = np.einsum("ij,ijk->ik", counts, residuals)
    centred, mean = causes - causes.T @ rows / total, sums.sum(0) / total
    of_noise = (centred**2).sum(1) @ ((residuals - mean) ** 2).sum(2)
    return float(
        ((centred.T @ (sums - np.outer(rows, mean))) ** 2).sum() - sigma**2 * of_noise.sum()
    )


def regression(counts: Floats, sigma: float) -> Floats:
    """Mean of the second axis in each cell of the first, `[CELLS]`.

    Weighted least squares with a penalty on second differences (Whittaker 1923), which grows with
    the noise of the table.
    """
    bends = np.diff(np.eye(CELLS), 2, axis=0)
    weighted = (
        np.diag(np.maximum(counts.sum(1), 0.0))
        + (SETTINGS.smoothness + SETTINGS.smoothness_of_noise * sigma) * bends.T @ bends
        + 1e-3 * np.eye(CELLS)
    )
    return np.asarray(
        np.clip(np.linalg.solve(weighted, counts @ MIDDLES), -1.0, 1.0), dtype=np.float64
    )


def _spread(weights: Floats, values: Floats) -> float:
    """Standard deviation under noisy weights; zero where noise makes the variance negative."""
    total = max(float(weights.sum()), 1.0)
    mean = float((weights * values).sum()) / total
    return math.sqrt(max(float((weights * values**2).sum()) / total - mean**2, 0.0))


def _features(spread: float, values: Floats) -> Floats:
    """Kernel features of values in [-1, 1], `[..., features]`."""
    bandwidths = SETTINGS.bandwidths
    wanted = math.log(max(SETTINGS.bandwidth_of_spread * spread, bandwidths[0]))
    return _kernel(min(bandwidths, key=lambda b: abs(math.log(b) - wanted)))(values)


@cache
def _kernel(bandwidth: float) -> KernelGrid:
    return KernelGrid(bandwidth)
