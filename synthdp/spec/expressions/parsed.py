"""The results of reading an expression: a truth value or a number for each row, or the mistakes.

Truth is three-valued: a row is surely true, surely false, or unknown. Columns are float arrays with
NaN where a value is missing; arrays bring their own operators, so that nothing here needs a numbers
library. Nothing is ever evaluated as Python: its parser makes a syntax tree of a text.

How a spec of linked tables names a column at a visit, arrows between such, and rules.

A node is `admissions.stage` (at the same visit), `admissions[-1].stage` (at the visit before),
`admissions[1].stage` (at visit 1) or `admissions[+1].stage` (at the next visit); an arrow is "node,
node -> node". A name with a dot, a comma, a bracket or an arrow in it stands in backticks.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NoReturn, TypeVar

from synthdp.spec.load.wording import got, nearest

Values = Mapping[str, Any]
"""Columns as float arrays: NaN where missing, categories by position, dates in days since 1970."""
Numbers = Callable[[Values], Any]  # a float array `[rows]`, or one float for all rows
Truth = Callable[[Values], tuple[Any, Any]]
"""Two boolean arrays `[rows]`: surely true, surely false."""


def every(parts: list[Truth]) -> Truth:
    def truth(values: Values) -> tuple[Any, Any]:
        true, false = zip(*(p(values) for p in parts), strict=True)
        return reduce(operator.and_, true), reduce(operator.or_, false)

    return truth


def some(parts: list[Truth]) -> Truth:
    return negation(every(list(map(negation, parts))))


def negation(part: Truth) -> Truth:
    return lambda values: part(values)[::-1]


def comparison(holds: Callable[[Any, Any], Any], left: Numbers, right: Numbers) -> Truth:
    """Whether `holds` of two operands; unknown where one is missing or infinite."""

    def truth(values: Values) -> tuple[Any, Any]:
        a, b = left(values), right(values)
        known = (a - a == 0) & (b - b == 0)  # neither missing nor infinite
        result = holds(a, b)
        return known & result, known & ~result

    return truth


def is_missing(operand: Numbers) -> Truth:
    """Whether an operand is missing or infinite; never unknown."""

    def truth(values: Values) -> tuple[Any, Any]:
        a = operand(values)
        known = a - a == 0
        return ~known, known

    return truth


# --- parsed ---


@dataclass(frozen=True)
class Equation:
    """A part that states an equality between calculations, which read two or more columns."""

    columns: frozenset[str]
    truth: Truth


@dataclass(frozen=True)
class Expression:
    """A checked expression, the `columns` that it reads, in the spec's order, and its equations."""

    text: str
    columns: tuple[str, ...]
    truth: Truth
    equations: tuple[Equation, ...] = ()

    def violated(self, values: Values) -> Any:
        """Which rows make it false, shape `[rows]`; `values` holds `columns`."""
        return self.truth(values)[1]


@dataclass(frozen=True)
class Calculation:
    """The calculation of a derived column: the columns it reads, and its value (dates in days).

    `divides` says whether a divisor may be 0.
    """

    columns: tuple[str, ...]
    value: Numbers
    kind: Literal["number", "date"]
    divides: bool


@dataclass(frozen=True)
class ExpressionMistake:
    """What is wrong, at a character of the text counted from 1."""

    at: int
    message: str
    hint: str | None = None


# --- names ---

IN_BACKTICKS = r"`((?:[^`]|``)*)`"
"""A name in backticks, as any may stand in an expression: a backtick inside it is written twice.

Group 1 is to be `unquoted`.
"""
WORDS = ("missing", "where", "by")  # words of conditions and questions beside Python's own


def quoted(name: str) -> str:
    """A column's name as expressions write it.

    >>> quoted("age"), quoted("p 1"), quoted("not"), quoted("a`b")
    ('age', '`p 1`', '`not`', '`a``b`')
    """
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return name if plain and name not in WORDS else "`" + name.replace("`", "``") + "`"


def unquoted(inside: str) -> str:
    """The name that stands between two backticks."""
    return inside.replace("``", "`")


