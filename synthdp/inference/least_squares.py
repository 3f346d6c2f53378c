"""Weighted least squares over all margins: unbiased, linear, and of known noise.

Margins y_S = A_S N + noise over axes S of the true counts N, A_S summing over the other axes, have
normal equations M N = sum_S w_S A_S' y_S that are solved in closed form: M = sum_T lambda_T P_T,
with P_T the projection on the interaction of the axes T (mean over the other axes, deviation from
the mean along those of T), and lambda_T the sum, over S that contain T, of w_S times the sizes of
the axes outside S. A functional c'N is determined if and only if P_T c = 0 wherever lambda_T = 0
[derived in docs/inference.md]. Nothing is clipped or smoothed: that would bias, and an interval
could not say by how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import chdtrc

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import OutputError
from synthdp.graph.level_groups import groups_of
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Axes = frozenset[int]
"""Positions of columns in a question."""


@dataclass(frozen=True)
class InferenceSettings:
    """When something can be said, and how much is asked at once.

    `certain`: deviations of its noise that a denominator must be above zero, `certain_arm`: those
    of an arm in a stratum of an effect, and `fewest` rows that either must have: below, sums are
    not normal; `clear`: deviations of a draw that each block of a law is above zero at least (a
    Gaussian that is cut there moves its mean by .0044 of its deviation); `caution`: deviations of
    the noise by which the shares of an outcome of two values are taken to be less extreme;
    `left_out`: most rows, as a share, in strata that are left out of an effect because an arm has
    next to none.

    `max_cells`: of a question's columns together; `max_points`: combinations of values at which a
    condition is tried; `max_groups`: of `by`; `max_columns`: of copies, as sets of them are listed;
    `max_levels`: of a treatment; `max_shown`: levels in a sentence; `max_sets`: adjustment sets of
    one effect, one for each reading; `max_open`: links without a direction that an effect may rest
    on, 256 readings.
    """

    certain: float = 4.0
    certain_arm: float = 5.0
    fewest: float = 20.0
    clear: float = 3.0
    caution: float = 2.0
    left_out: float = 0.05
    max_cells: int = 100_000
    max_points: int = 4_000_000
    max_groups: int = 128
    max_columns: int = 10
    max_levels: int = 32
    max_shown: int = 4
    max_sets: int = 6
    max_open: int = 8


SETTINGS = InferenceSettings()


@dataclass(frozen=True)
class Margin:
    """Noisy counts and the variance of the noise in each, one axis per column (1 where summed).

    `statistic` is the chi-square of the tables that were pooled, around their mean, on `degrees`
    degrees of freedom.
    """

    counts: Floats
    variances: Floats
    statistic: float = 0.0
    degrees: int = 0


@dataclass(frozen=True)
class Measured:
    """The margins over a question's `columns`, by the axes that they have.

    `columns` are on levels, or on the groups of levels that pairs were counted on. The noise of
    different margins, and of different cells, is independent.
    """

    columns: tuple[ColumnDomain, ...]
    margins: dict[Axes, Margin]

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(column.levels for column in self.columns)

    @property
    def whole(self) -> bool:
        """Whether one table has all of the columns."""
        return frozenset(range(len(self.columns))) in self.margins

    @property
    def alike(self) -> bool:
        """Whether the variance of each margin is the same in all of its cells."""
        every = (m.variances for m in self.margins.values())
        return all(np.ptp(variances) <= 1e-9 * variances.mean() for variances in every)


def measured(
    tables: Sequence[NoisyTable],
    domain: Domain,
    names: Sequence[str],
    *,
    grouped: bool,
    groups: LevelGroups | None = None,
) -> Measured:
    """The margins of `tables` over the columns `names`, each with its noise.

    Every table counts the same rows, and each is used once: by its margin over those of the columns
    that it has. Margins over the same columns are pooled by inverse variance. With `grouped`,
    columns that some table counts on groups of levels have these groups, or the given `groups`.
    Otherwise all have their levels, and a table on groups tells nothing of its grouped columns.

    Raises:
        ValueError: two tables group a column in two ways.
    """
    groups = groups_of(tables, domain) if groups is None else groups
    chosen = groups if grouped else LevelGroups(domain, {})
    columns = tuple(chosen.coarse[name] for name in names)
    parts: dict[Axes, list[Margin]] = {}
    for table in tables:
        told = set(table.columns) - (set() if grouped else table.starts.keys())
        axes = frozenset(i for i, name in enumerate(names) if name in told)
        parts.setdefault(axes, []).append(_margin(table, chosen, names, axes))
    return Measured(columns, {axes: _pooled(found) for axes, found in parts.items()})


def _margin(table: NoisyTable, groups: LevelGroups, names: Sequence[str], axes: Axes) -> Margin:
    counts, kept = table.counts, [names[i] for i in sorted(axes)]
    # Rounding to whole numbers adds a variance of 1 / 12 to a Gaussian, at most about.
    variances = np.full(counts.shape, table.sigma**2 + 1 / 12)
    for axis, name in enumerate(table.columns):
        if name in kept and name not in table.starts:
            counts, variances = (groups.sums(name, values, axis) for values in (counts, variances))
    rest = tuple(axis for axis, name in enumerate(table.columns) if name not in kept)
    left = [name for name in table.columns if name in kept]
    order = list(map(left.index, kept))
    new = tuple(i for i in range(len(names)) if i not in axes)
    counts, variances = (
        np.expand_dims(values.sum(axis=rest).transpose(order), new)
        for values in (counts, variances)
    )
    return Margin(counts, variances)


def _pooled(margins: Sequence[Margin]) -> Margin:
    precision = np.sum([1 / m.variances for m in margins], axis=0)
    counts = np.sum([m.counts / m.variances for m in margins], axis=0) / precision
    spread = math.fsum(float(((m.counts - counts) ** 2 / m.variances).sum()) for m in margins)
    return Margin(counts, 1 / precision, spread, (len(margins) - 1) * counts.size)


@dataclass(frozen=True)
class Functionals:
    """Estimates `[k]` of k linear functionals of the counts, and their covariance `[k, k]`.

    The covariance is that of the tables' noise alone; the counts are fixed.
    """

    values: Floats
    covariance: Floats


@dataclass(frozen=True)
class Agreement:
    """How well the margins of different tables agree: a chi-square statistic of the noise."""

    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """Probability of a statistic at least as large, if every table counts the same rows."""
        return float(chdtrc(self.degrees, self.statistic))

    def to_json(self) -> dict[str, float]:
        return {"chi_square": self.statistic, "degrees": self.degrees, "p": self.p}


@dataclass(frozen=True)
class LeastSquares:
    """The least-squares estimator of a question's counts."""

    measured: Measured

    @cached_property
    def weights(self) -> dict[Axes, float]:
        """One weight for each margin: the inverse of its mean variance.

        Where the variance differs between the cells of a margin (sums over groups of levels), the
        estimator is unbiased still, and `functionals` computes its true covariance.
        """
        return {axes: 1 / float(m.variances.mean()) for axes, m in self.measured.margins.items()}

    @cached_property
    def eigenvalues(self) -> dict[Axes, float]:
        """lambda_T of each set of axes T."""
        sizes = dict(enumerate(self.measured.shape))
        every = range(len(sizes) + 1)
        return {
            t: math.fsum(
                weight * math.prod(size for i, size in sizes.items() if i not in axes)
                for axes, weight in self.weights.items()
                if t <= axes
            )
            for t in map(frozenset, chain.from_iterable(combinations(sizes, k) for k in every))
        }

    def missing(self, functionals: Floats) -> list[Axes]:
        """Interactions that `functionals` `[k, *cells]` need and no table has; empty if none."""
        scale = np.sqrt((functionals**2).sum())
        return [
            axes
            for axes, part in _interactions(functionals, len(self.measured.shape))
            if not self.eigenvalues[axes]
            and np.sqrt((part**2).sum()) * math.sqrt(functionals[0].size / part[0].size)
            > 1e-9 * scale  # rounding
        ]

    def solved(self, right: Floats) -> Floats:
        """The solution of least norm of M x = `right`, `[k, *cells]` both."""
        found = np.zeros(right.shape)
        for axes, part in _interactions(right, len(self.measured.shape)):
            if self.eigenvalues[axes]:
                found += part / self.eigenvalues[axes]
        return found

    @cached_property
    def counts(self) -> Floats:
        """Estimated rows of each cell; some may be negative. Unbiased where one table is whole."""
        right = np.zeros(self.measured.shape)
        for axes, margin in self.measured.margins.items():
            right += self.weights[axes] * margin.counts
        counts: Floats = self.solved(right[None])[0]
        return counts

    def functionals(self, functionals: Floats) -> Functionals:
        """Estimates of functionals `[k, *cells]`, none of which has an interaction `missing`."""
        k = len(functionals)
        values, covariance = np.zeros(k), np.zeros((k, k))
        for a, margin in self._loadings(functionals):
            values += a @ margin.counts.ravel()
            covariance += (a * margin.variances.ravel()) @ a.T
        return Functionals(values, covariance)

    def each(self, functionals: Floats) -> tuple[Floats, Floats]:
        """As `functionals`, without covariances: estimates and their variances, `[k]` both."""
        values, variances = np.zeros(len(functionals)), np.zeros(len(functionals))
        for a, margin in self._loadings(functionals):
            values += a @ margin.counts.ravel()
            variances += a**2 @ margin.variances.ravel()
        return values, variances

    def _loadings(self, functionals: Floats) -> Iterator[tuple[Floats, Margin]]:
        """Each margin with what functionals make of its cells, `[k, cells of the margin]`.

        c'N is estimated by sum_S a_S'y_S with a_S = w_S A_S M^+ c.
        """
        solved = self.solved(functionals)
        for axes, margin in self.measured.margins.items():
            others = tuple(i + 1 for i in range(len(self.measured.shape)) if i not in axes)
            sums = solved.sum(axis=others, keepdims=True)
            yield self.weights[axes] * sums.reshape(len(functionals), -1), margin

    def agreement(self) -> Agreement | None:
        """Whether the tables agree on what they share, within their noise.

        r'V^-1 r of all residuals is chi-square with as many degrees of freedom as there are cells
        of margins beyond the rank of M. Where the variance differs between the cells of a margin
        the fit is not the best, and only tables over the same columns are compared. None where
        nothing was counted twice.
        """
        margins = self.measured.margins.values()
        statistic = math.fsum(m.statistic for m in margins)
        degrees = sum(m.degrees for m in margins)
        if self.measured.alike:
            sizes, left = self.measured.shape, 0.0
            for axes, margin in self.measured.margins.items():
                residual = margin.counts - summed(self.counts, axes)
                left += float((residual**2 / margin.variances).sum())
            statistic += left
            degrees += sum(m.counts.size for m in margins)
            degrees -= sum(
                math.prod(sizes[i] - 1 for i in t) for t, value in self.eigenvalues.items() if value
            )
        return Agreement(statistic, degrees) if degrees else None


