"""Tables in CSV and Parquet files, and DataFrames in their place.

Files may be damaged or made to do harm: they are opened as plain local files, within bounds.

Libraries that are given a path may take it for an address to fetch, a home folder to expand or an
archive to unpack. Here a path is only ever the name of a regular file (or, for Parquet, of a folder
of them); absolute paths and links are followed, since a steward names what a steward may read.
Column names are looked at before any row.

A Parquet table that is larger than memory is read as levels, batch by batch (`encode_batches`).
What stays in memory is one byte per value (two where a column has more than 256 levels) and one
batch of rows; cleaned values are not kept, so that nothing can be judged on such a table. Every row
is a unit of its own: bounding the rows of a unit needs all of its rows at once.

Which columns of a source are read, and under which names (`choice`: `drop` and `rename` of the
spec), are facts of the spec and of the header, found without a row.

A pandas DataFrame that is given from Python is sealed where it enters (`seal_dataframe`) and is
opened by the kernel's reader alone. Its cells then take the same way as those of a file: one value
at a time (`synthdp.data.encoding`).

The table is the frame as it was given, its dtypes included. A neighbouring table is a frame of the
same dtypes with the rows of one unit more or less. So no dtype may follow from the rows: where
pandas infers one, as `read_csv` does, a single odd value makes a column of numbers a column of
text. Declare the dtypes, or read every column as text.
"""

from __future__ import annotations

import csv
import io
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, EncodedColumn, encode_column
from synthdp.errors import DataError
from synthdp.privacy.private import _KERNEL_KEY, Private
from synthdp.privacy.readers.checks import check_columns, few, told_alike
from synthdp.spec.model import (
    ChosenColumns,
    Column,
    Integer,
    Number,
    ParquetSource,
    Source,
    SqlSource,
)

MAX_HEADER = 1_000_000  # bytes of the line that names the columns
MAX_CELL = 1 << 16  # bytes of a text in a Parquet file: far more than any category has
# How files begin that are none of text, and how the CSV parser's errors do (they go on with the
# row).
NOT_TEXT = {
    "compressed": (b"\x1f\x8b", b"PK\x03\x04", b"BZh91AY&SY", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"),
    "in UTF-16 or UTF-32": (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"),
}
CSV_ERRORS = {
    r"CSV parse error: (Row #\d+: )?Expected ": (
        "a row has more or fewer fields than the first line"
    ),
    r"In CSV column #\d+: (Row #\d+: )?CSV conversion error to string: invalid UTF8": (
        "a text is not in UTF-8"
    ),
}
UNPACKED = (
    1 << 30
    # bytes that a Parquet file may unpack to, whatever its size; beyond, at most RATIO times its
    # size
)
RATIO = 100

CheckNames = Callable[[Sequence[str]], object]
ChooseNames = Callable[[Sequence[str]], Mapping[int, str]]
"""From the names of a file's columns: the places that are read."""
CheckRows = Callable[[int], None]


def read_csv_file(
    path: Path,
    *,
    delimiter: str,
    missing: tuple[str, ...],
    check: CheckNames,
    utf8: bool = True,
) -> pd.DataFrame:
    """All columns as text, missing where the text is one of `missing`. `check` sees the column
    names before a row is read. Unless all must be `utf8`, other bytes are texts that fit nowhere.

    Raises:
        DataError: the file is not what it should be; other errors are the library's, and may quote
            a row.
    """

    with _open(path) as file:
        names = _header(file, delimiter)
        check(names)
        file.seek(0)
        table, problem = _parsed(file, names, delimiter, missing, utf8)
    if (
        table is None
    ):  # out here, so that the library's error, which quotes a row, does not hang on it
        hint = (
            "save the table as CSV in UTF-8, with as many fields in each line as the first one has;"
            " check the delimiter"
        )
        raise DataError(f"cannot read {path.name!r} as csv: {problem}", hint=hint)
    if table.column_names != list(names):
        raise DataError(
            "the header cannot be read",
            hint="the first line must name the columns, without line breaks",
        )
    _check_lines(table)
    return frame_of(table)


def _parsed(
    file: BinaryIO, names: tuple[str, ...], delimiter: str, missing: tuple[str, ...], utf8: bool
) -> tuple[pa.Table | None, str]:
    """Every field as a text, whatever stands in it; or none, and what is wrong."""
    from pyarrow import csv as arrow_csv

    try:
        # 16 << 20: bytes; no row of a CSV file is longer than two of them
        table = arrow_csv.read_csv(
            file,
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=16 << 20),
            # An empty line is a missing value where there is one column, and nothing otherwise.
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=list(missing),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                check_utf8=utf8,
            ),
        )
    except pa.ArrowInvalid as error:
        known = [told for begins, told in CSV_ERRORS.items() if re.match(begins, str(error))]
        return None, known[0] if known else "it is no table (ArrowInvalid)"
    return table, ""


