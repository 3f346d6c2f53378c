"""A spec's text on the desk: what a cell writes, what is refused, and that nothing is lost."""

import difflib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.api import drafts
from synthdp.cli import desk
from synthdp.desk import CHANGED, Draft, act, shown
from synthdp.errors import OutputError, SpecError, SynthdpError
from tests.malicious.test_names import HOSTILE

ROOT = Path(__file__).parents[2]
CLINIC = ROOT / "docs" / "example" / "clinic.yaml"
AGE = ["columns", "age"]
OPEN = """\
synthdp: 1
dataset:
  id: stays
  source: {kind: csv, path: stays.csv}
  privacy_unit: !fill_in "who"
  rows: {kind: !fill_in "public or approximate", value: 5000}
columns:  # of the code book
  age: {type: !fill_in "a type"}   # years
  sex: {type: categorical, categories: [f, m]}
privacy: {epsilon: 1, delta: 0.00001}
"""


def on_desk(tmp_path: Path, text: str) -> Draft:
    path = tmp_path / "spec.yaml"
    path.write_bytes(text.encode())
    return Draft(path)


def put(draft: Draft, *values: tuple[list[str], str]) -> None:
    act(draft, {"do": "set", "seen": draft.now.seen, "values": list(values)})


def changed(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [" ".join(line.split()) for line in lines if line[0] in "+-"]


def parts(page: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return next(part["parts"] for part in page["sections"] if part["id"] == name)


def settled(page: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    for _ in range(6000):
        if not (now := page())["counting"]:
            return now
        time.sleep(0.05)
    raise AssertionError


def columns(draft: Draft) -> dict[str, Any]:
    (grid,) = (of for of in parts(shown(draft), "columns") if of["kind"] == "grid")
    return {row["head"]: row for row in grid["rows"]}


@pytest.mark.parametrize(("column", "field", "cell", "line"), [
    ("age", "upper", "99", "{type: integer, lower: 18, upper: 99, unit: years}"),
    ("age", "bins", "8", "{type: integer, lower: 18, upper: 110, unit: years, bins: 8}"),
    ("age", "bins", "18, 65", "{type: integer, lower: 18, upper: 110, unit: years,"
     " edges: [18, 65]}"),
    ("age", "unit", "", "{type: integer, lower: 18, upper: 110}"),
    ("age", "unit", "1e3", "{type: integer, lower: 18, upper: 110, unit: \"1e3\"}"),
    ("age", "missing", "yes", "{type: integer, lower: 18, upper: 110, unit: years, missing: true}"),
    ("sex", "levels", "0 = woman\n1 = man", "{type: categorical, categories: [\"0\", \"1\"],"
     " value_labels: {\"0\": woman, \"1\": man}}"),
    ("smoker", "levels", "never\never", "{type: boolean, false: never, true: ever, missing: true}"),
    ("age", "type", "boolean", "{type: boolean, unit: years}"),
    ("visits per year", "spikes", "0, 1", "{type: integer, lower: 0, upper: 30, bins: 15,"
     " spikes: [0, 1]}"),
    ("joined", "upper", "2025-12-31", "{type: datetime, lower: 2015-01-01, upper: \"2025-12-31\","
     " bins: 10}"),
])  # fmt: skip
def test_a_cell_is_a_line(tmp_path: Path, column: str, field: str, cell: str, line: str) -> None:
    before = CLINIC.read_text()
    draft = on_desk(tmp_path, before)
    put(draft, (["columns", column, field], cell))
    after = draft.path.read_text()
    new = [told.removeprefix("+ ") for told in changed(before, after) if told[0] == "+"]
    assert new == [f"{column}: {line}"] and len(changed(before, after)) == 2
    act(draft, {"do": "undo", "seen": draft.now.seen})
    assert draft.path.read_text() == before and draft.past == []


def test_a_draft_is_filled_in_from_the_first_question_on(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, OPEN.replace("stays.csv", "stays.csv, drop: [age_id, patient_id]"))
    page = shown(draft)
    assert page["status"][0] == "not a spec yet; mistakes: 3"
    assert [bool(part["shut"]) for part in page["sections"]] == [False, True, True, True, True]
    unit = ["dataset", "privacy_unit"]
    put(draft, ([*unit, "kind"], "id"))
    assert not any(part["shut"] for part in shown(draft)["sections"])
    assert draft.now.content["dataset"]["privacy_unit"] == {"kind": "id", "column": "patient_id"}
    put(draft, ([*unit, "max_rows"], "3"), ([*unit, "meaning"], "one patient"))
    put(draft, (["dataset", "rows", "kind"], "approximate"), ([*AGE, "type"], "integer"))
    row = columns(draft)["age"]
    told = {note["text"].partition(":")[0] for note in row["notes"] if note["tone"] == "mistake"}
    assert told == {"lower", "upper"}
    assert {c["loc"][-1] for c in row["cells"] if c and c.get("bad")} == {"lower", "upper"}
    put(draft, ([*AGE, "lower"], "0"), ([*AGE, "upper"], "1,000"))
    assert draft.now.found.mistakes == ()
    assert draft.now.content["columns"]["age"] == {"type": "integer", "lower": 0, "upper": 1000}
    put(draft, ([*unit, "kind"], "row"))
    assert draft.now.content["dataset"]["privacy_unit"] == {"kind": "row"}  # what of, is asked anew
    put(draft, ([*unit, "meaning"], "one stay"))
    assert shown(draft)["status"][1] == "doubtful: see Unit"  # an id is dropped
    assert all(told in draft.path.read_text() for told in ("# of the code book", "# years"))


def test_what_no_cell_is_for_has_a_field_of_its_own(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, CLINIC.read_text())
    put(draft, (["columns", "sex", "type"], "text-code"), (["columns", "sex", "levels"], "E11\nI1"))
    (note,) = columns(draft)["sex"]["notes"]
    assert note["text"].startswith("columns.sex.prefix: ")
    put(draft, (note["field"]["loc"], "1"))
    assert columns(draft)["sex"]["notes"] == []


def test_a_block_of_a_spreadsheet_fills_cells(tmp_path: Path) -> None:
    """Line breaks in a cell are in quotation marks, and part levels, as semicolons do."""
    draft = on_desk(tmp_path, CLINIC.read_text())
    blocks = [("age", "lower", "20\t99\t8\r\n\t\t\r\n\t\t\r\n12\t70\t\r\n"),
              ("sex", "levels", '"1=girl\n2 = ""boy"" | x"\tno unit\r\n"n\r\ny"\r\n'),
              ("visits per year", "spikes", "0, 1\n7")]  # fmt: skip
    for column, field, text in blocks:
        asked = {"do": "paste", "loc": ["columns", column, field], "text": text}
        act(draft, asked | {"seen": draft.now.seen})
    told = draft.path.read_text()
    for line in ("lower: 20, upper: 99, unit: years, bins: 8}",
                 "bmi: {type: number, lower: 12, upper: 70, decimals: 1, unit: kg/m2}",
                 """x], value_labels: {"1": girl, "2": "\\"boy\\""}""", "false: n, true: y",
                 "spikes: [0, 1]", "bins: 10, spikes: [7]"):  # fmt: skip
        assert line in told


def test_a_column_is_dropped_from_the_source_too(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, OPEN)
    act(draft, {"do": "drop", "seen": draft.now.seen, "loc": ["age"]})
    assert list(draft.now.content["columns"]) == ["sex"]
    assert draft.now.content["dataset"]["source"]["drop"] == ["age"]
    unit = ["dataset", "privacy_unit"]
    put(draft, ([*unit, "kind"], "id"), ([*unit, "column"], "age"))  # which is read, for its ids
    assert "drop" not in draft.now.content["dataset"]["source"]
    put(draft, ([*unit, "column"], "sex"), ([*unit, "kind"], "id"))  # which keeps it
    act(draft, {"do": "drop", "seen": draft.now.seen, "loc": ["sex"]})
    assert "drop" not in draft.now.content["dataset"]["source"]


def test_a_change_by_another_program_is_not_lost(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, CLINIC.read_text())
    other = CLINIC.read_text().replace("upper: 60", "upper: 70")
    draft.path.write_text(other)
    assert shown(draft)["said"] == f"{CHANGED}."
    with pytest.raises(OutputError, match="nothing was written"):
        put(draft, ([*AGE, "upper"], "99"))
    assert draft.path.read_text() == other
    act(draft, {"do": "read"})
    put(draft, ([*AGE, "upper"], "99"))
    assert len(changed(other, draft.path.read_text())) == 2
    draft.path.unlink()
    with pytest.raises(OutputError, match="nothing was written"):
        put(draft, ([*AGE, "upper"], "98"))
    assert not draft.path.exists()


def test_a_page_that_has_not_seen_the_text_changes_nothing(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, CLINIC.read_text())
    early = draft.now.seen
    put(draft, ([*AGE, "upper"], "99"))
    values = [([*AGE, "upper"], "98")]
    for seen in (early, "", None):
        with pytest.raises(OutputError, match="nothing was written"):
            act(draft, {"do": "set", "seen": seen, "values": values})
    assert draft.now.content["columns"]["age"]["upper"] == 99


def test_mode_mark_and_line_ends_stay(tmp_path: Path) -> None:
    text = "\ufeff" + CLINIC.read_text().replace("\n", "\r\n")
    draft = on_desk(tmp_path, text)
    draft.path.chmod(0o640)
    put(draft, ([*AGE, "upper"], "99"))
    assert draft.path.read_bytes() == text.replace("upper: 110", "upper: 99").encode()
    assert draft.path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_what_cannot_be_written_is_refused_and_says_so(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, CLINIC.read_text())
    one = {"do": "set", "values": [(["columns", "smoker", "levels"], "one")]}
    for asked in (one, {"do": "drop", "loc": ["nobody"]}, {"do": "release"}):
        with pytest.raises(SynthdpError):
            act(draft, {"seen": draft.now.seen, **asked})
    assert draft.path.read_text() == CLINIC.read_text() and draft.past == []


def test_linked_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="specs of one table"):
        on_desk(tmp_path, "synthdp: 1\ndataset: {tables: {a: {}}}\n")
    with pytest.raises(SpecError):
        Draft(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_cells_like_others(tmp_path: Path, name: str) -> None:
    text = CLINIC.read_text().replace("  bmi:", f"  {json.dumps(name)}:", 1)
    draft = on_desk(tmp_path, text)
    put(draft, (["columns", name, "upper"], "70"))
    assert columns(draft)[name]["cells"] and draft.now.content["columns"][name]["upper"] == 70
    assert len(changed(text, draft.path.read_text())) == 2


@pytest.mark.check
@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "golden" / "specs").glob("*.yaml")))
def test_no_text_is_too_wrong_to_be_shown(tmp_path: Path, path: Path) -> None:
    try:
        draft = on_desk(tmp_path, path.read_bytes().decode("utf-8", "surrogateescape"))
    except (SynthdpError, UnicodeError):
        return
    page = json.dumps(shown(draft))
    assert all(json.dumps(p.message)[1:-1] in page for p in draft.now.found.mistakes
               if not p.message.startswith("still to be filled in"))  # fmt: skip


