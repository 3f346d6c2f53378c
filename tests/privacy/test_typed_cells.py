"""Typed cells: decimal codes, half floats, truth, times of day, sparse and complex numbers."""

from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.data import Domain, category_text, encode_column, read_values
from synthdp.errors import DataError
from synthdp.privacy.engines.on_arrow import ArrowEngine
from synthdp.privacy.engines.on_dask import _Quiet
from synthdp.privacy.engines.opening import find_parts
from synthdp.privacy.engines.statements import POSTGRESQL, Statement, levels_of
from synthdp.spec import TextCode
from synthdp.spec.model import (
    Boolean,
    Categorical,
    Column,
    Datetime,
    Integer,
    Number,
    Ordinal,
)
from tests.privacy.conftest import domain_from, reader_in
from tests.privacy.engines.tables import reading_of

CODES = Ordinal(
    type="ordinal",
    categories=("1", "20", "0.5", "-3"),
    missing=True,
    missing_codes=("99", "-0.25"),
)
YES_NO = Boolean(type="boolean", false="no", true="yes")
HOUR = TextCode(type="text-code", codes=("08", "21"), prefix=2, missing=True)


def read(column: Column, values: Any) -> list[float]:
    domain = Domain.from_spec({"c": column})["c"]
    return [float(x) for x in read_values(domain, values).numbers]


def misfits(column: Column, values: Any) -> int:
    return encode_column(Domain.from_spec({"c": column})["c"], values).misfits


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.00", "1"),
        ("1E+2", "100"),
        ("-0.00", "0"),
        ("0E+9999", "0"),
        ("0.50", "0.5"),
        ("-3.0", "-3"),
        ("1E-7", "0.0000001"),
        ("1" + "0" * 30 + ".000", "1" + "0" * 30),
        ("1." + "0" * 500, "1"),
        ("1E+100000000", None),
        ("1E-100000000", None),
        ("Infinity", None),
        ("NaN", None),
    ],
)
def test_equal_decimals_are_one_text(value: str, text: str | None) -> None:
    assert category_text(Decimal(value)) == text


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9, 2), pa.decimal64(12, 2), pa.decimal128(10, 2), pa.decimal256(60, 5)]
)
def test_codes_of_a_decimal_column_are_read(kind: pa.DataType) -> None:
    texts = ["1", "20", "0.5", "-3", "99", "-0.25", "7", None]
    cells = pa.array([None if t is None else Decimal(t) for t in texts]).cast(kind)
    domain = Domain.from_spec({"c": CODES})["c"]
    found = read_values(domain, cells)
    assert found.numbers[:4].tolist() == [0, 1, 2, 3]
    assert np.isnan(found.numbers[4:]).all()
    assert found.absent.tolist() == [False] * 4 + [True, True, False, True]


def test_a_database_is_asked_for_the_numbers_of_decimal_codes() -> None:
    domain = Domain.from_spec({"c": CODES})["c"]
    keys = dict(levels_of(domain, "decimal").keys)
    assert keys == {
        Decimal("-3"): 3, Decimal("-0.25"): 4, Decimal("0.5"): 2,
        Decimal(1): 0, Decimal(20): 1, Decimal(99): 4,
    }  # fmt: skip
    made = Statement(POSTGRESQL)
    text = made.level("c0", domain, "decimal", range(5))
    assert "FLOAT8" not in text and set(map(type, made.values.values())) == {Decimal}


def test_codes_of_half_floats_are_read(tmp_path: Path) -> None:
    cells = pa.array(np.array([1, 20, 0.5, -3, 99, 7, np.nan], np.float16))
    wanted = [0, 1, 2, 3, 4, 0, 4]
    domain = Domain.from_spec({"c": CODES})
    for values in (cells, pd.Series(np.asarray(cells))):
        assert encode_column(domain["c"], values).codes.tolist() == wanted
    pq.write_table(pa.table({"c": cells}), tmp_path / "t.parquet")
    engine = ArrowEngine(reading_of(domain), find_parts("t.parquet", tmp_path))
    assert engine.survey().misfits.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([False, True, None]),
        pd.Series([False, True, None], dtype=object),
        pd.Series([False, True, None], dtype="boolean"),
        pd.Series([np.False_, np.True_, None], dtype=object),
    ],
)
def test_a_typed_truth_value_is_false_or_true_whatever_the_texts(values: Any) -> None:
    column = YES_NO.model_copy(update={"missing": True, "missing_codes": ("true", "9")})
    assert encode_column(Domain.from_spec({"c": column})["c"], values).codes.tolist() == [0, 1, 2]
    turned = Boolean(type="boolean", false="true", true="false")
    assert read(turned, values)[:2] == [0, 1]


