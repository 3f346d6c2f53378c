"""Margins of noisy tables as probabilities, without most of their noise.

All of it is free post-processing of released counts. Three models of a margin compete. The shares
are a Gaussian process along the bins; or their logarithm is smooth, and the first and last bins may
be empty; both with heaps on top: single bins that hold far more than their neighbours, such as
round numbers. Or bins have nothing in common: most are empty, and the others hold any share. The
margin is the mean over all models, weighted by their likelihoods.

A smooth logarithm makes tails decline towards nothing, whatever the bounds: it is a slope, a bend
and a sum of cosines with normal weights, of which slow ones may be large and fast ones may not
[Kooperberg and Stone, "Logspline density estimation" (1991), has splines in their place]. Cosines
alone are flat at both ends: of money on a log scale they left a tail that took the mean up by half.
Bins beyond a first or a last one may be empty: then nothing but noise was counted there. Where
bounds are generous this is most of what there is to know, for the noise of many empty bins adds up
to a tail. The weights are those of the largest posterior density, by Newton's method; Laplace's
approximation gives the likelihood of the noisy shares [Rasmussen and Williams, "Gaussian Processes
for Machine Learning" (2006), Section 3.4].

The law of a noisy two-way table of which most cells are empty: of a function, or nearly one.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv
from scipy.ndimage import median_filter
from scipy.special import erfcx, log_ndtr, ndtr, softmax

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.missing_patterns import with_common_shares
from synthdp.graph.prior import Prior, shrunk_to
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Probabilities = npt.NDArray[np.float64]
"""Probabilities over levels; the last axis sums to 1."""
Model = tuple[float, Floats]
"""Log likelihood of noisy shares, and the shares that are expected where they were seen."""


@dataclass(frozen=True)
class SmoothingSettings:
    """Tuning of the models of a margin.

    `few_levels`: up to so many ordered ones are not smoothed: there is nothing to pool.

    Gaussian process: `ranges` of the correlation along a column, as shares of its length;
    `roughness`: shares of a margin's variance that neighbours do not have in common; `strengths`:
    variances of a margin, in squares of its mean. `no_noise`: noise of a bin, in mean shares of a
    bin, below which nothing is smoothed.

    Bins with nothing in common: `filled`: shares of them that are not empty; `sizes`: mean shares
    of such bins, in means over all bins.

    Heaps: `heap`: standard deviations above the smooth margin at which a bin is one; `heap_cost`:
    nats that it costs, for where it is and how large; `heap_rounds`: rounds in which heaps are
    found and taken out; `beside`: bins with it in the middle, of whose median it is twice at least,
    to be tried as one first.

    Smooth logarithm: `cosines`: how many, and `decay` of their variance: by this power of the
    frequency; `variances` of the slowest cosine's weight, the smoothest margin first; `places`:
    bins end at one of so many parts of a column, and at least `least` are left; `end_cost`: nats
    that an end costs; `worse`: nats below the best at which no rougher margin is tried, and
    `hopeless`, at which no end is. Newton: `steps` at most, `gain` in nats that is too small,
    `leap`: largest change of a logarithm, `never_singular`: share of the curvature's trace that is
    added to each of its diagonal's entries.
    """

    few_levels: int = 6
    ranges: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.6, 1.5)
    roughness: tuple[float, ...] = (0.0, 0.02, 0.1, 0.4)
    strengths: tuple[float, ...] = tuple(4.0**k for k in range(-4, 5))
    no_noise: float = 1e-4
    filled: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    sizes: tuple[float, ...] = tuple(2.0**k for k in range(-1, 8))
    heap: float = 4.0
    heap_cost: float = 6.0
    heap_rounds: int = 4
    beside: int = 9
    cosines: int = 32
    decay: int = 4
    slope: float = 0.02
    variances: tuple[float, ...] = tuple(4.0**k for k in range(-2, 7))
    places: int = 8
    least: int = 6
    end_cost: float = 1.0
    worse: float = 8.0
    hopeless: float = 40.0
    steps: int = 25
    gain: float = 0.01
    leap: float = 3.0
    never_singular: float = 1e-12


SETTINGS = SmoothingSettings()


@dataclass(frozen=True)
class TiltSettings:
    """How the margin of a prior is tilted: by a slope, a bend and so many `cosines`, with normal
    weights of these precisions and `variances`, of which the likeliest is taken. `cost`: nats.

    Chosen on Adult and wine at epsilon .1. With 32 cosines and no cost, wine's right margins were
    2% worse.
    """

    cosines: int = 8
    slope: float = 4.0
    variances: tuple[float, ...] = tuple(4.0**k for k in range(-6, 3))
    cost: float = 2.0


TILT = TiltSettings()


def one_way_probabilities(
    tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain], prior: Prior | None = None
) -> list[Probabilities]:
    """Probabilities of the levels of each column, `[levels]` each, shrunk to a `prior`, if any.

    They use every table that contains the column, whatever it was measured for, on levels or on
    groups of them. All tables count the same rows, so their totals are first pooled into one
    estimate. Noise is smoothed out along ordered bins. The noise of empty cells does not become
    mass, as it would if they were clipped at zero. Columns that are missing together are missing in
    one share of the rows.
    """
    total = max(1.0, float(pooled(tables, ()).counts))
    margins = []
    for column in columns:
        noisy = with_group_sums(tables, column.name)
        shares, sigma = noisy.counts / total, noisy.sigma / total
        public = prior.counts.get((column.name,)) if prior else None
        if public is None:
            margins.append(margin_probabilities(column, shares, sigma))
        else:
            margins.append(margin_with_prior(column, shares, sigma, public)[0])
    return with_common_shares(margins, tables, columns)


def pooled(tables: Sequence[NoisyTable], columns: tuple[str, ...]) -> NoisyTable:
    """The margin over `columns` of all tables that have their levels: an inverse-variance mean.

    The noise of a margin's cell grows with the number of cells in its sum.
    """
    counts, precision = [], []
    for table in tables:
        if table.has(columns):
            summed = tuple(i for i, name in enumerate(table.columns) if name not in columns)
            kept = [name for name in table.columns if name in columns]
            axes = list(map(kept.index, columns))
            counts.append(table.counts.sum(summed).transpose(axes))
            cells = math.prod(table.counts.shape[i] for i in summed)
            precision.append(1 / (table.sigma**2 * cells))
    mean = np.average(counts, weights=precision, axis=0)
    return NoisyTable(columns, mean, math.fsum(precision) ** -0.5)


def with_group_sums(tables: Sequence[NoisyTable], name: str) -> NoisyTable:
    """The pooled counts of a column's levels, moved towards the sums of tables on its groups.

    Where levels have noise of variance s^2, and the sum over a group of m levels was counted with
    t^2, the mean of least variance adds s^2 / (m s^2 + t^2) of the difference of both sums to each
    level: weighted least squares. What is left is not white; its `sigma` is the mean over levels.
    """
    levels = pooled(tables, (name,))
    grouped = [replace(t, starts={}) for t in tables if name in t.starts]
    if not grouped:
        return levels
    starts = next(t.starts[name] for t in tables if name in t.starts)
    sums = pooled(grouped, (name,))
    size = np.diff([*starts, len(levels.counts)])
    weight = levels.sigma**2 / (size * levels.sigma**2 + sums.sigma**2)
    move = weight * (sums.counts - np.add.reduceat(levels.counts, starts))
    left = levels.sigma * math.sqrt(1 - float(np.average(weight, weights=size)))
    return NoisyTable((name,), levels.counts + np.repeat(move, size), left)


def smoothed(p: Probabilities, *, floor: float) -> Probabilities:
    """`p` with every level at least `floor` before normalisation, so that logarithms exist.

    >>> smoothed(np.array([1.0, 0.0]), floor=0.25).tolist()
    [0.8, 0.2]
    """
    raised: Probabilities = np.maximum(p, floor)
    normal: Probabilities = raised / raised.sum()
    return normal


def smoothed_margin(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """The noisy `shares` `[levels]` of a column, smoothed along its ordered bins.

    `sigma` is the standard deviation of a share. Spikes, categories and the missing level stay.
    All shares together are 1: what the noisy ones lack is spread over all levels, as least squares
    do, for what the bins hold together.
    """
    out, body, smooth = shares.copy(), body_of(column), _smooth_body(column, shares, sigma)
    if smooth is not None:
        out[body] = smooth[1]
    return out


def margin_with_prior(
    column: ColumnDomain, shares: Floats, sigma: float, public: Floats
) -> tuple[Probabilities, float]:
    """Probabilities of levels from noisy `shares` and `public` counts, and how much of them is the
    prior's. Of ordered bins it is the mean over three margins: without the prior, with it, and with
    it tilted, by the likelihoods of what was seen, given what all bins hold together.
    """
    rows, body = float(public.sum()), body_of(column)
    prior, alone = public / rows, _smooth_body(column, shares, sigma)
    if alone is None:
        found = shrunk_to(prior, shares, sigma, rows)
        return margin_probabilities(column, found.shares, found.sigma), found.used
    total = alone[2]
    likelihoods, used = [alone[0]], [0.0]
    margins = [margin_probabilities(column, shares, sigma)]
    for start, cost in ((prior, 0.0), _tilted(column, public, shares, sigma, total)):
        found = shrunk_to(start, shares, sigma, rows)
        off, noise, expected = found.off[body], sigma**2, start[body]
        own = float((np.log(off + noise) + (shares[body] - expected) ** 2 / (off + noise)).sum())
        missed = total - float(found.shares[body].sum())
        given = _normal(missed, float((off * noise / (off + noise)).sum()))
        given -= _normal(total - float(expected.sum()), float(off.sum()))
        likelihoods.append(given - own / 2 - cost)
        margins.append(margin_probabilities(column, found.shares, found.sigma))
        used.append(found.used)
    parts = softmax(likelihoods)
    return parts @ np.array(margins), float(parts @ used)


def _tilted(
    column: ColumnDomain, public: Floats, shares: Floats, sigma: float, total: float
) -> tuple[Floats, float]:
    """Shares of `public` counts, of which those of ordered bins are tilted: times a smooth function
    that makes them likeliest for noisy `shares` of so large a `total`; and what that costs, in
    nats. One row is added, so that it says nothing of bins that the prior lacks.
    """
    body, tilt = body_of(column), TILT
    carrier = np.log(public[body] + 1 / len(body))
    basis = _waves(len(body))[:, : 2 + tilt.cosines]
    decay = np.arange(1, basis.shape[1] - 1.0) ** SETTINGS.decay
    weights, best = np.zeros(basis.shape[1]), (-math.inf, public)
    for variance in tilt.variances:
        precision = np.append([tilt.slope] * 2, decay / variance)
        likelihood, inside, weights = _fitted(
            shares[body], sigma, total, basis, precision, weights, carrier
        )
        best = max(best, (likelihood, inside), key=lambda one: one[0])
    met = -float(np.square((shares[body] - best[1]) / sigma).sum()) / 2 - len(body) * math.log(
        sigma
    )
    tilted = public / max(float(np.delete(public, body).sum()), 1e-300) * max(1 - total, 0.0)
    tilted[body] = best[1]
    return tilted / tilted.sum(), met - best[0] + tilt.cost


def _smooth_body(
    column: ColumnDomain, shares: Floats, sigma: float
) -> tuple[float, Floats, float] | None:
    """Log likelihood of a column's ordered bins, their shares, and what all of them add up to; None
    where nothing is smoothed.
    """
    if not _has_neighbours(column):
        return None
    body = body_of(column)
    values, lacking = shares[body], 1 - float(shares.sum())
    total = max(float(values.sum()) + lacking * len(body) / len(shares), 1e-9)
    if sigma * len(body) < SETTINGS.no_noise * total:
        return None
    return (*_mean_over_models(values.tobytes(), sigma, total), total)


@lru_cache(maxsize=1024)  # a release asks for each margin many times
def _mean_over_models(seen: bytes, sigma: float, total: float) -> Model:
    values = np.frombuffer(seen)
    models = [_separate(values, sigma, total)]
    for smooth in (_process_models, density_models):
        models += _with_heaps(values, sigma, total, smooth)
    likelihood = np.array([model[0] for model in models])
    weights = np.exp(likelihood - likelihood.max())
    mean: Floats = weights @ np.array([model[1] for model in models]) / weights.sum()
    return float(likelihood.max()), mean


def margin_probabilities(column: ColumnDomain, shares: Floats, sigma: float) -> Floats:
    """Probabilities of a column's levels from noisy `shares` `[levels]`.

    What smoothed shares lack of 1 belongs to no empty tail, so bins grow in proportion. What they
    have too much is noise, and is taken off each level alike.
    """
    if not _has_neighbours(column):
        return project_to_simplex(shares)
    body, smooth = body_of(column), smoothed_margin(column, shares, sigma)
    positive = np.maximum(smooth, 0)
    within = float(positive[body].sum())
    lacking = 1 - float(positive.sum())
    if lacking <= 0 or within == 0:
        return project_to_simplex(smooth)
    positive[body] *= (within + lacking) / within
    return positive


def project_to_simplex(values: Floats) -> Floats:
    """The probability vector nearest to `values` in L2.

    Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient Projections onto the l1-Ball" (2008), Figure
    1.

    >>> project_to_simplex(np.array([0.7, 0.7, -0.2])).tolist()
    [0.5, 0.5, 0.0]
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    threshold = excess[np.flatnonzero(descending > excess)[-1]]
    projected: Floats = np.maximum(values - threshold, 0)
    normal: Floats = projected / projected.sum()
    return normal


