"""Code books as other programs write them: what a table's columns are, for `synthdp init`.

A format is a function here that makes a `Codebook` of a file, and a line in `FORMATS`. None reads a
row: not of the table, and not of the file that the code book may be a part of. Nothing is guessed:
what the code book does not state is left to be filled in.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthdp.errors import DataError, OutputError, by_kind, install
from synthdp.spec.load.wording import unreadable
from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.writing import Blank

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

Kind = Literal["whole", "number", "text", "date", "time", "boolean"]
_PLAIN_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")
_FREE = (
    "one of the types above if its values can be listed; a column of free text, names or addresses"
    " goes to dataset.source.drop instead"
)


@dataclass(frozen=True)
class CodebookColumn:
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

    columns: tuple[CodebookColumn, ...]
    title: str = ""
    missing_values: tuple[str, ...] = ()

    def of(self, names: Iterable[str]) -> dict[str, CodebookColumn]:
        """What is said of each of a table's columns, by the table's name of it.

        Names that differ in capitals alone are one name, where no other column could be meant.
        """
        exact = {column.name: column for column in self.columns}
        folded: dict[str, list[CodebookColumn]] = {}
        for column in self.columns:
            folded.setdefault(column.name.casefold(), []).append(column)
        found = {}
        for name in names:
            alike = folded.get(name.casefold(), [])
            if name in exact or len(alike) == 1:
                found[name] = exact.get(name, *alike[:1])
        return found


def entry_of(column: CodebookColumn) -> dict[str, Any]:
    """The column's entry in a spec; what is not stated is a `Blank`.

    Codes make categories, and else the kind decides. Where it is not said that no value is missing,
    some may be.

    >>> labels = {"0": "no", "1": "yes", "9": ""}
    >>> entry_of(CodebookColumn("smokes", labels=labels, missing_codes=("9",)))
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
        entry = {"type": kind, "categories": list(map(_code, codes))}
        entry |= {"value_labels": labels} if labels else {}
    else:
        entry = _range(column)
    entry["missing"] = column.missing is not False or bool(column.missing_codes)
    if column.missing_codes:
        entry["missing_codes"] = list(map(_code, column.missing_codes))
    said = {"unit": one_line(column.unit), "description": one_line(column.description)}
    return entry | {key: text for key, text in said.items() if text}


def _range(column: CodebookColumn) -> dict[str, Any]:
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