def _open(path: Path) -> BinaryIO:
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(
            f"{path.name!r} is not a plain file",
            hint="name a file; folders, pipes and devices are not read",
        )
    return path.open("rb")


def _header(file: BinaryIO, delimiter: str) -> tuple[str, ...]:
    """The names in the first line. What is wrong is told by position: without a header this would
    be a row.
    """
    start = file.read(MAX_HEADER + 1)
    for what, beginnings in NOT_TEXT.items():
        if start.startswith(beginnings):
            raise DataError(
                f"cannot read {Path(file.name).name!r} as csv: it is {what}",
                hint="unpack it and save it as CSV in UTF-8",
            )
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if len(line) > MAX_HEADER:
        raise DataError(
            f"the first line is longer than {MAX_HEADER:,} bytes",
            hint="is this a CSV file with a header?",
        )
    text = line.decode("utf-8-sig", errors="replace")
    if "\ufffd" in text:
        raise DataError(
            f"cannot read {Path(file.name).name!r} as csv: its first line is not in UTF-8",
            hint="save the table as CSV in UTF-8",
        )
    names = tuple(next(csv.reader(io.StringIO(text), delimiter=delimiter), ()))
    seen = Counter(name for name in names if name)  # several without a name can be dropped
    if twice := [str(i) for i, name in enumerate(names, start=1) if seen[name] > 1]:
        raise DataError(
            f"the header repeats a name, at positions {', '.join(twice[:20])}",
            hint="give every column a name of its own",
        )
    return names


