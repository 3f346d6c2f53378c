"""Fidelity: distance of a synthetic table's marginals and associations from the real ones.

All functions are pure and see level codes only, so the grid is the public domain's. Results on real
codes are confidential. `noisy_tv1` compares with *released* tables and is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.mechanisms.marginals import NoisyTable

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
AnyCodes = npt.NDArray[np.integer[Any]]

# --- contingency tables ---


@dataclass(frozen=True)
class FidelitySettings:
    """How tables are counted, and how many columns and levels a pair plot has.

    `dense_cells`: of one table, above which only the cells that occur are kept. Of pairs,
    `max_cells` are counted at once, unless one pair alone has more, with `max_keys` cell numbers in
    memory. A plot has `plot_columns`, each of `plot_levels` at most.
    """

    dense_cells: int = 1 << 18
    max_cells: int = 1 << 21
    max_keys: int = 1 << 20
    plot_columns: int = 10
    plot_levels: int = 12


SETTINGS = FidelitySettings()


@dataclass(frozen=True, eq=False)
class CrossTable:
    """Counts of one contingency table.

    `keys` are the numbers of the stored cells, sorted, in C order over `sizes`; None means all
    cells.
    """

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    keys: IntArray | None
    counts: IntArray

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def occupied(self) -> tuple[IntArray, IntArray]:
        """Keys and counts of the cells that occur, shape `[cells that occur]` each."""
        if self.keys is not None:
            return self.keys, self.counts
        keys = np.flatnonzero(self.counts)
        return keys, self.counts[keys]


def count_tables(
    codes: AnyCodes, sizes: Sequence[int], tables: Sequence[tuple[int, ...]]
) -> tuple[CrossTable, ...]:
    """One `CrossTable` for each tuple of column positions in `tables`.

    Levels `[rows, columns]` are below the column's entry of `sizes`. Of a table of many cells only
    those that occur are kept.

    Raises:
        ValueError: a table has more cells than a 64-bit integer can number.

    >>> table, = count_tables(np.array([[0, 1], [0, 1], [1, 0]]), (2, 2), [(0, 1)])
    >>> table.counts
    array([0, 2, 1, 0])
    """
    columns, found = np.ascontiguousarray(codes.T), list[CrossTable]()
    for table in tables:
        shape = tuple(sizes[c] for c in table)
        if (cells := math.prod(shape)) > np.iinfo(np.int64).max:
            raise ValueError(
                f"a table of {len(shape)} columns has {cells} cells, more than a 64-bit key can"
                " name; use fewer columns"
            )
        keys = columns[table[0]].astype(np.int64)
        for column, size in zip(table[1:], shape[1:], strict=True):
            keys = keys * size + columns[column]
        if cells <= SETTINGS.dense_cells:
            found.append(CrossTable(table, shape, None, np.bincount(keys, minlength=cells)))
        else:
            found.append(CrossTable(table, shape, *np.unique(keys, return_counts=True)))
    return tuple(found)


def total_variation(a: CrossTable, b: CrossTable) -> float:
    """Half the summed difference of two tables' relative frequencies; both must hold rows."""
    if a.keys is None and b.keys is None:
        return float(0.5 * np.abs(a.counts / a.total - b.counts / b.total).sum())
    (keys_a, counts_a), (keys_b, counts_b) = a.occupied(), b.occupied()
    _, cell = np.unique(np.concatenate([keys_a, keys_b]), return_inverse=True)
    shares = np.concatenate([counts_a / a.total, -counts_b / b.total])
    return float(0.5 * np.abs(np.bincount(cell, weights=shares)).sum())


