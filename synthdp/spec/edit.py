"""Edits of a spec's text that leave every other character as it was, comments and order too.

Places come from the marks of PyYAML's nodes. A library that writes whole files back (ruamel.yaml)
left 4 of 14 specs as they were, and changed up to 123 lines of the others. After each edit the text
is read again: its content must differ as asked and nowhere else, or nothing is changed.

A place is a path of keys and positions, such as `("graph", "edges", 0)`. What is dropped takes the
comment at the end of its line with it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.load.wording import Loc
from synthdp.spec.load.yaml_tree import LOADER, read
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.graph import sides
from synthdp.spec.writing import yaml_value

PLAIN_VALUES = "use plain dicts, lists, texts, numbers, booleans and None"
EDGES = ("graph", "edges")
WIDTH = 100
Pair = tuple[str, str]


class _UnplacedError(Exception):
    """The text has no place where this edit could be made."""


def set_value(text: str, loc: Loc, value: object, *, path: str = "spec") -> str:
    """The text with `value` at `loc`; keys that are not there yet come last in their map. A list
    changes item by item.

    Raises:
        SpecError: the text is no YAML, or this cannot be changed without changing more.

    >>> set_value("privacy:\\n  epsilon: 1  # all\\n", ("privacy", "epsilon"), 2)
    'privacy:\\n  epsilon: 2  # all\\n'
    """
    return _edited(text, loc, _plain(value, loc, path), _set, path)


def add_item(text: str, loc: Loc, value: object, *, path: str = "spec") -> str:
    """The text with one more item at the end of the list at `loc`; raises as `set_value`.

    >>> add_item("gates:\\n  - a  # first\\n", ("gates",), "b")
    'gates:\\n  - a  # first\\n  - b\\n'
    """
    tree, _ = read(text)
    node = None if tree is None else list(tree.along(loc))
    there = node is not None and len(node) > len(loc) and node[-1].kind == "list"
    items = node[-1].value() if there and node else []
    assert isinstance(items, list)
    return _edited(text, loc, [*items, _plain(value, loc, path)], _set, path)


def drop(text: str, loc: Loc, *, path: str = "spec") -> str:
    """The text without the key or the item at `loc`; raises as `set_value`.

    >>> drop("seed: {a: 1, b: 2}\\n", ("seed", "a"))
    'seed: {b: 2}\\n'
    """
    return _edited(text, loc, _GONE, lambda text, loc, _: _dropped(text, loc), path)


def arrows(text: str) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Position, causes and effects of each entry of `graph.edges` that can be read."""
    tree, _ = read(text)
    nodes = [] if tree is None else list(tree.along(EDGES))
    found = []
    for i, node in enumerate(nodes[-1].items if len(nodes) > len(EDGES) else []):
        try:
            entry = sides(node.value())
        except ValueError:
            continue
        both = [entry.get(key) for key in ("causes", "effects")] if isinstance(entry, dict) else []
        causes, effects = ([b] if isinstance(b, str) else b for b in both or ([], []))
        if isinstance(causes, list) and isinstance(effects, list):
            found.append((i, tuple(map(str, causes)), tuple(map(str, effects))))
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
        if cause not in causes or effect not in effects:
            continue
        others = [name for name in causes if name != cause]
        left = [name for name in effects if name != effect]
        if left and others:
            text = add_item(text, EDGES, _arrow([cause], left), path=path)
        if others or left:
            entry = _arrow(others, list(effects)) if others else _arrow([cause], left)
            text = set_value(text, (*EDGES, i), entry, path=path)
        else:
            text = drop(text, (*EDGES, i), path=path)
    return text


