"""What conditions compare columns with: constants, or something that is calculated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise

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
