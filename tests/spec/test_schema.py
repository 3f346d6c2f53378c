"""The JSON schema for editors."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from synthdp.spec import DIALECT, json_schema, read

TEXT = Path(__file__).with_name("complete_spec.yaml").read_text(encoding="utf-8")


def _errors(text: str) -> list[str]:
    tree, _ = read(text)
    assert tree is not None
    return sorted(
        e.json_path
        for e in jsonschema.Draft202012Validator(json_schema()).iter_errors(tree.value())
    )


def test_it_is_a_schema() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT


def test_a_good_spec_passes_with_arrows_and_codes_as_written() -> None:
    assert _errors(TEXT) == []
    assert _errors(TEXT.replace("[Female, Male]", "[0, 1.5, true]")) == []


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("epsilon: 1", "epsilon: 0", "$.privacy.epsilon"),
        ("epsilon: 1", "epsilom: 1", "$.privacy"),
        ("mode: given", "mode: guess", "$.graph.mode"),
        ("age, sex -> education", "age, sex", "$.graph.edges[0]"),
        ("age, sex -> education", "age, sex ->", "$.graph.edges[0]"),
        ("[Female, Male]", "[]", "$.columns.sex"),
        ("value: 48842", "value: many", "$.dataset.rows.value"),
        ("lower: 17", "lower: 17, missing: no", "$.columns.age"),
        (
            "joined: {type: datetime, lower: 2001-01-01",
            "joined: {type: datetime, lower: long ago",
            "$.columns.joined",
        ),
    ],
)
def test_a_bad_spec_fails_where_it_is_bad(old: str, new: str, path: str) -> None:
    assert path in _errors(TEXT.replace(old, new))


def test_only_standard_keywords_and_descriptions_for_the_user() -> None:
    schema = json_schema()
    known = set(
        [
            "$schema", "$defs", "$ref", "title", "description", "type", "properties", "required",
            "additionalProperties", "propertyNames", "items", "anyOf", "oneOf", "enum", "const",
            "default", "examples", "pattern", "minimum", "maximum", "exclusiveMinimum",
            "exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties",
            "maxProperties", "discriminator", "if", "then", "else",
            "patternProperties",
        ]
    )  # fmt: skip

    def keywords(node: Any) -> set[str]:
        found = set(node)
        for key, value in node.items():
            if key in ("properties", "patternProperties", "$defs"):
                found |= set().union(*(keywords(v) for v in value.values()))
            elif key in ("items", "additionalProperties", "propertyNames") and isinstance(
                value, dict
            ):
                found |= keywords(value)
            elif key in ("anyOf", "oneOf"):
                found |= set().union(*(keywords(v) for v in value))
        return found

    assert keywords(schema) <= known
    assert (
        schema["$defs"]["Privacy"]["properties"]["epsilon"]["description"]
        == "total for everything in the run"
    )
    assert "title" in schema["$defs"]["Dataset"]["properties"]
