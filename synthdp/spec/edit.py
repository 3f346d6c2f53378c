"""Edits of a spec's text that leave every other character as it was, comments and order too.

Places come from PyYAML's marks: a library that writes whole files back (ruamel.yaml) left 4 of 14
specs as they were. After each edit the text is read again: its content must differ as asked and
nowhere else, or nothing is changed. A place is a path of keys and positions, such as `("graph",
"edges", 0)`. What is dropped takes the comment at the end of its line with it.
"""

from __future__ import annotations

import difflib
import json
from contextlib import suppress
from typing import Any

import yaml

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.load.wording import Loc, Mistake, field_of
from synthdp.spec.load.yaml_tree import LOADER, SPOILED, Node, read
from synthdp.spec.model import Edge, sides
from synthdp.spec.writing import yaml_value

PLAIN_VALUES = "use plain dicts, lists, texts, numbers, booleans and None"
EDGES = ("graph", "edges")


def set_value(text: str, loc: Loc, value: object, *, path: str = "spec") -> str:
    """The text with `value` at `loc`; keys that are not there yet come last in their map. A list
    changes item by item.

    Raises:
        SpecError: the text is no YAML, or this cannot be changed without changing more.

    >>> set_value("privacy:\\n  epsilon: 1  # all\\n", ("privacy", "epsilon"), 2)
    'privacy:\\n  epsilon: 2  # all\\n'
    """
    return _edited(text, loc, as_plain(value, loc, path), path)


def add_item(text: str, loc: Loc, value: object, *, path: str = "spec") -> str:
    """The text with one more item at the end of the list at `loc`; raises as `set_value`.

    >>> add_item("gates:\\n  - a  # first\\n", ("gates",), "b")
    'gates:\\n  - a  # first\\n  - b\\n'
    """
    return _edited(text, loc, [*_items(text, loc), as_plain(value, loc, path)], path)


def drop(text: str, loc: Loc, *, path: str = "spec") -> str:
    """The text without the key or the item at `loc`; raises as `set_value`.

    >>> drop("seed: {a: 1, b: 2}\\n", ("seed", "a"))
    'seed: {b: 2}\\n'
    """
    return _edited(text, loc, _GONE, path)


def arrows(text: str) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Position, causes and effects of each entry of `graph.edges` that can be read."""
    found = []
    for i, entry in enumerate(_items(text, EDGES)):
        with suppress(ValueError):  # such as half an arrow
            edge = Edge.model_validate(sides(entry))
            found.append((i, edge.causes, edge.effects))
    return found


def add_arrow(text: str, cause: str, effect: str, *, path: str = "spec") -> str:
    """The text with an arrow more, at the end of `graph.edges`; raises as `set_value`.

    >>> add_arrow("graph: {edges: [age -> bmi]}\\n", "sex", "bmi")
    'graph: {edges: [age -> bmi, sex -> bmi]}\\n'
    """
    if any(cause in causes and effect in effects for _, causes, effects in arrows(text)):
        return text
    return add_item(text, EDGES, _arrow([cause], [effect]), path=path)


def drop_arrow(text: str, cause: str, effect: str, *, path: str = "spec") -> str:
    """The text without an arrow; its entry keeps all others that it has. Raises as `set_value`.

    >>> drop_arrow("graph: {edges: ['age, sex -> bmi']}\\n", "age", "bmi")
    'graph: {edges: [sex -> bmi]}\\n'
    """
    for i, causes, effects in reversed(arrows(text)):
        if cause in causes and effect in effects:
            others = [name for name in causes if name != cause]
            left = [name for name in effects if name != effect]
            parts = ((others, [*effects]), ([cause], left))
            entries = _items(text, EDGES)
            entries[i : i + 1] = [_arrow(*part) for part in parts if all(part)]
            text = _edited(text, EDGES, entries, path)
    return text


def _arrow(causes: list[str], effects: list[str]) -> object:
    """An entry of `graph.edges`: a text, where it is read back as these names."""
    told = f"{', '.join(causes)} -> {', '.join(effects)}"
    as_map = {"causes": causes, "effects": effects}
    with suppress(ValueError):
        return told if sides(told) == as_map else as_map
    return as_map


def as_plain(value: object, loc: Loc, path: str) -> Any:
    """A value as YAML would give it back."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        told = "got a value that YAML does not have"
        raise SpecError([SpecProblem(path, 1, 1, field_of(loc), told, PLAIN_VALUES)]) from None


# --- what an edit must come to ---

_GONE = object()


def _edited(text: str, loc: Loc, value: Any, path: str) -> str:
    """The text with a value, or without what is there, if that changes nothing else."""
    tree, mistakes = read(text)
    if tree is None or tree.kind != "map":
        no_map = Mistake(1, 1, (), "the spec must be a map of `key: value` lines")
        m = [*mistakes, no_map][0]
        raise SpecError([SpecProblem(path, m.line, m.column, "spec", m.message, m.hint)])
    # What does too much, or cannot be done at all, is seen here.
    with suppress(yaml.YAMLError, LookupError, TypeError, ValueError):
        changed = _dropped(text, loc) if value is _GONE else set_at(text, loc, value)
        again, more = read(changed)
        # A blank that is filled in is a mistake less; what was asked for may be none more.
        if again and len(more) <= len(mistakes) and again.value() == _expected(tree, loc, value):
            return changed
    told = "cannot be changed here without changing more; nothing was written"
    hint = f"write `{loc[-1]}: {yaml_value(value)}`" if value is not _GONE else "take it out"
    place = (path, *tree.place(loc), field_of(loc))
    raise SpecError([SpecProblem(*place, told, f"by hand: {hint}", loc)])


