"""Expressions over columns, as constraints on synthetic rows, e.g. "age >= 18 or not smoker".

Only the nodes of the syntax tree named here mean anything. What is accepted becomes a function of
columns as arrays, so that this module needs no numbers library; so does the formula of a derived
column.

Missing values work as in SQL's CHECK: a comparison with a missing value (or a division by zero) is
unknown, and a constraint is violated only by rows for which it is false.
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
    Equation,
    Expression,
    ExpressionMistake,
    Numbers,
    SourceText,
    Truth,
    UnreadableExpression,
    comparison,
    each,
    every,
    is_missing,
    negation,
    quoted,
    some,
)
from synthdp.spec.load.wording import got, nearest
from synthdp.spec.model import EPOCH, Column, Operand, derived_of

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
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def parse(
    text: str, columns: Mapping[str, Column], *, derived: bool = True
) -> tuple[Expression | None, list[ExpressionMistake]]:
    """The expression, or every mistake in it.

    An expression over a derived column also reads the columns that it is computed from. With
    `derived` false, a derived column is a mistake.
    """
    reader = _Reader(SourceText(text), columns, derived)
    try:
        truth = reader.truth(reader.source.parsed())
    except UnreadableExpression as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    read = tuple(name for name in columns if name in reader.used)
    return Expression(text, read, truth, tuple(reader.equations)), []


def calculation(
    text: str, columns: Mapping[str, Column]
) -> tuple[Calculation | None, list[ExpressionMistake]]:
    """What `text` computes from columns that are modelled, or every mistake in it."""
    reader = _Reader(SourceText(text), columns, derived=False)
    try:
        operand = reader.calculated()
    except UnreadableExpression as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    kind: Literal["number", "date"] = "date" if operand.kind == "date" else "number"
    read = tuple(name for name in columns if name in reader.used)
    return Calculation(read, operand.value, kind, reader.divides), []


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
class _Reader:
    """Reads one text; `used` names the columns, `equations` the equations read so far.

    With `derived` false, a derived column is refused. `divides` says whether a divisor may be 0,
    `negated` whether the part that is being read must not hold.
    """

    source: SourceText
    columns: Mapping[str, Column]
    derived: bool
    used: set[str] = field(default_factory=set)
    divides: bool = False
    equations: list[Equation] = field(default_factory=list)
    negated: bool = False

    def calculated(self) -> ExpressionOperand:
        node = self.source.parsed()
        operand = self.operand(node)
        if operand.constant or operand.kind not in ("number", "date"):
            message = f"{described(operand)} is not computed from numbers or dates of other columns"
            self.source.refuse(node, message, "e.g. before + change")
        return operand

    def operand(self, node: ast.expr) -> ExpressionOperand:
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
                return replace(operand, value=lambda values: -operand.value(values), name="")
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
        calculate = _ARITHMETIC[type(node.op)]

        def value(values: Any) -> Any:
            return calculate(left.value(values), right.value(values))

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

    def truth(self, node: ast.expr) -> Truth:
        match node:
            case ast.BoolOp(op=op, values=parts):
                return (every if isinstance(op, ast.And) else some)(each(self.truth, parts))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._negation(lambda: self.truth(inner))
            case ast.Compare():
                return self._chain(node)
            case ast.Name() if getattr(self.columns.get(self.source.name(node)), "truth", False):
                return comparison(operator.eq, self.operand(node).value, lambda values: 1.0)
        found, example = self.operand(node), "age >= 18"
        if found.name and found.categories:
            example = f"{quoted(found.name)} == {found.categories[-1]!r}"
        message = "is a value where something true or false is needed"
        self.source.refuse(node, message, f"compare it with something, e.g. {example}")

    def _negation(self, read: Callable[[], Truth]) -> Truth:
        """What `read` reads must not hold."""
        self.negated = not self.negated
        try:
            return negation(read())
        finally:
            self.negated = not self.negated

    def _chain(self, node: ast.Compare) -> Truth:
        """A comparison, or a chain such as 18 <= age < 65: every neighbouring pair must hold."""
        first, *others = node.comparators
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and not others:
            return self._missing(node.left, node.ops[0], first)
        if isinstance(node.ops[0], ast.In | ast.NotIn) and not others:
            return self._among(node.left, node.ops[0], first)
        if not all(type(op) in _ORDER for op in node.ops):
            message = "`in` and `is` cannot be part of a chain"
            self.source.refuse(node, message, "put parentheses around each comparison")
        nodes = [node.left, *node.comparators]
        sides = each(self.operand, nodes)
        pairs = zip(sides, node.ops, sides[1:], nodes[1:], strict=False)
        return every(
            [self._compared(a, _ORDER[type(op)], b, where=where) for a, op, b, where in pairs]
        )

    def _missing(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not (isinstance(right, ast.Name) and right.id == "missing"):
            message = "`is` can only be followed by missing or not missing"
            self.source.refuse(right, message, "to compare values write == or !=")
        operand = self.operand(left)
        if operand.constant:
            self.source.refuse(left, "a constant is never missing")
        missing = is_missing(operand.value)
        return missing if isinstance(op, ast.Is) else negation(missing)

    def _among(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            self.source.refuse(
                right, "`in` needs a list of values", "e.g. sex in ('Female', 'Male')"
            )
        operand = self.operand(left)

        def equal() -> Truth:
            def same(e: ast.expr) -> Truth:
                return self._compared(operand, operator.eq, self.operand(e), where=e)

            return some(each(same, right.elts))

        return equal() if isinstance(op, ast.In) else self._negation(equal)

    def _compared(
        self,
        left: ExpressionOperand,
        holds: Callable[[Any, Any], Any],
        right: ExpressionOperand,
        *,
        where: ast.expr,
    ) -> Truth:
        if left.constant and right.constant:
            self.source.refuse(where, "compares two constants")
        left, right = self._resolved(where, left, right), self._resolved(where, right, left)
        if left.kind != right.kind:
            message = f"cannot compare {described(left)} with {described(right)}"
            text = str(where.value) if isinstance(where, ast.Constant) else ""
            texts = {*(left.categories or ()), *(right.categories or ())}
            hint = "text stands in quotes, numbers without"
            self.source.refuse(where, message, f"write {text!r}" if text in texts else hint)
        if left.kind == "text":
            if left.categories != right.categories:
                self.source.refuse(
                    where, f"{left.name!r} and {right.name!r} have different categories"
                )
            if holds not in (operator.eq, operator.ne) and not (left.ordered and right.ordered):
                hint = "use ==, != or in; only ordinal columns have an order"
                self.source.refuse(where, f"the categories of {left.name!r} have no order", hint)
        elif holds is (operator.ne if self.negated else operator.eq):
            equal = comparison(operator.eq, left.value, right.value)
            if len(read := left.columns | right.columns) > 1:
                self.equations.append(Equation(read, equal))
        return comparison(holds, left.value, right.value)

    def _resolved(
        self, where: ast.expr, one: ExpressionOperand, other: ExpressionOperand
    ) -> ExpressionOperand:
        """A text in quotes as what the other side is: a category of it, or a date."""
        if one.kind != "literal" or other.kind not in ("text", "date"):
            return one
        if other.kind == "text":
            if one.literal in other.categories:
                position = float(other.categories.index(one.literal))
                return replace(other, value=lambda values: position, constant=True)
            more = ", ..." if len(other.categories) > 12 else ""
            shown = ", ".join(other.categories[:12]) + more
            message = f"{got(one.literal)} is no category of {other.name!r}: {shown}"
            self.source.refuse(where, message, nearest(one.literal, other.categories))
        try:
            days = (datetime.fromisoformat(one.literal) - EPOCH).total_seconds() / 86_400
        except (ValueError, TypeError):
            hint = "e.g. '2024-12-31', or '2024-12-31T23:59:59', without time zone"
            self.source.refuse(where, f"{got(one.literal)} is no date", hint)
        return ExpressionOperand("date", lambda values: days, True)


def described(operand: ExpressionOperand) -> str:
    if operand.name and not operand.constant:
        return f"column {operand.name!r}"
    if operand.kind == "literal":
        return f"the text {got(operand.literal)}"
    return {"number": "a number", "date": "a date", "text": "a category"}[operand.kind]


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    return isinstance(node, ast.Constant)
