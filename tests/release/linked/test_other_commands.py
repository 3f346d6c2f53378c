"""What there is not yet for linked tables is refused by one sentence, of a spec and of a bundle."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import synthdp
from synthdp.cli.main import app
from synthdp.data import VisitFrame
from synthdp.errors import SpecError, SynthdpError, VerifyError
from synthdp.inference import Answer, VisitQuestions, questions_of
from synthdp.model import MeasuredEffect, estimand_looks
from synthdp.release import planned_linked
from synthdp.spec import linked_in
from synthdp.verify import verify_bundle
from tests.release.linked.conftest import spec_at, write_hospital, write_spec

OF_SPEC = (
    "plan SPEC --rehearse",
    "plan SPEC --what-if 1,2",
    "release SPEC --accept-refusals",
    "inspect SPEC",
    "study SPEC --simulated",
    "graph show SPEC",
    "graph learn SPEC",
    "graph validate SPEC",
    "graph orient SPEC sex stage",
)
OF_BUNDLE = (
    "copies BUNDLE --out OUT",
    "sample BUNDLE --rows 5",
    "sample BUNDLE --rows 5 --out OUT --given patients.sex=F",
    "sample BUNDLE --rows 5 --out OUT --do patients.sex=F",
)


def refused(command: str, **places: Path) -> str:
    words = command.split()
    for name, path in places.items():
        words = [word.replace(name, str(path)) for word in words]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, SynthdpError), (command, done.exception, done.output)
    return done.exception.message


@pytest.mark.check
@pytest.mark.parametrize("command", OF_SPEC)
def test_commands_of_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    told = refused(command, SPEC=write_spec(tmp_path))
    assert "linked" in told
    assert not (tmp_path / ".synthdp").exists() and not (tmp_path / "releases").exists()


@pytest.mark.check
@pytest.mark.parametrize("command", OF_BUNDLE)
def test_commands_of_a_bundle(made: Path, tmp_path: Path, command: str) -> None:
    told = refused(command, BUNDLE=made, OUT=tmp_path / "out")
    reasons = ("linked", "two tables", "not drawn by what is given", "may change who is lost")
    assert any(reason in told for reason in reasons), told
    assert not (tmp_path / "out").exists()


@pytest.mark.check
@pytest.mark.parametrize("lost", ["nobody", "natural"])
def test_an_intervention_says_who_is_lost(made: Path, tmp_path: Path, lost: str) -> None:
    out = tmp_path / "out"
    words = ["--rows", "40", "--out", str(out), "--do", "patients.sex=F", "--do", "stays[2].cost=7"]
    done = CliRunner().invoke(app, ["sample", str(made), *words, "--lost", lost])
    assert done.exit_code == 0, done.exception
    told = " ".join(done.output.split())
    assert f"lost: {lost};" in told and "nothing tells an interval" in told
    patients, stays = (pd.read_csv(out / f"{name}.csv") for name in ("patients", "stays"))
    number = stays.groupby("of_patient").cumcount() + 1
    assert (patients["sex"] == "F").all() and (stays["cost"][number == 2] == 7).all()
    assert lost == "natural" or patients["died"].isna().all()


@pytest.mark.check
def test_copies_are_of_one_kind_of_rows(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "copies"
    words = ["--columns", "patients.sex, stays[1].stage", "--m", "3", "--rows", "200"]
    done = CliRunner().invoke(app, ["copies", str(made), *words, "--out", str(out)])
    assert done.exit_code == 0, done.exception
    told = " ".join(done.output.split())
    assert "rows are persons with a visit: each counts once; they have no key" in told
    assert json.loads((out / "spanned.json").read_text())["law"].startswith("persons with a visit")
    rows = pd.read_csv(out / "copy-1.csv")
    assert [*rows] == ["patients.sex", "stays[1].stage"] and len(rows) == 200
    copies = synthdp.Bundle(made).copies(5, columns=["patients.sex"], rows=500, seed=2)

    def women(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
        known = (table["patients.sex"] == "F").astype(float)
        return {"women": (float(known.mean()), float(known.var() / len(known)))}

    found = copies.pool(women).loc["women"]
    assert 0.2 < found["low"] < found["estimate"] < found["high"] < 0.8


@pytest.mark.check
def test_the_road_by_commands(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ward.parent)

    def done(*words: str) -> str:
        found = CliRunner().invoke(app, [*words])
        assert found.exit_code == 0, (words, found.exception)
        return found.output

    assert "steps: pairs" in done("plan", str(ward))
    assert "releases/ward/bundle" in done("release", str(ward))
    assert "agrees with itself" in done("verify", "releases/ward/bundle")
    assert "5 persons" in done("sample", "releases/ward/bundle", "--rows", "5", "--out", "more")
    assert sorted(p.name for p in Path("more").iterdir()) == ["patients.csv", "stays.csv"]
    assert "ward" in done("budget", "ward")
    done("budget", "--check", "releases/ward/bundle")
    assert "stays.stage" in done("graph", "show", "releases/ward/bundle")
    assert "ward" in done("index", "releases")


@pytest.mark.check
def test_a_bundle_answers_by_command_and_in_python(made: Path) -> None:
    found = synthdp.Bundle(made).answer("share(stays.stage == '2') by patients.sex")
    assert isinstance(found, Answer) and len(found.to_frame()) == 2
    told = CliRunner().invoke(app, ["answer", str(made), "mean(stays.number)", "--json"])
    assert json.loads(told.output)["law"] == "persons: each counts once"
    lines = "share(stays[1].stage == '0')\nshare(stays[1].day > 3)\ncount()\n"
    many = CliRunner().invoke(app, ["answer", str(made), "-"], input=lines)
    assert "law: persons with a visit" in many.output and "law: persons: each" in many.output
    every = CliRunner().invoke(app, ["answer", str(made), "--every"])
    assert every.exit_code == 0 and "mean(stays.cost) by stays.stage" in every.output
    assert {a.law for a in questions_of(made).every()} == {
        rows.law for rows in VisitQuestions(made).rows.values()
    }


def test_python_refuses(made: Path, tmp_path: Path) -> None:
    spec = synthdp.Spec.load(write_spec(tmp_path))
    for ask in (
        lambda: spec.content,
        lambda: spec.columns,
        spec.inspect,
        lambda: synthdp.audit_release(spec),
        lambda: spec.release(attack="later"),
        lambda: spec.release(accept_refusals=True),
        lambda: spec.plan(rehearse=True),
    ):
        with pytest.raises(SynthdpError, match="linked"):
            ask()
    with pytest.raises((SpecError, VerifyError)):
        synthdp.Bundle(made).table()


@pytest.mark.parametrize("change", [{"dataset": {"title": "A title"}}, {"sampling": {}}])
def test_a_spec_of_other_words_is_planned_alike(tmp_path: Path, change: dict[str, Any]) -> None:
    plans = []
    for own in (None, change):
        path = write_spec(tmp_path, own)
        plans.append(planned_linked(spec_at(path), path)[0]["spends"])
    assert plans[0] == plans[1]


GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "visits.md"


def in_guide(language: str) -> list[str]:
    found: list[str] = re.findall(
        rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    return found


def test_the_guide_has_a_spec_that_is_valid(tmp_path: Path) -> None:
    text, _, more = in_guide("yaml")
    spec = linked_in(text, path="hospital.yaml")
    assert spec is not None and spec.dataset.visits.at_most == 12
    spec = linked_in(re.sub(r"^privacy:.*\n", more, text, flags=re.MULTILINE), path="hospital.yaml")
    assert spec is not None
    frame = VisitFrame.from_spec(spec)
    effects = [e for _, e, _ in estimand_looks(spec, frame) if isinstance(e, MeasuredEffect)]
    assert effects[0].adjusted == ("patients.smoker", "stays.stage")
    assert effects[1].adjusted == ("stays.stage", "patients.smoker") and effects[1].steps == 3
    played = planned_linked(spec, tmp_path / "hospital.yaml")[0]["estimands"]
    assert len(played) == 4 and max(e["refused"] for e in played) < 0.5


@pytest.mark.check
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a hospital of its own, at its own budget."""
    monkeypatch.chdir(tmp_path)
    write_hospital(tmp_path)
    Path("hospital.yaml").write_text(in_guide("yaml")[0])
    for line in "".join(in_guide("sh")).splitlines():
        if "postgresql" in line:  # there is no such server here
            continue
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)
    assert "path: stays.csv" in Path("draft.yaml").read_text()
    scope: dict[str, Any] = {}
    for block in in_guide("python"):
        exec(block, scope)
    assert len(scope["both"]) > 0 and verify_bundle(scope["done"].bundle.path).ok
