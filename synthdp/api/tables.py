"""Drawn rows as DataFrames, with the types of a published table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.spec.model import Column


class CopiedTables(NamedTuple):
    """Copies of a bundle's columns, and what analyses of them are right for.

    >>> import synthdp
    >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(2, columns=["smoker"], rows=50)
    >>> len(copies.tables)
    2
    """

    tables: list[pd.DataFrame]
    spanned: dict[str, Any]


def typed(blocks: Iterator[pd.DataFrame], columns: Mapping[str, Column]) -> pd.DataFrame:
    """Drawn rows, typed as the table of a bundle.

    They go by way of a file, so that the types are those of the table to the letter.

    >>> import synthdp
    >>> str(synthdp.Bundle("releases/clinic/bundle").sample(5)["smoker"].dtype)
    'boolean'
    """
    from synthdp.bundle.metadata.parquet import typed_frame
    from synthdp.sample.files import write_blocks

    with tempfile.TemporaryDirectory(prefix="synthdp-") as folder:
        file = Path(folder) / "rows.csv"
        write_blocks(blocks, columns, file)
        frame: pd.DataFrame = typed_frame(file, columns)
    return frame