# --- fidelity ---


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

    def distances(self) -> dict[str, Any]:
        means = {"tv1": self.tv1, "tv2": self.tv2, "tv3": self.tv3}
        return means | {"by_column": dict(self.by_column)}

    def to_json(self) -> dict[str, Any]:
        return self.distances() | {
            "by_pair": {"columns": list(self.by_column), "tv": _digits(self.pairs)},
            "by_triple": [{"columns": list(of), "tv": tv} for of, tv in self.by_triple.items()],
            "shares_real": {n: shares.tolist() for n, shares in self.shares_real.items()},
            "shares_synthetic": {n: shares.tolist() for n, shares in self.shares_synthetic.items()},
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
    later = pairs.variation[np.triu_indices(columns, 1)]
    named_triples = [(names[i], names[j], names[k]) for i, j, k in three_way]
    return FidelityReport(
        tv1=float(np.mean(tv[:columns])),
        tv2=float(np.mean(later)) if len(later) else None,
        tv3=float(np.mean(tv[columns:])) if three_way else None,
        by_column=dict(zip(names, tv[:columns], strict=True)),
        pairs=pairs.variation,
        by_triple=dict(zip(named_triples, tv[columns:], strict=True)),
        shares_real=_shares(tables_real[:columns], names),
        shares_synthetic=_shares(tables_synthetic[:columns], names),
        association_real=pairs.association[0],
        association_synthetic=pairs.association[1],
    )


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
    """At most `count` different column triples, drawn by a fixed public seed: the same are compared
    in every release of one domain.

    All triples are returned where there are no more than `count`.
    """
    available, rng = math.comb(columns, 3), np.random.default_rng(0)
    if available <= 20_000:
        every = list(combinations(range(columns), 3))
        order = rng.permutation(available)[:count]
        return [every[i] for i in order]
    chosen: dict[tuple[int, int, int], None] = {}
    while len(chosen) < count:
        i, j, k = sorted(rng.choice(columns, size=3, replace=False).tolist())
        chosen[i, j, k] = None
    return list(chosen)


def noisy_tv1(synthetic: Codes, tables: Sequence[NoisyTable], domain: Domain) -> float:
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


# --- the floor of every distance: two real samples of one table ---


def sampling_distance(shares: FloatArray, first: int, second: int) -> float:
    """About the mean total variation of two samples, of `first` and `second` rows, of one law.

    `shares` are the law's, of any shape. A cell of share p differs by a normal variable of variance
    p (1 - p) (1/first + 1/second), whose mean absolute value is its deviation times sqrt(2 / pi);
    rare cells, where that fails, differ by at most 2 p on average.

    >>> round(sampling_distance(np.full(10, 0.1), 1000, 1000), 3)
    0.054
    """
    p = np.asarray(shares, dtype=np.float64)
    normal = np.sqrt(2 / np.pi * p * (1 - p) * (1 / first + 1 / second))
    return float(0.5 * np.minimum(normal, 2 * p).sum())


def sampling_floor(
    codes: Codes, domain: Domain, tables: Sequence[tuple[str, ...]], *, first: int, second: int
) -> float:
    """The mean `sampling_distance` of 200 `tables` by the law of levels `[rows, columns]`."""
    chosen = [tuple(map(domain.index, names)) for names in tables[:200]]
    counted = count_tables(codes, domain.sizes, chosen)
    distances = [
        sampling_distance(table.occupied()[1] / table.total, first, second) for table in counted
    ]
    return float(np.mean(distances))


# --- pairs of columns ---


@dataclass(frozen=True, eq=False)
class PairFigures:
    """Total variation and Cramér's V of either table: symmetric, diagonals 0 and 1."""

    variation: FloatArray
    association: tuple[FloatArray, FloatArray]


def compare_pairs(first: AnyCodes, second: AnyCodes, sizes: Sequence[int]) -> PairFigures:
    """Compare two tables of level codes, shape `[rows, columns]` each and with at least one row.

    Each code is a level below the column's entry of `sizes`. A column is counted with all later
    ones in one pass: a table of a thousand columns (half a million pairs) takes seconds, and memory
    is that of a block of cells and a block of rows.
    """
    tables, sizes = _occurring(first, second, sizes)
    columns = len(sizes)
    variation = np.zeros((columns, columns))
    association = np.eye(columns), np.eye(columns)
    for i, later in _blocks(sizes):
        starts = np.cumsum([0, *(sizes[j] for j in later)])
        counts = [_count(levels, i, later, starts, sizes[i]) for levels in tables]
        shares = [table / levels.shape[1] for table, levels in zip(counts, tables, strict=True)]
        variation[i, later] = 0.5 * np.add.reduceat(
            np.abs(shares[0] - shares[1]).sum(axis=1), starts[:-1]
        )
        for matrix, table in zip(association, counts, strict=True):
            matrix[i, later] = cramers_v(table, starts[:-1])
    for matrix in (variation, *association):
        matrix += np.triu(matrix, 1).T
    return PairFigures(variation, association)


def _occurring(
    first: AnyCodes, second: AnyCodes, sizes: Sequence[int]
) -> tuple[list[AnyCodes], list[int]]:
    """Both tables as `[columns, rows]` of levels that occur in either: others only cost cells."""
    tables: list[AnyCodes] = [codes.T.copy(order="C") for codes in (first, second)]
    occurring = []
    for i, size in enumerate(sizes):
        occurs = np.bincount(np.concatenate([levels[i] for levels in tables]), minlength=size) > 0
        number = (np.cumsum(occurs) - 1).astype(first.dtype)
        for levels in tables:
            levels[i] = number[levels[i]]
        occurring.append(int(occurs.sum()))
    return tables, occurring


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[int, range]]:
    """Each column with runs of later columns (`max_cells`, or one pair): pairs come once."""
    for i, size in enumerate(sizes):
        begin, levels = i + 1, 0
        for j in range(i + 1, len(sizes)):
            if levels and size * (levels + sizes[j]) > SETTINGS.max_cells:
                yield i, range(begin, j)
                begin, levels = j, 0
            levels += sizes[j]
        if levels:
            yield i, range(begin, len(sizes))


