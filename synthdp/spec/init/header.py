"""The column names of a table, from the header of a CSV file or the schema of Parquet alone.

A CSV file is read byte by byte up to the first line end, so that no row is ever in memory. A first
line that looks like a row is refused without repeating any of it. Parquet has names and types apart
from its rows, at the end of the file.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from synthdp.errors import DataError
from synthdp.spec.model import CONTROL, starts_formula
from synthdp.spec.model.fields import FORMULA_START
from synthdp.spec.wording import many

MAX_HEADER = 1_000_000  # bytes
MAX_NAME = 128  # characters
# From the usual on. Of those that make as many fields the first counts: names have commas in them.
DELIMITERS = ((";", "\t", "|", ","), ("^", "~", "\x1f"), (":",), (" ",))
DECIMAL = (
    "semicolons part fields: should numbers be written 1200,5, give `--decimal ,`, which sets"
    ' decimal: "," here'
)
_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")
# What begins a row, too: dates in any order, shares, amounts of money, thousands.
_DATE = re.compile(
    r"(\d{1,2}([-/.])\d{1,2}\2(\d\d){1,2}|\d{4}([-/.])\d{1,2}\4\d{1,2})([T ]\d\d?:\d\d.*)?"
)
_AMOUNT = re.compile(r"[-+$€£]*\s?(\d+|\d{1,3}([.,'\s]\d{3})+)([.,]\d+)?\s?([%‰$€£]|EUR|USD|GBP)?")
_SEPARATOR = re.compile(r'"?sep=."?', re.IGNORECASE)  # for Excel
_YEAR = re.compile(r"1[5-9]\d\d|2[01]\d\d")
# What R and pandas call the numbers of rows that they write beside the columns.
_ROW_NUMBERS = re.compile(r"\s*|Unnamed: \d+|row\.?names|__index_level_\d+__")


@dataclass(frozen=True)
class Header:
    """What a table's file says of its columns.

    `names` are what the spec calls them, `types` what Parquet says of some: the fields of a column
    that follow from it. `drop`, `rename` and `decimal`, which nobody has told where it is None, are
    of the source. `notes` say in words what was done.
    """

    kind: str
    names: tuple[str, ...]
    delimiter: str = ","
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decimal: str | None = None

    @property
    def decimal_unknown(self) -> bool:
        """Whether decimals may stand behind a comma: where semicolons part fields they often do."""
        return self.delimiter == ";" and self.decimal is None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and what may be otherwise."""
        odd = f"{json.dumps(self.delimiter)} parts fields: no comma, semicolon, tab or bar does"
        told = {odd: self.delimiter in (":", " "), DECIMAL: self.decimal_unknown}
        return (*self.notes, *(note for note, holds in told.items() if holds))

    def source(self, path: Path, drop: Sequence[str] = ()) -> dict[str, Any]:
        """The `source` section of a spec; `drop` names further columns, as the spec calls them."""
        named = {new: old for old, new in self.rename.items()}
        dropped = [*self.drop, *(named.get(name, name) for name in drop)]
        rename = {old: new for old, new in self.rename.items() if new not in drop}
        parts = {"kind": self.kind, "path": path.as_posix()}
        parts |= {"delimiter": self.delimiter} if self.kind == "csv" else {}
        parts |= {"decimal": ","} if self.decimal == "," else {}
        return parts | {k: v for k, v in (("drop", dropped), ("rename", rename)) if v}


def read_header(path: Path, *, decimal: str | None = None) -> Header:
    """What a CSV or Parquet file, or a folder of Parquet files, says of its columns.

    `decimal` is what stands before decimals in a CSV file, where it is known.

    Raises:
        DataError: there are no readable, distinct names.
    """
    if (parquet := _parquet_file(path)) is not None:
        names, types = _schema(path, parquet)
        return _header(path, "parquet", names, types=types)
    line = _first_line(path)
    delimiter, names = _parted(path, line)
    return replace(_header(path, "csv", names, delimiter=delimiter), decimal=decimal)


def _parquet_file(path: Path) -> Path | None:
    """The Parquet file that has the schema; None where `path` is no such file or folder."""
    try:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*.parquet") if p.is_file())
            return found[0] if found else None
        if path.is_file():
            with path.open("rb") as file:
                return path if file.read(4) in (b"PAR1", b"PARE") else None
    except (OSError, ValueError):
        pass  # told where the file is read as CSV
    return None


def _schema(path: Path, file: Path) -> tuple[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Names, and by name what follows from a column's type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(
            f"{path.name}: the file cannot be read as Parquet",
            hint="see that it was written to its end; encrypted files are not read",
        ) from None
    return tuple(schema.names), {f.name: found for f in schema if (found := _entry_of(f.type))}


def _entry_of(kind: Any) -> dict[str, Any]:
    """What a column of Parquet is in a spec, as far as its type says; texts may be anything."""
    import pyarrow.types as pt

    if pt.is_boolean(kind):
        return {"type": "boolean"}
    if pt.is_integer(kind):
        return {"type": "integer"}
    if pt.is_decimal(kind):
        return {"type": "number", "decimals": min(max(kind.scale, 0), 12)}
    if pt.is_floating(kind):
        return {"type": "number"}
    if pt.is_date(kind):
        return {"type": "datetime"}
    if pt.is_timestamp(kind):
        return {"type": "datetime", "resolution": "second"}
    if pt.is_dictionary(kind):
        return {"type": "ordinal" if kind.ordered else "categorical"}
    return {}


