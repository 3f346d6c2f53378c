"""How a spec of linked tables names a column at a visit, arrows between such, and rules.

A node is `admissions.stage` (at the same visit), `admissions[-1].stage` (at the visit before),
`admissions[1].stage` (at visit 1) or `admissions[+1].stage` (at the next visit); an arrow is "node,
node -> node". A name with a dot, a comma, a bracket or an arrow in it stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synthdp.spec.expressions.parsed import IN_BACKTICKS, quoted, unquoted
from synthdp.spec.load.wording import got, nearest

ALLOWED_NODES = "write table.column, visits[-1].column (the visit before) or visits[1].column"
ALLOWED_RULES = (
    "rules are `persons.birth <= visits.date` and `visits.date <= persons.death` of dates, and"
    " {nondecreasing: visits.column}, {nonincreasing: visits.column} and {once: visits.column}"
)
KINDS = ("nondecreasing", "nonincreasing", "once")

_NODE = re.compile(rf"(?:{IN_BACKTICKS}|([^`.\[\]]+))(?:\[([^\]]*)\])?\.(?:{IN_BACKTICKS}|([^`]+))")
_PLACE = re.compile(r"([+-]?)([1-9]\d{0,2})")
_PIECE = re.compile(r"`(?:[^`]|``)*`|->|,|[^`,-]+|.", re.DOTALL)


@dataclass(frozen=True)
class Node:
    """A column of a table: at the visit that is looked at, at the one `lag` visits before it (after
    it, below 0), or at visit `number`, counted from 1.

    >>> str(Node("visits", "stage", lag=1)), str(Node("visits", "blood pressure", number=2))
    ('visits[-1].stage', 'visits[2].`blood pressure`')
    """

    table: str
    column: str
    lag: int = 0
    number: int | None = None

    @property
    def place(self) -> str:
        """Which visit, in brackets; empty of the visit that is looked at."""
        return f"[{-self.lag:+d}]" if self.lag else f"[{self.number}]" if self.number else ""

    def __str__(self) -> str:
        return f"{quoted(self.table)}{self.place}.{quoted(self.column)}"


def parse_node(text: str) -> Node:
    """The node that a text names.

    Raises:
        ValueError: it names none; the message says what is allowed.

    >>> parse_node("visits[-1].stage")
    Node(table='visits', column='stage', lag=1, number=None)
    """
    found = _NODE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{got(text.strip())} names no column of a table; {ALLOWED_NODES}")
    marked, table, place, marked_column, column = found.groups()
    table = unquoted(marked) if table is None else table.strip()
    column = unquoted(marked_column) if column is None else column.strip()
    at = _PLACE.fullmatch(place) if place is not None else None
    if place is not None and at is None:
        message = f"[{place[:20]}] in {got(text.strip())} is no visit: [1] is the first, [-1] the"
        raise ValueError(f"{message} one before, [+1] the next")
    number = int(at[2]) if at else 0
    if at and at[1]:
        return Node(table, column, lag=number if at[1] == "-" else -number)
    return Node(table, column, number=number or None)


def parse_arrow(text: str) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Causes and effects of "cause, cause -> effect, effect".

    Raises:
        ValueError: it is no arrow, or a side of it names no column.

    >>> [str(cause) for cause in parse_arrow("visits[-1].bp, persons.sex -> visits.bp")[0]]
    ['visits[-1].bp', 'persons.sex']
    """
    sides = [[""]]
    for piece in _PIECE.findall(text):
        if piece == "->":
            sides.append([""])
        elif piece == ",":
            sides[-1].append("")
        else:
            sides[-1][-1] += piece
    if len(sides) != 2 or not all("".join(side).strip() for side in sides):
        raise ValueError(f'expected "cause, cause -> effect", got {got(text)}')
    causes, effects = (tuple(map(parse_node, side)) for side in sides)
    return causes, effects


def parse_rule(given: Any) -> tuple[str, tuple[Node, ...]]:
    """A rule across tables as "<=" and its two sides, or as its kind and its one column.

    Raises:
        ValueError: it is none; the message says which there are.

    >>> parse_rule({"once": "visits.ill"})
    ('once', (Node(table='visits', column='ill', lag=0, number=None),))
    """
    nodes = list[Node]()
    kind, texts = "", list[Any]()
    if isinstance(given, str) and len(texts := given.split("<=")) == 2:
        kind = "<="
    elif isinstance(given, Mapping) and len(given) == 1:
        kind, texts = str(next(iter(given))), list(given.values())
    if kind != "<=" and kind not in KINDS:
        meant = nearest(kind, KINDS) if kind else None
        raise ValueError(f"got {got(kind or given)}; {meant or ALLOWED_RULES}")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{kind} needs one column, such as visits.stage; got {got(text)}")
        nodes.append(parse_node(text))
    if placed := [node for node in nodes if node.lag or node.number]:
        raise ValueError(f"a rule holds at every visit; write {placed[0].table}.{placed[0].column}")
    return kind, tuple(nodes)
