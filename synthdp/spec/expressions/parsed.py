"""What `expressions` makes of a text: something true or false of each row, or a value of it; or the
mistakes in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from synthdp.spec.expressions.truth import Numbers, Truth, Values


@dataclass(frozen=True)
class Equation:
    """A part of an expression that says of two or more columns of numbers or dates that what is
    computed from them is equal.
    """

    columns: frozenset[str]
    truth: Truth


@dataclass(frozen=True)
class Expression:
    """A checked expression: its text, the columns it reads (in their order in the spec), its truth,
    and the equations in it.
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
    """What a derived column is computed from: the columns it reads, its value (dates in days), and
    whether it divides by what may be 0.
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