def _first_line(path: Path) -> str:
    data = bytearray()
    try:
        if path.exists() and not path.is_file():
            raise DataError(
                f"{path.name}: is not a plain file",
                hint="name a CSV file with a header, or Parquet",
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
    if data.startswith(b"PK\x03\x04") or b"\0" in data:
        what = "it is no text" if b"\0" in data else "it is compressed, as workbooks are"
        raise DataError(
            f"{path.name}: {what}", hint="save the table as CSV in UTF-8, or as Parquet"
        )
    try:
        line = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{path.name}: the header is not UTF-8 text",
            hint="save the table as CSV in UTF-8, or as Parquet; workbooks and archives are not"
            " read",
        ) from None
    if not line.strip():
        raise DataError(
            f"{path.name}: the first line is empty",
            hint="the first line must hold the column names",
        )
    if _SEPARATOR.fullmatch(line) or line.startswith("# "):
        what = "is a comment" if line[0] == "#" else "tells Excel what parts the fields"
        raise DataError(
            f"{path.name}: the first line {what}, and names no column",
            hint="take it out of the file: the first line must hold the column names",
        )
    return line


def _parted(path: Path, line: str) -> tuple[str, tuple[str, ...]]:
    """The delimiter, and the fields of the line.

    It is the sign that makes most fields, of the most usual ones that make two; a comma if none.
    """
    unread = False
    for signs in DELIMITERS:
        found: dict[str, list[str]] = {}
        for delimiter in signs:
            try:
                found[delimiter] = next(csv.reader([line], delimiter=delimiter, strict=True), [])
            except csv.Error:
                unread = True  # a quotation mark is in the way
        best = max(found, key=lambda d: len(found[d]), default="")
        if best and len(found[best]) > 1:
            return best, tuple(found[best])
    if unread:
        raise DataError(
            f"{path.name}: a quotation mark in the header is never closed",
            hint="column names cannot hold line breaks",
        )
    return ",", (next(csv.reader([line]))[0],)


def _header(
    path: Path,
    kind: str,
    names: tuple[str, ...],
    *,
    delimiter: str = ",",
    types: Mapping[str, dict[str, Any]] | None = None,
) -> Header:
    drop = tuple(dict.fromkeys(name for name in names if _ROW_NUMBERS.fullmatch(name)))
    kept = [name for name in names if name not in drop]
    rename = {name: plain for name in kept if (plain := _plain(name)) != name}
    _check(path, names, [rename.get(name, name) for name in kept], rows_apart=kind != "csv")
    notes = []
    if drop:
        shown = ", ".join(map(json.dumps, drop))
        notes.append(
            f"{shown}: numbers of rows, as R and pandas write them, or what a delimiter at the end"
            " of lines makes; it is dropped"
        )
    if rename:
        notes.append(
            f"{many(len(rename), 'name')} with spaces around, signs that are not seen, the"
            " beginning of a formula or too many letters: renamed"
        )
    if kind == "csv" and any(map(_is_number, kept)):
        notes.append(
            "some names are years, dates or numbers of columns; should the first line be a row,"
            " write a line with names above it"
        )
    own = {rename.get(name, name): entry for name, entry in (types or {}).items() if name in kept}
    named = tuple(rename.get(name, name) for name in kept)
    return Header(kind, named, delimiter, drop, rename, own, tuple(notes))


def _plain(name: str) -> str:
    """A name that a spec takes, as near as can be; the same where it takes the name itself."""
    bare = CONTROL.sub("", name).strip()
    while bare and starts_formula(bare):
        if not bare.startswith(FORMULA_START):
            bare = bare.replace(";", " ")
        bare = bare.lstrip("".join(FORMULA_START)).strip()
    return bare[:MAX_NAME].rstrip()


def _check(path: Path, names: Sequence[str], plain: Sequence[str], *, rows_apart: bool) -> None:
    # Positions only: should the first line be a row after all, nothing of it is shown.
    count = Counter(name for name in names if name)  # those without one are dropped together
    twice = [i for i, name in enumerate(names, 1) if count[name] > 1]
    kept = Counter(plain)
    as_names = rows_apart or _in_order(names)
    numbers = [] if as_names else [n for n in plain if _is_number(n)]
    faults = {
        "have a name that comes twice": twice
        or [i for i, name in enumerate(names, 1) if kept[_plain(name)] > 1],
        "have a number for a name, as if the first line were a row": [
            i for i, name in enumerate(names, 1) if _plain(name) in numbers
        ],
        "have a name without a letter or digit": [
            i for i, name in enumerate(names, 1) if name.strip() and not _plain(name)
        ],
    }
    found = [
        f"column(s) {', '.join(map(str, places))} {fault}"
        for fault, places in faults.items()
        if places
    ]
    if not plain and not found:
        found = ["no column has a name"]
    if found:
        raise DataError(
            f"{path.name}: the first line is no header: {'; '.join(found)}",
            hint="give every column a name of its own in the first line",
        )


def _is_number(name: str) -> bool:
    """Whether a name is as the value of a number, an amount or a date is written."""
    return any(form.fullmatch(name) for form in (_NUMBER, _AMOUNT, _DATE))


def _in_order(names: Sequence[str]) -> bool:
    """Whether all numbers among names are years in order, beside something that is no number.

    So are the columns of a wide table named, or by three dates and more; a row has its numbers in
    no order, or others too.
    After an empty name 0, 1, 2 or 1, 2, 3 will do: R and pandas write columns without names so.
    """
    numbers = [plain for name in names if _is_number(plain := _plain(name))]
    if len(numbers) == len(names):
        return False
    if not names[0] and len(numbers) == len(names) - 1 > 1 and numbers[0] in ("0", "1"):
        return numbers == [str(int(numbers[0]) + i) for i in range(len(numbers))]
    if len(numbers) > 2 and all(map(_DATE.fullmatch, numbers)):
        return True
    if not all(map(_YEAR.fullmatch, numbers)):
        return False
    return all(a < b for a, b in pairwise(numbers)) or all(a > b for a, b in pairwise(numbers))
