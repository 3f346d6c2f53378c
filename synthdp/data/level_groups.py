"""Groups of neighbouring levels: a coarser domain, on which pairs of columns are counted.

A fine column is worth its price alone: noise on a level is no larger because there are many. A
table of two fine columns is not, so that pairs are counted on groups of levels. Groups must come
from public or released facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain

Starts = tuple[int, ...]  # the first level of each group of a column, ascending from 0
Levels = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LevelGroups:
    """Groups of the levels of a domain's columns.

    `starts` has an entry for each column whose levels are grouped. Only neighbouring bins share a
    group: a spike and the missing level are groups of their own.

    >>> from synthdp.spec.model import Integer
    >>> age = Integer(type="integer", lower=0, upper=99, bins=4, missing=True)
    >>> groups = LevelGroups(Domain.from_spec({"age": age}), {"age": (0, 1, 4)})
    >>> groups.coarse["age"].labels
    ('0 to 24', '25 to 99', 'missing')
    >>> groups.of(np.array([[0], [2], [3], [4]])).ravel().tolist()
    [0, 1, 1, 2]

    Raises:
        ValueError: these are no such groups.
    """

    domain: Domain
    starts: Mapping[str, Starts]

    def __post_init__(self) -> None:
        for name, starts in self.starts.items():
            if name not in self.domain.names or not _are_groups(self.domain[name], starts):
                raise ValueError(f"no groups of levels of column {name!r}")

    @cached_property
    def coarse(self) -> Domain:
        if not self.starts:
            return self.domain
        columns = (
            _merged(c, self.starts[c.name]) if c.name in self.starts else c
            for c in self.domain.columns
        )
        return replace(self.domain, columns=tuple(columns))

    def group_of(self, name: str) -> npt.NDArray[np.intp]:
        """The group of each level of a column, `[levels]`."""
        levels = np.arange(self.domain[name].levels)
        if name not in self.starts:
            return levels
        return np.searchsorted(self.starts[name], levels, side="right") - 1

    def of(self, codes: npt.NDArray[np.integer]) -> Levels:
        """The groups of levels `[rows, columns]`, alike."""
        groups = codes.astype(np.uint16)
        for name in self.starts:
            place = self.domain.index(name)
            groups[:, place] = self.group_of(name)[codes[:, place]]
        return groups

    def sums(self, name: str, values: Floats, axis: int = 0) -> Floats:
        """Sums of `values`, whose `axis` has the levels of a column, over its groups."""
        if name not in self.starts:
            return values
        return np.asarray(np.add.reduceat(values, self.starts[name], axis=axis))

    def drawn(
        self, groups: Levels, margins: Sequence[Floats], *, rng: np.random.Generator
    ) -> Levels:
        """Levels `[rows, columns]` inside the `groups` `[rows, columns]`.

        A level is drawn by the column's probabilities in `margins`, `[levels]` each. The rows of a
        group are stratified: each level has its share of them, up to one row.
        """
        codes = groups.copy()
        for name in self.starts:
            place = self.domain.index(name)
            codes[:, place] = self.inside(name, groups[:, place], margins[place], rng)
        return codes

    def inside(
        self,
        name: str,
        groups: npt.NDArray[np.integer],
        margin: Floats,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.intp]:
        """A level of each row's group, `[rows]`, drawn by the column's probabilities `margin`."""
        starts = np.asarray(self.starts[name])
        count = np.diff(np.append(starts, len(margin)))
        raised = margin + 1e-12  # a group whose levels have no mass is drawn from evenly
        ends = np.cumsum(raised)
        before = np.append(0.0, ends)[starts]
        mass = np.append(0.0, ends)[starts + count] - before
        order = rng.permutation(len(groups))
        order = order[np.argsort(groups[order], kind="stable")]
        rows = np.bincount(groups, minlength=len(starts))
        rank = np.empty(len(groups), np.intp)
        rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(rows) - rows, rows)
        uniform = (rank + rng.random(len(groups))) / rows[groups]
        levels = np.searchsorted(ends, before[groups] + uniform * mass[groups], side="right")
        return np.asarray(levels.clip(starts[groups], (starts + count - 1)[groups]))


def _are_groups(column: ColumnDomain, starts: Starts) -> bool:
    """Whether `starts` begins at 0 and ascends, and only bins share a group."""
    alone = {*range(len(column.spikes) + 1), *([column.levels - 1] if column.missing else [])}
    return (
        column.ranged
        and all(type(start) is int for start in starts)
        and starts[:1] == (0,)
        and all(a < b for a, b in pairwise(starts))
        and starts[-1] < column.levels
        and alone <= set(starts)
    )


def _merged(column: ColumnDomain, starts: Starts) -> ColumnDomain:
    """The column with a bin for each group of bins."""
    spikes, bins = len(column.spikes), len(column.edges)
    inner = [start - spikes for start in starts if spikes <= start < spikes + bins]
    ends = [*inner[1:], bins]
    labels = [
        _label(column.labels[spikes + a : spikes + b]) for a, b in zip(inner, ends, strict=True)
    ]
    return replace(
        column,
        labels=(*column.labels[:spikes], *labels, *column.labels[spikes + bins :]),
        edges=tuple(column.edges[start] for start in inner),
        grouped=True,
    )


def _label(labels: Sequence[str]) -> str:
    """One label for those of neighbouring bins: `25 to 99`, `[0, 2)`."""
    first, last = labels[0], labels[-1]
    if first == last:
        return first
    if first.startswith("["):
        return f"{first.split(', ')[0]}, {last.split(', ')[1]}"
    return f"{first.split(' to ')[0]} to {last.split(' to ')[-1]}"
