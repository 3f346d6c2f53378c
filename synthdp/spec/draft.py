"""A commented draft spec from the header of a table, for `synthdp init`.

What the header does not say - types, bounds, categories, the privacy unit - is asked for, or left
as a `Blank` for the loader to refuse place by place. Nothing is ever taken from rows.

A draft spec whose types, bounds and categories were found under differential privacy.

`synthdp init --private` finds them (`synthdp.release.private_init`); this module only writes. It
also writes the spec under which that run itself reserves its budget: the same dataset, ledger and
cap, with columns that have no types yet.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from synthdp.errors import DataError
from synthdp.spec import questions
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.columns import likely_id, remarks
from synthdp.spec.codebook import Codebook, entry_of
from synthdp.spec.load.wording import many, unreadable
from synthdp.spec.model import COLUMN_TYPES, CONTROL, FORMULA_START, starts_formula
from synthdp.spec.questions import Ask
from synthdp.spec.writing import Blank, slug_of, written

__all__ = ["Ask", "draft_spec"]


def sketches() -> str:
    """What each type is written with, for the head of `columns`; those alike share their lines."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, model in COLUMN_TYPES.items():
        alike.setdefault(model.sketch, []).append(name)
    heads = {f"{', '.join(names)}:": lines for lines, names in alike.items()}
    heads["all:"] = ("missing: true   where values may be missing; unit, description",)
    width = max(map(len, heads))
    told = [(head if i == 0 else "", x) for head, xs in heads.items() for i, x in enumerate(xs)]
    return "\n".join(f"#   {head:{width}} {line}" for head, line in told)


OF_ONE_VALUE = ("id", "code", "money", "few")
"""Kinds of remarks that hold in each of several linked tables."""
UNIT_TO_FILL = {
    "kind": Blank("row or id"),
    "meaning": Blank("what one row, or one id, is, e.g. one person"),
}
_ID_TO_FILL = {
    "max_rows": Blank("most rows of one id that are used; noise grows with it: 1, if that will do"),
    "meaning": Blank("what one id is, e.g. one patient"),
}
ROWS_TO_FILL = {
    "kind": Blank("public or approximate"),
    "value": Blank("the number of rows, as a constant that may be published"),
}
*_OTHERS, _LAST = COLUMN_TYPES
_COLUMN_TO_FILL = {"type": Blank(f"{', '.join(_OTHERS)} or {_LAST}")}
BUDGET_TO_FILL = {
    "epsilon": Blank("total for everything in the run, e.g. 1"),
    "delta": Blank("well below 1 / rows, e.g. 1e-6 for 50000 rows"),
}


def draft_spec(
    table: Path | Mapping[str, Any],
    *,
    ask: Ask | None,
    rows: int | None = None,
    path: Path | None = None,
    codebook: Codebook | None = None,
    decimal: str | None = None,
) -> str:
    """A draft spec for the table in a file, or of these names and dtypes, as YAML text.

    Only the header of a CSV file is read, or the schema of Parquet. With `ask`, everything needed
    is asked for and the draft loads; without, it holds blanks (`!fill_in "..."`). `rows`: their
    number, as a constant that may be published, where it is known already; what follows from it is
    then written. `path`: of the file, as the spec shall name it. `codebook`: what is known of the
    columns. `decimal`: what stands before decimals in the file.

    Raises:
        DataError: the file has no usable header, or a question never got an answer that fits.
    """
    if isinstance(table, Path):
        header, named = read_header(table, decimal=decimal), path or table
    else:
        header, named = header_of(table), None
    unit: Mapping[str, Any] = UNIT_TO_FILL
    if ask:
        unit = questions.ask_unit(ask, header.names)
    elif column := likely_id(header.names):
        unit = {"kind": "id", "column": column} | _ID_TO_FILL
    stated = rows_of(ask, unit, rows)
    texts = codebook.missing_values if codebook else ()
    if ask and header.kind == "csv" and not codebook:
        texts = questions.answer(ask, questions.MISSING)
    columns, dropped = columns_of(header, unit.get("column"), ask, codebook)
    source = header.source(named, dropped)
    if header.kind == "csv":
        source["missing_values"] = ["", *texts]
    about = questions.ask_about(ask) if ask else {}
    budget = budget_of(ask, stated)
    return written(
        "draft",
        id=slug_of(named) if named else Blank("a name of the table, e.g. clinic"),
        said={"title": named.stem if named else Blank("the same in words"), **about},
        notes=header.remarks,
        source={key: value for key, value in source.items() if key != "missing_values"},
        missing_values=source.get("missing_values"),
        unit=unit,
        rows=stated,
        count=stated["value"] if isinstance(stated["value"], int) else None,
        sketches=sketches(),
        from_codebook=codebook is not None,
        types_of=header.types_of,
        columns=columns,
        told={} if ask else header.told(columns),
        budget=budget,
    )


