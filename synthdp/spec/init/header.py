"""The column names of a CSV file, from its header line and nothing else.

The file is read byte by byte up to the first line end, so that no row is ever in memory. A first
line that looks like a row is refused without repeating any of it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

from synthdp.errors import DataError
from synthdp.spec.model import CONTROL, starts_formula

MAX_HEADER = 1_000_000  # bytes
_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")


def read_header(path: Path) -> tuple[str, tuple[str, ...]]:
    """The delimiter and the column names.

    Raises:
        DataError: there is no readable header with distinct names.
    """
    line = _first_line(path)
    delimiter = _delimiter(line)
    names = tuple(next(csv.reader([line], delimiter=delimiter), []))
    _check(path, names)
    return delimiter, names


def _first_line(path: Path) -> str:
    data = bytearray()
    try:
        if path.exists() and not path.is_file():
            raise DataError(
                f"{path.name}: is not a plain file", hint="name a CSV file with a header"
            )
        with path.open("rb", buffering=0) as file:
            while (byte := file.read(1)) and byte not in b"\r\n":
                data += byte
                if len(data) > MAX_HEADER:
                    raise DataError(
                        f"{path.name}: the first line is longer than {MAX_HEADER:,} bytes",
                        hint="is this a CSV file with a header?",
                    )
    except (OSError, ValueError) as error:
        reason = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "the path is not a valid one"
        )
        raise DataError(
            f"{path.name}: the file cannot be read: {reason}",
            hint="check the path and its permissions",
        ) from None
    try:
        line = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{path.name}: the header is not UTF-8 text", hint="save the file as UTF-8"
        ) from None
    if not line.strip():
        raise DataError(
            f"{path.name}: the first line is empty",
            hint="the first line must hold the column names",
        )
    if line.count('"') % 2:
        raise DataError(
            f"{path.name}: a quotation mark in the header is never closed",
            hint="column names cannot hold line breaks",
        )
    return line


def _delimiter(line: str) -> str:
    """The sign that stands most often outside quotes; a comma if there is none."""
    outside = re.sub(r'"[^"]*"', "", line)
    return max((",", ";", "\t", "|"), key=outside.count)


def _check(path: Path, names: tuple[str, ...]) -> None:
    # Positions only: should the first line be a row after all, nothing of it is shown.
    count = Counter(name.strip() for name in names)
    faults = {
        "are empty": [i for i, name in enumerate(names, 1) if not name.strip()],
        "have a name that comes twice": [
            i for i, name in enumerate(names, 1) if name.strip() and count[name.strip()] > 1
        ],
        "have a number for a name, as if the first line were a row": [
            i for i, name in enumerate(names, 1) if _NUMBER.fullmatch(name.strip())
        ],
        "begin or end with a space": [
            i for i, name in enumerate(names, 1) if name.strip() and name != name.strip()
        ],
        "have a name that starts like a spreadsheet formula": [
            i for i, name in enumerate(names, 1) if starts_formula(name)
        ],
        "hold a control character": [i for i, name in enumerate(names, 1) if CONTROL.search(name)],
        "have a name of more than 128 characters": [
            i for i, name in enumerate(names, 1) if len(name) > 128
        ],
    }
    found = [
        f"column(s) {', '.join(map(str, places))} {fault}"
        for fault, places in faults.items()
        if places
    ]
    if found:
        raise DataError(
            f"{path.name}: the first line is no header: {'; '.join(found)}",
            hint="give every column a name of its own in the first line",
        )
