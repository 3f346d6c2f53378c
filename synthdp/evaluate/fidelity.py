"""Fidelity: distance of a synthetic table's marginals and associations from the real ones.

All functions are pure and see level codes only, so the grid is the public domain's. Results on real
codes are confidential. `noisy_tv1` compares with *released* tables and is public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.counting import CrossTable, FloatArray, count_tables, total_variation
from synthdp.evaluate.pairs import compare_pairs

TRIPLE_SEED = 0  # public: the same 3-way tables are compared in every release of one domain


@dataclass(frozen=True, eq=False)
class FidelityReport:
    """Mean total variation (0 is equal, 1 is disjoint) of 1-way, 2-way and some 3-way tables.

    `tv2` and `tv3` are None where there is no such table. `shares_*` are each column's relative
    frequencies, shape `[levels]`. Pairs have symmetric matrices, shape `[columns, columns]`:
    `pairs` has the total variation, `association_*` Cramér's V.
    """

    tv1: float
    tv2: float | None
    tv3: float | None
    by_column: Mapping[str, float]
    pairs: FloatArray
    by_triple: Mapping[tuple[str, str, str], float]
    shares_real: Mapping[str, FloatArray]
    shares_synthetic: Mapping[str, FloatArray]
    association_real: FloatArray
    association_synthetic: FloatArray

    @property
    def association_difference(self) -> FloatArray:
        """Synthetic minus real, shape `[columns, columns]`."""
        return self.association_synthetic - self.association_real

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "tv1": self.tv1,
            "tv2": self.tv2,
            "tv3": self.tv3,
            "by_column": dict(self.by_column),
            "by_pair": {"columns": list(self.by_column), "tv": _digits(self.pairs)},
            "by_triple": [
                {"columns": list(triple), "tv": tv} for triple, tv in self.by_triple.items()
            ],
            "shares_real": {name: shares.tolist() for name, shares in self.shares_real.items()},
            "shares_synthetic": {
                name: shares.tolist() for name, shares in self.shares_synthetic.items()
            },
            "association_real": _digits(self.association_real),
            "association_synthetic": _digits(self.association_synthetic),
        }


def _digits(matrix: FloatArray) -> list[list[float]]:
    """Six decimals: half a million pairs of a wide table stay readable."""
    rounded: list[list[float]] = matrix.round(6).tolist()
    return rounded


def fidelity(real: Codes, synthetic: Codes, domain: Domain, *, triples: int = 64) -> FidelityReport:
    """Compare two tables of level codes, shape `[rows, columns]` each, over the same domain.

    `triples` is the number of 3-way tables, drawn by a fixed public seed.

    Raises:
        ValueError: a table has no rows.
    """
    if not len(real) or not len(synthetic):
        raise ValueError("fidelity needs at least one row in both tables")
    names, columns = domain.names, len(domain)
    one_way, three_way = [(i,) for i in range(columns)], choose_triples(columns, triples)
    tables_real = count_tables(real, domain.sizes, [*one_way, *three_way])
    tables_synthetic = count_tables(synthetic, domain.sizes, [*one_way, *three_way])
    tv = list(map(total_variation, tables_real, tables_synthetic))
    pairs = compare_pairs(real, synthetic, domain.sizes)
    named_triples = [(names[i], names[j], names[k]) for i, j, k in three_way]
    return FidelityReport(
        tv1=float(np.mean(tv[:columns])),
        tv2=_mean(pairs.variation[np.triu_indices(columns, 1)]),
        tv3=_mean(tv[columns:]),
        by_column=dict(zip(names, tv[:columns], strict=True)),
        pairs=pairs.variation,
        by_triple=dict(zip(named_triples, tv[columns:], strict=True)),
        shares_real=_shares(tables_real[:columns], names),
        shares_synthetic=_shares(tables_synthetic[:columns], names),
        association_real=pairs.association[0],
        association_synthetic=pairs.association[1],
    )


def _mean(values: Sequence[float] | FloatArray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _shares(tables: Sequence[CrossTable], names: Sequence[str]) -> dict[str, FloatArray]:
    """Relative frequencies of one-way tables by column name, shape `[levels]` each."""
    shares = {}
    for table in tables:
        dense = np.zeros(table.sizes[0])
        keys, counts = table.occupied()
        dense[keys] = counts / table.total
        shares[names[table.columns[0]]] = dense
    return shares


def choose_triples(columns: int, count: int) -> list[tuple[int, int, int]]:
    """At most `count` different column triples, drawn by a fixed public seed.

    All triples are returned where there are no more than `count`.
    """
    available = comb(columns, 3)
    if available <= 20_000:
        every = list(combinations(range(columns), 3))
        order = np.random.default_rng(TRIPLE_SEED).permutation(available)[:count]
        return [every[i] for i in order]
    rng = np.random.default_rng(TRIPLE_SEED)
    chosen: dict[tuple[int, int, int], None] = {}
    while len(chosen) < count:
        i, j, k = sorted(rng.choice(columns, size=3, replace=False).tolist())
        chosen[i, j, k] = None
    return list(chosen)


class Marginal(Protocol):
    """A released noisy table: its columns, and noisy counts with one axis for each column."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def counts(self) -> npt.NDArray[Any]: ...


def noisy_tv1(synthetic: Codes, tables: Sequence[Marginal], domain: Domain) -> float:
    """Mean total variation between the synthetic and the *released noisy* 1-way tables.

    It is a public figure. The noisy counts are first projected to the nearest distribution. Tables
    of several columns are left out.

    Raises:
        ValueError: there is no 1-way table, or `synthetic` `[rows, columns]` has no rows.
    """
    single = {table.columns[0]: table for table in tables if len(table.columns) == 1}
    if not single or not len(synthetic):
        raise ValueError("tv1_noisy needs synthetic rows and at least one released 1-way table")
    positions = [(domain.index(name),) for name in single]
    shares = _shares(count_tables(synthetic, domain.sizes, positions), domain.names)
    distances = [
        0.5 * np.abs(shares[name] - nearest_distribution(table.counts)).sum()
        for name, table in single.items()
    ]
    return float(np.mean(distances))


def nearest_distribution(counts: npt.NDArray[Any]) -> FloatArray:
    """Noisy counts as relative frequencies, shape `[cells]`: their projection onto the simplex.

    It is the Euclidean projection of the counts over their total, and uniform where the total is
    not positive. Clipping alone would keep the upward half of the noise in empty cells and move
    mass to them. Source: J. Duchi et al., "Efficient projections onto the l1-ball", ICML 2008,
    figure 1.

    >>> nearest_distribution(np.array([6, 4, -2]))
    array([0.625, 0.375, 0.   ])
    """
    noisy = np.asarray(counts, dtype=np.float64).ravel()
    total = noisy.sum()
    if total <= 0:
        return np.full(len(noisy), 1.0 / len(noisy))
    shares = noisy / total
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(descending > excess)[-1])
    projected: FloatArray = np.maximum(shares - excess[last], 0.0)
    return projected