def replaced(text: str, changes: Mapping[str, Any], *, path: str) -> str:
    """A spec's `text`, without mistakes, with other values of some of its keys.

    A key is named by its path, such as `sampling.rows`; its own name will do where it is that of a
    section, or one section alone has it. All else stands at its line, comments too.

    Raises:
        SpecError: several sections have the key, or YAML does not have the value.

    >>> replaced("privacy:\\n  epsilon: 1  # all\\n", {"epsilon": 2, "seed.a": 3}, path="x.yaml")
    'privacy:\\n  epsilon: 2  # all\\nseed: {a: 3}\\n'
    """
    sections = ReleaseSpec.model_fields
    for name, value in changes.items():
        homes = [
            s for s, f in sections.items() if name in getattr(f.annotation, "model_fields", ())
        ]
        if name not in sections and len(homes) > 1:
            told, hint = f"is a key of {' and '.join(homes)}", f"{homes[0]}.{name}"
            hint = f'say which: replace(**{{"{hint}": ...}})'
            raise SpecError([SpecProblem(path, 1, 1, name, told, hint)])
        loc = (name,) if name in sections else (*homes[:1], *name.split("."))
        text = _set(text, loc, _plain(value, (name,), path), lines=True)
    return text


def _arrow(causes: list[str], effects: list[str]) -> object:
    """An entry of `graph.edges`: a text, where it is read back as these names."""
    told = f"{', '.join(causes)} -> {', '.join(effects)}"
    as_map = {"causes": causes, "effects": effects}
    try:
        return told if sides(told) == as_map else as_map
    except ValueError:
        return as_map


