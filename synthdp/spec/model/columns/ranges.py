"""Columns of numbers and dates in a declared range, cut into bins; single values may be spikes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Unit
from pydantic import AfterValidator, Field, model_validator

from synthdp.spec.model.columns.base import CODEBOOK, ColumnBase, Operand, Question
from synthdp.spec.model.fields import Instant, Real, Whole, unique, wrong

RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
EPOCH = datetime(1970, 1, 1)
MAX_DECIMALS = 12
MAX_EDGES = 1025  # whole numbers from 0 to 1,024, a bin each
MAX_WHOLE = 2**53  # whole numbers up to here are exact as floating point

Derived = Annotated[str, Field(min_length=1, max_length=1000)] | None
DERIVED = Field(
    default=None,
    description=(
        "formula of its values, from other columns; the column is not read or modelled, and costs"
        " nothing"
    ),
    examples=["before + change"],
)


_EDGES = "take them (yes), leave bins to the engine (no), or give left ends, parted by commas?"


def _questions(bound: Any, *, common: str, bins: bool) -> tuple[Question, ...]:
    """The questions of a range whose values are of type `bound`, `common` being one of them."""
    spikes = "values that are very common by themselves, such as"
    asked = (
        Question("lower", f"lower bound ({CODEBOOK})?", bound),
        Question("upper", f"upper bound ({CODEBOOK})?", bound),
        Question(
            "spikes",
            f"{spikes} {common}, parted by commas (none: empty)?",
            tuple[bound, ...],
            many=True,
            default="",
        ),
    )
    if not bins:
        return asked
    return (
        *asked,
        Question("unit", "unit, e.g. years (none: empty)?", default=""),
        Question("edges", _EDGES, tuple[bound, ...], many=True, default="no"),
    )


BINS = (
    "number of equal-width bins; without `bins` and `edges`, mode predict without training"
    " chooses 64 to 1,024 fine ones"
)


class _Range:
    """What numbers and dates have in common beside their fields."""

    ranged: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    continuous: ClassVar[bool] = False
    operand: ClassVar[Operand] = "number"
    sketch: ClassVar[tuple[str, ...]] = (
        f"lower: 0, upper: 120   {CODEBOOK}",
        "edges: [0, 18, 65]   left ends of the bins; left out, the engine chooses fine ones",
        "spikes: [0]   values that are very common by themselves",
    )

    @property
    def level_count(self) -> int:
        """Number of levels: spikes, bins, and the missing one."""
        column: Any = self
        bins = len(column.edges) if column.edges is not None else column.bins
        return int(len(column.spikes) + bins + column.missing)

    @property
    def step_seconds(self) -> int | None:
        """Seconds between two neighbouring instants; None for numbers."""
        return None

    def value(self, number: float) -> Any:
        """A value from the column's numeric scale: what `number` makes of it."""
        return number if self.continuous else int(number)

    def number(self, value: Any) -> float:
        """A bound, edge or spike on the column's numeric scale.

        An instant is a number of whole steps since 1970-01-01.
        """
        return float(value)

    def holds(self, code: str) -> bool:
        """Whether a code of the source lies within the bounds."""
        column: Any = self
        read: Any = datetime.fromisoformat if self.operand == "date" else float
        try:
            number = self.number(read(code))
        except (ValueError, TypeError):  # a text; an instant with a zone
            return False
        return bool(self.number(column.lower) <= number <= self.number(column.upper))


class Integer(_Range, ColumnBase):
    """Whole numbers in [lower, upper].

    Bins are half-open from each edge to the next; the last ends at `upper`.
    """

    questions: ClassVar = _questions(Whole, common="0", bins=True)

    type: Literal["integer"] = Field(description="whole numbers", examples=["integer"])
    lower: Whole = Field(
        description="the least value allowed: public knowledge, not the least in the table",
        examples=[16],
    )
    upper: Whole = Field(description="the greatest value allowed", examples=[100])
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description=BINS, examples=[16]
    )
    edges: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=MAX_EDGES)] | None = Field(
        default=None,
        description="left edges of the bins, instead of `bins`; the first is `lower`",
        examples=[[0, 1, 5, 20]],
    )
    spikes: Annotated[tuple[Whole, ...], Field(max_length=64), AfterValidator(unique)] = Field(
        default=(),
        description="values with a level of their own; zero inflation is [0]",
        examples=[[0]],
    )

    derived: Derived = DERIVED

    @model_validator(mode="after")
    def _ranges(self) -> Integer:
        return _check_range(self)

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        """Bounds that floating point does not hold, too."""
        yield from super().mistakes()
        for field in ("lower", "upper"):
            if abs(getattr(self, field)) > MAX_WHOLE:
                yield (
                    field,
                    "beyond 2^53, where whole numbers are no longer exact",
                    "use a narrower range, or rescale the column",
                )


class Number(_Range, ColumnBase):
    """Real numbers in [lower, upper], written with `decimals` digits."""

    continuous: ClassVar[bool] = True
    questions: ClassVar = _questions(Real, common="0", bins=True)

    type: Literal["number"] = Field(description="real numbers", examples=["number"])
    lower: Real = Field(
        description="the least value allowed: public knowledge, not the least in the table",
        examples=[0.0],
    )
    upper: Real = Field(description="the greatest value allowed", examples=[4.6])
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description=BINS, examples=[20]
    )
    edges: Annotated[tuple[Real, ...], Field(min_length=1, max_length=MAX_EDGES)] | None = Field(
        default=None,
        description="left edges of the bins, instead of `bins`; the first is `lower`",
        examples=[[0.0, 0.5, 2.0]],
    )
    spikes: Annotated[tuple[Real, ...], Field(max_length=64), AfterValidator(unique)] = Field(
        default=(),
        description="values with a level of their own; zero inflation is [0]",
        examples=[[0.0]],
    )
    decimals: Annotated[Whole, Field(ge=0, le=MAX_DECIMALS), Unit("digits")] = Field(
        default=4, description="digits written after the point", examples=[2]
    )

    derived: Derived = DERIVED

    @model_validator(mode="after")
    def _ranges(self) -> Number:
        return _check_range(self)


