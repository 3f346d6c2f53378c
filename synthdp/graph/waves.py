"""What the noisy tables of earlier waves say of this one: free post-processing of released tables.

Each table of counts, over the same columns and groups, is a series: in wave t its shares are those
of the wave before plus a drift, and what was released of them has noise of known variance. Drift
has mean 0 and a variance q, the same for all cells of a table; a Kalman filter then gives what the
waves before say of wave t, with its variance [Harvey, "Forecasting, Structural Time Series Models
and the Kalman Filter" (1989), Section 3.2, the local level model]. It comes out as one noisy table
more, on the scale of this wave's rows, whose noise is that variance: pooled with the wave's own by
inverse variances, as tables always are, it is the filter's update. So nothing that uses noisy
tables needs to know of waves. What is held against noise as such does: answers, intervals and tests
are of a wave's own tables.

How large q is, the table says itself: the likelihood of its innovations weighs some sizes, and q is
their mean, so that few cells and few waves trust what was before them less. A step that is larger
than q and noise explain is a break, at a cost: it has a variance of its own, by moments, takes the
weight from what was before it, and is told (`Series.chances`). With one earlier wave alone the only
step is to this wave: its table is used once this wave has counted its own, as much as both agree,
and no break can be told from drift.

The smoother goes back (Rauch, Tung and Striebel 1965): what all waves say of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.special import gammaincc

from synthdp.graph.margins import Floats, pooled
from synthdp.privacy.mechanisms.marginals import NoisyTable

BREAK = 1e-4
"""Probability, without a break, of what is taken for one, in one step of one table."""
DRIFTS = (0.0, *(4.0**k for k in range(-5, 4)))
"""Variances of steps that are weighed, over that of a wave's noise."""
Tables = tuple[NoisyTable, ...]
Key = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...]], ...]]
"""Columns, and the groups of levels that they are counted on."""


@dataclass(frozen=True)
class Seen:
    """The noisy shares `[cells]` of one table in the wave of this number, and their variance."""

    wave: int
    shares: Floats
    variance: float


@dataclass(frozen=True)
class Series:
    """One table, filtered: `means` and `variances` before each wave that counted it, of all but the
    first; the variance of steps, `drift`; and how likely steps as large as those to each wave are.
    """

    seen: tuple[Seen, ...]
    drift: float
    means: tuple[Floats, ...]
    variances: tuple[float, ...]
    chances: tuple[float, ...]

    @property
    def updated(self) -> tuple[list[Floats], list[float]]:
        """Means and variances after each wave that counted the table."""
        means, variances = [self.seen[0].shares], [self.seen[0].variance]
        for own, mean, variance in zip(self.seen[1:], self.means, self.variances, strict=True):
            gain = variance / (variance + own.variance)
            means.append(mean + gain * (own.shares - mean))
            variances.append((1 - gain) * variance)
        return means, variances

    def smoothed(self) -> tuple[list[Floats], list[float]]:
        """What all waves say of the shares in each, and the variances."""
        means, variances = self.updated
        for t in range(len(means) - 2, -1, -1):
            back = variances[t] / self.variances[t]
            means[t] = means[t] + back * (means[t + 1] - self.means[t])
            variances[t] += back**2 * (variances[t + 1] - self.variances[t])
        return means, variances


def filtered(seen: Sequence[Seen]) -> Series | None:
    """The series of a table that two waves have counted, or more."""
    if len(seen) < 2:
        return None
    sizes = np.mean([own.variance for own in seen]) * np.array(DRIFTS)
    likelihoods = np.array([_filter(seen, size)[1] for size in sizes.tolist()])
    weights = np.exp(likelihoods - likelihoods.max())
    return _filter(seen, float(np.average(sizes, weights=weights)))[0]


def _filter(seen: Sequence[Seen], drift: float) -> tuple[Series, float]:
    """The series if steps have the variance `drift`, and its log likelihood."""
    mean, variance, cells = seen[0].shares, seen[0].variance, seen[0].shares.size
    means, variances, chances, likelihood = list[Floats](), list[float](), list[float](), 0.0
    for before, own in pairwise(seen):
        ahead = variance + drift * (own.wave - before.wave)
        squares = float(((own.shares - mean) ** 2).sum())
        chance = float(gammaincc(cells / 2, squares / (ahead + own.variance) / 2))
        if chance < BREAK:
            ahead = max(ahead, squares / cells - own.variance)
            likelihood += math.log(BREAK)
        both = ahead + own.variance
        likelihood -= (cells * math.log(both) + squares / both) / 2
        means.append(mean)
        variances.append(ahead)
        chances.append(chance)
        mean, variance = mean + ahead / both * (own.shares - mean), own.variance * ahead / both
    return Series(tuple(seen), drift, tuple(means), tuple(variances), tuple(chances)), likelihood


@lru_cache(maxsize=4)
def series_of(waves: tuple[Tables, ...]) -> dict[Key, Series]:
    """The series of all tables that two of the `waves`, oldest first, have counted alike."""
    seen: dict[Key, list[Seen]] = {}
    for number, tables in enumerate(waves):
        rows = rows_of(tables)
        for key, table in _by_key(tables):
            own = Seen(number, table.counts / rows, (table.sigma / rows) ** 2)
            seen.setdefault(key, []).append(own)
    return {key: found for key, own in seen.items() if (found := filtered(own)) is not None}


@lru_cache(maxsize=4)
def with_earlier(own: Tables, earlier: tuple[Tables, ...]) -> Tables:
    """The tables of a wave, and what those of `earlier` waves say of it, oldest first.

    Tables on groups of levels are taken where the wave's own have those groups.
    """
    if not earlier:
        return own
    last, rows, found = len(earlier), rows_of(own), list(own)
    starts = {item for table in own for item in _starts(table)}
    for (columns, groups), series in series_of((*earlier, own)).items():
        if not {*groups} <= starts:
            continue
        means, variances = list(series.means), list(series.variances)
        mean, variance = means[-1], variances[-1]
        if series.seen[-1].wave < last:
            after = series.updated
            mean = after[0][-1]
            variance = after[1][-1] + series.drift * (last - series.seen[-1].wave)
        sigma = rows * math.sqrt(variance)
        found.append(NoisyTable(columns, rows * mean, sigma, dict(groups)))
    return tuple(found)


def rows_of(tables: Sequence[NoisyTable]) -> float:
    """About how many rows the tables of a wave count."""
    return max(1.0, float(pooled(tables, ()).counts))


def breaks(waves: tuple[Tables, ...]) -> dict[Key, Series]:
    """The series of tables whose step to the last wave no drift and noise explain."""
    found = series_of(waves).items()
    return {
        key: series
        for key, series in found
        if series.seen[-1].wave == len(waves) - 1 and series.chances[-1] < BREAK
    }


def _by_key(tables: Sequence[NoisyTable]) -> Iterator[tuple[Key, NoisyTable]]:
    """The tables over the same columns and groups, each pooled into one."""
    alike: dict[frozenset[object], list[NoisyTable]] = {}
    for table in tables:
        alike.setdefault(frozenset([*table.columns, *_starts(table)]), []).append(table)
    for same in alike.values():
        columns = tuple(sorted(same[0].columns))
        table = pooled([replace(one, starts={}) for one in same], columns)
        yield (columns, tuple(sorted(_starts(same[0])))), table


def _starts(table: NoisyTable) -> Iterator[tuple[str, tuple[int, ...]]]:
    return ((name, tuple(begins)) for name, begins in table.starts.items())
