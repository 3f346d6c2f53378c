"""What one value says: dates in full and without a zone, numbers in plain or exponent form, ids by
one rule; typed cells as their objects.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from synthdp.data import (
    Domain,
    encode_column,
    id_text,
    number_of,
    read_values,
    seconds_of,
    unit_numbers,
)
from synthdp.errors import DataError
from tests.audit.reading_pairs import OBJECTS, TEXTS, WAYS, Untold, pair_domain

DAY = 86_400


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-02", DAY),
        (" 1970-01-02\t", DAY),
        ("1970-01-02T00:01", DAY + 60),
        ("1970-01-02 00:00:01", DAY + 1),
        ("1970-01-01T00:00:01.999999999999999", 1),
        ("1969-12-31T23:59:59.5", -1),
        ("9999-12-31", 2_932_896 * DAY),
        ("0001-01-01", -719_162 * DAY),
        (date(1970, 1, 2), DAY),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), -1),
        (pd.Timestamp("1970-01-01T00:00:01.000000001"), 1),
        (np.datetime64("1969-12-31T23:59:59.9"), -1),
    ],
)
def test_days_and_instants_in_full_are_read_to_the_second(value: Any, seconds: int) -> None:
    assert seconds_of(value) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "2024", "2024-05", "20240501", "2024-05-01T10", "2024-W01-1", "2024-01-01T00:30:00+02:00",
        "2024-01-01T00:30:00Z", "2024-01-01 00:30:00 UTC", "2024-01-01Z", "2024-02-30",
        "2024-01-01T24:00:00", "2024-01-01T23:59:60", "0000-01-01", "2024-01-01T10:30.5",
        "01/02/2024", "99999-01-01", "",
    ],
)  # fmt: skip
def test_half_dates_and_zones_are_misfits(text: str) -> None:
    """Nothing that a date leaves out is filled in, and no zone moves a time."""
    column = pair_domain()["time"]
    assert np.isnan(seconds_of(text))
    assert encode_column(column, pd.Series([text], dtype="str")).wrong_type == 1


def test_instants_with_a_zone_are_misfits_or_refused_by_their_type() -> None:
    column = pair_domain()["time"]
    zoned = datetime(2024, 1, 1, tzinfo=UTC)
    assert (
        encode_column(column, pd.Series([zoned, datetime(2024, 1, 1)], dtype=object)).wrong_type
        == 1
    )
    with pytest.raises(DataError, match="column 'time' of the source holds times with a zone"):
        read_values(column, pa.array([zoned], pa.timestamp("us", "Europe/Berlin")))


@pytest.mark.parametrize("text", ["now", "today", "NOW", " today "])
def test_the_clock_has_no_part_in_reading(text: str) -> None:
    """`now` and `today` are no dates: a row's level would go with the day of the release."""
    assert encode_column(pair_domain()["day"], pd.Series([text], dtype="str")).wrong_type == 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1", 1),
        (" 1.5 ", 1.5),
        ("-.5e1", -5),
        ("1e400", np.inf),
        ("-Infinity", -np.inf),
        (True, 1),
        (Decimal("0.1"), 0.1),
        (10**400, np.inf),
        (-(10**400), -np.inf),
        ("9007199254740993", 2.0**53),
        (2**53 + 1, 2.0**53),
        (np.float32(0.5), 0.5),
    ],
)
def test_numbers_are_the_nearest_of_64_bits(value: Any, number: float) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize(
    "value",
    [
        "1_000", "1,5", "1 000", "0x10", "\u0661", "nan", "", "1\0", "true", b"1",
        date(2020, 1, 1), ["1"], 1j, None,
    ],
)  # fmt: skip
def test_what_is_no_number(value: Any) -> None:
    assert np.isnan(number_of(value))


@pytest.mark.parametrize(
    "way",
    [
        way
        for way, (_, values) in WAYS.items()
        if values not in (TEXTS, OBJECTS) and "pandas" not in way
    ],
)
def test_typed_cells_are_read_as_their_objects_are(way: str) -> None:
    """The short ways by a column's type, against the one function of one value."""
    make, values = WAYS[way]
    cells = make(values)
    for column in pair_domain().columns:
        typed = read_values(column, cells)
        objects = pa.chunked_array([cells.array.__arrow_array__()]).to_pylist()
        single = read_values(column, pd.Series(objects, dtype=object))
        np.testing.assert_array_equal(typed.numbers, single.numbers)
        np.testing.assert_array_equal(typed.absent, single.absent)


