"""The only reader of rows: what it lets in, how it bounds units; errors hold no value."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from synthdp.data import encode
from synthdp.errors import BoundaryError, DataError, SpecError
from synthdp.privacy import source
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.spec import check
from tests.audit.reading_pairs import NASTY
from tests.builders import build_spec
from tests.privacy.conftest import STORES, Read, by_id, domain_from, reader_in

CANARY = "zq-canary-9182"
DOMAIN = domain_from(
    {
        "sex": {"type": "categorical", "categories": ["f", "m"]},
        "ill": {"type": "boolean", "missing": True},
        "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 10, "spikes": [0]},
        "pay": {"type": "number", "lower": -5, "upper": 5, "bins": 4, "missing": True},
        "day": {"type": "datetime", "lower": "2020-01-01", "upper": "2020-12-31", "bins": 4}
        | {"missing": True},
    }
)
HEADER = "sex,ill,age,pay,day\n"
GOOD = "f,true,3,1.5,2020-02-01\nm,,99,,\n"
TEXTS = {
    "sex": ["f", "m", "m"],
    "ill": ["true", None, "false"],
    "age": ["3", "99", "0"],
    "pay": ["1.5", None, "-5"],
    "day": ["2020-02-01", None, "2020-12-31T10:30:00"],
}
TYPED = pd.DataFrame(
    {
        "sex": pd.Categorical(["f", "m", "m"]),
        "ill": pd.array([True, None, False], dtype="boolean"),
        "age": np.array([3, 99, 0], dtype=np.int32),
        "pay": [1.5, np.nan, -5.0],
        "day": pd.to_datetime(["2020-02-01T00:00:00", None, "2020-12-31T10:30:00"]),
    }
)
Stored = Callable[..., dict[str, Any]]
LEVELS_ONLY = {"kind": "parquet", "path": "t.parquet", "levels_only": True}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return partial(reader_in(tmp_path), domain=DOMAIN)


# --- values ---


def test_good_rows_become_levels_and_clean_values(read: Read) -> None:
    table = read(HEADER + GOOD)
    assert table.codes.dtype == np.uint16
    assert table.codes[0, 0] == 0 and table.codes[1, 0] == 1
    missing = [DOMAIN[c].missing_level for c in ("ill", "pay", "day")]
    assert list(table.codes[1, [1, 3, 4]]) == missing
    assert table.frame["age"].tolist() == [3, 99] and np.isnan(table.frame["pay"][1])
    assert all(count == 0 for kinds in table.misfits.values() for count in kinds.values())


@pytest.mark.parametrize("kind", STORES)
def test_every_source_gives_the_same_levels(read: Read, stored: Stored, kind: str) -> None:
    wanted = read(given=pd.DataFrame(TEXTS, dtype="str"))
    found = read(**stored(kind, TEXTS))
    assert np.array_equal(found.codes, wanted.codes)
    assert kind == "batches" or found.frame.equals(wanted.frame)


@pytest.mark.parametrize(
    "frame",
    [
        TYPED,
        TYPED.astype(object),
        TYPED.convert_dtypes(dtype_backend="pyarrow"),
        TYPED.set_index(pd.Index([7, 7, 9])),
        TYPED[["day", "pay", "age", "ill", "sex"]],
    ],
    ids=["typed", "objects", "arrow", "any index", "any order"],
)
def test_dtypes_that_say_the_same_give_the_same_levels(
    read: Read, frame: pd.DataFrame, tmp_path: Path
) -> None:
    wanted = read(given=pd.DataFrame(TEXTS, dtype="str"))
    assert np.array_equal(read(given=frame).codes, wanted.codes)
    assert read(given=frame).frame.equals(wanted.frame)
    if frame.index.is_unique and "object" not in map(str, frame.dtypes):
        frame.to_parquet(tmp_path / "t.parquet")
        kept = read(source={"kind": "parquet", "path": "t.parquet"})
        assert np.array_equal(kept.codes, wanted.codes)


CODED: dict[str, Any] = {
    "smokes": {"type": "categorical", "categories": [0, 1], "value_labels": {0: "never"}},
    "grade": {"type": "ordinal", "categories": [1, 2, 10], "missing": True, "missing_codes": [9]},
    "age": {"type": "integer", "lower": 0, "upper": 98}
    | {"missing": True, "missing_codes": [99, -1, "refused"]},
    "pay": {"type": "number", "lower": 0, "upper": 90.5, "decimals": 1}
    | {"missing": True, "missing_codes": [-9.5]},
    "born": {"type": "datetime", "lower": "1900-01-01", "upper": "2020-01-01"}
    | {"missing": True, "missing_codes": ["9999-09-09"]},
}
CODES: dict[str, list[Any]] = {
    "smokes": [0, 1, 1, 0],
    "grade": [1, 9, 10, 2],
    "age": [99, 12, -1, 0],
    "pay": [1.5, -9.5, 3.0, 90.5],
    "born": ["1990-01-01", "9999-09-09", "2000-02-02", "2001-01-01"],
}


@pytest.mark.parametrize("whole", [int, float])
@pytest.mark.parametrize("kind", [kind for kind in STORES if kind != "batches"])
def test_codes_are_the_same_in_every_source(
    read: Read, stored: Stored, kind: str, whole: type
) -> None:
    """Whole numbers are categories, also as pandas writes them beside a missing one."""
    rows = CODES | {name: [*map(whole, CODES[name])] for name in ("smokes", "grade", "age")}
    if kind == "csv":
        rows = CODES
    domain = domain_from(CODED)
    table = read(**stored(kind, rows), domain=domain)
    assert not any(count for kinds in table.misfits.values() for count in kinds.values())
    assert table.frame["smokes"].tolist() == ["0", "1", "1", "0"]
    assert table.frame["grade"].fillna("").tolist() == ["1", "", "10", "2"]
    assert table.frame["age"].isna().tolist() == [True, False, True, False]
    pay = table.frame["pay"].to_numpy(dtype=float)
    assert np.array_equal(pay, [1.5, np.nan, 3, 90.5], equal_nan=True)
    assert table.frame["born"].isna().tolist() == [False, True, False, False]
    assert table.codes[0, 2] == table.codes[2, 2] == domain["age"].missing_level


AGES = {"type": "integer", "lower": 0, "upper": 99, "missing": True, "missing_codes": [99]}
GRADES = {"type": "ordinal", "categories": [1, 2], "missing": True, "missing_codes": [2]}
LABELLED = {"type": "categorical", "categories": [1]}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"type": "categorical", "categories": ["a"], "missing_codes": [9]}, "set missing: true"),
        (AGES, "cannot also stand for a missing one: 99"),
        (GRADES, "cannot also stand for a missing one: 2"),
        (LABELLED | {"value_labels": {1: "a", 2: "b"}}, "a label for '2', which is no category"),
    ],
)
def test_codes_that_contradict_are_refused(entry: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        check(build_spec({"x": entry}))


def test_a_label_holds_no_line_break() -> None:
    with pytest.raises(ValidationError, match="control character"):
        build_spec({"x": LABELLED | {"value_labels": {1: "a\nb"}}})


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
    assert table.frame["age"].astype(float).between(0, 99).all()
    assert table.frame["pay"].astype(float).dropna().between(-5, 5).all()


def test_negative_zero_is_zero(read: Read) -> None:
    plus, minus = (read(HEADER + f"f,true,{zero},{zero}.0,2020-01-01\n") for zero in ("0", "-0"))
    assert np.array_equal(plus.codes, minus.codes)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(*[st.sampled_from([*NASTY, "f", "m"])] * 5), min_size=2, max_size=5))
def test_each_row_is_encoded_by_itself(rows: list[tuple[str, ...]]) -> None:
    """Formats that are guessed from a column would make another row of a neighbour's."""
    frame = pd.DataFrame(rows, columns=list(DOMAIN.names), dtype="str").replace("", None)
    together, _ = encode(DOMAIN, frame)
    single = (frame.iloc[i : i + 1].reset_index(drop=True) for i in range(len(frame)))
    assert np.array_equal(together, np.concatenate([encode(DOMAIN, own)[0] for own in single]))


