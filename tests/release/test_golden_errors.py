"""What a user is told when data, budget, a gate, an output folder or a bundle is refused, to the
letter, and with which exit code.

Run with SYNTHDP_UPDATE_GOLDEN=1 to write the texts anew, then read them.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.check

FOLDER = Path(__file__).parents[1] / "golden" / "errors"
CANARY = "canary-7391"  # a value of a row: no error may tell it
Case = Callable[[Any, Callable[..., Any]], Any]


def without(tiny: Any, column: str) -> None:
    rows = [line.split(",") for line in (tiny.folder / "table.csv").read_text().splitlines()]
    place = rows[0].index(column)
    (tiny.folder / "table.csv").write_text(
        "\n".join(",".join(r[:place] + r[place + 1 :]) for r in rows) + "\n"
    )


def spoilt(tiny: Any, old: str, new: str) -> None:
    text = (tiny.folder / "table.csv").read_text()
    assert old in text
    (tiny.folder / "table.csv").write_text(text.replace(old, new, 3))


def data_missing_column(tiny: Any, run: Callable[..., Any]) -> Any:
    without(tiny.write(), "visits")
    return run("release", tiny.spec, "--out", tiny.out)


def data_outside_domain(tiny: Any, run: Callable[..., Any]) -> Any:
    spoilt(tiny.write(), "female,", f"{CANARY},")
    return run("release", tiny.spec, "--out", tiny.out)


def data_not_there(tiny: Any, run: Callable[..., Any]) -> Any:
    (tiny.write().folder / "table.csv").unlink()
    return run("release", tiny.spec, "--out", tiny.out)


def budget_above_cap(tiny: Any, run: Callable[..., Any]) -> Any:
    tiny.ledger.reserve(
        "tiny", "20260101-000000000000", epsilon=2.0, delta=1e-5, cap=(2.5, 1e-4), body={}
    )
    tiny.write()
    return run("release", tiny.spec, "--out", tiny.out)


def budget_no_ledger(tiny: Any, run: Callable[..., Any]) -> Any:
    return run("budget", "--ledger", tiny.folder / "none.db")


def gate_failed(tiny: Any, run: Callable[..., Any]) -> Any:
    tiny.write(gates=[{"metric": "tv1_noisy", "at_most": 1e-9}])
    return run("release", tiny.spec, "--out", tiny.out)


def output_exists(tiny: Any, run: Callable[..., Any]) -> Any:
    tiny.write()
    tiny.bundle.mkdir(parents=True)
    (tiny.bundle / "notes.txt").write_text("mine")
    return run("release", tiny.spec, "--out", tiny.out)


def resume_nothing(tiny: Any, run: Callable[..., Any]) -> Any:
    return run("resume", tiny.folder / "nowhere")


def spec_mistakes(tiny: Any, run: Callable[..., Any]) -> Any:
    tiny.write(privacy={"epsilon": -1}, synthesizer={"stepz": 3})
    return run("validate", tiny.spec)


def spec_impossible(tiny: Any, run: Callable[..., Any]) -> Any:
    tiny.write(constraints=["visits > 1e6"])
    return run("plan", tiny.spec)


def verify_no_bundle(tiny: Any, run: Callable[..., Any]) -> Any:
    return run("verify", tiny.folder / "nowhere")


RELEASES = ("data_", "budget_above", "output_", "resume_")  # the cases that a release ends in
CASES: dict[str, tuple[int, Case]] = {
    "data_missing_column": (5, data_missing_column),
    "data_outside_domain": (5, data_outside_domain),
    "data_not_there": (5, data_not_there),
    "budget_above_cap": (3, budget_above_cap),
    "budget_no_ledger": (3, budget_no_ledger),
    "gate_failed": (4, gate_failed),
    "output_exists": (2, output_exists),
    "resume_nothing": (2, resume_nothing),
    "spec_mistakes": (2, spec_mistakes),
    "spec_impossible": (2, spec_impossible),
    "verify_no_bundle": (6, verify_no_bundle),
}


def told(done: Any, folder: Path) -> str:
    """The error alone, without what differs from run to run."""
    text = "synthdp: " + done.err.partition("synthdp: ")[2]
    text = re.sub(r"(got|bound by) 0\.[0-9]+", r"\1 VALUE", text.replace(str(folder), "FOLDER"))
    return re.sub(r"[0-9]{8}-[0-9a-f]{12}", "RUN", re.sub(r"[0-9a-f]{64}", "HASH", text))


def compare(name: str, text: str, *, ending: str = "txt") -> None:
    path = FOLDER / f"{name}.{ending}"
    if os.environ.get("SYNTHDP_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert CANARY not in text and "Traceback" not in text


@pytest.mark.parametrize("name", CASES)
def test_the_text_and_the_code(name: str, tiny: Any, synthdp: Any) -> None:
    code, case = CASES[name]
    done = case(tiny, synthdp)
    assert done.code == code
    compare(name, told(done, tiny.folder))
    assert ("hint" in done.err) or name == "spec_mistakes"


def test_a_bundle_that_was_changed(released: Any, synthdp: Any) -> None:
    """Every problem at once: a value, a fact of the certificate, a stranger's file, a form of the
    table, the data card.
    """
    bundle = released.bundle
    lines = (bundle / "synthetic.csv").read_text().splitlines(keepends=True)
    (bundle / "synthetic.csv").write_text(
        "".join([lines[0], lines[1].replace("male", "martian"), *lines[2:]])
    )
    certificate = bundle / "privacy/certificate.json"
    certificate.write_text(
        re.sub(r'"epsilon_allowed": 1.0', '"epsilon_allowed": 0.1', certificate.read_text())
    )
    with (bundle / "DATACARD.md").open("a", encoding="utf-8") as card:
        card.write("changed\n")  # the changed row alone moves its figures in some runs only
    shutil.copy(bundle / "graph.svg", bundle / "extra.svg")
    done = synthdp("verify", bundle)
    assert done.code == 6
    compare("verify_stranger", told(done, released.folder))
    (bundle / "extra.svg").unlink()
    done = synthdp("verify", bundle)
    assert done.code == 6
    compare("verify_changed", told(done, released.folder))
    found = json.loads(synthdp("verify", bundle, "--json").out)
    assert len(found["problems"]) > 3 and all(p["message"] in done.err for p in found["problems"])
    compare(
        "verify_changed",
        told(
            SimpleNamespace(err=f"synthdp: {json.dumps(found, indent=1)}\n"), released.folder
        ).removeprefix("synthdp: "),
        ending="json",
    )


@pytest.mark.parametrize("name", CASES)
def test_the_json_says_what_the_text_says(name: str, tiny: Any, synthdp: Any) -> None:
    """Where there were no facts to tell: of a release that a gate withheld they are on stdout
    already, one object as ever.
    """
    code, case = CASES[name]
    done = case(tiny, lambda *arguments: synthdp(*arguments, "--json"))
    error = json.loads(done.out)
    assert done.code == code
    if name == "gate_failed":
        assert error["bundle"] is None and "error" not in error
        return
    assert set(error) - {"budget"} == {"error", "hint", "exit_code", "problems"}
    assert ("budget" in error) == name.startswith(RELEASES)
    assert error["exit_code"] == code
    assert error["problems"]
    compare(
        name,
        told(
            SimpleNamespace(err=f"synthdp: {json.dumps(error, indent=1)}\n"), tiny.folder
        ).removeprefix("synthdp: "),
        ending="json",
    )
    for word in leaves(error):  # nothing that the text withholds
        assert str(word) in done.err or word == code


def leaves(value: Any) -> Iterator[str | int]:
    """Every text and number in a JSON value."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    elif value is not None:
        yield value