def content(path: Path, max_bytes: int = 50_000_000) -> bytes:
    """The bytes of a code book.

    Raises:
        DataError: the file cannot be read, or is larger than any code book.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = unreadable(error)
        message = f"{path.name}: the code book cannot be read: {reason}"
        raise DataError(message, hint="check the path and its permissions") from None
    if len(data) > max_bytes:
        message = f"{path.name}: the code book is larger than {max_bytes:,} bytes"
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


# --- Table Schema ---


KINDS: dict[str, Kind] = {
    "integer": "whole",
    "year": "whole",
    "number": "number",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "datetime": "time",
}


def read_schema(path: Path) -> Codebook:
    """The columns of a schema, or of the only schema of a package.

    Frictionless Table Schema (versions 1 and 2) in JSON: alone, or inside a Data Package. [Source:
    datapackage.org/standard/table-schema, version 2.0.]

    Raises:
        DataError: it is no JSON, or holds no schema, or several.
    """
    try:
        found = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        message = f"{path.name}:{error.lineno}:{error.colno}: this is not JSON: {error.msg}"
        hint = "a code book in JSON is a Table Schema, or a Data Package with one"
        raise DataError(message, hint=hint) from None
    schemas = list(_schemas(found))
    if len(schemas) != 1:
        message = f"{path.name}: holds {len(schemas) or 'no'} table schemas, and one is needed"
        hint = "a Table Schema has a list `fields` whose entries have a `name`"
        raise DataError(message, hint=hint)
    schema = schemas[0]
    title = found.get("title") if isinstance(found, Mapping) else None
    entries = (e for e in schema["fields"] if isinstance(e, Mapping))
    columns = tuple(_schema_column(e) for e in entries if isinstance(e.get("name"), str))
    return Codebook(columns, title if isinstance(title, str) else "", _missing(schema))


def _schemas(found: object) -> Iterator[Mapping[str, Any]]:
    if not isinstance(found, Mapping):
        return
    if isinstance(found.get("fields"), list):
        yield found
        return
    inner = found.get("resources")
    for below in [found.get("schema"), *(inner if isinstance(inner, list) else [])]:
        yield from _schemas(below)


def _schema_column(entry: Mapping[str, Any]) -> CodebookColumn:
    rules = entry.get("constraints")
    rules = rules if isinstance(rules, Mapping) else {}
    kind = KINDS.get(str(entry.get("type", "")))
    labels = _labels(entry.get("categories")) or _labels(rules.get("enum"))
    if kind == "boolean":
        ends = (entry.get("falseValues") or ["false"], entry.get("trueValues") or ["true"])
        labels = {code_text(end[0]): "" for end in ends if isinstance(end, list) and end}
    said = list(map(entry.get, ("title", "description")))
    return CodebookColumn(
        entry["name"],
        description=": ".join(dict.fromkeys(s for s in said if isinstance(s, str) and s)),
        unit=entry["unit"] if isinstance(entry.get("unit"), str) else "",
        kind=kind,
        lower=_first(rules, "minimum", "exclusiveMinimum"),
        upper=_first(rules, "maximum", "exclusiveMaximum"),
        labels=labels,
        ordered=entry.get("categoriesOrdered") is True,
        missing=rules.get("required") is not True,
        missing_codes=_missing(entry),
    )


def _first(rules: Mapping[str, Any], *keys: str) -> str | None:
    return next((code_text(rules[key]) for key in keys if rules.get(key) is not None), None)


def _labels(listed: object) -> dict[str, str]:
    """Codes and labels of `categories` (values, or maps of value and label) or `enum`."""
    if not isinstance(listed, list):
        return {}
    pairs = [e if isinstance(e, Mapping) else {"value": e} for e in listed]
    return {code_text(p["value"]): str(p.get("label", "")) for p in pairs if "value" in p}


def _missing(holder: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(filter(None, _labels(holder.get("missingValues"))))


# --- DDI ---


def read_ddi(path: Path) -> Codebook:
    """The variables of a DDI-Codebook file.

    DDI-Codebook (1.x to 2.5) in XML, as archives of surveys publish it. A file is a stranger's: it
    is parsed by defusedxml, which refuses entities and declarations of types. Statistics that it
    may hold of the rows (`sumStat`, `catStat`) are not looked at. [Source: DDI-Codebook 2.5,
    ddialliance.org/Specification/DDI-Codebook/2.5.]

    Raises:
        DataError: it is no XML, has entities, or describes no variable.
        OutputError: defusedxml is not installed.
    """
    root = _parsed(path)
    columns = tuple(_ddi_column(v) for v in root.iterfind(".//{*}var") if v.get("name"))
    if not columns:
        message = f"{path.name}: describes no variable"
        raise DataError(message, hint="DDI-Codebook has them as `var` elements in `dataDscr`")
    return Codebook(columns, _text(root, ".//{*}titl"))


def _parsed(path: Path) -> Element:
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring
    except ImportError:
        raise OutputError("code books in XML need defusedxml", hint=install("codebook")) from None
    try:
        root: Element = fromstring(content(path), forbid_dtd=True)
        return root
    except ParseError as error:
        line, column = error.position
        message = f"{path.name}:{line}:{column + 1}: this is not XML"
        raise DataError(message, hint="a code book in XML is of DDI-Codebook") from None
    except (DefusedXmlException, ValueError):
        message = f"{path.name}: declares types or entities, which are not read"
        raise DataError(message, hint="take the DOCTYPE out of the file") from None


def _ddi_column(var: Element) -> CodebookColumn:
    form = var.find("{*}varFormat")  # in whatever namespace: versions differ in that alone
    decimals = var.get("dcml") or (form.get("dcml") if form is not None else None)
    bounds = var.find("{*}valrng/{*}range")
    labels, missing = dict[str, str](), dict[str, None]()
    for category in var.iterfind("{*}catgry"):
        if code := _text(category, "{*}catValu"):
            labels[code] = _text(category, "{*}labl")
            if category.get("missing", "").upper() in ("Y", "YES", "TRUE"):
                missing[code] = None
    for item in var.iterfind("{*}invalrng/*"):
        if value := item.get("VALUE"):
            missing[value] = None
        with suppress(ValueError):
            ends = float(item.get("min", "")), float(item.get("max", ""))
            missing |= {} if value else dict.fromkeys(_codes(*ends))
    continuous = var.get("intrvl") == "contin" or var.get("nature") in ("interval", "ratio")
    return CodebookColumn(
        var.get("name", ""),
        description=_text(var, "{*}labl") or _text(var, ".//{*}qstnLit"),
        unit=var.get("measUnit") or "",
        kind=_ddi_kind(form, decimals),
        lower=None if bounds is None else bounds.get("min"),
        upper=None if bounds is None else bounds.get("max"),
        decimals=int(decimals) if decimals and decimals.isdecimal() else None,
        labels={code: "" for code in missing} if continuous else labels,
        ordered=var.get("nature") == "ordinal",
        missing_codes=tuple(missing),
    )


def _ddi_kind(form: Element | None, decimals: str | None) -> Kind | None:
    if form is None:
        return None
    if form.get("category") in ("date", "time"):
        return "date" if form.get("category") == "date" else None
    if form.get("type") != "numeric":
        return "text"
    return "whole" if decimals in (None, "0") else "number"


def _text(element: Element, path: str) -> str:
    first = element.find(path)
    return "" if first is None else " ".join("".join(first.itertext()).split())


# --- REDCap ---


NAME, TYPE, LABEL = "Variable / Field Name", "Field Type", "Field Label"
CHOICES = "Choices, Calculations, OR Slider Labels"


def read_redcap(path: Path) -> Codebook:
    """The fields of a dictionary.

    A REDCap data dictionary is the CSV file that a project downloads under "Data Dictionary".
    [Source: its own columns, and REDCap's names of exported checkboxes, `field___code`.]

    Raises:
        DataError: it is no such file.
    """
    reader = csv.DictReader(io.StringIO(text_of(path)), restval="", restkey="more")
    try:
        rows = list(reader)
    except csv.Error:
        raise DataError(f"{path.name}:{reader.line_num}: this is not CSV") from None
    own = reader.fieldnames or ()
    lacking = [name for name in (NAME, TYPE, LABEL, CHOICES) if name not in own]
    if lacking:
        message = f"{path.name}: no REDCap data dictionary: it lacks the column {lacking[0]!r}"
        hint = "a code book in CSV is the file that REDCap gives under Data Dictionary"
        raise DataError(message, hint=hint)
    return Codebook(tuple(c for row in rows if row[NAME] for c in _redcap_columns(row)))


def _redcap_columns(row: Mapping[str, str]) -> Iterator[CodebookColumn]:
    """A field's column in the export; of a checkbox one for each choice."""
    form, name, label = row[TYPE], row[NAME], row[LABEL]
    missing = row.get("Required Field?", "") != "y"
    missing |= bool(row.get("Branching Logic (Show field only if...)"))
    own = partial(CodebookColumn, missing=missing, identifies=row.get("Identifier?", "") == "y")
    if form == "descriptive":  # on the form, and not in the export
        return
    if form == "checkbox":
        marks = {"0": "not checked", "1": "checked"}
        for code, choice in _choices(row[CHOICES]).items():
            column = f"{name}___{code.lower().replace('-', '_')}"
            yield own(column, f"{label} ({choice})", labels=marks)
        return
    labels = {"yesno": {"0": "no", "1": "yes"}, "truefalse": {"0": "false", "1": "true"}}
    listed = _choices(row[CHOICES]) if form in ("radio", "dropdown") else labels.get(form, {})
    kind, decimals = _redcap_kind(form, row.get("Text Validation Type OR Show Slider Number", ""))
    ends = {"Min": "0", "Max": "100"} if form == "slider" else {"Min": None, "Max": None}
    lower, upper = (row.get(f"Text Validation {end}") or usual for end, usual in ends.items())
    yield own(name, label, "", kind, lower, upper, decimals, listed)


def _redcap_kind(form: str, check: str) -> tuple[Kind | None, int | None]:
    if form == "slider" or check == "integer":
        return "whole", None
    if form == "calc" or check.startswith("number"):
        digits = check.removeprefix("number_")[:1]
        return "number", int(digits) if digits.isdecimal() else None
    if check.startswith("datetime"):
        return "time", None
    return ("date" if check.startswith("date") else "text"), None


def _choices(text: str) -> dict[str, str]:
    """`1, yes | 2, no` as codes and labels."""
    pairs = (choice.partition(",") for choice in text.split("|"))
    return {code.strip(): label.strip() for code, _, label in pairs if code.strip()}


# --- SPSS and Stata ---


def read_statistics(path: Path) -> Codebook:
    """The columns of an SPSS (.sav, .zsav, .por) or Stata (.dta) file, without its rows.

    The dictionary inside an SPSS or Stata file, through pyreadstat. `metadataonly` makes the
    library stop before the rows, so that none is read. The number of rows, which such a file states
    as well, is not taken over: the spec wants a declared constant.

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
    _, found = by_kind(  # the library's own message may hold what the file does
        lambda: reader(str(path), metadataonly=True, **codes),
        f"{path.name}: the dictionary cannot be read",
        "is it a file of SPSS or Stata, and whole?",
    )
    columns = tuple(_statistics_column(name, found) for name in found.column_names)
    return Codebook(columns, found.file_label or "")


def _statistics_column(name: str, found: Any) -> CodebookColumn:
    form, stored = found.original_variable_types, found.readstat_variable_types
    kind, decimals = _statistics_kind(form.get(name, ""), stored.get(name, ""))
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
    return CodebookColumn(
        name,
        description=found.column_names_to_labels.get(name) or "",
        kind=kind,
        decimals=decimals,
        labels=labels,
        ordered=measure == "ordinal",
        missing_codes=tuple(dict.fromkeys(missing)),
    )


def _statistics_kind(form: str, stored: str) -> tuple[Kind | None, int | None]:
    """Kind and decimals by format (SPSS: F8.2, A10, DATE11; Stata: %9.0g, %10s, %td) and type."""
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


def _codes(low: Any, high: Any, labelled: Iterable[Any] = ()) -> Iterator[str]:
    """One missing value, or a range of them: its whole numbers, or else the codes with a label."""
    if low == high or isinstance(low, str):
        yield code_text(low)
    elif high - low <= 50 and float(low).is_integer():
        yield from map(str, range(int(low), int(high) + 1))
    else:
        numbers = [code for code in labelled if isinstance(code, int | float)]
        yield from (code_text(code) for code in numbers if low <= code <= high)


Format = Callable[[Path], Codebook]
"""Makes a code book of a file; raises `DataError` where it is none of its format."""

FORMATS: dict[str, Format] = {
    ".json": read_schema,
    ".xml": read_ddi,
    ".csv": read_redcap,
    ".sav": read_statistics,
    ".zsav": read_statistics,
    ".por": read_statistics,
    ".dta": read_statistics,
}
"""By the end of a file's name: Table Schema, DDI, REDCap, SPSS (three) and Stata."""
