"""What can be saved of a spec with wrong fields, so that the checks between its sections still run.

Wrong entries are cut out of a copy of the tree until what remains is valid, or a required field is gone. What
was cut is named, so that no check is run on a default that the steward did not mean.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from synthdp.spec.models import Categorical, Column, Constraint, Dataset, Gate, PrivacyUnit, ReleaseSpec, Rows, Source
from synthdp.spec.yamltree import Node

_M = TypeVar("_M", bound=BaseModel)
_APART = ("dataset", "columns", "gates", "constraints")


def partial_spec(tree: Node) -> tuple[Node, ReleaseSpec, frozenset[str]]:
    """The tree without its wrong entries, a spec built from it unchecked, and what was lost.

    Lost parts are named `section`, `section.field`, or `section.field[]` for a list that lacks entries. The
    spec may lack what is lost, and only that.
    """
    tree, lost = copy.deepcopy(tree), set[str]()
    parts: dict[str, Any] = {"synthdp": 1}
    for name, field in ReleaseSpec.model_fields.items():
        model = field.annotation
        if name in _APART or not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        parts[name] = _section(model, tree.entries.get(name), name, lost) if name in tree.entries or field.is_required() else field.default
    parts["dataset"] = _dataset(tree.entries.get("dataset"), lost)
    parts["columns"] = _columns(tree.entries.get("columns"), lost)
    parts["gates"] = _entries(Gate, tree.entries.get("gates"))
    parts["constraints"] = _entries(Constraint, tree.entries.get("constraints"))
    return tree, ReleaseSpec.model_construct(**parts), frozenset(lost)


def _section(model: type[_M], node: Node | None, name: str, lost: set[str]) -> _M | None:
    while node is not None and node.kind == "map" and not node.spoiled:
        try:
            return model.model_validate(node.value())
        except ValidationError as error:
            # From the end of each list, so that positions before it stay true.
            wrong = sorted({detail["loc"][:2] for detail in error.errors(include_url=False)}, key=_from_the_end)
            if not all([_cut(model, node, loc, name, lost) for loc in wrong]):
                break
    lost.add(name)
    return None


def _from_the_end(loc: tuple[int | str, ...]) -> tuple[str, int]:
    position = loc[1] if len(loc) > 1 else 0
    return (str(loc[0]) if loc else "", -position if isinstance(position, int) else 0)


def _cut(model: type[BaseModel], node: Node, loc: tuple[int | str, ...], name: str, lost: set[str]) -> bool:
    """Cut what is wrong at `loc` out of a section; False where the section cannot do without it."""
    key = str(loc[0]) if loc else ""
    field, entry = model.model_fields.get(key), node.entries.get(key)
    inside = loc[1] if len(loc) > 1 else None
    if entry is None:
        return field is not None and not field.is_required()  # cut already, for another mistake in it
    if field is not None and field.is_required():
        return False
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
    kinds: dict[str, TypeAdapter[Any]] = {"source": TypeAdapter(Source), "privacy_unit": TypeAdapter(PrivacyUnit), "rows": TypeAdapter(Rows)}
    parts = {name: _valid(kind, node.child(name) if node is not None else None) for name, kind in kinds.items()}
    lost |= {f"dataset.{name}" for name, part in parts.items() if part is None}
    return Dataset.model_construct(**parts)


def _columns(node: Node | None, lost: set[str]) -> dict[str, Any]:
    if node is None or node.kind != "map" or node.spoiled:
        lost.add("columns")
        return {}
    kind: TypeAdapter[Any] = TypeAdapter(Column)
    columns = {name: _valid(kind, entry) for name, entry in node.entries.items()}
    if None in columns.values():
        lost.add("columns[]")
    # A wrong column keeps its name, which arrows and targets may use; it has no categories to check.
    unknown = Categorical.model_construct(type="categorical", categories=())
    return {name: column if column is not None else unknown for name, column in columns.items()}


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
