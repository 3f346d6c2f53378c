"""Sums over rows of vectors of whole numbers: what moments and the sums of estimands are made of.

What a row adds is computed of its own levels and numbers alone, and is whole. So the sum over a
table is that over its blocks, whichever they are and in whatever order: in memory, or where an
engine has the rows (`privacy.readers.engines`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes

if TYPE_CHECKING:  # a plan adds up nothing
    import pandas as pd

Integers = npt.NDArray[np.int64]
Side = Literal["fit", "held out", "all"]
"""Of the rows: those that mechanisms see, those that are held out from them, or both."""

CHUNK_ROWS = 16_384  # a block's numbers stay in memory


class Summands(Protocol):
    """What each row adds."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns whose levels or numbers it reads."""
        ...

    @property
    def size(self) -> int:
        """Length of the sum."""
        ...

    def block(self, frame: pd.DataFrame, codes: Codes) -> Integers:
        """What some rows add together, `[size]`, at most `CHUNK_ROWS` of them.

        `frame` has the cleaned values of ranges by column, and `codes` levels `[rows, columns of
        the domain]`; those of columns that are not read may be any.
        """
        ...


def added(
    what: Summands, frame: pd.DataFrame, codes: Codes, rows: npt.NDArray[np.intp] | None = None
) -> Integers:
    """The sum over the rows at the positions `rows` (default: all), `[size]`, without noise: inside
    the kernel only.
    """
    chosen = np.arange(len(codes)) if rows is None else rows
    total = np.zeros(what.size, dtype=np.int64)
    for start in range(0, len(chosen), CHUNK_ROWS):
        block = chosen[start : start + CHUNK_ROWS]
        total += what.block(frame.iloc[block], codes[block])
    return total