def _expected(tree: Node, loc: Loc, value: Any) -> object:
    """The content with `value` at `loc`, or without what is there."""
    content: Any = tree.value()
    held = content
    for key in loc[:-1]:
        if isinstance(held, dict) and held.get(key) in (None, SPOILED):  # or a blank
            held[key] = {}
        held = held[key]
    if value is _GONE:
        del held[loc[-1]]
    else:
        held[loc[-1]] = value
    return content


# --- texts ---


def set_at(text: str, loc: Loc, value: Any, *, lines: bool = False) -> str:
    """The text with a value; with `lines`, all that follows stays at its line."""
    node, rest = _reached(text, loc)
    for key in reversed(rest[1:]):
        value = {key: value}
    if rest:
        entry = f"{yaml_value(rest[0])}: {yaml_value(value)}"
        if isinstance(node, yaml.MappingNode):
            return _inserted(text, node, len(node.value), entry)
        return put(text, node, f"{{{entry}}}", lines)  # refused where the text is checked
    if value and isinstance(value, list) and isinstance(node, yaml.SequenceNode) and not lines:
        return _with_items(text, loc, value)
    return put(text, node, yaml_value(value), lines)


def put(text: str, node: yaml.Node, shown: str, lines: bool) -> str:
    """The text with `shown` in place of a node; with `lines`, what follows stays at its line."""
    first, last = node.start_mark.index, node.end_mark.index if lines else _end(text, node)
    before = text[:first]
    if not before.rpartition("\n")[2].strip():
        before += "  "  # a list may begin below its key's first letter, and `shown` may not
    elif before.endswith((":", "-")):
        before += " "
    # As many line breaks as were replaced, and what stands before the next key on its line.
    *broken, tail = text[first:last].split("\n") if lines else [""]
    return before + shown + "\n" * len(broken) + ("" if tail.strip() else tail) + text[last:]


def _with_items(text: str, loc: Loc, value: list[Any]) -> str:
    """The text with other items in a list: those that stay are not touched."""
    old, new = (list(map(yaml_value, items)) for items in (_items(text, loc), value))
    codes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    for _, i1, i2, j1, j2 in reversed([code for code in codes if code[0] != "equal"]):
        both = i1 + min(i2 - i1, j2 - j1)
        for i in reversed(range(both, i2)):
            text = _dropped(text, (*loc, i))
        for item in reversed(new[j1 + both - i1 : j2]):
            text = _inserted(text, _reached(text, loc)[0], both, item)
        for i in range(i1, both):
            text = put(text, _reached(text, (*loc, i))[0], new[j1 + i - i1], False)
    return text


def _inserted(text: str, node: Any, at: int, shown: str) -> str:
    """The text with an entry more in a map or list, before the one at position `at`."""
    spans, newline = _spans(text, node), "\r\n" if "\r\n" in text else "\n"
    before = at < len(spans)
    place: int = node.start_mark.index + 1
    if spans:
        place = spans[at][0] if before else spans[-1][1]
    if node.flow_style:
        entry = f"{shown}, " if before else ", " * bool(spans) + shown
    else:
        dash = "- " * isinstance(node, yaml.SequenceNode)
        entry = " " * node.start_mark.column + dash + shown + newline
        text += newline * (not before and "\n" not in text[place:])
        place = (text.rfind("\n", 0, place) if before else text.index("\n", place)) + 1
    return text[:place] + entry + text[place:]


def _dropped(text: str, loc: Loc) -> str:
    node: Any = _reached(text, loc[:-1])[0]
    spans, listed = _spans(text, node), isinstance(node, yaml.SequenceNode)
    at = int(loc[-1]) if listed else [key.value for key, _ in node.value].index(loc[-1])
    if len(spans) == 1:
        return put(text, node, "[]" if listed else "{}", False)
    first, last = spans[at]
    start = text.rfind("\n", 0, first) + 1
    if not node.flow_style and text[start:first].strip() == "-" * listed:
        return text[:start] + text[text.find("\n", last) + 1 or len(text) :]
    if at + 1 < len(spans):
        return text[:first] + text[spans[at + 1][0] :]
    previous = spans[at - 1][1]
    return text[: first if "#" in text[previous:first] else previous] + text[last:]


def _reached(text: str, loc: Loc) -> tuple[yaml.Node, list[str | int]]:
    """The deepest node towards `loc`, and the keys that are not there."""
    node: Any
    node, rest = yaml.compose(text, Loader=LOADER), list(loc)
    while rest:
        held = node.value if isinstance(node, yaml.CollectionNode) else []
        pairs = enumerate(held) if isinstance(node, yaml.SequenceNode) else held
        inside = {getattr(key, "value", key): value for key, value in pairs}
        if rest[0] not in inside:
            break
        node = inside[rest.pop(0)]
    return node, rest


def _items(text: str, loc: Loc) -> list[Any]:
    """The items of the list at `loc`; none where there is no list."""
    tree, _ = read(text)
    nodes = list(tree.along(loc)) if tree else []
    found = nodes[-1].value() if len(nodes) > len(loc) else []
    return found if isinstance(found, list) else []


def _spans(text: str, node: Any) -> list[tuple[int, int]]:
    """Where each entry of a map or list begins and ends."""
    mapped = isinstance(node, yaml.MappingNode)
    pairs = node.value if mapped else [(item, item) for item in node.value]
    return [(first.start_mark.index, _end(text, last)) for first, last in pairs]


def _end(text: str, node: yaml.Node) -> int:
    """Where a node ends, without what follows of blank lines and comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        return _spans(text, node)[-1][1]
    last: int = node.end_mark.index
    return len(text[:last].rstrip()) if getattr(node, "style", None) in ("|", ">") else last
