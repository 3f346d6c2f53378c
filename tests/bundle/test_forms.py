"""The table's other forms - Parquet, Croissant, data card - and the snippets of its README: read by
the programs they are for.
"""

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from synthdp.bundle import (
    CROISSANT,
    DATACARD,
    PARQUET_NAME,
    Bundle,
    arrow_schema,
    datacard,
    front_matter,
    record_id,
    row_groups,
    table_files,
    write_parquet,
)
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.report import MeasuredPair
from synthdp.spec import parse_spec
from tests.builders import lacks_r
from tests.bundle.conftest import edit_json, problems, written

AWKWARD = ['"', "a,b", "é \\" + " '", " x", "no", "NA", "1_000", "x;y"]


def snippets(bundle: Path, language: str) -> list[str]:
    return [
        part.split("```")[0]
        for part in (bundle / "README.md").read_text().split(f"```{language}\n")[1:]
    ]


# --- the README's snippets ---


class TestSnippets:
    def test_pandas(self, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(made)
        parquet, csv = ({}, {})
        for code, names in zip(snippets(made, "python"), (parquet, csv), strict=True):
            exec(code, names)
        table = csv["table"]
        assert table["born"].dtype.kind == "M"
        assert set(table["smoker"]) == {"yes", "no"}
        assert "no" in set(table["sex"])
        typed = parquet["table"]
        for form in (table, typed):  # codes that are whole numbers are numbers everywhere
            grades = form["grade"]
            assert set(grades.dropna()) == {1, 2, 3} and grades.isna().any()
            assert all(isinstance(code, int | np.integer) for code in grades.dropna())
        assert str(typed["visits"].dtype) == "int64[pyarrow]"
        assert str(typed["smoker"].dtype) == "bool[pyarrow]"
        assert (typed["weight"].to_numpy() == table["weight"].to_numpy()).all()
        assert list(typed["smoker"]) == [v == "yes" for v in table["smoker"]]

    def test_r(self, made: Path) -> None:
        if lacking := lacks_r("jsonlite"):
            pytest.skip(lacking)
        (code,) = snippets(made, "r")
        code += (
            "cat(nrow(table), names(table), sum(is.na(table$grade)), class(table$born),"
            " class(table$seen)[1], is.character(table$smoker), sep = ',')"
        )
        done = subprocess.run(
            ["Rscript", "-e", code], cwd=made, capture_output=True, text=True, timeout=120
        )
        frame = pd.read_csv(made / "synthetic.csv", dtype=str, keep_default_na=False)
        missing = int((frame["grade"] == "").sum())
        assert (
            done.stdout == f"{len(frame)},{','.join(frame.columns)},{missing},Date,POSIXct,TRUE"
        ), done.stderr


# --- Parquet ---


class TestParquet:
    def test_types_are_the_declared_ones(self, made: Path, release: Any) -> None:
        table = pq.read_table(made / PARQUET_NAME)
        types = {field.name: field.type for field in table.schema}
        assert types["born"] == pa.date32()
        assert types["seen"] == pa.timestamp("ms")
        assert types["visits"] == pa.int64()
        assert types["stage"].ordered
        assert not types["sex"].ordered
        assert types["grade"] == pa.int64()
        assert table.column("stage").chunk(0).dictionary.to_pylist() == ["I", "II"]
        assert table.schema.field("weight").metadata == {b"unit": b"kg"}
        assert not table.schema.field("weight").nullable
        assert not any(
            word in (made / PARQUET_NAME).read_bytes() for word in (b"secret-folder", b"/home")
        )

    def test_awkward_texts_and_groups_of_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_files, "MIN_ROWS", 3)
        monkeypatch.setattr(table_files, "MAX_ROWS", 3)
        columns = parse_spec(
            f"""
synthdp: 1
dataset:
  {{id: x, source: {{kind: builtin, name: synthetic}}, privacy_unit: {{kind: row, meaning: a}}, rows: {{kind: public, value: 5000}}}}
columns:
  "a, \\"b\\"": {{type: categorical, missing: true, categories: {json.dumps(AWKWARD)}}}
  n: {{type: integer, lower: -9007199254740991, upper: 9007199254740991, missing: true}}
  r: {{type: number, lower: -1.0e-7, upper: 1.0e+22, decimals: 12}}
privacy: {{epsilon: 1, delta: 1.0e-7}}
""",  # noqa: E501
            path="s",
        ).columns
        wide = [9_007_199_254_740_991, -9_007_199_254_740_990, None] * 3
        real = [0.1, 1e22, -1e-7, 1 / 3, 5e-324, 12345.678901234567, 0.0, 1.0, 2.0]
        frame = pd.DataFrame(
            {'a, "b"': [*AWKWARD, None], "n": pd.array(wide, dtype="Int64"), "r": real}
        )
        frame.to_csv(tmp_path / "t.csv", index=False, lineterminator="\n")
        write_parquet(tmp_path / "t.csv", columns, tmp_path / "t.parquet")
        file = pq.ParquetFile(tmp_path / "t.parquet")
        assert file.metadata.num_row_groups == 3
        assert file.schema_arrow.equals(arrow_schema(columns), check_metadata=True)
        read = file.read()
        assert read.column(0).to_pylist() == [*AWKWARD, None]
        assert read.column("n").to_pylist() == wide
        assert read.column("r").to_pylist() == real
        (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("NA", "none"))
        with pytest.raises(ValueError, match="none of its column's categories"):
            list(row_groups(tmp_path / "t.csv", columns))


