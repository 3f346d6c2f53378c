"""Values of columns of codes: read by their first characters alone, from every kind of source, and
told to other formats as the prefixes that they are released as.
"""

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.bundle import row_groups
from synthdp.data import COLUMN_KINDS, Domain, column_kind, decode_column, encode_column
from synthdp.errors import DataError
from synthdp.sample import settings_of
from synthdp.spec import TextCode
from synthdp.spec.model import COLUMN_TYPES, Column, ParquetSource, SqlSource
from tests.audit.reading_pairs import pair_domain, replay_values
from tests.privacy.conftest import Read, reader_in

CODES = ("I10", "E11.9", "E11.65", "E1")
ICD = TextCode(type="text-code", codes=CODES, prefix=3, missing=True)
DOMAIN = Domain.from_spec({"diagnosis": ICD})
COLUMN = DOMAIN["diagnosis"]
SOURCES = ("csv", "parquet", "batches", "sql")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return reader_in(tmp_path)


def test_every_type_of_the_spec_has_its_kind() -> None:
    assert {*COLUMN_KINDS} == {*COLUMN_TYPES} == {kind.type for kind in COLUMN_KINDS.values()}
    assert {*COLUMN_TYPES.values()} == {*get_args(get_args(Column)[0])}


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("I10", 0),
        ("I10.9", 0),
        ("E11", 1),
        ("E11.9", 1),
        ("E11.8", 1),
        ("E1", 2),
        (None, 3),
        ("e11.9", None),
        (" E11", None),
        ("E1 ", None),
        ("E12", None),
        ("E", None),
        ("", None),
        (110, None),
        (b"E11", None),
    ],
)
def test_a_value_is_read_by_its_prefix_letter_by_letter(value: Any, level: int | None) -> None:
    encoded = encode_column(COLUMN, pd.Series([value], dtype=object))
    assert encoded.misfits == (level is None)
    assert encoded.codes[0] == (0 if level is None else level)


def test_numbers_are_codes_by_their_text() -> None:
    column = Domain.from_spec(
        {"icd9": TextCode(type="text-code", codes=("250.01", "401"), prefix=3)}
    )["icd9"]
    values = pd.Series([250, 250.0, 250.01, Decimal("250.10"), 401.9, 25.0], dtype=object)
    assert encode_column(column, values).codes.tolist() == [0, 0, 0, 0, 1, 0]
    assert encode_column(column, values).outside == 1
    assert encode_column(column, pa.array([250, 401, 40], pa.int64())).outside == 1


def given_as(
    kind: str, values: list[str | None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The column as a source of each kind, for `Read`."""
    if kind == "csv":
        return {"text": "\n".join(["diagnosis", *(v or "" for v in values), ""])}
    if kind == "sql":
        with sqlite3.connect(folder / "s.db") as connection:
            connection.execute("create table t (diagnosis)")
            connection.executemany("insert into t values (?)", [(v,) for v in values])
        connection.close()
        monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{folder / 's.db'}")
        return {"source": SqlSource(kind="sql", url_env="TEST_DB_URL", query="select * from t")}
    pq.write_table(pa.table({"diagnosis": pa.array(values, pa.string())}), folder / "t.parquet")
    levels_only = kind == "batches"
    return {"source": ParquetSource(kind="parquet", path="t.parquet", levels_only=levels_only)}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_levels_and_keeps_no_whole_code(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    values = ["E11.9", "I10.9", "E11.42", None, "E1", "E11"]
    table = read(**given_as(kind, values, tmp_path, monkeypatch), domain=DOMAIN)
    assert table.codes[:, 0].tolist() == [1, 0, 1, 3, 2, 1]
    if kind != "batches":
        kept = table.frame["diagnosis"].fillna("none").tolist()
        assert kept == ["E11", "I10", "E11", "none", "E1", "E11"]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_code_that_begins_like_none_is_a_misfit(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source = given_as(kind, ["E11.9", "Z99.zq-canary"], tmp_path, monkeypatch)
    with pytest.raises(DataError, match="outside the declared domain") as caught:
        read(**source, domain=DOMAIN)
    assert "canary" not in str(caught.value)
    assert "codes are compared letter by letter, by their first" in str(caught.value.hint)
    table = read(**source, domain=DOMAIN, out_of_domain="clamp")
    assert table.codes[:, 0].tolist() == [1, 0]
    assert table.misfits["diagnosis"]["outside the domain"] == 1


def test_pairs_of_values_change_nothing_in_each_other() -> None:
    assert pair_domain()["code"].type == "text-code"
    values = ["E11", "1.5", 1.5, "true", True, "0001", 9007, 2**53 + 1, "2020-05", "nan", None]
    found = replay_values(
        ways=["objects of a database"], values=values, rng=np.random.default_rng(3)
    )
    assert found.findings == () and found.pairs == len(values) ** 2


def test_files_hold_the_prefixes_with_their_types(tmp_path: Path) -> None:
    codes = np.array([1, 0, 3, 2], dtype=np.uint16)
    values = decode_column(COLUMN, codes, rng=np.random.default_rng(1))
    assert values.fillna("none").tolist() == ["E11", "I10", "none", "E1"]
    assert encode_column(COLUMN, values).codes.tolist() == codes.tolist()
    kind = column_kind(ICD)
    assert kind.frictionless(ICD) == {
        "type": "string",
        "categories": ["I10", "E11", "E1"],
        "categoriesOrdered": False,
        "constraints": {"enum": ["I10", "E11", "E1"]},
    }
    assert kind.croissant(ICD) == "sc:Text"
    assert kind.in_words(ICD, most=2) == "I10, E11 and 1 more (the first 3 characters of a code)"
    csv = tmp_path / "t.csv"
    csv.write_text('diagnosis\nE11\nI10\n""\nE1\n')
    (group,) = row_groups(csv, {"diagnosis": ICD})
    assert str(group.schema.field("diagnosis").type).startswith("dictionary<values=string")
    assert group.to_pydict() == {"diagnosis": ["E11", "I10", None, "E1"]}
    csv.write_text("diagnosis\nE11.9\n")
    with pytest.raises(ValueError, match="none of its column's categories"):
        list(row_groups(csv, {"diagnosis": ICD}))


def test_a_column_is_set_by_a_level_or_by_a_whole_code() -> None:
    do, given = settings_of(["diagnosis=E11"], [], DOMAIN)
    assert (do["diagnosis"].level, do["diagnosis"].value, given) == (1, None, {})
    assert settings_of([], ["diagnosis=E11.9"], DOMAIN)[1]["diagnosis"].level == 1
    assert settings_of([], ["diagnosis=missing"], DOMAIN)[1]["diagnosis"].level == 3