def rows_of(ask: Ask | None, unit: Mapping[str, Any], rows: int | None) -> Mapping[str, Any]:
    """The number of rows that the `unit` leaves, asked for, or `rows`, or to be filled in."""
    if ask:
        return questions.ask_rows(ask, unit, known=rows)
    return ROWS_TO_FILL if rows is None else {"kind": "approximate", "value": rows}


def budget_of(ask: Ask | None, rows: Mapping[str, Any]) -> Mapping[str, Any]:
    """Epsilon and delta for so many rows: asked for, or to be filled in, but for what rows say."""
    if ask:
        return questions.ask_budget(ask, int(rows["value"]))
    if isinstance(rows["value"], Blank):
        return BUDGET_TO_FILL
    return BUDGET_TO_FILL | {"delta": float(suggested_delta(rows["value"]))}


def columns_of(
    header: Header,
    unit: str | None,
    ask: Ask | None,
    codebook: Codebook | None,
    *,
    table: str = "",
    order: str = "",
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The entries of columns, and the names of those that are dropped.

    A code book's columns that identify somebody are dropped, whatever their type. The column
    `unit`, which has ids, is neither. Of linked tables `table` is named in questions, and `order`
    is the column that orders visits, of which each has one.
    """
    columns, dropped = dict[str, dict[str, Any]](), list[str]()
    described, told = codebook.of(header.names) if codebook else {}, remarks(header.names)
    told = {n: r for n, r in told.items() if not table or r.kind in OF_ONE_VALUE}
    modelled = [name for name in header.names if name != unit]
    for nth, name in enumerate(modelled, start=1):
        known = described.get(name)
        entry: dict[str, Any] | None = entry_of(known) if known else {}
        if known and known.identifies:
            entry = None
        elif ask:
            typed = header.types.get(name)
            place = f"{table}({nth} of {len(modelled)}) "
            entry = questions.ask_column(
                ask,
                name,
                (entry or {}) | {"missing": False} if name == order else entry,
                place=place,
                typed=typed,
                remark=told.get(name),
                types=questions.ORDERS if name == order else questions.TYPE.allowed,
            )
        if entry is None:
            dropped.append(name)
        else:
            columns[name] = entry or _to_fill(header.types.get(name, {}))
    return columns, dropped


def _to_fill(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a column of which no more than its type is known, if that."""
    if not typed:
        return dict(_COLUMN_TO_FILL)
    fields = COLUMN_TYPES[typed["type"]].model_fields
    needed = [key for key, field in fields.items() if field.is_required() and key not in typed]
    return {**typed, **{key: Blank(fields[key].description or key) for key in needed}}


# --- header ---

TYPES_OF = {
    "parquet": "the Parquet file's own, where it has any",
    "dataframe": "those of the DataFrame's dtypes; one that pandas inferred follows from the rows",
}
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

    @property
    def types_of(self) -> str | None:
        """Whose types these are, in words, where there are some."""
        return TYPES_OF[self.kind] if self.types else None

    def told(
        self, columns: Mapping[str, Mapping[str, Any]], kinds: Sequence[str] = ()
    ) -> dict[str, str]:
        """What names tell of columns that are still to be filled in; of `kinds` alone, if given."""
        found = remarks(self.names)
        left = [n for n, own in columns.items() if n in found and Blank in map(type, own.values())]
        return {n: found[n].text for n in left if not kinds or found[n].kind in kinds}

    def source(self, path: Path | None, drop: Sequence[str] = ()) -> dict[str, Any]:
        """The `source` section of a spec; `drop` names further columns, as the spec calls them."""
        named = {new: old for old, new in self.rename.items()}
        dropped = [*self.drop, *(named.get(name, name) for name in drop)]
        rename = {old: new for old, new in self.rename.items() if new not in drop}
        parts = {"kind": self.kind} | ({"path": path.as_posix()} if path else {})
        parts |= {"delimiter": self.delimiter} if self.kind == "csv" else {}
        parts |= {"decimal": ","} if self.decimal == "," else {}
        return parts | {k: v for k, v in (("drop", dropped), ("rename", rename)) if v}


def read_header(path: Path, *, decimal: str | None = None) -> Header:
    """What a CSV or Parquet file, or a folder of Parquet files, says of its columns.

    A CSV file is read byte by byte up to the first line end, so that no row is ever in memory. A
    first line that looks like a row is refused without repeating any of it. Parquet has names and
    types apart from its rows, at the end of the file.

    `decimal` is what stands before decimals in a CSV file, where it is known.

    Raises:
        DataError: there are no readable, distinct names.
    """
    if (parquet := _parquet_file(path)) is not None:
        names, types = _schema(path, parquet)
        return _header(path, "parquet", names, types=types)
    delimiter, names = _parted(path, _first_line(path))
    return replace(_header(path, "csv", names, delimiter=delimiter), decimal=decimal)


def header_of(dtypes: Mapping[str, Any]) -> Header:
    """What the names and dtypes of a DataFrame say of its columns; the categories of one are left.

    Raises:
        DataError: these are no dtypes, or there are no readable, distinct names.
    """
    import pandas as pd
    import pyarrow as pa

    hint = "give `df.dtypes`, or a mapping of names to dtypes"
    if isinstance(dtypes, pd.DataFrame) or not hasattr(dtypes, "items"):
        raise DataError("a draft is made of dtypes alone, and was given more", hint=hint)
    entries = list[tuple[str, dict[str, Any]]]()
    try:
        for name, dtype in dtypes.items():
            schema = pa.Schema.from_pandas(pd.DataFrame({"": pd.Series(dtype=dtype)}))
            entries.append((str(name), _entry_of(schema.types[0])))
    except (TypeError, ValueError, pa.ArrowException):
        message = f"column {len(entries) + 1} of the dtypes has none that pandas knows"
        raise DataError(message, hint=hint) from None
    types = {name: entry for name, entry in entries if entry}
    return _header(Path("dtypes"), "dataframe", tuple(n for n, _ in entries), types=types)


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
        hint = "see that it was written to its end; encrypted files are not read"
        raise DataError(f"{path.name}: the file cannot be read as Parquet", hint=hint) from None
    return tuple(schema.names), {f.name: found for f in schema if (found := _entry_of(f.type))}


def _entry_of(kind: Any) -> dict[str, Any]:
    """What a column of Parquet is in a spec, as far as its type says; texts may be anything."""
    import pyarrow.types as pt

    if pt.is_decimal(kind):
        return {"type": "number", "decimals": min(max(kind.scale, 0), 12)}
    if pt.is_dictionary(kind):
        return {"type": "ordinal" if kind.ordered else "categorical"}
    entries: dict[Callable[[Any], bool], dict[str, Any]] = {
        pt.is_boolean: {"type": "boolean"},
        pt.is_integer: {"type": "integer"},
        pt.is_floating: {"type": "number"},
        pt.is_date: {"type": "datetime"},
        pt.is_timestamp: {"type": "datetime", "resolution": "second"},
    }
    return next((entry for holds, entry in entries.items() if holds(kind)), {})


def _first_line(path: Path) -> str:
    data = bytearray()
    try:
        if path.exists() and not path.is_file():
            message = f"{path.name}: is not a plain file"
            raise DataError(message, hint="name a CSV file with a header, or Parquet")
        with path.open("rb", buffering=0) as file:
            while (byte := file.read(1)) and byte not in b"\r\n":
                data += byte
                if len(data) > 1_000_000:
                    message = f"{path.name}: the first line is longer than 1,000,000 bytes"
                    raise DataError(message, hint="is this a CSV file with a header?")
    except (OSError, ValueError) as error:
        reason = unreadable(error)
        message = f"{path.name}: the file cannot be read: {reason}"
        raise DataError(message, hint="check the path and its permissions") from None
    if data.startswith(b"PK\x03\x04") or b"\0" in data:
        what = "it is no text" if b"\0" in data else "it is compressed, as workbooks are"
        raise DataError(
            f"{path.name}: {what}", hint="save the table as CSV in UTF-8, or as Parquet"
        )
    try:
        line = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = "save the table as CSV in UTF-8, or as Parquet; workbooks and archives are not read"
        raise DataError(f"{path.name}: the header is not UTF-8 text", hint=hint) from None
    if not line.strip():
        message = f"{path.name}: the first line is empty"
        raise DataError(message, hint="the first line must hold the column names")
    if _SEPARATOR.fullmatch(line) or line.startswith("# "):
        what = "is a comment" if line[0] == "#" else "tells Excel what parts the fields"
        hint = "take it out of the file: the first line must hold the column names"
        raise DataError(f"{path.name}: the first line {what}, and names no column", hint=hint)
    return line


def _parted(path: Path, line: str) -> tuple[str, tuple[str, ...]]:
    """The sign that makes most fields, of the most usual that make two, or a comma; the fields."""
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
        message = f"{path.name}: a quotation mark in the header is never closed"
        raise DataError(message, hint="column names cannot hold line breaks")
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
        text = (
            "numbers of rows, as R and pandas write them, or what a delimiter at the end of lines"
        )
        notes.append(f"{shown}: {text} makes; it is dropped")
    if rename:
        text = "with spaces around, signs that are not seen, the beginning of a formula or too many"
        notes.append(f"{many(len(rename), 'name')} {text} letters: renamed")
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
    return bare[:128].rstrip()


def _check(path: Path, names: Sequence[str], plain: Sequence[str], *, rows_apart: bool) -> None:
    # Positions only: should the first line be a row after all, nothing of it is shown.
    count = Counter(name for name in names if name)  # those without one are dropped together
    kept = Counter(plain)
    numbers = [] if rows_apart or _in_order(names) else [n for n in plain if _is_number(n)]
    as_kept = [_plain(name) for name in names]
    twice = [count[name] > 1 for name in names]
    faults = {
        "have a name that comes twice": twice if any(twice) else [kept[n] > 1 for n in as_kept],
        "have a number for a name, as if the first line were a row": [
            n in numbers for n in as_kept
        ],
        "have a name without a letter or digit": [
            bool(name.strip()) and not n for name, n in zip(names, as_kept, strict=True)
        ],
    }
    found = [
        f"column(s) {', '.join(str(i) for i, at in enumerate(places, 1) if at)} {fault}"
        for fault, places in faults.items()
        if any(places)
    ]
    if not plain and not found:
        found = ["no column has a name"]
    if found:
        what = "the names of its columns do not do" if rows_apart else "the first line is no header"
        hint = f"give every column a name of its own{'' if rows_apart else ' in the first line'}"
        raise DataError(f"{path.name}: {what}: {'; '.join(found)}", hint=hint)


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


OTHER = "other"  # the category of what was not found


@dataclass(frozen=True)
class FoundColumn:
    """One column as it was found: its entry in the spec, what was found in words, and the share of
    rows that it is expected to lose, with the standard error of that.
    """

    name: str
    entry: Mapping[str, Any]
    found: str
    lost: float
    error: float

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.name,
            "entry": dict(self.entry),
            "found": self.found,
            "expected_loss": round(self.lost, 4),
            "standard_error": round(self.error, 4),
        }


