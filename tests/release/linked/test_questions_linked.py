"""Questions, clipped numbers and several steps that a release pays for, from spec to `verify`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import synthdp
from synthdp.api.text import linked_plan_text
from synthdp.cli.main import app
from synthdp.errors import BudgetError
from synthdp.release import planned_linked, release_linked
from synthdp.spec import linked_in
from synthdp.spec.model import LinkedSpec
from synthdp.verify import verify_bundle
from tests.inference.wards import SHARES, ward_spec
from tests.release.linked.conftest import problems
from tests.visits import made_up

ASK = "share(visits.stage == '2') by visits.drug"
ASKED: list[dict[str, Any]] = [
    {"kind": "question", "ask": ASK},
    {"kind": "question", "ask": "mean(visits[1].bp)", "clip": [100, 150]},
    {
        "kind": "effect",
        "treatment": "visits.drug",
        "outcome": "visits[+1].stage",
        "level": "2",
        "steps": 2,
    },
    {
        "kind": "effect",
        "treatment": "visits.drug",
        "outcome": "visits[+1].bp",
        "adjust": ["visits.stage", "persons.sex"],
        "clip": [100, 150],
    },
]
QUIET = {"evaluation": {"enabled": False}, "tracking": {"enabled": False}}


def asked_spec(folder: Path, epsilon: float, estimands: list[dict[str, Any]]) -> Path:
    """The spec of a ward beside its tables."""
    spec = ward_spec(900, estimands, epsilon).model_dump(mode="json", exclude_unset=True)
    (folder / "ward.yaml").write_text(json.dumps(spec | QUIET))
    for name, table in zip(("persons", "visits"), made_up(900, seed=3), strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder / "ward.yaml"


def read(path: Path) -> LinkedSpec:
    spec = linked_in(path.read_text(), path=str(path))
    assert spec is not None and spec.privacy.shares.estimands == SHARES["estimands"]
    return spec


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that paid for all of them; not to be changed."""
    folder = tmp_path_factory.mktemp("asked")
    path = asked_spec(folder, 20.0, ASKED)
    out = folder / "out"
    return release_linked(read(path), path, path.read_text(), out=out).bundle


@pytest.mark.check
def test_questions_are_paid_for_told_and_derived_again(asked: Path) -> None:
    assert verify_bundle(asked).ok
    certified = dict(json.loads((asked / "privacy/certificate.json").read_text())["sensitivities"])
    assert (certified["estimand: 1"], certified["estimand: 1, first visits"]) == (3, 1)
    assert (certified["estimand: 2"], certified["estimand: 3"]) == (1, 3)
    told = json.loads((asked / "estimands.json").read_text())["estimands"]
    assert [e["kind"] for e in told] == ["question", "question", "effect", "effect"]
    assert told[0]["law"] == "visits: each counts once, the first 4 of a person"
    assert told[2]["query"].startswith("effect of visits.drug at 2 visits in a row")
    bundle = synthdp.Bundle(asked)
    again = bundle.answer("share( visits.stage == '2' )  by visits.drug")
    assert json.loads(json.dumps(again.to_json()["figures"])) == told[0]["figures"]
    other = bundle.answer("mean(visits[1].bp)").to_json()
    assert other["figures"] != told[1]["figures"]  # of numbers that are not clipped
    shown = CliRunner().invoke(app, ["answer", str(asked)]).output
    assert ASK in shown and "visits[1].bp clipped to 100 to 150" in shown
    one = bundle.effect("visits.drug", "visits[+1].stage", level="2")
    assert one.query.steps == 1 and one.figures[0].estimate is not None


@pytest.mark.check
@pytest.mark.parametrize("at", [0, 2])
def test_a_forged_figure_is_found(asked: Path, tmp_path: Path, at: int) -> None:
    bundle = Path(shutil.copytree(asked, tmp_path / "bundle"))
    content = json.loads((bundle / "estimands.json").read_text())
    estimand = content["estimands"][at]
    (estimand.get("figures") or estimand["contrasts"])[0]["estimate"] += 0.01
    (bundle / "estimands.json").write_text(json.dumps(content, indent=1) + "\n")
    assert "its figures do not follow" in problems(bundle)


@pytest.mark.check
def test_a_plan_says_how_wide_and_refuses_what_is_hopeless(tmp_path: Path) -> None:
    path = asked_spec(tmp_path, 20.0, ASKED)
    facts, _ = planned_linked(read(path), path)
    played = facts["estimands"]
    assert [e["statistic"] for e in played] == ["share", "mean", "effect", "effect"]
    assert all(e["refused"] == 0 and e["figures"][0]["half_width"] > 0 for e in played)
    text = linked_plan_text(facts)
    assert f"estimand 1, {ASK}: 95% interval of about" in text and "played on even tables" in text
    path = asked_spec(tmp_path, 0.7, ASKED[2:3])
    facts, _ = planned_linked(read(path), path)
    assert facts["estimands"][0]["hopeless"]
    assert "estimand 1 is likely to be paid for and refused" in " ".join(facts["warnings"])
    with pytest.raises(
        BudgetError, match=r"at 2 visits in a row .*: refused in .* of plays"
    ) as told:
        release_linked(read(path), path, path.read_text(), out=tmp_path / "out")
    assert "ask of fewer steps" in (told.value.hint or "") and not (tmp_path / "out").exists()
