"""The text of an expression, as a syntax tree that Python's own parser makes of it.

Nothing is ever evaluated as Python. A column's name stands in backticks where it is no plain word,
as users of pandas know it. While Python parses the text, a plain name stands in for it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from synthdp.spec.expressions.parsed import ExpressionMistake

MAX_NODES = 200
ALLOWED = "comparisons, and, or, not, + - * /, in (...), `is missing` and parentheses"

_T = TypeVar("_T")
_MARK = "\u01bb"  # begins the name that stands for one in backticks while Python parses
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`([^`]*)`")
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
        self._source = ""
        self._lead = 0

    def parsed(self) -> ast.expr:
        """The expression at the root of the tree."""
        if _MARK in self.text:
            self.refuse(self.text.index(_MARK) + 1, f"the letter {_MARK!r} cannot be used here")
        source = _TOKEN.sub(self._unquoted, re.sub(r"\s", " ", self.text))
        self._source, self._lead = source.strip(), len(source) - len(source.lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own advice on style
                tree = ast.parse(self._source, mode="eval")
        except SyntaxError as error:
            advice = (
                "equality is written ==" if _SINGLE.search(source) else f"allowed are {ALLOWED}"
            )
            hint = "a backtick is never closed" if "`" in source else advice
            self.refuse(self._lead + (error.offset or 1), f"cannot be read: {error.msg}", hint)
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
        """The name of a column as the text has it."""
        return self._quoted.get(node.id, node.id)

    def refuse(self, where: int | ast.expr, message: str, hint: str | None = None) -> NoReturn:
        """Raise the mistake at a node, or at a character of the text counted from 1."""
        if not isinstance(where, int):
            before = self._source.encode()[: where.col_offset]
            where = self._lead + len(before.decode(errors="ignore")) + 1
        raise UnreadableExpression([ExpressionMistake(where, message, hint)])

    def _unquoted(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        name = f"{_MARK}{len(self._quoted)}".ljust(len(match[0]), "_")
        self._quoted[name] = match[1]
        return name
