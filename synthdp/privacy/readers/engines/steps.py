"""The level of a value as a search that a database can do: exact keys, or steps along a line.

Nothing about levels is decided here. `data.encoding.encode_column` says what each key has, and what
begins at each step, so that a database does what reading into memory does.

Why that is the same level for every value [derived here], by kind of cell and type of column:

- A category's text is compared letter by letter, and a database compares bytes of UTF-8: the same,
  since both sides are UTF-8. For whole numbers, real and decimal numbers, `category_text` maps a
  value to a text that has a level exactly if the value is one of those listed for it here: the text
  of a whole number is its digits, a real number that has the text t is `float(t)`, and a decimal
  one is `Decimal(t)`, whatever its scale, since equal decimals have one text. A database compares
  decimals by their value, too. Of truth both values are listed.
- The level of a number x of 64 bits follows from comparisons of x with edges, bounds, spikes and
  missing codes alone (`RangeKind.encode`, `bins.level_of`, `values.read_values`). No two numbers
  lie on different sides of one of these without a step between them: each such number b begins a
  step, and the next number after b begins one. So the level is constant from each step to the
  next. Whole numbers and truth are cast to 64 bits by the nearest number, as Arrow casts them;
  -0.0 and 0.0 are equal to databases, too; NaN is missing, and is asked for first.
- Instants are whole steps of the resolution, rounded down: t // r >= b exactly if t >= b r. A day
  is at or after the instant b r exactly if it is at or after the first day that begins then.

What is compared otherwise in a database, or where a text must be read as a number or a date, is
refused (`check_kinds`): Arrow reads it, or a query casts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import EncodedColumn, encode_column
from synthdp.data.kinds import column_kind
from synthdp.data.one_value import category_text
from synthdp.errors import DataError
from synthdp.spec.model import RESOLUTION_SECONDS

Kind = Literal["text", "truth", "whole", "real", "decimal", "day", "instant"]
"""Of the cells of a column, by the source's own type."""
ARROW: Mapping[Kind, pa.DataType] = {
    "text": pa.string(),
    "truth": pa.bool_(),
    "whole": pa.int64(),
    "real": pa.float64(),
    "day": pa.date32(),
    "instant": pa.timestamp("s"),
}
KINDS: Mapping[str, tuple[Kind, ...]] = {
    "integer": ("truth", "whole", "real", "decimal"),
    "number": ("truth", "whole", "real", "decimal"),
    "datetime": ("day", "instant"),
    "categorical": ("text", "truth", "whole", "real", "decimal"),
    "ordinal": ("text", "truth", "whole", "real", "decimal"),
    "boolean": ("text", "truth", "whole", "real", "decimal"),
    "text-code": ("text",),
}
WORDS: Mapping[str, str] = {
    "text": "texts",
    "truth": "truth values",
    "whole": "whole numbers",
    "real": "numbers of 64 or 32 bits",
    "decimal": "decimal numbers",
    "day": "dates",
    "instant": "times without a zone",
}
ID_KINDS: tuple[Kind, ...] = ("text", "whole")


@dataclass(frozen=True)
class Levels:
    """Levels of a column's values: `null` where there is none.

    With `keys` a value has the level of its key, and else `other`; a text is cut to `prefix`
    characters first, but for those of `whole`, which are asked before. Otherwise it has that of the
    last of `steps` that is not above it, and `other` below all; between the two ends of one of
    `gone` it is missing.
    """

    null: int
    other: int
    keys: tuple[tuple[Any, int], ...] = ()
    steps: tuple[tuple[Any, int], ...] = ()
    prefix: int | None = None
    whole: tuple[tuple[Any, int], ...] = ()
    gone: tuple[tuple[Any, Any], ...] = ()


def check_kinds(domain: Domain, kinds: Mapping[str, Kind | str]) -> None:
    """Refuse columns whose levels a database is not proved to find as we do.

    `kinds` has the name of a source's type where that is none of `Kind`.

    Raises:
        DataError: there are some; the source's types are named, which no row has a part in.
    """
    for column in domain.columns:
        known = KINDS.get(column.type, ())
        if (kind := kinds[column.name]) not in known:
            what = WORDS.get(kind, f"values of type {kind}")
            raise DataError(
                f"column {column.name!r} of the source holds {what}, and compute.engine sql is not"
                f" proved to read them as type {column.type}",
                hint=(
                    f"make them {' or '.join(WORDS[k] for k in known) or 'another type'} in the"
                    " source, e.g. by CAST in the query; or set compute.engine: memory"
                ),
            )


def check_id_kind(name: str, kind: Kind | str) -> None:
    """Refuse ids that a database is not proved to compare as we do.

    Raises:
        DataError: they are neither texts nor whole numbers.
    """
    if kind not in ID_KINDS:
        raise DataError(
            f"column {name!r} (the privacy unit) holds ids that are neither texts nor whole"
            " numbers, which compute.engine sql does not compare",
            hint="cast them to text in the source",
        )


