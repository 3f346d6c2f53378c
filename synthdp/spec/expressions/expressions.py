"""Expressions over columns, as constraints on synthetic rows, e.g. "age >= 18 or not smoker".

Only the nodes of the syntax tree named here and in `operands` mean anything. What is accepted
becomes a function of columns as arrays.

Missing values work as in SQL's CHECK: a comparison with a missing value (or a division by zero) is
unknown, and a constraint is violated only by rows for which it is false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from synthdp.spec.expressions.operands import ExpressionOperand, OperandReader, described
from synthdp.spec.expressions.parsed import (
    Equation,
    Expression,
    ExpressionMistake,
    SourceText,
    Truth,
    UnreadableExpression,
    comparison,
    each,
    every,
    is_missing,
    negation,
    some,
)
from synthdp.spec.load.wording import got, nearest
from synthdp.spec.model import Column
from synthdp.spec.model.columns.types import EPOCH

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
    source = SourceText(text)
    values = OperandReader(source, columns, derived)
    reader = _TruthReader(source, values)
    try:
        truth = reader.truth(source.parsed())
    except UnreadableExpression as wrong:
        return None, sorted(wrong.mistakes, key=lambda m: m.at)
    read = tuple(name for name in columns if name in values.used)
    return Expression(text, read, truth, tuple(reader.equations)), []


@dataclass
class _TruthReader:
    """Reads what is true or false in one text; `equations` lists the equations read so far.

    `negated` says whether the part that is being read must not hold.
    """

    source: SourceText
    values: OperandReader
    equations: list[Equation] = field(default_factory=list)
    negated: bool = False

    def truth(self, node: ast.expr) -> Truth:
        """The truth at a node of the tree."""
        match node:
            case ast.BoolOp(op=op, values=parts):
                return (every if isinstance(op, ast.And) else some)(each(self.truth, parts))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._negation(lambda: self.truth(inner))
            case ast.Compare():
                return self._chain(node)
            case ast.Name() if self._is_truth(node):
                return comparison(operator.eq, self.values.operand(node).value, lambda values: 1.0)
        self.values.operand(node)
        message = "is a value where something true or false is needed"
        self.source.refuse(node, message, "compare it with something, e.g. age >= 18")

    def _is_truth(self, node: ast.Name) -> bool:
        column = self.values.columns.get(self.source.name(node))
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
            message = "`in` and `is` cannot be part of a chain"
            self.source.refuse(node, message, "put parentheses around each comparison")
        nodes = [node.left, *node.comparators]
        sides = each(self.values.operand, nodes)
        pairs = zip(sides, node.ops, sides[1:], nodes[1:], strict=False)
        return every(
            [self._compared(a, _ORDER[type(op)], b, where=where) for a, op, b, where in pairs]
        )

    def _missing(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not (isinstance(right, ast.Name) and right.id == "missing"):
            message = "`is` can only be followed by missing or not missing"
            self.source.refuse(right, message, "to compare values write == or !=")
        operand = self.values.operand(left)
        if operand.constant:
            self.source.refuse(left, "a constant is never missing")
        missing = is_missing(operand.value)
        return missing if isinstance(op, ast.Is) else negation(missing)

    def _among(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not right.elts:
            self.source.refuse(
                right, "`in` needs a list of values", "e.g. sex in ('Female', 'Male')"
            )
        operand = self.values.operand(left)

        def equal() -> Truth:
            def same(e: ast.expr) -> Truth:
                return self._compared(operand, operator.eq, self.values.operand(e), where=e)

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
            self.source.refuse(where, message, "text stands in quotes, numbers without")
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