def _has_neighbours(column: ColumnDomain) -> bool:
    """Whether there are enough ordered bins to learn from one of another."""
    return column.ordered and len(body_of(column)) > SETTINGS.few_levels


def _with_heaps(
    values: Floats,
    sigma: float,
    total: float,
    smooth: Callable[[Floats, float, float], Sequence[Model]],
) -> Iterator[Model]:
    heaps, expected = np.zeros(len(values), bool), values
    # A rough margin may follow one bin that holds most rows: it is known by those beside it.
    near = np.asarray(median_filter(values, SETTINGS.beside, mode="mirror"))
    alone = values - near > np.maximum(SETTINGS.heap * sigma, values / 2)
    for _ in range(SETTINGS.heap_rounds):
        # A heap says nothing of its neighbours.
        below = np.where(heaps, near, values)
        models = smooth(below, sigma, max(total - float((values - below).sum()), 1e-9))
        for likelihood, shares in models:
            yield likelihood - SETTINGS.heap_cost * heaps.sum(), np.where(heaps, values, shares)
        expected = max(models, key=lambda model: model[0])[1]
        found = alone | (values - expected > SETTINGS.heap * sigma)
        if (found == heaps).all():
            return
        heaps, alone = found, np.zeros(len(values), bool)


def _process_models(values: Floats, sigma: float, total: float) -> list[Model]:
    """Log likelihood and posterior mean of a Gaussian process along the bins, given their sum.

    The likelihood chooses its range, roughness and strength [Rasmussen and Williams, "Gaussian
    Processes for Machine Learning" (2006), Sections 2.2 and 5.4].
    """
    scale = total / len(values)
    best: Model = -math.inf, values
    for spectrum, turn in _spectra(len(values)):
        turned, one = turn.T @ values, turn.sum(0)
        for rough, power in product(SETTINGS.roughness, SETTINGS.strengths):
            signal = scale**2 * power * ((1 - rough) * spectrum + rough)
            likelihood, kept = shrunk(turned, signal, sigma**2)
            left = one * signal * sigma**2 / (signal + sigma**2)
            missed, spread = total - float(one @ kept), float(one @ left)
            likelihood += _normal(missed, spread) - _normal(total, float(one**2 @ signal))
            if likelihood > best[0]:
                best = likelihood, turn @ (kept + left * missed / spread)
    return [best]


