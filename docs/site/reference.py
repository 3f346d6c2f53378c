"""The reference of the spec as Markdown, written from the models.

`make docs` writes it. Types and limits are those of the JSON schema that editors use; units,
defaults and examples are the fields' own.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from annotated_types import Unit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.spec.model.dataset import Disjoint, Rotating
from synthdp.spec.model.linked import PersonsTable, VisitsTable
from synthdp.spec.writing import json_schema

HEAD = """# Spec reference

`make docs` writes this page from the models in `synthdp/spec/model/`. A spec is one YAML file;
`synthdp validate` reports all that is wrong, `synthdp schema` prints a JSON schema for editors.

After a field's meaning stand what it may hold, its unit and its default; one without a default may
be left out. Names in `code` are written as they stand. A complete spec follows; only `dataset`,
`columns` and `privacy` are required beside `synthdp: 1`. Two tables have [sections of their
own](#linked-tables).

```yaml
{example}
```
"""

LINKED_HEAD = """## Linked tables

[Persons and their visits](../guides/visits.md), protected per person. Its dataset has `tables`:

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
    r"^\d{4}-\d\d-\d\d": "`2024-12-31` or `2024-12-31T23:59:59`",
    r"^[0-9a-f]{64}$": "a SHA-256 in hex digits",
    r"^[0-9]{8}-[0-9a-f]{12}$": "a run, such as `20261124-0123456789ab`",
    r"^.*\S.*->.*\S.*$": "`cause, cause -> effect, effect`",
}
SCALARS = {
    "integer": "integer",
    "number": "number",
    "boolean": "`true` or `false`",
    "string": "text",
}
PLAIN = re.compile(r'\[?"?[\w ,.-]+"?]?')
CODES = {"string", "integer", "number", "boolean"}  # what a name or category may be written as


TABLES: dict[type[BaseModel], str] = {
    PersonsTable: "persons",
    VisitsTable: "visits",
    Disjoint: "disjoint",
    Rotating: "rotating",
}
Field = tuple[str, str, str, str | None, str]  # what tells one field from another


@dataclass(frozen=True)
class Section:
    """One model at its place in the spec.

    `path` is as in YAML. `kind` is its kind where it is one of several. `linked` says that it is of
    a spec of linked tables.
    """

    path: str
    kind: str
    model: type[BaseModel]
    linked: bool = False

    @property
    def title(self) -> str:
        of = " of linked tables" if self.linked else ""
        return f"`{self.path}`" + (f", `{self.kind}`" if self.kind else "") + of

    @property
    def link(self) -> str:
        """A link to the section; one of several kinds is called by its kind."""
        kind = self.kind.partition(": ")[2] or self.kind
        return f"[`{kind or self.path}`](#{anchor(self.title)})"


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def sections(path: str = "", model: type[BaseModel] | None = None) -> Iterator[Section]:
    """Every model of the contract below `model`, in the order of the fields that hold them; without
    one those of a spec of one table, then those of linked tables."""
    if model is None:
        yield from sections(model=ReleaseSpec)
        yield from (replace(section, linked=True) for section in sections(model=LinkedSpec))
        return
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
    if model in TABLES:
        return TABLES[model]
    for name in ("kind", "type"):
        field = model.model_fields.get(name)
        if field and field.is_required() and len(choices := typing.get_args(field.annotation)) == 1:
            return f"{name}: {choices[0]}"
    return ""


def page() -> str:
    """The whole reference, in Markdown."""
    every = list(sections())
    home = {
        section.model: section for section in reversed(every)
    }  # a model that stands in two places is described at the first
    told: dict[Field, Section] = {}
    parts = list[str]()
    for head, root in ((HEAD, ReleaseSpec), (LINKED_HEAD, LinkedSpec)):
        linked = root is LinkedSpec
        fields = root.model_fields.items()
        whole = {name: info.examples[0] for name, info in fields if info.examples}
        parts.append(head.format(example="\n".join(_lines(whole))))
        parts += _table(Section("", "", root, linked), home, told)
        for section in (s for s in every if home[s.model] == s and s.linked == linked):
            about = " ".join((section.model.__doc__ or "").split())
            mark = "##" if "." not in section.path and "[" not in section.path else "###"
            parts += [
                f"{mark} {section.title}\n\n{about}\n",
                *_table(section, home, told),
            ]
    return "\n".join(parts)