def _interactions(tables: Floats, count: int) -> Iterator[tuple[Axes, Floats]]:
    """P_T of tables `[k, *cells]` for every set of axes T; axes outside T have length 1."""
    parts: list[tuple[Axes, Floats]] = [(frozenset(), tables)]
    for axis in range(count):
        following: list[tuple[Axes, Floats]] = []
        for axes, part in parts:
            mean = part.mean(axis=axis + 1, keepdims=True)
            following += [(axes, mean), (axes | {axis}, part - mean)]
        parts = following
    yield from parts


# --- blocks ---
#
# Which levels a margin tells apart, and the law that meets the sums of their blocks. A law has no
# negative cell, and noise knows no such bound: to cut the counts of rare cells at zero would lift
# what they add up to. So levels are put into groups until each combination of groups, a block, is
# well above zero. A drawn law has the drawn sums of blocks; how a block's rows fall on its cells is
# the same in all draws, up to what other margins say, and is not said to be known. Groups are of
# whole levels: were single cells put together, the sums of their row and column would still tell
# them.


Labels = npt.NDArray[np.intp]
"""The group of each level, `[levels]`."""


@dataclass(frozen=True)
class Blocks:
    """The margin over some of `columns` columns, on the `groups` of their levels, by axis."""

    groups: Mapping[int, Labels]
    columns: int

    @property
    def sizes(self) -> dict[int, int]:
        """Groups of each axis."""
        return {axis: int(labels.max()) + 1 for axis, labels in self.groups.items()}

    @property
    def count(self) -> int:
        return math.prod(self.sizes.values())

    @cached_property
    def labels(self) -> Labels:
        """The block of each cell of the margin, one axis per column (1 where summed)."""
        every = range(self.columns)
        wide = (
            g.reshape([-1 if i == axis else 1 for i in every]) for axis, g in self.groups.items()
        )
        sizes = [*self.sizes.values()]
        return np.ravel_multi_index(tuple(np.broadcast_arrays(*wide)), sizes)

    def sums(self, margin: Floats) -> Floats:
        """Sums `[blocks]` of a margin over these axes, one axis per column."""
        return np.asarray(np.bincount(self.labels.ravel(), margin.ravel(), self.count), np.float64)

    def sums_of(self, cells: Floats) -> Floats:
        return self.sums(summed(cells, frozenset(self.groups)))

    def tells(self, other: Blocks) -> bool:
        """Whether these sums determine those of `other`."""
        return all(
            axis in self.groups
            and len(np.unique(self.groups[axis] * len(labels) + labels)) == self.sizes[axis]
            for axis, labels in other.groups.items()
        )