def _normal(distance: float, variance: float) -> float:
    """Log density of a normal law at a distance from its mean, without the constant."""
    return -(distance**2 / variance + math.log(variance)) / 2


@lru_cache(maxsize=64)
def _spectra(bins: int) -> list[tuple[Floats, Floats]]:
    """Eigen-decompositions of the bins' covariance, by range; the 1 is the unknown level of all."""
    return [np.linalg.eigh(np.exp(-distances(bins) / reach) + 1.0) for reach in SETTINGS.ranges]


def _separate(values: Floats, sigma: float, total: float) -> Model:
    """Log likelihood and posterior mean where bins are empty, or hold shares on their own.

    A bin is empty with a probability 1 - p; else its share has an exponential law of mean m. The
    noisy share then has the law of exponential plus normal, in closed form. The likelihood chooses
    p and m. What the posterior means lack of the sum goes where the posterior is wide. Likelihoods
    are without the constant that `shrunk` leaves out, too.
    """
    bins, scaled = len(values), values / sigma
    empty = -(scaled**2) / 2 - math.log(sigma)
    best: Model = -math.inf, values
    for share, mean_size in product(SETTINGS.filled, SETTINGS.sizes):
        size = total / bins * mean_size
        centre = scaled - sigma / size
        below = np.minimum(centre, 0)  # erfcx is finite there, and log_ndtr exact above
        tail = np.log(erfcx(-below / math.sqrt(2)) / 2) - scaled**2 / 2
        body = log_ndtr(centre) + (centre**2 - scaled**2) / 2
        some = math.log(share * math.sqrt(2 * math.pi) / size) + np.where(centre < 0, tail, body)
        none = math.log1p(-share) + empty if share < 1 else np.full(bins, -np.inf)
        both = np.logaddexp(some, none)
        # Mean and mean square of a normal law of deviation 1 around `centre`, cut off at 0.
        hazard = math.sqrt(2 / math.pi) / erfcx(-np.minimum(centre, 25) / math.sqrt(2))
        mean = np.maximum(centre + hazard, 0)
        square = np.maximum(1 + centre * mean, mean**2)
        held = np.exp(some - both)
        kept = sigma * held * mean
        left = np.maximum(sigma**2 * held * square - kept**2, 1e-12 * sigma**2)
        missed, spread = total - float(kept.sum()), float(left.sum())
        prior = bins * share * size**2 * (2 - share)
        likelihood = float(both.sum()) + _normal(missed, spread)
        likelihood -= _normal(0, prior)  # at most: the sum has no normal law before
        if likelihood > best[0]:
            best = likelihood, kept + left * missed / spread
    return best


