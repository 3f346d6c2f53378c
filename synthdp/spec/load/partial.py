"""What can be saved of a spec with wrong fields, so that the checks between its sections still run.

Wrong entries are cut out of a copy of the tree until what remains is valid. What was cut is named,
so that no check is run on a default that the steward did not mean. Names of columns are not looked
up here: `synthdp.spec.load.names` reads them from the whole tree.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from synthdp.spec.load.yaml_tree import Node
from synthdp.spec.model import (
    Column,
    Constraint,
    Dataset,
    DeclaredRows,
    Estimand,
    Gate,
    Name,
    PrivacyUnit,
    ReleaseSpec,
    Source,
    Unread,
    ValueMap,
)
from synthdp.spec.model.rules import fill_defaults
from synthdp.spec.wording import closest

_M = TypeVar("_M", bound=BaseModel)
_APART = ("dataset", "columns", "estimands", "gates", "constraints")
_RULED = {
    "dataset",
    "dataset.rows",
    "columns",
    "privacy",
    "privacy.epsilon",
    "privacy.shares",
    "privacy.pairs",
    "graph",
    "synthesizer",
    "synthesizer.targets",
    "evaluation",
    "evaluation.targets",
}  # what the rules for settings that are left out read


def partial_spec(tree: Node) -> tuple[Node, ReleaseSpec, frozenset[str]]:
    """The tree without its wrong entries, a spec built from it unchecked, and what was lost.

    Lost parts are named `section`, `section.field`, or `section.field[]` for a list that lacks
    entries. The spec may lack what is lost, and only that.
    """
    tree, lost = copy.deepcopy(tree), set(_meant(tree, ReleaseSpec))
    parts: dict[str, Any] = {"synthdp": 1}
    for name, field in ReleaseSpec.model_fields.items():
        model = field.annotation
        if name in _APART or not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        parts[name] = (
            _section(model, tree.entries.get(name), name, lost)
            if name in tree.entries or field.is_required()
            else field.default
        )
    parts["dataset"] = _dataset(tree.entries.get("dataset"), lost)
    parts["columns"] = _columns(tree.entries.get("columns"), lost)
    asked = tree.entries.get("estimands")
    entries = len(asked.items) if asked is not None else 0
    parts["estimands"] = _entries(Estimand, asked)
    if len(parts["estimands"]) < entries:
        lost.add("estimands[]")
    maps = tree.entries.get("maps")
    parts["maps"] = _valid(TypeAdapter(dict[Name, ValueMap]), maps) or {}
    if maps is not None and not parts["maps"]:
        lost.add("maps")
    parts["gates"] = _entries(Gate, tree.entries.get("gates"))
    parts["constraints"] = _entries(Constraint, tree.entries.get("constraints"))
    spec = ReleaseSpec.model_construct(**parts)
    return tree, spec if lost & _RULED else fill_defaults(spec), frozenset(lost)


def _section(model: type[_M], node: Node | None, name: str, lost: set[str]) -> _M | None:
    stand_ins: dict[str, Any] = {}
    while node is not None and node.kind == "map" and not node.reported:
        try:
            return model.model_validate(
                {key: entry.value() for key, entry in node.entries.items()} | stand_ins
            )
        except ValidationError as error:
            # From the end of each list, so that positions before it stay true.
            wrong = sorted(
                {detail["loc"][:2] for detail in error.errors(include_url=False)}, key=_from_the_end
            )
            if not all([_cut(model, node, loc, name, lost, stand_ins) for loc in wrong]):
                break
    lost.add(name)
    return None


def _from_the_end(loc: tuple[int | str, ...]) -> tuple[str, int]:
    position = loc[1] if len(loc) > 1 else 0
    return (str(loc[0]) if loc else "", -position if isinstance(position, int) else 0)


def _meant(node: Node, model: type[BaseModel]) -> Iterator[str]:
    """Keys that are missing because they are misspelt.

    The value under the misspelt key was meant, and not the default.
    """
    absent = [key for key in model.model_fields if key not in node.entries]
    yield from (
        meant
        for key in node.entries
        if key not in model.model_fields and (meant := closest(key, absent)) is not None
    )


def _cut(
    model: type[BaseModel],
    node: Node,
    loc: tuple[int | str, ...],
    name: str,
    lost: set[str],
    stand_ins: dict[str, Any],
) -> bool:
    """Cut what is wrong at `loc` out of a section; False where the section cannot do without it.

    A required field is lost, and its example stands in for it: the model wants one, and no check
    reads it.
    """
    key = str(loc[0]) if loc else ""
    field, entry = model.model_fields.get(key), node.entries.get(key)
    inside = loc[1] if len(loc) > 1 else None
    if field is not None and field.is_required():
        if key in stand_ins or not field.examples:
            return False
        stand_ins[key] = field.examples[0]
        node.entries.pop(key, None)
        lost.add(f"{name}.{key}")
        return True
    if entry is None:
        return field is not None  # cut already, for another mistake in it
    lost |= {f"{name}.{meant}" for meant in _meant(node, model)}
    if field is not None and isinstance(inside, int) and inside < len(entry.items):
        del entry.items[inside]
        lost.add(f"{name}.{key}[]")
    elif key == "groups" and inside in entry.entries:
        del entry.entries[str(inside)]
        lost.add(f"{name}.{key}[]")
    else:
        del node.entries[key]
        lost.add(f"{name}.{key}")
    return True


def _dataset(node: Node | None, lost: set[str]) -> Dataset:
    """The parts of the dataset that other sections depend on, each by itself."""
    kinds: dict[str, TypeAdapter[Any]] = {
        "source": TypeAdapter(Source),
        "privacy_unit": TypeAdapter(PrivacyUnit),
        "rows": TypeAdapter(DeclaredRows),
    }
    parts = {
        name: _valid(kind, node.child(name) if node is not None else None)
        for name, kind in kinds.items()
    }
    lost |= {f"dataset.{name}" for name, part in parts.items() if part is None}
    return Dataset.model_construct(**parts)


def _columns(node: Node | None, lost: set[str]) -> dict[str, Any]:
    if node is None or node.kind != "map" or node.reported:
        lost.add("columns")
        return {}
    kind: TypeAdapter[Any] = TypeAdapter(Column)
    columns = {name: _valid(kind, entry) for name, entry in node.entries.items()}
    unread = Unread.model_construct(type="categorical", categories=())
    return {name: column if column is not None else unread for name, column in columns.items()}


def _entries(entry: Any, node: Node | None) -> tuple[Any, ...]:
    """The valid entries of a list."""
    if node is None or node.kind != "list":
        return ()
    kind: TypeAdapter[Any] = TypeAdapter(entry)
    node.items = [item for item in node.items if _valid(kind, item) is not None]
    return tuple(_valid(kind, item) for item in node.items)


def _valid(kind: TypeAdapter[Any], node: Node | None) -> Any:
    """The node's value as a model, or None where it is not valid."""
    try:
        return kind.validate_python(node.value()) if node is not None else None
    except ValidationError:
        return None