def find_blocks(
    known: Measured, counts: Floats, sets: Sequence[Axes], *, per_unit: int
) -> dict[Axes, Blocks]:
    """The blocks of each of the `sets` of axes, which hold their subsets; not those that tell
    nothing more than their subsets.

    `counts` are the least-squares estimates of all cells. A block is fine if its estimate is
    `clear` deviations above zero, of the noise and of the sampling of rows together. While one is
    not, its level that is lightest for its column is put together with another: a neighbour where
    order means something, else the lightest. No column is left with one group while another has
    three. Groups of a set are never finer than those of its subsets.
    """
    found: dict[Axes, Blocks] = {}
    for axes in sorted(sets, key=lambda s: (len(s), sorted(s))):
        groups = {
            i: joined([found[s].groups[i] for s in found if i in s < axes], known.shape[i])
            for i in sorted(axes)
        }
        start = Blocks(groups, len(known.shape))
        shape = [*start.sizes.values()]
        estimate = start.sums(summed(counts, axes)).reshape(shape)
        noise = start.sums(noise_of(known, axes)).reshape(shape)
        ordered = [known.columns[i].ordered for i in groups]
        merged = _merged(estimate, noise, ordered, per_unit)
        found[axes] = Blocks(
            {i: new[old] for (i, old), new in zip(groups.items(), merged, strict=True)},
            start.columns,
        )
    return {axes: blocks for axes, blocks in found.items() if min(blocks.sizes.values()) > 1}


