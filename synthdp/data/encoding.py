"""Values to levels and back, by the public domain alone.

`encode` never fails on a value: what lies outside the domain is clamped and counted, so that the
caller can refuse or go on as the spec says. `decode` draws a value inside each bin uniformly (whole
numbers: uniformly over the bin's whole numbers that are not spikes), so synthetic values never
repeat a real one by design.

`read_values` is the only way from a table's cells to numbers. Every column comes to it as Arrow
cells of a declared type or as Python objects (SQL), and leaves as one number a row: a value on the
column's scale, the position of a category, or NaN where it is neither.

Each row by itself [proof, by construction]. Let f be a function of one value, made from the
column's declaration alone (`ColumnKind.meaning`, or `id_text`). The number of row i is f(value i),
whatever stands in other rows:

- `_one_by_one` is a comprehension of f over the values; it keeps nothing from one to the next.
- `_array` lists the distinct cells of an array, of one Arrow type, takes f of each, and gives each
  row the number of its own cell. Arrow holds cells for one if their type and bits are equal, so
  that they are the same Python value; but -0.0 and 0.0 may share a cell, and all NaN do: f says the
  same of -0.0 and 0.0, and NaN is missing. Python's own equality (1 == 1.0 == True, Decimal("1") ==
  Decimal("1.0")) is asked nowhere. Cells of a type without dictionaries are first cast, each by
  itself, to one that holds all its values exactly.
- A code of the column that stands for a missing value is found in the same way: by the text of that
  value, or, in ranges, by its number.
- `ColumnKind.typed` converts numbers and instants cell by cell, by an operation that the array's
  type names: never one that looks for a type, a unit or a format in the cells.

A row cannot change the type of the others' cells either: CSV cells are all text, Parquet cells have
the type that the file declares, and Python objects stay what the database's driver made of each. A
DataFrame's cells have the dtypes that it was given with (`synthdp.privacy.readers.files`). pandas'
own readers (`to_datetime`, `to_numeric`, `read_sql`) look at whole columns, and are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import Meaning, category_text, id_text, is_missing
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.kind import Codes as Codes
from synthdp.data.kinds.kind import EncodedColumn as EncodedColumn
from synthdp.data.kinds.kind import Floats, Read, missing_in
from synthdp.errors import DataError, SynthdpError, instead

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


Cells: TypeAlias = "pd.Series[Any] | pa.Array | pa.ChunkedArray"


def encode_column(column: ColumnDomain, values: Cells) -> EncodedColumn:
    """The levels of `values`.

    A misfit becomes the nearest level of a range, or the first category; misfits are counted. So
    are missing values of a column that declares none, which get the first level. Each row's level
    depends on its own value alone: what follows `read_values` here computes row by row.
    """
    return column_kind(column).encode(column, read_values(column, values))


def to_numbers(column: ColumnDomain, values: pd.Series[Any]) -> Floats:
    """Values on the column's numeric scale, shape `[rows]`; NaN where missing or not a number."""
    return read_values(column, values).numbers


def operand_values(
    column: ColumnDomain, codes: npt.NDArray[np.integer], values: pd.Series[Any] | None
) -> npt.NDArray[np.float64]:
    """A column as expressions read it, `[rows]`: its levels, and its values if it is a range.

    Categories are positions, dates days since 1970, and missing values NaN.
    """
    if not column.ranged:
        missing = column.levels if column.missing_level is None else column.missing_level
        return np.where(codes == missing, np.nan, codes.astype(np.float64))
    assert values is not None
    steps = to_numbers(column, values)
    return steps if column.step_seconds is None else steps * column.step_seconds / 86_400


def decode_column(
    column: ColumnDomain, codes: npt.NDArray[np.integer], *, rng: np.random.Generator
) -> pd.Series[Any]:
    """Values for levels: categories, or drawn inside their bins; missing as None, NaN or NaT."""
    return column_kind(column).decode(column, codes, rng)


def encode(domain: Domain, frame: pd.DataFrame) -> tuple[Codes, dict[str, EncodedColumn]]:
    """Levels of a whole table, `[rows, columns]`, and each column's misfit counts (confidential).

    >>> import pandas as pd
    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> codes, encoded = encode(
    ...     Domain.from_spec({"sex": sex}), pd.DataFrame({"sex": ["male", "female", "male"]})
    ... )
    >>> codes.ravel().tolist(), encoded["sex"].misfits
    ([1, 0, 1], 0)
    """
    encoded = {c.name: encode_column(c, frame[c.name]) for c in domain.columns}
    if not len(frame):
        return np.zeros((0, len(domain)), np.uint16), encoded
    return np.column_stack([encoded[n].codes for n in domain.names]), encoded


