"""The checks of the other forms of the table: Parquet and two descriptions.

Parquet has the rows of the CSV, and both descriptions are those of spec and files.

A stranger's Parquet is opened with bounds on its footer, and a group of rows is only decoded if it
states the size that the spec's columns can have.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from synthdp.bundle.metadata.croissant import CROISSANT, croissant, written
from synthdp.bundle.metadata.datapackage import CSV_NAME, descriptor
from synthdp.bundle.metadata.parquet import PARQUET_NAME, arrow_schema, group_rows, row_groups
from synthdp.bundle.write import sha256
from synthdp.data.domain import Domain
from synthdp.verify.reader import Check, Reader

MAX_FOOTER = 64 << 20  # bytes of a text, and entries of a list, in Parquet's footer
PAGE_BYTES = 256  # what a page or a label takes beyond its content


def _check_parquet(reader: Reader) -> Iterator[str]:
    """The spec's columns and types, and in the same order the rows of the CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, path, csv = reader.spec.columns, reader.folder / PARQUET_NAME, reader.folder / CSV_NAME
    rows, size = reader.spec.sampling.rows or 0, group_rows(columns)
    try:
        with pq.ParquetFile(
            path, thrift_string_size_limit=MAX_FOOTER, thrift_container_size_limit=MAX_FOOTER
        ) as file:
            if not file.schema_arrow.equals(arrow_schema(columns), check_metadata=True):
                yield f"{PARQUET_NAME}: its columns and types are not the spec's"
            elif file.metadata.num_rows != rows or file.metadata.num_row_groups != -(-rows // size):
                yield f"{PARQUET_NAME}: does not hold the spec's {rows} rows in groups of {size}"
            elif not all(
                _plausible(file.metadata.row_group(i), reader, size)
                for i in range(file.metadata.num_row_groups)
            ):
                yield f"{PARQUET_NAME}: a group of rows is larger than the spec's columns can be"
            elif not _same_rows(file, row_groups(csv, columns)):
                yield f"{PARQUET_NAME}: its rows are not those of {CSV_NAME}"
    except (pa.ArrowException, OSError, ValueError) as error:
        yield (
            f"{PARQUET_NAME}: cannot be read and compared with {CSV_NAME} ({type(error).__name__})"
        )


def _plausible(group: Any, reader: Reader, size: int) -> bool:
    """Whether a group of rows states no more rows and bytes than it can have.

    The bound counts dictionaries of all labels, and at most one number in a cell.
    """
    columns = Domain.written(reader.spec.columns).columns
    labels = sum(len(label.encode()) + PAGE_BYTES for column in columns for label in column.labels)
    return bool(
        group.num_rows <= size
        and group.total_byte_size
        <= labels + len(columns) * PAGE_BYTES + 24 * group.num_rows * len(columns)
    )


def _same_rows(file: Any, expected: Iterator[Any]) -> bool:
    groups = (file.read_row_group(i) for i in range(file.metadata.num_row_groups))
    return all(
        a is not None and b is not None and a.equals(b) for a, b in zip_longest(groups, expected)
    )


def _check_datapackage(reader: Reader) -> Iterator[str]:
    """The description is the one that the spec and the table give."""
    path = reader.folder / CSV_NAME
    expected = descriptor(
        reader.spec, run=reader.run, csv_bytes=path.stat().st_size, csv_sha256=sha256(path)
    )
    if reader.json("datapackage.json") != expected:
        yield f"datapackage.json: does not describe {CSV_NAME} as the spec does"


def _check_croissant(reader: Reader) -> Iterator[str]:
    """The description is the one that spec, certificate and both files give."""
    if reader.certificate is None:
        return
    csv, parquet = (
        written(reader.folder / n, sha256(reader.folder / n)) for n in (CSV_NAME, PARQUET_NAME)
    )
    if reader.json(CROISSANT) != croissant(
        reader.spec, reader.certificate, day=reader.day, csv=csv, parquet=parquet
    ):
        yield (
            f"{CROISSANT}: does not describe the table as spec.yaml and privacy/certificate.json do"
        )


FORM_CHECKS: dict[str, tuple[str, Check]] = {
    "parquet": (PARQUET_NAME, _check_parquet),
    "description": ("datapackage.json", _check_datapackage),
    "croissant": (CROISSANT, _check_croissant),
}