def joined(groupings: Sequence[Labels], levels: int) -> Labels:
    """The finest groups that are not finer than any of some groupings of levels."""
    labels: Labels = np.arange(levels)
    for other in groupings:
        size = levels + int(other.max()) + 1
        links = coo_array((np.ones(levels), (labels, levels + other)), shape=(size, size))
        parts = connected_components(links, directed=False)[1][labels]
        labels = np.unique(parts, return_inverse=True)[1]
    return labels


def _merged(
    estimate: Floats, noise: Floats, ordered: Sequence[bool], per_unit: int
) -> list[Labels]:
    members = [[[level] for level in range(size)] for size in estimate.shape]
    while True:
        above = estimate - SETTINGS.clear * np.sqrt(noise + per_unit * estimate.clip(0))
        worst = np.unravel_index(int(above.argmin()), above.shape)
        weights = [
            estimate.sum(axis=tuple(j for j in range(estimate.ndim) if j != i))
            for i in range(estimate.ndim)
        ]
        free = [i for i, groups in enumerate(members) if len(groups) > 2]
        free = free or [i for i, groups in enumerate(members) if len(groups) > 1]
        if above[worst] >= 0 or not free:
            break
        axis = min(free, key=lambda i: float(weights[i][worst[i]] * len(members[i])))
        one, weight = int(worst[axis]), weights[axis]
        others = (
            [one - 1, one + 1] if ordered[axis] else [*range(one), *range(one + 1, len(weight))]
        )
        other = min((i for i in others if 0 <= i < len(weight)), key=lambda i: float(weight[i]))
        low, high = sorted((one, other))
        members[axis][low] += members[axis].pop(high)
        joint = np.delete(np.arange(estimate.shape[axis]), high)
        added = [np.take(values, high, axis) for values in (estimate, noise)]
        estimate, noise = (np.take(values, joint, axis) for values in (estimate, noise))
        for values, more in zip((estimate, noise), added, strict=True):
            np.moveaxis(values, axis, 0)[low] += more
    found = [np.zeros(sum(map(len, groups)), np.intp) for groups in members]
    for labels, groups in zip(found, members, strict=True):
        for label, levels in enumerate(groups):
            labels[levels] = label
    return found


