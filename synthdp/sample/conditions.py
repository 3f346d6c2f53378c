"""Columns set or observed on the command line.

COLUMN=VALUE is a level of the domain; another condition is one of the grammar of constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from synthdp.data.domain import MISSING_LABEL, ColumnDomain, Domain
from synthdp.data.encoding import encode_column, to_numbers
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.bins import level_of
from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.names import setting_of
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.model import Column
from synthdp.spec.wording import nearest

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
