"""One column as a finite list of levels: what marginals, graph tests and the model see of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from synthdp.errors import DataError
from synthdp.spec.model import COLUMN_TYPES, RESOLUTION_SECONDS

FloatArray = npt.NDArray[np.float64]

MISSING_LABEL = "missing"


@dataclass(frozen=True)
class ColumnDomain:
    """One column as levels `0 .. levels-1`.

    The order of levels is: the categories, or the spikes and then the bins; the missing level last.
    For ranges, `edges` are the left edges of the bins and `stop` the end of the last bin (exclusive
    for whole numbers, inclusive for real ones), on the column's numeric scale (datetimes: whole
    resolution steps since 1970-01-01). `grouped` says that bins are groups of narrower ones, chosen
    by how many rows they hold. `missing_codes` stand for a missing value in the source, and each
    first text of `sources` for the label beside it. `heaps` are numbers that were found to be
    common inside bins: a level, a number of it, and the share of the level's rows that have it.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    missing: bool
    spikes: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    stop: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    decimals: int = 0
    resolution: str = "day"
    grouped: bool = False
    missing_codes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    heaps: tuple[tuple[int, float, float], ...] = ()

    @property
    def levels(self) -> int:
        """Number of states, the missing one included."""
        return len(self.labels)

    @property
    def missing_level(self) -> int | None:
        return self.levels - 1 if self.missing else None

    @property
    def ranged(self) -> bool:
        return COLUMN_TYPES[self.type].ranged

    @property
    def ordered(self) -> bool:
        return COLUMN_TYPES[self.type].ordered

    @property
    def continuous(self) -> bool:
        return COLUMN_TYPES[self.type].continuous

    @property
    def truth(self) -> bool:
        """Whether the two levels are false and true."""
        return COLUMN_TYPES[self.type].truth

    @property
    def step_seconds(self) -> int | None:
        """Seconds of one step of a column of instants; None for all others."""
        if COLUMN_TYPES[self.type].operand != "date":
            return None
        return RESOLUTION_SECONDS[self.resolution]

    @property
    def unit(self) -> float:
        """One step of the column as expressions read it: 1 of a number, days of a date."""
        return 1.0 if self.step_seconds is None else self.step_seconds / 86_400

    @property
    def relative_widths(self) -> FloatArray | None:
        """Widths of grouped bins, of mean 1, shape `[levels]`; None where none are grouped.

        A picture of them must show them: groups hold about as many rows as each other. Spikes and
        the missing level have the width 1.
        """
        if not self.grouped:
            return None
        bins = np.diff([*self.edges, self.stop])
        ones = (np.ones(len(self.spikes)), np.ones(int(self.missing)))
        return np.concatenate([ones[0], bins / bins.mean(), ones[1]])

    @cached_property
    def centres(self) -> FloatArray:
        """A representative number for each non-missing level, shape `[levels without missing]`.

        Spikes are themselves; bins are their middle; categories their position.
        """
        if not self.ranged:
            return np.arange(len(self.labels) - self.missing, dtype=np.float64)
        edges = np.asarray(self.edges + (self.stop,))
        last = 0.0 if self.continuous else 1.0
        spikes = np.asarray(self.spikes, dtype=np.float64)
        return np.concatenate([spikes, (edges[:-1] + edges[1:] - last) / 2])


# --- one value ---

Meaning = Callable[[Any], float]
"""Reads nothing but the one value, by a column's type (`ColumnKind.meaning`).

`synthdp.data.encoding` has the proof that uses this.
"""
# A day in full, then perhaps a time to the minute, second or below; parts of a second are cut, and
# a zone is nothing that fits.
ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T"
    r" ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?)?)(?:(?<=:[0-9]{2}:[0-9]{2})\.[0-9]+)?"
)
WHOLE = re.compile(r"([+-]?)([0-9]+)(?:\.0*)?")
EPOCH = date(1970, 1, 1).toordinal()


def number_of(value: Any) -> float:
    """The nearest 64-bit number of a number, or of a text, stripped, in plain or exponent form."""
    if isinstance(value, str):
        value = value.strip()
        # Python would read 1_000, and the digits of all alphabets.
        if "_" in value or not value.isascii():
            return math.nan
    elif not isinstance(value, int | float | Decimal | np.integer | np.floating | np.bool_):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf if value > 0 else -math.inf
    except (ValueError, TypeError):
        return math.nan


def seconds_of(value: Any) -> float:
    """Whole seconds since 1970-01-01 of a day or of an instant without a zone; NaN for all else.

    Fractions of a second are cut.
    """
    try:
        if isinstance(value, str):
            found = ISO.fullmatch(value.strip())
            value = datetime.fromisoformat(found[1]) if found else None
        if isinstance(value, np.datetime64):
            return float(value.astype("datetime64[s]").astype(np.int64))
        if not isinstance(value, date) or getattr(value, "tzinfo", None) is not None:
            return math.nan
        days = (value.toordinal() - EPOCH) * 86_400.0
    except (ValueError, NotImplementedError):  # the 30th of February; a year after 9999
        return math.nan
    if not isinstance(value, datetime):
        return days
    return days + value.hour * 3_600 + value.minute * 60 + value.second


def category_text(value: Any) -> str | None:
    """The text that is compared with a category, letter by letter.

    It is a text itself; true and false; a number in plain digits, a whole one without a point and a
    decimal one without zeros at its end; or a time of day as 08:30:00.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else str(number)
    try:
        return None if isinstance(value, bytes | bytearray | memoryview) else str(value)
    except ValueError:  # a whole number of thousands of digits
        return None


def _decimal_text(value: Decimal, max_digits: int = 400) -> str | None:
    """One text for each number: Decimal("1.00") is 1, 1E+2 is 100 and 0.50 is 0.5.

    None for what is no number, and for one with more than `max_digits` before or after the point: a
    little more than a float has.
    """
    sign, digits, places = value.as_tuple()
    if isinstance(places, str):
        return None
    plain = "".join(map(str, digits)).rstrip("0")
    places += len(digits) - len(plain)
    if not plain:
        return "0"
    if len(plain) + places > max_digits or places < -max_digits:
        return None
    return format(Decimal((sign, tuple(map(int, plain)), places)), "f")


def id_text(value: Any) -> str:
    """The text by which ids are compared, and nothing else; empty where there is no id.

    White space around it does not count, and a plain whole number (digits, perhaps with a sign
    before them and zeros after a point) is that number: 1, 1.0, " 1" and 01 are one id. Bytes are
    their digits after 0x. All else counts letter by letter: A1 and a1 are two.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        value = format(Decimal(value), "f")
    elif not isinstance(value, str | bool | float | np.generic | date | UUID):
        message = "ids of a type that cannot be compared"
        raise DataError(message, hint="ids are texts or numbers; cast them in the source")
    text = (category_text(value) or "").strip()
    whole = WHOLE.fullmatch(text)
    if not whole:
        return text
    digits = whole[2].lstrip("0") or "0"
    return f"-{digits}" if whole[1] == "-" and digits != "0" else digits


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, or what pandas and NumPy have; no text is."""
    if value is None or isinstance(value, str):
        return value is None
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return type(value).__name__ in ("NaTType", "NAType")