class Datetime(_Range, ColumnBase):
    """Points in time in [lower, upper], without time zone, in whole `resolution` steps.

    Texts are days in full, perhaps with a time: 2024-12-31, 2024-12-31T23:59 or 2024-12-31
    23:59:59.5.
    """

    operand: ClassVar[Operand] = "date"
    questions: ClassVar = _questions(Instant, common="1900-01-01", bins=False)

    type: Literal["datetime"] = Field(description="dates and times", examples=["datetime"])
    lower: Instant = Field(
        description="the least value allowed: public knowledge, not the least in the table",
        examples=["2001-01-01"],
    )
    upper: Instant = Field(
        description="the greatest value allowed", examples=["2020-12-31T23:00:00"]
    )
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description=BINS, examples=[20]
    )
    edges: Annotated[tuple[Instant, ...], Field(min_length=1, max_length=MAX_EDGES)] | None = Field(
        default=None,
        description="left edges of the bins, instead of `bins`; the first is `lower`",
        examples=[["2001-01-01", "2010-01-01"]],
    )
    spikes: Annotated[tuple[Instant, ...], Field(max_length=64), AfterValidator(unique)] = Field(
        default=(), description="instants with a level of their own", examples=[["2001-01-01"]]
    )
    resolution: Literal["day", "hour", "minute", "second"] = Field(
        default="day", description="step in which instants are written", examples=["hour"]
    )

    derived: Derived = DERIVED

    @model_validator(mode="after")
    def _ranges(self) -> Datetime:
        return _check_range(self)

    @property
    def step_seconds(self) -> int:
        """Seconds of one step of the resolution."""
        return RESOLUTION_SECONDS[self.resolution]

    def value(self, number: float) -> Any:
        """The instant of so many steps since 1970-01-01."""
        return EPOCH + timedelta(seconds=self.step_seconds) * number

    def number(self, value: Any) -> float:
        """An instant in whole steps since 1970-01-01."""
        return float((value - EPOCH) // timedelta(seconds=self.step_seconds))


Ranged = Integer | Number | Datetime
_Ranged = TypeVar("_Ranged", Integer, Number, Datetime)


def _check_range(column: _Ranged) -> _Ranged:
    lower, upper = column.lower, column.upper
    if not lower < upper:
        raise wrong(
            (
                "lower",
                (
                    f"lower {_shown(lower)} must be below upper {_shown(upper)}; a column of one"
                    " value is categorical, with one category"
                ),
            )
        )
    if isinstance(column, Number) and upper - lower > 1e300:
        raise wrong(
            (
                "upper",
                (
                    "the range is wider than 1e300, beyond what bins can be computed on; rescale"
                    " the column"
                ),
            )
        )
    problems = [*_spike_problems(column), *_edge_problems(column), *_decimals_problems(column)]
    if problems:
        raise wrong(*problems)
    return column


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _spike_problems(column: _Ranged) -> Iterator[tuple[str, str]]:
    outside = [s for s in column.spikes if not column.lower <= s <= column.upper]
    if outside:
        yield (
            "spikes",
            (
                f"spikes must lie in [{_shown(column.lower)}, {_shown(column.upper)}]; outside:"
                f" {', '.join(map(_shown, outside))}"
            ),
        )


def _edge_problems(column: _Ranged) -> Iterator[tuple[str, str]]:
    lower, upper, edges = column.lower, column.upper, column.edges
    if edges is None:
        return
    if "bins" in column.model_fields_set:
        yield "bins", "give either bins or edges, not both"
    falls = [f"{_shown(b)} after {_shown(a)}" for a, b in itertools.pairwise(edges) if a >= b]
    if falls:
        yield "edges", f"edges must increase strictly; got {', '.join(falls)}"
    elif not (lower <= edges[0] and edges[-1] <= upper):
        yield (
            "edges",
            (
                f"edges must lie in [{_shown(lower)}, {_shown(upper)}]; got {_shown(edges[0])} to"
                f" {_shown(edges[-1])}"
            ),
        )
    elif edges[0] != lower and lower not in column.spikes:
        yield (
            "edges",
            f"the first edge must be the lower bound {_shown(lower)}; got {_shown(edges[0])}",
        )


def _decimals_problems(column: _Ranged) -> Iterator[tuple[str, str]]:
    """The written number rises with the value.

    Where both bounds are written alike, every number between them is.
    """
    bins = len(column.edges) if column.edges is not None else column.bins
    if (
        not isinstance(column, Number)
        or bins == 1
        or round(column.lower, column.decimals) != round(column.upper, column.decimals)
    ):
        return
    width = (column.upper - column.lower) / bins
    needed = next((d for d in range(column.decimals, MAX_DECIMALS + 1) if 10.0**-d <= width), None)
    yield (
        "decimals",
        f"with {column.decimals} digits after the point all values from {_shown(column.lower)} to"
        f" {_shown(column.upper)} are written alike, so that no bin can be told from another; "
        + (f"use {needed} digits, or " if needed else "")
        + "rescale the column",
    )
