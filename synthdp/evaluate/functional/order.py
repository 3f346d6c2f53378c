"""Pairs of numbers or dates of which one is never the smaller."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from synthdp.evaluate.functional.claims import OrderClaim
from synthdp.evaluate.functional.values import (
    MIN_EVIDENCE,
    MIN_ROWS,
    Floats,
    Values,
    known_in,
)
from synthdp.spec.expressions.names import quoted
from synthdp.spec.model import Column, Ranged

FIRST_ROWS = 500
"""Rows that are compared first."""
MIN_TURNED = 0.05
"""Least share of pairs of values of different rows that are the other way round."""
ALIKE = 0.5
"""Least overlap of declared ranges, as a share of both together, to be worth comparing."""
SHUFFLED = 2000
"""Most rows from which that share is computed."""


def order_claims(
    columns: Mapping[str, Column], values: Values, *, related: Collection[frozenset[str]]
) -> list[OrderClaim]:
    """Orders that hold in all rows, without those that follow from two others.

    `related` are sets of columns whose order follows from something else.
    """
    above: dict[str, set[str]] = {name: set() for name in columns}
    for a, b in itertools.combinations(columns, 2):
        if not comparable(columns[a], columns[b]) or any({a, b} <= group for group in related):
            continue
        upper = _upper(values, a, b)
        if upper is not None:
            above[b if upper == a else a].add(upper)
    return [
        OrderClaim((low, high), f"{quoted(low)} <= {quoted(high)}")
        for low, highs in above.items()
        for high in sorted(highs, key=list(columns).index)
        if not any(high in above[between] for between in highs)
    ]


def comparable(one: Column, other: Column) -> bool:
    """Whether two columns measure the same thing, as far as the spec says.

    Both are dates or both numbers; of numbers the units are the same, or else the ranges alike.
    """
    if not (isinstance(one, Ranged) and isinstance(other, Ranged)) or one.operand != other.operand:
        return False
    if one.operand == "number" and one.unit and other.unit:
        return one.unit == other.unit
    low, high = (
        [float(c.number(v)) * (c.step_seconds or 1) for c, v in ends]
        for ends in (
            ((one, one.lower), (other, other.lower)),
            ((one, one.upper), (other, other.upper)),
        )
    )
    return min(high) - max(low) >= ALIKE * (max(high) - min(low))


def _upper(values: Values, a: str, b: str) -> str | None:
    """Which of two columns is never the smaller, where another order would be plausible."""
    x, y = values[a], values[b]
    for rows in (slice(FIRST_ROWS), slice(None)):
        less, more = bool((x[rows] < y[rows]).any()), bool((x[rows] > y[rows]).any())
        if less and more:
            return None
    if less == more:  # they are equal, which is a relation of another kind
        return None
    known = known_in(values, (a, b), len(x))
    high, low = (x[known], y[known]) if more else (y[known], x[known])
    if len(high) < MIN_ROWS:
        return None
    turned = _turned(high[:SHUFFLED], low[:SHUFFLED])
    # If rows were no more than values put side by side, all of them would have this order with a
    # probability of at most (1 - turned)^rows.
    likely = turned >= MIN_TURNED and -len(high) * np.log1p(-min(turned, 0.99)) >= MIN_EVIDENCE
    return (a if more else b) if likely else None


def _turned(high: Floats, low: Floats) -> float:
    """Share of all pairs of one value of each column in which the usual order is turned."""
    return float(np.searchsorted(np.sort(high), low, side="left").mean() / len(high))