def noise_of(known: Measured, axes: Axes) -> Floats:
    """Variance of the noise in the margin over `axes`, by the margin that tells it best.

    Least squares has at most this variance, where that of a margin's cells does not differ.
    """
    found = (summed(m.variances, axes) for s, m in known.margins.items() if axes <= s)
    return min(found, key=lambda variances: float(variances.mean()))


def summed(cells: Floats, axes: Axes) -> Floats:
    """The margin of cells over some axes; the others have length 1."""
    others = tuple(i for i in range(cells.ndim) if i not in axes)
    margin: Floats = cells.sum(axis=others, keepdims=True)
    return margin


def needed_blocks(blocks: Sequence[Blocks]) -> list[Blocks]:
    """The blocks that no others tell."""
    kept: list[Blocks] = []
    for one in sorted(blocks, key=lambda b: -len(b.groups)):
        if not any(other.tells(one) for other in kept):
            kept.append(one)
    return kept


def fitted(
    start: Floats, blocks: Sequence[Blocks], sums: Sequence[Floats], *, within: float
) -> Floats | None:
    """The law of these `sums` of blocks that is nearest to `start`; None if none is found.

    Of all laws with these sums it has the least relative entropy to `start` [Csiszár 1975]: each
    sweep scales the cells of each block to its sum, until no sum is off by more than `within`.
    """
    law: Floats = start / start.sum()
    for _ in range(1000):
        worst = 0.0
        for block, wanted in zip(blocks, sums, strict=True):
            found = block.sums_of(law)
            worst = max(worst, float(np.abs(found - wanted).max()))
            law = law * (wanted / np.maximum(found, 1e-300))[block.labels]
        if worst <= within:
            return law
    return None


# --- posterior ---
#
# Laws of some columns, drawn as the noisy tables leave them open.
#
# The estimates of least squares are linear in the tables. With fresh noise of the same law on each
# table they move by as much as they are off: so are the population's shares drawn, with the
# sampling of rows added. The law of maximum entropy with the drawn margins is what rows are drawn
# from [derived in docs/inference.md].


