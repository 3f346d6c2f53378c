"""Features and targets for learners, built from a table's values by the public domain alone.

Nothing is fitted to rows. A category becomes indicators. A range is scaled by its public bounds. A
missing value and each spike of a range get an indicator. Values outside the domain are clamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, encode_column, to_numbers

if TYPE_CHECKING:
    import pandas as pd

MAX_INDICATORS = 256  # of one column; further levels share them, so that memory stays bounded

FloatMatrix = npt.NDArray[np.float32]
IntVector = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Features:
    """One table in two encodings.

    `wide` has indicators, shape `[rows, indicators]`, for linear and distance models. `narrow` has
    one number for each column, shape `[rows, columns]`, for trees: scaled values (NaN where
    missing), or positions of categories.
    """

    wide: FloatMatrix
    narrow: FloatMatrix

    def __len__(self) -> int:
        return len(self.narrow)

    def take(self, rows: npt.NDArray[np.integer]) -> Features:
        """The given rows, in that order."""
        return Features(self.wide[rows], self.narrow[rows])


def build_features(
    domain: Domain, frame: pd.DataFrame, names: Sequence[str]
) -> dict[str, Features]:
    """Features of each column of `names`, for every row of `frame`.

    They are built once and joined for each target.
    """
    return {name: Features(*_column(domain[name], frame[name])) for name in names}


def join(parts: Sequence[Features]) -> Features:
    """Features of several columns (at least one) side by side."""
    return Features(np.hstack([p.wide for p in parts]), np.hstack([p.narrow for p in parts]))


def _column(column: ColumnDomain, values: pd.Series[object]) -> tuple[FloatMatrix, FloatMatrix]:
    """The `wide` and the `narrow` features of one column."""
    if not column.ranged:
        codes = encode_column(column, values).codes
        return _indicators(codes, column.levels), codes.astype(np.float32)[:, None]
    numbers = clamped_numbers(column, values)
    scaled = ((numbers - column.lower) / (column.upper - column.lower)).astype(np.float32)
    absent = np.isnan(numbers)
    blocks = [np.where(absent, np.float32(0.5), scaled)[:, None]]
    blocks += [(numbers == spike).astype(np.float32)[:, None] for spike in column.spikes]
    if column.missing:
        blocks.append(absent.astype(np.float32)[:, None])
    return np.hstack(blocks), scaled[:, None]


def _indicators(codes: Codes, levels: int) -> FloatMatrix:
    """One indicator for each level; of two levels the second one."""
    if levels == 2:  # the second indicator would be the complement of the first
        return codes.astype(np.float32)[:, None]
    return np.eye(min(levels, MAX_INDICATORS), dtype=np.float32)[codes % MAX_INDICATORS]


def category_mask(
    domain: Domain, names: Sequence[str], *, most_levels: int
) -> npt.NDArray[np.bool_]:
    """Which of `narrow`'s columns are unordered categories, shape `[columns]`.

    A column counts if it has more than 2 and at most `most_levels` levels.
    """
    return np.asarray(
        [not domain[n].ordered and 2 < domain[n].levels <= most_levels for n in names]
    )


def clamped_numbers(column: ColumnDomain, values: pd.Series[object]) -> FloatVector:
    """A ranged column on its numeric scale, clamped to its public bounds, shape `[rows]`.

    It is NaN where the value is missing.
    """
    return np.clip(to_numbers(column, values), column.lower, column.upper)


def target_levels(column: ColumnDomain, values: pd.Series[object]) -> IntVector:
    """A discrete column's levels, shape `[rows]`; missing is a class."""
    return encode_column(column, values).codes.astype(np.int64)