@pytest.mark.check
def test_random_junk_is_shown_too(tmp_path: Path) -> None:
    junk: list[Any] = [None, 3, "x", [], ["a"], {}, {"a": 1}, [{"b": 2}], True]
    rng, text = np.random.default_rng(1), CLINIC.read_text()
    named = """dataset columns privacy graph dataset.rows dataset.privacy_unit columns.sex
        dataset.privacy_unit.kind columns.sex.categories columns.age.bins graph.edges graph.mode
        columns.age.type graph.tiers privacy.cap privacy.epsilon privacy.shares estimands
        publication"""
    places = [tuple(name.split(".")) for name in named.split()]
    for place in places:
        for value in rng.permutation(np.arange(len(junk)))[:4]:
            draft = on_desk(tmp_path, drafts.set_value(text, place, junk[value]))
            assert shown(draft)["sections"]


def test_the_forecast_follows_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthdp.desk.draft.shut", id)  # there would be no way back
    draft = on_desk(tmp_path, CLINIC.read_text())
    draft.begin()
    whose, most = settled(lambda: shown(draft))["status"][:2]
    assert whose == "protected: one patient, one row" and "guessing: 50%" in most
    few = columns(draft)["age"]["cells"][0]
    put(draft, ([*AGE, "bins"], "90"))
    settled(lambda: shown(draft))
    assert int(columns(draft)["age"]["cells"][0]) > int(few) > 0


