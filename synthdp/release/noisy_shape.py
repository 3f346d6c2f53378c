"""What the noisy counts of a column's cells say of it: its kind, its bounds, what is missing.

All of it is post-processing of what `synthdp init --private` released (`synthdp.data.cells`).

A cell, or a run of neighbouring cells, is taken to hold rows where its noisy count is above
`Reader.surely` times its noise. That number is chosen so that, whatever the table, the probability
that any empty cell or run of the whole table passes is at most `FALSE_FINDS` (union bound over the
normal tails of all that are asked). Cells of numbers beside such runs are asked for less, `BESIDE`:
where they are empty after all, a bound is wider than it need be, by no more than the width of what
surely holds rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from synthdp.data import cells
from synthdp.data.cells import FORMS, NUMBERS, SIZES, YEARS
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
Kind = Literal["whole", "number", "date", "text", "nothing"]

FALSE_FINDS = 0.01
LIKELY_MISSING = 2.0  # times the noise: a level for missing values that are none does no harm
MANY_DIGITS_AFTER_ZERO = 0.01  # of numbers that begin with a zero, such as 02134: then no numbers
MAX_CODES = 20  # few numbers with gaps are codes, if nearly all rows have them:
CODES_LOSE, CODES_LOSE_RARE = 0.02, 0.1  # at most so much of all rows, of those without the largest
EMPTY = 2.0  # times the noise: what numbers between codes may seem to hold at most
BESIDE = 3.0  # times the noise: enough for cells beside such as surely hold rows

_FORM = {form: i for i, form in enumerate(FORMS)}
_DIGITS = slice(_FORM[cells.DIGITS[0]], _FORM[cells.DIGITS[-1]] + 1)
_NUMBERS = slice(_FORM[cells.WHOLE], _DIGITS.stop)
_TIMES = slice(_FORM[cells.TIMES[0]], _FORM[cells.TIMES[-1]] + 1)


def surely(columns: int) -> float:
    """The number of standard deviations above which a count is not noise, of so many columns."""
    asked = 2 * (len(FORMS) + len(SIZES)) * columns
    return float(norm.isf(FALSE_FINDS / asked))


@dataclass(frozen=True)
class Reader:
    """What the noisy counts of all columns say together.

    `forms` and `sizes` are the tables of each column of `names`, in order; `public_rows` is the
    number of rows where it is public. `commas` stand before decimals.
    """

    names: tuple[str, ...]
    forms: tuple[NoisyTable, ...]
    sizes: tuple[NoisyTable, ...]
    public_rows: int | None = None
    commas: bool = False

    @cached_property
    def surely(self) -> float:
        """The number of standard deviations above which a count is not noise."""
        return surely(len(self.names))

    @cached_property
    def missing_words(self) -> tuple[str, ...]:
        """The words that stand for a missing value in some column; empty fields always do."""
        return tuple(
            word
            for i, word in enumerate(cells.MISSING_WORDS)
            if word == "" or any(t.counts[i] > self.surely * t.sigma for t in self.forms)
        )

    @cached_property
    def rows(self) -> tuple[float, float]:
        """The number of rows, and its standard error: every form's counts add up to it."""
        if self.public_rows is not None:
            return float(self.public_rows), 0.0
        totals = [float(table.counts.sum()) for table in self.forms]
        error = self.forms[0].sigma * math.sqrt(len(FORMS) / len(totals))
        return max(1.0, math.fsum(totals) / len(totals)), error

    @property
    def shapes(self) -> dict[str, Shape]:
        """Each column's shape."""
        pairs = zip(self.forms, self.sizes, strict=True)
        return {
            name: Shape(self, form.counts, form.sigma, size.counts, size.sigma)
            for name, (form, size) in zip(self.names, pairs, strict=True)
        }