def test_the_json_of_what_is_no_error_of_ours(
    tiny: Any, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage, a Ctrl-C and a bug, whose text may quote rows."""
    usage = synthdp("plan", "--json")
    assert usage.code == 2
    assert json.loads(usage.out)["exit_code"] == 2
    assert json.loads(usage.out)["error"] in usage.err
    assert "Error:" in usage.err
    assert json.loads(synthdp("graph", "show", "--json").out)["exit_code"] == 2

    def fails(error: BaseException) -> Callable[..., Any]:
        def load(path: Path) -> Any:
            raise error

        return load

    monkeypatch.setattr("synthdp.spec.load.loader.own_text", fails(KeyError(CANARY)))
    bug = synthdp("validate", "spec.yaml", "--json")
    assert bug.code == json.loads(bug.out)["exit_code"] == 1
    assert "KeyError" in json.loads(bug.out)["error"]
    assert CANARY not in bug.out + bug.err
    monkeypatch.setattr("synthdp.spec.load.loader.own_text", fails(KeyboardInterrupt()))
    stopped = synthdp("validate", "spec.yaml", "--json")
    assert stopped.code == json.loads(stopped.out)["exit_code"] == 130
    assert json.loads(stopped.out)["hint"] is None


def test_a_problem_of_each_kind_has_its_place(tiny: Any, synthdp: Any) -> None:
    tiny.write(privacy={"epsilon": -1}, synthesizer={"stepz": 3})
    found = json.loads(synthdp("validate", tiny.spec, "--json").out)
    lines = tiny.spec.read_text().splitlines()
    assert found["error"] == "2 mistakes in the spec"
    for problem, text in zip(found["problems"], ("-1", "stepz"), strict=True):
        assert problem["file"] == str(tiny.spec)
        assert lines[problem["line"] - 1][problem["column"] - 1 :].startswith(text)
    assert found["problems"][1]["where"] == "synthesizer.stepz"
    assert found["problems"][1]["hint"] == "did you mean 'steps'?"


def test_no_golden_is_left_over() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == {*CASES, "verify_stranger", "verify_changed"}
    assert {p.stem for p in FOLDER.glob("*.json")} == {*CASES} - {"gate_failed"} | {
        "verify_changed"
    }
