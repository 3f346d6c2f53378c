"""A table of rows, as mechanisms get it. Rows come from `source`, sealed; only the kernel opens
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.mechanisms.adding import Side, Summands, added
from synthdp.privacy.mechanisms.counting import Columns, count_tables, cut

if TYPE_CHECKING:  # a plan needs the mechanisms and no rows
    import pandas as pd

    from synthdp.privacy.noise import Randomness


@dataclass(frozen=True, repr=False)
class Table:
    """Rows inside the seal: levels `[rows, columns]`, cleaned values, which rows are held out,
    misfits by column, and the number of each row's unit `[rows]`, None where a row is a unit.
    """

    codes: Codes
    frame: pd.DataFrame
    held_out: npt.NDArray[np.bool_]
    misfits: dict[str, dict[str, int]]
    units: npt.NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return "<Table>"  # tracebacks and debuggers print what repr says

    @property
    def fit_codes(self) -> Codes:
        """Levels of the rows that mechanisms see."""
        return self.codes[~self.held_out] if self.held_out.any() else self.codes

    @property
    def fit_units(self) -> npt.NDArray[np.int64] | None:
        """The number of the unit of each of `fit_codes`; None where a row is a unit."""
        return None if self.units is None else self.units[~self.held_out]

    def sampled_codes(self, rate: float, randomness: Randomness) -> Codes:
        """Levels of a secret sample of the rows that mechanisms see: each unit is in or out as a
        whole, by one coin of chance `rate`. Who is in it, and how many, must not get out.
        """
        codes, units = self.fit_codes, self.fit_units
        if units is None:
            return codes[randomness.secret_sample(len(codes), rate=rate)]
        different, unit = np.unique(units, return_inverse=True)
        joined = np.zeros(len(different), dtype=bool)
        joined[randomness.secret_sample(len(different), rate=rate)] = True
        return codes[joined[unit]]

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[npt.NDArray[np.int64]]:
        """Exact counts of the rows that mechanisms see, one array for each of `tables`.

        Each has an axis for each of its columns, of that column's groups of levels. Exact counts
        never leave the kernel. A table whose rows lie elsewhere counts them there
        (`privacy.readers.engines`).
        """
        codes = self.fit_codes
        return count_tables(
            map(groups.of, cut(codes)) if groups.starts else codes, groups.coarse, tables
        )

    def judged(self, most: int) -> Table:
        """What a steward's evaluation looks at: this table; of one whose rows lie in an engine a
        random sample of at most `most` of them.
        """
        return self

    def add_up(self, what: Summands, side: Side = "fit") -> npt.NDArray[np.int64]:
        """Exact sum `[what.size]` over the rows of a side. It never leaves the kernel but for the
        steward.
        """
        chosen = self.held_out if side == "held out" else ~self.held_out
        rows = None if side == "all" else np.flatnonzero(chosen)
        return added(what, self.frame, self.codes, rows)