@dataclass(frozen=True)
class Shape:
    """What the noisy counts of one column say of it; see `FORMS` and `SIZES`."""

    reader: Reader
    form: Floats
    form_sigma: float
    size: Floats
    size_sigma: float

    @cached_property
    def missing(self) -> tuple[float, float]:
        """Rows without a value, and the standard error."""
        words = [cells.MISSING_WORDS.index(word) for word in self.reader.missing_words]
        return max(0.0, float(self.form[words].sum())), self.form_sigma * math.sqrt(len(words))

    @property
    def may_be_missing(self) -> bool:
        count, error = self.missing
        return count > LIKELY_MISSING * error

    @cached_property
    def kind(self) -> Kind:
        """What most values are, as far as that is sure."""
        counts = {
            "number": (float(self.form[_NUMBERS].sum()), _NUMBERS.stop - _NUMBERS.start),
            "date": (float(self.form[_TIMES].sum()), _TIMES.stop - _TIMES.start),
            "text": (float(self.form[_FORM[cells.TEXT]]), 1),
        }
        kind, (count, width) = max(counts.items(), key=lambda item: item[1][0])
        if count <= self.reader.surely * self.form_sigma * math.sqrt(width):
            return "nothing"
        if kind == "date":
            return "date" if self._ends(cells.FIRST_YEAR, len(SIZES)) else "nothing"
        if kind == "text":
            return "text"
        padded = self.form[_FORM[cells.LEADING_ZERO]]
        if self._sure_form(cells.LEADING_ZERO) and padded > MANY_DIGITS_AFTER_ZERO * count:
            return "text"
        if self._ends(cells.FIRST_NUMBER, cells.FIRST_YEAR) is None:
            return "nothing"
        return "number" if self.decimals else "whole"

    @cached_property
    def decimals(self) -> int:
        """Digits after the point, of whatever many numbers have; 0 for whole numbers."""
        sure = [d for d, form in enumerate(cells.DIGITS, start=1) if self._sure_form(form)]
        together = float(self.form[_DIGITS].sum())
        some = together > self.reader.surely * self.form_sigma * math.sqrt(len(cells.DIGITS))
        return max(sure) if sure else 4 if some else 0

    @cached_property
    def number_cells(self) -> tuple[int, int]:
        """The first and the last cell of `NUMBERS` that surely hold rows."""
        ends = self._ends(cells.FIRST_NUMBER, cells.FIRST_YEAR)
        assert ends is not None  # by `kind`
        return ends

    @property
    def years(self) -> tuple[int, int]:
        """The first and the last year that surely have rows."""
        ends = self._ends(cells.FIRST_YEAR, len(SIZES))
        assert ends is not None  # by `kind`
        return YEARS[ends[0]], YEARS[ends[1] + 1] - 1

    @property
    def resolution(self) -> str:
        """The finest step that surely has rows."""
        return next((t for t in reversed(cells.TIMES) if self._sure_form(t)), cells.TIMES[0])

    @property
    def zeros(self) -> float:
        """Share of rows that are zero."""
        return float(self.size[cells.FIRST_NUMBER + cells.ZERO]) / self.reader.rows[0]

    def lost_outside(self) -> tuple[float, float]:
        """Share of rows that are neither missing nor inside what was found, and its error."""
        numbers = self.kind in ("whole", "number")
        start, stop = (
            (cells.FIRST_NUMBER, cells.FIRST_YEAR) if numbers else (cells.FIRST_YEAR, len(SIZES))
        )
        ends = self._ends(start, stop)
        assert ends is not None  # by `kind`
        inside = slice(start + ends[0], start + ends[1] + 1)
        form = _NUMBERS if numbers else _TIMES
        # What lies inside: counted there, or what is outside taken off all; whichever has less
        # noise.
        within = float(self.size[inside].sum()), (inside.stop - inside.start) * self.size_sigma**2
        outer = (stop - start) - (inside.stop - inside.start)
        outside = float(self.size[start:stop].sum()) - within[0]
        rest = (
            float(self.form[form].sum()) - outside,
            outer * self.size_sigma**2 + (form.stop - form.start) * self.form_sigma**2,
        )
        kept, variance = min(within, rest, key=lambda estimate: estimate[1])
        return self.lost(kept, variance)

    def lost(self, kept: float, variance: float) -> tuple[float, float]:
        """Share of rows beside those that are missing and `kept`, and its standard error."""
        (rows, error), (missing, missing_error) = self.reader.rows, self.missing
        total = math.sqrt(variance + error**2 + missing_error**2)
        return min(1.0, max(0.0, 1 - (kept + missing) / rows)), min(1.0, total / rows)

    def codes(self) -> tuple[int, ...]:
        """The whole numbers of a column of codes: few, with gaps or at most two; else none."""
        if self.kind != "whole" or self._sure_form(cells.OTHER_WHOLE):
            return ()
        first, last = self.number_cells
        sure = self._sure(cells.FIRST_NUMBER, cells.FIRST_YEAR)[0]
        held = [i for i in range(first, last + 1) if sure[i]]
        singles = [n for i in held if (n := NUMBERS[i].single) is not None]
        few = 0 < len(singles) == len(held) <= MAX_CODES
        between = [i for i in range(first, last + 1) if not sure[i] and NUMBERS[i].single]
        gaps = math.fsum(float(self.size[cells.FIRST_NUMBER + i]) for i in between)
        empty = bool(between) and gaps <= EMPTY * self.size_sigma * math.sqrt(len(between))
        if not few or (len(singles) > 2 and not empty):
            return ()
        counts = [float(self.size[cells.FIRST_NUMBER + i]) for i in held]
        lost, error = self.lost(math.fsum(counts), len(held) * self.size_sigma**2)
        rare = max(0.0, 1 - max(counts) / self.reader.rows[0])
        nearly_all = lost - 2 * error <= min(CODES_LOSE, CODES_LOSE_RARE * rare)
        return tuple(singles) if nearly_all else ()

    def _sure_form(self, form: str) -> bool:
        return bool(self.form[_FORM[form]] > self.reader.surely * self.form_sigma)

    def _sure(self, start: int, stop: int) -> list[npt.NDArray[np.bool_]]:
        """Which runs of 1, 2, 4, ... neighbouring cells surely hold rows, or have a part that
        does; the last run is all of them.
        """
        counts = self.size[start:stop]
        counts = np.pad(counts, (0, (1 << (len(counts) - 1).bit_length()) - len(counts)))
        limit, width = self.reader.surely * self.size_sigma, 1
        levels = [counts > limit]
        while len(counts) > 1:
            counts, width = counts.reshape(-1, 2).sum(axis=1), 2 * width
            parts = levels[-1].reshape(-1, 2).any(axis=1)
            levels.append(parts | (counts > limit * math.sqrt(width)))
        return levels

    def _ends(self, start: int, stop: int) -> tuple[int, int] | None:
        """The outermost cells that hold rows, from `start` on; None where none surely does."""
        levels = self._sure(start, stop)
        if not levels[-1][0]:
            return None
        first, last = _outermost(levels, last=False), _outermost(levels, last=True)
        last = min(last, stop - start - 1)
        left, right = _room(first, last) if start == cells.FIRST_NUMBER else (0, 0)
        counts = self.size[start:stop]
        return (
            first - self._more(counts[first - left : first][::-1]),
            last + self._more(counts[last + 1 : last + 1 + right]),
        )

    def _more(self, counts: Floats) -> int:
        """How many of the cells beside a range seem to hold rows: of all beginnings the one whose
        sum is most above its noise.
        """
        if not len(counts):
            return 0
        noise = self.size_sigma * np.sqrt(np.arange(1, len(counts) + 1))
        excess = np.cumsum(counts) - BESIDE * noise
        best = int(np.argmax(excess))
        return best + 1 if excess[best] > 0 else 0


def _outermost(levels: Sequence[npt.NDArray[np.bool_]], *, last: bool) -> int:
    """The first or the last cell of the smallest run that surely holds rows, at that end."""
    place = 0
    for depth in range(len(levels) - 2, -1, -1):
        left, right = levels[depth][2 * place], levels[depth][2 * place + 1]
        if not (left or right):  # their sum does, and neither alone
            width = 1 << (depth + 1)
            return place * width + (width - 1 if last else 0)
        place = 2 * place + int(right if last else not left)
    return place


def _room(first: int, last: int) -> tuple[int, int]:
    """How many cells of numbers beside a range are near: by no more than its width."""
    lower, upper = NUMBERS[first].lower, NUMBERS[last].upper
    width = upper - lower
    return (
        sum(c.lower >= lower - width for c in NUMBERS[:first]),
        sum(c.upper <= upper + width for c in NUMBERS[last + 1 :]),
    )
