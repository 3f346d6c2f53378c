"""All that a spec's text shows at once, at its places, and again after each save."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import synthdp
from synthdp.cli import watch
from synthdp.errors import BudgetError, SpecError
from synthdp.spec import is_outcome, parse_any, unanswered
from tests.api.conftest import CLINIC, clinic

ROOT = Path(__file__).parents[2]
TRAPS = """\
synthdp: 1
dataset:
  id: stays
  source: {kind: csv, path: stays.csv, drop: [patient_id]}
  privacy_unit: {kind: row, meaning: one stay}
  rows: {kind: approximate, value: 5000}
columns:
  dob: {type: datetime, lower: 1920-01-01, upper: 2020-12-31, bins: 10}
  school_id: {type: categorical, categories: [a, b]}
  cost.eur: {type: number, lower: 0, upper: 1000000, bins: 20}
  ill: {type: boolean, false: "no", true: "yes"}
  cost_after: {type: categorical, categories: [low, high]}
privacy: {epsilon: 1, delta: 0.00001}
estimands:
  - {kind: effect, treated: ill, outcome: cost.eur, adjust: [cost_after]}
"""


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "golden" / "specs").glob("*.yaml")))
def test_mistakes_are_those_of_the_loader_with_a_path_each(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    with pytest.raises(SpecError) as refused:
        parse_any(text, path=path.name)
    found = synthdp.Spec.check(text, path=path.name)
    assert found.spec is None and found.warnings == ()
    assert [str(p) for p in found.mistakes] == [str(p) for p in refused.value.problems]
    for one in found.mistakes:
        told = "".join(f" #{s + 1}" if isinstance(s, int) else f".{s}" for s in one.loc)
        assert one.field in (told.removeprefix("."), "spec") or "'" in one.field


def test_warnings_and_telling_names_have_places(tmp_path: Path) -> None:
    found = synthdp.Spec.check(TRAPS, path=tmp_path / "stays.yaml")
    assert found.spec is not None and found.mistakes == ()
    placed = {p.loc: (p.line, p.field) for p in found.warnings}
    assert placed[("dataset", "privacy_unit")] == (5, "privacy_unit")
    assert placed[("columns", "cost.eur", "bins")] == (10, "columns.cost.eur.bins")
    told = {p.loc[-1]: (p.line, p.column, p.message[:20]) for p in found.remarks}
    assert told == {
        "dob": (8, 3, "a date of birth? An "),
        "cost.eur": (10, 3, "money, mostly small "),
        "cost_after": (12, 3, "measured after the t"),
    }
    assert f"{tmp_path / 'stays.yaml'}:8:3: remark: columns.dob: a date of birth?" in str(found)
    assert found.to_json()["remarks"][0]["loc"] == ["columns", "dob"]


def test_what_a_declaration_answers_is_not_asked(tmp_path: Path) -> None:
    text = TRAPS.replace("adjust: [cost_after]", "adjust: [school_id]").replace(", bins: 20", "")
    found = synthdp.Spec.check(text, path=tmp_path / "stays.yaml")
    assert [p.loc[-1] for p in found.remarks] == ["dob"]
    assert found.spec is not None
    assert unanswered(found.spec.columns, {"cost_after"})[-1].kind == "after"
    assert [is_outcome(n) for n in ("wt_post", "6m followup", "postcode")] == [True, True, False]


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    found = synthdp.Spec.check(path=tmp_path / "none.yaml")
    assert [p.message for p in found.mistakes] == ["there is no such file"]


def test_linked_tables_have_theirs() -> None:
    path = ROOT / "tests" / "spec" / "linked" / "clinic.yaml"
    found = synthdp.Spec.check(path=path)
    assert found.spec is not None and found.spec.linked is not None
    assert [p.loc for p in found.remarks] == [("columns", "persons", "birth")]


@pytest.mark.check
def test_watch_tells_anew_after_each_save_and_reads_no_row(tmp_path: Path) -> None:
    """The table is a folder, so that opening it would fail."""
    path = tmp_path / "clinic.yaml"
    path.write_text(CLINIC)
    (tmp_path / "clinic.csv").mkdir()
    command = [sys.executable, "-m", "synthdp.cli.main", "watch", str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        path.write_text(CLINIC.replace("upper: 110", "upper: 1"))
        second = json.loads(watching.stdout.readline())
        path.write_text(CLINIC.replace("epsilon: 1,", "epsilon: 2,"))
        third = json.loads(watching.stdout.readline())
        time.sleep(1.2)  # nothing is said where nothing was saved
        watching.terminate()
        assert watching.stdout.read() == "" and watching.wait(30) == 143
    assert first["valid"] and first["plan"]["epsilon"] == 1 and "estimands" in first["plan"]
    assert not second["valid"] and "plan" not in second
    assert second["mistakes"][0]["loc"] == ["columns", "age", "lower"]
    assert third["plan"]["epsilon"] == 2 and "refused" not in third
    assert not (tmp_path / ".synthdp").exists()
    assert len(clinic()) > 0


def test_watch_passes_over_a_file_that_is_about_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An editor empties a file, and then fills it."""
    path, changed = tmp_path / "clinic.yaml", CLINIC.replace("epsilon: 1,", "epsilon: 2,")
    path.write_text(CLINIC)
    texts = iter([CLINIC, "", changed, changed])
    monkeypatch.setattr(time, "sleep", lambda _: path.write_text(next(texts)))
    with pytest.raises(StopIteration):
        watch(path, as_json=True)
    told = [json.loads(line)["plan"]["epsilon"] for line in capsys.readouterr().out.splitlines()]
    assert told == [1, 2]


def test_what_the_ledger_refuses_is_told_beside_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "the cap is spent"

    def refuse(*_: object) -> None:
        raise BudgetError(told)

    monkeypatch.setattr("synthdp.ledger.connect.check_affordable", refuse)
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    with pytest.raises(SystemExit) as ended:
        watch(tmp_path / "clinic.yaml", once=True)
    printed = capsys.readouterr().out
    assert ended.value.code == 0 and printed.startswith("no mistakes\nepsilon 1: ")
    assert printed.endswith(f"refused: {told}\nno row was read, nothing was spent\n")
