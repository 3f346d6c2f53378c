"""Public cells for texts of unknown columns: how a text is written, and how large it is.

Before a column has a type, each of its texts falls in exactly one cell of each of two public lists.
`FORMS` says how it is written: one of the usual words for a missing value, a whole number, a number
with so many digits after the point, a day, an instant, or another text. `SIZES` says where it lies:
zero, the sign and the size of a number, the year of a date. `synthdp init --private` counts cells
under differential privacy and reads types and bounds off the noisy counts.

Both are functions of one text (`form_of`, `size_of`), made before any row is read, and read as the
columns that are then drafted will be read (`synthdp.data.column_domain`).
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType

from synthdp.data.column_domain import ISO, ColumnDomain, number_of, seconds_of
from synthdp.data.domain import Domain
from synthdp.spec.model import CONTROL, starts_formula

MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "?", ".", "-")
WHOLE, OTHER_WHOLE, LEADING_ZERO, TEXT = (
    "whole number",
    "whole number, as 1.0 or +1",
    "digits after a leading zero",
    "another text",
)
DIGITS = tuple(f"{d} digits after the point" for d in range(1, 13))  # more count as twelve
TIMES = ("day", "hour", "minute", "second")
FORMS = (
    *(f"missing: {word}" for word in MISSING_WORDS),
    WHOLE,
    OTHER_WHOLE,
    LEADING_ZERO,
    *DIGITS,
    *TIMES,
    TEXT,
)
PLAIN_WHOLE, ZERO_FIRST = re.compile(r"0|-?[1-9][0-9]*"), re.compile(r"[+-]?0[0-9]+")

_SWAPPED = str.maketrans(".,", ",.")
_STEPS = "1 1.1 1.2 1.3 1.4 1.5 1.6 1.8 2 2.2 2.5 2.8 3 3.5 4 4.5 5 6 7 8 9"
_ROUND = {float(Decimal(step).scaleb(k)) for k in range(-6, 16) for step in _STEPS.split()}
_MAGNITUDES = (0.0, *sorted(_ROUND | set(map(float, (*range(1, 102), *range(1900, 2051))))))
"""Left ends of the cells of positive numbers, and the end of the last one: round numbers, 21 in
each power of ten, and each whole number up to 100 and from 1900 to 2050, which are often codes,
counts, ages or years.
"""
BEYOND = _MAGNITUDES[-1]  # numbers from here on are read as texts: whole ones are not exact there
YEARS = (1, 1000, 1500, 1600, 1700, 1800, 1850, *range(1900, 2051), 2100, 2200, 3000, 10_000)


@dataclass(frozen=True)
class Cell:
    """Numbers from `lower` to `upper`: without the end that is further from zero."""

    lower: float
    upper: float

    @property
    def wholes(self) -> tuple[int, int]:
        """The least and the greatest whole number in it; the first is greater where there is none.

        >>> Cell(1.0, 1.1).wholes, Cell(-120.0, -110.0).wholes, Cell(0.5, 0.6).wholes
        ((1, 1), (-119, -110), (1, 0))
        """
        if self.lower == self.upper:
            return int(self.lower), int(self.lower)
        if self.lower >= 0:
            return math.ceil(self.lower) or 1, math.ceil(self.upper) - 1
        return math.floor(self.lower) + 1, math.floor(self.upper) or -1

    @property
    def single(self) -> int | None:
        first, last = self.wholes
        return first if first == last else None


_POSITIVE = [Cell(a, b) for a, b in itertools.pairwise(_MAGNITUDES)]
NUMBERS = (*(Cell(-c.upper, -c.lower) for c in reversed(_POSITIVE)), Cell(0.0, 0.0), *_POSITIVE)
"""The cells of numbers, from lowest to highest."""
ZERO = len(_MAGNITUDES) - 1  # place of zero among `NUMBERS`
NO_SIZE, FIRST_NUMBER = 0, 1  # places among sizes: what is neither a number nor a date comes first
FIRST_YEAR = FIRST_NUMBER + len(NUMBERS)
SIZES = (
    "no number and no date",
    *(f"{c.lower:g} to {c.upper:g}" for c in NUMBERS),
    *(f"year {a} to {b - 1}" for a, b in itertools.pairwise(YEARS)),
)
_PLACE: Mapping[str, int] = MappingProxyType({form: i for i, form in enumerate(FORMS)})
_MISSING: Mapping[str, int] = MappingProxyType({word: i for i, word in enumerate(MISSING_WORDS)})


def form_of(text: str) -> int:
    """The place of a text among `FORMS`.

    >>> [FORMS[form_of(t)] for t in ("12", "1.0", "2.50", "007", "2024-12-31", "?")]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['whole number', 'whole number, as 1.0 or +1', '1 digits after the point',
     'digits after a leading zero', 'day', 'missing: ?']
    """
    if text in _MISSING:
        return _MISSING[text]
    number = _number(text)
    if number is not None:
        return _PLACE[_form_of_number(text, number)]
    found = ISO.fullmatch(text.strip())
    if found is None or math.isnan(seconds_of(text)):
        return _PLACE[TEXT]
    instant = datetime.fromisoformat(found[1])
    timed = "hour" if len(found[1]) > len("2024-12-31") else "day"
    return _PLACE["second" if instant.second else "minute" if instant.minute else timed]


def pointed(text: str) -> str:
    """A text of a file whose decimals stand behind commas, as a column of numbers reads it.

    >>> pointed("1200,5"), pointed("1.200"), pointed("a, b"), pointed(".")
    ('1200.5', '1,200', 'a, b', '.')
    """
    swapped = text.translate(_SWAPPED)
    numbers = text not in _MISSING and any(not math.isnan(number_of(t)) for t in (text, swapped))
    return swapped if numbers else text


def size_of(text: str) -> int:
    """The place of a text among `SIZES`.

    >>> [SIZES[size_of(t)] for t in ("42", "-0.25", "1250", "2024-12-31", "blue")]
    ['42 to 43', '-0.28 to -0.25', '1200 to 1300', 'year 2024 to 2024', 'no number and no date']
    """
    if text in _MISSING:
        return NO_SIZE
    number = _number(text)
    if number is not None:
        steps = 0 if number == 0 else bisect.bisect_right(_MAGNITUDES, abs(number))
        return FIRST_NUMBER + ZERO + (steps if number > 0 else -steps)
    seconds = seconds_of(text)
    if math.isnan(seconds):
        return NO_SIZE
    return FIRST_YEAR + bisect.bisect_right(YEARS, int(text.strip()[:4])) - 1


def key_of(text: str) -> str | None:
    """A text as a category may have it; None where no category may be so, and for missing words."""
    allowed = len(text) <= 200 and not starts_formula(text) and not CONTROL.search(text)
    return text if allowed and text not in _MISSING else None


def whole_of(text: str) -> str | None:
    """The whole number that a text is, in plain digits; None for all else.

    >>> whole_of("+7.0"), whole_of("7.5")
    ('7', None)
    """
    number = _number(text)
    return None if number is None or not number.is_integer() else str(int(number))


def cells_domain(columns: int) -> Domain:
    """The forms and the sizes of so many columns as one domain, two levels lists for each column:
    `form i` and `size i`.
    """
    return Domain(
        tuple(
            ColumnDomain(f"{what} {i}", "categorical", labels, False)
            for i in range(columns)
            for what, labels in (("form", FORMS), ("size", SIZES))
        )
    )


def _number(text: str) -> float | None:
    """The number that a column of numbers reads in a text; None where it reads none."""
    number = number_of(text)
    return number if abs(number) < BEYOND else None  # NaN is not


def _form_of_number(text: str, number: float) -> str:
    stripped = text.strip()
    if ZERO_FIRST.fullmatch(stripped):
        return LEADING_ZERO
    if number.is_integer():
        return WHOLE if PLAIN_WHOLE.fullmatch(text) else OTHER_WHOLE
    try:
        exponent = Decimal(stripped).normalize().as_tuple().exponent
    except InvalidOperation:  # what `float` reads and `Decimal` does not
        return TEXT
    digits = -exponent if isinstance(exponent, int) else len(DIGITS)
    return DIGITS[min(max(digits, 1), len(DIGITS)) - 1]