def test_one_value_does_not_change_what_the_others_say(read: Read) -> None:
    frame = TYPED.astype(object)
    odd = pd.concat([frame, pd.DataFrame([["x", 7, "soon", object(), 3.5]], columns=frame.columns)])
    found = read(given=odd, out_of_domain="clamp")
    assert np.array_equal(found.codes[:3], read(given=frame).codes)


def test_a_row_keeps_its_values_wherever_it_stands(read: Read) -> None:
    """One drawn inside its bin by the row's place would change where a row before it goes."""
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


# --- headers and files ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sex,ill,age,pay\nf,true,3,1\n", "missing column 'day'"),
        ("sex,ill,age,pay,day,name\nf,true,3,1,2020-01-01,x\n", "undeclared column in place 6"),
        ("sex,ill,age,age,pay,day\nf,true,3,3,1,2020-01-01\n", "at positions 3, 4"),
        ("", "none of the declared columns"),
        (HEADER, "the table has no rows.*\n.*that its export was finished"),
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
    source = {"kind": "csv", "path": "t.csv", "delimiter": ";", "missing_values": ["NA"]}
    assert read(text, source=source).codes[0, 3] == DOMAIN["pay"].missing_level


def test_a_table_of_one_row(read: Read) -> None:
    table = read(HEADER + GOOD.splitlines(keepends=True)[0], holdout=0.5)
    assert table.codes.shape == (1, 5) and table.fit_codes.shape[1] == 5 and len(table.frame) == 1


