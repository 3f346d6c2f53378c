"""The results of reading an expression: a truth value or a number for each row, or the mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from synthdp.spec.expressions.truth import Numbers, Truth, Values


@dataclass(frozen=True)
class Equation:
    """A part of an expression that states an equality between calculations.

    The calculations read two or more columns of numbers or dates.
    """

    columns: frozenset[str]
    truth: Truth


@dataclass(frozen=True)
class Expression:
    """A checked expression: its text, the columns it reads, its truth, and the equations in it.

    The columns are in their order in the spec.
    """

    text: str
    columns: tuple[str, ...]
    truth: Truth
    equations: tuple[Equation, ...] = ()

    def violated(self, values: Values) -> Any:
        """Which rows make it false, shape `[rows]`; `values` holds `columns`."""
        return self.truth(values)[1]


@dataclass(frozen=True)
class Calculation:
    """The calculation of a derived column: the columns it reads, and its value (dates in days).

    `divides` says whether a divisor may be 0.
    """

    columns: tuple[str, ...]
    value: Numbers
    kind: Literal["number", "date"]
    divides: bool


@dataclass(frozen=True)
class ExpressionMistake:
    """What is wrong, at a character of the text counted from 1."""

    at: int
    message: str
    hint: str | None = None
