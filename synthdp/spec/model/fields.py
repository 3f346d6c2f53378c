"""The parts that all sections share: the base model, and the types of single values.

The types read values as YAML writes them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from unicodedata import category, normalize

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class SpecLimits:
    """The most that a spec may hold.

    `levels` of all columns together, the width of the one-hot row that the model reads; `decimals`
    of a number; `arrows`; `parents` that mode learn gives a column; `coefficients` of a regression.
    """

    levels: int = 65_536
    decimals: int = 12
    arrows: int = 100_000
    parents: int = 16
    coefficients: int = 30


MOST = SpecLimits()
# A spreadsheet may run a cell that begins with one of these as a formula; some take the full-width
# forms for them.
FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Besides control characters: line separators, byte order marks, spaces without width, and what
# turns the reading direction of what follows. Joiners (U+200C and U+200D) are letters' own business
# in some scripts; see `alike`.
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|~[^/]*/|.*::?//")  # "C:/" is a drive


class Model(BaseModel):
    """Base of every part of the contract: frozen, and unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, allow_inf_nan=False
    )


def key(description: str, example: Any, default: Any = ..., **bounds: Any) -> Any:
    """A key of a section: what it is for, a value that it may have, and its default.

    Without a default the key is required. `bounds` are those of pydantic's `Field`.
    """
    return Field(default=default, description=description, examples=[example], **bounds)


def wrong(*problems: tuple[str, str]) -> PydanticCustomError:
    """Several mistakes of one model at once, as (field, message); field "" is the model itself."""
    return PydanticCustomError(
        "wrong", "{text}", {"text": "; ".join(m for _, m in problems), "problems": problems}
    )


def starts_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell of this text as a formula; a number is none.

    Spreadsheets that separate fields by semicolons count too.
    """
    return any(
        part.startswith(FORMULA_START) and not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", part)
        for part in text.split(";")
    )


def _category(value: str) -> str:
    if starts_formula(value):
        raise ValueError(
            f"category {value!r} starts like a spreadsheet formula; give it another text here, and"
            f" map the source's to that with `values: {{{json.dumps(value)}: ...}}`"
        )
    if CONTROL.search(value):
        raise ValueError(f"category {value!r} holds a control character or a line break; rename it")
    return value


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if twice:
        raise ValueError(f"listed more than once: {', '.join(twice)}")
    return values


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Texts that differ visibly, in more than unseen characters or how accents are put together."""
    pair = alike(unique(values))
    if pair is not None:
        raise ValueError(
            f"{pair[0]!a} and {pair[1]!a} look the same and are not; keep one spelling"
        )
    return values


def alike(texts: Iterable[str]) -> tuple[str, str] | None:
    """The first two different texts that are one in NFC, Unicode's form, without format signs."""
    seen: dict[str, str] = {}
    for text in texts:
        plain = text
        if not text.isascii():
            plain = normalize("NFC", "".join(c for c in text if category(c) != "Cf"))
        if seen.setdefault(plain, text) != text:
            return seen[plain], text
    return None


def as_text(value: Any) -> Any:
    """A category or a name as text. YAML writes codes such as 0, 1 and true without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _instant(value: Any) -> Any:
    """Only ISO dates and times: pydantic would read a bare number as seconds since 1970."""
    iso = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value)
    if not isinstance(value, datetime) and not iso:
        message = "expected a date such as 2024-12-31, or 2024-12-31T23:59:59"
        raise ValueError(f"{message}; got {value!r}")
    return value


def _without_zone(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise ValueError("times are without time zone: leave out the Z or the +hh:mm")
    return value


def refused(values: Mapping[str, str]) -> BeforeValidator:
    """Refuse some values, each for the reason beside it.

    >>> refused({"charged": "charged is called private now: write private"}).func("private")
    'private'
    """

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in values:
            raise ValueError(values[value])
        return value

    return BeforeValidator(check)


def renamed(names: Mapping[str, str]) -> BeforeValidator:
    """Refuse old names of a value, each with the name that it has now."""
    return refused({old: f"{old} is called {new} now: write {new}" for old, new in names.items()})


def _without_null(value: str) -> str:
    if "\0" in value:
        raise ValueError("a null character: no database holds one; delete it")
    return value


_WHOLE = BeforeValidator(lambda v: int(v) if isinstance(v, float) and v.is_integer() else v)
Whole = Annotated[int, Strict(), _WHOLE]
Real = Annotated[
    float, Strict(), BeforeValidator(lambda v: float(v) if isinstance(v, float) else v)
]
Flag = Annotated[bool, Strict()]
Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    AfterValidator(_without_zone),
    WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}),
]
AS_TEXT = BeforeValidator(as_text, json_schema_input_type=str | int | float | bool)
Category = Annotated[str, AS_TEXT, AfterValidator(_category)]
SourceText = Annotated[str, Field(max_length=1000), AS_TEXT, AfterValidator(_without_null)]
"""A text as it stands in the source: it is compared, and published nowhere but in the spec."""
LIST_FILE = {
    "type": "object",
    "properties": {"file": {"type": "string"}},
    "required": ["file"],
    "additionalProperties": False,
}


class OrFile:
    """A list that `{file: ...}` may stand for in the JSON schema; the loader replaces it first."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [handler(schema), LIST_FILE]}


Categories = Annotated[
    tuple[Category, ...], Field(min_length=1, max_length=4096), AfterValidator(distinct), OrFile()
]
FewCodes = Annotated[tuple[SourceText, ...], Field(max_length=64), AfterValidator(distinct)]
ValueMap = Annotated[dict[SourceText, Category], Field(max_length=4096)]
Name = Annotated[str, Field(min_length=1, max_length=128), AS_TEXT]
Names = Annotated[tuple[Name, ...], AfterValidator(distinct)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