def _plain(value: object, loc: Loc, path: str) -> Any:
    """A value as YAML would give it back."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        told, field = "got a value that YAML does not have", ".".join(map(str, loc))
        raise SpecError([SpecProblem(path, 1, 1, field, told, PLAIN_VALUES)]) from None


# --- what an edit must come to ---

_GONE = object()


def _edited(
    text: str, loc: Loc, value: Any, edit: Callable[[str, Loc, Any], str], path: str
) -> str:
    """What `edit` makes of the text, if that is what was asked for and nothing else."""
    tree, mistakes = read(text)
    if tree is None or tree.kind != "map":
        first = mistakes[0] if mistakes else None
        at = (first.line, first.column) if first else (1, 1)
        told = first.message if first else "the spec must be a map of `key: value` lines"
        raise SpecError([SpecProblem(path, *at, "spec", told, first.hint if first else None)])
    try:
        changed = edit(text, loc, value)
        again, more = read(changed)
        # A blank that is filled in is a mistake less; what was asked for may be none more.
        asked = _expected(tree.value(), loc, value)
        if again and len(more) <= len(mistakes) and again.value() == asked:
            return changed
    except (_UnplacedError, yaml.YAMLError, LookupError):
        pass
    field = "".join(f" #{s + 1}" if isinstance(s, int) else f".{s}" for s in loc).lstrip(".")
    told = "cannot be changed here without changing more; nothing was written"
    shown = "take it out" if value is _GONE else f"write `{loc[-1]}: {yaml_value(value)}`"
    hint = f"by hand: {shown}"
    raise SpecError([SpecProblem(path, *tree.place(loc), field, told, hint, loc=loc)])


def _expected(content: Any, loc: Loc, value: Any) -> Any:
    """The content with `value` at `loc`, or without what is there."""
    key, *deeper = loc
    if isinstance(content, list):
        assert isinstance(key, int)
        inner = [_expected(content[key], (*deeper,), value)] if deeper else [value]
        return [*content[:key], *(i for i in inner if i is not _GONE), *content[key + 1 :]]
    if not isinstance(content, dict | None):
        raise _UnplacedError
    found = dict(content or {})
    found[key] = _expected(found.get(key), (*deeper,), value) if deeper else value
    return {k: v for k, v in found.items() if v is not _GONE}


# --- texts ---


def _set(text: str, loc: Loc, value: Any, *, lines: bool = False) -> str:
    """The text with a value; with `lines`, all that follows stays at its line."""
    node, rest = _reached(text, loc)
    if rest:
        for key in reversed(rest[1:]):
            value = {key: value}
        entry = f"{yaml_value(rest[0])}: {yaml_value(value)}"
        if isinstance(node, yaml.MappingNode):
            return _inserted(text, node, len(node.value), entry)
        return put(text, node, f"{{{entry}}}", lines)  # refused where the text is checked
    if isinstance(value, list) and isinstance(node, yaml.SequenceNode) and not lines:
        return _with_items(text, loc, node, value)
    return put(text, node, yaml_value(value), lines)


def put(text: str, node: yaml.Node, shown: str, lines: bool) -> str:
    """The text with `shown` in place of a node; with `lines`, what follows stays at its line."""
    first, last = node.start_mark.index, node.end_mark.index if lines else _end(text, node)
    before = text[:first]
    if not before.rpartition("\n")[2].strip():
        before += "  "  # a list may begin below its key's first letter, and `shown` may not
    elif before.endswith((":", "-")):
        before += " "
    if not lines:
        return before + shown + text[last:]
    # As many line breaks as were replaced, and what stands before the next key on its line.
    *broken, tail = text[first:last].split("\n")
    return before + shown + "\n" * len(broken) + ("" if tail.strip() else tail) + text[last:]


def _with_items(text: str, loc: Loc, node: yaml.SequenceNode, value: list[Any]) -> str:
    """The text with other items in a list: those that stay are not touched."""
    old, new = ([yaml_value(item) for item in items] for items in (_content(text, loc), value))
    if not value:
        return _emptied(text, loc, node)
    codes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    for what, i1, i2, j1, j2 in reversed(codes):
        if what == "equal":
            continue
        kept = min(i2 - i1, j2 - j1)
        for i in range(kept):
            text = put(text, _reached(text, (*loc, i1 + i))[0], new[j1 + i], False)
        for item in new[j1 + kept : j2][::-1]:
            parent = _reached(text, loc)[0]
            text = _inserted(text, parent, i1 + kept, item)
        for i in range(i2 - 1, i1 + kept - 1, -1):
            text = _dropped(text, (*loc, i))
    return text


def _inserted(text: str, node: yaml.Node, at: int, shown: str) -> str:
    """The text with an entry more in a map or list, before the one at position `at`."""
    spans, newline = _spans(text, node), "\r\n" if "\r\n" in text else "\n"
    assert isinstance(node, yaml.CollectionNode)
    if not spans:
        if not node.flow_style:
            raise _UnplacedError
        inside = node.start_mark.index + 1
        return text[:inside] + shown + text[inside:]
    indent = " " * _column(text, spans[0][0])
    if node.flow_style:
        if at < len(spans):
            first = spans[at][0]
            own = not text[:first].rpartition("\n")[2].strip()
            return text[:first] + shown + "," + (newline + indent if own else " ") + text[first:]
        first, last = spans[-1]
        rest = text[last:].partition("\n")[0]
        wide = _column(text, last) + len(shown) + len(rest) + 2 > WIDTH
        own = not text[:first].rpartition("\n")[2].strip()
        if own and rest.strip().lstrip(",").strip()[:1] in ("", "#"):  # an item a line
            comma = rest.lstrip().startswith(",")
            end = last + len(rest.rstrip("\r"))
            text = text[:end] + newline + indent + shown + "," * comma + text[end:]
            return text if comma else text[:last] + "," + text[last:]
        between = "," + newline + indent if wide or own else ", "
        return text[:last] + between + shown + text[last:]
    dash = "- " * isinstance(node, yaml.SequenceNode)
    column = " " * (node.start_mark.column if dash else len(indent))
    if at < len(spans):
        start = text.rfind("\n", 0, spans[at][0]) + 1
        if text[start : spans[at][0]].strip(" -" if dash else " "):
            raise _UnplacedError
        return f"{text[:start]}{column}{dash}{shown}{newline}{text[start:]}"
    end = text.find("\n", spans[-1][1]) + 1
    if not end:
        text, end = text + newline, len(text) + len(newline)
    return f"{text[:end]}{column}{dash}{shown}{newline}{text[end:]}"


def _dropped(text: str, loc: Loc) -> str:
    """The text without the entry at `loc`."""
    parent, rest = _reached(text, loc[:-1])
    if rest or not isinstance(parent, yaml.CollectionNode):
        raise _UnplacedError
    spans = _spans(text, parent)
    keys = [key.value for key, _ in parent.value] if isinstance(parent, yaml.MappingNode) else None
    at = keys.index(loc[-1]) if keys is not None else int(loc[-1])
    (first, last), flow = spans[at], parent.flow_style
    if len(spans) == 1:
        return _emptied(text, loc[:-1], parent)
    start, end = text.rfind("\n", 0, first) + 1, text.find("\n", last) + 1 or len(text)
    before, after = text[start:first].strip(), text[last:end].strip()
    if flow and not before and after.lstrip(",").strip()[:1] in ("", "#") and start > 0:
        return text[:start] + text[end:]  # an item a line
    if not flow and before == ("" if keys is not None else "-"):
        return text[:start] + text[end:]
    if at + 1 < len(spans):
        return text[:first] + text[spans[at + 1][0] :]
    if not flow:
        raise _UnplacedError
    previous = spans[at - 1][1]
    return text[: first if "#" in text[previous:first] else previous] + text[last:]


def _emptied(text: str, loc: Loc, node: yaml.CollectionNode) -> str:
    """The text with an empty map or list at `loc`."""
    empty = "[]" if isinstance(node, yaml.SequenceNode) else "{}"
    if node.flow_style:
        return put(text, node, empty, False)
    holder, _ = _reached(text, loc[:-1])
    keys = [key for key, _ in _pairs(holder) if key.value == loc[-1]] if loc else []
    if not keys:
        raise _UnplacedError
    colon = text.index(":", keys[0].end_mark.index) + 1
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    end = text.find("\n", _end(text, node)) + 1 or len(text)
    return f"{text[:colon]} {empty}{text[colon:start]}{text[end:]}"


def _reached(text: str, loc: Loc) -> tuple[yaml.Node, list[str | int]]:
    """The deepest node towards `loc`, and the keys that are not there."""
    node, rest = yaml.compose(text, Loader=LOADER), list(loc)
    while rest:
        if isinstance(node, yaml.SequenceNode) and isinstance(rest[0], int):
            inside = dict(enumerate(node.value))
        else:
            inside = {key.value: value for key, value in _pairs(node)}
        if rest[0] not in inside:
            break
        node = inside[rest.pop(0)]
    return node, rest


def _content(text: str, loc: Loc) -> list[Any]:
    tree, _ = read(text)
    found = list(tree.along(loc))[-1].value() if tree else None
    assert isinstance(found, list)
    return found


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    found = node.value if isinstance(node, yaml.MappingNode) else []
    return [(key, value) for key, value in found if isinstance(key, yaml.ScalarNode)]


def _spans(text: str, node: yaml.Node) -> list[tuple[int, int]]:
    """Where each entry of a map or list begins and ends."""
    if isinstance(node, yaml.MappingNode):
        return [(key.start_mark.index, _end(text, value)) for key, value in node.value]
    return [(item.start_mark.index, _end(text, item)) for item in node.value]


def _end(text: str, node: yaml.Node) -> int:
    """Where a node ends, without what follows of blank lines and comments."""
    last: int = node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        inside = node.value[-1]
        return _end(text, inside[1] if isinstance(node, yaml.MappingNode) else inside)
    return len(text[:last].rstrip()) if getattr(node, "style", None) in ("|", ">") else last


def _column(text: str, at: int) -> int:
    return at - text.rfind("\n", 0, at) - 1