def _count(levels: AnyCodes, i: int, later: range, starts: IntArray, size: int) -> IntArray:
    """Counts `[levels of the later columns, levels of i]` of `levels` `[columns, rows]`."""
    counts = np.zeros(int(starts[-1]) * size, dtype=np.int64)
    step = max(1, SETTINGS.max_keys // len(later))
    for begin in range(0, levels.shape[1], step):
        rows = slice(begin, begin + step)
        keys = levels[later.start : later.stop, rows] + starts[:-1, None]
        keys *= size
        keys += levels[i, rows]
        counts += np.bincount(keys.ravel(), minlength=len(counts))
    return counts.reshape(-1, size)


# --- pair plots: every column and every pair of a few columns ---


@dataclass(frozen=True, eq=False)
class PairPlot:
    """Relative frequencies of the columns `names`.

    `tables[i][j]` has shape `[levels of i, levels of j]`, on the diagonal `[levels of i]`. `ends`
    are what the first and the last level of each column stand for.
    """

    names: tuple[str, ...]
    tables: tuple[tuple[FloatArray, ...], ...]
    ends: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, object]:
        """Plain values of the upper triangle; the lower one is its transpose."""
        size = range(len(self.names))
        return {
            "columns": list(self.names),
            "tables": [[self.tables[i][j].round(6).tolist() for j in size if j >= i] for i in size],
        }


def grid(domain: Domain, codes: Codes, like: Codes) -> tuple[IntArray, tuple[int, ...]]:
    """Coarse levels `[rows, columns]`, a few for each column, and their numbers.

    Neighbouring levels of an ordered column are merged. Of categories, the commonest in `like`
    (published rows) stay and the others become one.
    """
    cells = np.zeros((len(codes), len(domain)), dtype=np.int64)
    sizes = []
    for i, column in enumerate(domain.columns):
        cell_of_level = _coarse(column, like[:, i])
        cells[:, i] = cell_of_level[codes[:, i]]
        sizes.append(int(cell_of_level.max()) + 1)
    return cells, tuple(sizes)


def _coarse(column: ColumnDomain, like: npt.NDArray[np.uint16]) -> IntArray:
    """The cell of each level, shape `[levels]`."""
    levels, most = np.arange(column.levels), SETTINGS.plot_levels
    if column.levels <= most:
        return levels
    if column.ordered:
        return levels * most // column.levels
    order = np.argsort(-np.bincount(like, minlength=column.levels), kind="stable")
    kept = np.sort(order[: most - 1])
    cells = np.full(column.levels, most - 1)
    cells[kept] = np.arange(len(kept))
    return cells


