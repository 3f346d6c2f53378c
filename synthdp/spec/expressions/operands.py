"""The values in an expression: columns, constants, and what is calculated from them.

A value becomes a function of columns as arrays, so that this module needs no numbers library. A
derived column is computed by such a function.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from synthdp.spec.expressions.parsed import (
    ALLOWED,
    Calculation,
    Expression,
    ExpressionMistake,
    Numbers,
    SourceText,
    UnreadableExpression,
    arithmetic,
    each,
    negative,
    quoted,
)
from synthdp.spec.load.wording import got, nearest
from synthdp.spec.model import Column, derived_of
from synthdp.spec.model.columns.types import EPOCH, Operand

LARGEST = 1e15  # beyond it neighbouring whole numbers are one

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv
}  # fmt: skip
_REFUSED = {
    ast.Call: "a call",
    ast.Attribute: "a dot after a name",
    ast.Subscript: "square brackets after a name",
    ast.IfExp: "if ... else",
    ast.Lambda: "lambda",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: ":=",
    ast.Tuple: "a list outside of `in`",
    ast.List: "a list outside of `in`",
}


def calculation(
    text: str, columns: Mapping[str, Column]
) -> tuple[Calculation | None, list[ExpressionMistake]]:
    """What `text` computes from columns that are modelled, or every mistake in it."""
    reader = OperandReader(SourceText(text), columns, derived=False)
    try:
        operand = reader.calculated()
    except UnreadableExpression as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    kind: Literal["number", "date"] = "date" if operand.kind == "date" else "number"
    read = tuple(name for name in columns if name in reader.used)
    return Calculation(read, operand.value, kind, reader.divides), []


@dataclass(frozen=True)
class ExpressionOperand:
    """One side of a comparison, or a part of a calculation.

    An operand of the kind "text" is a category, by its position in `categories`. Of the kind
    "literal", `literal` is its text.
    """

    kind: Operand | Literal["literal"]
    value: Numbers = lambda values: 0.0
    constant: bool = False
    categories: tuple[str, ...] = ()
    ordered: bool = False
    literal: str = ""
    name: str = ""
    columns: frozenset[str] = frozenset()


@dataclass
class OperandReader:
    """Reads the values in one text; `used` names the columns read so far.

    With `derived` false, a derived column is refused. `divides` says whether a divisor may be 0.
    """

    source: SourceText
    columns: Mapping[str, Column]
    derived: bool
    used: set[str] = field(default_factory=set)
    divides: bool = False

    def calculated(self) -> ExpressionOperand:
        """The value of a text that is one."""
        node = self.source.parsed()
        operand = self.operand(node)
        if operand.constant or operand.kind not in ("number", "date"):
            message = f"{described(operand)} is not computed from numbers or dates of other columns"
            self.source.refuse(node, message, "e.g. before + change")
        return operand

    def operand(self, node: ast.expr) -> ExpressionOperand:
        """The value at a node of the tree."""
        match node:
            case ast.Name():
                return self._column(node)
            case ast.Constant(value=str() as text):
                return ExpressionOperand("literal", constant=True, literal=text)
            case ast.Constant(value=bool()):
                hint = "a boolean column is written by itself: smoker, or not smoker"
                self.source.refuse(node, "True and False are not used here", hint)
            case ast.Constant(value=int() | float() as number):
                if not -LARGEST <= number <= LARGEST:
                    self.source.refuse(node, f"numbers beyond {LARGEST:g} are not exact")
                real = float(number)
                return ExpressionOperand("number", lambda values: real, True)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=inner):
                operand = self.operand(inner)
                if operand.kind != "number":
                    self.source.refuse(node, f"a sign cannot stand before {described(operand)}")
                if isinstance(op, ast.UAdd):
                    return operand
                return replace(operand, value=negative(operand.value), name="")
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._calculated(node)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()) | ast.UnaryOp(op=ast.Invert()):
                self.source.refuse(node, "& | ~ are not used here", "write and, or, not")
        what = _REFUSED.get(type(node), "this")
        self.source.refuse(
            node, f"{what} is not allowed in an expression", f"allowed are {ALLOWED}"
        )

    def _calculated(self, node: ast.BinOp) -> ExpressionOperand:
        left, right = each(self.operand, [node.left, node.right])
        value = arithmetic(_ARITHMETIC[type(node.op)], left.value, right.value)
        read = left.columns | right.columns
        self.divides |= isinstance(node.op, ast.Div) and not (
            isinstance(node.right, ast.Constant) and node.right.value != 0
        )
        match left.kind, node.op, right.kind:
            case ("number", _, "number"):
                if left.constant and right.constant:
                    self.source.refuse(node, "calculates with constants alone", "write the result")
                return ExpressionOperand("number", value, columns=read)
            case ("date", ast.Sub(), "date"):
                return ExpressionOperand("number", value, columns=read)
            case ("date", ast.Add() | ast.Sub(), "number") | ("number", ast.Add(), "date"):
                return ExpressionOperand("date", value, columns=read)
        dates = "the difference of two dates is a number of days, and days can be added to a date"
        hint = dates if "date" in (left.kind, right.kind) else None
        message = f"cannot calculate with {described(left)} and {described(right)}"
        self.source.refuse(node, message, hint)

    def _column(self, node: ast.Name) -> ExpressionOperand:
        name = self.source.name(node)
        if name not in self.columns:
            begun = [c for c in self.columns if c.startswith(name) and c in self.source.text]
            hint = nearest(name, self.columns)
            hint = hint or f"columns are {', '.join(list(self.columns)[:20])}"
            if longer := [c for c in begun if not c.isidentifier()]:
                hint = f"write {quoted(longer[0])}, in backticks"
            self.source.refuse(node, f"unknown column {got(name)}", hint)
        self.used.add(name)
        column = self.columns[name]
        read = self._read(node, name, column) if column.ranged else frozenset[str]()
        return ExpressionOperand(
            column.operand, operator.itemgetter(name), False, column.labels, column.ordered,
            name=name, columns=read,
        )  # fmt: skip

    def _read(self, node: ast.Name, name: str, column: Column) -> frozenset[str]:
        """The modelled columns that a column of numbers or dates is, or is computed from."""
        text = derived_of(column)
        if text is None:
            return frozenset({name})
        if not self.derived:
            message = f"column {name!r} is computed from others itself, when rows are written"
            self.source.refuse(node, message, f"write ({text}) in its place")
        computed, _ = calculation(text, self.columns)
        inputs = frozenset(computed.columns) if computed else frozenset({name})
        self.used |= inputs
        return inputs


def described(operand: ExpressionOperand) -> str:
    """An operand as a message names it."""
    if operand.name and not operand.constant:
        return f"column {operand.name!r}"
    if operand.kind == "literal":
        return f"the text {got(operand.literal)}"
    return {"number": "a number", "date": "a date", "text": "a category"}[operand.kind]


def calculated(tree: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition that calculate, or compare two columns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = [node.left, *node.comparators]
            yield from (b for a, b in pairwise(sides) if not (_constant(a) or _constant(b)))
            yield from (s for s in sides if not (_constant(s) or isinstance(s, ast.Name)))
        elif isinstance(node, ast.Compare) and not isinstance(node.left, ast.Name):
            yield node.left


def constants_of(tree: ast.expr) -> Iterator[float]:
    """The numbers, and the dates in days since 1970, that a condition compares with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield from (float(node.value), -float(node.value))  # a sign is a node of its own
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with suppress(ValueError, TypeError):
                yield (datetime.fromisoformat(node.value) - EPOCH).total_seconds() / 86_400


def outside(condition: Expression, columns: Mapping[str, Column]) -> Iterator[tuple[str, str]]:
    """Columns of numbers and dates, and constants as written that they cannot hold."""
    source = SourceText(condition.text)
    for node in ast.walk(source.parsed()):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for pair in pairwise(sides):
            names = [source.name(side) for side in pair if isinstance(side, ast.Name)]
            column = columns.get(names[0]) if names else None
            if column is not None and column.ranged:
                listed = [e for side in pair for e in getattr(side, "elts", [side])]
                texts = (str(ast.literal_eval(e)) for e in listed if _constant(e))
                yield from ((names[0], text) for text in texts if not column.holds(text))


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    return isinstance(node, ast.Constant)
