"""Selection of rows that are closer to the model than independent draws: post-processing.

Independent draws add a sampling error to every table of counts. Here rows are chosen from a larger
pool so that their one- and two-way tables are, as nearly as whole rows allow, those of the whole
weighted pool. Exchanges of rows are kept while they reduce a weighted sum of squares over the
cells: a local search for a balanced sample in the sense of Deville and Tille, "Efficient balanced
sampling: the cube method" (2004). Only rows of the pool are returned, so the result contains
nothing that the model does not draw.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.margins import pooled
from synthdp.graph.predict import fitted_to_margins, pair_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SelectionSettings:
    """Limits and pace of the exchange of rows, and what they follow."""

    clear: float = 3.0
    """Standard deviations of its noise that the sum of a measured table must exceed."""
    little: float = 0.1
    """Noise of a smoothed table's cells, in rows."""
    strata_rounds: int = 5
    """Rounds in which strata and single columns are followed in turn."""

    max_pairs: int = 512
    """Most pairs of columns whose tables are counted; of more, a random choice."""
    max_cells: int = 1 << 20
    """Most cells of the counted tables; of more, a random choice."""
    max_rows: int = 1_000_000
    """Number of rows above which the error of independent draws is not worth the time."""
    max_rounds: int = 400
    """Most rounds of exchanges, and at most one for each `rows_of_round` rows of the table."""
    rows_of_round: int = 20
    min_tried: int = 500
    """Fewest rows that a round looks at, of the chosen ones and of the pool."""
    max_looked_up: int = 1 << 22
    """Most cells of the rows that a round looks at: nearly all rows of Adult."""
    looked_up: int = 1 << 16
    """Cells that are looked up at once: they stay in the cache."""
    tried: int = 6
    """Rows that are looked at for each exchanged row."""
    faster: float = 1.2
    """Factor of the number of rows exchanged at once, after a round that helped."""
    slower: float = 0.5
    """The same after a round that did not help."""


SETTINGS = SelectionSettings()


@dataclass(frozen=True)
class MeasuredPair:
    """A noisy two-way table.

    `columns` are positions, `counts` `[levels, levels]`, and `sigma` the standard deviation of the
    noise per cell.
    """

    columns: tuple[int, int]
    counts: Weights
    sigma: float


def measured_pairs(tables: Sequence[NoisyTable], names: Sequence[str]) -> list[MeasuredPair]:
    """The pooled two-way tables of all pairs of columns that `tables` contain together.

    It does not matter what the tables were measured for. Within the limits the most precise are
    kept.
    """
    position = {name: i for i, name in enumerate(names)}
    by_pair: dict[tuple[str, str], list[NoisyTable]] = defaultdict(list)
    for table in tables:
        columns = sorted(table.columns, key=position.__getitem__)
        for pair in itertools.combinations(columns, 2):
            if table.has(pair):
                by_pair[pair].append(table)
    margins = [pooled(containing, pair) for pair, containing in by_pair.items()]
    margins = sorted(margins, key=lambda t: (t.sigma, t.counts.size))[: SETTINGS.max_pairs]
    cells = np.cumsum([t.counts.size for t in margins])
    return [
        MeasuredPair((position[t.columns[0]], position[t.columns[1]]), t.counts, t.sigma)
        for t in margins[: int((cells <= SETTINGS.max_cells).sum())]
    ]


def pairs_to_follow(law: LevelLaw, *, smooth: bool) -> list[MeasuredPair]:
    """The two-way tables of the `law` that the rows are held to.

    Where the model started from smoothed tables they are `smooth`: of all pairs that show a
    dependence.
    """
    domain = law.groups.domain
    if not smooth:
        return measured_pairs(law.tables, domain.names)
    smoothed = pair_tables(law)
    pairs = (((domain.index(a), domain.index(b)), (a, b)) for a, b in smoothed.dependent)
    return [
        MeasuredPair(places, smoothed.rows * smoothed.table(*names), SETTINGS.little)
        for places, names in pairs
    ]


