"""Strict YAML to a tree of nodes that know their line and column.

YAML as PyYAML loads it keeps the last of two equal keys, reads `no` as false and `1e-5` as text,
accepts NaN, and expands aliases without limit. Here every such surprise is either a mistake with a
position, or read by the few rules of YAML 1.2's core: `true` and `false` are booleans, decimal
numbers without leading zeros are numbers, `null`, `~` and nothing are null, and all else (`no`,
`12:30`, `007`, `0x1F`, `1_000`, dates) is text.

The tree is built from parser events with an explicit stack, so depth and size are bounded before
memory is.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from synthdp.spec.load.wording import Loc, Mistake, syntax_mistake


@dataclass(frozen=True)
class LoadLimits:
    """How large a spec may be: `bytes` of a file, `nodes` (values) nested `depth` levels deep; and
    the mistakes that are `listed` at once.
    """

    bytes: int = 1_000_000
    nodes: int = 100_000
    depth: int = 32
    listed: int = 100


LIMITS = LoadLimits()
Scalar = str | int | float | bool | None

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
TO_FILL = "!fill_in"  # the tag of a blank in a draft
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HALF = ("an escape gives half a character", "write the character itself")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RawFloat(float):
    """A number that `str` gives back as it was written, for codes such as 1.50 or +5."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class Node:
    """A value of the document: a scalar, a list of nodes, or a map of names to nodes.

    `line` and `column` are its first character (1-based); `keys` are the places of a map's keys. A
    `reported` node has been reported already and says nothing more.
    """

    line: int
    column: int
    kind: str = "scalar"
    scalar: Scalar = None
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    reported: bool = False

    def value(self) -> object:
        """Plain Python data; a reported node is a marker that no model accepts."""
        if self.reported:
            return SPOILED
        if self.kind == "map":
            return {key: node.value() for key, node in self.entries.items()}
        return [node.value() for node in self.items] if self.kind == "list" else self.scalar

    def place(self, loc: Loc) -> tuple[int, int]:
        """Line and column for `loc`, or for the deepest part of it that is written down.

        A list or map that starts below its key is shown at the key: that is where one looks for it.
        """
        nodes = list(self.along(loc))
        last = nodes[-1]
        if len(nodes) > 1 and nodes[-2].kind == "map" and last.kind != "scalar":
            key = nodes[-2].keys.get(str(loc[len(nodes) - 2]))
            if key and last.line != key[0]:
                return key
        return last.line, last.column

    def along(self, loc: Loc) -> Iterator[Node]:
        """The nodes from this one on towards `loc`, as far as they are written down."""
        yield self
        node = self
        for segment in loc:
            below = node.child(segment)
            if below is None:
                return
            yield (node := below)

    def child(self, segment: str | int) -> Node | None:
        """The node under a key or at a position of the list as it stands now."""
        if self.kind == "map":
            return self.entries.get(str(segment))
        if self.kind == "list" and isinstance(segment, int) and 0 <= segment < len(self.items):
            return self.items[segment]
        return None


SPOILED = object()  # stands for a value that was reported already


class _StopError(Exception):
    """The text cannot be read further."""


def read(text: str) -> tuple[Node | None, list[Mistake]]:
    """The document's tree, None where the text is no YAML, and every mistake in the YAML itself."""
    mistakes = list[Mistake]()
    for found in itertools.islice(_UNPRINTABLE.finditer(text), 101):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        message = f"character U+{ord(found[0]):04X} cannot stand in YAML"
        hint = "delete it; it is invisible in most editors"
        mistakes.append(Mistake(line, column, (), message, hint))
    if mistakes:
        return None, mistakes
    try:
        return _Builder(iter(yaml.parse(text, Loader=LOADER)), mistakes).document(), mistakes
    except _StopError:
        return None, mistakes
    except yaml.MarkedYAMLError as error:
        return None, [*mistakes, syntax_mistake(error, text)]
    except yaml.YAMLError:
        hint = "look for stray characters, or start again from `synthdp init`"
        return None, [*mistakes, Mistake(1, 1, (), "this is not readable YAML", hint)]


