"""The contract as a JSON schema, for editors that complete and check YAML while it is written.

Editors see what one field can hold; checks between fields are the loader's (`synthdp validate`).
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from synthdp.spec.model import LinkedSpec, ReleaseSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec as written: arrows as text, codes without quotes.

    A spec whose dataset has tables is a `LinkedSpec`.

    >>> json_schema()["$defs"]["ReleaseSpec"]["required"]
    ['synthdp', 'dataset', 'columns', 'privacy']
    """
    _, schema = models_json_schema([(ReleaseSpec, "validation"), (LinkedSpec, "validation")])
    tables = {"type": "object", "required": ["tables"]}
    return {
        "$schema": DIALECT,
        "title": "synthdp release spec",
        "if": {"properties": {"dataset": tables}, "required": ["dataset"]},
        "then": {"$ref": "#/$defs/LinkedSpec"},
        "else": {"$ref": "#/$defs/ReleaseSpec"},
        **_tidy(schema),
    }


# Constraints behind a validator of ours come out of pydantic under its own names.
_KEYWORDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_ARRAY_KEYWORDS = {"minLength": "minItems", "maxLength": "maxItems"}


def _tidy(node: Any, *, names: bool = False) -> Any:
    """Standard keywords only, and no generated titles.

    Editors would show these titles in place of descriptions. `names` says that the keys of `node`
    are the user's (a field may be called title), not the schema's.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if names:
        return {key: _tidy(value) for key, value in node.items()}
    keywords = _KEYWORDS | (_ARRAY_KEYWORDS if node.get("type") == "array" else {})
    # Defaults and examples are values, not schemas.
    return {
        keywords.get(key, key): value
        if key in ("default", "examples")
        else _tidy(value, names=key in ("properties", "$defs"))
        for key, value in node.items()
        if key != "title"
    }
