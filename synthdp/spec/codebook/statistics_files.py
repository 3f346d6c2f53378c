"""The dictionary inside an SPSS or Stata file, through pyreadstat.

`metadataonly` makes the library stop before the rows, so that none is read. The number of rows,
which such a file states as well, is not taken over: the spec wants a declared constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from synthdp.errors import DataError, OutputError, install
from synthdp.spec.codebook.described import Codebook, Described, Kind, code_text

MAX_RANGE = 50  # codes of a range of missing values


def read(path: Path) -> Codebook:
    """The columns of an SPSS (.sav, .zsav, .por) or Stata (.dta) file, without its rows.

    Raises:
        DataError: it is no such file.
        OutputError: pyreadstat is not installed.
    """
    try:
        import pyreadstat
    except ImportError:
        raise OutputError(
            "dictionaries of SPSS and Stata need pyreadstat", hint=install("codebook")
        ) from None
    readers = {".por": pyreadstat.read_por, ".dta": pyreadstat.read_dta}
    reader = readers.get(path.suffix.lower(), pyreadstat.read_sav)
    codes = {} if reader is pyreadstat.read_por else {"user_missing": True}
    if not path.is_file():
        raise DataError(f"{path.name}: there is no such file", hint="check the path")
    failed = ""
    try:
        _, found = reader(str(path), metadataonly=True, **codes)
    except Exception as error:  # its message is the library's own, and may hold what the file does
        failed = type(error).__name__
    if failed:
        message = f"{path.name}: the dictionary cannot be read ({failed})"
        raise DataError(message, hint="is it a file of SPSS or Stata, and whole?")
    columns = tuple(_column(name, found) for name in found.column_names)
    return Codebook(columns, found.file_label or "")


def _column(name: str, found: Any) -> Described:
    form, stored = found.original_variable_types, found.readstat_variable_types
    kind, decimals = _kind(form.get(name, ""), stored.get(name, ""))
    values: Mapping[Any, str] = found.variable_value_labels.get(name, {})
    # Stata's own codes of missing values are the letters of .a to .z.
    letters = [c for c in values if isinstance(c, str) and kind != "text"]
    labels = {code_text(code): told for code, told in values.items() if code not in letters}
    ranges = found.missing_ranges.get(name, [])
    missing = [code for ends in ranges for code in _codes(ends["lo"], ends["hi"], values)]
    missing += [f".{code}" for code in letters]
    measure = found.variable_measure.get(name, "unknown")
    if measure == "scale" and kind in ("whole", "number"):
        labels = {}  # of special values of a number
    return Described(
        name,
        description=found.column_names_to_labels.get(name) or "",
        kind=kind,
        decimals=decimals,
        labels=labels,
        ordered=measure == "ordinal",
        missing_codes=tuple(dict.fromkeys(missing)),
    )


def _kind(form: str, stored: str) -> tuple[Kind | None, int | None]:
    """Kind and decimals by the format a column is shown in, and the type it is stored as.

    SPSS writes F8.2, A10 or DATE11; Stata %9.0g, %10s or %td.
    """
    if stored == "string":
        return "text", None
    if re.match(r"%-?td|%-?d\d*$|(A|E|J|S)?DATE\d", form, re.IGNORECASE):
        return "date", None
    if re.match(r"%-?t[cC]|DATETIME|YMDHMS", form):
        return "time", None
    if stored.startswith(("int", "byte", "long")):
        return "whole", None
    spss = re.fullmatch(r"[A-Z]+\d+(?:\.(\d+))?", form)
    if spss is None:
        return "number", None
    digits = int(spss[1] or 0)
    return ("number", digits) if digits else ("whole", None)


def _codes(low: Any, high: Any, labelled: Iterable[Any]) -> Iterator[str]:
    """One missing value, or a range of them: its whole numbers, or else the codes with a label."""
    if low == high or isinstance(low, str):
        yield code_text(low)
    elif high - low <= MAX_RANGE and float(low).is_integer():
        yield from (str(code) for code in range(int(low), int(high) + 1))
    else:
        numbers = [code for code in labelled if isinstance(code, int | float)]
        yield from (code_text(code) for code in numbers if low <= code <= high)