def levels_of(column: ColumnDomain, kind: Kind) -> Levels:
    """The search for the levels of a column whose cells are of a kind."""
    null = _level(column, None, kind)
    if column.ranged:
        points = _points(column)
        seconds = RESOLUTION_SECONDS[column.resolution]
        if column.step_seconds is None:
            after = sorted({*points, *(float(np.nextafter(p, np.inf)) for p in points)})
            found: list[tuple[Any, int]] = [(p, _level(column, p, "real")) for p in after]
            first = _level(column, -np.inf, "real")
        else:
            after = sorted({*points, *(p + 1 for p in points)})
            found = [
                (_at(int(p) * seconds, kind), _level(column, int(p) * seconds, "instant"))
                for p in after
            ]
            first = _level(column, int(after[0] - 1) * seconds, "instant")
        return Levels(
            null, first, steps=_without_repeats(first, found), gone=tuple(_gone(column, kind))
        )
    gone = column.missing_codes
    if kind == "text":
        keys = [*column.labels[: column.levels - column.missing], *dict(column.sources)]
        codes = tuple((code, _level(column, code, kind)) for code in gone)
        prefix = max(map(len, keys)) if column.type == "text-code" else None
        return Levels(null, 0, _keyed(column, keys, kind), prefix=prefix, whole=codes)
    if kind == "truth":
        known = [v for v in (False, True) if not _read(column, v, kind).outside]
        return Levels(null, 0, _keyed(column, known, kind))
    values = list[Any]()
    number: Any = {"whole": int, "real": float, "decimal": Decimal}[kind]
    for text in (*column.labels, *dict(column.sources), *gone):
        try:
            value = number(text)
        except (ValueError, InvalidOperation):
            continue
        if category_text(value) == text and value == value and _fits(value, kind):
            values.append(value)
    return Levels(null, 0, _keyed(column, values, kind))


def _keyed(column: ColumnDomain, values: list[Any], kind: Kind) -> tuple[tuple[Any, int], ...]:
    """The values with their levels, in the order in which a database has them."""
    order = (lambda v: v.encode()) if kind == "text" else None
    return tuple((v, _level(column, v, kind)) for v in sorted(set(values), key=order))


def _fits(value: float, kind: Kind) -> bool:
    return kind != "whole" or -(2**63) <= value < 2**63


def _points(column: ColumnDomain) -> set[float]:
    """All numbers that a level is decided by."""
    meaning = column_kind(column).meaning(column)
    codes = [number for code in column.missing_codes if (number := meaning(code)) == number]
    return {*column.edges, *column.spikes, column.lower, column.upper, *codes}


def _gone(column: ColumnDomain, kind: Kind) -> Iterator[tuple[Any, Any]]:
    """The values that stand for a missing one: from, and below."""
    meaning, seconds = column_kind(column).meaning(column), column.step_seconds
    for number in {meaning(code) for code in column.missing_codes}:
        if number != number:
            continue
        if seconds is None:
            yield number, float(np.nextafter(number, np.inf))
        else:
            yield _at(int(number) * seconds, kind), _at((int(number) + 1) * seconds, kind)


def outside_of(column: ColumnDomain, kind: Kind) -> tuple[Any, Any]:
    """The first value inside of a range, and the first one above it."""
    if column.step_seconds is None:
        return column.lower, float(np.nextafter(column.upper, np.inf))
    seconds = column.step_seconds
    return _at(int(column.lower) * seconds, kind), _at((int(column.upper) + 1) * seconds, kind)


def _at(seconds: int, kind: Kind) -> str:
    """The first day or instant that is at or after an instant, as databases read it."""
    if kind == "day":
        return str(np.datetime64(-(-seconds // 86_400), "D"))
    return str(np.datetime64(seconds, "s")).replace("T", " ")


def _level(column: ColumnDomain, value: Any, kind: Kind) -> int:
    return int(_read(column, value, kind).codes[0])


def _read(column: ColumnDomain, value: Any, kind: Kind) -> EncodedColumn:
    """By the function that reads tables."""
    if kind == "decimal":  # Arrow has none of every scale
        return encode_column(column, pd.Series([value], dtype=object))
    return encode_column(column, pa.array([value], ARROW[kind]))


def _without_repeats(first: int, found: list[tuple[Any, int]]) -> tuple[tuple[Any, int], ...]:
    """Where the level changes; of several steps at one place the last counts."""
    kept, last = list[tuple[Any, int]](), first
    for at, level in dict(found).items():
        if level != last:
            kept.append((at, level))
            last = level
    return tuple(kept)
