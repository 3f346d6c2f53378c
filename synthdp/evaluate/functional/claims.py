"""What the screens find: expressions that hold in all rows looked at, not yet checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import to_numbers
from synthdp.spec.model import Column, Datetime, Integer, Number


@dataclass(frozen=True)
class DerivedClaim:
    """One relation of `columns`: each of `ways` is (column, how it is computed from the others).

    The first way that the spec can declare is suggested.
    """

    columns: tuple[str, ...]
    ways: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OrderClaim:
    """A constraint on `columns` that needs no more than its text."""

    columns: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class LevelsClaim:
    """Each value of the first of `columns` (or its `part`) goes with one of the second.

    The part is one of a date, or the range of a number, which is named by its least value. `pairs`
    says with which. `text` is that as a constraint, empty where expressions cannot say it,
    and `remark` says it in words.
    """

    columns: tuple[str, str]
    part: str
    pairs: Mapping[float, float]
    text: str
    remark: str


# --- values ---
#
# Rows as expressions of the spec read them, and what the screens ask of a column.


DAY = 86_400
"""Seconds."""
MIN_ROWS = 50
"""Fewest rows with all values that a suggestion rests on."""
MIN_OTHERS = 20
"""Fewest of them in which a column is not at its commonest value."""
MIN_EVIDENCE = 20.0
"""A claim is shown where chance alone would give it a probability of about e^-20 at most."""

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Mapping[str, Floats]
"""Columns by name, `[rows]` each: dates in days since 1970, categories by position, NaN missing."""


def values_of(domain: Domain, frame: pd.DataFrame) -> dict[str, Floats]:
    """The columns of `domain` that `frame` holds, as expressions read them."""
    return {c.name: _values(c, frame[c.name]) for c in domain.columns if c.name in frame}


def _values(column: ColumnDomain, cells: pd.Series[object]) -> Floats:
    if column.ranged:
        unit = 1.0 if column.step_seconds is None else column.step_seconds / DAY
        return to_numbers(column, cells) * unit
    labels = pd.Index(column.labels[: column.missing_level], dtype=object)
    places = labels.get_indexer(pd.Index(cells.astype(object)))
    return np.where(places < 0, np.nan, places.astype(np.float64))


def rounding(column: Column) -> float:
    """How far a value of the column may lie from the one that was rounded to it.

    0 for whole numbers and dates, which are taken to be exact.
    """
    return 0.5 * 10.0**-column.decimals if isinstance(column, Number) else 0.0


def written_rounding(column: Column) -> float:
    """How far a computed value may lie from the column's, which is then written for it."""
    if isinstance(column, Integer):
        return 0.5
    return 0.5 * column.step_seconds / DAY if isinstance(column, Datetime) else rounding(column)


def known_in(values: Values, names: tuple[str, ...], rows: int) -> Mask:
    """Rows that miss none of the columns, `[rows]`."""
    known = np.ones(rows, dtype=bool)
    for name in names:
        known &= ~np.isnan(values[name])
    return known


def varies(values: Floats) -> bool:
    """Whether enough rows are known, and enough of these differ from the commonest value."""
    known = values[~np.isnan(values)]
    if len(known) < MIN_ROWS:
        return False
    _, counts = np.unique(known, return_counts=True)
    return len(known) - int(counts.max()) >= MIN_OTHERS
