"""The synthetic table as CSV, and its Frictionless Data Package (version 2) description.

Types, bounds and categories come from the spec alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from synthdp.bundle.wording import about_column, title_of
from synthdp.data.kinds import column_kind
from synthdp.errors import VerifyError
from synthdp.spec.model import Column, ReleaseSpec

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
SCHEMA_PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"
CSV_NAME = "synthetic.csv"


def check_header(path: Path, names: Sequence[str]) -> None:
    """Check that an untrusted CSV file has the header `names`, and a first row that is no longer.

    No more is read than such a line can take: a million columns cost memory.

    Raises:
        VerifyError: it does not.
    """
    with path.open("rb") as file:
        header = file.readline(sum(2 * len(name.encode()) + 4 for name in names)).decode(
            "utf-8", errors="replace"
        )
    if tuple(next(csv.reader([header]), ())) != tuple(names):
        raise VerifyError(f"{path.name}: its header is not the spec's columns in order")
    if _first_row_is_longer(path, len(names)):
        raise VerifyError(f"{path.name}: a row has more fields than the header")


def _first_row_is_longer(path: Path, count: int) -> bool:
    """Whether the first row has more than `count` fields, as far as its first 64 kB show.

    A reader of whole tables makes a column of each field: 100,000 of them take it five seconds.
    """
    with path.open("rb") as file:
        file.readline()
        start = file.read(1 << 16).decode("utf-8", errors="replace")
    return len(next(csv.reader(io.StringIO(start, newline="")), ())) > count


def write_csv(frame: pd.DataFrame, columns: Mapping[str, Column], path: Path) -> None:
    """Write `frame` in the order of `columns`: UTF-8, LF, header, no index.

    Missing values are empty fields.
    """
    as_written(frame, columns).to_csv(
        path, index=False, encoding="utf-8", lineterminator="\n", na_rep=""
    )


def as_written(frame: pd.DataFrame, columns: Mapping[str, Column]) -> pd.DataFrame:
    """`frame` in the order of `columns`, with instants as text."""
    return pd.DataFrame(
        {name: column_kind(column).written(column, frame[name]) for name, column in columns.items()}
    )


def descriptor(spec: ReleaseSpec, *, run: str, csv_bytes: int, csv_sha256: str) -> dict[str, Any]:
    """The content of `datapackage.json`.

    It is a function of the spec, the run's id and the CSV's size and hash.
    """
    dataset = spec.dataset
    package: dict[str, Any] = {
        "$schema": PROFILE,
        "name": _slug(f"{dataset.id}-synthetic"),
        "id": run,
        "title": title_of(dataset),
        "description": f"{dataset.description.strip()}\n\n{_NOTE}"
        if dataset.description
        else _NOTE,
    }
    if dataset.licence:
        package["licenses"] = [_licence(dataset.licence)]
    if dataset.citation:
        package["sources"] = [{"title": dataset.citation}]
    if dataset.contact:
        package["contributors"] = [_contact(dataset.contact)]
    package["resources"] = [
        {
            "name": "synthetic",
            "type": "table",
            "path": CSV_NAME,
            "format": "csv",
            "mediatype": "text/csv",
            "encoding": "utf-8",
            "bytes": csv_bytes,
            "hash": f"sha256:{csv_sha256}",
            **_blank_rows(spec),
            "schema": {
                "$schema": SCHEMA_PROFILE,
                "fields": [_field(n, c) for n, c in spec.columns.items()],
                "missingValues": [""],
            },
        }
    ]
    return package


_NOTE = "Synthetic rows under differential privacy; privacy/certificate.md states the guarantee."


def _blank_rows(spec: ReleaseSpec) -> dict[str, Any]:
    """Where each column may be missing, a row may miss all of them, which is no error of the file.

    Frictionless calls such a row blank and invalid unless it is told to pass over it.
    """
    able = all(column.missing for column in spec.columns.values())
    return {"dialect": {"skipBlankRows": True}} if able else {}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower())


def _contact(text: str) -> dict[str, Any]:
    """Whom to ask, as a contributor of Data Package 2; an e-mail address in it is also its own."""
    mail = re.search(r"[^\s<>(),;]+@[^\s<>(),;]+\.[^\s<>(),;]+", text)
    return {"title": text, **({"email": mail.group()} if mail else {}), "roles": ["contact"]}


def _licence(text: str) -> dict[str, str]:
    if re.match(r"https?://\S+$", text):
        return {"path": text}
    if re.fullmatch(r"[-a-zA-Z0-9._]+", text):
        return {"name": text}
    return {"name": re.sub(r"[^-a-zA-Z0-9._]+", "-", text).strip("-") or "other", "title": text}


def _field(name: str, column: Column) -> dict[str, Any]:
    field = {"name": name, **column_kind(column).frictionless(column)}
    if about := about_column(column):
        field["description"] = about
    if column.unit:
        field["unit"] = column.unit
    constraints: dict[str, Any] = field.setdefault("constraints", {})
    constraints["required"] = not column.missing
    return field
