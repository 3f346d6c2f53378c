"""Code books as other programs write them: what a table's columns are, for `synthdp init`.

A format is a file here that makes a `Codebook` of a file, and a line in `FORMATS`. None reads a
row: not of the table, and not of the file that the code book may be a part of.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from synthdp.errors import DataError
from synthdp.spec.codebook import ddi, redcap, statistics_files, table_schema
from synthdp.spec.codebook.described import Codebook, Described, entry_of

__all__ = ["FORMATS", "Codebook", "Described", "entry_of", "read_codebook"]

Format = Callable[[Path], Codebook]
"""Makes a code book of a file; raises `DataError` where it is none of its format."""

FORMATS: dict[str, Format] = {
    ".json": table_schema.read,
    ".xml": ddi.read,
    ".csv": redcap.read,
    ".sav": statistics_files.read,
    ".zsav": statistics_files.read,
    ".por": statistics_files.read,
    ".dta": statistics_files.read,
}
"""By the end of a file's name: Table Schema, DDI, REDCap, SPSS (three) and Stata."""


def read_codebook(path: Path) -> Codebook:
    """The code book in a file, whose name says its format.

    Raises:
        DataError: the file cannot be read, or is of no known format.
        OutputError: the package that reads its format is not installed.
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        message = f"{path.name}: no known format of a code book"
        raise DataError(message, hint=f"its name must end in one of {', '.join(FORMATS)}")
    try:
        return form(path)
    except (ValueError, OverflowError, RecursionError) as error:  # of int, float, json, a parser
        kind = type(error).__name__
    message = f"{path.name}: holds a value that cannot be read ({kind})"
    raise DataError(message, hint="look for numbers of very many digits, and for very deep nesting")