def test_missing_file_is_named(read: Read) -> None:
    with pytest.raises(DataError, match=r"no file 'gone\.csv'"):
        read(source={"kind": "csv", "path": "gone.csv"})


def test_public_row_count_must_be_true_and_is_not_told(read: Read) -> None:
    read(HEADER + GOOD, rows={"kind": "public", "value": 2})
    with pytest.raises(DataError, match="declares 77 rows") as caught:
        read(HEADER + GOOD, rows={"kind": "public", "value": 77})
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
    hidden = caught.value.__context__ is None or caught.value.__suppress_context__
    assert caught.value.__cause__ is None and hidden


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
    frame = pd.concat([TYPED.iloc[[0]]] * 5).assign(person=[1, 1.0, "1", " 01", "2"])
    assert len(read(given=frame, unit=by_id(2)).codes) == 3


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


# --- Parquet in batches, and databases ---


def hard_frame(rows: int) -> pd.DataFrame:
    """Every kind of column, with missing values."""
    rng = np.random.default_rng(rows)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), "D")
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], rows),
            "ill": rng.choice(np.array([True, False, None], dtype=object), rows),
            "age": rng.integers(0, 100, rows),
            "pay": np.where(rng.random(rows) < 0.2, np.nan, rng.uniform(-5, 5, rows)),
            "day": pd.Series(days).where(rng.random(rows) < 0.9),
        }
    )


@pytest.mark.parametrize("bad", [{}, {"sex": "x"}, {"sex": None}, {"age": 200}, {"pay": 7.0}])
def test_levels_only_gives_the_same_levels_and_misfits_batch_by_batch(
    bad: dict[str, Any], read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BATCH_ROWS", 64)
    frame = hard_frame(1_000)
    for name, value in bad.items():
        frame.loc[[3, 500, 501], name] = value
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=300)
    whole = read(source={"kind": "parquet", "path": "t.parquet"}, out_of_domain="clamp")
    streamed = read(source=LEVELS_ONLY, out_of_domain="clamp")
    assert np.array_equal(whole.codes, streamed.codes) and streamed.codes.dtype == np.uint8
    assert whole.misfits == streamed.misfits and len(streamed.held_out) == 1_000
    if bad:
        with pytest.raises(DataError, match="outside the declared domain in column '"):
            read(source=LEVELS_ONLY, out_of_domain="refuse")