def balanced(
    pool: Codes,
    weights: Weights,
    sizes: Sequence[int],
    *,
    rows: int,
    rng: np.random.Generator,
    measured: Sequence[MeasuredPair] = (),
) -> Codes:
    """`rows` rows of `pool` `[pool rows, columns]` whose two-way tables follow the weighted pool's.

    `sizes` are the levels of the first columns; further ones are carried along. `weights` is
    `[pool rows]`. Tables that were `measured` follow measurement and pool together.
    The search starts from a systematic sample by weight. A round exchanges rows in overfull cells
    for rows in underfull ones; a cell's deviation counts in proportion to one over its size, as in
    chi-square.
    """
    share = weights / weights.sum()
    points = (np.arange(rows) + rng.random()) / rows
    chosen = np.minimum(np.searchsorted(np.cumsum(share), points, side="right"), len(pool) - 1)
    worth = len(sizes) > 1 and (rows <= SETTINGS.max_rows or bool(measured))
    cells = _Cells(sizes, [m.columns for m in measured], rng) if worth else None
    if cells is not None and cells.total:
        wanted = cells.counts(pool, share * rows)
        for table in measured:
            a, b = sorted(table.columns)
            shape, begin = (cells.sizes[a], cells.sizes[b]), int(cells.offset[cells.place[a, b]])
            part = slice(begin, begin + math.prod(shape))
            model = wanted[part].reshape(shape)
            wanted[part] = with_margins(blended(model, table), model).ravel()
        _exchange(pool, chosen, cells, wanted, rng)
    selected: Codes = pool[rng.permutation(chosen)]
    return selected