@dataclass(frozen=True)
class Request:
    """What `synthdp init --private` is asked for; all of it is public.

    `path` is the CSV file as seen from the draft's folder, `columns` those of its `header` without
    the id. `epsilon` and `delta` are for finding, `cap` for all that the dataset may spend.
    """

    path: Path
    header: Header
    columns: tuple[str, ...]
    dataset: str
    unit: Mapping[str, Any]
    rows: Mapping[str, Any]
    epsilon: float
    delta: float
    cap: tuple[float, float]
    ledger: str | None = None

    @property
    def left(self) -> tuple[float, float]:
        """Epsilon and delta that the cap leaves for a release: at most 1, and the usual delta."""
        usual = 1.0, float(suggested_delta(int(self.rows["value"])))
        spent = self.epsilon, self.delta
        epsilon, delta = (
            min(most, float(f"{(cap - own) * (1 - 1e-5):.6g}"))
            for most, cap, own in zip(usual, self.cap, spent, strict=True)
        )
        return epsilon, delta


def request_spec(request: Request) -> str:
    """The spec of the run that finds the columns: each may hold anything."""
    budget = {"epsilon": request.epsilon, "delta": request.delta}
    return written("request", budget=budget, **_dataset(request, [""]))


def private_draft(
    request: Request,
    found: Sequence[FoundColumn],
    *,
    run: str,
    cost: tuple[float, float],
    missing: Sequence[str],
) -> str:
    """The draft, as YAML text. `run` found the columns, at the `cost` (epsilon and delta) of all
    searches of the dataset; `missing` are the words for no value.
    """
    return written(
        "private",
        found=found,
        domain_from={"run": run, "epsilon": cost[0], "delta": cost[1]},
        budget=dict(zip(("epsilon", "delta"), request.left, strict=True)),
        **_dataset(request, list(missing)),
    )


def _dataset(request: Request, missing: list[str]) -> dict[str, Any]:
    """What the templates of the `dataset` section ask for."""
    return {
        "request": request,
        "other": OTHER,
        "id": request.dataset,
        "said": {"title": request.path.stem},
        "notes": request.header.notes,
        "source": request.header.source(request.path),
        "missing_values": missing,
        "unit": request.unit,
        "rows": request.rows,
        "count": int(request.rows["value"]),
    }
