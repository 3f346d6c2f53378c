"""`columns`: what each column may hold. Public knowledge, never fitted to rows; a column is one of
six types.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar

from annotated_types import Unit
from pydantic import AfterValidator, Field, model_validator

from synthdp.spec.model.fields import (
    Categories,
    Category,
    Flag,
    Instant,
    Model,
    Real,
    Whole,
    alike,
    unique,
    wrong,
)

RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
MAX_DECIMALS = 12


Derived = Annotated[str, Field(min_length=1, max_length=1000)] | None
DERIVED = Field(
    default=None,
    description=(
        "how the column is computed from others when rows are written; it is then not modelled,"
        " costs nothing, and is not read in the source"
    ),
    examples=["before + change"],
)


class ColumnBase(Model):
    """What every column has."""

    missing: Flag = Field(
        default=False,
        description="whether values may be missing; missing is then a state of its own",
        examples=[True],
    )
    description: str | None = Field(
        default=None,
        description="what the column holds, for the bundle's metadata",
        examples=["outpatient visits"],
    )
    unit: str | None = Field(
        default=None,
        description="unit of its values, for the bundle's metadata",
        examples=["years"],
    )


class Categorical(ColumnBase):
    """One of a list of texts, in no order, compared letter by letter; typed whole numbers are
    written without a point, truth as true and false.
    """

    type: Literal["categorical"] = Field(
        description="texts without an order", examples=["categorical"]
    )
    categories: Categories = Field(
        description="every text that is allowed; codes such as 0 and 1 are read as texts",
        examples=[["Female", "Male"]],
    )


class Unread(Categorical):
    """Stands for a column whose entry is wrong: its name may be used, and of its values nothing is
    known. In no finished spec.
    """


class Ordinal(ColumnBase):
    """One of a list of texts, in order."""

    type: Literal["ordinal"] = Field(description="texts with an order", examples=["ordinal"])
    categories: Categories = Field(
        description="from lowest to highest", examples=[["low", "medium", "high"]]
    )


class Boolean(ColumnBase):
    """One of two texts."""

    type: Literal["boolean"] = Field(description="two texts", examples=["boolean"])
    false: Category = Field(
        default="false", description="the text that stands for false", examples=["no"]
    )
    true: Category = Field(
        default="true", description="the text that stands for true", examples=["yes"]
    )

    @model_validator(mode="after")
    def _two_labels(self) -> Boolean:
        if self.false == self.true:
            raise wrong(("true", f"labels of false and true are both {self.true!r}"))
        if alike((self.false, self.true)) is not None:
            raise wrong(
                (
                    "true",
                    (
                        f"labels of false and true, {self.false!a} and {self.true!a}, look the same"
                        " and are not"
                    ),
                )
            )
        return self


class Integer(ColumnBase):
    """Whole numbers in [lower, upper]. Bins are half-open from each edge to the next; the last ends
    at `upper`.
    """

    type: Literal["integer"] = Field(description="whole numbers", examples=["integer"])
    lower: Whole = Field(
        description="the least value that is allowed: public knowledge, not the least in the table",
        examples=[16],
    )
    upper: Whole = Field(description="the greatest value that is allowed", examples=[100])
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description="number of equal-width bins", examples=[16]
    )
    edges: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=1024)] | None = Field(
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


class Number(ColumnBase):
    """Real numbers in [lower, upper], written with `decimals` digits."""

    type: Literal["number"] = Field(description="real numbers", examples=["number"])
    lower: Real = Field(
        description="the least value that is allowed: public knowledge, not the least in the table",
        examples=[0.0],
    )
    upper: Real = Field(description="the greatest value that is allowed", examples=[4.6])
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description="number of equal-width bins", examples=[20]
    )
    edges: Annotated[tuple[Real, ...], Field(min_length=1, max_length=1024)] | None = Field(
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


class Datetime(ColumnBase):
    """Points in time in [lower, upper], without time zone, in whole `resolution` steps.

    Texts are days in full, perhaps with a time: 2024-12-31, 2024-12-31T23:59 or 2024-12-31
    23:59:59.5. Anything else, such as 2024-12, is a misfit.
    """

    type: Literal["datetime"] = Field(description="dates and times", examples=["datetime"])
    lower: Instant = Field(
        description="the least value that is allowed: public knowledge, not the least in the table",
        examples=["2001-01-01"],
    )
    upper: Instant = Field(
        description="the greatest value that is allowed", examples=["2020-12-31T23:00:00"]
    )
    bins: Annotated[Whole, Field(ge=1, le=1024), Unit("bins")] = Field(
        default=32, description="number of equal-width bins", examples=[20]
    )
    edges: Annotated[tuple[Instant, ...], Field(min_length=1, max_length=1024)] | None = Field(
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


_Ranged = TypeVar("_Ranged", "Integer", "Number", "Datetime")


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
    """What is written rises with the value: where both bounds are written alike, everything between
    them is.
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


Column = Annotated[
    Categorical | Ordinal | Boolean | Integer | Number | Datetime, Field(discriminator="type")
]


def derived_of(column: Column) -> str | None:
    """What a column is computed from; None for one that is modelled."""
    return getattr(column, "derived", None)
