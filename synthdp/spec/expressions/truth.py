"""Three-valued logic on whole columns: a row is surely true, surely false, or unknown.

Columns are float arrays with NaN where a value is missing. Nothing here needs a numbers library:
arrays bring their own operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

Values = Mapping[
    str, Any
]  # columns as float arrays: NaN where missing, categories by position, dates in days since 1970
Numbers = Callable[[Values], Any]  # a float array `[rows]`, or one float for all rows
Truth = Callable[
    [Values], tuple[Any, Any]
]  # two boolean arrays `[rows]`: surely true, surely false


def every(parts: list[Truth]) -> Truth:
    """Whether all parts hold."""

    def truth(values: Values) -> tuple[Any, Any]:
        truths = [p(values) for p in parts]
        return reduce(operator.and_, (t for t, _ in truths)), reduce(
            operator.or_, (f for _, f in truths)
        )

    return truth


def some(parts: list[Truth]) -> Truth:
    """Whether any part holds."""
    return negation(every([negation(p) for p in parts]))


def negation(part: Truth) -> Truth:
    """Whether a part does not hold."""
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


def negative(operand: Numbers) -> Numbers:
    """Minus an operand."""
    return lambda values: -operand(values)


def arithmetic(calculate: Callable[[Any, Any], Any], left: Numbers, right: Numbers) -> Numbers:
    """Two operands put together."""
    return lambda values: calculate(left(values), right(values))
