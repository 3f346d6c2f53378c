"""`columns`: what each column may hold. Public knowledge, never fitted to rows.

A type is a model: its fields are the keys in YAML, and what is declared here says how the type
behaves in expressions, checks and the questions of `synthdp init`. How values of the type are read
and written is its `ColumnKind` (`synthdp.data.kinds`). A new one is a model here and its name in
`Column`, and a `ColumnKind` (docs/extending.md, "Add a column type").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from annotated_types import Unit
from pydantic import AfterValidator, Field, model_validator

from synthdp.spec.model.fields import (
    AS_TEXT,
    CONTROL,
    MOST,
    Categories,
    Category,
    FewCodes,
    Flag,
    Instant,
    Model,
    Name,
    OrFile,
    Real,
    ValueMap,
    Whole,
    alike,
    distinct,
    key,
    starts_formula,
    unique,
    wrong,
)

CODEBOOK = "from the codebook, never from the rows"

Operand = Literal["text", "number", "date"]


@dataclass(frozen=True)
class Question:
    """What `synthdp init` asks for one field; of a column, `text` follows the column's name.

    `answer` is the type that the answer must have, None for text. With `many` the answer is a list,
    parted by commas, of texts or else of plain YAML values. `allowed` are all answers, where there
    are only some; one is `needed` where nothing else refuses an empty one. An empty answer is the
    `default`; where that is empty too, the field is left out.
    """

    field: str
    text: str
    answer: Any = None
    many: bool = False
    texts: bool = False
    default: str | None = None
    allowed: tuple[str, ...] = ()
    needed: bool = False


class ColumnBase(Model):
    """What every column has."""

    ranged: ClassVar[bool] = False
    """Whether values are numbers or instants rather than categories."""
    ordered: ClassVar[bool] = False
    """Whether the order of the levels means something."""
    continuous: ClassVar[bool] = False
    """Whether values are real numbers, which lie between any two others."""
    truth: ClassVar[bool] = False
    """Whether the column may stand by itself where something true or false is needed."""
    operand: ClassVar[Operand] = "text"
    """What the column is in expressions."""
    questions: ClassVar[tuple[Question, ...]] = ()
    """What `synthdp init` asks, in this order; whether values may be missing is asked after it."""
    sketch: ClassVar[tuple[str, ...]] = ()
    """The type's own keys with a word on each, for the head of a draft; one line each."""

    missing: Flag = key("whether values may be missing", True, default=False)
    missing_codes: FewCodes = key(
        "codes for a missing value",
        [-9, 999],
        default=(),
    )
    description: str | None = key("what the column holds", "outpatient visits", default=None)
    unit: str | None = key("of its values", "years", default=None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, in the order of their levels; empty for numbers and dates."""
        return ()

    @property
    def level_count(self) -> int:
        """Number of levels, the missing one included."""
        return len(self.labels) + self.missing

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every text that stands for a value, and its place inside the column's entry."""
        return iter(())

    def holds(self, code: str) -> bool:
        """Whether a code of the source is a value of the column."""
        return code in self.labels

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        """Mistakes that are told with a hint, as (field, message, hint)."""
        if self.missing_codes and not self.missing:
            message = "codes of missing values, and no value may be missing"
            yield "missing_codes", message, "set missing: true"
        if held := [code for code in self.missing_codes if self.holds(code)]:
            message = f"a value of the column cannot also stand for a missing one: {held[0]}"
            yield "missing_codes", message, "take it out here, or out of the column's values"


# --- ranges ---

RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
EPOCH = datetime(1970, 1, 1)

Derived = Annotated[str, Field(min_length=1, max_length=1000)] | None
DERIVED = key(
    "formula of its values; it is not read",
    "before + change",
    default=None,
)


def _questions(bound: Any, *, common: str, unit: bool = True) -> tuple[Question, ...]:
    """The questions of a range whose values are of type `bound`, `common` being one of them."""
    often = f"values that are very common by themselves, such as {common}, parted by commas"
    spikes = Question("spikes", f"{often} (none: empty)?", tuple[bound, ...], many=True, default="")
    ends = (Question(end, f"{end} bound ({CODEBOOK})?", bound) for end in ("lower", "upper"))
    asked = Question("unit", "unit, e.g. years (none: empty)?", default="")
    return (*ends, spikes, *([asked] if unit else []))


LOWER = "the least value allowed: public knowledge, not the least in the table"
UPPER = "the greatest value allowed"
BINS = (
    "number of equal-width bins; without `bins` and `edges` mode predict chooses 64 to"
    " 1,024, and all modes a log scale where numbers reach 10,000 from 0"
)
EDGES = "left edges, instead of `bins`; the first is `lower`"
SPIKES = "values with a level of their own"
_V = TypeVar("_V")
Bins = Annotated[Whole, Field(ge=1, le=1024), Unit("bins")]
LeftEdges = Annotated[tuple[_V, ...], Field(min_length=1, max_length=1025)] | None
Spikes = Annotated[tuple[_V, ...], Field(max_length=64), AfterValidator(unique)]


class RangedColumn(ColumnBase):
    """What numbers and dates have in common beside their fields."""

    ranged: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    operand: ClassVar[Operand] = "number"
    sketch: ClassVar[tuple[str, ...]] = (
        f"lower: 0, upper: 120   {CODEBOOK}",
        "edges: [0, 18, 65]   left ends of the bins; left out, the engine chooses fine ones",
        "spikes: [0]   values that are very common by themselves",
    )

    @property
    def level_count(self) -> int:
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
        """A bound, edge or spike as a number; an instant is whole steps since 1970-01-01."""
        return float(value)

    def holds(self, code: str) -> bool:
        column: Any = self
        read: Any = datetime.fromisoformat if self.operand == "date" else float
        try:
            number = self.number(read(code))
        except (ValueError, TypeError):  # a text; an instant with a zone
            return False
        return bool(self.number(column.lower) <= number <= self.number(column.upper))

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        column: Any = self
        lower, upper = column.lower, column.upper
        if not lower < upper:
            message = f"lower {_shown(lower)} must be below upper {_shown(upper)}; a column of one"
            raise wrong(("lower", f"{message} value is categorical, with one category"))
        if self.continuous and not 1e-300 <= upper - lower <= 1e300:
            message = "a range is between 1e-300 and 1e300 wide, or nothing can be computed on it"
            raise wrong(("upper", f"{message}; rescale the column"))
        if problems := [*_level_problems(column), *column.digit_problems()]:
            raise wrong(*problems)
        return self

    def digit_problems(self) -> Iterator[tuple[str, str]]:
        """Mistakes in how values are written, as (field, message)."""
        return iter(())


class Integer(RangedColumn):
    """Whole numbers in [lower, upper].

    Bins are half-open from each edge to the next; the last ends at `upper`.
    """

    questions: ClassVar = _questions(Whole, common="0")

    type: Literal["integer"] = key("whole numbers", "integer")
    lower: Whole = key(LOWER, 16)
    upper: Whole = key(UPPER, 100)
    bins: Bins = key(BINS, 16, default=32)
    edges: LeftEdges[Whole] = key(EDGES, [0, 1, 5, 20], default=None)
    spikes: Spikes[Whole] = key(SPIKES, [0], default=())
    derived: Derived = DERIVED

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        yield from super().mistakes()
        for field in ("lower", "upper"):
            if abs(getattr(self, field)) > 2**53:
                yield (
                    field,
                    "beyond 2^53, where whole numbers are no longer exact",
                    "use a narrower range, or rescale the column",
                )


class Number(RangedColumn):
    """Real numbers in [lower, upper]."""

    continuous: ClassVar[bool] = True
    questions: ClassVar = _questions(Real, common="0")

    type: Literal["number"] = key("real numbers", "number")
    lower: Real = key(LOWER, 0.0)
    upper: Real = key(UPPER, 4.6)
    bins: Bins = key(BINS, 20, default=32)
    edges: LeftEdges[Real] = key(EDGES, [0.0, 0.5, 2.0], default=None)
    spikes: Spikes[Real] = key(SPIKES, [0.0], default=())
    decimals: Annotated[Whole, Field(ge=0, le=MOST.decimals), Unit("digits")] = key(
        "digits written after the point", 2, default=4
    )
    derived: Derived = DERIVED

    def digit_problems(self) -> Iterator[tuple[str, str]]:
        """All values written alike: they are where both bounds are, for what is written rises."""
        bins = self.bins if self.edges is None else len(self.edges)
        if bins == 1 or round(self.lower, self.decimals) != round(self.upper, self.decimals):
            return
        width = (self.upper - self.lower) / bins
        needed = next(
            (d for d in range(self.decimals, MOST.decimals + 1) if 10.0**-d <= width), None
        )
        yield (
            "decimals",
            f"with {self.decimals} digits after the point all values from {_shown(self.lower)} to"
            f" {_shown(self.upper)} are written alike, so that no bin can be told from another; "
            + (f"use {needed} digits, or " if needed else "")
            + "rescale the column",
        )


class Datetime(RangedColumn):
    """Points in time in [lower, upper], without time zone, in whole `resolution` steps: 2024-12-31,
    2024-12-31T23:59 or 2024-12-31 23:59:59.5.
    """

    operand: ClassVar[Operand] = "date"
    questions: ClassVar = _questions(Instant, common="1900-01-01", unit=False)

    type: Literal["datetime"] = key("dates and times", "datetime")
    lower: Instant = key(LOWER, "2001-01-01")
    upper: Instant = key(UPPER, "2020-12-31T23:00:00")
    bins: Bins = key(BINS, 20, default=32)
    edges: LeftEdges[Instant] = key(EDGES, ["2001-01-01", "2010-01-01"], default=None)
    spikes: Spikes[Instant] = key("instants with a level of their own", ["2001-01-01"], default=())
    resolution: Literal["day", "hour", "minute", "second"] = key(
        "step in which instants are written", "hour", default="day"
    )
    derived: Derived = DERIVED

    @property
    def step_seconds(self) -> int:
        return RESOLUTION_SECONDS[self.resolution]

    def value(self, number: float) -> Any:
        return EPOCH + timedelta(seconds=self.step_seconds) * number

    def number(self, value: Any) -> float:
        return float((value - EPOCH) // timedelta(seconds=self.step_seconds))


Ranged = Integer | Number | Datetime


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _level_problems(column: Any) -> Iterator[tuple[str, str]]:
    """Mistakes in spikes, bins and edges, as (field, message)."""
    lower, upper, edges = column.lower, column.upper, column.edges
    bounds = f"[{_shown(lower)}, {_shown(upper)}]"
    if outside := [_shown(s) for s in column.spikes if not lower <= s <= upper]:
        yield "spikes", f"spikes must lie in {bounds}; outside: {', '.join(outside)}"
    if edges is None:
        return
    if "bins" in column.model_fields_set:
        yield "bins", "give either bins or edges, not both"
    falls = [f"{_shown(b)} after {_shown(a)}" for a, b in itertools.pairwise(edges) if a >= b]
    if falls:
        yield "edges", f"edges must increase strictly; got {', '.join(falls)}"
    elif not (lower <= edges[0] and edges[-1] <= upper):
        found = f"{_shown(edges[0])} to {_shown(edges[-1])}"
        yield "edges", f"edges must lie in {bounds}; got {found}"
    elif edges[0] != lower and lower not in column.spikes:
        message = f"the first edge must be the lower bound {_shown(lower)}"
        yield "edges", f"{message}; got {_shown(edges[0])}"


# --- categories ---

_ALL = f"categories: [a, b]   all that can occur, {CODEBOOK}; ordinal from lowest to highest"


def _plain(label: str) -> str:
    if CONTROL.search(label):
        raise ValueError(f"label {label!a} holds a control character or a line break")
    return label


Label = Annotated[str, Field(min_length=1, max_length=500), AS_TEXT, AfterValidator(_plain)]


class Mapped(ColumnBase):
    """Categories that may have other texts in the source."""

    values: ValueMap = key(
        "texts of the source that become a category",
        {"+": "positive", "-": "negative"},
        default={},
    )
    map: Name | None = key("a map under `maps`, in place of `values`", "status", default=None)
    known_shares: Annotated[
        dict[Category, Annotated[Real, Field(ge=0, le=1)]], Unit("part of the rows")
    ] = key(
        "part of the rows that categories have, from a published source, never from the rows,"
        " for `plan`",
        {"positive": 0.1},
        default={},
    )

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        yield from super().mistakes()
        if strange := [label for label in self.known_shares if label not in self.labels]:
            message = f"a share of {strange[0]!r}, which is no category"
            yield "known_shares", message, "list it under categories, or delete its share"
        total, known = sum(self.known_shares.values()), len(self.known_shares)
        whole = known == self.level_count
        if total > 1 + 1e-6 or (whole and total < 0.99):
            message = f"shares sum to {total:g}"
            yield "known_shares", message, "they are parts of all rows: at most 1, all of them 1"


class Labelled(Mapped):
    """Categories that are codes, and what they stand for."""

    value_labels: dict[Category, Label] = key(
        "what codes among the categories stand for",
        {"0": "never", "1": "daily"},
        default={},
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(getattr(self, "categories", ()))

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from ((("categories", i), text) for i, text in enumerate(self.labels))

    def mistakes(self) -> Iterator[tuple[str, str, str]]:
        yield from super().mistakes()
        if strange := [code for code in self.value_labels if code not in self.labels]:
            message = f"a label for {strange[0]!r}, which is no category"
            yield "value_labels", message, "list the code under categories, or delete its label"


def _categories(order: str) -> tuple[Question, ...]:
    text = f'all categories, parted by commas, "..." around one that has some{order} ({CODEBOOK})?'
    return (Question("categories", text, Categories, many=True, texts=True),)


class Categorical(Labelled):
    """One of a list of texts, in no order, compared letter by letter. Typed values have one text
    each: 1, 2.5, true, 08:30:00.
    """

    questions: ClassVar = _categories("")
    sketch: ClassVar = (_ALL,)

    type: Literal["categorical"] = key("texts without an order", "categorical")
    categories: Categories = key(
        "every allowed text, or a file beside the spec that has them, one a line",
        ["Female", "Male"],
    )


class Ordinal(Labelled):
    """One of a list of texts, in order."""

    ordered: ClassVar[bool] = True
    questions: ClassVar = _categories(", from lowest to highest")
    sketch: ClassVar = (_ALL,)

    type: Literal["ordinal"] = key("texts with an order", "ordinal")
    categories: Categories = key(
        "every allowed text, from lowest to highest; or their file", ["low", "medium", "high"]
    )


class Boolean(Mapped):
    """One of two texts, or typed truth values."""

    truth: ClassVar[bool] = True
    questions: ClassVar = (
        Question("false", "which text stands for false?", Category, default="false"),
        Question("true", "which text stands for true?", Category, default="true"),
    )
    sketch: ClassVar = ("false: no, true: yes   the texts in the table",)

    type: Literal["boolean"] = key("two texts", "boolean")
    false: Category = key("the text that stands for false", "no", default="false")
    true: Category = key("the text that stands for true", "yes", default="true")

    @model_validator(mode="after")
    def _two_labels(self) -> Boolean:
        if self.false == self.true:
            raise wrong(("true", f"labels of false and true are both {self.true!r}"))
        if alike((self.false, self.true)) is not None:
            labels = f"labels of false and true, {self.false!a} and {self.true!a}"
            raise wrong(("true", f"{labels}, look the same and are not"))
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.false, self.true)

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from ((("false",), self.false), (("true",), self.true))


# --- text code ---

Codes = Annotated[
    tuple[Category, ...],
    Field(min_length=1, max_length=100_000),
    AfterValidator(distinct),
    OrFile(),
]
Prefix = Annotated[Whole, Field(ge=1, le=64), Unit("characters")]


class TextCode(ColumnBase):
    """One of a list of codes, of which the first `prefix` characters are read and released: with
    `prefix: 3` E11.9 and E11.65 are one level, E11. What begins like no code is a misfit.
    """

    questions: ClassVar = (
        Question(
            "codes", f"all codes, parted by commas ({CODEBOOK})?", Codes, many=True, texts=True
        ),
        Question(
            "prefix",
            "how many characters from the left are kept of a code, such as 3 for E11 of E11.9?",
            Prefix,
        ),
    )
    sketch: ClassVar = (
        f"codes: [E11.9, I10]   all that can occur, {CODEBOOK}",
        "prefix: 3   characters that are kept of a code",
    )

    type: Literal["text-code"] = key("codes of which the beginning is kept", "text-code")
    codes: Codes = key(
        "every allowed code, from a public list, not the table; or their file",
        ["E10.1", "E11.9", "E11.65", "I10"],
    )
    prefix: Prefix = key("characters from the left that make a level; the rest is never read", 3)

    @model_validator(mode="after")
    def _prefixes(self) -> TextCode:
        longest, labels, most = max(map(len, self.codes)), self.labels, 4096
        if self.prefix > longest:
            raise wrong(("prefix", f"got {self.prefix}, and no code has more than {longest}"))
        pair, formula = alike(labels), next(filter(starts_formula, labels), None)
        if len(labels) > most:
            message = f"codes with {len(labels):,} different prefixes; at most {most:,} are"
            raise wrong(("prefix", f"{message} levels of a column: use a shorter prefix"))
        if pair is not None:
            raise wrong(("prefix", f"{pair[0]!a} and {pair[1]!a} look the same and are not"))
        if formula is not None:
            raise wrong(("prefix", f"the level {formula!r} starts like a spreadsheet formula"))
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(code[: self.prefix] for code in self.codes))

    def holds(self, code: str) -> bool:
        return code[: self.prefix] in self.labels

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for i, code in enumerate(self.codes):
            yield from ((("codes", i), text) for text in {code: 0, code[: self.prefix]: 0})


Column = Annotated[
    Categorical | Ordinal | Boolean | Integer | Number | Datetime | TextCode,
    Field(discriminator="type"),
]

COLUMN_TYPES: dict[str, type[ColumnBase]] = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(Column)[0])
}
"""The model of each type, by the type's name in a spec."""


def derived_of(column: Column) -> str | None:
    """What a column is computed from; None for one that is modelled."""
    return getattr(column, "derived", None)


def category_types() -> str:
    """The types whose values are categories, in words."""
    *others, last = (name for name, model in COLUMN_TYPES.items() if not model.ranged)
    return f"{', '.join(others)} or {last}"
