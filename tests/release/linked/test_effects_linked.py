"""Effects of one step that a release of linked tables pays for, from its spec to `verify`."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import synthdp
from synthdp.cli.main import app
from synthdp.errors import BudgetError, OutputError
from synthdp.privacy import ChosenOnView
from synthdp.release import planned_linked, resume_linked
from synthdp.verify import verify_bundle
from tests.release.linked.conftest import (
    MOST,
    PAID,
    SPEC,
    problems,
    run,
    spec_at,
    write_spec,
    write_tables,
)


@pytest.mark.check
def test_effects_are_paid_for_told_and_derived_again(paid: Path) -> None:
    assert verify_bundle(paid).ok
    facts = json.loads((paid / "privacy/certificate.json").read_text())
    assert dict(facts["sensitivities"])["estimand: 1"] == 1
    assert dict(facts["sensitivities"])["estimand: 2"] == MOST - 1
    told = json.loads((paid / "estimands.json").read_text())["estimands"]
    assert [e["name"] for e in told] == ["1", "2"] and told[0]["adjusted"] == [[]]
    bundle = synthdp.Bundle(paid)
    assert json.loads(json.dumps([e.to_json() for e in bundle.estimands])) == [
        {k: v for k, v in e.items() if k not in ("name", "kind")} for e in told
    ]
    again = bundle.effect("patients.sex", "stays[1].stage", level="0")
    assert json.loads(json.dumps(again.to_json()["contrasts"])) == told[0]["contrasts"]
    shown = CliRunner().invoke(app, ["answer", str(paid)])
    assert "effect of stays.stage on mean(stays.cost)" in shown.output
    words = ["--treatment", "patients.sex", "--outcome", "stays[1].stage", "--level", "0"]
    asked = CliRunner().invoke(app, ["effect", str(paid), *words, "--adjust", "none"])
    assert "law: first visits" in asked.output and "M against F" in asked.output


FORGED: dict[str, Callable[[Any], Any]] = {
    "estimands.json: its figures do not follow": lambda files: files["estimands.json"]["estimands"][
        0
    ]["contrasts"][0].update(estimate=0.9),
    "states other noise than the plan": lambda files: next(
        t for t in files["marginals.json"]["tables"] if t["purpose"] == "estimand: 2"
    ).update(sigma=1.0),
    "or of other rows than it looks at": lambda files: next(
        t for t in files["marginals.json"]["tables"] if t["purpose"] == "estimand: 2"
    ).update(rows_of_a_person=1),
    "its tables are not those of the spec": lambda files: next(
        t for t in files["marginals.json"]["tables"] if t["purpose"] == "estimand: 1"
    )["columns"].reverse(),
}


@pytest.mark.check
@pytest.mark.parametrize("told", FORGED)
def test_forged_effects_are_found(paid: Path, tmp_path: Path, told: str) -> None:
    bundle = Path(shutil.copytree(paid, tmp_path / "bundle"))
    files = {n: json.loads((bundle / n).read_text()) for n in ("estimands.json", "marginals.json")}
    FORGED[told](files)
    for name, content in files.items():
        (bundle / name).write_text(json.dumps(content, indent=1) + "\n")
    assert told in problems(bundle)
    (bundle / "estimands.json").unlink()
    assert "estimands.json" in problems(bundle, mended=False)


@pytest.mark.check
def test_groups_of_columns_that_are_not_asked_about_are_summed_over(tmp_path: Path) -> None:
    """Tables of first visits have costs of last ones on groups of levels, those of steps gaps."""
    write_tables(tmp_path)
    columns = copy.deepcopy(SPEC["columns"])
    columns["stays"]["cost"]["bins"] = 20
    made = run(write_spec(tmp_path, {"columns": columns})).bundle
    told = json.loads((made / "marginals.json").read_text())["tables"]
    grouped = {name for table in told for name in table.get("starts", {})}
    assert {"stays[last].cost", "stays[-1].gap"} <= grouped
    bundle = synthdp.Bundle(made)
    assert bundle.effect("patients.sex", "stays[1].stage", level="0").contrasts
    assert bundle.effect("stays.stage", "stays.cost", adjust=[]).contrasts
    assert abs(bundle.answer("mean(stays.cost)").estimate - 50) < 25
    drawn = bundle.copies(2, columns=["stays.cost", "stays.stage"])
    assert {"stays.cost", "stays.stage"} <= {*drawn.tables[0].columns}


@pytest.mark.check
def test_what_is_hopeless_or_confounded_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    write_tables(tmp_path)
    several = {"kind": "effect", "treatment": "stays.stage", "outcome": "stays[+1].stage"}
    several |= {"level": "0", "adjust": []}  # both depend on sex
    path = write_spec(tmp_path, PAID | {"estimands": [several]})
    with pytest.raises(OutputError, match="does not give the effect of"):
        run(path)
    poor = PAID["privacy"] | {"epsilon": 0.05}
    path = write_spec(tmp_path, PAID | {"privacy": poor})
    with pytest.raises(BudgetError, match="noise would move the effect by"):
        planned_linked(spec_at(path), path)
    nothing = {"kind": "effect", "treatment": "stays.cost", "outcome": "stays.stage"}
    path = write_spec(tmp_path, PAID | {"estimands": [nothing]})
    with pytest.raises(OutputError, match="no arrows lead there"):
        run(path)
    blurred = {"kind": "effect", "treatment": "patients.sex", "outcome": "stays[1].stage"}
    path = write_spec(tmp_path, PAID | {"estimands": [blurred]})
    with pytest.raises(OutputError, match="has no mean"):
        run(path)
    assert not (tmp_path / "out").exists()


@pytest.mark.check
def test_a_release_that_stops_between_effects_pays_for_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path)
    path, seen, true = write_spec(tmp_path, PAID), list[int](), ChosenOnView.pack

    def stopped(look: ChosenOnView, value: Any) -> Any:
        seen.append(max(map(len, look.chosen.tables)))
        if seen[-1] > 2 and len(seen) > 2:  # the table of the second effect, once
            raise KeyboardInterrupt
        return true(look, value)

    with monkeypatch.context() as patch:
        patch.setattr(ChosenOnView, "pack", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(path)
    outcome = resume_linked(spec_at(path), tmp_path / "out")
    assert verify_bundle(outcome.bundle).ok
    charged = json.loads((outcome.bundle / "privacy/ledger.json").read_text())["entries"]
    paid = [e["body"]["purpose"] for e in charged if e["kind"] == "charge"]
    assert paid.count("estimand: 1") == paid.count("estimand: 2") == 1