def _table(
    section: Section, home: Mapping[type[BaseModel], Section], told: dict[Field, Section]
) -> Iterator[str]:
    """The fields of a section, one to a line; below them those that an earlier section told.

    An example stands where neither what is allowed nor the default shows one, and where it is no
    plain text; those of the sections of the whole spec stand together above it.
    """
    whole = not section.path
    properties = json_schema()["$defs"][section.model.__name__]["properties"]
    rows, ends, again = list[str](), list[tuple[str, str]](), dict[Section, list[str]]()
    for name, info in section.model.model_fields.items():
        if section.kind.startswith(f"{name}:"):
            continue  # the title says it
        field = (name, str(info.annotation), str(info.metadata), info.description, _default(info))
        if told.setdefault(field, section) is not section:
            again.setdefault(told[field], []).append(f"`{name}`")
            continue
        held = dict.fromkeys(home[part.model] for part in _parts(name, info.annotation))
        if len(held) == 1:
            title, limits = f"[`{name}`](#{anchor(next(iter(held)).title)})", ""
        else:
            links = ", ".join(part.link for part in held)
            title, limits = f"`{name}`", links or allowed(properties[name])
        limits = ", ".join(filter(None, [limits, unit(info)]))
        default, example = _default(info), flow(info.examples[0])
        if default.startswith("`") and limits == SCALARS["boolean"]:
            limits = ""
        shown = (
            whole
            or held
            or limits.startswith(("`", "number", "integer"))
            or (limits.startswith("text") and PLAIN.fullmatch(example))
        )
        if not shown and default in ("", "required"):
            default = ", ".join(filter(None, [default, f"e.g. `{example}`"]))
        default = f"default {default}" if default.startswith("`") else default
        elsewhere = len(held) == 1 and ";" not in str(info.description)  # its section says it
        rows.append(f"- {title}" if elsewhere else f"- {title}: {info.description}")
        ends.append((limits, default))
    if len(rows) > 2 and len({limits for limits, _ in ends}) == 1:
        yield f"Each is a {ends[0][0]}.\n"
        ends = [("", default) for _, default in ends]
    if rows:
        told_of = ("; ".join(filter(None, parts)) for parts in ends)
        lines = (row + (f". *{of}*" if of else "") for row, of in zip(rows, told_of, strict=True))
        yield "\n".join([*lines, ""])
    if again:
        as_there = "; ".join(
            f"{', '.join(names)} as in {s.link if s.path else 'a spec of one table'}"
            for s, names in again.items()
        )
        yield f"{'Also' if rows else 'It has'} {as_there}.\n"


def unit(info: FieldInfo) -> str:
    """The unit that a field's type names, also inside `X | None`."""
    inner = [m for a in typing.get_args(info.annotation) for m in getattr(a, "__metadata__", ())]
    return next((m.unit for m in [*info.metadata, *inner] if isinstance(m, Unit)), "")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default is None or info.default in ((), {}):
        return ""
    if isinstance(info.default, BaseModel):
        changed = info.default.model_dump(exclude_defaults=True)
        return _code(changed) if changed else ""
    return _code(list(info.default) if isinstance(info.default, tuple) else info.default)


def _code(value: object) -> str:
    return f"`{flow(value)}`"


def allowed(node: Mapping[str, Any]) -> str:
    """What a node of the JSON schema lets through, in words."""
    if several := node.get("anyOf", node.get("oneOf")):
        choices = [c for c in several if c.get("type") != "null"]
        if {c.get("type") for c in choices} == CODES:
            return "text"
        return " or ".join(dict.fromkeys(allowed(c) for c in choices))
    if "enum" in node:
        return ", ".join(_code(v) for v in node["enum"])
    if "const" in node:
        return _code(node["const"])
    if node["type"] == "array":
        items = allowed(node["items"])
        size = _size(node, "Items")
        return f"texts{size}" if items == "text" else f"list{size} of {items}"
    if "properties" in node:
        return _code({key: "..." for key in node["properties"]})
    if node["type"] == "object":
        return f"map to {allowed(node['additionalProperties'])}"
    if "pattern" in node:
        return PATTERNS[node["pattern"]]
    exact = node.get("minLength") == node.get("maxLength")
    return ", ".join([SCALARS[node["type"]] + _size(node, "Length") * exact, *_range(node)])


def _range(node: Mapping[str, Any]) -> Iterator[str]:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    ends = {
        key: f"{end:,}" if isinstance(end, int) else f"{end:g}"
        for key in words
        if (end := node.get(key)) is not None
    }
    if {"minimum", "maximum"} <= ends.keys():
        yield f"{ends['minimum']} to {ends['maximum']}"
    else:
        yield from (f"{words[key]} {end}" for key, end in ends.items())


def _size(node: Mapping[str, Any], what: str) -> str:
    least, most = node.get(f"min{what}", 0), node.get(f"max{what}")
    if least <= 1 and most is None:
        return ""
    if most is None:
        size = f"{least} or more"
    elif least == most:
        size = f"{least}"
    else:
        size = f"{least} to {most:,}" if least > 1 else f"up to {most:,}"
    return f" ({size})"


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
