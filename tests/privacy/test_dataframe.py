"""Rows that are given from Python: sealed at once, and read one value at a time as a file's are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.data.domain import Domain
from synthdp.errors import BoundaryError, DataError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec.model import (
    Boolean,
    Categorical,
    Column,
    CsvSource,
    DataFrameSource,
    Dataset,
    Datetime,
    DeclaredRows,
    IdUnit,
    Integer,
    Number,
    RowUnit,
)

CANARY = "zq-canary-9182"
COLUMNS: dict[str, Column] = {
    "sex": Categorical(type="categorical", categories=("f", "m")),
    "ill": Boolean(type="boolean", missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=10, spikes=(0,)),
    "pay": Number(type="number", lower=-5.0, upper=5.0, bins=4, missing=True),
    "day": Datetime(type="datetime", lower="2020-01-01", upper="2020-12-31", bins=4, missing=True),  # type: ignore[arg-type]
}
DOMAIN = Domain.from_spec(COLUMNS)
TEXT = pd.DataFrame(
    {
        "sex": ["f", "m", "m"],
        "ill": ["true", None, "false"],
        "age": ["3", "99", "0"],
        "pay": ["1.5", None, "-5"],
        "day": ["2020-02-01", None, "2020-12-31T10:30:00"],
    },
    dtype="str",
)
TYPED = pd.DataFrame(
    {
        "sex": pd.Categorical(["f", "m", "m"]),
        "ill": pd.array([True, None, False], dtype="boolean"),
        "age": np.array([3, 99, 0], dtype=np.int32),
        "pay": [1.5, np.nan, -5.0],
        "day": pd.to_datetime(["2020-02-01T00:00:00", None, "2020-12-31T10:30:00"]),
    }
)


def read(
    frame: pd.DataFrame | None, *, unit: Any = None, source: Any = None, **dataset: Any
) -> Table:
    described = Dataset(
        id="d",
        source=source or DataFrameSource(kind="dataframe"),
        privacy_unit=unit or RowUnit(kind="row", meaning="one visit"),
        rows=DeclaredRows(kind="approximate", value=100),
        **dataset,
    )
    return read_private(
        described,
        DOMAIN,
        folder=Path("nowhere"),
        holdout=0.0,
        streams=Streams.fresh(),
        given=None if frame is None else seal_dataframe(frame),
    ).unseal(key=_KERNEL_KEY)


@pytest.mark.parametrize(
    "frame",
    [
        TEXT,
        TEXT.astype(object),
        TYPED,
        TYPED.astype(object),
        TYPED.convert_dtypes(dtype_backend="pyarrow"),
        TYPED.set_index(pd.Index([7, 7, 9])),
        TYPED[["day", "pay", "age", "ill", "sex"]],
    ],
    ids=["text", "objects of text", "typed", "objects", "arrow", "any index", "any order"],
)
def test_dtypes_that_say_the_same_give_the_same_levels(frame: pd.DataFrame) -> None:
    table = read(frame)
    assert np.array_equal(table.codes, read(TEXT).codes)
    assert table.frame.equals(read(TEXT).frame)


def test_levels_are_those_of_a_csv_file(tmp_path: Path) -> None:
    TEXT.to_csv(tmp_path / "t.csv", index=False)
    source = CsvSource(kind="csv", path=str(tmp_path / "t.csv"))
    assert np.array_equal(read(None, source=source).codes, read(TEXT).codes)


def test_one_value_does_not_change_what_the_others_say() -> None:
    frame = TYPED.astype(object)
    odd = pd.concat([frame, pd.DataFrame([["x", 7, "soon", object(), 3.5]], columns=[*COLUMNS])])
    assert np.array_equal(read(odd, out_of_domain="clamp").codes[:3], read(frame).codes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sex": [CANARY, "f", "m"]}, "outside the declared domain in column 'sex'"),
        ({"age": [CANARY, "1", "2"]}, "outside the declared domain in column 'age'"),
        ({"day": pd.to_datetime(["2020-02-01"] * 3, utc=True)}, "times with a zone"),
        ({"pay": pd.array([1j, 2j, 3j])}, "'pay' .* of type complex128, which cannot be read as"),
        ({"pay": [[CANARY], None, None]}, "outside the declared domain in column 'pay'"),
        (
            {"age": pd.period_range("2020", periods=3, freq="Y")},
            "values of type extension",
        ),
        ({CANARY: ["1", "2", "3"]}, "undeclared column in place 6"),
        ({7: ["1", "2", "3"]}, "undeclared column in place 6"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_value(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        read(
            TYPED.assign(**{k: v for k, v in change.items() if isinstance(k, str)}).join(
                pd.DataFrame({k: v for k, v in change.items() if not isinstance(k, str)})
            )
        )
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


def test_columns_that_lack_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="missing column 'sex'"):
        read(TYPED.drop(columns="sex"))
    with pytest.raises(DataError, match="two columns of the table have the same name"):
        read(pd.concat([TYPED, TYPED[["sex"]]], axis="columns"))
    with pytest.raises(DataError, match="the table has no rows"):
        read(TYPED.iloc[:0])


def test_units_are_bounded_by_their_ids() -> None:
    unit = IdUnit(kind="id", column="person", max_rows=2, meaning="one person")
    frame = pd.concat([TYPED.iloc[[0]]] * 5).assign(person=[1, 1.0, "1", " 01", "2"])
    assert len(read(frame, unit=unit).codes) == 3


def test_the_frame_is_sealed_and_later_changes_are_not_seen() -> None:
    frame = TYPED.copy()
    sealed = seal_dataframe(frame)
    frame.loc[:, "age"] = 50
    assert sealed.unseal(key=_KERNEL_KEY)["age"].tolist() == [3, 99, 0]
    assert repr(sealed) == "<Private>"
    with pytest.raises(BoundaryError):
        len(sealed)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [CANARY, [1, 2], {"sex": ["f"]}, pd.Series([1])])
def test_only_a_dataframe_is_taken(rows: object) -> None:
    with pytest.raises(DataError, match="given as a pandas DataFrame") as refused:
        seal_dataframe(rows)
    assert CANARY not in str(refused.value)


def test_rows_and_source_must_agree() -> None:
    with pytest.raises(DataError, match="no rows were given"):
        read(None)
    with pytest.raises(DataError, match=r"a DataFrame was given, and .* is of kind csv"):
        read(TYPED, source=CsvSource(kind="csv", path="t.csv"))
