"""Public cells of texts: each text is in exactly one, by itself, and where the later column reads
it.
"""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from synthdp.data import (
    DIGITS,
    FIRST_NUMBER,
    FIRST_YEAR,
    FORMS,
    LEADING_ZERO,
    MISSING_WORDS,
    NUMBERS,
    OTHER_WHOLE,
    SIZES,
    TEXT,
    TIMES,
    YEARS,
    ZERO,
    cells_domain,
    form_of,
    key_of,
    number_of,
    places_by,
    pointed,
    seconds_of,
    size_of,
    whole_of,
)
from synthdp.privacy.readers.files import with_point
from synthdp.spec.model import Categorical

WHOLE = "whole number"
NASTY = (
    *MISSING_WORDS,
    *("0", "-0", "-0.0", "00", "007", "+7", "-7", " 7", "7 ", "7.", ".5", "-.5", "1e3", "1e-3"),
    *("1E400", "-1e400", "nan ", "inf", "Infinity", "1_000", "1,5", "9007199254740993", "9" * 400),
    *("2024-02-29", "2023-02-29", "2024-01-01 10", "2024-01-01T10:00", "2024-01-01 10:30:15.5"),
    *(
        "0001-01-01",
        "9999-12-31",
        "10000-01-01",
        "2024-01-01Z",
        "yes",
        "Ünïcode",
        "٣",
        "a\tb",
        "=1",
    ),
)


def form(text: str) -> str:
    return FORMS[form_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "missing: "),
        ("NA", "missing: NA"),
        ("-7", WHOLE),
        ("0", WHOLE),
        ("7.0", OTHER_WHOLE),
        ("-0", OTHER_WHOLE),
        ("02134", LEADING_ZERO),
        ("0.50", "1 digits after the point"),
        ("1e-3", "3 digits after the point"),
        ("0." + "1" * 16, "12 digits after the point"),
        ("2024-12-31", "day"),
        ("2024-12-31 10:00", "hour"),
        ("2024-12-31T10:30", "minute"),
        ("2024-12-31T10:30:01", "second"),
        ("31.12.2024", TEXT),
        ("None", TEXT),
        ("9" * 17, TEXT),
    ],
)
def test_forms(text: str, expected: str) -> None:
    assert form(text) == expected


@pytest.mark.check
@given(st.one_of(st.text(), st.sampled_from(NASTY), st.floats().map(repr), st.integers().map(str)))
def test_each_text_has_one_cell_of_each_list_and_they_agree(text: str) -> None:
    """What has a size is what a column of numbers or dates reads, and lies in its cell."""
    how, where = form(text), size_of(text)
    assert 0 <= where < len(SIZES)
    number = how in (WHOLE, OTHER_WHOLE, LEADING_ZERO, *DIGITS)
    assert (FIRST_NUMBER <= where < FIRST_YEAR) == number or how == TEXT
    assert (where >= FIRST_YEAR) == (how in TIMES)
    if number:
        cell, value = NUMBERS[where - FIRST_NUMBER], number_of(text)
        assert cell.lower <= value <= cell.upper
        if value != 0:
            nearer, further = sorted((cell.lower, cell.upper), key=abs)
            assert abs(nearer) <= abs(value) < abs(further)
        if value.is_integer() and cell.single is not None:
            assert cell.single == value
    if how in TIMES:
        assert not math.isnan(seconds_of(text))
        first = YEARS[where - FIRST_YEAR]
        assert first <= int(text.strip()[:4]) < YEARS[where - FIRST_YEAR + 1]


def test_cells_of_numbers_lie_side_by_side() -> None:
    for one, two in pairwise(NUMBERS):
        assert one.upper == two.lower and one.lower <= two.lower
    assert NUMBERS[ZERO].lower == NUMBERS[ZERO].upper == 0
    assert {cell.single for cell in NUMBERS} >= {*range(-100, 101), *range(1900, 2050)}


@pytest.mark.parametrize("place", [form_of, size_of])
@pytest.mark.parametrize("as_arrow", [False, True])
def test_no_text_changes_where_another_is_placed(place: object, as_arrow: bool) -> None:
    """Alone, beside each other text, and many times: the place is that of the text alone."""

    def placed(texts: list[str]) -> list[int]:
        series = pd.Series(texts, dtype=object)
        if as_arrow:
            series = pd.Series(
                pd.arrays.ArrowExtensionArray(pa.chunked_array([texts], pa.string()))
            )
        return list(map(int, places_by(series, place)))  # type: ignore[arg-type]

    alone = {text: place(text) for text in NASTY}  # type: ignore[operator]
    assert placed(list(NASTY)) == [alone[t] for t in NASTY]
    for one in NASTY[::3]:
        for other in NASTY:
            assert placed([one, other, one]) == [alone[one], alone[other], alone[one]]
    with pytest.raises(ValueError, match="missing"):
        places_by(pd.Series(["a", None], dtype=object), place)  # type: ignore[arg-type]


def test_keys_are_what_a_category_may_be() -> None:
    for text in NASTY:
        key = key_of(text)
        assert key in (None, text)
        if key is not None:
            assert Categorical(type="categorical", categories=(key,)).categories == (key,)
    for refused in ("=1+1", "a\nb", "", "NA", "x" * 201):
        assert key_of(refused) is None
    with pytest.raises(ValidationError):
        Categorical(type="categorical", categories=("=1+1",))
    assert [whole_of(t) for t in ("7", "+7.0", "007", "7.5", "x", "-0")] == [
        *("7", "7", "7", None, None, "0")
    ]


def test_levels_fit_into_the_codes() -> None:
    domain = cells_domain(3)
    assert domain.names == ("form 0", "size 0", "form 1", "size 1", "form 2", "size 2")
    assert max(domain.sizes) < np.iinfo(np.uint16).max


def test_decimals_behind_commas_are_those_of_the_later_column() -> None:
    texts = [*NASTY, "1200,5", "1.200", "1.200,5", "-,5", "1e3,5", "3,0"]
    for text, other in zip(texts, with_point(pd.Series(texts)), strict=True):
        read = number_of(pointed(text))
        if text not in MISSING_WORDS:
            assert read == number_of(other) or math.isnan(read) == math.isnan(number_of(other))
    assert (form(pointed("12,50")), form(pointed("1.5"))) == (DIGITS[0], TEXT)
    assert [pointed(t) for t in ("", ".", "Bern, CH", "v1.2", "2024-12-31")] == [
        "", ".", "Bern, CH", "v1.2", "2024-12-31",
    ]  # fmt: skip
