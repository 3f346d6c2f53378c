"""Features and targets for classifiers, built from a table's values by the public domain alone.

Nothing is fitted to rows here: categories become indicators, ranges are scaled by their public
bounds, a missing value and each spike of a range get an indicator of their own. Values outside the
domain are clamped.
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

MAX_INDICATORS = (
    256  # of one column; a column with more levels folds them, so that memory stays bounded
)

FloatMatrix = npt.NDArray[np.float32]
IntVector = npt.NDArray[np.int64]
FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Features:
    """One table in the two forms that models like.

    `wide` has indicators, shape `[rows, indicators]`, for linear and distance models. `narrow` has
    one number
    a column, shape `[rows, columns]`, for trees: scaled values (NaN where missing), or positions of
    categories.
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
    """Features of each column of `names` by itself, for every row of `frame`: made once, and joined
    for each target.
    """
    return {name: Features(*_column(domain[name], frame[name])) for name in names}


def join(parts: Sequence[Features]) -> Features:
    """Features of several columns (at least one) side by side."""
    return Features(np.hstack([p.wide for p in parts]), np.hstack([p.narrow for p in parts]))


def _column(column: ColumnDomain, values: pd.Series[object]) -> tuple[FloatMatrix, FloatMatrix]:
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
    if levels == 2:  # the second indicator would say the same again
        return codes.astype(np.float32)[:, None]
    return np.eye(min(levels, MAX_INDICATORS), dtype=np.float32)[codes % MAX_INDICATORS]


def category_mask(
    domain: Domain, names: Sequence[str], *, most_levels: int
) -> npt.NDArray[np.bool_]:
    """Which of `narrow`'s columns are unordered categories with at most `most_levels` levels, shape
    `[columns]`.
    """
    return np.asarray(
        [not domain[n].ordered and 2 < domain[n].levels <= most_levels for n in names]
    )


def clamped_numbers(column: ColumnDomain, values: pd.Series[object]) -> FloatVector:
    """A ranged column on its numeric scale, inside its public bounds, shape `[rows]`; NaN where
    missing.
    """
    return np.clip(to_numbers(column, values), column.lower, column.upper)


def target_levels(column: ColumnDomain, values: pd.Series[object]) -> IntVector:
    """A discrete column's levels, shape `[rows]`; missing is a class of its own."""
    return encode_column(column, values).codes.astype(np.int64)
