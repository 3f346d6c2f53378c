"""Scores of linked tables: on the page, at gates, and in MLflow."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import synthdp
from synthdp.cli.main import app
from synthdp.errors import GateError, SpecError
from synthdp.ledger import decision_of, open_book
from synthdp.spec.model import VISIT_SCORES
from tests.release.linked.conftest import problems, run, spec_at, write_spec

pytestmark = pytest.mark.check


def gates(*bounds: tuple[str, float]) -> list[dict[str, object]]:
    return [{"metric": name, "at_most": bound} for name, bound in bounds]


def test_every_score_is_there_and_on_the_page(made: Path) -> None:
    scores = synthdp.Bundle(made).scores
    assert tuple(scores["name"]) == VISIT_SCORES
    assert scores["low"].between(0, scores["value"]).all()
    assert scores["high"].between(scores["value"], 1).all()
    page = (made / "report.html").read_text()
    for heading in ("Fit for", "Courses from visit to visit", "Last visits"):
        assert heading in page


def test_green_is_never_noise(ward: Path, made: Path) -> None:
    assert states(made)["How many visits"] != "good"  # 300 persons: noise reaches the bound
    less = run(write_spec(ward.parent, {"privacy": {"epsilon": 0.5}})).bundle
    told = states(less)
    for heading in ("Columns of persons", "How many visits", "First visits", "Last visits"):
        assert told[heading] == "unknown", (heading, told)


def states(bundle: Path) -> dict[str, str]:
    """The states of the cards of a page by heading."""
    page = (bundle / "report.html").read_text()
    return {h: s for s, h in re.findall(r'<li class="card (\w+)"><h3>([^<]+?) ?<', page)}


def test_a_gate_that_holds(ward: Path) -> None:
    done = run(write_spec(ward.parent, {"gates": gates(("tv_counts_dp", 1.0))}))
    assert not problems(done.bundle)
    assert "tv_counts_dp at most 1" in (done.bundle / "report.html").read_text()


def test_a_gate_that_does_not_withholds_the_bundle(ward: Path) -> None:
    path, out = write_spec(ward.parent, {"gates": gates(("tv_last_dp", 0.01))}), ward.parent / "out"
    with pytest.raises(GateError, match=r"withheld: tv_last_dp: needs at most 0.01, got .*\(0 to"):
        run(path, out=out)
    assert [p.name for p in out.iterdir()] == ["plan.json"]
    entries = open_book(str(ward.parent / ".synthdp/ledger.db")).entries()
    found = decision_of(entries, entries[-1].run)
    assert found is not None and (found.answer, found.bundle_sha256) == ("no", "")
    with pytest.raises(Exception, match="interrupted"):
        CliRunner().invoke(app, ["resume", str(out)], catch_exceptions=False)


def test_gates_of_one_table_are_none_of_linked_ones(ward: Path) -> None:
    for metric in ("tv1", "tv1_dp", "attack_auc_upper"):
        with pytest.raises(SpecError):
            spec_at(write_spec(ward.parent, {"gates": gates((metric, 0.1))}))
    for other in ({"at_least": 0.1}, {"at_most": 0.1, "outside_guarantee": True}):
        with pytest.raises(SpecError):
            spec_at(write_spec(ward.parent, {"gates": [{"metric": "tv_last_dp", **other}]}))


def test_a_gate_that_noise_fails_is_told_beforehand(ward: Path) -> None:
    path = write_spec(ward.parent, {"gates": gates(("tv_persons_dp", 0.02))})
    done = CliRunner().invoke(app, ["plan", str(path)])
    assert "is likely to withhold the bundle" in done.stdout
    assert "noise alone will be about" in done.stdout


def test_mlflow_gets_a_run(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.chdir(ward.parent)
    done = run(write_spec(ward.parent, {"tracking": {"enabled": True}}))
    assert not done.warnings
    client = MlflowClient(f"sqlite:///{ward.parent / 'mlflow.db'}")
    (tracked,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    data = tracked.data
    assert data.tags["gate"] == "passed" and data.tags["synthdp.run"] == done.job.folder.run
    assert data.params["unit"] == "person: one patient with all stays"
    assert data.metrics["epsilon_planned"] == pytest.approx(4.9994, abs=1e-3)
    assert {*VISIT_SCORES} <= {*data.metrics}
    kept = {a.path for a in client.list_artifacts(tracked.info.run_id, "bundle")}
    assert {"bundle/report.html", "bundle/spec.yaml"} <= kept
    assert not any(path.endswith((".csv", ".parquet")) for path in kept)
    invoked = CliRunner().invoke(app, ["track", str(done.bundle.parent)], catch_exceptions=False)
    assert "logged" in invoked.stdout
    words = ["--yes", "--by", "A. Reviewer", "--why", "for a course"]
    CliRunner().invoke(app, ["decide", str(done.bundle.parent), *words], catch_exceptions=False)
    assert client.get_run(tracked.info.run_id).data.tags["decision"] == "yes"


def test_mlflow_learns_of_a_bundle_that_was_withheld(ward: Path) -> None:
    from mlflow import MlflowClient

    change = {"tracking": {"enabled": True}, "gates": gates(("tv_last_dp", 0.01))}
    with pytest.raises(GateError):
        run(write_spec(ward.parent, change))
    client = MlflowClient(f"sqlite:///{ward.parent / 'mlflow.db'}")
    (tracked,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert tracked.data.tags["gate"].startswith("withheld") and tracked.info.status == "FINISHED"
    assert not client.list_artifacts(tracked.info.run_id)


def test_nothing_is_logged_where_tracking_is_off(ward: Path) -> None:
    run(ward)
    assert not (ward.parent / "mlflow.db").exists()
