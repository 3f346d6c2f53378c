"""Frictionless Table Schema (versions 1 and 2) in JSON: alone, or inside a Data Package.

[Source: datapackage.org/standard/table-schema, version 2.0.]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synthdp.errors import DataError
from synthdp.spec.codebook.described import Codebook, Described, Kind, code_text, text_of

KINDS: dict[str, Kind] = {
    "integer": "whole",
    "year": "whole",
    "number": "number",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "datetime": "time",
}


def read(path: Path) -> Codebook:
    """The columns of a schema, or of the only schema of a package.

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
    columns = tuple(
        _column(entry)
        for entry in schema["fields"]
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    )
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


def _column(entry: Mapping[str, Any]) -> Described:
    rules = entry.get("constraints")
    rules = rules if isinstance(rules, Mapping) else {}
    kind = KINDS.get(str(entry.get("type", "")))
    labels = _labels(entry.get("categories")) or _labels(rules.get("enum"))
    if kind == "boolean":
        ends = (entry.get("falseValues") or ["false"], entry.get("trueValues") or ["true"])
        labels = {code_text(end[0]): "" for end in ends if isinstance(end, list) and end}
    said = [entry.get(key) for key in ("title", "description")]
    return Described(
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
    return tuple(code for code in _labels(holder.get("missingValues")) if code)
