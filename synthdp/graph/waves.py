"""What the noisy tables of earlier waves say of this one: free post-processing of released tables.

Each table of counts, over the same columns and groups, is a series: in wave t its shares are those
of the wave before plus a drift, and what was released of them has noise of known variance. Drift
has mean 0 and the variance q w, where w is the mean of a cell's share, over all waves and in mean
shares of a cell, and of 1: larger cells drift more. A Kalman filter then gives what all waves say
of wave t, with its variance [Harvey, "Forecasting, Structural Time Series Models and the Kalman
Filter" (1989), Section 3.2, the local level model]. It comes out as one noisy table more, on the
scale of this wave's rows, such that it makes the filter's mean and mean variance when it is pooled
with the wave's own by inverse variances, as tables always are. So nothing that uses noisy tables
needs to know of waves. What is held against noise as such does: answers, intervals and tests are of
a wave's own tables.

A table of two columns lags behind in its margins, too, and there are many with one column: their
noise is independent, and their lag is not. So their margins are made those of the columns' own
tables, by least squares: what a margin lacks is spread evenly over its cells.

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

from synthdp.graph.margins import Floats, pooled, with_group_sums
from synthdp.privacy.mechanisms.marginals import NoisyTable

Tables = tuple[NoisyTable, ...]
State = tuple[Floats, Floats]
"""Means and variances of shares, `[cells]` both."""
Key = tuple[tuple[str, ...], tuple[tuple[str, tuple[int, ...]], ...]]
"""Columns, and the groups of levels that they are counted on."""


@dataclass(frozen=True)
class StepSettings:
    """How steps from wave to wave are judged.

    Attributes:
        rare: probability, without a break, of what is taken for one, in one step of one table.
        drifts: variances of steps that are weighed, over that of a wave's noise.
    """

    rare: float = 1e-4
    drifts: tuple[float, ...] = (0.0, *(4.0**k for k in range(-5, 4)))


STEPS = StepSettings()


@dataclass(frozen=True)
class Seen:
    """The noisy shares `[cells]` of one table in the wave of this number, and their variance."""

    wave: int
    shares: Floats
    variance: float


@dataclass(frozen=True)
class Series:
    """One table, filtered: what is known before each wave that counted it, but for the first, and
    after; the variance of steps, `drift`, of an average cell; and how likely steps as large as
    those to each wave are.
    """

    seen: tuple[Seen, ...]
    drift: float
    before: tuple[State, ...]
    after: tuple[State, ...]
    chances: tuple[float, ...]

    def smoothed(self) -> list[Floats]:
        """What all waves say of the shares in each."""
        means = [mean for mean, _ in self.after]
        for t in range(len(means) - 2, -1, -1):
            mean, variance = self.before[t]
            means[t] = means[t] + self.after[t][1] / variance * (means[t + 1] - mean)
        return means


def filtered(seen: Sequence[Seen]) -> Series | None:
    """The series of a table that two waves have counted, or more."""
    if len(seen) < 2:
        return None
    mean = np.mean([own.shares for own in seen], axis=0).clip(0)
    weights = (mean / max(float(mean.mean()), 1e-300) + 1) / 2
    sizes = np.mean([own.variance for own in seen]) * np.array(STEPS.drifts)
    likelihoods = np.array([_filter(seen, size, weights)[1] for size in sizes.tolist()])
    likely = np.exp(likelihoods - likelihoods.max())
    return _filter(seen, float(np.average(sizes, weights=likely)), weights)[0]


def _filter(seen: Sequence[Seen], drift: float, weights: Floats) -> tuple[Series, float]:
    """The series if steps have the variance `drift` times `weights`, and its log likelihood."""
    mean, variance = seen[0].shares, np.full(seen[0].shares.shape, seen[0].variance)
    before, after, chances, likelihood = list[State](), [(mean, variance)], list[float](), 0.0
    for last, own in pairwise(seen):
        ahead = variance + drift * (own.wave - last.wave) * weights
        squares = (own.shares - mean) ** 2
        size = float((squares / (ahead + own.variance)).sum())
        chance = float(gammaincc(mean.size / 2, size / 2))
        if chance < STEPS.rare:
            ahead = (ahead + own.variance) * (size / mean.size) - own.variance
            likelihood += math.log(STEPS.rare)
        both = ahead + own.variance
        likelihood -= float((np.log(both) + squares / both).sum()) / 2
        before.append((mean, ahead))
        chances.append(chance)
        mean, variance = mean + ahead / both * (own.shares - mean), own.variance * ahead / both
        after.append((mean, variance))
    return Series(tuple(seen), drift, tuple(before), tuple(after), tuple(chances)), likelihood


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
    rows, starts = rows_of(own), {item for table in own for item in _starts(table)}
    series = series_of((*earlier, own)).items()
    now = len(earlier)
    told = [_beside(key, one, rows, now) for key, one in series if {*key[1]} <= starts]
    margins = (*own, *(table for table in told if len(table.columns) == 1))
    return (*own, *(_with_margins(table, margins) for table in told))


def _beside(key: Key, series: Series, rows: float, now: int) -> NoisyTable:
    """What makes the filter's mean when it is pooled with what the wave `now` has counted."""
    (mean, variance), own = series.after[-1], series.seen[-1]
    noise = float(variance.mean()) + series.drift * (now - own.wave)
    if own.wave == now:
        precision = max(1 / noise - 1 / own.variance, 1e-6 / own.variance)
        mean = own.shares + (mean - own.shares) * (1 + 1 / own.variance / precision)
        noise = 1 / precision
    return NoisyTable(key[0], rows * mean, rows * noise**0.5, dict(key[1]))


def _with_margins(table: NoisyTable, margins: Tables) -> NoisyTable:
    """A table of two columns with the margins of these tables, on its own groups."""
    if len(table.columns) != 2:
        return table
    counts, rows = table.counts, rows_of(margins)
    for axis, name in enumerate(table.columns):
        levels = with_group_sums(margins, name).counts
        wanted = np.add.reduceat(levels, table.starts.get(name, range(len(levels))))
        lacking = wanted * rows / levels.sum() - counts.sum(axis=1 - axis)
        counts = counts + np.expand_dims(lacking / counts.shape[1 - axis], 1 - axis)
    return replace(table, counts=counts)


def rows_of(tables: Sequence[NoisyTable]) -> float:
    """About how many rows the tables of a wave count."""
    return max(1.0, float(pooled(tables, ()).counts))


def breaks(waves: tuple[Tables, ...]) -> dict[Key, Series]:
    """The series of tables whose step to the last wave no drift and noise explain."""
    found = series_of(waves).items()
    return {
        key: series
        for key, series in found
        if series.seen[-1].wave == len(waves) - 1 and series.chances[-1] < STEPS.rare
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