@dataclass(frozen=True)
class Posterior:
    """What noisy margins say of the law of their columns.

    `per_unit` is how many rows one person may have: the sampling has at most that many times the
    variance of independent rows.
    """

    solver: LeastSquares
    per_unit: int = 1

    @property
    def known(self) -> Measured:
        return self.solver.measured

    @cached_property
    def sets(self) -> list[Axes]:
        """The sets of axes whose margin is determined: those in one table together."""
        return [axes for axes, value in self.solver.eigenvalues.items() if value and axes]

    @cached_property
    def rows(self) -> float:
        """Rows that the tables count, as estimated."""
        return float(self.solver.counts.sum())

    @cached_property
    def blocks(self) -> dict[Axes, Blocks]:
        """The levels told apart, by set of axes; refused where none is seen above the noise."""
        variance = min(float(m.variances.sum()) for m in self.known.margins.values())
        known = self.rows >= SETTINGS.clear * math.sqrt(variance + max(self.rows, 0.0))
        found = dict[Axes, Blocks]()
        if known:
            found = find_blocks(self.known, self.solver.counts, self.sets, per_unit=self.per_unit)
        if not found:
            raise OutputError(
                f"the tables count about {max(self.rows, 0):,.0f} rows, give or take"
                f" {2 * math.sqrt(variance):,.0f}: too few to draw copies of",
                hint="ask for single figures with `synthdp answer`",
            )
        return found

    @cached_property
    def held(self) -> list[Blocks]:
        """The blocks whose sums a law is given."""
        return needed_blocks(list(self.blocks.values()))

    @cached_property
    def law(self) -> Floats:
        """The law of maximum entropy of the estimates, `[*cells]`; refused if there is none."""
        start = np.ones(self.known.shape)
        levels = list(map(np.arange, start.shape))
        every = [{i: levels[i] for i in sorted(axes)} for axes in self.sets]
        single = needed_blocks([Blocks(groups, start.ndim) for groups in every])
        raised = []
        for block in single:  # a cell has half a deviation of its noise at least
            least = np.sqrt(block.sums(noise_of(self.known, frozenset(block.groups)))) / 2
            raised.append(np.maximum(block.sums_of(self.solver.counts), least) / self.rows)
        for _ in range(5):  # where margins were raised they disagree
            for block, wanted in zip(single, raised, strict=True):
                start = start * (wanted / block.sums_of(start))[block.labels]
        found = self._fitted(start, self.solver.counts)
        if found is None:
            raise OutputError(
                "no law of these columns has the counts of all their noisy tables: the noise is too"
                " large for so many columns at once",
                hint="name fewer columns with --columns",
            )
        return found

    def drawn(self, rng: np.random.Generator) -> Floats | None:
        """A law `[*cells]`; None where the draw has a negative block, or no law has it."""
        margins = {}
        for axes, m in self.known.margins.items():
            noise = np.sqrt(m.variances) * rng.normal(size=m.counts.shape)
            margins[axes] = replace(m, counts=m.counts + noise)
        noisy = LeastSquares(replace(self.known, margins=margins)).counts
        rows = round(self.rows)
        seen = rng.multinomial(rows, self.law.ravel()).reshape(self.law.shape)
        return self._fitted(self.law, noisy + math.sqrt(self.per_unit) * (seen - rows * self.law))

    def _fitted(self, start: Floats, counts: Floats) -> Floats | None:
        total = float(counts.sum())
        sums = [block.sums_of(counts) / total for block in self.held]
        if total <= 0 or any((s <= 0).any() for s in sums):
            return None
        found = fitted(start, self.held, sums, within=0.1 / self.rows)  # a tenth of a row
        return None if found is None else found / found.sum()
