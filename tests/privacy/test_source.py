"""The only reader of rows: what it lets in, how it bounds units, and that its errors hold no
value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.errors import DataError
from synthdp.privacy import source
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec.model import (
    Boolean,
    Categorical,
    Column,
    CsvSource,
    Dataset,
    Datetime,
    DeclaredRows,
    IdUnit,
    Integer,
    Number,
    ParquetSource,
    RowUnit,
    SqlSource,
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
HEADER = "sex,ill,age,pay,day\n"
GOOD = "f,true,3,1.5,2020-02-01\nm,,99,,\n"

Read = Callable[..., Table]


def reader_in(tmp_path: Path) -> Read:
    """Write `text` and read it back through the kernel, past the seal."""

    def reader(
        text: str | bytes = "",
        *,
        unit: Any = None,
        holdout: float = 0.0,
        rows: Any = None,
        domain: Domain = DOMAIN,
        delta: float = 0.0,
        **dataset: Any,
    ) -> Table:
        path = tmp_path / "t.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        source = dataset.pop("source", CsvSource(kind="csv", path="t.csv"))
        described = Dataset(
            id="d",
            source=source,
            privacy_unit=unit or RowUnit(kind="row", meaning="one visit"),
            rows=rows or DeclaredRows(kind="approximate", value=100),
            **dataset,
        )
        return read_private(
            described,
            domain,
            folder=tmp_path,
            holdout=holdout,
            streams=Streams.fresh(),
            delta=delta,
        ).unseal(key=_KERNEL_KEY)

    return reader


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return reader_in(tmp_path)


def by_id(max_rows: int) -> IdUnit:
    return IdUnit(kind="id", column="person", max_rows=max_rows, meaning="one person")


# --- values ---


def test_good_rows_become_levels_and_clean_values(read: Read) -> None:
    table = read(HEADER + GOOD)
    assert table.codes.dtype == np.uint16
    assert table.codes[0, 0] == 0 and table.codes[1, 0] == 1
    assert list(table.codes[1, [1, 3, 4]]) == [
        DOMAIN[c].missing_level for c in ("ill", "pay", "day")
    ]
    assert table.frame["age"].tolist() == [3, 99]
    assert np.isnan(table.frame["pay"][1])
    assert all(count == 0 for kinds in table.misfits.values() for count in kinds.values())


@pytest.mark.parametrize(
    ("row", "column", "kind"),
    [
        ("x,true,3,1,2020-02-01", "sex", "outside the domain"),
        ("f,true,100,1,2020-02-01", "age", "outside the domain"),
        ("f,true,1e400,1,2020-02-01", "age", "outside the domain"),
        ("f,true,3.5,1,2020-02-01", "age", "wrong type"),
        ("f,true,,1,2020-02-01", "age", "unexpected missing"),
        ("f,true,3,inf,2020-02-01", "pay", "outside the domain"),
        ("f,true,3,-1e300,2020-02-01", "pay", "outside the domain"),
        ("f,true,3,nan,2020-02-01", "pay", "wrong type"),
        ("f,true,3,1,2021-01-01", "day", "outside the domain"),
        ("f,true,3,1,soon", "day", "wrong type"),
    ],
)
def test_misfits_are_refused_or_clamped_and_counted(
    read: Read, row: str, column: str, kind: str
) -> None:
    with pytest.raises(DataError, match=f"outside the declared domain in column '{column}'"):
        read(HEADER + GOOD + row + "\n")
    table = read(HEADER + GOOD + row + "\n", out_of_domain="clamp")
    assert table.misfits[column][kind] == 1
    assert (table.codes < np.array(DOMAIN.sizes)).all()
    numbers = table.frame[["age", "pay"]].astype(float)
    assert numbers["age"].between(0, 99).all()
    assert numbers["pay"].dropna().between(-5, 5).all()


def test_negative_zero_is_zero(read: Read) -> None:
    plus, minus = (read(HEADER + f"f,true,{zero},{zero}.0,2020-01-01\n") for zero in ("0", "-0"))
    assert np.array_equal(plus.codes, minus.codes)


NASTY = [
    "",
    "0",
    "-0",
    "1",
    "1.5",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "x",
    "true",
    "2020-01-01",
    "2020-01-01T10:00:00",
    "2020-01-01T00:00:00Z",
    "2020-05-05T00:00:00+02:00",
    "99999-01-01",
    "1577836800",
    "20200101",
    "18446744073709551616",
    "-1",
    "9007199254740993",
    "0x10",
    "1_000",
    " 2 ",
    "f",
    "m",
    "é",
    "\u0661",
]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(*[st.sampled_from(NASTY)] * 5), min_size=2, max_size=5))
def test_each_row_is_encoded_by_itself(rows: list[tuple[str, ...]]) -> None:
    """Neighbours stay neighbours only if no row changes what another becomes (formats guessed from
    a column would).
    """
    frame = pd.DataFrame(rows, columns=list(DOMAIN.names), dtype="str").replace("", None)
    together, _ = encode(DOMAIN, frame)
    alone = np.concatenate(
        [encode(DOMAIN, frame.iloc[i : i + 1].reset_index(drop=True))[0] for i in range(len(frame))]
    )
    assert np.array_equal(together, alone)


# --- headers and files ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sex,ill,age,pay\nf,true,3,1\n", "missing column 'day'"),
        ("sex,ill,age,pay,day,name\nf,true,3,1,2020-01-01,x\n", "undeclared column in place 6"),
        ("sex,ill,age,age,pay,day\nf,true,3,3,1,2020-01-01\n", "at positions 3, 4"),
        ("", "none of the declared columns"),
        (HEADER + "f,true,3,1\n", "cannot read 't.csv' as csv"),
        (HEADER + "f,true,3,1,2020-01-01,surplus\nf,true\n", "cannot read 't.csv' as csv"),
        (HEADER.encode() + b"\xff\xfe,true,3,1,2020-01-01\n", "cannot read 't.csv' as csv"),
        ("f,true,3,1,2020-01-01\nm,true,4,1,2020-01-01\n", "none of the declared columns"),
    ],
)
def test_tables_that_do_not_fit_are_refused(read: Read, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(text)


def test_byte_order_mark_and_delimiter_and_missing_texts(read: Read) -> None:
    text = "\ufeff" + (HEADER + "f,true,3,NA,NA\n").replace(",", ";")
    table = read(
        text, source=CsvSource(kind="csv", path="t.csv", delimiter=";", missing_values=("NA",))
    )
    assert table.codes[0, 3] == DOMAIN["pay"].missing_level


def test_a_table_of_one_row(read: Read) -> None:
    table = read(HEADER + GOOD.splitlines(keepends=True)[0], holdout=0.5)
    assert table.codes.shape == (1, 5)
    assert table.fit_codes.shape[1] == 5
    assert len(table.frame) == 1


def test_a_table_of_no_rows_is_the_wrong_one(read: Read) -> None:
    with pytest.raises(DataError, match="the table has no rows") as caught:
        read(HEADER)
    assert "that its export was finished" in str(caught.value)


def test_missing_file_is_named(read: Read) -> None:
    with pytest.raises(DataError, match=r"no file 'gone\.csv'"):
        read(HEADER, source=CsvSource(kind="csv", path="gone.csv"))


def test_public_row_count_must_be_true_and_is_not_told(read: Read) -> None:
    read(HEADER + GOOD, rows=DeclaredRows(kind="public", value=2))
    with pytest.raises(DataError, match="declares 77 rows") as caught:
        read(HEADER + GOOD, rows=DeclaredRows(kind="public", value=77))
    assert "2" not in str(caught.value)


BROKEN = {
    "no header": f"{CANARY},true,3,1,2020-01-01\n",
    "no header, repeated": f"{CANARY},{CANARY},3,1,2020-01-01\n",
    "category": HEADER + f"{CANARY},true,3,1,2020-01-01\n",
    "number": HEADER + f"f,true,{CANARY},{CANARY},2020-01-01\n",
    "date": HEADER + f"f,true,3,1,{CANARY}\n",
    "too long": HEADER + f"f,true,3,1,2020-01-01\nf,true,3,1,2020-01-01,{CANARY}\n",
    "quote": HEADER + f'f,true,3,1,"{CANARY}\n',
    "nul": HEADER + f"f,true,3,1,\0{CANARY}\n",
    "missing id": f"person,{HEADER}{CANARY},f,true,3,1,2020-01-01\n,f,true,3,1,2020-01-01\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_errors_hold_no_value_of_the_table(
    read: Read, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError) as caught:
        read(BROKEN[kind], unit=by_id(2) if kind == "missing id" else None)
    text = str(caught.value) + repr(caught.value) + "".join(capfd.readouterr())
    assert CANARY not in text
    assert caught.value.__cause__ is None and (
        caught.value.__context__ is None or caught.value.__suppress_context__
    )


def test_failure_inside_a_conversion_holds_no_value(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError(CANARY)

    monkeypatch.setattr("synthdp.privacy.source.encode", fail)
    with pytest.raises(DataError, match="ValueError") as caught:
        read(HEADER + GOOD)
    assert CANARY not in str(caught.value)


# --- units ---


def people(counts: dict[str, int]) -> str:
    """Each row of a person has an age of its own, so that the choice can be seen."""
    rows = [f"{person},f,true,{i},1,2020-01-01" for person, n in counts.items() for i in range(n)]
    return "person," + HEADER + "\n".join(rows) + "\n"


def test_units_keep_at_most_max_rows_and_lose_their_ids(read: Read) -> None:
    table = read(people({"p": 5, "q": 2, "r": 1}), unit=by_id(2))
    assert len(table.codes) == 2 + 2 + 1
    assert "person" not in table.frame.columns
    assert len(read(people({"p": 5}), unit=by_id(64)).codes) == 5


@pytest.mark.check
def test_choice_of_rows_is_uniform(read: Read) -> None:
    kept = np.zeros(4)
    for _ in range(100):
        kept[read(people({"p": 4}), unit=by_id(2)).frame["age"].to_numpy()] += 1
    assert (abs(kept - 50) < 6 * np.sqrt(25)).all()


def test_units_are_held_out_whole(read: Read) -> None:
    seen = set()
    for _ in range(40):
        table = read(people({"p": 3, "q": 3}), unit=by_id(3), holdout=0.5)
        assert table.held_out.sum() in (0, 3, 6)
        assert len(table.fit_codes) == 6 - table.held_out.sum()
        seen.add(int(table.held_out.sum()))
    assert seen == {0, 3, 6}


def test_rows_are_held_out_by_independent_coins(read: Read) -> None:
    share = np.mean([read(HEADER + GOOD * 50, holdout=0.2).held_out.mean() for _ in range(10)])
    assert abs(share - 0.2) < 6 * np.sqrt(0.16 / 1000)
    assert not read(HEADER + GOOD, holdout=0.0).held_out.any()


# --- other sources ---


def test_parquet_gives_the_same_levels(read: Read, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "sex": ["f", "m"],
            "ill": [True, None],
            "age": [3, 99],
            "pay": [1.5, np.nan],
            "day": pd.to_datetime(["2020-02-01", None]),
        }
    )
    frame.astype({"sex": "category"}).to_parquet(tmp_path / "t.parquet")
    table = read("", source=ParquetSource(kind="parquet", path="t.parquet"))
    assert np.array_equal(table.codes, read(HEADER + GOOD).codes)


def hard_frame(rows: int) -> pd.DataFrame:
    """Every kind of column, with missing values and, on request, misfits."""
    rng = np.random.default_rng(rows)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], rows),
            "ill": rng.choice(np.array([True, False, None], dtype=object), rows),
            "age": rng.integers(0, 100, rows),
            "pay": np.where(rng.random(rows) < 0.2, np.nan, rng.uniform(-5, 5, rows)),
            "day": (
                pd.Series(
                    pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), "D")
                ).where(rng.random(rows) < 0.9)
            ),
        }
    )


LEVELS_ONLY = ParquetSource(kind="parquet", path="t.parquet", levels_only=True)


@pytest.mark.parametrize("bad", [{}, {"sex": "x"}, {"sex": None}, {"age": 200}, {"pay": 7.0}])
def test_levels_only_gives_the_same_levels_and_misfits_batch_by_batch(
    bad: dict[str, Any], read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BATCH_ROWS", 64)
    frame = hard_frame(1_000)
    for name, value in bad.items():
        frame.loc[[3, 500, 501], name] = value
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    whole = read("", source=ParquetSource(kind="parquet", path="t.parquet"), out_of_domain="clamp")
    streamed = read("", source=LEVELS_ONLY, out_of_domain="clamp")
    assert np.array_equal(whole.codes, streamed.codes) and streamed.codes.dtype == np.uint8
    assert whole.misfits == streamed.misfits and len(streamed.held_out) == 1_000
    if bad:
        with pytest.raises(DataError, match="outside the declared domain in column '"):
            read("", source=LEVELS_ONLY, out_of_domain="refuse")


def test_levels_only_reads_folders_refuses_ids_and_quotes_nothing(
    read: Read, tmp_path: Path
) -> None:
    (tmp_path / "many").mkdir()
    for i in range(3):
        hard_frame(50).to_parquet(tmp_path / "many" / f"{i}.parquet")
    folder = ParquetSource(kind="parquet", path="many", levels_only=True)
    assert read("", source=folder).codes.shape == (150, 5)
    with pytest.raises(DataError, match="has a row as its unit"):
        read("", source=LEVELS_ONLY, unit=by_id(2))
    with pytest.raises(DataError, match="another number"):
        read("", source=folder, rows=DeclaredRows(kind="public", value=149))
    (tmp_path / "t.parquet").write_text(CANARY)
    with pytest.raises(DataError, match="as parquet") as caught:
        read("", source=LEVELS_ONLY)
    assert CANARY not in str(caught.value)


def test_sql_url_comes_from_the_environment(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute(
            "create table t (sex text, ill text, age integer, pay real, day text, name text)"
        )
        connection.execute(
            "insert into t values ('f','true',3,1.5,'2020-02-01','x'), ('m',null,99,null,null,'y')"
        )
    connection.close()
    source = SqlSource(
        kind="sql",
        url_env="TEST_DB_URL",
        query="select sex, ill, age, pay, day from t order by age",
    )
    monkeypatch.delenv("TEST_DB_URL", raising=False)
    with pytest.raises(DataError, match="TEST_DB_URL is not set"):
        read("", source=source)
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 's.db'}")
    assert np.array_equal(read("", source=source).codes, read(HEADER + GOOD).codes)


def test_sql_errors_hold_neither_password_nor_rows(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SqlSource(kind="sql", url_env="TEST_DB_URL", query=f"select '{CANARY}' from nowhere")
    for url in (
        "sqlite://",
        f"postgresql+psycopg://me:{CANARY}@127.0.0.1:1/d",
        f"nosuch://me:{CANARY}@h/d",
    ):
        monkeypatch.setenv("TEST_DB_URL", url)
        with pytest.raises(DataError, match=r"TEST_DB_URL|the query of dataset\.source") as caught:
            read("", source=source)
        assert CANARY not in str(caught.value)


def test_a_row_keeps_its_values_wherever_it_stands(read: Read) -> None:
    """Also dates: one drawn inside its bin by the row's place would be another date when a row
    before it is taken out.
    """
    rows = ["f,true,3,1.5,2020-02-03", "m,,99,,2020-11-30", "m,false,0,-0,"]
    table = read(HEADER + "\n".join(rows) + "\n").frame
    assert [str(d) for d in table["day"]] == ["2020-02-03 00:00:00", "2020-11-30 00:00:00", "NaT"]
    alone = pd.concat([read(f"{HEADER}{row}\n").frame for row in rows], ignore_index=True)
    pd.testing.assert_frame_equal(table, alone)
    assert not np.signbit(table["pay"]).any()


def test_what_cannot_be_read_has_the_value_of_its_level(read: Read) -> None:
    table = read(HEADER + "f,true,3,x,soon\n", out_of_domain="clamp")
    assert table.frame["pay"][0] == -5 and str(table.frame["day"][0])[:10] == "2020-01-01"
    assert table.codes[0, 3] == 0 and table.codes[0, 4] == 0
