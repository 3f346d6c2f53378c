"""Levels of a Parquet table that is larger than memory, read batch by batch.

What stays in memory is one byte per value (two where a column has more than 256 levels) and one
batch of rows; cleaned values are not kept, so that nothing can be judged on such a table. Every row
is a unit of its own: bounding the rows of a unit needs all of its rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, EncodedColumn, encode_column

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
