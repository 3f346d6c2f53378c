"""What a code book says of a column, whatever its format, and the entry of a spec that it makes.

Nothing is guessed: what the code book does not state is left to be filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from synthdp.errors import DataError
from synthdp.spec.load.wording import unreadable
from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.writing import Blank

Kind = Literal["whole", "number", "text", "date", "time", "boolean"]
MAX_BYTES = 50_000_000
_PLAIN_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")
_FREE = (
    "one of the types above if its values can be listed; a column of free text, names or addresses"
    " goes to dataset.source.drop instead"
)


@dataclass(frozen=True)
class Described:
    """One column of a code book.

    `labels` are what codes stand for, in the code book's order. `kind` is None where it is not
    stated, and `missing` where it is not stated whether values may be missing. Bounds are as
    written. `identifies` says that the column tells who somebody is.
    """

    name: str
    description: str = ""
    unit: str = ""
    kind: Kind | None = None
    lower: str | None = None
    upper: str | None = None
    decimals: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = False
    missing: bool | None = None
    missing_codes: tuple[str, ...] = ()
    identifies: bool = False


@dataclass(frozen=True)
class Codebook:
    """The columns of a table; `missing_values` stand for a missing value in each of them."""

    columns: tuple[Described, ...]
    title: str = ""
    missing_values: tuple[str, ...] = ()

    def of(self, names: Iterable[str]) -> dict[str, Described]:
        """What is said of each of a table's columns, by the table's name of it.

        Names that differ in capitals alone are one name, where no other column could be meant.
        """
        exact = {column.name: column for column in self.columns}
        folded: dict[str, list[Described]] = {}
        for column in self.columns:
            folded.setdefault(column.name.casefold(), []).append(column)
        found = {}
        for name in names:
            alike = folded.get(name.casefold(), [])
            if name in exact or len(alike) == 1:
                found[name] = exact.get(name, *alike[:1])
        return found


def entry_of(column: Described) -> dict[str, Any]:
    """The column's entry in a spec; what is not stated is a `Blank`.

    Codes make categories, and else the kind decides. Where it is not said that no value is missing,
    some may be.

    >>> entry_of(Described("smokes", labels={"0": "no", "1": "yes", "9": ""}, missing_codes=("9",)))
    {'type': 'categorical', 'categories': [0, 1], 'value_labels': {0: 'no', 1: 'yes'}, \
'missing': True, 'missing_codes': [9]}
    """
    codes = [code for code in column.labels if code not in column.missing_codes]
    labels = {_code(c): told for c in codes if (told := one_line(column.labels[c])) and told != c}
    entry: dict[str, Any]
    if column.kind == "boolean":
        false, true = (*codes, "false", "true")[:2] if len(codes) == 2 else ("false", "true")
        entry = {"type": "boolean", "false": _code(false), "true": _code(true)}
    elif codes:
        kind = "ordinal" if column.ordered else "categorical"
        entry = {"type": kind, "categories": [_code(code) for code in codes]}
        entry |= {"value_labels": labels} if labels else {}
    else:
        entry = _range(column)
    entry["missing"] = column.missing is not False or bool(column.missing_codes)
    if column.missing_codes:
        entry["missing_codes"] = [_code(code) for code in column.missing_codes]
    said = {"unit": one_line(column.unit), "description": one_line(column.description)}
    return entry | {key: text for key, text in said.items() if text}


def _range(column: Described) -> dict[str, Any]:
    types = {"whole": "integer", "number": "number", "date": "datetime", "time": "datetime"}
    if column.kind is None or column.kind not in types:
        return {"type": Blank(_FREE)}
    entry: dict[str, Any] = {"type": types[column.kind]}
    for end, text in (("lower", column.lower), ("upper", column.upper)):
        stated = None if text is None else _bound(text, column.kind)
        entry[end] = Blank(f"{end} bound; the code book states none") if stated is None else stated
    if column.kind == "number" and column.decimals is not None:
        entry["decimals"] = min(column.decimals, 12)
    if column.kind == "time":
        entry["resolution"] = "minute"
    return entry


def _bound(text: str, kind: Kind) -> Any:
    """A bound as a spec has it, or None where this is none, such as `today`."""
    text = text.strip()
    if kind in ("date", "time"):
        return text if re.match(r"\d{4}-\d\d-\d\d", text) else None
    value = plain(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if float(value).is_integer() else float(value)


def _code(text: str) -> str | int:
    """A code as it is best written: 1, but "01"."""
    return int(text) if _PLAIN_WHOLE.fullmatch(text) else text


def code_text(value: object) -> str:
    """A code as the text that a table would have: 1 for 1.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def one_line(text: str | None) -> str:
    """A label or description without line breaks and markup, and of a length that a spec allows."""
    bare = re.sub(r"<[^<>]{0,200}>", " ", text or "")
    return " ".join("".join(c if c.isprintable() else " " for c in bare).split())[:500]


def content(path: Path) -> bytes:
    """The bytes of a code book.

    Raises:
        DataError: the file cannot be read, or is larger than any code book.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = unreadable(error)
        message = f"{path.name}: the code book cannot be read: {reason}"
        raise DataError(message, hint="check the path and its permissions") from None
    if len(data) > MAX_BYTES:
        message = f"{path.name}: the code book is larger than {MAX_BYTES:,} bytes"
        raise DataError(message, hint="is this the data?")
    return data


def text_of(path: Path) -> str:
    """The text of a code book, which is in UTF-8; raises as `content`."""
    try:
        return content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{path.name}: the code book is not UTF-8 text", hint="save it as UTF-8"
        ) from None