def _exchange(
    pool: Codes,
    chosen: npt.NDArray[np.intp],
    cells: _Cells,
    wanted: Weights,
    rng: np.random.Generator,
) -> None:
    """Exchange rows of `chosen`, in place, so that the counts of its cells come near `wanted`."""
    rows, importance = len(chosen), 1 / (wanted + 1)
    present = cells.counts(pool[chosen], np.ones(rows))
    fewest = SETTINGS.min_tried
    max_tried = max(fewest, min(rows, SETTINGS.max_looked_up // len(cells.first)))
    step = max(1.0, min(rows, max_tried) / 400)
    for _ in range(min(SETTINGS.max_rounds, 1 + rows // SETTINGS.rows_of_round)):
        excess = present - wanted
        tried = min(rows, max_tried, max(fewest, int(SETTINGS.tried * step)))
        place, other = rng.choice(rows, tried, replace=False), rng.integers(0, len(pool), tried)
        leave, enter = pool[chosen[place]], pool[other]
        gained = cells.sums((2 * excess - 1) * importance, leave)
        lost = cells.sums((2 * excess + 1) * importance, enter)
        first, second = np.argsort(-gained), np.argsort(lost)
        exchanged = min(int((gained[first] > lost[second]).sum()), int(step))
        if not exchanged:
            continue
        first, second = first[:exchanged], second[:exchanged]
        change = cells.tally(enter[second]) - cells.tally(leave[first])
        if (importance * change * (2 * excess + change)).sum() < 0:
            present += change
            chosen[place[first]] = other[second]
            step = min(step * SETTINGS.faster, max_tried / 4)
        else:
            step = max(step * SETTINGS.slower, 1.0)


def blended(
    model: Weights, measured: MeasuredPair, *, doubt: tuple[float, float] = (0.0, 0.0)
) -> Weights:
    """Counts `[levels, levels]` from the model's and measured ones, each cell by inverse variances.

    The total is the model's. The model's error is taken to have a variance in proportion to the
    cell, as counts have; the proportion is the excess of the squared differences over the noise
    (method of moments). A standard error of `doubt` is added: a share of the cell, and at most so
    many rows. A table whose sum is not clear of its noise changes nothing.
    """
    first, second = measured.columns
    measured_total = measured.counts.sum()
    if measured_total <= SETTINGS.clear * measured.sigma * math.sqrt(measured.counts.size):
        return model
    model = model if first < second else model.T
    total = model.sum()
    scale = total / measured_total
    noisy, sigma = measured.counts * scale, measured.sigma * scale
    beyond = float(((noisy - model) ** 2).sum()) - noisy.size * sigma**2
    variance = max(0.0, beyond) / total * model + np.minimum(doubt[0] * model, doubt[1]) ** 2
    mixed = np.maximum(model + (noisy - model) * variance / (variance + sigma**2), 0)
    mixed = mixed * total / mixed.sum() if mixed.any() else model
    return mixed if first < second else mixed.T


def with_margins(table: Weights, model: Weights) -> Weights:
    """`table` `[levels, levels]` with the margins of `model`, which all released tables made.

    Those of one noisy table are worse: without this, one release of RAND HIE in twelve had twice
    the others' distance of one-way tables.
    """
    total = float(model.sum())
    if total <= 0 or table.sum() <= 0:
        return table
    fitted: Weights = fitted_to_margins(
        table / table.sum(), model.sum(1) / total, model.sum(0) / total
    )
    return total * fitted


class _Cells:
    """The cells of the two-way tables of the pairs `needed`, and of others within the limits."""

    def __init__(
        self, sizes: Sequence[int], needed: Sequence[tuple[int, int]], rng: np.random.Generator
    ) -> None:
        wanted = {(min(pair), max(pair)) for pair in needed}
        every = itertools.combinations(range(len(sizes)), 2)
        others = [pair for pair in every if pair not in wanted]
        if len(others) > SETTINGS.max_pairs:
            some = rng.choice(len(others), SETTINGS.max_pairs, replace=False)
            others = [others[k] for k in some]
        cells = np.asarray([sizes[i] * sizes[j] for i, j in others], dtype=np.int64)
        order = rng.permutation(len(others))
        fits = np.cumsum(cells[order]) <= SETTINGS.max_cells
        pairs = sorted(wanted | {others[k] for k in order[fits]})
        self.sizes, self.place = tuple(sizes), {pair: k for k, pair in enumerate(pairs)}
        self.first, self.second = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
        self.width = np.asarray(sizes, dtype=np.int64)[self.second]
        lengths = np.asarray(sizes, dtype=np.int64)[self.first] * self.width
        self.offset = np.cumsum(lengths) - lengths
        self.total = int(lengths.sum())

    def sums(self, values: Weights, rows: Codes) -> npt.NDArray[np.float32]:
        """The sum of `values` `[cells]` over the cells that each row is in, `[rows]`."""
        few, out = values.astype(np.float32), np.zeros(len(rows), np.float32)
        for cells in self._of(rows):
            out += few.take(cells).sum(0)
        return out

    def tally(self, rows: Codes) -> Weights:
        """The number of rows in each cell, `[cells]`."""
        out = np.zeros(self.total)
        for cells in self._of(rows):
            first, last = cells.min(), cells.max() + 1
            out[first:last] += np.bincount((cells - first).ravel(), minlength=last - first)
        return out

    def _of(self, rows: Codes) -> Iterator[npt.NDArray[np.int64]]:
        """The cells that each row is in, `[some pairs, rows]`, until all pairs were."""
        wide = rows.T[: len(self.sizes)].astype(np.int64, order="C")
        step = max(1, SETTINGS.looked_up // len(rows))
        for begin in range(0, len(self.first), step):
            some = slice(begin, begin + step)
            cells = wide[self.first[some]]
            cells *= self.width[some, None]
            cells += wide[self.second[some]]
            cells += self.offset[some, None]
            yield cells

    def counts(self, rows: Codes, weights: Weights) -> Weights:
        """Sum of `weights` in each cell, `[cells]`, one table at a time."""
        out = np.zeros(self.total)
        tables = zip(self.first, self.second, self.width, self.offset, strict=True)
        for first, second, width, offset in tables:
            cells = rows[:, first].astype(np.int64) * width + rows[:, second]
            counted = np.bincount(cells, weights=weights)
            out[offset : offset + len(counted)] = counted
        return out
