"""Hamming distances between two tables of codes, in chunks so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp_attacks.threat import Codes

Distances = npt.NDArray[np.unsignedinteger[Any]]

_CELLS = 1 << 22  # of a chunk: at two bytes each, 8 MiB


def hamming(queries: Codes, rows: Codes) -> Iterator[tuple[slice, Distances]]:
    """Hamming distances (number of columns that differ) from each query to each row, by chunks.

    Yields `[chunk, rows]`, and the place of the chunk among the queries.
    """
    by_column = np.ascontiguousarray(rows.T)
    step = max(1, _CELLS // max(1, len(rows)))
    for start in range(0, len(queries), step):
        part = slice(start, min(start + step, len(queries)))
        distance = np.zeros((part.stop - part.start, len(rows)), dtype=np.uint16)
        for column, asked in zip(by_column, queries[part].T, strict=True):
            distance += asked[:, None] != column
        yield part, distance
