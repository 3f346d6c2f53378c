"""Each row by itself, end to end, from every store; what is wrong with a source is told."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.errors import DataError
from synthdp.privacy.table import Table
from tests.privacy.conftest import STORES, Read, by_id, domain_from, reader_in
from tests.privacy.test_source import DOMAIN, GOOD, HEADER

Stored = Callable[..., dict[str, Any]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return partial(reader_in(tmp_path), domain=DOMAIN)


# --- one row never changes how others are read ---

DAYS = {"type": "datetime", "lower": "2000-01-01", "upper": "2030-12-31", "bins": 8}
DATES = domain_from({"day": DAYS | {"missing": True}})
WHOLE = ("9007199254740993", "9007199254740995")  # one for floating point, next to 2^53
CODED = domain_from({"code": {"type": "categorical", "categories": WHOLE, "missing": True}})
FILES = [kind for kind in STORES if kind != "dataframe"]


def counts(table: Table) -> list[int]:
    return np.bincount(table.codes[:, 0], minlength=10).tolist()


@pytest.mark.parametrize("kind", FILES)
def test_seven_digits_of_a_second_change_no_other_date(
    read: Read, stored: Stored, kind: str
) -> None:
    """A row more moves one count by one; a unit of time for the whole column moved 1,801."""
    shared, added = ["9999-12-31"] * 90 + ["2015-05-05"] * 10, "2015-05-05T00:00:00.0000001"
    for values, tens in ((shared, 10), ([*shared, added], 11)):
        rows = stored(kind, {"day": values}, pa.string())
        found = counts(read(**rows, domain=DATES, out_of_domain="clamp"))
        assert found == [0, 0, 0, tens, 0, 0, 0, 90, 0, 0]


def test_what_fits_alone_fits_together(read: Read) -> None:
    """No row chooses the unit of time that others are read in."""
    wide, odd = domain_from({"day": DAYS | {"upper": "9999-12-31"}}), "2015-05-05T00:00:00.0000001"
    for rows in (["9999-12-31"], [odd], ["9999-12-31", odd]):
        assert len(read("\n".join(["day", *rows, ""]), domain=wide).codes) == len(rows)


@pytest.mark.parametrize("kind", ["parquet", "batches", "sql"])
@pytest.mark.parametrize("added", [None, 7])
def test_huge_codes_beside_a_missing_one_stay_what_they_are(
    read: Read, stored: Stored, kind: str, added: int | None
) -> None:
    """With a misfit too: where batches once took another way."""
    values = [int(WHOLE[0])] * 5 + [int(WHOLE[1])] * 95 + [None, added]
    table = read(**stored(kind, {"code": values}, pa.int64()), domain=CODED, out_of_domain="clamp")
    assert counts(table)[:3] == ([5, 95, 2] if added is None else [6, 95, 1])


def test_huge_ids_of_sqlite_stay_apart_beside_a_real_one(read: Read, stored: Stored) -> None:
    ids = [2**53 + 1] * 3 + [2**53 + 3] * 3 + [0.5]
    rows = stored("sql", {"person": ids, "code": [int(WHOLE[0])] * 7})
    assert len(read(**rows, domain=CODED, unit=by_id(3)).codes) == 7


def test_one_person_is_one_unit_however_the_id_is_spelt(read: Read) -> None:
    ids = ("1", "1.0", " 1", "01", "2", "A", "a")
    text = "person," + HEADER + "".join(f"{i},f,true,3,1,2020-01-01\n" for i in ids)
    assert len(read(text, unit=by_id(1)).codes) == 4
    with pytest.raises(DataError, match="missing ids"):
        read(text + '"  ",f,true,3,1,2020-01-01\n', unit=by_id(1))


@pytest.mark.parametrize("handling", ["refuse", "clamp"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_row_is_a_line(read: Read, handling: str, end: str) -> None:
    """A quotation mark that opens in one row and closes in another took all rows between them."""
    letter = {"type": "categorical", "categories": ["v", "y", "z"]}
    letters = domain_from({"a": letter, "b": letter})
    rows = ["a,b", *["z,v"] * 20, 'z,v"', "y,y"]
    assert len(read(end.join([*rows, ""]), domain=letters, out_of_domain="clamp").codes) == 22
    for quoted in ([*rows[:1], 'y,"y', *rows[1:]], [*rows, 'y,"y'], ["a,b", 'y,"y', 'v"', "z,z"]):
        with pytest.raises(DataError, match="a value of column 'b' holds a line break"):
            read(end.join([*quoted, ""]), domain=letters, out_of_domain=handling)


@pytest.mark.parametrize("kind", FILES)
def test_a_table_of_one_over_delta_rows_is_refused(read: Read, stored: Stored, kind: str) -> None:
    """Delta is checked against the declared rows by `validate`, and against the true ones here."""
    rows = stored(kind, {"code": [int(WHOLE[0])] * 10}, pa.int64())
    with pytest.raises(DataError, match="1 / delta = 10 rows or more"):
        read(**rows, domain=CODED, delta=0.1)
    assert len(read(HEADER + GOOD * 4, delta=0.1).codes) == 8


# --- folders of Parquet files ---

CODES = domain_from(
    {"code": {"type": "categorical", "categories": ["01", "02", "9x"], "missing": True}}
)


def folder_of(path: Path, files: dict[str, pa.Table]) -> None:
    for name, table in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path / name)


@pytest.mark.parametrize("levels_only", [False, True])
def test_names_of_folders_are_no_columns(read: Read, tmp_path: Path, levels_only: bool) -> None:
    """Their types would follow from all names: one folder more changed what all others were."""
    source = {"kind": "parquet", "path": "p", "levels_only": levels_only}
    rows = {"code=01/a.parquet": 9, "code=02/a.parquet": 1, "code=9x/a.parquet": 1}
    folder_of(tmp_path / "p", {name: pa.table({"n": [0] * count}) for name, count in rows.items()})
    with pytest.raises(DataError, match="none of the declared columns"):
        read(source=source, domain=CODES, out_of_domain="clamp")


@pytest.mark.parametrize("levels_only", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        pa.table({"code": pa.array([1], pa.int64())}),
        pa.table({"code": ["02"], "more": ["x"]}),
        pa.table({"more": ["x"]}),
    ],
    ids=["another type", "a column more", "a column less"],
)
def test_files_of_a_folder_have_one_schema(
    read: Read, tmp_path: Path, other: pa.Table, levels_only: bool
) -> None:
    """Else one file would decide how the values of another are read."""
    source = {"kind": "parquet", "path": "p", "levels_only": levels_only}
    folder_of(
        tmp_path / "p",
        {"0.parquet": pa.table({"code": ["01", "01"]}), "1.parquet": pa.table({"code": ["02"]})},
    )
    assert counts(read(source=source, domain=CODES))[:3] == [2, 1, 0]
    folder_of(tmp_path / "p", {"2.parquet": other})
    with pytest.raises(DataError, match="differ in the names, order or types of their columns"):
        read(source=source, domain=CODES, out_of_domain="clamp")


@pytest.mark.parametrize("levels_only", [False, True])
def test_dictionaries_of_any_index_and_texts_that_are_none(
    read: Read, tmp_path: Path, levels_only: bool
) -> None:
    """A text that is not in UTF-8 is a misfit of its row; unsigned positions are positions."""
    source = {"kind": "parquet", "path": "t.parquet", "levels_only": levels_only}
    places = pa.array([0, 1, 1, None], pa.uint8())
    coded = pa.DictionaryArray.from_arrays(places, ["01", "02"])
    pq.write_table(pa.table({"code": coded}), tmp_path / "t.parquet")
    assert counts(read(source=source, domain=CODES))[:4] == [1, 2, 0, 1]
    broken = pa.StringArray.from_buffers(
        3, pa.array([0, 2, 4, 5], pa.int32()).buffers()[1], pa.py_buffer(b"0202\xff")
    )
    pq.write_table(pa.table({"code": broken}), tmp_path / "t.parquet")
    assert counts(read(source=source, domain=CODES, out_of_domain="clamp"))[:4] == [1, 2, 0, 0]


# --- what is wrong is told as what it is ---


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1.0,true,3,1,2020-02-01", "categories are compared letter by letter (1.0 is not 1)"),
        ("f,true,3.5,1,2020-02-01", "integers are read as 1200, and have no fraction"),
        ('"f\n",true,3,1,2020-02-01', "holds a line break"),
        ("f,true,3,1,2020-01-01T00:30:00+02:00", "in full and without a zone"),
        ("f,true,3", "a row has more or fewer fields than the first line"),
    ],
)
def test_the_hint_is_about_what_does_not_fit(read: Read, row: str, told: str) -> None:
    with pytest.raises(DataError) as caught:
        read(HEADER + row + "\n")
    assert told in str(caught.value) and ("letter by letter" in str(caught.value)) == (
        "letter" in told
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress((HEADER + GOOD).encode(), mtime=0), "it is compressed"),
        ((HEADER + GOOD).encode("utf-16"), "it is in UTF-16 or UTF-32"),
        ((HEADER + GOOD).replace("f,", "\xe9,").encode("latin-1"), "a text is not in UTF-8"),
        ((HEADER + GOOD).replace("sex", "s\xe9x").encode("latin-1"), "its first line is not in"),
    ],
)
def test_files_that_are_no_text_are_told_so(read: Read, data: bytes, told: str) -> None:
    with pytest.raises(DataError, match=r"cannot read 't\.csv' as csv: ") as caught:
        read(data)
    assert told in str(caught.value) and "UTF-8" in str(caught.value)


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_text_that_is_not_in_utf8_is_a_misfit_of_its_row_under_clamp(
    read: Read, decimal: str
) -> None:
    """As in Parquet: it does not decide whether the others are read."""
    source = {"kind": "csv", "path": "t.csv", "decimal": decimal}
    odd = "\xe9," * 4 + "\xe9\n"
    data = (HEADER + GOOD + odd + GOOD).encode("latin-1")
    table, alone = (read(d, source=source, out_of_domain="clamp") for d in (data, HEADER + GOOD))
    rows, good = table.codes.tolist(), alone.codes.tolist()
    assert rows[: len(good)] == rows[len(good) + 1 :] == good
    found, known = ({n: sum(m.values()) for n, m in t.misfits.items()} for t in (table, alone))
    assert found == {name: 2 * misfits + 1 for name, misfits in known.items()}


ASKED = {"kind": "sql", "url_env": "TEST_DB_URL"}


@pytest.mark.parametrize(
    ("url", "query", "told"),
    [
        ("postgresql+psycopg://me:pw@127.0.0.1:1/d", "select 1", "TEST_DB_URL does not answer"),
        ("no address", "select 1", "the URL in TEST_DB_URL cannot be read"),
        ("nosuch://me:pw@h/d", "select 1", "the URL in TEST_DB_URL cannot be read"),
        ("sqlite://", "select strange from nowhere", "the database refuses the query"),
        ("sqlite://", "select 1; select 2", "the database refuses the query"),
        ("sqlite://", "select ' :a' as sex", "write a colon inside a text as \\:"),
        ("sqlite://", "pragma user_version = 1", "gives no rows"),
        ("sqlite://", "select 1 as sex, 2 as sex", "two columns of the table have the same name"),
    ],
)
def test_what_is_wrong_with_a_query_is_told(
    read: Read, monkeypatch: pytest.MonkeyPatch, url: str, query: str, told: str
) -> None:
    monkeypatch.setenv("TEST_DB_URL", url)
    with pytest.raises(DataError) as caught:
        read(source=ASKED | {"query": query})
    assert (
        told in str(caught.value)
        and "file" not in str(caught.value)
        and "pw" not in str(caught.value)
    )
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_values_of_sqlite_are_read_one_by_one(read: Read, stored: Stored) -> None:
    """A column of SQLite holds values of any type: each has the level that it would have alone."""
    values = [1, 1.0, "1", "01", b"1", None, 0.5, 2**62, "x"]
    words = ["1", "01", "0.5", "x"]
    column = domain_from({"code": {"type": "categorical", "categories": words, "missing": True}})
    table = read(**stored("sql", {"code": values}), domain=column, out_of_domain="clamp")
    assert table.codes[:, 0].tolist() == [0, 0, 0, 1, 0, 4, 2, 0, 3]


def test_a_query_without_end_is_stopped(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DB_URL", "sqlite://")
    numbers = "with recursive n(i) as (select 1 union all select i + 1 from n)"
    source = ASKED | {"query": f"{numbers} select '1' as code from n"}
    with pytest.raises(DataError, match="1 / delta"):
        read(source=source, domain=CODED, delta=1e-5)
