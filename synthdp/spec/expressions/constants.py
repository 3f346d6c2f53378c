"""What conditions compare columns with: constants, or something that is calculated."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import pairwise

from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.source_text import SourceText
from synthdp.spec.model import Column
from synthdp.spec.model.columns import EPOCH


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    return isinstance(node, ast.Constant)


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
    """Columns of numbers and dates, each with a constant that it is compared with and cannot hold.

    Constants are as written.
    """
    source = SourceText(condition.text)
    for node in ast.walk(source.parsed()):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for pair in pairwise(sides):
            names = [source.name(side) for side in pair if isinstance(side, ast.Name)]
            column = columns.get(names[0]) if names else None
            if column is not None and column.ranged:
                listed = [e for side in pair for e in getattr(side, "elts", [side])]
                texts = map(_text, filter(_constant, listed))
                yield from ((names[0], text) for text in texts if not column.holds(text))


def _text(constant: ast.expr) -> str:
    return str(ast.literal_eval(constant))