def test_columns_are_shown_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 46 columns 31, before the 32nd is counted; then all of them."""
    monkeypatch.setattr("synthdp.desk.draft.shut", id)
    reached, go, forecast = threading.Event(), threading.Event(), drafts.forecast

    def held(found: Any, *, counted: Callable[[Any], None]) -> Any:
        def one(column: Any) -> None:
            counted(column)
            if column.column == "c25":
                reached.set()
                assert go.wait(300)

        return forecast(found, counted=one)

    monkeypatch.setattr(drafts, "forecast", held)
    more = "".join(f"  c{i}: {{type: integer, lower: 0, upper: {30 + i}}}\n" for i in range(40))
    draft = on_desk(tmp_path, CLINIC.read_text().replace("  joined:", f"{more}  joined:"))
    draft.begin()
    try:
        assert reached.wait(300)
        assert shown(draft)["status"][1] == "counting 31 of 46 columns"
        figures = {name: row["cells"][0] for name, row in columns(draft).items()}
        assert [name for name, figure in figures.items() if figure] == [*figures][:31]
    finally:
        go.set()
    assert "guessing: 50%" in settled(lambda: shown(draft))["status"][1]
    now = {name: row["cells"][0] for name, row in columns(draft).items()}
    assert all(now.values()) and [*now.values()][:31] == [*figures.values()][:31]


TRAP = """
import sys
from pathlib import Path
from synthdp.desk.draft import Draft, shut
from synthdp.errors import BoundaryError
from synthdp.api import drafts

