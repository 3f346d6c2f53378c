"""Columns set or observed on the command line.

COLUMN=VALUE is a level of the domain; another condition is one of the grammar of constraints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import MISSING_LABEL, ColumnDomain, Domain
from synthdp.data.encoding import encode_column, operand_values, to_numbers
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.ranges import level_of
from synthdp.errors import OutputError, SpecError, SpecProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.operands import calculated, constants_of
from synthdp.spec.expressions.parsed import Expression, SourceText, setting_of
from synthdp.spec.load.wording import many, nearest, same_but_for_case
from synthdp.spec.model import Column

MAX_SHOWN = 40  # categories or columns in a message


@dataclass(frozen=True)
class Setting:
    """A level of a column, and the value within it that was asked for.

    The value is None where the level determines it (a category, missing).
    """

    level: int
    value: int | float | np.datetime64 | None = None


def conditions_of(
    given: Sequence[str], columns: Mapping[str, Column], domain: Domain
) -> tuple[tuple[str, ...], tuple[Expression, ...]]:
    """What `--given` holds: texts of the form COLUMN=VALUE, and conditions that were read.

    Raises:
        SpecError: a text is neither; every mistake is listed.

    >>> from synthdp.spec.model import Categorical
    >>> columns = {"sex": Categorical(type="categorical", categories=("female", "male"))}
    >>> given, domain = ["sex=male", "sex != 'male'"], Domain.from_spec(columns)
    >>> settings, conditions = conditions_of(given, columns, domain)
    >>> settings, [condition.text for condition in conditions]
    (('sex=male',), ["sex != 'male'"])
    """
    settings: list[str] = []
    conditions: list[Expression] = []
    problems: list[SpecProblem] = []
    for text in given:
        name, value = setting_of(text, domain.names) or (text, None)
        known = domain[name] if name in domain.names else None
        if known and value is not None and (value[:1] != "=" or _setting(known, value)):
            settings.append(text)
            continue
        condition, mistakes = parse(text, columns)
        if condition is not None:
            conditions.append(condition)
        elif value is not None and value[:1] != "=" and not set("<>!") & set(name):
            settings.append(text)  # an unknown column, which is told below
        else:
            problems += [SpecProblem("--given", 1, m.at, text, m.message, m.hint) for m in mistakes]
    if problems:
        raise SpecError(problems)
    return tuple(settings), tuple(conditions)


def settings_of(
    do: Sequence[str], given: Sequence[str], domain: Domain
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Settings by column, of `--do` and of `--given`.

    Raises:
        SpecError: unknown columns, values outside the domain, columns that are set twice; every
            mistake is listed.

    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> settings_of([], ["sex=male"], Domain.from_spec({"sex": sex}))
    ({}, {'sex': Setting(level=1, value=None)})
    """
    found: dict[str, dict[str, Setting]] = {"--do": {}, "--given": {}}
    problems: list[SpecProblem] = []
    for option, text in [("--do", t) for t in do] + [("--given", t) for t in given]:
        parted = setting_of(text, domain.names)
        name, value = parted or (text, "")
        setting = _setting(domain[name], value) if parted and name in domain.names else None
        if parted is None:
            problems.append(SpecProblem(option, 1, 1, text, "needs the form COLUMN=VALUE"))
        elif name not in domain.names:
            hint = nearest(name, domain.names) or f"columns are {_some(domain.names)}"
            problems.append(SpecProblem(option, 1, 1, text, f"unknown column {name!r}", hint))
        elif any(name in settings for settings in found.values()):
            problems.append(
                SpecProblem(
                    option,
                    1,
                    1,
                    text,
                    f"column {name!r} is set more than once",
                    "do and given take a column once",
                )
            )
        elif setting is None:
            hint = f"it holds {allowed(domain[name])}"
            problems.append(
                SpecProblem(
                    option, 1, 1, text, f"{value!r} is outside the domain of {name!r}", hint
                )
            )
        else:
            found[option][name] = setting
    if problems:
        raise SpecError(problems)
    return found["--do"], found["--given"]


def _setting(column: ColumnDomain, text: str) -> Setting | None:
    """What a text sets a column to; None where it is outside the domain."""
    if text == MISSING_LABEL and column.missing_level is not None:
        return Setting(column.missing_level)
    values = pd.Series([text], dtype="str")
    encoded = encode_column(column, values)
    if encoded.misfits or not column.ranged:
        return None if encoded.misfits else Setting(int(encoded.codes[0]))
    number = float(to_numbers(column, values)[0])
    if column.continuous and number not in column.spikes:
        number = min(max(round(number, column.decimals), column.lower), column.upper)
    level = int(level_of(column, np.asarray([number]))[0])
    return Setting(level, column_kind(column).scalar(column, number))


def allowed(column: ColumnDomain) -> str:
    """What a column may hold, in words."""
    if not column.ranged:
        return _some(column.labels)
    bounds = f"{column.lower:.15g} to {column.upper:.15g}"
    if column.step_seconds is not None:
        first, last = (column_kind(column).scalar(column, n) for n in (column.lower, column.upper))
        bounds = f"{first} to {last}"
    return bounds + (", and missing" if column.missing else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")


# --- contradictions ---
#
# Conditions that no row of the declared domain fulfils, found before a row is drawn.
#
# Of conditions that compare columns with constants it is decided exactly. What such a condition
# says of a column changes only at its constants. So of a number those values are tried that lie
# at, next below or next above one, and the ends of the domain; of a category, each. Conditions
# that calculate, or compare two columns, are left to the rows that are drawn.


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


# --- columns held ---
#
# Whether a database can hold a table's columns, which their names tell before any work is done.


FOLDING = ("sqlite", "mysql", "mariadb", "mssql", "bigquery", "duckdb", "databricks", "redshift")
"""Databases, as SQLAlchemy calls them, whose columns have names without upper and lower case."""
LONGEST = {
    "postgresql": 63,
    "redshift": 127,
    "mysql": 64,
    "mariadb": 64,
    "mssql": 128,
    "oracle": 128,
}
"""Bytes of the longest name."""
MOST = {
    "sqlite": 2000,
    "postgresql": 1600,
    "mysql": 1017,
    "mariadb": 1017,
    "mssql": 1024,
    "oracle": 1000,
}
"""Columns of the widest table."""


def check_columns_held(dialect: str, names: Sequence[str]) -> None:
    """Check that a database of this kind can have columns of these names.

    Raises:
        OutputError: it cannot.
    """
    why = None
    twins = same_but_for_case(names) if dialect in FOLDING else None
    longest = LONGEST.get(dialect, 10_000)
    long = [name for name in names if len(name.encode()) > longest]
    if twins:
        why = f"columns {twins[0]!r} and {twins[1]!r} differ in upper and lower case alone"
    elif long:
        why = f"the name of column {long[0]!r} has more than {longest} bytes"
    elif len(names) > MOST.get(dialect, len(names)):
        why = f"the bundle has {many(len(names), 'column')}, and a table has {MOST[dialect]:,}"
    if why:
        raise OutputError(
            f"{why}, which {dialect} cannot hold; nothing was written",
            hint=(
                "release with other names (dataset.source.rename), or fewer columns; or read the"
                " bundle's synthetic.parquet, which holds all of them"
            ),
        )
