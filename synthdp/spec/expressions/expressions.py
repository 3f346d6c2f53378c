"""Expressions over columns, as constraints on synthetic rows: "age >= 18 or `marital-status` ==
'Never-married'".

Python's own parser reads them; only the nodes named here mean anything, and nothing is ever
evaluated as Python. Names are the spec's columns, in backticks (as pandas users know them) where
they are no plain words. What is accepted becomes a function of columns as arrays, so that this
module needs no numbers library.

Missing values work as in SQL's CHECK: a comparison with a missing value (or a division by zero) is
unknown, and a constraint is violated only by rows for which it is false.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeVar

from synthdp.spec.expressions.parsed import Calculation, Equation, Expression, ExpressionMistake
from synthdp.spec.expressions.truth import (
    Numbers,
    Truth,
    arithmetic,
    comparison,
    every,
    is_missing,
    negation,
    negative,
    some,
)
from synthdp.spec.model import Column, derived_of
from synthdp.spec.model.columns import EPOCH, Operand
from synthdp.spec.wording import got, nearest

__all__ = [
    "LARGEST",
    "MAX_NODES",
    "Calculation",
    "Equation",
    "Expression",
    "ExpressionMistake",
    "calculation",
    "parse",
]

MAX_NODES = 200
LARGEST = 1e15  # beyond it neighbouring whole numbers are one

_T = TypeVar("_T")
_MARK = "\u01bb"  # begins the name that stands for one in backticks while Python parses
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`([^`]*)`")
_SINGLE = re.compile(r"(?<![<>=!:])=(?!=)")
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv
}  # fmt: skip
_ALLOWED = "comparisons, and, or, not, + - * /, in (...), `is missing` and parentheses"
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


class _Unreadable(Exception):
    """What is wrong with a part of the text."""

    def __init__(self, mistakes: list[ExpressionMistake]) -> None:
        super().__init__()
        self.mistakes = mistakes


def parse(
    text: str, columns: Mapping[str, Column], *, derived: bool = True
) -> tuple[Expression | None, list[ExpressionMistake]]:
    """The expression, or every mistake in it; it reads what the `derived` columns in it are
    computed from, too, or may not read them.
    """
    reader = _Reader(text, columns, derived)
    try:
        truth = reader.read()
    except _Unreadable as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    return (
        Expression(
            text, tuple(n for n in columns if n in reader.used), truth, tuple(reader.equations)
        ),
        [],
    )


def calculation(
    text: str, columns: Mapping[str, Column]
) -> tuple[Calculation | None, list[ExpressionMistake]]:
    """What `text` computes from columns that are modelled, or every mistake in it."""
    reader = _Reader(text, columns, derived=False)
    try:
        operand = reader.calculated()
    except _Unreadable as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    kind: Literal["number", "date"] = "date" if operand.kind == "date" else "number"
    return (
        Calculation(
            tuple(n for n in columns if n in reader.used), operand.value, kind, reader.divides
        ),
        [],
    )


@dataclass(frozen=True)
class _Operand:
    """One side of a comparison. `kind` text is a category, by its position in `categories`; a
    literal's `value` is its text.

    Of a column whose own entry is wrong the kind is unread: it goes with everything, for nothing
    can be said against it.
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
    """Reads one text; `used` columns and `equations` fill while it does. What is `negated` must not
    hold.
    """

    text: str
    columns: Mapping[str, Column]
    derived: bool
    used: set[str] = field(default_factory=set)
    equations: list[Equation] = field(default_factory=list)
    negated: bool = False
    divides: bool = False
    quoted: dict[str, str] = field(default_factory=dict)
    source: str = ""
    lead: int = 0

    def read(self) -> Truth:
        return self._truth(self._parsed())

    def calculated(self) -> _Operand:
        """The value of a text that is one."""
        node = self._parsed()
        operand = self._operand(node)
        if operand.constant or operand.kind not in ("number", "date", "unread"):
            self._wrong(
                node,
                f"{_said(operand)} is not computed from numbers or dates of other columns",
                "e.g. before + change",
            )
        return operand

    def _parsed(self) -> ast.expr:
        if _MARK in self.text:
            self._wrong(self.text.index(_MARK) + 1, f"the letter {_MARK!r} cannot be used here")
        source = _TOKEN.sub(self._unquoted, re.sub(r"\s", " ", self.text))
        self.source, self.lead = source.strip(), len(source) - len(source.lstrip())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own advice on style
                tree = ast.parse(self.source, mode="eval")
        except SyntaxError as error:
            advice = (
                "equality is written ==" if _SINGLE.search(source) else f"allowed are {_ALLOWED}"
            )
            hint = "a backtick is never closed" if "`" in source else advice
            self._wrong(self.lead + (error.offset or 1), f"cannot be read: {error.msg}", hint)
        except (ValueError, RecursionError, MemoryError):
            self._wrong(
                1, "cannot be read: it is nested too deeply, or holds a sign that no expression has"
            )
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            self._wrong(
                1,
                f"has more than {MAX_NODES} parts",
                "write several constraints; all of them must hold",
            )
        return tree.body

    def _unquoted(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        name = f"{_MARK}{len(self.quoted)}".ljust(len(match[0]), "_")
        self.quoted[name] = match[1]
        return name

    def _wrong(self, where: int | ast.expr, message: str, hint: str | None = None) -> NoReturn:
        if not isinstance(where, int):
            before = self.source.encode()[: where.col_offset]
            where = self.lead + len(before.decode(errors="ignore")) + 1
        raise _Unreadable([ExpressionMistake(where, message, hint)])

    def _each(self, read: Callable[[ast.expr], _T], nodes: Sequence[ast.expr]) -> list[_T]:
        """`read` of every node, or the mistakes in all of them."""
        found: list[_T] = []
        mistakes: list[ExpressionMistake] = []
        for node in nodes:
            try:
                found.append(read(node))
            except _Unreadable as wrong:
                mistakes += wrong.mistakes
        if mistakes:
            raise _Unreadable(mistakes)
        return found

    # --- what is true or false ---

    def _truth(self, node: ast.expr) -> Truth:
        match node:
            case ast.BoolOp(op=op, values=parts):
                return (every if isinstance(op, ast.And) else some)(self._each(self._truth, parts))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._negation(lambda: self._truth(inner))
            case ast.Compare():
                return self._chain(node)
            case ast.Name() if self._is_truth(node):
                return comparison(operator.eq, self._operand(node).value, lambda values: 1.0)
        self._operand(node)
        self._wrong(
            node,
            "is a value where something true or false is needed",
            "compare it with something, e.g. age >= 18",
        )

    def _is_truth(self, node: ast.Name) -> bool:
        column = self.columns.get(self.quoted.get(node.id, node.id))
        return column is not None and column.truth

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
            self._wrong(
                node,
                "`in` and `is` cannot be part of a chain",
                "put parentheses around each comparison",
            )
        nodes = [node.left, *node.comparators]
        sides = self._each(self._operand, nodes)
        pairs = zip(sides, node.ops, sides[1:], nodes[1:], strict=False)
        return every(
            [self._compared(a, _ORDER[type(op)], b, where=where) for a, op, b, where in pairs]
        )

    def _missing(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not (isinstance(right, ast.Name) and right.id == "missing"):
            self._wrong(
                right,
                "`is` can only be followed by missing or not missing",
                "to compare values write == or !=",
            )
        operand = self._operand(left)
        if operand.constant:
            self._wrong(left, "a constant is never missing")
        return (
            is_missing(operand.value)
            if isinstance(op, ast.Is)
            else negation(is_missing(operand.value))
        )

    def _among(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            self._wrong(right, "`in` needs a list of values", "e.g. sex in ('Female', 'Male')")
        operand = self._operand(left)

        def equal() -> Truth:
            return some(
                self._each(
                    lambda e: self._compared(operand, operator.eq, self._operand(e), where=e),
                    right.elts,
                )
            )

        return equal() if isinstance(op, ast.In) else self._negation(equal)

    def _compared(
        self, left: _Operand, holds: Callable[[Any, Any], Any], right: _Operand, *, where: ast.expr
    ) -> Truth:
        if left.constant and right.constant:
            self._wrong(where, "compares two constants")
        if "unread" in (left.kind, right.kind):
            return comparison(holds, left.value, right.value)
        left, right = self._resolved(where, left, right), self._resolved(where, right, left)
        if left.kind != right.kind:
            self._wrong(
                where,
                f"cannot compare {_said(left)} with {_said(right)}",
                "text stands in quotes, numbers without",
            )
        if left.kind == "text":
            if left.categories != right.categories:
                self._wrong(where, f"{left.name!r} and {right.name!r} have different categories")
            if holds not in (operator.eq, operator.ne) and not (left.ordered and right.ordered):
                self._wrong(
                    where,
                    f"the categories of {left.name!r} have no order",
                    "use ==, != or in; only ordinal columns have an order",
                )
        elif (
            holds is (operator.ne if self.negated else operator.eq)
            and len(left.columns | right.columns) > 1
        ):
            self.equations.append(
                Equation(
                    left.columns | right.columns, comparison(operator.eq, left.value, right.value)
                )
            )
        return comparison(holds, left.value, right.value)

    def _resolved(self, where: ast.expr, one: _Operand, other: _Operand) -> _Operand:
        """A text in quotes as what the other side is: a category of it, or a date."""
        if one.kind != "literal" or other.kind not in ("text", "date"):
            return one
        if other.kind == "text":
            if one.literal in other.categories:
                position = float(other.categories.index(one.literal))
                return _Operand(
                    "text",
                    lambda values: position,
                    True,
                    other.categories,
                    other.ordered,
                    name=other.name,
                )
            shown = ", ".join(other.categories[:12]) + (
                ", ..." if len(other.categories) > 12 else ""
            )
            self._wrong(
                where,
                f"{got(one.literal)} is no category of {other.name!r}: {shown}",
                nearest(one.literal, other.categories),
            )
        try:
            days = (datetime.fromisoformat(one.literal) - EPOCH).total_seconds() / 86_400
        except (ValueError, TypeError):
            self._wrong(
                where,
                f"{got(one.literal)} is no date",
                "e.g. '2024-12-31', or '2024-12-31T23:59:59', without time zone",
            )
        return _Operand("date", lambda values: days, True)

    # --- values ---

    def _operand(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Name():
                return self._column(node)
            case ast.Constant(value=str() as text):
                return _Operand("literal", constant=True, literal=text)
            case ast.Constant(value=bool()):
                self._wrong(
                    node,
                    "True and False are not used here",
                    "a boolean column is written by itself: smoker, or not smoker",
                )
            case ast.Constant(value=int() | float() as number):
                if not -LARGEST <= number <= LARGEST:
                    self._wrong(node, f"numbers beyond {LARGEST:g} are not exact")
                real = float(number)
                return _Operand("number", lambda values: real, True)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=inner):
                operand = self._operand(inner)
                if operand.kind not in ("number", "unread"):
                    self._wrong(node, f"a sign cannot stand before {_said(operand)}")
                return (
                    operand
                    if isinstance(op, ast.UAdd)
                    else replace(operand, value=negative(operand.value), name="")
                )
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._calculated(node)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()) | ast.UnaryOp(op=ast.Invert()):
                self._wrong(node, "& | ~ are not used here", "write and, or, not")
        what = _REFUSED.get(type(node), "this")
        self._wrong(node, f"{what} is not allowed in an expression", f"allowed are {_ALLOWED}")

    def _calculated(self, node: ast.BinOp) -> _Operand:
        left, right = self._each(self._operand, [node.left, node.right])
        value, read = (
            arithmetic(_ARITHMETIC[type(node.op)], left.value, right.value),
            left.columns | right.columns,
        )
        self.divides |= isinstance(node.op, ast.Div) and not (
            isinstance(node.right, ast.Constant) and node.right.value != 0
        )
        if "unread" in (left.kind, right.kind):
            return _Operand("unread", value)
        match left.kind, node.op, right.kind:
            case ("number", _, "number"):
                if left.constant and right.constant:
                    self._wrong(node, "calculates with constants alone", "write the result")
                return _Operand("number", value, columns=read)
            case ("date", ast.Sub(), "date"):
                return _Operand("number", value, columns=read)
            case ("date", ast.Add() | ast.Sub(), "number") | ("number", ast.Add(), "date"):
                return _Operand("date", value, columns=read)
        hint = (
            "the difference of two dates is a number of days, and days can be added to a date"
            if "date" in (left.kind, right.kind)
            else None
        )
        self._wrong(node, f"cannot calculate with {_said(left)} and {_said(right)}", hint)

    def _column(self, node: ast.Name) -> _Operand:
        name = self.quoted.get(node.id, node.id)
        if name not in self.columns:
            longer = [
                c
                for c in self.columns
                if c.startswith(name) and c in self.text and not c.isidentifier()
            ]
            hint = (
                f"write `{longer[0]}`, in backticks"
                if longer
                else nearest(name, self.columns)
                or f"columns are {', '.join(list(self.columns)[:20])}"
            )
            self._wrong(node, f"unknown column {got(name)}", hint)
        self.used.add(name)
        column = self.columns[name]
        value: Numbers = operator.itemgetter(name)
        return _Operand(
            column.operand,
            value,
            categories=column.labels,
            ordered=column.ordered,
            name=name,
            columns=self._read(node, name, column) if column.ranged else frozenset(),
        )

    def _read(self, node: ast.Name, name: str, column: Column) -> frozenset[str]:
        """The modelled columns that a column of numbers or dates stands for: itself, or those that
        it is computed from.
        """
        text = derived_of(column)
        if text is None:
            return frozenset({name})
        if not self.derived:
            self._wrong(
                node,
                f"column {name!r} is computed from others itself, when rows are written",
                f"write ({text}) in its place",
            )
        computed, _ = calculation(text, self.columns)
        inputs = frozenset(computed.columns) if computed else frozenset({name})
        self.used |= inputs
        return inputs


def _said(operand: _Operand) -> str:
    kinds = {
        "number": "a number",
        "date": "a date",
        "text": "a category",
        "literal": f"the text {got(operand.literal)}",
    }
    return (
        f"column {operand.name!r}" if operand.name and not operand.constant else kinds[operand.kind]
    )
