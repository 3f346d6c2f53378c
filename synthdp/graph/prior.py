"""Noisy tables shrunk to a prior: public counts of the same columns. Free post-processing.

Empirical Bayes, one table at a time [derived here; the shape is that of James and Stein,
"Estimation with Quadratic Loss" (1961), the moments are Morris's, "Parametric Empirical Bayes
Inference" (1983)]. A table of C cells has shares t, the prior says m, and what was released is y =
t + z, with noise of variance s^2 in each cell. How far the prior is off is taken to be t - m of
mean zero and variance tau^2 w, with w = (m + 1 / C) / 2. The part m is how shares of two samples of
one law differ; the part 1 / C lets a cell hold rows that the prior lacks: with w = m alone it would
stay at zero whatever was counted. Both parts add up to 1, so that the expected sum of (y - m)^2 is
tau^2 + C s^2, and

    tau^2 = max((1 - sum of m^2) / n, sum of (y - m)^2 - C s^2),

by moments from the released table. The first is what n public rows are off by chance, had they the
very law of the table: a prior is never taken for exact. The mean of t given y is m + k (y - m), k =
tau^2 w / (tau^2 w + s^2), and its variance k s^2. A prior that is visibly wrong switches itself
off: w is at least 1 / 2C, so that no cell keeps more than 2 C s^2 / (tau^2 + 2 C s^2) of its way to
the prior.

Where the prior is of other people, its margins are wrong first, and what columns have to do with
each other last. So a pair's m is the prior's table with the released margins: proportional fitting
keeps its odds ratios. One row of independent columns is added to it, so that it says nothing of
levels that it lacks.

Wrong, and not visibly so, is what noise hides. There other explanations compete: the table as it is
smoothed without a prior (`graph.predict`, `graph.margins`), and the prior times a smooth function.
Of a margin of ordered bins that is a slope, a bend and slow cosines of the logarithm: hours that
heap at 40 do so among others, too, who work longer [Efron and Tibshirani, "Using specially designed
exponential families for density estimation" (1996)]. Of a pair it is the Gaussian process of
`graph.predict`, around the prior's table in place of independent columns; the prior's own chance is
smoothed out of it first. Each has a likelihood of the released table, and before it even odds, but
for what a tilt costs: the mean over all is taken. What was shrunk is smoothed like any other table,
by the noise that is left. All of it follows from released tables and public counts alone, and looks
at no row.

No interval rests on any of this: answers come from the tables as they were released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.table import Columns

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prior:
    """Public counts by columns: of a column over its levels, of two over their groups of levels."""

    counts: Mapping[Columns, Floats]


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Levels `[rows, columns]` of public rows; `columns` are those of the domain that they have."""

    columns: Columns
    codes: Codes

    def prior(self, tables: Sequence[NoisyTable], groups: LevelGroups) -> Prior:
        """The counts that noisy `tables` are shrunk to: of all columns, and of all pairs in one."""
        names, sizes = groups.domain.names, groups.coarse.sizes
        place = {name: i for i, name in enumerate(names)}
        fine = np.zeros((len(self.codes), len(names)), self.codes.dtype)
        fine[:, [place[name] for name in self.columns]] = self.codes
        coarse, counts = groups.of(fine), dict[Columns, Floats]()
        for name in self.columns:
            levels = groups.domain[name].levels
            counts[name,] = np.bincount(fine[:, place[name]], minlength=levels).astype(float)
        for a, b in paired(tables, names):
            if {a, b} <= {*self.columns}:
                shape = sizes[place[a]], sizes[place[b]]
                cells = coarse[:, place[a]].astype(np.int64) * shape[1] + coarse[:, place[b]]
                found = np.bincount(cells, minlength=math.prod(shape))
                counts[a, b] = found.reshape(shape).astype(float)
        return Prior(counts)


def paired(tables: Sequence[NoisyTable], names: Columns) -> list[tuple[str, str]]:
    """The pairs of columns that some table has, in the order of the domain's `names`."""
    place = {name: i for i, name in enumerate(names)}
    found = {p for t in tables for p in combinations(sorted(t.columns, key=place.__getitem__), 2)}
    return sorted(found, key=lambda pair: (place[pair[0]], place[pair[1]]))


class Shrunk(NamedTuple):
    """Noisy shares after shrinking.

    `sigma` is the root mean square of the noise that is left, `likelihood` that of the noisy shares
    with the prior, in nats and less the constant of a normal, and `used` how much of the way to the
    prior its rows were taken, 0 to 1. `off` is the variance by which the prior may be off.
    """

    shares: Floats
    off: Floats
    sigma: float
    likelihood: float
    used: float


def shrunk_to(prior: Floats, shares: Floats, sigma: float, rows: float) -> Shrunk:
    """Noisy `shares` of deviation `sigma`, shrunk to the shares of a `prior`, which has so many
    `rows`; all of one shape.
    """
    noise, apart = sigma**2, np.square(shares - prior)
    chance = (1 - float(np.square(prior).sum())) / rows
    square = max(chance, float(apart.sum()) - prior.size * noise)
    off = square * (prior + 1 / prior.size) / 2
    kept = off / (off + noise)
    likelihood = -0.5 * float((np.log(off + noise) + apart / (off + noise)).sum())
    left = sigma * math.sqrt(float(kept.mean()))
    used = float((prior * (1 - kept)).sum())
    return Shrunk(prior + kept * (shares - prior), off, left, likelihood, used)