def shrunk(turned: Floats, signal: Floats, noise: float) -> tuple[float, Floats]:
    """Log likelihood, less its constant, and posterior mean of values in their eigenbasis."""
    variance = signal + noise
    likelihood = -0.5 * float((np.log(variance) + turned**2 / variance).sum())
    return likelihood, turned * signal / variance


def body_of(column: ColumnDomain) -> npt.NDArray[np.intp]:
    """The levels whose order means something: no spikes, and not the missing one."""
    return np.arange(len(column.spikes), column.levels - column.missing)


def distances(count: int) -> Floats:
    """Distances of `count` bins, whose whole length is 1."""
    place = np.arange(count) / count
    return np.abs(place[:, None] - place)


def density_models(values: Floats, sigma: float, total: float) -> list[Model]:
    """Margins of each smoothness, and with each end, for noisy shares `values` `[bins]`.

    `sigma` is the standard deviation of a share, and `total` what all of them add up to. The last
    bin is sought first, then the first one.
    """
    bins = len(values)
    models, start, stop = list(_densities(values, sigma, total)), 0, bins
    ends = sorted({round(bins * i / SETTINGS.places) for i in range(1, SETTINGS.places)})
    for last in (True, False):
        best, kept = max(likelihood for likelihood, _ in models), (start, stop)
        for end in ends:
            low, high = (start, end) if last else (end, stop)
            if high - low < SETTINGS.least:
                continue
            outside = np.append(values[:low], values[high:])
            empty = -float(np.square(outside / sigma).sum()) / 2 - len(outside) * math.log(sigma)
            empty -= SETTINGS.end_cost
            # Inside no likelihood is above that of shares that are met, with weights of zero.
            if empty - (high - low) * math.log(sigma) < best - SETTINGS.hopeless:
                continue
            for likelihood, shares in _densities(values[low:high], sigma, total):
                models.append((likelihood + empty, np.pad(shares, (low, bins - high))))
                if likelihood + empty > best:
                    best, kept = likelihood + empty, (low, high)
        start, stop = kept
    return models


