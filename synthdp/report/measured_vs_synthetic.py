"""A published table held against the noisy counts beside it: columns, and the pairs that were
measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.fidelity import nearest_distribution

FloatArray = npt.NDArray[np.float64]

MAX_PAIR_TABLES = 400
# of what is ranked: machines that differ in the last bit must rank alike, for `verify` to draw the
# same page
DIGITS = 9


class NoisyCounts(Protocol):
    """A published table: its columns, noisy counts of their sizes' shape, and the noise's standard
    deviation in each cell.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> npt.NDArray[Any]: ...
    @property
    def sigma(self) -> float: ...


@dataclass(frozen=True)
class Column:
    """One column: what was measured, what was published, how far apart they are, and how far noise
    alone would put them.
    """

    name: str
    noisy: FloatArray
    synthetic: FloatArray
    counts: FloatArray
    sigma: float

    @property
    def distance(self) -> float:
        """Total variation."""
        return round(float(0.5 * np.abs(self.noisy - self.synthetic).sum()), DIGITS)

    @property
    def by_noise(self) -> float:
        """Expected total variation of the noise alone, at most."""
        return noise_distance(self.counts, self.sigma)


def noise_distance(counts: FloatArray, sigma: float) -> float:
    """Expected total variation that noise of standard deviation `sigma` makes in a table of noisy
    `counts`, at most 1.

    The mean absolute value of a Gaussian is sigma sqrt(2 / pi); bringing the counts to the nearest
    distribution only shrinks it.
    """
    total = max(float(counts.sum()), 1.0)
    return min(1.0, 0.5 * counts.size * sigma * float(np.sqrt(2 / np.pi)) / total)


def columns(domain: Domain, codes: Codes, tables: Sequence[NoisyCounts]) -> Iterator[Column]:
    """Every column that was measured by itself, in the table's order."""
    single = {t.columns[0]: t for t in tables if len(t.columns) == 1}
    for i, column in enumerate(domain.columns):
        if column.name in single:
            counts = np.asarray(single[column.name].counts, dtype=np.float64)
            shares = np.bincount(codes[:, i], minlength=column.levels) / len(codes)
            yield Column(
                column.name, nearest_distribution(counts), shares, counts, single[column.name].sigma
            )


@dataclass(frozen=True)
class MeasuredPair:
    """A pair of columns that a published table holds: how far the synthetic rows are from it, and
    how far noise alone would put them.
    """

    names: tuple[str, str]
    distance: float
    by_noise: float


def measured_pairs(
    domain: Domain, codes: Codes, tables: Sequence[NoisyCounts]
) -> Iterator[MeasuredPair]:
    """Each pair once, from the smallest table that holds it, in the order of the tables."""
    smallest: dict[tuple[str, str], NoisyCounts] = {}
    for table in tables:
        for pair in combinations(table.columns, 2):
            key = (pair[0], pair[1]) if (pair[1], pair[0]) not in smallest else (pair[1], pair[0])
            if key not in smallest or smallest[key].counts.size > table.counts.size:
                smallest[key] = table
    for pair, table in [*smallest.items()][:MAX_PAIR_TABLES]:
        yield _measured_pair(domain, codes, pair, table)


def _measured_pair(
    domain: Domain, codes: Codes, pair: tuple[str, str], table: NoisyCounts
) -> MeasuredPair:
    others = tuple(k for k, name in enumerate(table.columns) if name not in pair)
    counts = np.asarray(table.counts, dtype=np.float64).sum(axis=others)
    if tuple(n for n in table.columns if n in pair) != pair:
        counts = counts.T
    sigma = table.sigma * float(
        np.sqrt(table.counts.size / counts.size)
    )  # a sum of that many noisy cells
    i, j = (domain.index(n) for n in pair)
    keys = codes[:, i].astype(np.int64) * counts.shape[1] + codes[:, j]
    shares = np.bincount(keys, minlength=counts.size) / len(keys)
    return MeasuredPair(
        pair,
        round(float(0.5 * np.abs(nearest_distribution(counts) - shares).sum()), DIGITS),
        noise_distance(counts, sigma),
    )
