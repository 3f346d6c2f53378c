"""One column as a finite list of levels: what marginals, graph tests and the model see of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from synthdp.spec.model import COLUMN_TYPES, RESOLUTION_SECONDS

FloatArray = npt.NDArray[np.float64]

MISSING_LABEL = "missing"


@dataclass(frozen=True)
class ColumnDomain:
    """One column as levels `0 .. levels-1`.

    The order of levels is: the categories, or the spikes and then the bins; the missing level last.

    For ranges, `edges` are the left edges of the bins and `stop` the end of the last bin (exclusive
    for whole numbers, inclusive for real ones), on the column's numeric scale (datetimes: whole
    resolution steps since 1970-01-01). `grouped` says that bins are groups of narrower ones, chosen
    by how many rows they hold. `missing_codes` stand for a missing value in the source, and each
    first text of `sources` for the label beside it.
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
    grouped: bool = False
    missing_codes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

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
        return COLUMN_TYPES[self.type].ranged

    @property
    def ordered(self) -> bool:
        """Whether the order of the (non-missing) levels means something."""
        return COLUMN_TYPES[self.type].ordered

    @property
    def continuous(self) -> bool:
        """Whether values are real numbers."""
        return COLUMN_TYPES[self.type].continuous

    @property
    def truth(self) -> bool:
        """Whether the two levels are false and true."""
        return COLUMN_TYPES[self.type].truth

    @property
    def step_seconds(self) -> int | None:
        """Seconds of one step of a column of instants; None for all others."""
        if COLUMN_TYPES[self.type].operand != "date":
            return None
        return RESOLUTION_SECONDS[self.resolution]

    @property
    def relative_widths(self) -> FloatArray | None:
        """Widths of grouped bins, of mean 1, shape `[levels]`; None where none are grouped.

        A picture of them must show them: groups hold about as many rows as each other. Spikes and
        the missing level have the width 1.
        """
        if not self.grouped:
            return None
        bins = np.diff([*self.edges, self.stop])
        ones = (np.ones(len(self.spikes)), np.ones(int(self.missing)))
        return np.concatenate([ones[0], bins / bins.mean(), ones[1]])

    @cached_property
    def centres(self) -> FloatArray:
        """A representative number for each non-missing level, shape `[levels without missing]`.

        Spikes are themselves; bins are their middle; categories their position.
        """
        if not self.ranged:
            return np.arange(len(self.labels) - self.missing, dtype=np.float64)
        edges = np.asarray(self.edges + (self.stop,))
        last = 0.0 if self.continuous else 1.0
        return np.concatenate(
            [np.asarray(self.spikes, dtype=np.float64), (edges[:-1] + edges[1:] - last) / 2]
        )
