"""A REDCap data dictionary: the CSV file that a project downloads under "Data Dictionary".

[Source: the dictionary's own columns, and REDCap's names of exported checkboxes, `field___code`.]
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from synthdp.errors import DataError
from synthdp.spec.codebook.described import Codebook, Described, Kind, text_of

NAME, TYPE, LABEL = "Variable / Field Name", "Field Type", "Field Label"
CHOICES = "Choices, Calculations, OR Slider Labels"
CHECK = "Text Validation Type OR Show Slider Number"
LOWER, UPPER = "Text Validation Min", "Text Validation Max"
IDENTIFIER, REQUIRED = "Identifier?", "Required Field?"
BRANCHING = "Branching Logic (Show field only if...)"


def read(path: Path) -> Codebook:
    """The fields of a dictionary.

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
    return Codebook(tuple(c for row in rows if row[NAME] for c in _columns(row)))


def _columns(row: Mapping[str, str]) -> Iterator[Described]:
    """A field's column in the export; of a checkbox one for each choice."""
    form, name, label = row[TYPE], row[NAME], row[LABEL]
    missing = row.get(REQUIRED, "") != "y" or bool(row.get(BRANCHING))
    identifies = row.get(IDENTIFIER, "") == "y"
    if form == "descriptive":  # on the form, and not in the export
        return
    if form == "checkbox":
        marks = {"0": "not checked", "1": "checked"}
        for code, choice in _choices(row[CHOICES]).items():
            column = f"{name}___{code.lower().replace('-', '_')}"
            own = Described(column, f"{label} ({choice})", labels=marks, missing=missing)
            yield replace(own, identifies=identifies)
        return
    labels = {"yesno": {"0": "no", "1": "yes"}, "truefalse": {"0": "false", "1": "true"}}
    listed = _choices(row[CHOICES]) if form in ("radio", "dropdown") else labels.get(form, {})
    kind, decimals = _kind(form, row.get(CHECK, ""))
    ends = ("0", "100") if form == "slider" else (None, None)
    lower, upper = row.get(LOWER) or ends[0], row.get(UPPER) or ends[1]
    own = Described(name, label, "", kind, lower, upper, decimals, listed, missing=missing)
    yield replace(own, identifies=identifies)


def _kind(form: str, check: str) -> tuple[Kind | None, int | None]:
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
