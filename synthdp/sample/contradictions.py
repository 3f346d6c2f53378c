"""Conditions that no row of the declared domain fulfils, found before a row is drawn.

Of conditions that compare columns with constants it is decided exactly. What such a condition says
of a column changes only at its constants. So of a number those values are tried that lie at, next
below or next above one, and the ends of the domain; of a category, each. Conditions that calculate,
or compare two columns, are left to the rows that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import operand_values
from synthdp.errors import SpecError, SpecProblem
from synthdp.sample.conditions import Setting, allowed
from synthdp.spec.expressions.constants import calculated, constants_of
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.source_text import SourceText

MAX_TRIED = 1_000_000
"""Combinations of values that are tried; conditions on more are left to the rows."""


def check_possible(
    conditions: Sequence[Expression], settings: Mapping[str, Setting], domain: Domain
) -> None:
    """Check that some row of the domain that has the settings fulfils all conditions.

    Raises:
        SpecError: none does.
    """
    trees = [(c, SourceText(c.text).parsed()) for c in conditions]
    told = [(c, tree) for c, tree in trees if _decided(c, domain) and not any(calculated(tree))]
    if not told:
        return
    names = sorted({name for c, _ in told for name in c.columns})
    constants = sorted({number for _, tree in told for number in constants_of(tree)})
    values = [_tried(domain[name], constants, settings.get(name)) for name in names]
    if math.prod(map(len, values)) > MAX_TRIED:
        return
    grid = dict(zip(names, map(np.ravel, np.meshgrid(*values, indexing="ij")), strict=True))
    with np.errstate(all="ignore"):
        held = [np.broadcast_to(c.truth(grid)[0], grid[names[0]].shape) for c, _ in told]
    if np.logical_and.reduce(held).any():
        return
    alone = [c.text for (c, _), rows in zip(told, held, strict=True) if not rows.any()]
    holds = "; ".join(f"{name} holds {_holds(domain[name], settings.get(name))}" for name in names)
    raise SpecError(
        [
            SpecProblem("--given", 1, 1, text, "no row of the declared domain is so", holds)
            for text in alone or [" and ".join(c.text for c, _ in told)]
        ]
    )


def _decided(condition: Expression, domain: Domain) -> bool:
    """Whether a condition reads columns of the model alone, and not what is derived of them."""
    return bool(condition.columns) and set(condition.columns) <= set(domain.names)


def _tried(
    column: ColumnDomain, constants: Sequence[float], setting: Setting | None
) -> npt.NDArray[np.float64]:
    """Values of a column as conditions read them, of which one stands for any other."""
    if setting is not None:
        if setting.level == column.missing_level:
            return np.array([np.nan])
        return operand_values(column, np.array([setting.level]), pd.Series([setting.value]))
    missing = [] if column.missing_level is None else [np.nan]
    if not column.ranged:
        labels = column.levels - len(missing)
        return np.array([*map(float, range(labels)), *missing])
    day, step = _day(column), 10.0**-column.decimals if column.continuous else 1.0
    near = set[float]()
    for constant in constants:
        place = constant / day / step
        near |= {
            k * step for k in (math.floor(place) - 1, math.floor(place), math.floor(place) + 1)
        }
        near |= {k * step for k in (math.ceil(place), math.ceil(place) + 1)}
    digits = column.decimals if column.continuous else 0
    ends = {column.lower, column.upper, *column.spikes}
    inside = ends | {round(n, digits) for n in near}
    kept = sorted(n for n in inside if column.lower <= n <= column.upper)
    return np.array([*(n * day for n in kept), *missing])


def _day(column: ColumnDomain) -> float:
    """Days in a step of an instant; 1 for a number."""
    return 1.0 if column.step_seconds is None else column.step_seconds / 86_400


def _holds(column: ColumnDomain, setting: Setting | None) -> str:
    if setting is None:
        return allowed(column)
    return str(setting.value) if setting.value is not None else column.labels[setting.level]
