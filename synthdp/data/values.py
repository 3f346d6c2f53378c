"""What one value says, and nothing but that value: the only way from a table's cells to numbers.

Every column of a table comes here as Arrow cells of a declared type or as Python objects (SQL), and
leaves as one number a
row: a value on the column's scale, the position of a category, or NaN where it is neither.

Each row by itself [proof, by construction]. Let f be a function of one value, made from the
column's declaration alone (`_meaning`, or `id_text`). The number of row i is f(value i), whatever
stands in other rows:

- `_one_by_one` is a comprehension of f over the values; it keeps nothing from one to the next.
- `_array` lists the distinct cells of an array, of one Arrow type, takes f of each, and gives each
  row the number of its own cell. Arrow holds cells for one if their type and bits are equal, so
  that they are the same Python value; but -0.0 and 0.0 may share a cell, and all NaN do: f says the
  same of -0.0 and 0.0, and NaN is missing. Python's own equality (1 == 1.0 == True, Decimal("1") ==
  Decimal("1.0")) is asked nowhere.
- `_typed` converts numbers and instants cell by cell, by an operation that the array's type names:
  never one that looks for a type, a unit or a format in the cells.

A row cannot change the type of the others' cells either: CSV cells are all text, Parquet cells have
the type that the file declares, and Python objects stay what the database's driver made of each. A
DataFrame's cells have the dtypes that it was given with (`synthdp.privacy.readers.dataframe`).
pandas' own readers (`to_datetime`, `to_numeric`, `read_sql`) look at whole columns, and are not
used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain
from synthdp.errors import DataError
from synthdp.spec.model import RESOLUTION_SECONDS

if TYPE_CHECKING:  # a plan reads nothing
    import pandas as pd
    import pyarrow as pa

Meaning = Callable[[Any], float]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# A day in full, then perhaps a time to the minute, second or below; parts of a second are cut, and
# a zone is nothing that fits.
ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T"
    r" ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?)?)(?:(?<=:[0-9]{2}:[0-9]{2})\.[0-9]+)?"
)
WHOLE = re.compile(r"([+-]?)([0-9]+)(?:\.0*)?")
EPOCH = date(1970, 1, 1).toordinal()
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of a second


@dataclass(frozen=True)
class Read:
    """What values say, row by row: a number each (NaN where it is none), and whether the value is
    missing.
    """

    numbers: Floats
    absent: Mask


def read_values(column: ColumnDomain, values: pd.Series[Any] | pa.Array | pa.ChunkedArray) -> Read:
    """Each value on the column's numeric scale, or as the position of its category.

    Raises:
        DataError: the values are of a type that no column holds, such as lists or times with a
            zone.
    """
    return _walk(values, _meaning(column), column)


def unit_numbers(values: pd.Series[Any] | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A number for each row, the same for two rows exactly where `id_text` of their ids is; -1
    where there is no id.
    """
    known: dict[str, int] = {}

    def number(value: Any) -> float:
        text = id_text(value)
        return known.setdefault(text, len(known)) if text else math.nan

    numbers = _walk(values, number, None).numbers
    return np.where(np.isnan(numbers), -1, numbers).astype(np.int64)


# --- values, one at a time ---


def _meaning(column: ColumnDomain) -> Meaning:
    if column.type == "datetime":
        step = RESOLUTION_SECONDS[column.resolution]
        return lambda value: seconds_of(value) // step
    if column.ranged:
        return number_of
    known: dict[str | None, float] = {
        label: float(i) for i, label in enumerate(column.labels[: column.levels - column.missing])
    }
    return lambda value: known.get(category_text(value), math.nan)


def number_of(value: Any) -> float:
    """The nearest 64-bit number: of a text in plain or exponent form (white space around it does
    not count), or of a number.
    """
    if isinstance(value, str):
        value = value.strip()
        if (
            "_" in value or not value.isascii()
        ):  # Python would read 1_000, and the digits of all alphabets
            return math.nan
    elif not isinstance(value, int | float | Decimal | np.integer | np.floating | np.bool_):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf if value > 0 else -math.inf
    except (ValueError, TypeError):
        return math.nan


def seconds_of(value: Any) -> float:
    """Whole seconds since 1970-01-01 of a day or an instant without a zone, cut to the second; NaN
    for all else.
    """
    try:
        if isinstance(value, str):
            found = ISO.fullmatch(value.strip())
            value = datetime.fromisoformat(found[1]) if found else None
        if isinstance(value, np.datetime64):
            return float(value.astype("datetime64[s]").astype(np.int64))
        if not isinstance(value, date) or (
            isinstance(value, datetime) and value.tzinfo is not None
        ):
            return math.nan
        days = (value.toordinal() - EPOCH) * 86_400.0
    except (ValueError, NotImplementedError):  # the 30th of February; a year after 9999
        return math.nan
    return (
        days + value.hour * 3_600 + value.minute * 60 + value.second
        if isinstance(value, datetime)
        else days
    )


