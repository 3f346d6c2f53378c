"""What the tables of a bundle say of a question's columns: each margin, with its noise.

Every table counts the same rows, and each is used once: by its margin over those columns of the
question that it has. Margins over the same columns are pooled by inverse variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.prediction.groups import groups_of
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Axes = frozenset[int]
"""Positions of columns in a question."""

ROUNDING = 1 / 12
"""Variance that rounding to whole numbers adds to a Gaussian, at most about."""


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


def measured(
    tables: Sequence[NoisyTable], domain: Domain, names: Sequence[str], *, grouped: bool
) -> Measured:
    """The margins of `tables` over the columns `names`.

    With `grouped`, columns that some table counts on groups of levels have these groups.
    Otherwise all have their levels, and a table on groups tells nothing of its grouped columns.

    Raises:
        ValueError: two tables group a column in two ways.
    """
    groups = groups_of(tables, domain)
    chosen = groups if grouped else LevelGroups(domain, {})
    columns = tuple(chosen.coarse[name] for name in names)
    parts: dict[Axes, list[Margin]] = {}
    for table in tables:
        axes = frozenset(
            i
            for i, name in enumerate(names)
            if name in table.columns and (grouped or name not in table.starts)
        )
        parts.setdefault(axes, []).append(_margin(table, chosen, names, axes))
    return Measured(columns, {axes: _pooled(found) for axes, found in parts.items()})


def _margin(table: NoisyTable, groups: LevelGroups, names: Sequence[str], axes: Axes) -> Margin:
    """The margin of one table over some columns of a question."""
    counts = table.counts
    variances = np.full(counts.shape, table.sigma**2 + ROUNDING)
    for axis, name in enumerate(table.columns):
        if name in names and names.index(name) in axes and name not in table.starts:
            counts, variances = (groups.sums(name, values, axis) for values in (counts, variances))
    kept = [i for i in range(len(names)) if i in axes]
    rest = tuple(
        axis
        for axis, name in enumerate(table.columns)
        if name not in names or names.index(name) not in axes
    )
    left = [name for name in table.columns if name in {names[i] for i in kept}]
    order = [left.index(names[i]) for i in kept]
    summed = [values.sum(axis=rest).transpose(order) for values in (counts, variances)]
    shape = iter(summed[0].shape)
    full = [next(shape) if i in axes else 1 for i in range(len(names))]
    return Margin(summed[0].reshape(full), summed[1].reshape(full))


def _pooled(margins: Sequence[Margin]) -> Margin:
    """The mean of least variance."""
    precision = np.sum([1 / m.variances for m in margins], axis=0)
    counts = np.sum([m.counts / m.variances for m in margins], axis=0) / precision
    spread = math.fsum(float(((m.counts - counts) ** 2 / m.variances).sum()) for m in margins)
    return Margin(counts, 1 / precision, spread, (len(margins) - 1) * counts.size)
