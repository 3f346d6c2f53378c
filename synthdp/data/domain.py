"""The public domain of a table: for each column a finite list of levels, built from the spec alone.

Every column, whatever its type, is described by `levels` states: categories, or spikes and bins of
a range, and one more state where values may be missing. Marginals, graph tests and the model only
ever see levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.spec.model import (
    RESOLUTION_SECONDS,
    Boolean,
    Categorical,
    Column,
    Datetime,
    Integer,
    Number,
    Ordinal,
    derived_of,
)

FloatArray = npt.NDArray[np.float64]

MISSING_LABEL = "missing"


@dataclass(frozen=True)
class ColumnDomain:
    """One column as levels `0 .. levels-1`, in this order: categories, or spikes then bins; missing
    last.

    For ranges, `edges` are the left edges of the bins and `stop` the end of the last bin (exclusive
    for whole numbers, inclusive for real ones), on the column's numeric scale (datetimes: whole
    resolution steps since 1970-01-01).
    """

    name: str
    type: str
    labels: tuple[str, ...]
    missing: bool
    spikes: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    stop: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    decimals: int = 0
    resolution: str = "day"

    @property
    def levels(self) -> int:
        """Number of states, the missing one included."""
        return len(self.labels)

    @property
    def missing_level(self) -> int | None:
        """The state that stands for a missing value."""
        return self.levels - 1 if self.missing else None

    @property
    def ranged(self) -> bool:
        """Whether values are numbers or instants rather than categories."""
        return self.type in ("integer", "number", "datetime")

    @property
    def ordered(self) -> bool:
        """Whether the order of the (non-missing) levels means something."""
        return self.ranged or self.type == "ordinal"

    @cached_property
    def centres(self) -> FloatArray:
        """A representative number for each non-missing level, shape `[levels without missing]`.

        Spikes are themselves; bins are their middle; categories their position.
        """
        if not self.ranged:
            return np.arange(len(self.labels) - self.missing, dtype=np.float64)
        edges = np.asarray(self.edges + (self.stop,))
        last = 0.0 if self.type == "number" else 1.0
        return np.concatenate(
            [np.asarray(self.spikes, dtype=np.float64), (edges[:-1] + edges[1:] - last) / 2]
        )


@dataclass(frozen=True)
class Domain:
    """The columns of a table, in the spec's order. `derived` names columns that are computed from
    them: a source may hold these, unread.
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
        return cls(
            tuple(_column(name, column) for name, column in columns.items() if name not in derived),
            derived,
        )

    @classmethod
    def written(cls, columns: Mapping[str, Column]) -> Domain:
        """What is written, derived columns too."""
        return cls(tuple(_column(name, column) for name, column in columns.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each column, in order."""
        return tuple(c.levels for c in self.columns)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Position of a column."""
        return self._index[name]

    def __getitem__(self, name: str) -> ColumnDomain:
        return self.columns[self._index[name]]

    def __len__(self) -> int:
        return len(self.columns)

    def cells(self, names: Sequence[str]) -> int:
        """Number of cells of the table over `names`."""
        return int(np.prod([self[n].levels for n in names], dtype=np.int64))


def _column(name: str, column: Column) -> ColumnDomain:
    tail = (MISSING_LABEL,) if column.missing else ()
    if isinstance(column, Categorical | Ordinal):
        return ColumnDomain(name, column.type, column.categories + tail, column.missing)
    if isinstance(column, Boolean):
        return ColumnDomain(name, column.type, (column.false, column.true) + tail, column.missing)
    return _ranged(name, column, tail)


def _ranged(name: str, column: Integer | Number | Datetime, tail: tuple[str, ...]) -> ColumnDomain:
    whole = not isinstance(column, Number)
    resolution = column.resolution if isinstance(column, Datetime) else "day"

    def number(value: object) -> float:
        if not isinstance(column, Datetime):
            return float(value)  # type: ignore[arg-type]
        seconds = np.datetime64(value, "s").astype(np.int64)  # type: ignore[call-overload]
        return float(seconds // RESOLUTION_SECONDS[resolution])

    lower, upper = number(column.lower), number(column.upper)
    spikes = tuple(sorted(number(s) for s in column.spikes))
    # A spike at an end of a whole-number range is not part of the bins beside it.
    start = lower + (1.0 if whole and lower in spikes else 0.0)
    stop = upper + (1.0 if whole else 0.0) - (1.0 if whole and upper in spikes else 0.0)
    if column.edges is not None:
        edges = tuple(number(e) for e in column.edges)
    else:
        edges = _equal_bins(start, stop, column.bins, whole=whole)
    labels = tuple(_text(column, s) for s in spikes) + _bin_labels(column, edges, stop)
    decimals = column.decimals if isinstance(column, Number) else 0
    return ColumnDomain(
        name,
        column.type,
        labels + tail,
        column.missing,
        spikes,
        edges,
        stop,
        lower,
        upper,
        decimals,
        resolution,
    )


def _equal_bins(start: float, stop: float, bins: int, *, whole: bool) -> tuple[float, ...]:
    if stop <= start:
        return ()
    grid = np.linspace(start, stop, bins + 1)
    if whole:
        grid = np.round(grid)
    return tuple(float(e) for e in np.unique(grid)[:-1])


def _bin_labels(
    column: Integer | Number | Datetime, edges: tuple[float, ...], stop: float
) -> tuple[str, ...]:
    ends = edges[1:] + (stop,)
    if isinstance(column, Number):
        closing = [")"] * (len(edges) - 1) + ["]"]
        return tuple(f"[{a:g}, {b:g}{c}" for a, b, c in zip(edges, ends, closing, strict=False))
    return tuple(
        _text(column, a) if b - a == 1 else f"{_text(column, a)} to {_text(column, b - 1)}"
        for a, b in zip(edges, ends, strict=True)
    )


def _text(column: Integer | Number | Datetime, value: float) -> str:
    if isinstance(column, Datetime):
        instant = np.datetime64(int(value) * RESOLUTION_SECONDS[column.resolution], "s")
        return str(np.datetime_as_string(instant, unit="D" if column.resolution == "day" else "s"))
    return f"{value:g}" if isinstance(column, Number) else str(int(value))
