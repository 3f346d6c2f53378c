"""The reference of the spec as Markdown, written from the models.

`python -m synthdp.spec.reference > docs/reference/spec.md` writes it.

Types and limits are those of the JSON schema that editors use; units, defaults and examples are the
fields' own.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annotated_types import Unit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.schema import json_schema

HEAD = """# Spec reference

`make docs` writes this page from the models in `synthdp/spec/`; do not edit it. A spec is one YAML
file with the sections below. The page says what one field can hold. `synthdp validate` reports
checks between fields, every mistake at once. `synthdp schema` prints the same as a JSON schema,
which YAML editors use to complete and check.

Names in `code` under "allowed" are written as they stand. "none" as a default means that the field
may be left out. A complete spec with all sections follows. Only `dataset`, `columns` and `privacy`
are required beside `synthdp: 1`:

```yaml
{example}
```
"""

# What the patterns of the contract mean to someone who does not read regular expressions.
PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": (
        "up to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit"
    ),
    r"^[A-Z_][A-Z0-9_]*$": "a variable's name in capitals",
    r"^\d{4}-\d\d-\d\d": "a date such as `2024-12-31`, or `2024-12-31T23:59:59`",
    r"^[0-9]{8}-[0-9a-f]{12}$": "a run, such as `20261124-0123456789ab`",
    r"^.*\S.*->.*\S.*$": "`cause, cause -> effect, effect`",
}
SCALARS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "string": "text",
}
CODES = {"string", "integer", "number", "boolean"}  # what a name or category may be written as


@dataclass(frozen=True)
class Section:
    """One model at its place in the spec.

    `path` is as in YAML. `kind` is its kind where it is one of several.
    """

    path: str
    kind: str
    model: type[BaseModel]

    @property
    def title(self) -> str:
        return f"`{self.path}`" + (f", `{self.kind}`" if self.kind else "")

    @property
    def link(self) -> str:
        return f"[{self.title}](#{anchor(self.title)})"


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(path: str = "", model: type[BaseModel] = ReleaseSpec) -> Iterator[Section]:
    """Every model of the contract below `model`, in the order of the fields that hold them."""
    for name, info in model.model_fields.items():
        for part in _parts(f"{path}.{name}" if path else name, info.annotation):
            yield part
            yield from sections(part.path, part.model)


def _parts(path: str, annotation: Any) -> Iterator[Section]:
    """The models that a field holds, itself or in a list or map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield Section(path, _kind(annotation), annotation)
        return
    container = typing.get_origin(annotation)
    place = f"{path}[]" if container is tuple else f"{path}.NAME" if container is dict else path
    for argument in typing.get_args(annotation):
        yield from _parts(place, argument)


def _kind(model: type[BaseModel]) -> str:
    """`kind: csv` and the like, of a model that is one of several and is told by that field."""
    for name in ("kind", "type"):
        field = model.model_fields.get(name)
        if field and field.is_required() and len(choices := typing.get_args(field.annotation)) == 1:
            return f"{name}: {choices[0]}"
    return ""


def page() -> str:
    """The whole reference, in Markdown."""
    every = list(sections())
    whole = {
        name: info.examples[0] for name, info in ReleaseSpec.model_fields.items() if info.examples
    }
    home = {
        section.model: section for section in reversed(every)
    }  # a model that stands in two places is described at the first
    parts = [
        HEAD.format(example="\n".join(_lines(whole))),
        _table(Section("", "", ReleaseSpec), home),
    ]
    for section in (s for s in every if home[s.model] == s):
        about = " ".join((section.model.__doc__ or "").split())
        mark = "##" if "." not in section.path and "[" not in section.path else "###"
        parts.append(f"{mark} {section.title}\n\n{about}\n\n{_table(section, home)}")
    return "\n".join(parts)


