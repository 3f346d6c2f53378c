"""Derived columns, computed from the other columns of a synthetic row when it is written.

This is post-processing, which costs no privacy. A result is rounded to the column's digits or
steps; one beyond the column's bounds is written as the bound. It is missing where it cannot be
computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import to_numbers
from synthdp.data.kinds import column_kind
from synthdp.spec.expressions.operands import calculation
from synthdp.spec.expressions.parsed import Calculation
from synthdp.spec.model import Column, derived_of

DAY = 86_400
"""Seconds."""
ROUNDING = 1e-9
"""Relative error of a value that was written as text."""

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Derived:
    """The derived columns of a spec, and the order of all columns; none by default."""

    written: Domain = field(default_factory=lambda: Domain(()))
    calculations: tuple[tuple[str, Calculation], ...] = ()

    @classmethod
    def from_spec(cls, columns: Mapping[str, Column]) -> Derived:
        """The derived columns of a checked spec's `columns`."""
        calculations = []
        for name, column in columns.items():
            text = derived_of(column)
            parsed = None if text is None else calculation(text, columns)[0]
            if parsed is not None:
                calculations.append((name, parsed))
        return cls(Domain.written(columns), tuple(calculations))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the derived columns."""
        return tuple(name for name, _ in self.calculations)

    def values(self, values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Values of the derived columns whose inputs are among `values`, as constraints read them.

        Dates are days since 1970, and missing values NaN.
        """
        results = {}
        for name, computed in self.calculations:
            if values.keys() >= set(computed.columns):
                column = self.written[name]
                results[name] = _rounded(column, _exact(column, computed, values)) * _unit(column)
        return results

    def added(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows with their derived columns, all columns in the spec's order."""
        if not self.calculations:
            return frame
        values = dict(frame.items())
        for name, computed in self.calculations:
            column = self.written[name]
            steps = _rounded(column, _exact(column, computed, self._inputs(computed, frame)))
            values[name] = _typed(column, steps, frame.index)
        return pd.DataFrame({name: values[name] for name in self.written.names})

    def wrong_in(self, text: pd.DataFrame) -> dict[str, Mask]:
        """Rows of a published table in which a derived column differs from its computation.

        Values of the table are text.
        """
        frame = text.mask(text == "") if self.calculations else text
        return {
            name: self._differs(self.written[name], computed, frame)
            for name, computed in self.calculations
        }

    def _differs(self, column: ColumnDomain, computed: Calculation, frame: pd.DataFrame) -> Mask:
        exact = _exact(column, computed, self._inputs(computed, frame))
        stated = to_numbers(column, frame[column.name])
        half = 0.5 * 10.0**-column.decimals
        near = np.abs(exact - stated) <= half + ROUNDING * np.maximum(1.0, np.abs(exact))
        wrong: Mask = ~(near | (np.isnan(exact) & np.isnan(stated)))
        return wrong

    def _inputs(self, computed: Calculation, frame: pd.DataFrame) -> dict[str, Floats]:
        return {
            n: to_numbers(self.written[n], frame[n]) * _unit(self.written[n])
            for n in computed.columns
        }


def _unit(column: ColumnDomain) -> float:
    """A step of the column in expressions: 1 for a number, days for a date."""
    return 1.0 if column.step_seconds is None else column.step_seconds / DAY


def _exact(column: ColumnDomain, computed: Calculation, values: Mapping[str, Floats]) -> Floats:
    """The result within the column's bounds, in its steps; NaN where it cannot be computed."""
    with np.errstate(all="ignore"):
        steps = computed.value(values) / _unit(column)
    return np.clip(np.where(np.isfinite(steps), steps, np.nan), column.lower, column.upper)


def _rounded(column: ColumnDomain, exact: Floats) -> Floats:
    return np.clip(np.round(exact, column.decimals), column.lower, column.upper) + 0.0  # no -0.0


def _typed(column: ColumnDomain, steps: Floats, index: pd.Index) -> pd.Series[object]:
    """Numbers in the column's steps as values of its type."""
    return column_kind(column).values(column, steps, np.isnan(steps)).set_axis(index)
