"""What is written of a spec: a draft as YAML, and the contract as a JSON schema.

A draft is made from templates, with values on one line. The schema is for editors that complete and
check YAML while it is written. They see what one field can hold; checks between fields are the
loader's (`synthdp validate`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from synthdp.spec.load.yaml_tree import TO_FILL, plain
from synthdp.spec.model import LinkedSpec, ReleaseSpec

FOLDER = Path(__file__).with_name("templates")


class Blank(str):
    """A place that is left to be filled in, and what belongs there.

    It is written with the tag `TO_FILL`, which no text of a table or a code book has, whatever its
    characters; the loader of specs refuses it by its tag.
    """


def slug_of(csv: Path) -> str:
    letters = unicodedata.normalize("NFKD", csv.stem)
    plain_letters = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain_letters).strip("-._")[:64] or "table"


def written(template: str, **values: Any) -> str:
    """A draft, from a template of the folder beside this module.

    For a table of few rows it has no holdout and no attack. Of fewer than 500 rows a fifth is at
    most a hundred. On 50 rows of each of two classes an AUC of .5 has the 95% interval .5 +- .11
    [Hanley and McNeil 1982: variance (n + 1) / (3 n^2) for n / 2 rows of each], so that test rows
    judge next to nothing, and noise weighs a quarter more on the rows that are left. The shadow
    models of the membership attack draw 300 rows by default: most of such a table, so that they are
    hardly independent, and their interval is too narrow.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"yaml": yaml_value, "lines": yaml_lines}
    return environment.get_template(f"{template}.yaml.j2").render(values)


def yaml_lines(entries: Mapping[str, Any], indent: int) -> str:
    return "\n".join(f"{' ' * indent}{key}: {yaml_value(value)}" for key, value in entries.items())


def yaml_value(value: object) -> str:
    """A value on one line; text goes in quotes unless it is plainly text."""
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{yaml_value(key)}: {yaml_value(entry)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if not isinstance(value, str):
        return str(value)
    if isinstance(value, Blank):
        return f"{TO_FILL} {json.dumps(value)}"
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_. >-]*(?<! )", value) and plain(value) == value:
        return value
    # YAML reads what cannot be printed by its code, inside double quotes.
    letters = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in letters)


def yaml_text(content: Mapping[str, Any], *, width: int = 80) -> str:
    """A mapping as YAML text without aliases, which the loader refuses.

    Raises:
        yaml.YAMLError, RecursionError: it holds a value that YAML does not have.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(dict(content), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=width)


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
        return list(map(_tidy, node))
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