def test_levels_only_reads_folders_refuses_ids_and_quotes_nothing(
    read: Read, tmp_path: Path
) -> None:
    (tmp_path / "many").mkdir()
    for i in range(3):
        hard_frame(50).to_parquet(tmp_path / "many" / f"{i}.parquet")
    folder = LEVELS_ONLY | {"path": "many"}
    assert read(source=folder).codes.shape == (150, 5)
    with pytest.raises(DataError, match="has a row as its unit"):
        read(source=LEVELS_ONLY, unit=by_id(2))
    with pytest.raises(DataError, match="another number"):
        read(source=folder, rows={"kind": "public", "value": 149})
    (tmp_path / "t.parquet").write_text(CANARY)
    with pytest.raises(DataError, match="as parquet") as caught:
        read(source=LEVELS_ONLY)
    assert CANARY not in str(caught.value)


def test_sql_url_comes_from_the_environment(
    read: Read, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select sex, ill, age, pay, day from t order by age"
    source = stored("sql", TEXTS | {"name": list("xyz")}, query=query)
    assert sorted(read(**source).codes.tolist()) == sorted(
        read(given=pd.DataFrame(TEXTS, dtype="str")).codes.tolist()
    )
    monkeypatch.delenv("TEST_DB_URL")
    with pytest.raises(DataError, match="TEST_DB_URL is not set"):
        read(**source)


@pytest.mark.parametrize(
    "url",
    ["sqlite://", f"postgresql+psycopg://me:{CANARY}@127.0.0.1:1/d", f"nosuch://me:{CANARY}@h/d"],
)
def test_sql_errors_hold_neither_password_nor_rows(
    read: Read, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    query = f"select '{CANARY}' from nowhere"
    monkeypatch.setenv("TEST_DB_URL", url)
    with pytest.raises(DataError, match=r"TEST_DB_URL|the query of dataset\.source") as caught:
        read(source={"kind": "sql", "url_env": "TEST_DB_URL", "query": query})
    assert CANARY not in str(caught.value)


# --- rows that are given from Python ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sex": [CANARY, "f", "m"]}, "outside the declared domain in column 'sex'"),
        ({"age": [CANARY, "1", "2"]}, "outside the declared domain in column 'age'"),
        ({"day": pd.to_datetime(["2020-02-01"] * 3, utc=True)}, "times with a zone"),
        ({"pay": pd.array([1j, 2j, 3j])}, "'pay' .* of type complex128, which cannot be read as"),
        ({"pay": [[CANARY], None, None]}, "outside the declared domain in column 'pay'"),
        ({"age": pd.period_range("2020", periods=3, freq="Y")}, "values of type extension"),
        ({CANARY: ["1", "2", "3"]}, "undeclared column in place 6"),
        ({7: ["1", "2", "3"]}, "undeclared column in place 6"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_value(
    read: Read, change: dict[Any, Any], message: str
) -> None:
    (name, values), frame = next(iter(change.items())), TYPED.copy()
    frame[name] = values
    with pytest.raises(DataError, match=message) as refused:
        read(given=frame)
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (TYPED.drop(columns="sex"), "missing column 'sex'"),
        (pd.concat([TYPED, TYPED[["sex"]]], axis=1), "two columns of the table have the same name"),
        (TYPED.iloc[:0], "the table has no rows"),
    ],
)
def test_columns_that_lack_and_two_of_one_name_are_refused(
    read: Read, frame: pd.DataFrame, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        read(given=frame)


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


def test_rows_and_source_must_agree(read: Read) -> None:
    with pytest.raises(DataError, match="no rows were given"):
        read(source={"kind": "dataframe"})
    with pytest.raises(DataError, match=r"a DataFrame was given, and .* is of kind csv"):
        read(given=TYPED, source={"kind": "csv", "path": "t.csv"})