def _check_lines(table: pa.Table) -> None:
    """Each row is one line of the file: a field with a line break would have made a row of several.

    A quotation mark that is never closed takes other rows into its field, so that one row would
    decide how others are read. No category holds a line break, so nothing that is declared is lost.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if any(pc.any(pc.match_substring(column, end)).as_py() for end in ("\n", "\r")):
            raise DataError(
                f"a value of column {name!r} holds a line break, and a row of a CSV file is one"
                " line",
                hint=(
                    "look for a quotation mark that is never closed, or take line breaks out of the"
                    " source"
                ),
            )


def frame_of(table: pa.Table) -> pd.DataFrame:
    """The same cells of the same types: nothing is converted, since that would look at whole
    columns.
    """
    frame = pd.DataFrame(
        {
            place: pd.Series(pd.arrays.ArrowExtensionArray(column))
            for place, column in enumerate(table.columns)
        }
    )
    return frame.set_axis(table.column_names, axis="columns")


def read_parquet_files(path: Path, *, choose: ChooseNames, check_rows: CheckRows) -> pd.DataFrame:
    """The chosen columns of the table in a Parquet file or a folder of them, under their own names.
    Names, rows and size are checked before a row is read.

    Raises:
        DataError: the files are not what they should be; other errors are the library's, and may
            quote a row.
    """
    dataset, _, _, names = _open_parquet(path, choose, check_rows)
    table = dataset.read(columns=names, use_threads=False).select(names)
    for column in table.columns:
        _check_cells(column)
    return frame_of(table.unify_dictionaries())


def parquet_batches(
    path: Path, *, choose: ChooseNames, check_rows: CheckRows, batch_rows: int
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The same table, its number of rows and batches of at most `batch_rows` of them, one in memory
    at a time.

    Raises:
        DataError: as above, some of it only while the batches are read.
    """
    import pyarrow.parquet as pq

    dataset, rows, texts, names = _open_parquet(path, choose, check_rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for fragment in dataset.fragments:
            with _open(Path(fragment.path)) as file:
                for batch in pq.ParquetFile(
                    file, read_dictionary=texts, pre_buffer=False
                ).iter_batches(batch_rows, columns=names, use_threads=False):
                    batch = batch.select(names)
                    for column in batch.columns:
                        _check_cells(pa.chunked_array([column]))
                    yield batch

    return rows, batches()


def _open_parquet(
    path: Path, choose: ChooseNames, check_rows: CheckRows
) -> tuple[Any, int, list[str], list[str]]:
    """The files as one dataset, checked but for their values; its rows, the columns of text, and
    those that are chosen.
    """
    import pyarrow.fs
    import pyarrow.parquet as pq

    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if not (file.is_dir() and file != path):
            _open(file).close()
    # Names of folders are no columns: their types would follow from all of them together, and a
    # folder is there because a row is.
    plain: dict[str, Any] = {"filesystem": pyarrow.fs.LocalFileSystem(), "partitioning": None}
    found = pq.ParquetDataset(str(path), **plain)
    _check_alike([fragment.physical_schema for fragment in found.fragments])
    texts = [f.name for f in found.schema if _is_text(f.type)]
    # As dictionaries, so that a long text that is repeated is in memory once.
    dataset = pq.ParquetDataset(str(path), read_dictionary=texts, **plain)
    names = [dataset.schema.names[i] for i in choose(dataset.schema.names)]
    metadata = [fragment.metadata for fragment in dataset.fragments]
    rows = sum(m.num_rows for m in metadata)
    check_rows(rows)
    unpacked = sum(
        m.row_group(i).total_byte_size for m in metadata for i in range(m.num_row_groups)
    )
    if unpacked > UNPACKED + RATIO * sum(f.stat().st_size for f in files if f.is_file()):
        raise DataError(
            f"the file unpacks to more than {RATIO} times its size",
            hint="this is no table that was written in good faith",
        )
    return dataset, rows, texts, names


def _check_alike(schemas: Sequence[pa.Schema]) -> None:
    """Files of other types would be read as the first one's, so that one file decided how the
    values of another are read.
    """
    columns = [
        [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
        for schema in schemas
    ]
    if any(own != columns[0] for own in columns):
        raise DataError(
            "the Parquet files of the folder differ in the names, order or types of their columns",
            hint=(
                "write all of them with one schema; names of folders such as year=2024 are not read"
                " as columns"
            ),
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _check_cells(column: pa.ChunkedArray) -> None:
    values: Any = column
    for chunk in values.chunks:
        texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        longest = (
            pc.max(pc.binary_length(texts)).as_py() if _is_text(texts.type) and len(texts) else None
        )
        if longest is not None and longest > MAX_CELL:
            raise DataError(
                f"a text is longer than {MAX_CELL:,} bytes",
                hint="no category is; drop the column from the source",
            )


# --- streaming ---


BATCH_ROWS = 131_072


def encode_batches(
    domain: Domain, batches: Iterator[pa.RecordBatch], *, rows: int
) -> tuple[Codes, dict[str, EncodedColumn]]:
    """Levels `[rows, columns]` of all batches, and each column's misfits (confidential; without its
    levels).

    Raises:
        ValueError: the batches hold another number of rows.
    """
    codes = np.empty(
        (rows, len(domain)), dtype=np.uint8 if max(domain.sizes, default=1) <= 256 else np.uint16
    )
    misfits = dict.fromkeys(domain.names, (0, 0, 0))
    done = 0
    for batch in batches:
        for i, column in enumerate(domain.columns):
            encoded = encode_column(column, batch.column(column.name))
            codes[done : done + batch.num_rows, i] = encoded.codes
            wrong, outside, missing = misfits[column.name]
            misfits[column.name] = (
                wrong + encoded.wrong_type,
                outside + encoded.outside,
                missing + encoded.unexpected_missing,
            )
        done += batch.num_rows
    if done != rows:
        raise ValueError("another number of rows than the files say")
    nothing = np.zeros(0, dtype=np.uint16)
    # Of one byte each where that does: whoever computes on levels widens them first, as for two
    # bytes.
    return cast("Codes", codes), {
        name: EncodedColumn(nothing, *found) for name, found in misfits.items()
    }


# --- chosen ---


Choose = Callable[[Sequence[str]], dict[int, str]]
"""From a table's column names: the places that are read, each with its name in the spec."""


def choice(source: Source, domain: Domain, id_column: str | None) -> Choose:
    """What the spec reads of a table; it refuses a table whose columns are not the declared ones.

    Raises:
        DataError: (when called) the names do not fit the spec.
    """

    apart = isinstance(source, ParquetSource | SqlSource)  # names lie apart from the rows

    def choose(names: Sequence[str]) -> dict[int, str]:
        if not isinstance(source, ChosenColumns):
            check_columns(names, domain, id_column, apart=apart)
            return dict(enumerate(names))
        wanted = [*source.drop, *source.rename]
        if lost := [name for name in wanted if name not in set(names)]:
            alike = told_alike(lost, {name: i for i, name in enumerate(names)})
            told = f"dataset.source drops or renames {few(map(repr, lost))}, which the table lacks"
            raise DataError(
                "; ".join([told, *alike]),
                hint="names must be the source's own, letter by letter; take out what it lacks",
            )
        kept = {
            i: source.rename.get(name, name)
            for i, name in enumerate(names)
            if name not in source.drop
        }
        check_columns(list(kept.values()), domain, id_column, places=list(kept), apart=apart)
        return kept

    return choose


def chosen_frame(
    frame: pd.DataFrame, choose: Choose, *, commas: Sequence[str] = ()
) -> pd.DataFrame:
    """The columns of a frame that are read, with their names in the spec.

    Texts of numbers in the columns `commas` have a comma before their decimals; each gets a point.
    """
    kept = choose([str(name) for name in frame.columns])
    chosen = frame.iloc[:, list(kept)].set_axis(list(kept.values()), axis="columns")
    return chosen.assign(**{name: with_point(chosen[name]) for name in commas if name in chosen})


def with_point(texts: pd.Series[str]) -> pd.Series[str]:
    """Each text with points for its commas and commas for its points: 1.5 is then no number."""
    for old, new in ((".", "\0"), (",", "."), ("\0", ",")):
        texts = texts.str.replace(old, new, regex=False)
    return texts


# --- dataframe ---


HINT = (
    "give the rows from Python: `synthdp.Spec.load(SPEC).release(df, out=OUT)`, or"
    " `synthdp.resume(OUT, df)` for an interrupted run; of linked tables one for each of them,"
    " as {TABLE: df}"
)


def seal_dataframe(frame: object) -> Private[pd.DataFrame]:
    """Seal a DataFrame. What its owner changes in it afterwards is not seen.

    Raises:
        DataError: `frame` is no DataFrame.
    """
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"rows are given as a pandas DataFrame, and this is a {type(frame).__name__}",
            hint="make one of it, with a column for each column of the spec",
        )
    return Private(frame.copy(deep=False), key=_KERNEL_KEY)


def told_inferred(
    frame: object, columns: Mapping[str, Column], rename: Mapping[str, str]
) -> str | None:
    """A warning, where pandas seems to have inferred the dtypes of declared numbers.

    It is made of names and dtypes alone, which are the same in a neighbouring table: it tells
    nothing of rows that the guarantee is on.
    """
    dtypes = frame.dtypes.items() if isinstance(frame, pd.DataFrame) else ()
    found = {rename.get(str(name), str(name)): dtype for name, dtype in dtypes}
    numbers = {
        n: found[n] for n, c in columns.items() if isinstance(c, Integer | Number) and n in found
    }
    texts = {name for name, dtype in numbers.items() if pd.api.types.is_string_dtype(dtype)}
    odd = [
        name
        for name, dtype in numbers.items()
        if (name in texts and len(texts) < len(numbers))
        or (isinstance(columns[name], Integer) and dtype in (np.float64, np.float32))
    ]
    if not odd:
        return None
    return (
        f"columns {few(map(repr, odd))} of the DataFrame hold whole numbers as decimals, or numbers"
        " as text beside others that are none, as where pandas infers dtypes from the rows: one"
        " unit may then change how others are read, which the guarantee does not cover; read text"
        ' (dtype="str") or state the dtypes'
    )


def open_dataframe(
    sealed: Private[pd.DataFrame] | None,
    *,
    check: Callable[[Sequence[str]], object],
    check_rows: Callable[[int], None],
) -> pd.DataFrame:
    """The rows of a sealed DataFrame, without its index. `check` sees the columns' names first.

    Raises:
        DataError: no rows were given, `check` or `check_rows` refuse them, or a column holds times
            with a zone.
    """
    if sealed is None:
        raise DataError("dataset.source is a DataFrame, and no rows were given", hint=HINT)
    frame = sealed.unseal(key=_KERNEL_KEY)
    names = [str(name) for name in frame.columns]
    check(names)
    check_rows(len(frame))
    zoned = [
        name
        for name, dtype in zip(names, frame.dtypes, strict=True)
        if isinstance(dtype, pd.DatetimeTZDtype)
    ]
    if zoned:
        raise DataError(
            f"column {zoned[0]!r} of the DataFrame holds times with a zone, which are not read",
            hint="make them local times without a zone, as `dt.tz_localize(None)` does",
        )
    return frame.set_axis(names, axis="columns").reset_index(drop=True)
