"""Derived columns: computed from the other columns of the same synthetic row when it is written.
Post-processing, which costs no privacy.

A result is rounded to the column's digits or steps; one beyond the column's bounds is written as
the bound. It is missing where it cannot be computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import to_numbers
from synthdp.spec.expressions.expressions import Calculation, calculation
from synthdp.spec.model import RESOLUTION_SECONDS, Column, derived_of

DAY = 86_400
ROUNDING = 1e-9  # of a value: what was written as text may differ in its last digits

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Derived:
    """The derived columns of a spec, and the order of all columns; none by default."""

    written: Domain = field(default_factory=lambda: Domain(()))
    calculations: tuple[tuple[str, Calculation], ...] = ()

    @classmethod
    def from_spec(cls, columns: Mapping[str, Column]) -> Derived:
        """Those of a checked spec's `columns`."""
        parsed = (
            (name, calculation(text, columns)[0])
            for name, column in columns.items()
            if (text := derived_of(column)) is not None
        )
        return cls(
            Domain.written(columns),
            tuple((name, computed) for name, computed in parsed if computed is not None),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The derived columns."""
        return tuple(name for name, _ in self.calculations)

    def values(self, values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Those whose columns are among `values`, as constraints read them: dates in days since
        1970, NaN where missing.
        """
        able = [
            (self.written[name], computed)
            for name, computed in self.calculations
            if all(n in values for n in computed.columns)
        ]
        return {
            column.name: _rounded(column, _exact(column, computed, values)) * _unit(column)
            for column, computed in able
        }

    def added(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows with their derived columns, all columns in the spec's order."""
        if not self.calculations:
            return frame
        steps = {
            name: _rounded(
                self.written[name], _exact(self.written[name], c, self._inputs(c, frame))
            )
            for name, c in self.calculations
        }
        new = {
            name: _typed(self.written[name], found, frame.index) for name, found in steps.items()
        }
        return pd.DataFrame(
            {name: new[name] if name in new else frame[name] for name in self.written.names}
        )

    def wrong_in(self, text: pd.DataFrame) -> dict[str, Mask]:
        """Rows of a published table, as text, in which a derived column is not what it is computed
        from.
        """
        frame = text.mask(text == "") if self.calculations else text
        return {
            name: self._differs(self.written[name], computed, frame)
            for name, computed in self.calculations
        }

    def _differs(self, column: ColumnDomain, computed: Calculation, frame: pd.DataFrame) -> Mask:
        exact, stated = (
            _exact(column, computed, self._inputs(computed, frame)),
            to_numbers(column, frame[column.name]),
        )
        half = 0.5 * 10.0**-column.decimals if column.type == "number" else 0.5
        near = np.abs(exact - stated) <= half + ROUNDING * np.maximum(1.0, np.abs(exact))
        wrong: Mask = ~(near | (np.isnan(exact) & np.isnan(stated)))
        return wrong

    def _inputs(self, computed: Calculation, frame: pd.DataFrame) -> dict[str, Floats]:
        return {
            n: to_numbers(self.written[n], frame[n]) * _unit(self.written[n])
            for n in computed.columns
        }


def _unit(column: ColumnDomain) -> float:
    """What a step of the column is in expressions: a number is itself, and dates are in days."""
    return RESOLUTION_SECONDS[column.resolution] / DAY if column.type == "datetime" else 1.0


def _exact(column: ColumnDomain, computed: Calculation, values: Mapping[str, Floats]) -> Floats:
    """The result within the column's bounds, in its steps; NaN where it cannot be computed."""
    with np.errstate(all="ignore"):
        found = computed.value(values) / _unit(column)
    return np.clip(np.where(np.isfinite(found), found, np.nan), column.lower, column.upper)


def _rounded(column: ColumnDomain, exact: Floats) -> Floats:
    digits = column.decimals if column.type == "number" else 0
    return np.clip(np.round(exact, digits), column.lower, column.upper) + 0.0  # no -0.0


def _typed(column: ColumnDomain, steps: Floats, index: pd.Index) -> pd.Series[object]:
    """Numbers in the column's steps as values of its type."""
    missing = np.isnan(steps)
    if column.type == "number":
        return pd.Series(steps, index=index)
    whole = np.where(missing, column.lower, steps).astype(np.int64)
    if column.type == "datetime":
        instants = (whole * RESOLUTION_SECONDS[column.resolution]).astype("datetime64[s]")
        return pd.Series(np.where(missing, np.datetime64("NaT", "s"), instants), index=index)
    series = pd.Series(whole, index=index)
    return (
        series.astype("Int64").mask(pd.Series(missing, index=index)) if column.missing else series
    )
