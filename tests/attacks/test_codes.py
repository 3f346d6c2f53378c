"""From CSV columns to codes by declared levels, and back; errors that say where, and never what a
row holds.
"""

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp_attacks import AttackError, Bins, Column, Public, decode, encode, public_of

COLUMNS: dict[str, Column] = {
    "age": Bins((0, 18, 65, 120)),
    "sex": ("f", "m"),
    "wage": Bins((0.0, 1.5, 4.0), missing=True),
    "job": ("1", "2", None),
}
FILE = "name,age,sex,wage,job\nann,17.9,f,1.5,1\nbob,18,m,,2\ncay,120,m,4,\n"


def test_by_hand() -> None:
    frame = pd.read_csv(io.StringIO(FILE), dtype=str)
    codes = encode(frame, COLUMNS)
    assert codes.tolist() == [[0, 0, 1, 0], [1, 1, 2, 1], [2, 1, 1, 2]]
    assert np.issubdtype(codes.dtype, np.integer)
    assert public_of(COLUMNS) == Public((3, 2, 3, 3))
    assert (
        encode(frame.set_index("name"), COLUMNS) == codes
    ).all()  # the index is no column, and no position
    assert encode(frame.iloc[:0], COLUMNS).shape == (0, 4)


def test_numbers_and_texts_read_either_way_give_the_same_codes() -> None:
    texts, typed = (
        pd.DataFrame({"x": x, "k": k})
        for x, k in ((["0", "2", "3.0"], ["1", "2", "1"]), ([0, 2, 3], [1, 2, 1]))
    )
    columns: dict[str, Column] = {"x": Bins((0, 2, 3)), "k": (1, 2)}  # type: ignore[dict-item]
    assert (
        encode(texts, columns).tolist()
        == encode(typed, columns).tolist()
        == [[0, 0], [1, 1], [1, 0]]
    )


def test_codes_do_not_depend_on_the_rows() -> None:
    frame = pd.read_csv(io.StringIO(FILE), dtype=str)
    for place in range(3):
        assert (encode(frame.iloc[[place]], COLUMNS) == encode(frame, COLUMNS)[[place]]).all()


def test_there_and_back() -> None:
    codes = np.stack(
        [np.random.default_rng(1).integers(size, size=200) for size in public_of(COLUMNS).sizes],
        axis=1,
    )
    frame = decode(codes, COLUMNS)
    assert (encode(frame, COLUMNS) == codes).all() and list(frame) == list(COLUMNS)
    assert set(frame["age"]) == {9.0, 41.5, 92.5} and set(frame["job"]) == {"1", "2", None}
    with pytest.raises(
        AttackError, match=r"^codes: a code lies outside its column; allowed are 0 .. 2 in column 0"
    ):
        decode(codes + 3, COLUMNS)


CANARY = "4711.5"


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        (
            "sex",
            CANARY,
            (
                r"^column 'sex': row 1 \(look at frame\['sex'\].iloc\[1\]\) holds none .* one of"
                r" the declared categories \['f', 'm'\]: declare"
            ),
        ),
        ("sex", None, r"^column 'sex': row 1 .* has no value; .*: declare None as a category"),
        (
            "age",
            CANARY,
            (
                r"^column 'age': row 1 .* holds none .* a number from 0 to 120: declare its value"
                r" if it is public, or mend the row"
            ),
        ),
        ("age", CANARY + " years", r"^column 'age': row 1 .* a number from 0 to 120"),
        ("age", None, r"^column 'age': row 1 .* has no value; .*: say missing=True"),
        ("age", "inf", r"^column 'age': row 1 "),
        (
            "wage",
            CANARY + "x",
            r"^column 'wage': row 1 .* holds none",
        ),  # a text is not a missing number
        ("wage", "-0.1", r"^column 'wage': row 1 "),
    ],
)
def test_what_is_not_declared_is_told_without_its_value(
    column: str, value: str | None, told: str
) -> None:
    frame = pd.read_csv(io.StringIO(FILE), dtype=str)
    frame.loc[1, column] = value
    with pytest.raises(AttackError, match=told) as caught:
        encode(frame, COLUMNS)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({}, "no columns are declared"),
        ({"salary": ("a", "b")}, r"column 'salary' is not in the table, which has 'name', 'age'"),
        ({"sex": "fm"}, r"column 'sex' is declared by 'fm'; needs a list of its categories"),
        ({"sex": ()}, "column 'sex' is declared by"),
        ({"sex": 3}, "column 'sex' is declared by 3"),
        ({"sex": ("f", "f")}, r"column 'sex' declares category 'f' twice"),
        ({"job": (1, "1")}, r"declares category '1' twice"),
    ],
)
def test_what_is_no_declaration_is_told(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(AttackError, match=told):
        encode(pd.read_csv(io.StringIO(FILE), dtype=str), columns)


@pytest.mark.parametrize(
    "edges", [(), (1,), (1, 1), (2, 1), (0, float("inf")), (0, float("nan")), ("a", "b")]
)
def test_edges_grow(edges: Any) -> None:
    with pytest.raises(
        AttackError,
        match=r"^edges=.*; needs at least two finite numbers, each above the one before",
    ):
        Bins(edges)
