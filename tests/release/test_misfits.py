"""`synthdp inspect`: what does not fit, for the steward's eyes, and nothing that is left behind."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from synthdp import Spec
from synthdp.data import Domain
from synthdp.errors import DataError, OutputError
from synthdp.privacy import misfits_of
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import Confidential
from synthdp.privacy.source import read_private
from tests.builders import skeleton

COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "categories": ["f", "m"]},
    "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 4, "missing": True},
    "pay": {"type": "number", "lower": 0, "upper": 10, "bins": 4},
    "born": {"type": "datetime", "lower": "1900-01-01", "upper": "2020-01-01", "bins": 4},
}
ROWS = pd.DataFrame(
    {
        "sex": ["f", "F", "x", "F", None, "m"],
        "age": ["1.5", "100", "-3", "old", None, "7"],
        "pay": ["1", "1,5", "11", None, "2", "3"],
        "born": ["2000-01-01", "1/2/2000", "1899-12-31", "2000-01-01", "2001-01-01", "2002-01-01"],
    }
)
WANTED = {
    ("sex", "category"): 3,
    ("sex", "missing"): 1,
    ("age", "type"): 1,
    ("age", "fraction"): 1,
    ("age", "bound"): 2,
    ("pay", "type"): 1,
    ("pay", "bound"): 1,
    ("pay", "missing"): 1,
    ("born", "type"): 1,
    ("born", "bound"): 1,
}
JOINED = {("age", "type or fraction") if c == "age" and k != "bound" else (c, k) for c, k in WANTED}


def spec_in(folder: Path, source: dict[str, Any], **sections: Any) -> Path:
    content = skeleton(source=source) | {"columns": COLUMNS} | sections
    content["dataset"]["rows"]["kind"] = "approximate"
    content["privacy"] = {"epsilon": 1, "delta": 0.00001}
    text = yaml.safe_dump(content, sort_keys=False).replace("1.0e-05", "0.00001")
    (folder / "s.yaml").write_text(text)
    return folder / "s.yaml"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    ROWS.to_csv(tmp_path / "t.csv", index=False)
    return spec_in(tmp_path, {"kind": "csv", "path": "t.csv"})


def counts(frame: pd.DataFrame) -> dict[tuple[str, str], int]:
    return {(row.column, row.kind): row.rows for row in frame.itertuples()}


def test_misfits_are_counted_by_column_and_kind(spec: Path) -> None:
    found = Spec.load(spec).inspect()
    assert list(found) == ["column", "kind", "rows"] and counts(found) == WANTED


def test_the_commonest_values_are_shown_where_they_are_asked_for(spec: Path) -> None:
    found = Spec.load(spec).inspect(examples=True).set_index(["column", "kind"]).examples
    assert found["sex", "category"] == (("'F'", 2), ("'x'", 1))
    assert found["age", "bound"] == (("'100'", 1), ("'-3'", 1)) and found["sex", "missing"] == ()


def test_a_frame_of_typed_cells_is_inspected(spec: Path) -> None:
    rows = pd.DataFrame(
        {
            "sex": pd.Series(["f", "é"]),
            "age": pd.Series([1.5, float("nan")]),
            "pay": pd.Series([True, False]),
            "born": pd.Series(["2000-01-01", None], dtype="datetime64[s]"),
        }
    )
    with pytest.warns(UserWarning, match="'age' of the DataFrame hold whole numbers as decimals"):
        found = Spec.load(spec).inspect(rows, examples=True)
    assert counts(found) == {
        ("sex", "category"): 1, ("age", "fraction"): 1, ("born", "missing"): 1,
    }  # fmt: skip
    assert found.examples[1] == (("1.5", 1),)


@pytest.mark.parametrize("engine", ["arrow", "levels only", "sql"])
def test_engines_count_by_their_survey(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: dict[str, Any] = {"kind": "parquet", "path": "t.parquet"}
    compute: dict[str, Any] = {"engine": engine}
    if engine == "sql":
        with sqlite3.connect(tmp_path / "t.db") as connection:
            ROWS.to_sql("t", connection, index=False)
        monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 't.db'}")
        source = {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from t"}
    else:
        pq.write_table(pa.Table.from_pandas(ROWS), tmp_path / "t.parquet")
    if engine == "levels only":
        source, compute = source | {"levels_only": True}, {}
    off = {"evaluation": {"enabled": False}, "attacks": {"membership": {"enabled": False}}}
    path = spec_in(tmp_path, source, compute=compute, graph={"mode": "predict"}, **off)
    found = Spec.load(path)
    assert set(counts(found.inspect())) == JOINED
    assert sum(counts(found.inspect()).values()) == sum(WANTED.values())
    with pytest.raises(OutputError, match="examples are shown of rows that are read into memory"):
        found.inspect(examples=True)


def test_the_command_says_what_it_is_and_leaves_nothing_behind(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synthdp: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    shown = synthdp("inspect", spec, "--examples").out
    assert shown.startswith("outside the guarantee; for your eyes; do not publish\n")
    assert "'F' (2), 'x' (1)" in shown and "none of the categories" in shown
    assert "'F'" not in synthdp("inspect", spec).out
    told = json.loads(synthdp("inspect", spec, "--json").out)
    assert told["warning"].endswith("do not publish") and len(told["misfits"]) == len(WANTED)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_file_of_it_is_its_owner_s(spec: Path, tmp_path: Path, synthdp: Any) -> None:
    out = tmp_path / "misfits.txt"
    out.write_text("older")
    out.chmod(0o644)
    done = synthdp("inspect", spec, "--out", out)
    assert done.code == 0 and out.stat().st_mode & 0o777 == 0o600
    text = out.read_text()
    assert text in done.out and text.startswith("outside the guarantee") and "older" not in text
    assert "for its owner alone: outside the guarantee" in done.out + done.err
    assert "choose another with --out" in synthdp("inspect", spec, "--out", tmp_path).err


def test_a_table_that_fits_is_said_to_fit(tmp_path: Path, synthdp: Any) -> None:
    ROWS.iloc[[5, 5]].to_csv(tmp_path / "t.csv", index=False)
    path = spec_in(tmp_path, {"kind": "csv", "path": "t.csv"})
    assert "every value fits the spec" in synthdp("inspect", path).out


def test_the_figures_are_confidential_until_the_steward_opens_them(spec: Path) -> None:
    loaded = Spec.load(spec).content
    found = misfits_of(
        loaded.dataset,
        Domain.from_spec(loaded.columns),
        folder=spec.parent,
        delta=loaded.privacy.delta,
        compute=loaded.compute,
        examples=True,
    )
    assert isinstance(found, Confidential) and "F" not in repr(found)


def test_the_refusal_of_a_table_names_the_command(spec: Path) -> None:
    loaded = Spec.load(spec).content
    domain = Domain.from_spec(loaded.columns)
    with pytest.raises(DataError, match="outside the declared domain") as caught:
        read_private(
            loaded.dataset, domain, folder=spec.parent, holdout=0.0, streams=Streams.fresh()
        )
    assert "`synthdp inspect SPEC` counts them for your eyes" in str(caught.value.hint)