def listed_names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a list parted by commas; a name may have commas, and stand in backticks.

    The longest known name counts where several can be read. What is no name is returned as it is.

    >>> listed_names("a, b,c, `a`,d", ["a, b", "a", "b", "c"])
    ('a, b', 'c', 'a', 'd')
    """
    ends = [*(i for i, sign in enumerate(text) if sign == ","), len(text)]
    names, start = list[str](), 0
    while start <= len(text):
        after = [i for i in ends if i >= start]
        end = next((i for i in reversed(after) if text[start:i].strip() in known), None)
        marked = re.match(rf"\s*{IN_BACKTICKS}\s*(?=,|$)", text[start:])
        if end is None and marked and unquoted(marked[1]) in known:
            names.append(unquoted(marked[1]))
            start += marked.end() + 1
            continue
        end = after[0] if end is None else end
        names.append(text[start:end].strip())
        start = end + 1
    return tuple(names)


def setting_of(text: str, known: Collection[str]) -> tuple[str, str] | None:
    """The name and the value of COLUMN=VALUE; None where no equals sign parts them.

    The longest known name that stands before an equals sign counts, and a name may stand in
    backticks. What is no name is what stands before the first sign.

    >>> setting_of("k=v=1", ["k", "k=v"]), setting_of("`k`=v=1", ["k", "k=v"]), setting_of("a", [])
    (('k=v', '1'), ('k', 'v=1'), None)
    """
    signs = [i for i, sign in enumerate(text) if sign == "="]
    at = next((i for i in reversed(signs) if text[:i] in known), None)
    marked = re.match(rf"{IN_BACKTICKS}=", text) if at is None else None
    if marked and unquoted(marked[1]) in known:
        return unquoted(marked[1]), text[marked.end() :]
    if not signs:
        return None
    at = signs[0] if at is None else at
    return text[:at], text[at + 1 :]


# --- source text ---

ALLOWED = "comparisons, and, or, not, + - * /, in (...), `is missing` and parentheses"

_T = TypeVar("_T")
_MARKS = "\u01bb\u01bd\u0241\u0242\u0294"
"""Letters, one of which begins the names that stand for those in backticks while Python parses."""
_TOKEN = re.compile(rf"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|{IN_BACKTICKS}")
_SINGLE = re.compile(r"(?<![<>=!:])=(?!=)")


class UnreadableExpression(Exception):
    def __init__(self, mistakes: list[ExpressionMistake]) -> None:
        super().__init__()
        self.mistakes = mistakes


def each(read: Callable[[ast.expr], _T], nodes: Sequence[ast.expr]) -> list[_T]:
    """`read` of every node.

    Raises:
        UnreadableExpression: with the mistakes of all nodes.
    """
    values: list[_T] = []
    mistakes: list[ExpressionMistake] = []
    for node in nodes:
        try:
            values.append(read(node))
        except UnreadableExpression as wrong:
            mistakes += wrong.mistakes
    if mistakes:
        raise UnreadableExpression(mistakes)
    return values


class SourceText:
    """One text, its syntax tree, and the place in the text of each node of the tree.

    While Python parses the text, a plain name stands in for one in backticks.

    Raises:
        UnreadableExpression: from `parsed`, where the text is no expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._quoted: dict[str, str] = {}
        self._mark = ""
        self._source = ""
        self._lead = 0

    def parsed(self) -> ast.expr:
        self._mark = next((mark for mark in _MARKS if mark not in self.text), "")
        if not self._mark:
            self.refuse(1, f"the letters {', '.join(_MARKS)} cannot all be used here")
        source = _TOKEN.sub(self._unquoted, re.sub(r"\s", " ", self.text))
        self._source, self._lead = source.strip(), len(source) - len(source.lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own advice on style
                tree = ast.parse(self._source, mode="eval")
        except SyntaxError as error:
            said = error.msg
            for stand_in, name in self._quoted.items():
                said = said.replace(stand_in, quoted(name))
            self.refuse(
                self._lead + (error.offset or 1), f"cannot be read: {said}", _advice(source)
            )
        except (ValueError, RecursionError, MemoryError):
            message = "it is nested too deeply, or holds a sign that no expression has"
            self.refuse(1, f"cannot be read: {message}")
        if sum(1 for _ in ast.walk(tree)) > 200:
            hint = "write several constraints; all of them must hold"
            self.refuse(1, "has more than 200 parts", hint)
        return tree.body

    def name(self, node: ast.Name) -> str:
        """The name of a column as the text has it, before Python put its accents together."""
        written = self._source.encode()[node.col_offset : node.end_col_offset].decode()
        return self._quoted.get(written, written)

    def refuse(self, where: int | ast.expr, message: str, hint: str | None = None) -> NoReturn:
        """Raise the mistake at a node, or at a character of the text counted from 1."""
        at = where if isinstance(where, int) else self.place(where)
        raise UnreadableExpression([ExpressionMistake(at, message, hint)])

    def place(self, node: ast.expr) -> int:
        """The character of the text that a node begins at, counted from 1."""
        before = self._source.encode()[: node.col_offset]
        return self._lead + len(before.decode(errors="ignore")) + 1

    def _unquoted(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        name = f"{self._mark}{len(self._quoted)}".ljust(len(match[0]), "_")
        self._quoted[name] = unquoted(match[1])
        return name


def _advice(source: str) -> str:
    """How to mend a text that Python cannot read."""
    if "`" in source:
        return "a backtick is never closed; one inside a name is written twice"
    words = set(re.findall(r"\w+", re.sub(_TOKEN, "", source))) - {"and", "or", "not", "in", "is"}
    if taken := sorted(filter(keyword.iskeyword, words)):
        return f"a column named {taken[0]} is written `{taken[0]}`, in backticks"
    return "equality is written ==" if _SINGLE.search(source) else f"allowed are {ALLOWED}"


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