@pytest.mark.parametrize(
    "value",
    ["\ud800", np.datetime64(5, "as"), Untold()],
    ids=["half a pair", "attoseconds", "no text"],
)
def test_what_a_value_raises_is_a_misfit_of_its_own_row(value: Any) -> None:
    """It has no UTF-8, no instant or no text: the rows beside it are read as without it."""
    for dtype in ("object", "string[python]") if isinstance(value, str) else ("object",):
        cells = pd.Series(["1", value, "2020-01-01"], dtype=dtype)
        for column in pair_domain().columns:
            read, beside = read_values(column, cells), read_values(column, cells[[0, 2]])
            np.testing.assert_array_equal(read.numbers, np.insert(beside.numbers, 1, np.nan))
            np.testing.assert_array_equal(read.absent, np.insert(beside.absent, 1, False))


@pytest.mark.parametrize("kind", ["binary", "duration[s]", "list", "struct", "zoned"])
def test_types_that_no_column_holds_are_refused_by_type(kind: str) -> None:
    kinds = {
        "binary": pa.binary(),
        "duration[s]": pa.duration("s"),
        "list": pa.list_(pa.int64()),
        "struct": pa.struct([("secret", pa.int64())]),
    }
    for column in pair_domain().columns:
        with pytest.raises(
            DataError, match=f"column '{column.name}' of the source holds"
        ) as caught:
            read_values(column, pa.nulls(1, kinds.get(kind, pa.timestamp("s", "UTC"))))
        assert "secret" not in str(caught.value)


def test_a_cell_that_python_has_no_value_for_is_one_misfit() -> None:
    """The year 300000 fits into Arrow's instants and not into Python's; the rows beside it are as
    they were.
    """
    column = Domain((pair_domain()["category"],))["category"]
    cells = pa.array([0, 10**13], pa.timestamp("s"))
    assert (
        encode_column(column, cells).outside == 2
        and read_values(pair_domain()["day"], cells).numbers[0] == 0
    )


# --- ids ---

SAME = (
    (
        "1", "1.0", " 1", "01", "+1", "1.", "1\n", 1, 1.0, Decimal("1"), Decimal("1.00"),
        np.int64(1), np.float64(1),
    ),
    ("0", "-0", "-0.0", "000", 0, 0.0, -0.0, Decimal("-0")),
    ("-7", "-07.0", -7, -7.0),
    ("9007199254740993", "09007199254740993", 2**53 + 1, Decimal("9007199254740993")),
    ("A1", " A1 "),
    ("a1",),
    ("1.5", 1.5),
    ("1.50",),
    ("1e0",),
    ("A 1",),
    ("true", True),
    ("a\0b",),
    ("a\0c",),
    ("9" * 5000, "0" + "9" * 5000, 10**5000 - 1),
    ("2020-01-01", date(2020, 1, 1)),
    (b"\x01",),
)  # fmt: skip
NO_ID = (None, "", "  ", float("nan"), pd.NA, pd.NaT, Decimal("NaN"))


def test_ids_are_one_exactly_by_the_rule() -> None:
    """Without the white space around them, and whole numbers as numbers."""
    values = [(group, value) for group, same in enumerate(SAME) for value in same]
    numbers = unit_numbers(pd.Series([v for _, v in values], dtype=object))
    assert (numbers >= 0).all()
    for (group, u), i in zip(values, numbers, strict=True):
        for (other, v), j in zip(values, numbers, strict=True):
            assert (i == j) == (group == other) == (id_text(u) == id_text(v)), (u, v)
    texts = [v for _, v in values if isinstance(v, str)]
    found = unit_numbers(
        pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([texts[:3], texts[3:]])))
    )
    assert len(set(found.tolist())) == len({id_text(t) for t in texts})


def test_ids_that_are_no_text_are_two_where_their_bytes_are() -> None:
    """As one unit, of a row each, the second person's row would take the place of the first's."""
    names = pa.array([b"M\xfcller", b"M\xf6ller", b"M\xfcller", b"Moller"], pa.binary())
    instants = pa.array([2**60, 2**61, 2**60, 5], pa.timestamp("s"))  # beyond Python's calendar
    for ids in (names.view(pa.string()), instants):
        for held in (ids, ids.dictionary_encode()):
            assert unit_numbers(held).tolist() == [0, 1, 0, 2]


def test_no_id_is_no_unit_and_odd_ids_are_refused() -> None:
    assert (unit_numbers(pd.Series(list(NO_ID), dtype=object)) == -1).all()
    for odd in ([1], {"a": 1}, object()):
        with pytest.raises(DataError, match="ids of a type"):
            unit_numbers(pd.Series([odd], dtype=object))