def _densities(values: Floats, sigma: float, total: float) -> Iterator[Model]:
    """A margin of each smoothness, until rougher ones become unlikely."""
    basis = _waves(len(values))
    weights, best = np.zeros(basis.shape[1]), -math.inf
    decay = np.arange(1, basis.shape[1] - 1.0) ** SETTINGS.decay
    for variance in SETTINGS.variances:
        precision = np.append([SETTINGS.slope] * 2, decay / variance)
        likelihood, shares, weights = _fitted(values, sigma, total, basis, precision, weights)
        yield likelihood, shares
        best = max(best, likelihood)
        if likelihood < best - SETTINGS.worse:
            return


@lru_cache(maxsize=256)
def _waves(bins: int) -> Floats:
    """A slope, a bend and the cosines at the middle of each bin, `[bins, 2 + cosines]`."""
    place = (np.arange(bins) + 0.5) / bins
    across = 2 * place - 1
    bent = math.sqrt(5) * (3 * across**2 - 1) / 2
    frequency = np.arange(1, min(SETTINGS.cosines, bins - 1) + 1)
    cosines = math.sqrt(2) * np.cos(np.pi * np.outer(place, frequency))
    return np.column_stack([math.sqrt(3) * across, bent, cosines])


def _fitted(
    values: Floats,
    sigma: float,
    total: float,
    basis: Floats,
    precision: Floats,
    weights: Floats,
    carrier: Floats | float = 0.0,
) -> tuple[float, Floats, Floats]:
    """Log likelihood, shares and weights of one smoothness, by Gauss and Newton from `weights`.

    The `carrier` is what logarithms of shares are without any weight.
    """

    def shares_of(weights: Floats) -> Floats:
        logarithm = carrier + basis @ weights
        raised = np.exp(logarithm - logarithm.max())
        return np.asarray(total * raised / raised.sum())

    def posterior(weights: Floats, shares: Floats) -> float:
        missed = np.square((values - shares) / sigma).sum()
        return -float(missed + precision @ np.square(weights)) / 2

    def slopes(shares: Floats) -> Floats:
        return np.asarray(shares[:, None] * (basis - (shares / total) @ basis) / sigma)

    shares = shares_of(weights)
    now = posterior(weights, shares)
    for _ in range(SETTINGS.steps):
        slope = slopes(shares)
        gradient = slope.T @ ((values - shares) / sigma) - precision * weights
        curvature = slope.T @ slope
        curvature.flat[:: len(precision) + 1] += precision
        curvature.flat[:: len(precision) + 1] += SETTINGS.never_singular * curvature.trace()
        step = dposv(curvature, gradient)[1]
        step *= min(1.0, SETTINGS.leap / max(float(np.abs(basis @ step).max()), 1e-12))
        gain = 0.0
        for shorter in 0.5 ** np.arange(10):
            tried = weights + shorter * step
            found = shares_of(tried)
            if (gain := posterior(tried, found) - now) > 0:
                weights, shares, now = tried, found, now + gain
                break
        if gain < SETTINGS.gain:
            break
    scaled = slopes(shares) / np.sqrt(precision)
    volume = np.linalg.slogdet(scaled.T @ scaled + np.eye(len(precision)))[1]
    return now - float(volume) / 2 - len(values) * math.log(sigma), shares, weights


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


FEW_CELLS = FewCellsSettings()


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
    for part in FEW_CELLS.spread:
        law = _few_cells(shares - part * apart, most, sigma)
        if law.likelihood > best.likelihood + (0 if spread else FEW_CELLS.spread_evidence):
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
    held = shares + sigma * ends / math.sqrt(2 * math.pi) / np.maximum(mass, FEW_CELLS.tiny)
    held = np.clip(held, 0, most)
    full = np.array(FEW_CELLS.full)[:, None, None]
    logs = np.logaddexp(np.log1p(-full) + spike, np.log(full) + slab)
    best = int(logs.sum((1, 2)).argmax())
    holds = np.exp(math.log(FEW_CELLS.full[best]) + slab - logs[best])
    return FewCells(float(logs[best].sum()), holds * held, float(holds.sum()))