def turned(table: pa.Table) -> pa.Table:
    """The levels of an ordinal column in the other order; its values stay."""
    places = [int(v == "I") for v in table.column("stage").to_pylist()]
    levels = pa.array(["II", "I"])
    new = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), levels, ordered=True)
    return table.set_column(2, table.schema.field("stage"), new)


def one_value(table: pa.Table) -> pa.Table:
    first, *others = table.column("weight").to_pylist()
    new = pa.array([first + 0.1, *others])
    return table.set_column(5, table.schema.field("weight"), new)


ROWS = "synthetic.parquet: its rows are not those of synthetic.csv"
COUNT = "does not hold the spec's 200 rows"
TYPES = "synthetic.parquet: its columns and types are not the spec's"
CHANGES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "one value": (one_value, ROWS),
    "two rows exchanged": (lambda t: t.take([1, 0, *range(2, 200)]), ROWS),
    "order of an ordinal": (turned, ROWS),
    "a column gone": (lambda t: t.drop_columns(["sex"]), TYPES),
    "a column renamed": (lambda t: t.rename_columns(["x", *t.column_names[1:]]), TYPES),
    "words in the footer": (lambda t: t.replace_schema_metadata({"author": "x"}), TYPES),
    "a row more": (lambda t: pa.concat_tables([t, t.slice(0, 1)]), COUNT),
}


class TestVerify:
    """What was changed in the other forms is found, also where checksums were mended."""

    @pytest.mark.parametrize("name", CHANGES)
    def test_changed(self, bundle: Path, name: str) -> None:
        change, said = CHANGES[name]
        pq.write_table(change(pq.read_table(bundle / PARQUET_NAME)), bundle / PARQUET_NAME)
        assert said in problems(bundle)

    def test_rewritten(self, bundle: Path) -> None:
        """Equal rows are no fault, but Croissant has the other file's hash; groups of rows are."""
        table = pq.read_table(bundle / PARQUET_NAME)
        pq.write_table(table, bundle / PARQUET_NAME)
        found = problems(bundle)
        assert PARQUET_NAME not in found and f"{CROISSANT}: does not describe" in found
        pq.write_table(table, bundle / PARQUET_NAME, row_group_size=50)
        assert COUNT in problems(bundle)

    @pytest.mark.parametrize(
        "content", [b"", b"PAR1", b"PAR1" + b"\xff" * 4000 + b"PAR1", b"\x80\x04x."]
    )
    def test_no_parquet(self, bundle: Path, content: bytes) -> None:
        (bundle / PARQUET_NAME).write_bytes(content)
        assert "synthetic.parquet: cannot be read and compared" in problems(bundle)

    def test_parquet_without_receipt(self, bundle: Path) -> None:
        def without(facts: Any) -> None:
            facts["released"] = [r for r in facts["released"] if r["file"] != PARQUET_NAME]

        edit_json(bundle / "privacy/certificate.json", without)
        assert "synthetic.parquet has no receipt" in problems(bundle)


