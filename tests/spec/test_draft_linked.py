"""Drafts of two linked tables: of headers and declared types alone, the unit asked first."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import synthdp
from synthdp.cli.main import app
from synthdp.errors import DataError, OutputError, SpecError
from synthdp.spec import KeptAnswers, parse_any
from synthdp.spec.draft_linked import draft_linked, table_names
from synthdp.spec.model import Datetime, LinkedSpec
from tests.spec.test_draft import CANARY, Interrupted, Script

ANSWERS = (
    "one patient with all stays", "", "patient_id", "patient_id", "day", "1", "12",
    "public", "900", "NA",
    "categorical", "F, M", "no", "",
    "drop",
    "categorical", "datetime", "2020-01-01", "2023-12-31", "", "",  # no such order: asked again
    "integer", "80", "220", "", "mmHg", "yes", "",
    "A clinic.", "", "2", "1e-5",
)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "patients.csv").write_text(f"patient_id,sex,name\n1,{CANARY},b\n")
    (tmp_path / "stays.csv").write_text(f"patient_id;day;bp\n1;{CANARY};3\n")
    return {name: tmp_path / f"{name}.csv" for name in ("patients", "stays")}


class Defaults(Script):
    """An empty answer is the default, as on a terminal."""

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str:
        return super().__call__(question, allowed=allowed, default=default) or default or ""


def test_an_answered_draft_loads_and_the_unit_was_asked_first(files: dict[str, Path]) -> None:
    ask = Defaults(*ANSWERS)
    text = draft_linked(files, ask=ask, paths={n: Path(f"data/{n}.csv") for n in files})
    assert ask.answers == [] and ask.asked[0].startswith("One person with all rows of both tables")
    assert any("allowed: datetime, integer" in question for question in ask.asked)
    assert "at most how many" in ask.asked[6] and "at least 2" in ask.asked[6]
    spec = parse_any(text, path="draft.yaml")
    assert isinstance(spec, LinkedSpec) and CANARY not in text
    data = spec.dataset
    assert (data.id, data.persons_name, data.visits_name) == ("patients-stays", "patients", "stays")
    assert (data.visits.key, data.visits.order, data.visits.at_most) == ("patient_id", "day", 12)
    assert data.persons.source.path == "data/patients.csv"  # type: ignore[union-attr]
    assert data.persons.source.drop == ("name",) and data.persons.rows.value == 900
    assert data.visits.source.delimiter == ";"  # type: ignore[union-attr]
    assert data.visits.source.missing_values == ("", "NA")  # type: ignore[union-attr]
    day = spec.columns["stays"]["day"]
    assert isinstance(day, Datetime) and not day.missing and spec.columns["stays"]["bp"].missing
    assert spec.graph.mode == "predict" and spec.privacy.epsilon == 2
    assert data.privacy_unit.meaning == "one patient with all stays"


def test_the_second_file_may_be_that_of_persons(files: dict[str, Path]) -> None:
    answers = ("a person", "patients", "", "patient_id", "day", "3", "", "40", "")
    ask = Interrupted(*answers)
    turned = {name: files[name] for name in ("stays", "patients")}
    with pytest.raises(KeyboardInterrupt):
        draft_linked(turned, ask=ask)
    assert [q.partition(":")[0] for q in ask.asked[2:6]] == ["patients", "stays", "stays", "stays"]


@pytest.mark.parametrize("at", range(1, len(ANSWERS), 5))
def test_answers_outlive_an_interruption(files: dict[str, Path], tmp_path: Path, at: int) -> None:
    kept = tmp_path / "answers"
    given = [a or "patients" if i == 1 else a for i, a in enumerate(ANSWERS)]
    whole = draft_linked(files, ask=Script(*given))
    with pytest.raises(KeyboardInterrupt):
        draft_linked(files, ask=KeptAnswers(Interrupted(*given[:at]), kept))
    again = Script(*given[at:])
    assert draft_linked(files, ask=KeptAnswers(again, kept)) == whole and again.answers == []


def test_without_questions_it_says_what_is_to_be_filled_in(files: dict[str, Path]) -> None:
    text = draft_linked(files, ask=None, rows=900, paths=files)
    assert text.count("key: patient_id") == 2 and "value: 900" in text and CANARY not in text
    with pytest.raises(SpecError) as caught:
        parse_any(text, path="draft.yaml")
    assert {p.field for p in caught.value.problems} == {
        "dataset.privacy_unit.meaning",
        "dataset.tables.stays.order",
        "dataset.tables.stays.at_most",
        "columns.patients.sex.type",
        "columns.patients.name.type",
        "columns.stays.day.type",
        "columns.stays.bp.type",
        "privacy.epsilon",
    }
    assert all("still to be filled in" in p.message for p in caught.value.problems)


def test_types_are_the_files_own_and_no_row_is_read(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table(
        {
            "patient_id": pa.array([1], pa.int64()),
            "day": pa.array([0], pa.timestamp("s")),
            "bp": pa.array([1.0]),
        }
    )
    pq.write_table(rows, tmp_path / "stays.parquet")
    for reader in ("read_table", "ParquetDataset"):
        monkeypatch.setattr(pq, reader, None)
    text = draft_linked(files | {"stays": tmp_path / "stays.parquet"}, ask=None)
    assert "order: day\n" in text and "type: datetime" in text and "resolution: second" in text
    of_types = synthdp.Spec.draft(
        {
            "patients": {"patient_id": "int64", "sex": "category"},
            "stays": pd.Series({"patient_id": "int64", "day": "datetime64[s]", "bp": "float64"}),
        },
        rows=50,
    )
    assert of_types.count("kind: dataframe") == 2 and "order: day\n" in of_types


def test_the_command(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = files["stays"].parent
    monkeypatch.chdir(folder)
    words = ["init", "patients.csv", "stays.csv", "--no-ask"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "places are left to fill in" in done.output, done.output
    assert "path: stays.csv" in (folder / "spec.yaml").read_text()
    for more, told in ((["stays.csv"], "several child tables"), (["--private"], "one table")):
        failed = CliRunner().invoke(app, [*words, *more, "--out", "more.yaml"])
        assert isinstance(failed.exception, DataError | OutputError)
        assert told in failed.exception.message and not (folder / "more.yaml").exists()


def test_names_of_tables() -> None:
    assert [*table_names([Path("a/my table.csv"), Path("b/stays.parquet")])] == [
        "my_table",
        "stays",
    ]
    assert [*table_names([Path("a/data.csv"), Path("b/Data.csv")])] == ["persons", "visits"]