def cleaned(columns: Iterable[ColumnDomain], encoded: Mapping[str, EncodedColumn]) -> pd.DataFrame:
    """Values as the domain knows them: clamped numbers, declared categories, missing where
    declared.

    A row's values are those of its own cells: `ColumnKind.values` converts row by row.
    """
    import pandas as pd

    found: dict[str, pd.Series[Any]] = {}
    for column in columns:
        own = encoded[column.name]
        numbers = own.codes if own.numbers is None else own.numbers
        missing = missing_in(column, own.codes)
        found[column.name] = column_kind(column).values(column, numbers, missing)
    rows = max((len(own.codes) for own in encoded.values()), default=0)
    return pd.DataFrame(found, index=pd.RangeIndex(rows))


def decode(domain: Domain, codes: Codes, *, rng: np.random.Generator) -> pd.DataFrame:
    """A table of values for levels of shape `[rows, columns]`.

    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> codes = np.array([[1], [0]], dtype=np.uint16)
    >>> frame = decode(Domain.from_spec({"sex": sex}), codes, rng=np.random.default_rng(1))
    >>> frame["sex"].tolist()
    ['male', 'female']
    """
    import pandas as pd

    columns = enumerate(domain.columns)
    return pd.DataFrame({c.name: decode_column(c, codes[:, i], rng=rng) for i, c in columns})


def read_values(column: ColumnDomain, values: Cells) -> Read:
    """Each value on the column's numeric scale, or as the position of its category.

    Raises:
        DataError: the values are of a type that no column holds, such as lists or times with a
            zone.
    """
    meaning = column_kind(column).meaning(column)
    own = values.dtype if hasattr(values, "dtype") else values.type
    read = instead(
        lambda: _walk(values, meaning, column),
        lambda error: DataError(
            f"column {column.name!r} of the source is of type {own}, which cannot be read as type"
            f" {column.type} ({type(error).__name__})",
            hint="cast it to text, numbers or dates in the source",
        ),
    )
    if not (column.ranged and column.missing_codes):
        return read
    gone = np.isin(read.numbers, list(map(meaning, column.missing_codes)))
    return Read(np.where(gone, math.nan, read.numbers), read.absent | gone)


def places_by(values: Cells, place: Callable[[str], int]) -> npt.NDArray[np.int64]:
    """`place` of each text, shape `[rows]`: of that text alone, as above.

    Raises:
        ValueError: a value is missing.
    """
    read = _walk(values, place, None)
    if read.absent.any():
        raise ValueError("texts are never missing")
    return read.numbers.astype(np.int64)


def unit_numbers(values: Cells, known: dict[str, int] | None = None) -> npt.NDArray[np.int64]:
    """A number for each row, the same exactly where `id_text` is; -1 without an id.

    `known` has the numbers of ids so far, and gets those of new ones.
    """
    known = {} if known is None else known
    return _units(values, lambda text: known.setdefault(text, len(known)))


def unit_texts(values: Cells) -> npt.NDArray[np.object_]:
    """`id_text` of each row's id, empty where there is none."""
    known: dict[str, int] = {}
    numbers = unit_numbers(values, known)
    return np.asarray(np.array([*known, ""], dtype=object)[numbers])


