"""A stream of tables into one file, block by block: CSV as in a bundle, or Parquet; or typed."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from synthdp.bundle.table_files import typed_frame, write_csv_blocks
from synthdp.errors import OutputError, disk_errors
from synthdp.files import draft_of
from synthdp.spec.model import Column

SUFFIXES = (".csv", ".parquet")


def check_file(out: Path) -> None:
    """Whether a sample can be written to `out`.

    Raises:
        OutputError: its name ends in something else than a known format, or its folder does not
            exist.
    """
    if out.suffix not in SUFFIXES:
        raise OutputError(
            f"{out.name}: the format follows from the end of the name, and this is none",
            hint=f"known are {', '.join(SUFFIXES)}",
        )
    if out.is_dir() or not out.parent.is_dir():
        raise OutputError(
            f"{out}: is a folder, or lies in one that does not exist",
            hint="name a file in a folder that exists",
        )


def write_blocks(
    blocks: Iterator[pd.DataFrame], columns: Mapping[str, Column], out: Path | None
) -> None:
    """Write to `out`, or as CSV to stdout.

    The file appears complete or not at all, also after an interruption.

    Raises:
        OutputError: the file cannot be written.
    """
    if out is None:
        write_csv_blocks(blocks, columns, sys.stdout)
        return
    check_file(out)
    hint = "check the folder, its permissions and the space on its disk"
    with disk_errors(f"{out}: cannot be written", hint=hint), draft_of(out) as draft:
        if out.suffix == ".parquet":
            _write_parquet(blocks, draft)
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                write_csv_blocks(blocks, columns, file)


def typed_rows(blocks: Iterator[pd.DataFrame], columns: Mapping[str, Column]) -> pd.DataFrame:
    """Drawn rows, typed as the table of a bundle.

    They go by way of a file, so that the types are those of the table to the letter.

    >>> import synthdp
    >>> str(synthdp.Bundle("releases/clinic/bundle").sample(5)["smoker"].dtype)
    'boolean'
    """
    with tempfile.TemporaryDirectory(prefix="synthdp-") as folder:
        file = Path(folder) / "rows.csv"
        write_blocks(blocks, columns, file)
        frame: pd.DataFrame = typed_frame(file, columns)
    return frame


def _write_parquet(blocks: Iterator[pd.DataFrame], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = pa.Table.from_pandas(next(blocks), preserve_index=False)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for block in blocks:
            writer.write_table(pa.Table.from_pandas(block, first.schema, preserve_index=False))
