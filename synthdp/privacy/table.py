"""A table of rows, as mechanisms get it. Rows come from `source`, sealed; only the kernel opens
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes

if TYPE_CHECKING:  # a plan needs the mechanisms and no rows
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Table:
    """Rows inside the seal: levels `[rows, columns]`, cleaned values, which rows are held out,
    misfits by column.
    """

    codes: Codes
    frame: pd.DataFrame
    held_out: npt.NDArray[np.bool_]
    misfits: dict[str, dict[str, int]]

    def __repr__(self) -> str:
        return "<Table>"  # tracebacks and debuggers print what repr says

    @property
    def fit_codes(self) -> Codes:
        """Levels of the rows that mechanisms see."""
        return self.codes[~self.held_out] if self.held_out.any() else self.codes
