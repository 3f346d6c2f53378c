"""Names of columns, wherever a spec writes one, and the expressions over them.

They are read from the spec as it was written, not from its models: a wrong number beside a name, a
list that is too short or a column whose own entry is wrong hides no other name. A wrong column
keeps its name; of its values nothing is known (`Unread`).
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.parsed import listed_names
from synthdp.spec.load.wording import Loc, closest, nearest
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
from synthdp.spec.model.columns import derived_of
from synthdp.spec.model.graph import sides
from synthdp.spec.model.rules import fill_defaults

MAX_TOLD = 101  # of one place: nobody reads more, and suggesting names for them costs time
MAX_LETTERS, MAX_EXPRESSION = (
    128,
    1000,
)  # what is longer has been refused as a name or an expression

# `*` is every item of a list, or every entry of a map.
_COLUMNS = (
    "privacy.pairs.*.*",
    "synthesizer.targets.*",
    "sampling.even.*",
    "evaluation.targets.*",
    "evaluation.subgroups.*",
    "evaluation.effects.*.outcome",
    "evaluation.effects.*.adjust.*",
    "estimands.*.columns.*",
    "estimands.*.outcome",
    "estimands.*.adjust.*",
)
_EXPRESSIONS = (
    "constraints.*",
    "estimands.*.where",
    *(
        f"{e}.*.{arm}"
        for e in ("evaluation.effects", "estimands")
        for arm in ("treated", "control")
    ),
)
_ARROWS, _NODES = ("graph.edges.*", "graph.forbidden.*"), ("graph.tiers.*.*", "graph.latent.*.*")


def written(spec: ReleaseSpec) -> dict[str, Any]:
    """The parts of a whole spec that name columns, as a YAML file would hold them."""
    sections = {
        name: getattr(spec, name).model_dump()
        for name in ("privacy", "graph", "synthesizer", "sampling", "evaluation")
    }
    estimands = [e.model_dump() for e in spec.estimands]
    return {**sections, "constraints": spec.constraints, "estimands": estimands}


def name_problems(data: object, columns: Mapping[str, Column]) -> Iterator[CrossProblem]:
    """Every unknown name in `data`, and every mistake in an expression.

    `data` is a spec as plain lists and maps. `columns` are the declared ones.
    """
    for pattern in _COLUMNS:
        yield from itertools.islice(_unknown(data, pattern, columns), MAX_TOLD)
    yield from node_problems(data, columns)
    yield from itertools.islice(
        _computed(
            data, {name for name, column in columns.items() if derived_of(column) is not None}
        ),
        MAX_TOLD,
    )
    for pattern in _EXPRESSIONS:
        texts = (
            (where, text)
            for where, text in _found(data, pattern)
            if isinstance(text, str) and 0 < len(text) <= MAX_EXPRESSION
        )
        mistakes = (
            (where, m)
            for where, text in texts
            for m in parse(text, columns, derived=pattern == "constraints.*")[1]
        )
        yield from (
            CrossProblem(where, f"character {m.at}: {m.message}", m.hint)
            for where, m in itertools.islice(mistakes, MAX_TOLD)
        )


def node_problems(data: object, columns: Collection[str]) -> Iterator[CrossProblem]:
    """Unknown names in the graph section.

    Nodes are the groups, and the columns that are in no group: everywhere but in `groups` itself a
    grouped column is named through its group. Where `groups` cannot be read at all, any unknown
    name may be one, and none is reported.
    """
    yield from itertools.islice(_unknown(data, "graph.groups.*.*", columns), MAX_TOLD)
    groups: object = next((value for _, value in _found(data, "graph.groups")), {})
    if not isinstance(groups, Mapping):
        return
    group_of = {name: where[-2] for where, value in _found(groups, "*.*") if (name := _name(value))}
    for pattern in _ARROWS:
        yield from itertools.islice(
            (
                replace(p, hint=_as_map(arrow, (*columns, *groups)) or p.hint)
                for where, arrow in _found(data, pattern)
                for end, name in _ends(where, arrow)
                for p in _no_node(end, name, columns, groups, group_of)
            ),
            MAX_TOLD,
        )
    for pattern in _NODES:
        names = ((where, name) for where, value in _found(data, pattern) if (name := _name(value)))
        yield from itertools.islice(
            (p for where, name in names for p in _no_node(where, name, columns, groups, group_of)),
            MAX_TOLD,
        )


def _computed(data: object, derived: Collection[str]) -> Iterator[CrossProblem]:
    """Derived columns in a place where a column is looked at in the source, or modelled."""
    places = [
        place
        for pattern in (*_COLUMNS, *_NODES, "graph.groups.*.*")
        for place in _found(data, pattern)
    ]
    ends = [
        end
        for pattern in _ARROWS
        for where, arrow in _found(data, pattern)
        for end in _ends(where, arrow)
    ]
    for where, value in [*places, *ends] if derived else ():
        if (name := _name(value)) in derived:
            message = (
                f"column {name!r} is computed from others when rows are written: it is not in the"
                " model, and its real values are not read"
            )
            yield CrossProblem(where, message, "name columns that it is computed from")


def _ends(where: Loc, arrow: object) -> Iterator[tuple[Loc, str]]:
    """Both sides of an arrow, which is a map or a text such as "a, b -> c"."""
    try:
        arrow = sides(arrow)
    except ValueError:
        return
    for side in ("causes", "effects"):
        yield from (
            ((*where, *at), name)
            for at, value in _found(arrow, f"{side}.*")
            if (name := _name(value))
        )


def _as_map(arrow: object, nodes: Collection[str]) -> str | None:
    """How to write an arrow whose names with commas fell apart; None where none did."""
    ends = list(_ends((), arrow))
    parts = [[name for at, name in ends if at[0] == side] for side in ("causes", "effects")]
    for comma in (", ", ","):
        sought = [listed_names(comma.join(names), nodes) for names in parts]
        if any("," in name for names in sought for name in names):
            causes, effects = (json.dumps(names, ensure_ascii=False) for names in sought)
            return f"a name with a comma needs a map: {{causes: {causes}, effects: {effects}}}"
    return None


def _no_node(
    where: Loc,
    name: str,
    columns: Collection[str],
    groups: Mapping[str, object],
    group_of: Mapping[str, str | int],
) -> Iterator[CrossProblem]:
    group = group_of.get(name)
    if name in groups or (name in columns and group is None):
        return
    if name in columns:
        yield CrossProblem(
            where,
            f"column {name!r} is in group {group!r} and has no place of its own in the graph",
            f"write {group!r} instead",
        )
        return
    nodes = (*(c for c in columns if c not in group_of), *groups)
    yield CrossProblem(
        where,
        f"unknown column {name!r}",
        nearest(name, nodes) or "name a column listed under columns, or a group",
    )


def _unknown(data: object, pattern: str, columns: Collection[str]) -> Iterator[CrossProblem]:
    for where, value in _found(data, pattern):
        name = _name(value)
        if name and name not in columns:
            yield CrossProblem(
                where,
                f"unknown column {name!r}",
                nearest(name, columns) or "name a column listed under columns",
            )


def _name(value: object) -> str | None:
    """A name as the models read it, or None where they refuse it.

    The models read codes such as 2019 as texts.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, str | int | float) else ""
    return text if 0 < len(text) <= MAX_LETTERS else None


def _found(data: object, pattern: str) -> Iterator[tuple[Loc, object]]:
    """The values at the places that a pattern such as `graph.tiers.*.*` names.

    Data of another shape has no such places.
    """
    step, _, rest = pattern.partition(".")
    inside: Any = ()
    if isinstance(data, Mapping):
        inside = data.items() if step == "*" else [(step, data[step])] if step in data else ()
    elif step == "*" and isinstance(data, list | tuple):
        inside = enumerate(data)
    for key, value in inside:
        yield from (
            (((key, *where), inner) for where, inner in _found(value, rest))
            if rest
            else [((key,), value)]
        )


# --- partial ---
#
# What can be saved of a spec with wrong fields, so that the checks between its sections still run.
#
# Wrong entries are cut out of a copy of the tree until what remains is valid. What was cut is
# named, so that no check is run on a default that the steward did not mean. Names of columns are
# not looked up here: `synthdp.spec.load.names` reads them from the whole tree.


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