def _table(section: Section, home: Mapping[type[BaseModel], Section]) -> str:
    """The fields of a section, one to a line.

    Examples of the sections of the whole spec stand above it, together.
    """
    schema, whole = json_schema(), section.model is ReleaseSpec
    properties = (schema if whole else schema["$defs"][section.model.__name__])["properties"]
    heads = [
        "section" if whole else "field",
        "meaning",
        "allowed",
        *([] if whole else ["unit"]),
        "default",
        *([] if whole else ["example"]),
    ]
    rows = [heads, ["---"] * len(heads)]
    for name, info in sorted(
        section.model.model_fields.items(), key=lambda f: not section.kind.startswith(f"{f[0]}:")
    ):
        links = ", ".join(
            dict.fromkeys(home[part.model].link for part in _parts(name, info.annotation))
        )
        texts = [f"`{name}`", info.description or "", links or allowed(properties[name])]
        rows.append(
            [*texts, _default(info)]
            if whole
            else [
                *texts,
                unit(info),
                _default(info),
                _code(info.examples[0] if info.examples else None),
            ]
        )
    return (
        "\n".join(
            f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in rows
        )
        + "\n"
    )


def unit(info: FieldInfo) -> str:
    """The unit that a field's type names, also inside `X | None`."""
    inner = [m for a in typing.get_args(info.annotation) for m in getattr(a, "__metadata__", ())]
    return next((m.unit for m in [*info.metadata, *inner] if isinstance(m, Unit)), "")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default is None or info.default in ((), {}):
        return "none"
    if isinstance(info.default, BaseModel):
        changed = info.default.model_dump(exclude_defaults=True)
        return _code(changed) if changed else "its fields' defaults"
    return _code(list(info.default) if isinstance(info.default, tuple) else info.default)


def _code(value: object) -> str:
    return f"`{flow(value)}`"


def allowed(node: Mapping[str, Any]) -> str:
    """What a node of the JSON schema lets through, in words."""
    if "anyOf" in node:
        choices = [c for c in node["anyOf"] if c.get("type") != "null"]
        if {c.get("type") for c in choices} == CODES:
            return "text"
        return " or ".join(dict.fromkeys(allowed(c) for c in choices))
    if "enum" in node:
        return ", ".join(_code(v) for v in node["enum"])
    if "const" in node:
        return _code(node["const"])
    if node["type"] == "array":
        return f"list{_size(node, 'Items')} of {allowed(node['items'])}"
    if "properties" in node:
        return _code({key: "..." for key in node["properties"]})
    if node["type"] == "object":
        return f"map of names to {allowed(node['additionalProperties'])}"
    if "pattern" in node:
        return PATTERNS[node["pattern"]]
    return ", ".join([SCALARS[node["type"]] + _size(node, "Length", " characters"), *_range(node)])


def _range(node: Mapping[str, Any]) -> Iterator[str]:
    for key, word in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ):
        if key in node:
            yield f"{word} {node[key]:,}" if isinstance(node[key], int) else f"{word} {node[key]:g}"


def _size(node: Mapping[str, Any], what: str, counted: str = "") -> str:
    least, most = node.get(f"min{what}", 0), node.get(f"max{what}")
    if not least and most is None:
        return ""
    size = (
        f"{least} or more"
        if most is None
        else (
            f"{least}"
            if least == most
            else f"{least} to {most:,}"
            if least
            else f"at most {most:,}"
        )
    )
    return f" ({size}{counted})".replace("(1 characters)", "(1 character)")


def flow(value: object) -> str:
    """A value as YAML on one line; text goes in quotes unless it is plainly text."""
    if isinstance(value, Mapping):
        keys = {key: key if re.match(r"\w", str(key)) else json.dumps(key) for key in value}
        return "{" + ", ".join(f"{keys[key]}: {flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(entry) for entry in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return (
            value
            if re.fullmatch(r"[\w$][\w /.+-]*", value) and plain(value) == value
            else json.dumps(value)
        )
    return str(value)


def _lines(sections: Mapping[str, object]) -> Iterator[str]:
    """Sections in blocks: their fields on lines of their own."""
    for name, value in sections.items():
        if isinstance(value, Mapping):
            yield f"{name}:"
            yield from (f"  {key}: {flow(entry)}" for key, entry in value.items())
        else:
            yield f"{name}: {flow(value)}"


if __name__ == "__main__":
    print(page(), end="")