# --- Croissant and the data card ---


def croissant_records(bundle: Path, count: int) -> tuple[Any, list[dict[str, Any]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the library's own parsers deprecate
        import mlcroissant

        dataset = mlcroissant.Dataset(jsonld=str(bundle / CROISSANT))
        return dataset, list(itertools.islice(dataset.records("rows"), count))


def test_mlcroissant_accepts_the_description_and_loads_the_rows(made: Path) -> None:
    dataset, records = croissant_records(made, 1000)
    assert not dataset.metadata.issues.errors and len(records) == 200
    frame = pd.read_csv(
        made / "synthetic.csv",
        keep_default_na=False,
        na_values=[""],
        dtype={"smoker": str},
    )
    for record, row in zip(records, frame.itertuples(index=False), strict=True):
        assert record[record_id("sex")].decode() == row.sex
        assert record[record_id("weight")] == row.weight
        assert record[record_id("smoker")] == (row.smoker == "yes")
        assert str(record[record_id("born")])[:10] == row.born
        assert (record[record_id("visits")] is None) == np.isnan(row.visits)
        assert record[record_id("grade")] == (None if np.isnan(row.grade) else row.grade)
        assert record[record_id("stage")].decode() == row.stage
    listed = [
        {key.rpartition("/")[2]: value for key, value in record.items()}
        for record in dataset.records("labels/grade")
    ]
    assert [entry["code"] for entry in listed] == [1, 2, 3]
    assert [entry["label"] for entry in listed] == ["poor", "fair", "good | best"]


HUB = """
import json, sys
import datasets

rows = datasets.load_dataset(sys.argv[1])["train"]
print(json.dumps({"rows": len(rows), "names": rows.column_names, "grade": rows["grade"][:]}))
"""


@pytest.mark.check
@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="no library datasets here")
def test_the_library_datasets_loads_a_bundle(made: Path, tmp_path: Path) -> None:
    """In a process of its own, without a network: the library may not ask for one."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", HUB, str(made)],
        env=os.environ | offline,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    read, frame = json.loads(done.stdout.splitlines()[-1]), pq.read_table(made / PARQUET_NAME)
    assert read == {
        "rows": 200,
        "names": frame.column_names,
        "grade": frame.column("grade").to_pylist(),
    }


def test_the_head_of_the_readme_is_for_hubs(made: Path) -> None:
    head = yaml.safe_load((made / "README.md").read_text().split("---\n")[1])
    assert head == {
        "pretty_name": "Clinic visits | 2025 (synthetic)",
        "license": "cc-by-4.0",
        "size_categories": ["n<1K"],
        "tags": ["synthetic", "differential-privacy", "tabular"],
        "configs": [{"config_name": "default", "data_files": PARQUET_NAME}],
    }


@pytest.mark.parametrize(
    ("licence", "told"),
    [
        (None, {}),
        ("ODbL-1.0", {"license": "odbl"}),
        ("ask us:\n- nobody", {"license": "other", "license_name": "ask us: - nobody"}),
    ],
)
def test_licences_and_words_of_the_publisher_add_no_key(
    release: Any, licence: str | None, told: dict[str, str]
) -> None:
    title = "a\n---\nconfigs: [x]"
    dataset = release.spec.dataset.model_copy(update={"licence": licence, "title": title})
    text = front_matter(release.spec.model_copy(update={"dataset": dataset}))
    assert text.count("---\n") == 2
    head = yaml.safe_load(text.split("---\n")[1])
    assert {k: v for k, v in head.items() if k.startswith("license")} == told
    assert head["pretty_name"] == "a --- configs: [x] (synthetic)" and len(head) == 4 + len(told)


def test_the_data_package_labels_codes(made: Path) -> None:
    schema = json.loads((made / "datapackage.json").read_text())["resources"][0]["schema"]
    fields = {field["name"]: field for field in schema["fields"]}
    assert fields["grade"]["type"] == "integer"
    assert fields["grade"]["constraints"]["enum"] == [1, 2, 3]
    assert fields["grade"]["categories"][0] == {"value": 1, "label": "poor"}
    assert fields["stage"]["categories"] == [
        {"value": "I", "label": "early"},
        {"value": "II", "label": "II"},
    ]
    assert fields["sex"]["categories"] == ["female", "male", "no"]


def test_mlcroissant_refuses_a_file_that_is_another(made: Path, tmp_path: Path) -> None:
    """So that the test above can fail: hashes and columns are looked at."""
    bundle = Path(shutil.copytree(made, tmp_path / "b"))
    content = json.loads((bundle / CROISSANT).read_text())
    content["recordSet"][0]["field"][0]["source"]["extract"]["column"] = "nobody"
    (bundle / CROISSANT).write_text(json.dumps(content))
    with pytest.raises(Exception, match=r"Read\(synthetic.parquet\)"):
        croissant_records(bundle, 1)


def test_the_data_card_tells_what_a_reader_needs(made: Path) -> None:
    card = (made / DATACARD).read_text()
    for words in (
        "epsilon 1.0492 at delta 1e-05, for one visit",
        "| licence | CC-BY-4.0 |",
        "| contact | Data desk &lt;desk@statistics.example> |",
        "The Clinic (nonprofit)",
        "> Teaching",
        "no row is anyone",
        "1 = poor &lt; 2 = fair &lt; 3 = good \\| best",
        "I = early &lt; II",
    ):
        assert words in card
    assert "| weight | number | 30 to 200 | no | kg |  |" in card
    assert "no (false), yes (true)" in card
    assert "[synthetic data, differentially private, epsilon 1.0492 at delta 1e-05" in card
    assert "Made from: The Clinic (2025)" in card
    columns = card.split("## Columns")[1]
    # A row for each column, and two heads.
    assert columns.count("\n|") == (made / "spec.yaml").read_text().count("\n    type: ") - 1 + 2


def test_the_data_card_lists_the_pairs_of_which_a_table_may_be_made(made: Path) -> None:
    bundle = Bundle.stated(made)
    names = [n for n in bundle.spec.modelled if n != "weight"][:2]
    found = [
        MeasuredPair((names[0], "weight"), distance=0.14, by_noise=0.14),
        MeasuredPair((names[1], "weight"), distance=0.01, by_noise=0.15),
        MeasuredPair((names[0], names[1]), distance=0.15, by_noise=0.01),
    ]
    tables = [NoisyTable(p.names, np.ones((2, 2)), 1.0) for p in found]
    parts = (bundle.spec, bundle.certificate, bundle.graph, tables, ())
    card = datacard(*parts, found, day=bundle.day)
    listed = card.split("## Tables that may be made of the rows")[1].split("##")[0]
    assert "Of the 3 pairs that were measured 2 are noise" in listed
    assert listed.count("\n- ") == 2 and f"- {names[0]} with weight" in listed
    assert f"- weight with {names[0]}" in listed and names[1] not in listed
    none = datacard(*parts, found[1:], day=bundle.day)
    assert "Make no table of two columns." in none


def test_every_form_says_whom_to_ask(made: Path) -> None:
    said = "Data desk <desk@statistics.example>"
    package = json.loads((made / "datapackage.json").read_text())
    assert package["contributors"] == [
        {"title": said, "email": "desk@statistics.example", "roles": ["contact"]}
    ]
    assert json.loads((made / CROISSANT).read_text())["maintainer"]["name"] == said
    for name in ("README.md", "report.html"):
        assert "desk@statistics.example" in (made / name).read_text()


def test_words_of_the_publisher_draw_nothing(
    build: Callable[..., Any], tmp_path: Path, spec_text: str
) -> None:
    text = spec_text.replace(
        "Visits to a clinic.", '"# Guarantee\\n\\n<b>none</b> [x](http://y) | a"'
    ).replace("unit: kg", 'unit: "a|b"')
    card = (written(build(tmp_path, text)) / DATACARD).read_text()
    assert "\n# Guarantee" not in card
    assert "<b>" not in card
    assert r"\[x\](http" in card
    assert r"a\|b" in card
