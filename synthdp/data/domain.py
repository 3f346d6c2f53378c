"""The public domain of a table: for each column a finite list of levels, built from the spec alone.

Every column, whatever its type, is described by `levels` states: categories, or spikes and bins of
a range, and one more state where values may be missing. Marginals, graph tests and the model only
ever see levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from synthdp.data.column_domain import MISSING_LABEL, ColumnDomain, FloatArray
from synthdp.data.kinds import column_kind
from synthdp.spec.model import Column, derived_of

__all__ = ["MISSING_LABEL", "ColumnDomain", "Domain", "FloatArray"]


@dataclass(frozen=True)
class Domain:
    """The columns of a table, in the spec's order.

    `derived` names the columns that are computed from them. A source may have these,
    but they are not read.
    """

    columns: tuple[ColumnDomain, ...]
    derived: tuple[str, ...] = ()

    @classmethod
    def from_spec(cls, columns: Mapping[str, Column]) -> Domain:
        """What is read and modelled, from the spec's `columns` section.

        >>> from synthdp.spec.model import Integer
        >>> age = Integer(type="integer", lower=0, upper=99, bins=4, missing=True)
        >>> Domain.from_spec({"age": age}).columns[0].labels
        ('0 to 24', '25 to 49', '50 to 74', '75 to 99', 'missing')
        """
        derived = tuple(name for name, column in columns.items() if derived_of(column) is not None)
        read = {name: column for name, column in columns.items() if name not in derived}
        return replace(cls.written(read), derived=derived)

    @classmethod
    def written(cls, columns: Mapping[str, Column]) -> Domain:
        """What is written, derived columns too."""
        return cls(tuple(_column(name, column) for name, column in columns.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns whose values are numbers, and no dates."""
        return tuple(c.name for c in self.columns if c.ranged and c.step_seconds is None)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(c.levels for c in self.columns)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        return self._index[name]

    def __getitem__(self, name: str) -> ColumnDomain:
        return self.columns[self._index[name]]

    def __len__(self) -> int:
        return len(self.columns)

    def cells(self, names: Iterable[str]) -> int:
        """Number of cells of the table over `names`; exact, however large."""
        return math.prod(self[n].levels for n in names)


def _column(name: str, column: Column) -> ColumnDomain:
    levels = column_kind(column).levels(name, column)
    sources = tuple(getattr(column, "values", {}).items())
    return replace(levels, missing_codes=column.missing_codes, sources=sources)


def level_features(column: ColumnDomain) -> FloatArray:
    """Features of the levels, `[levels, features]`; rows have norm 1.

    They say how alike levels are. Levels of an ordered column that lie side by side behave alike:
    each level's features are the dyadic intervals that it lies in, so that what is learned for a
    level is in part learned for all levels near it, which a model needs that sees little of a level
    through the noise. Spikes and the missing state stand apart from the bins. Categories stand
    alone, and so do more than 256 levels, so that their matrix is the identity.
    """
    spikes, body = len(column.spikes), column.levels - column.missing
    if not column.ordered or not 2 < body - spikes <= 256:
        return np.eye(column.levels)
    alone = [*range(spikes), *range(body, column.levels)]
    members = [*([level] for level in alone), *_halves(list(range(spikes, body)), whole=spikes > 0)]
    features = np.zeros((column.levels, len(members)))
    for k, levels in enumerate(members):
        features[levels, k] = 1
    return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))


def _halves(levels: list[int], *, whole: bool = True) -> list[list[int]]:
    """`levels`, its two halves, and so on; without `whole`, not `levels` itself: all say nothing,
    unless there are spikes that they are set apart from.
    """
    middle = (len(levels) + 1) // 2
    parts = [] if len(levels) == 1 else [*_halves(levels[:middle]), *_halves(levels[middle:])]
    return [levels, *parts] if whole else parts
