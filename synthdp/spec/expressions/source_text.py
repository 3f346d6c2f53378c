"""The text of an expression, as a syntax tree that Python's own parser makes of it.

Nothing is ever evaluated as Python. A column's name stands in backticks where it is no plain word,
as users of pandas know it. While Python parses the text, a plain name stands in for it.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from synthdp.spec.expressions.names import IN_BACKTICKS, quoted, unquoted
from synthdp.spec.expressions.parsed import ExpressionMistake

MAX_NODES = 200
ALLOWED = "comparisons, and, or, not, + - * /, in (...), `is missing` and parentheses"

_T = TypeVar("_T")
_MARKS = "\u01bb\u01bd\u0241\u0242\u0294"
"""Letters, one of which begins the names that stand for those in backticks while Python parses."""
_TOKEN = re.compile(rf"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|{IN_BACKTICKS}")
_SINGLE = re.compile(r"(?<![<>=!:])=(?!=)")


class UnreadableExpression(Exception):
    """What is wrong with a part of the text."""

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
        """The expression at the root of the tree."""
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
            self.refuse(
                1, "cannot be read: it is nested too deeply, or holds a sign that no expression has"
            )
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            self.refuse(
                1,
                f"has more than {MAX_NODES} parts",
                "write several constraints; all of them must hold",
            )
        return tree.body

    def name(self, node: ast.Name) -> str:
        """The name of a column as the text has it, before Python put its accents together."""
        written = self._source.encode()[node.col_offset : node.end_col_offset].decode()
        return self._quoted.get(written, written)

    def refuse(self, where: int | ast.expr, message: str, hint: str | None = None) -> NoReturn:
        """Raise the mistake at a node, or at a character of the text counted from 1."""
        if not isinstance(where, int):
            before = self._source.encode()[: where.col_offset]
            where = self._lead + len(before.decode(errors="ignore")) + 1
        raise UnreadableExpression([ExpressionMistake(where, message, hint)])

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