draft = Draft(Path("spec.yaml"))
shut(draft)
found, told = draft.now.found, drafts.forecast(draft.now.found, [2])
assert told[0]["plan"]["what_if"], told
import os, socket, sqlite3, subprocess
for act in ('open("clinic.csv")', 'open("./x/../clinic.csv", "rb")', 'Path("link.csv").open()',
            'open("out/internal/internal.json")', 'open("mlflow.db", "rb")',
            'sqlite3.connect("mlflow.db")', 'socket.create_connection(("127.0.0.1", 9), timeout=1)',
            'subprocess.run(["cat", "clinic.csv"])', 'os.system("cat clinic.csv")',
            '__import__("pyarrow.csv")', '__import__("pyarrow.parquet")',
            '__import__("synthdp.privacy.readers.files")', 'sqlite3.connect(".synthdp/ledger.db")'):
    try:
        eval(act)
        print("open")
    except BoundaryError:
        print("shut")
"""


@pytest.mark.check
def test_the_process_opens_no_rows(tmp_path: Path) -> None:
    """Whatever asks; a plan is made all the same, of the spec and the ledger alone."""
    (tmp_path / "spec.yaml").write_text(CLINIC.read_text())
    for name in ("clinic.csv", "mlflow.db", "out/internal/internal.json", ".synthdp/x", "x/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a trap")
    (tmp_path / "link.csv").symlink_to("clinic.csv")
    assert trapped(TRAP, tmp_path) == ["shut"] * 12 + ["open"]


def trapped(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.check
def test_the_desk_is_small() -> None:
    """With what edits texts, page, script and style, each statement and declaration on a line."""
    files = [ROOT / "synthdp" / "spec" / "edit.py"]
    files += [p for p in (ROOT / "synthdp" / "desk").rglob("*") if p.suffix in
              (".py", ".js", ".css", ".html")]  # fmt: skip
    lines = {p.name: p.read_text(encoding="utf-8").splitlines() for p in files}
    lines["command"] = inspect.getsource(desk).splitlines()
    assert sum(map(len, lines.values())) <= 1540
    assert max(len(line) for told in lines.values() for line in told) <= 100
    script, style = ("\n".join(lines[name]) for name in ("desk.js", "desk.css"))
    assert re.findall(r"; *[\w}].*", script + style) + re.findall("{.+", style) == []
    tests = [*(ROOT / "tests" / "desk").glob("*.py"), ROOT / "tests" / "browser" / "test_desk.py"]
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in tests) <= 900


def test_the_budget_has_a_table_of_exact_plans(tmp_path: Path) -> None:
    """Each as `plan --what-if` has it; a changed epsilon is written to its line."""
    draft = on_desk(tmp_path, CLINIC.read_text())
    found = draft.now.found
    facts, told = drafts.forecast(found)
    draft.now.told[0.0] = facts | {"said": told}
    draft.now.told[2.0] = {"option": drafts.at_epsilon(found, 2.0)}
    (grid,) = (of for of in parts(shown(draft), "budget") if of["kind"] == "grid")
    assert grid["head"][1:] == ["0.1", "0.25", "0.5", "1", "2", "3", "5", "10"]
    planned, _ = draft.now.found.spec.planned([2])  # type: ignore[union-attr]
    head, rows = drafts.figures(planned.to_json()["what_if"])
    assert head[1:] == ["2"]
    assert [row["cells"][4] for row in grid["rows"]] == [cells[1] for cells in rows]
    assert {cell for row in grid["rows"] for cell in row["cells"][5:]} == {"-"}
    assert "-: none, or not counted yet" in grid["caption"]
    put(draft, (["privacy", "epsilon"], "2"))
    assert changed(CLINIC.read_text(), draft.path.read_text()) == ["- epsilon: 1", "+ epsilon: 2"]


def test_a_cap_and_a_reason_are_written_where_there_are_none(tmp_path: Path) -> None:
    """What they need besides has a field where it is missing; emptied, they are gone."""
    text = CLINIC.read_text().replace("  cap: {epsilon: 3, delta: 1e-4}", "  # cap")
    draft = on_desk(tmp_path, text)
    cap, reason = ["privacy", "cap"], ["publication", "justification"]
    ledger = {"cap": None, "spent_before": 0, "spent_after": 1}
    draft.now.told[0.0] = {"plan": {"ledger": ledger}, "said": ""}
    labels = {tuple(f["loc"]) for f in parts(shown(draft), "budget")[1]["of"]}
    assert {(*cap, "epsilon"), (*cap, "delta"), (*reason,)} <= labels
    put(draft, ([*cap, "epsilon"], "3"), (reason, "as last year"))
    notes = parts(shown(draft), "budget")[0]["of"]
    assert [note["field"]["loc"][1] for note in notes] == ["curators", "intended_use", "region"]
    put(draft, (["publication", "curators"], "[{name: Office of Statistics, type: Government}]"),
        (["publication", "intended_use"], "teaching"), (["publication", "region"], "1"),
        ([*cap, "delta"], "1e-4"))  # fmt: skip
    assert draft.now.found.mistakes == () and draft.now.content["publication"]["region"] == "1"
    put(draft, ([*cap, "delta"], ""), ([*cap, "epsilon"], ""))
    assert "cap" not in draft.now.content["privacy"] and draft.now.found.mistakes == ()


def turn(draft: Draft, cause: str, effect: str) -> None:
    act(draft, {"do": "arrow", "seen": draft.now.seen, "loc": [cause, effect]})


def test_an_arrow_is_drawn_and_taken_out_at_its_line(tmp_path: Path) -> None:
    before = CLINIC.read_text()
    draft = on_desk(tmp_path, before)
    turn(draft, "sex", "bmi")
    assert changed(before, draft.path.read_text()) == ["+ - sex -> bmi"]
    turn(draft, "sex", "bmi")
    assert draft.path.read_text() == before
    turn(draft, "smoker", "bmi")
    assert changed(before, draft.path.read_text()) == ["- - age, smoker -> bmi", "+ - age -> bmi"]


@pytest.mark.parametrize("text", [CLINIC.read_text(), CLINIC.read_text().replace(
    "lower: 18, upper: 110", "lower: !fill_in 'a bound'")], ids=["whole", "draft"])  # fmt: skip
def test_a_cycle_is_refused_in_the_words_of_validate(tmp_path: Path, text: str) -> None:
    """Also in a draft whose blanks hide it from a check; nothing is written."""
    draft = on_desk(tmp_path, text)
    with pytest.raises(SpecError) as refused:
        turn(draft, "visits per year", "age")
    assert "the graph has a cycle: age -> bmi -> visits per year -> age" in str(refused.value)
    assert draft.path.read_text() == text and draft.past == []


def test_tiers_shut_cells_and_claims_are_told_with_who_tests_them(tmp_path: Path) -> None:
    draft = on_desk(tmp_path, CLINIC.read_text())
    put(draft, (["graph", "tiers", 0], "age, sex"))  # type: ignore[list-item]
    put(draft, (["graph", "tiers", 1], "bmi"), (["graph", "latent", 0], "bmi, visits per year"))  # type: ignore[list-item]
    graph = draft.now.content["graph"]
    assert graph["tiers"] == [["age", "sex"], ["bmi"]]
    assert graph["latent"] == [["bmi", "visits per year"]]
    claims, _ = told = drafts.claims(draft.now.found)
    draft.now.told[0.0] = {"claims": told, "said": ""}
    causes = parts(shown(draft), "causes")
    (matrix,) = (of for of in causes if of["kind"] == "matrix")
    cells = {c["name"]: c for row in matrix["rows"] for c in row["cells"] if c}
    assert cells["age acts on bmi"]["on"] and not cells["sex acts on bmi"]["on"]
    assert cells["bmi acts on age: no, back from tier 2 to 1"]["shut"]
    with pytest.raises(SpecError, match="goes back from tier 2 to tier 1"):
        turn(draft, "bmi", "sex")
    (caption,) = (of["caption"] for of in causes if of["kind"] == "grid")
    assert f"independences: {len(claims)}." in caption and "mode given tests none" in caption
    assert [of["kind"] for of in causes][-1] == "picture"
    put(draft, (["graph", "mode"], "predict"))
    assert [of["kind"] for of in parts(shown(draft), "causes")] == ["notes", "fields"]