def category_text(value: Any) -> str | None:
    """The text that a category is compared with, letter by letter: a text itself; true and false;
    whole numbers without a point.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    try:
        return None if isinstance(value, bytes | bytearray | memoryview) else str(value)
    except ValueError:  # a whole number of thousands of digits
        return None


def id_text(value: Any) -> str:
    """The text by which ids are compared, and nothing else; empty where there is no id.

    White space around it does not count, and a plain whole number (digits, perhaps with a sign
    before them and zeros after a point) is that number: 1, 1.0, " 1" and 01 are one id. Bytes are
    their digits after 0x. All else counts letter by letter: A1 and a1 are two.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, Decimal):
        value = format(value, "f")
    elif not isinstance(value, str | bool | int | float | np.generic | date | UUID):
        raise DataError(
            "ids of a type that cannot be compared",
            hint="ids are texts or numbers; cast them in the source",
        )
    text = (category_text(value) or "").strip()
    whole = WHOLE.fullmatch(text)
    if not whole:
        return text
    digits = whole[2].lstrip("0") or "0"
    return f"-{digits}" if whole[1] == "-" and digits != "0" else digits


def is_missing(value: Any) -> bool:
    """Whether a Python value stands for none: None, NaN, and what pandas and NumPy have for it. A
    text never does.
    """
    if value is None or isinstance(value, str):
        return value is None
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return type(value).__name__ in ("NaTType", "NAType")


# --- columns ---


def _walk(
    values: pd.Series[Any] | pa.Array | pa.ChunkedArray,
    meaning: Meaning,
    column: ColumnDomain | None,
) -> Read:
    """`meaning` of each value; `column` where its numbers and instants may be converted without a
    look at each.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(values, pd.Series):
        if values.dtype == object:
            return _one_by_one(values.tolist(), meaning)
        if isinstance(values.dtype, pd.CategoricalDtype):
            once = _walk(values.cat.categories.to_series(), meaning, column)
            return _looked_up(once, values.cat.codes.to_numpy())
        values = pa.array(values, from_pandas=True)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    read = [_array(chunk, meaning, column) for chunk in chunks]
    if len(read) == 1:
        return read[0]
    return Read(
        np.concatenate([np.zeros(0), *(r.numbers for r in read)]),
        np.concatenate([np.zeros(0, bool), *(r.absent for r in read)]),
    )


def _one_by_one(values: Sequence[Any], meaning: Meaning) -> Read:
    absent = [is_missing(v) for v in values]
    numbers = [math.nan if gone else meaning(v) for v, gone in zip(values, absent, strict=True)]
    return Read(np.array(numbers, dtype=np.float64), np.array(absent, dtype=bool))


def _looked_up(once: Read, positions: npt.NDArray[np.integer]) -> Read:
    """The numbers of distinct cells, given to the rows that hold them; -1 is a missing value."""
    return Read(
        np.append(once.numbers, math.nan)[positions], np.append(once.absent, True)[positions]
    )


def _array(cells: pa.Array, meaning: Meaning, column: ColumnDomain | None) -> Read:
    import pyarrow as pa

    if pa.types.is_null(cells.type):
        return Read(np.full(len(cells), math.nan), np.ones(len(cells), dtype=bool))
    if not pa.types.is_dictionary(cells.type):
        if column is not None:
            _check_type(column, cells.type)
            typed = _typed(column, cells)
            if typed is not None:
                return typed
        cells = cells.dictionary_encode()
        once = _one_by_one(_objects(cells.dictionary), meaning)
    else:
        once = _array(cells.dictionary, meaning, column)
    return _looked_up(
        once, cells.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    )


def _objects(cells: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        try:
            return list(cells.to_numpy(zero_copy_only=False))
        except (
            ValueError,
            pa.ArrowException,
        ):  # a text that is not in UTF-8: the others are what they are
            pass
    return [_object(cell) for cell in cells]


def _object(cell: pa.Scalar) -> Any:
    """A Python value; where Python has none for the cell, such as a date after the year 9999,
    something that no column holds.
    """
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return b""


def _typed(column: ColumnDomain, cells: pa.Array) -> Read | None:
    """Numbers of a ranged column by their type alone, as `_meaning` has them one at a time; None
    where the type is another.
    """
    import pyarrow as pa

    kind = cells.type
    if (
        column.type != "datetime"
        and column.ranged
        and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
    ):
        numbers = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return Read(numbers, np.isnan(numbers))
    if column.type != "datetime" or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return None
    whole = cells.cast(pa.int32()) if pa.types.is_date32(kind) else cells
    ticks = whole.cast(pa.int64()).fill_null(0).to_numpy()
    step = RESOLUTION_SECONDS[column.resolution]
    if pa.types.is_date32(kind):
        steps = ticks * (86_400 // step)
    else:
        steps = np.floor_divide(
            ticks, step * TICKS["ms" if pa.types.is_date64(kind) else kind.unit]
        )
    absent = cells.is_null().to_numpy(zero_copy_only=False)
    return Read(np.where(absent, math.nan, steps), absent)


def _check_type(column: ColumnDomain, kind: pa.DataType) -> None:
    """The file's own type, which no row has a part in."""
    import pyarrow as pa

    is_ = pa.types
    zoned = is_.is_timestamp(kind) and kind.tz is not None
    nested = is_.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    plain = (
        is_.is_primitive(kind)
        or is_.is_decimal(kind)
        or is_.is_string(kind)
        or is_.is_large_string(kind)
        or is_.is_null(kind)
    )
    if zoned or nested or not plain or is_.is_duration(kind) or is_.is_interval(kind):
        what = (
            "times with a zone"
            if zoned
            else "nested values"
            if nested
            else f"values of type {kind}"
        )
        to = "local times without a zone" if zoned else "text, numbers or dates"
        raise DataError(
            f"column {column.name!r} of the source holds {what}, which are not read",
            hint=f"cast it to {to} in the source",
        )