def association(cells: IntArray, sizes: Sequence[int]) -> FloatArray:
    """Cramér's V of all pairs of columns of a grid, shape `[columns, columns]`."""
    return compare_pairs(cells, cells, sizes).association[0]


def most_connected(
    names: Sequence[str], strengths: FloatArray, *, first: Sequence[str]
) -> tuple[str, ...]:
    """Those of `first`, then the most associated of `names`, by `strengths` `[names, names]`."""
    order = np.argsort(-(strengths.sum(axis=1).round(6)), kind="stable")
    preferred = [n for n in first if n in names]
    ranked = dict.fromkeys([*preferred, *(names[i] for i in order)])
    return tuple(ranked)[: SETTINGS.plot_columns]


def pair_plot(domain: Domain, codes: Codes, names: Sequence[str], *, like: Codes) -> PairPlot:
    """Relative frequencies of `names` in a table of level codes, shape `[rows, columns]`.

    The table must hold a row. `like` is as in `grid`.
    """
    chosen = Domain(tuple(domain[n] for n in names))
    columns = list(map(domain.index, names))
    cells, sizes = grid(chosen, codes[:, columns], like[:, columns])

    def shares(i: int, j: int) -> FloatArray:
        keys = cells[:, i] * sizes[j] + cells[:, j]
        both = np.bincount(keys, minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
        return (both.diagonal() if i == j else both) / len(cells)

    tables = tuple(tuple(shares(i, j) for j in range(len(names))) for i in range(len(names)))
    ends = tuple(_ends(c, like[:, i]) for c, i in zip(chosen.columns, columns, strict=True))
    return PairPlot(tuple(names), tables, ends)


def _ends(column: ColumnDomain, like: npt.NDArray[np.uint16]) -> tuple[str, str]:
    cells = _coarse(column, like)
    last = int(cells.max())
    merged = not column.ordered and column.levels > SETTINGS.plot_levels
    first = column.labels[int(np.flatnonzero(cells == 0)[0])]
    return first, "others" if merged else column.labels[int(np.flatnonzero(cells == last)[-1])]


def cramers_v(counts: IntArray, starts: IntArray) -> FloatArray:
    """Cramér's V of one column with each of several others, shape `[others]`.

    `counts` has shape `[levels of the others one after the other, levels of the column]`. It holds
    one contingency table for each other column, one below the other. `starts` gives the first row
    of each table. V is 0 where a column has a single level or the table has a single row: the
    corrected maximum is then 0.

    It has Bergsma's bias correction: W. Bergsma, "A bias-correction for Cramér's V and Tschuprow's
    T", Journal of the Korean Statistical Society 42 (2013), equation for V tilde. Levels that never
    occur do not count as levels.

    >>> cramers_v(np.array([[50, 0], [0, 50]]), np.array([0]))
    array([1.])
    """
    cells = counts.astype(np.float64)
    row_totals = cells.sum(axis=1)
    column_totals = np.add.reduceat(cells, starts, axis=0)[0]  # the same in every table
    n = column_totals.sum()
    r = np.add.reduceat(row_totals > 0, starts, dtype=np.int64)
    c = int((column_totals > 0).sum())
    if n < 2 or c < 2:
        return np.zeros(len(starts))
    # chi² / n = sum n_ij² / (n_i n_j) - 1; a level that does not occur has only empty cells
    by_row = (cells**2 @ _inverse(column_totals)) * _inverse(row_totals)
    phi2 = np.add.reduceat(by_row, starts) - 1.0
    phi2 = np.maximum(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    maximum = np.minimum(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    ratio = np.divide(phi2, maximum, out=np.zeros(len(starts)), where=maximum > 0)
    strength: FloatArray = np.minimum(1.0, np.sqrt(ratio))
    return strength


def _inverse(totals: FloatArray) -> FloatArray:
    """1 / total, and 0 where a total is 0."""
    return np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