def unit_places(values: Cells, known: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The number that `known` has for `id_text` of each row's id; -1 without an id, and -2 for one
    that it has not.
    """
    return _units(values, lambda text: known.get(text, -2))


def _units(values: Cells, place: Callable[[str], int]) -> npt.NDArray[np.int64]:
    def number(value: Any) -> float:
        text = id_text(value)
        return place(text) if text else math.nan

    return np.nan_to_num(_walk(values, number, None).numbers, nan=-1).astype(np.int64)


def _walk(values: Cells, meaning: Meaning, column: ColumnDomain | None) -> Read:
    """`meaning` of each value; `column` says which are converted without a look at each."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(values, pd.Series):
        if isinstance(values.dtype, pd.CategoricalDtype):
            once = _walk(values.cat.categories.to_series(), meaning, column)
            return _looked_up(once, values.cat.codes.to_numpy())
        dense = values
        if isinstance(values.dtype, pd.SparseDtype):
            dense = pd.Series(values.array.to_dense())
        # Of Python's objects Arrow would make one type, and of texts UTF-8, or refuse all of them.
        texts = isinstance(dense.dtype, pd.StringDtype) and dense.dtype.storage == "python"
        if texts or (dense.dtype.kind == "O" and not hasattr(dense.array, "__arrow_array__")):
            return _one_by_one(dense.tolist(), meaning, column)
        values = pa.array(dense, from_pandas=True)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return _joined([_array(chunk, meaning, column) for chunk in chunks])


def _one_by_one(values: Sequence[Any], meaning: Meaning, column: ColumnDomain | None) -> Read:
    codes = frozenset(column.missing_codes) if column else frozenset[str]()
    text = column_kind(column).text_of(column) if column else category_text
    try:
        absent = [is_missing(v) or (bool(codes) and text(v) in codes) for v in values]
        numbers = [math.nan if gone else meaning(v) for v, gone in zip(values, absent, strict=True)]
    except SynthdpError:
        raise
    except Exception:  # what the type of a value raises is a misfit of its own row, found by halves
        if len(values) == 1:
            return Read(np.full(1, math.nan), np.zeros(1, dtype=bool))
        parts = values[: len(values) // 2], values[len(values) // 2 :]
        return _joined([_one_by_one(part, meaning, column) for part in parts])
    return Read(np.array(numbers, dtype=np.float64), np.array(absent, dtype=bool))


def _joined(read: Sequence[Read]) -> Read:
    return Read(
        np.concatenate([np.zeros(0), *(r.numbers for r in read)]),
        np.concatenate([np.zeros(0, bool), *(r.absent for r in read)]),
    )


def _looked_up(once: Read, positions: npt.NDArray[np.integer]) -> Read:
    """The numbers of distinct cells, given to the rows that hold them; -1 is a missing value."""
    numbers, absent = np.append(once.numbers, math.nan), np.append(once.absent, True)
    return Read(numbers[positions], absent[positions])


def _array(cells: pa.Array, meaning: Meaning, column: ColumnDomain | None) -> Read:
    import pyarrow as pa

    if pa.types.is_null(cells.type):
        return Read(np.full(len(cells), math.nan), np.ones(len(cells), dtype=bool))
    if not pa.types.is_dictionary(cells.type):
        if column is not None:
            _check_type(column, cells.type)
            typed = column_kind(column).typed(column, cells)
            if typed is not None:
                return typed
        cells = _with_dictionary(cells).dictionary_encode()
        once = _one_by_one(_objects(cells.dictionary), meaning, column)
    else:
        once = _array(cells.dictionary, meaning, column)
    places = cells.indices.cast(pa.int64()).fill_null(-1)
    return _looked_up(once, places.to_numpy(zero_copy_only=False))


def _with_dictionary(cells: pa.Array) -> pa.Array:
    """The same values in a type that Arrow has dictionaries of, which holds all of them exactly."""
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_float16(kind):
        return cells.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return cells.cast(pa.decimal128(kind.precision, kind.scale))
    return cells


def _objects(cells: pa.Array) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        # A text may not be in UTF-8: the others are what they are.
        with suppress(ValueError, pa.ArrowException):
            return list(cells.to_numpy(zero_copy_only=False))

    def value(cell: pa.Scalar) -> Any:
        try:
            return cell.as_py()
        except (ValueError, OverflowError):  # Python has no such value, and no column holds one
            own = cell.as_buffer() if hasattr(cell, "as_buffer") else f"\xff{cell.value}"
            return own.encode("latin-1") if isinstance(own, str) else bytes(own)

    return list(map(value, cells))


def _check_type(column: ColumnDomain, kind: pa.DataType) -> None:
    """The file's own type, which no row has a part in."""
    import pyarrow as pa

    is_ = pa.types
    zoned = is_.is_timestamp(kind) and kind.tz is not None
    nested = is_.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    allowed = (is_.is_primitive, is_.is_decimal, is_.is_string, is_.is_large_string, is_.is_null)
    refused = nested or is_.is_duration(kind) or is_.is_interval(kind)
    if zoned or refused or not any(test(kind) for test in allowed):
        what = "nested values" if is_.is_nested(kind) else f"values of type {kind}"
        what = "times with a zone" if zoned else what
        to = "local times without a zone" if zoned else "text, numbers or dates"
        message = f"column {column.name!r} of the source holds {what}, which are not read"
        raise DataError(message, hint=f"cast it to {to} in the source")
    if is_.is_time(kind) and column.ranged:
        raise DataError(
            f"column {column.name!r} of the source holds times of day, which type {column.type}"
            " does not read",
            hint="make them a number in the source, such as minutes since midnight; or declare"
            " categories such as 08:30:00",
        )
