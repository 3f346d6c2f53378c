"""A finished release on the desk: what its page has, and what it may ask for."""

import json
from pathlib import Path

import pytest

from synthdp.api import reviews
from synthdp.desk import Case
from synthdp.errors import OutputError
from tests.api.test_reviews import NOT_CROSSED, SAID, make_finished
from tests.desk.test_draft import parts, settled, trapped

pytestmark = pytest.mark.check


def test_the_page_has_what_python_has_and_writes_once_it_is_whole(tmp_path: Path) -> None:
    out = make_finished(tmp_path / "<img src=x onerror=alert(1)>")
    case = Case(out, str(out / "ledger.db"))
    case._start(tuple)
    assert Case.shown(case)["status"][0] == "verifying the bundle ..."
    page, found = settled(case.shown), reviews.review(out, case.ledger)
    text, tables = json.dumps(page), [part for part in parts(page, "expected") if "rows" in part]
    told = [f"{line.what}: {line.found}" for line in found.red_lines]
    told += [found.decided, *found.facts.values(), "CONFIDENTIAL"]
    assert [one for one in told if json.dumps(one)[1:-1] not in text] == []
    assert [row["head"] for row in tables[1]["rows"]] == [gate[0] for gate in found.gates[1:]]
    asked = [field["loc"][0] for field in parts(page, "red")[1]["of"]]
    assert asked == [line.what for line in found.red_lines if line.state == "ask"]
    assert parts(page, "decide")[-1]["shut"]
    for wrong in ({"do": "decide", "seen": "another"}, {"do": "release"}):
        with pytest.raises(OutputError, match="nothing was recorded"):
            Case.act(case, wrong)
    Case.act(case, {"do": "decide", "seen": page["seen"]})
    assert "nothing was recorded: no answer" in settled(case.shown)["said"]
    said = [([key], value) for key, value in (SAID | NOT_CROSSED).items()]
    Case.act(case, {"do": "set", "values": said})
    assert not parts(Case.shown(case), "decide")[-1]["shut"]
    Case.act(case, {"do": "decide", "seen": page["seen"]})
    assert "decided: yes, by A. Reviewer on " in settled(case.shown)["status"][0]
    assert settled(case.shown)["said"] == "" and (out / "decision.md").exists()


TRAP = """
import time
from pathlib import Path
from synthdp.desk.decide import Case
case = Case(Path("out"), "out/ledger.db")
case.begin()
while case.counting: time.sleep(.1)
assert case.now and not case.problem, case.problem
for path in ("visits.csv", "elsewhere/visits.csv", "elsewhere/visits.csv/part", "out/x.csv"):
    try:
        open(path)
    except Exception as error:
        print(type(error).__name__)
"""


def test_the_process_opens_no_file_named_as_its_rows(tmp_path: Path) -> None:
    """Its name is in the bundle, and its folder is not; the release is verified all the same."""
    make_finished(tmp_path / "out")
    assert trapped(TRAP, tmp_path) == ["BoundaryError"] * 3 + ["FileNotFoundError"]