def test_texts_of_truth_are_compared_letter_by_letter_as_before() -> None:
    assert misfits(YES_NO, pa.array(["yes", "no"])) == 0
    assert misfits(YES_NO, pa.array(["true", "false"])) == 2
    keys = levels_of(Domain.from_spec({"c": YES_NO})["c"], "truth").keys
    assert keys == ((False, 0), (True, 1))


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us")])
def test_times_of_day_are_categories_by_their_text(kind: pa.DataType) -> None:
    shifts = Categorical(type="categorical", categories=("06:00:00", "22:30:00"), missing=True)
    cells = pa.array([time(22, 30), time(6), None, time(6, 0, 1)]).cast(kind)
    for values in (cells, pd.Series(cells.to_pylist(), dtype=object)):
        codes = encode_column(Domain.from_spec({"c": shifts})["c"], values)
        assert codes.codes.tolist() == [1, 0, 2, 0] and codes.misfits == 1
    assert read(HOUR, pa.array([time(21, 59), time(8)]).cast(kind)) == [1, 0]


@pytest.mark.parametrize(
    "column",
    [
        Integer(type="integer", lower=0, upper=9, bins=2),
        Datetime(type="datetime", lower="2020-01-01", upper="2021-01-01", bins=2),
    ],
)
def test_times_of_day_are_no_numbers_and_no_dates(column: Column) -> None:
    with pytest.raises(DataError, match="times of day, which type") as caught:
        read(column, pa.array([time(8)]))
    assert "minutes since midnight" in str(caught.value)


@pytest.mark.parametrize(
    ("sparse", "wanted"),
    [
        (pd.arrays.SparseArray([0, 1, 0, 2.5]), [0, 1, 0, 2.5]),
        (pd.arrays.SparseArray([0, 1, 0, 3]), [0, 1, 0, 3]),
        (pd.arrays.SparseArray([False, True]), [0, 1]),
        (
            pd.arrays.SparseArray(["0", "7"], fill_value="0", dtype=pd.SparseDtype(object, "0")),
            [0, 7],
        ),
    ],
)
def test_sparse_columns_of_a_frame_are_read(sparse: Any, wanted: list[float]) -> None:
    assert read(Number(type="number", lower=0, upper=9, bins=2), pd.Series(sparse)) == wanted


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pd.Series([1 + 2j]), "is of type complex128"),
        (pd.Series(np.array([1], dtype=np.longdouble)), "is of type float128"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "values of type extension"),
    ],
)
@pytest.mark.parametrize("column", [CODES, Number(type="number", lower=0, upper=9, bins=2)])
def test_what_cannot_be_read_is_told_with_name_and_types(
    values: Any, told: str, column: Column
) -> None:
    with pytest.raises(DataError, match=f"column 'c' of the source .*{told}") as caught:
        read(column, values)
    error = caught.value
    assert error.hint is not None and error.__cause__ is None and error.__context__ is None
    if "is of type" in told:
        assert f"as type {column.type} (ArrowNotImplementedError)" in str(error)


def test_a_task_of_dask_tells_an_error_of_ours_and_no_other() -> None:
    def ours(_: Any) -> None:
        raise DataError("column 'c' holds x", hint="cast it")

    def other(_: Any) -> None:
        raise ValueError("canary-7731")

    assert _Quiet(ours)(None).told == ("column 'c' holds x", "cast it")
    failed = _Quiet(other)(None)
    assert failed.kind == "ValueError" and "canary" not in repr(failed)


GERMAN = {"kind": "csv", "path": "table.csv", "delimiter": ";", "decimal": ","}


def test_decimal_commas_are_read_in_columns_of_numbers_alone(tmp_path: Path) -> None:
    number, words = {"lower": 0, "upper": 9, "bins": 2}, ["1,5", "1.5"]
    columns = {"pay": {"type": "number", **number}, "age": {"type": "integer", **number}}
    domain = domain_from(columns | {"code": {"type": "categorical", "categories": words}})
    (tmp_path / "table.csv").write_text("pay;age;code\n1,5;2;1,5\n+2,50;3,0;1.5\n1e-1;4;1,5\n")
    table = reader_in(tmp_path)(source=GERMAN, domain=domain)
    assert table.frame["pay"].tolist() == [1.5, 2.5, 0.1]
    assert table.frame["age"].tolist() == [2, 3, 4]
    assert table.frame["code"].tolist() == ["1,5", "1.5", "1,5"]
    (tmp_path / "table.csv").write_text("pay;age;code\n1.5;2;1,5\n1.000,5;2;1,5\n")
    with pytest.raises(DataError, match="in column 'pay'") as caught:
        reader_in(tmp_path)(source=GERMAN, domain=domain)
    assert "decimals stand behind a comma, as in 1200,5" in str(caught.value.hint)
