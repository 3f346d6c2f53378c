"""Whether a column is what is computed from others, up to rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from synthdp.evaluate.functional.linear import COARSE, EXACT
from synthdp.evaluate.functional.values import DAY, Floats, Values, rounding, written_rounding
from synthdp.spec.expressions.parsed import Calculation
from synthdp.spec.model import Column

INSIDE = 0.75
"""Of what rounding explains, the most by which half of the rows may be apart; 0.5 is expected."""


def apart_of(
    values: Values, name: str, computed: Calculation, columns: Mapping[str, Column]
) -> tuple[Floats, Floats]:
    """Distance of a column from what is computed, and what rounding explains of it, `[rows]`.

    The distance is NaN where a value is missing. Rounding of the inputs is followed through the
    calculation, one input at a time.
    """
    column: Any = columns[name]
    unit = 1.0 if column.step_seconds is None else column.step_seconds / DAY
    exact = np.asarray(computed.value(values), dtype=np.float64)
    slack = written_rounding(column) + EXACT * np.abs(exact)
    for other in computed.columns:
        step = rounding(columns[other])
        if step:
            moved = computed.value({**values, other: values[other] + step})
            slack = slack + np.abs(moved - exact)
    inside = np.clip(exact, column.number(column.lower) * unit, column.number(column.upper) * unit)
    apart = np.abs(np.where(np.isfinite(inside), inside, np.nan) - values[name])
    return apart, np.where(np.isfinite(slack), slack, 0.0)


def agree(values: Floats, apart: Floats, slack: Floats) -> bool:
    """Whether values are what is computed: exactly, or up to rounding that hides little.

    What is rounded to the values lies anywhere within the rounding, and mostly well inside; where
    it lies at the ends, something else than rounding parts them.
    """
    if (apart <= EXACT * 10 * np.abs(values).max()).all():
        return True
    return bool(
        (apart <= slack).all()
        and np.median(slack) <= COARSE * values.std()
        and np.median(apart / slack) <= INSIDE
    )