class _Builder:
    """Builds the tree from the parser's events, of which `depth` lists and maps are open."""

    def __init__(self, events: Iterator[yaml.Event], mistakes: list[Mistake]) -> None:
        self.events, self.mistakes = events, mistakes
        self.nodes, self.depth = 0, 0

    def document(self) -> Node | None:
        """The one document; None where there is none."""
        root, started = None, False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and started:
                hint = "delete the '---' and what follows, or use two files"
                self.wrong(event, (), "a second document starts here; a spec is one document", hint)
                raise _StopError
            started |= isinstance(event, yaml.DocumentStartEvent)
            if isinstance(event, yaml.NodeEvent):
                self._count(event)
                root = self._node(event, ())
        return root

    def wrong(self, event: yaml.Event, loc: Loc, message: str, hint: str | None = None) -> None:
        self.mistakes.append(Mistake(*_at(event), loc, message, hint))

    def _inside(self) -> Iterator[yaml.NodeEvent]:
        """The first event of each node in a list or map, up to its end."""
        self.depth += 1
        while isinstance(event := next(self.events), yaml.NodeEvent):
            self._count(event)
            yield event
        self.depth -= 1

    def _count(self, event: yaml.NodeEvent) -> None:
        self.nodes += 1
        many = self.nodes > LIMITS.nodes
        if many or self.depth > LIMITS.depth:
            limit = f"{LIMITS.nodes:,} values" if many else f"{LIMITS.depth} levels of nesting"
            hint = "no table needs that; look for a generator or an editor that went astray"
            self.wrong(event, (), f"the spec has more than {limit}", hint)
            raise _StopError

    def _node(self, event: yaml.NodeEvent, loc: Loc) -> Node:
        node = Node(*_at(event))
        node.reported = self._properties(event, loc)
        self._fill(node, event, loc)
        return node

    def _fill(self, node: Node, event: yaml.NodeEvent, loc: Loc) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, node, loc)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.kind = "list"
            for item in self._inside():
                node.items.append(self._node(item, (*loc, len(node.items))))
        elif isinstance(event, yaml.MappingStartEvent):
            node.kind = "map"
            inside = self._inside()
            for key in inside:
                name = self._key(key, node, loc)
                text = key.value if isinstance(key, yaml.ScalarEvent) else ""
                value = self._node(next(inside), (*loc, text))
                if name is not None:
                    node.entries[name] = value

    def _key(self, event: yaml.NodeEvent, node: Node, loc: Loc) -> str | None:
        """The text of a key; None for one that is refused, whose value is read all the same."""
        self._properties(event, loc)
        if not isinstance(event, yaml.ScalarEvent):
            self.wrong(event, loc, "a key must be plain text", "write `name: value`")
            if isinstance(event, yaml.CollectionStartEvent):  # read to its end
                self._fill(Node(0, 0), event, loc)
            return None
        name = event.value
        if name == "<<" and event.implicit[0]:
            message = "merge keys (<<) are not read"
            self.wrong(event, loc, message, "write the shared lines out in each place")
        elif _surrogate(name):
            self.wrong(event, loc, *_HALF)
        elif name in node.keys:
            message = f"this key is given twice; the first is on line {node.keys[name][0]}"
            self.wrong(event, (*loc, name), message, "keep one of the two")
        else:
            node.keys[name] = _at(event)
            return name
        return None

    def _properties(self, event: yaml.NodeEvent, loc: Loc) -> bool:
        """Whether a node is told by what stands before it: an alias, or a tag."""
        if isinstance(event, yaml.AliasEvent):
            self.wrong(event, loc, f"aliases (*{event.anchor}) are not read", "write the value out")
        elif event.anchor is not None:
            self.wrong(event, loc, f"anchors (&{event.anchor}) are not read", "delete the anchor")
        tag = getattr(event, "tag", None)
        if tag == TO_FILL and isinstance(event, yaml.ScalarEvent):
            hint = f"replace {TO_FILL} and the text behind it by the value"
            self.wrong(event, loc, f"still to be filled in: {event.value}", hint)
        elif tag is not None:
            shown = "!" + tag.removeprefix("tag:yaml.org,2002:") if not tag.startswith("!") else tag
            message = f"tags ({shown}) are not read"
            self.wrong(event, loc, message, "delete the tag; quotes make any value text")
        return isinstance(event, yaml.AliasEvent) or tag is not None

    def _scalar(self, event: yaml.ScalarEvent, node: Node, loc: Loc) -> None:
        node.scalar = event.value
        problem = None
        if _surrogate(event.value):
            problem = _HALF
        elif event.implicit[0] and _NOT_FINITE.fullmatch(event.value):
            problem = (
                f"{event.value} is not a number that can be used here",
                "give a finite number; for the text itself, put it in quotes",
            )
        elif event.implicit[0]:
            node.scalar = plain(event.value)
            if isinstance(node.scalar, float) and math.isinf(node.scalar):
                problem = ("the number is too large", "give a number below 1e308")
        if problem:
            node.reported = True
            self.wrong(event, loc, *problem)


def _at(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def plain(text: str) -> Scalar:
    """A scalar without quotes, by the rules at the top of this file."""
    if text in ("null", "~", ""):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) < 19 and str(int(text)) == text:
        return int(text)
    if _FLOAT.fullmatch(text):
        number = RawFloat(text)
        number.text = text
        return number
    return text
