"""The synthetic table as Parquet: the rows of the CSV, with the types that the spec declares.

Categories are dictionaries in the spec's order (ordered for ordinals), booleans are booleans, days
are dates, and what is missing is null. It is made from the CSV itself, so that the two cannot
differ; `verify` makes it again and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synthdp.bundle.metadata.datapackage import check_header
from synthdp.data.kinds import column_kind
from synthdp.spec.model import Column

PARQUET_NAME = "synthetic.parquet"
MAX_CELLS, MIN_ROWS, MAX_ROWS = 4_000_000, 1_000, 100_000  # of a row group
MAX_DICTIONARY = (
    1 << 30
)  # bytes: beyond it categories would be written as plain text, and lose their order
CSV_BLOCK = 16 << 20  # bytes read at once; no line is longer


def write_parquet(csv: Path, columns: Mapping[str, Column], path: Path) -> None:
    """Write the bundle's CSV as Parquet, group of rows by group of rows."""
    import pyarrow.parquet as pq

    schema = arrow_schema(columns)
    with pq.ParquetWriter(
        path, schema, compression="zstd", dictionary_pagesize_limit=MAX_DICTIONARY
    ) as writer:
        for group in row_groups(csv, columns):
            writer.write_table(group, row_group_size=group_rows(columns))


def group_rows(columns: Mapping[str, Column]) -> int:
    """Rows of every row group but the last."""
    return min(MAX_ROWS, max(MIN_ROWS, MAX_CELLS // len(columns)))


def arrow_schema(columns: Mapping[str, Column]) -> Any:
    """The `pyarrow.Schema` of a table: types, and descriptions and units as field metadata."""
    import pyarrow as pa

    def field(name: str, column: Column) -> Any:
        said = {"description": column.description, "unit": column.unit}
        return pa.field(
            name,
            column_kind(column).arrow_type(column),
            nullable=column.missing,
            metadata={k: v for k, v in said.items() if v} or None,
        )

    return pa.schema([field(name, column) for name, column in columns.items()])


def row_groups(csv: Path, columns: Mapping[str, Column]) -> Iterator[Any]:
    """The rows of a bundle's CSV as `pyarrow.Table`s of `group_rows` rows, the last one shorter.

    Raises:
        VerifyError: the header is not the columns'.
        ValueError: a value is not of its column, or a row has other fields than the header
            (pyarrow's errors are of this kind).
    """
    import pyarrow as pa
    from pyarrow import csv as reader

    size, schema, held = group_rows(columns), arrow_schema(columns), []
    read = reader.ReadOptions(block_size=CSV_BLOCK)
    text = reader.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    check_header(csv, list(columns))
    with reader.open_csv(csv, read_options=read, convert_options=text) as batches:
        for batch in batches:
            arrays = [
                column_kind(column).arrow_array(column, batch.column(name))
                for name, column in columns.items()
            ]
            held.append(pa.Table.from_arrays(arrays, schema=schema))
            while sum(map(len, held)) >= size:
                whole = pa.concat_tables(held)
                yield whole.slice(0, size)
                held = [whole.slice(size)]
    if sum(map(len, held)):
        yield pa.concat_tables(held)


def typed_frame(csv: Path, columns: Mapping[str, Column]) -> Any:
    """A bundle's CSV as a pandas DataFrame of the columns' own types; raises as `row_groups`.

    Categories are categorical (ordered for ordinals). Whole numbers and booleans of columns that
    may be missing are `Int64` and `boolean`; instants are `datetime64`.
    """
    import pandas as pd
    import pyarrow as pa

    table = pa.concat_tables([arrow_schema(columns).empty_table(), *row_groups(csv, columns)])
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return pd.DataFrame(
        {
            name: table.column(name).to_pandas(
                date_as_object=False, types_mapper=nullable.get if column.missing else None
            )
            for name, column in columns.items()
        }
    )
