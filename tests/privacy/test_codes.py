"""Codes: whole numbers are the same categories in every source, and codes of missing values are
missing in every source.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from synthdp.data.domain import Domain
from synthdp.errors import SpecError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec.checks.checks import check
from synthdp.spec.model import Column, Dataset
from tests.builders import build_spec, skeleton

SPEC = build_spec(
    {
        "smokes": {"type": "categorical", "categories": [0, 1], "value_labels": {0: "never"}},
        "grade": {
            "type": "ordinal", "categories": [1, 2, 10], "missing": True, "missing_codes": [9],
        },
        "age": {
            "type": "integer", "lower": 0, "upper": 98,
            "missing": True, "missing_codes": [99, -1, "refused"],
        },
        "pay": {
            "type": "number", "lower": 0, "upper": 90.5, "decimals": 1,
            "missing": True, "missing_codes": [-9.5],
        },
        "born": {
            "type": "datetime", "lower": "1900-01-01", "upper": "2020-01-01",
            "missing": True, "missing_codes": ["9999-09-09"],
        },
    }
)  # fmt: skip
COLUMNS: dict[str, Column] = dict(SPEC.columns)
ROWS = {
    "smokes": [0, 1, 1, 0],
    "grade": [1, 9, 10, 2],
    "age": [99, 12, -1, 0],
    "pay": [1.5, -9.5, 3.0, 90.5],
    "born": ["1990-01-01", "9999-09-09", "2000-02-02", "2001-01-01"],
}


def frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS)


def as_csv(folder: Path) -> dict[str, object]:
    frame().to_csv(folder / "t.csv", index=False)
    return {"kind": "csv", "path": "t.csv"}


def as_parquet(folder: Path) -> dict[str, object]:
    frame().to_parquet(folder / "t.parquet")
    return {"kind": "parquet", "path": "t.parquet"}


def as_sql(folder: Path) -> dict[str, object]:
    with sqlite3.connect(folder / "t.db") as connection:
        frame().to_sql("t", connection, index=False)
    return {"kind": "sql", "url_env": "CODES_URL", "query": "SELECT * FROM t"}


def as_dataframe(folder: Path) -> dict[str, object]:
    return {"kind": "dataframe"}


def as_floats(folder: Path) -> dict[str, object]:
    """As pandas writes whole numbers beside a missing one."""
    frame().astype({"smokes": float, "grade": float, "age": float}).to_parquet(folder / "f.parquet")
    return {"kind": "parquet", "path": "f.parquet"}


@pytest.mark.parametrize("save", [as_csv, as_parquet, as_floats, as_sql, as_dataframe])
def test_codes_are_the_same_in_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], dict[str, object]]
) -> None:
    monkeypatch.setenv("CODES_URL", f"sqlite:///{tmp_path / 't.db'}")
    dataset = Dataset.model_validate(skeleton(4)["dataset"] | {"source": save(tmp_path)})
    given = seal_dataframe(frame()) if dataset.source.kind == "dataframe" else None
    table: Table = read_private(
        dataset,
        Domain.from_spec(COLUMNS),
        folder=tmp_path,
        holdout=0.0,
        streams=Streams.fresh(),
        given=given,
    ).unseal(key=_KERNEL_KEY)
    assert not any(count for kinds in table.misfits.values() for count in kinds.values())
    read = table.frame
    assert read["smokes"].tolist() == ["0", "1", "1", "0"]
    assert read["grade"].fillna("").tolist() == ["1", "", "10", "2"]
    assert read["age"].isna().tolist() == [True, False, True, False]
    assert np.array_equal(read["pay"].to_numpy(dtype=float), [1.5, np.nan, 3, 90.5], equal_nan=True)
    assert read["born"].isna().tolist() == [False, True, False, False]
    missing = Domain.from_spec(COLUMNS)["age"].missing_level
    assert table.codes[0, 2] == table.codes[2, 2] == missing


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"type": "categorical", "categories": ["a"], "missing_codes": [9]}, "set missing: true"),
        (
            {"type": "integer", "lower": 0, "upper": 99, "missing": True, "missing_codes": [99]},
            "cannot also stand for a missing one: 99",
        ),
        (
            {"type": "ordinal", "categories": [1, 2], "missing": True, "missing_codes": [2]},
            "cannot also stand for a missing one: 2",
        ),
        (
            {"type": "categorical", "categories": [1], "value_labels": {1: "a", 2: "b"}},
            "a label for '2', which is no category",
        ),
    ],
)
def test_codes_that_contradict_are_refused(entry: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        check(build_spec({"x": entry}))


def test_a_label_holds_no_line_break() -> None:
    with pytest.raises(ValidationError, match="control character"):
        build_spec({"x": {"type": "categorical", "categories": [1], "value_labels": {1: "a\nb"}}})
