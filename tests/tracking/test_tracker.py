"""Tracking against a real SQLite store, asked back through MLflow's client."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from synthdp.errors import GateError, OutputError
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.tracking import (
    PATIENCE,
    VIEW_COLUMNS,
    VIEW_TAG,
    AttackOutcome,
    Patience,
    PublicationVerdict,
    Tracker,
    log_tags,
    note,
    tracker,
    view_path,
)

pytestmark = pytest.mark.check

SPEC = """
synthdp: 1
dataset:
  id: clinic
  source: {kind: csv, path: secret-folder/visits.csv}
  privacy_unit: {kind: row, meaning: one visit}
  rows: {kind: public, value: 98765}
columns:
  sex: {type: categorical, categories: [female, male]}
  visits: {type: integer, lower: 0, upper: 4321}
privacy: {epsilon: 2, delta: 1e-6}
"""
FIGURES = {"advantage": 0.03, "advantage_lower": -0.1, "advantage_upper": 0.13, "auc": 0.52}
ATTACK = AttackOutcome(name="membership", params={"pairs": 40}, metrics=FIGURES)


@dataclass
class Store:
    """One store for all tests of this file: MLflow's first start takes seconds."""

    folder: Path
    spec: ReleaseSpec
    client: Any

    def runs(self, run: str) -> list[Any]:
        experiment = self.client.get_experiment_by_name("synthdp").experiment_id
        return list(
            self.client.search_runs([experiment], filter_string=f"tags.`synthdp.run` = '{run}'")
        )

    def run(self, run: str) -> Any:
        (found,) = self.runs(run)
        return found


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("tracking")
    spec = parse_spec(SPEC, path="spec.yaml")
    with tracker(spec, folder=folder, run="first"):
        pass
    from mlflow.tracking import MlflowClient

    return Store(folder, spec, MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}"))


def release(store: Store, run: str) -> Tracker:
    """A whole release, as the pipeline logs it."""
    (store.folder / "bundle").mkdir(exist_ok=True)
    (store.folder / "bundle" / "model.safetensors").write_bytes(b"x")
    (store.folder / "internal.html").write_text("<p>report")
    opened = tracker(store.spec, folder=store.folder, run=run)
    with opened:
        opened.metrics(
            {"epsilon_planned": 1.99, "epsilon_spent": 1.5, "tv1": 0.01, "tstr_auc": float("nan")}
        )
        opened.attack(ATTACK)
        opened.artifact(store.folder / "bundle", folder="bundle")
        opened.artifact(store.folder / "internal.html", folder="internal")
        opened.conclude(
            PublicationVerdict(released=True, gates=("tv1_noisy 0.01, at most 0.2: held",))
        )
    return opened


def _interrupted(opened: Tracker, error: BaseException) -> None:
    with opened:
        opened.params({"stage": "train"})
        if isinstance(error, GateError):
            opened.conclude(PublicationVerdict(released=False))
        raise error


@pytest.mark.check
def test_a_release_is_one_run_with_its_facts(store: Store) -> None:
    opened = release(store, "whole")
    assert opened.warnings == []
    run = store.run("whole")
    assert run.info.status == "FINISHED" and run.info.run_name == "clinic - released - eps 2"
    params, metrics, tags = run.data.params, run.data.metrics, run.data.tags
    assert params["epsilon"] == "2.0"
    assert params["delta"] == "1e-06"
    assert params["unit"] == "row: one visit"
    assert params["adjacency"] == "add_remove"
    assert params["graph"] == "none"
    assert params["synthesizer.steps"] == "800"
    assert len(params["spec_sha256"]) == 64
    assert metrics == {
        "epsilon_planned": 1.99,
        "epsilon_spent": 1.5,
        "tv1": 0.01,
        "attack_advantage": 0.03,
        "attack_advantage_lower": -0.1,
        "attack_advantage_upper": 0.13,
        "attack_auc": 0.52,
    }
    assert tags["gate"] == "passed" and tags["dataset"] == "clinic" and tags["signed"] == "no"
    note = tags["mlflow.note.content"]
    budget = "epsilon **1.99 of 2** at delta 1e-06 (1.5 used on this outcome, which is no bound)"
    assert note.startswith(
        f"## Released: no gate withheld the bundle\n\n{budget}; attack advantage **0.03** (-0.1 to"
        " 0.13)"
    )
    assert "- tv1_noisy 0.01, at most 0.2: held" in note and "**Attack membership**" in note
    assert "without one nobody has decided" in note and "decision" not in tags


def test_a_decision_is_a_tag_and_a_store_that_is_lost_a_warning(store: Store) -> None:
    decision = {"decision": "no", "decision_by": "A. Reviewer", "decision_why": "rows seen"}
    out = store.folder
    assert log_tags(out / "untracked", "decided", decision) == []
    (out / "spec.yaml").write_text(SPEC)
    (out / "internal").mkdir(exist_ok=True)
    release(store, "decided").keep(out)
    assert log_tags(out, "another", decision) == []
    assert "decision" not in store.run("decided").data.tags
    for answer in ("yes", "no"):
        assert log_tags(out, "decided", decision | {"decision": answer}) == []
    tags = store.run("decided").data.tags
    assert tags["decision"] == "no" and tags["gate"] == "passed"
    assert tags.items() >= decision.items()
    record = json.loads((out / "internal" / "tracking.json").read_text())
    (out / "internal" / "tracking.json").write_text(json.dumps(record | {"run": "never"}))
    (warning,) = log_tags(out, "never", decision)
    assert warning.startswith("MLflow has no run never") and "synthdp track" in warning
    (out / "spec.yaml").write_text(f"{SPEC}tracking: {{uri: 'sqlite:///gone.db'}}\n")
    (warning,) = log_tags(out, "never", decision)
    assert "no MLflow store at" in warning and not (out / "gone.db").exists()
    (out / "spec.yaml").unlink()
    (warning,) = log_tags(out, "never", decision)
    assert warning.startswith("MLflow was not told")


def test_figures_have_four_digits_and_epsilon_stays_a_bound(store: Store) -> None:
    with tracker(store.spec, folder=store.folder, run="digits") as opened:
        opened.metrics({"epsilon_planned": 1.99012, "epsilon_spent": 0.99934, "tv1": 0.0123449})
    assert store.run("digits").data.metrics == {
        "epsilon_planned": 1.991,
        "epsilon_spent": 0.9994,
        "tv1": 0.01234,
    }


@pytest.mark.parametrize(
    ("upper", "told"),
    [
        (0.13, "the attack **cannot tell**: advantage at most 0.13, and the claim allows 0.05"),
        (0.04, "attack advantage **0.03** (-0.1 to 0.04)"),
    ],
)
def test_noise_of_an_attack_is_no_headline(upper: float, told: str) -> None:
    figures = FIGURES | {"advantage_upper": upper, "ceiling": 0.05}
    named = {f"attack_{name}": value for name, value in figures.items()}
    assert told in note({"epsilon": "1"}, named, (), None, status="FINISHED")


@pytest.mark.check
def test_a_run_that_noise_let_pass_says_so_in_its_tag(store: Store) -> None:
    told = "gate tv1_dp: needs at most 0.1, got 0.0134 (0 to 0.106): passed; noise decided"
    with tracker(store.spec, folder=store.folder, run="lucky") as opened:
        opened.conclude(PublicationVerdict(released=True, gates=(told,)))
    tags = store.run("lucky").data.tags
    assert tags["gate"] == "passed; noise decided" and told in tags["mlflow.note.content"]


def test_published_scores_stand_apart_and_with_their_intervals() -> None:
    named = {"tv1_dp": 0.0134, "tv1_dp_low": 0.0, "tv1_dp_high": 0.106, "tv1": 0.0711}
    told = note({"epsilon": "1"}, named, (), None, status="FINISHED")
    published, internal = told.split("| internal: real rows without noise | |")
    assert "| tv1_dp | 0.0134 (0 to 0.106) |" in published and "tv1_dp" not in internal
    assert "| tv1 | 0.0711 |" in internal and "_low" not in told


def test_artifacts_lie_beside_the_store(store: Store) -> None:
    release(store, "files")
    run = store.run("files")
    assert [a.path for a in store.client.list_artifacts(run.info.run_id, "bundle")] == [
        "bundle/model.safetensors"
    ]
    assert [a.path for a in store.client.list_artifacts(run.info.run_id, "internal")] == [
        "internal/internal.html"
    ]
    assert run.info.artifact_uri.startswith((store.folder / "mlflow-artifacts").as_uri())


def test_attacks_are_nested_runs(store: Store) -> None:
    release(store, "nested")
    parent = store.run("nested").info.run_id
    experiment = store.client.get_experiment_by_name("synthdp").experiment_id
    (child,) = store.client.search_runs(
        [experiment], filter_string=f"tags.`mlflow.parentRunId` = '{parent}'"
    )
    assert child.info.run_name == "attack: membership" and child.info.status == "FINISHED"
    assert child.data.params == {"pairs": "40"} and child.data.metrics["advantage_upper"] == 0.13


@pytest.mark.parametrize(
    ("error", "status", "headline"),
    [
        (GateError("tv1 too high"), "FINISHED", "Withheld: a gate failed"),
        (RuntimeError("value 31337 is odd"), "FAILED", "Failed before the verdict"),
        (KeyboardInterrupt(), "KILLED", "Interrupted: resumable"),
    ],
)
def test_status_says_how_it_ended_and_nothing_of_the_error(
    store: Store, error: BaseException, status: str, headline: str
) -> None:
    name = f"ended-{type(error).__name__}"
    opened = tracker(store.spec, folder=store.folder, run=name)
    with pytest.raises(type(error)):
        _interrupted(opened, error)
    run = store.run(name)
    assert run.info.status == status and headline in run.data.tags["mlflow.note.content"]
    word = {"FINISHED": "withheld", "FAILED": "failed", "KILLED": "interrupted"}[status]
    assert run.info.run_name == f"clinic - {word} - eps 2"
    assert run.data.tags["error"] == type(error).__name__ and "31337" not in str(run.data)
    assert run.data.tags["gate"] == ("withheld" if isinstance(error, GateError) else "open")


def test_a_resumed_release_goes_on_with_its_run(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        _interrupted(tracker(store.spec, folder=store.folder, run="resumed"), KeyboardInterrupt())
    with tracker(store.spec, folder=store.folder, run="resumed") as opened:
        opened.params({"stage": "other"})  # MLflow refuses to change a parameter; the first stays
        opened.metrics({"tv1": 0.5})
    assert opened.warnings == []
    run = store.run("resumed")
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"tv1": 0.5}
    assert run.data.params["stage"] == "train"


def test_no_row_count_bound_or_path_is_logged(store: Store) -> None:
    release(store, "leaks")
    everything = str(store.run("leaks").to_dictionary())
    for secret in ("98765", "4321", "secret-folder"):
        assert not re.search(
            rf"\b{secret}\b", everything
        )  # as a whole: ids and times hold any four digits by chance


def test_the_dataset_is_what_the_spec_declares(store: Store) -> None:
    """Names and types; the digest is of these, so that no row moves it."""
    release(store, "declared")
    (known,) = store.run("declared").inputs.dataset_inputs
    assert json.loads(known.dataset.schema)["mlflow_colspec"] == [
        {"name": "sex", "type": "string", "required": True},
        {"name": "visits", "type": "long", "required": True},
    ]
    assert known.dataset.name == "clinic" and known.dataset.profile is None
    with tracker(store.spec, folder=store.folder, run="declared again"):
        pass
    (again,) = store.run("declared again").inputs.dataset_inputs
    assert again.dataset.digest == known.dataset.digest


def test_the_view_for_reviewers_is_saved(store: Store) -> None:
    experiment = store.client.get_experiment_by_name("synthdp")
    state = json.loads(experiment.tags[VIEW_TAG])
    assert state["selectedColumns"] == list(VIEW_COLUMNS)
    assert "metrics.`epsilon_planned`" in VIEW_COLUMNS
    assert len(VIEW_COLUMNS) <= 8
    assert (
        view_path(experiment.experiment_id)
        == f"/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey=synthdp"  # noqa: E501
    )


def test_the_experiment_says_how_to_read_it_and_keeps_what_reviewers_write(store: Store) -> None:
    experiment = store.client.get_experiment_by_name("synthdp")
    note = experiment.tags["mlflow.note.content"]
    assert "Confidential" in note and all(f"`{c.split('`')[1]}`" in note for c in VIEW_COLUMNS)
    store.client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", "ours")
    with tracker(store.spec, folder=store.folder, run="noted"):
        pass
    assert store.client.get_experiment_by_name("synthdp").tags["mlflow.note.content"] == "ours"


def test_failures_after_the_start_are_warnings(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tracker(store.spec, folder=store.folder, run="unlucky")
    with opened:
        broken = RuntimeError("secret 31337")

        def fail(*_: object, **__: object) -> None:
            raise broken

        monkeypatch.setattr(
            opened, "_client", type("Broken", (), {"__getattr__": lambda *_: fail})()
        )
        opened.metrics({"tv1": 1.0})
        opened.attack(ATTACK)
        opened.artifact(store.folder / "nothing.html")
        opened.conclude(PublicationVerdict(released=True))
    assert opened.warnings[0] == "MLflow: could not log metrics (RuntimeError)"
    assert len(opened.warnings) == 6
    assert "31337" not in str(opened.warnings)


def test_unreachable_store_is_refused_before_anything_is_spent(store: Store) -> None:
    uri = "postgresql://steward:hunter2@127.0.0.1:1/mlflow"
    spec = store.spec.model_copy(
        update={"tracking": store.spec.tracking.model_copy(update={"uri": uri})}
    )
    with (
        pytest.raises(OutputError, match="cannot open the MLflow store") as caught,
        tracker(spec, folder=store.folder, run="x"),
    ):
        pass
    assert "hunter2" not in str(caught.value)


def test_a_deleted_experiment_is_told_with_both_ways_out(store: Store) -> None:
    """At once, and without a word of moving the store away, in which other runs are."""
    named = store.spec.tracking.model_copy(update={"experiment": "ward 7"})
    spec = store.spec.model_copy(update={"tracking": named})
    with tracker(spec, folder=store.folder, run="before"):
        pass
    found = store.client.get_experiment_by_name("ward 7")
    store.client.delete_experiment(found.experiment_id)
    begun = time.monotonic()
    with (
        pytest.raises(OutputError) as caught,
        tracker(spec, folder=store.folder, run="after"),
    ):
        pass
    assert time.monotonic() - begun < PATIENCE.opened
    told = str(caught.value)
    assert "experiment 'ward 7' of the MLflow store was deleted" in told
    assert f"restore --experiment-id {found.experiment_id}" in told
    assert "name another in tracking.experiment" in told and "nothing was spent" in told
    assert "move" not in told
    store.client.restore_experiment(found.experiment_id)
    with tracker(spec, folder=store.folder, run="after"):
        pass


@pytest.mark.parametrize(
    ("broken", "why", "do"),
    [
        ("text", "the file is no database", "move the file away"),
        ("version", "tables are those of another version", "mlflow db upgrade"),
    ],
)
def test_each_reason_of_a_closed_store_has_its_own_advice(
    store: Store, tmp_path: Path, broken: str, why: str, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthdp.tracking.store.PATIENCE", Patience(opened=0.0))
    path = tmp_path / "mlflow.db"
    if broken == "text":
        path.write_text("no database\n" * 200)
    else:
        shutil.copy(store.folder / "mlflow.db", path)
        with closing(sqlite3.connect(path)) as made:
            made.execute("UPDATE alembic_version SET version_num = '181f10493468'")
            made.commit()
    with (
        pytest.raises(OutputError, match=why) as caught,
        tracker(store.spec, folder=tmp_path, run="x"),
    ):
        pass
    assert do in str(caught.value)


@pytest.mark.check
def test_two_first_releases_at_once_make_one_store(tmp_path: Path) -> None:
    """Both make MLflow's tables, which takes seconds; the slower one once ended with an
    OperationalError.
    """
    code = (
        "import sys; from synthdp.tracking.store import opened; opened(sys.argv[1], lambda client:"
        " client.create_experiment(sys.argv[2]))"
    )
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    both = [
        subprocess.Popen([sys.executable, "-c", code, uri, name], stderr=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    ends = [(process.communicate(timeout=300)[1], process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    from mlflow.tracking import MlflowClient

    assert {e.name for e in MlflowClient(tracking_uri=uri).search_experiments()} >= {"one", "other"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlflow.db"]


@pytest.mark.parametrize("uri", ["file:///tmp/mlruns", "file:mlruns", "./mlruns", "mlruns"])
def test_file_stores_are_refused(store: Store, uri: str) -> None:
    spec = store.spec.model_copy(
        update={"tracking": store.spec.tracking.model_copy(update={"uri": uri})}
    )
    with pytest.raises(OutputError, match="no longer supports"):
        tracker(spec, folder=store.folder, run="x")


def test_off_means_off(store: Store, tmp_path: Path) -> None:
    spec = store.spec.model_copy(
        update={"tracking": store.spec.tracking.model_copy(update={"enabled": False})}
    )
    with tracker(spec, folder=tmp_path, run="x") as opened:
        opened.params({"a": 1})
        opened.metrics({"a": 1.0})
        opened.artifact(tmp_path)
        opened.attack(ATTACK)
        opened.conclude(PublicationVerdict(released=True))
        opened.keep(tmp_path)
    assert opened.warnings == [] and not list(tmp_path.iterdir())


@pytest.mark.check
def test_import_is_lazy_and_telemetry_is_off_before_it(tmp_path: Path) -> None:
    """In a fresh interpreter: nothing of mlflow is imported early, nothing is sent, nothing is
    printed.
    """
    code = f"""
import sys, pathlib
from synthdp.spec.load.loader import parse_spec
from synthdp.tracking.mlflow_run import tracker
assert "mlflow" not in sys.modules
sockets = []
sys.addaudithook(lambda event, args: sockets.append(args) if event == "socket.connect" else None)
with tracker(parse_spec({SPEC!r}, path="s"), folder=pathlib.Path({str(tmp_path)!r}), run="quiet") as opened:
    opened.metrics({{"tv1": 1.0}})
from mlflow.telemetry.utils import is_telemetry_disabled
from mlflow.telemetry import get_telemetry_client
assert is_telemetry_disabled() and get_telemetry_client() is None
assert sockets == [], sockets
assert opened.warnings == []
"""  # noqa: E501
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "CI", "PYTEST_CURRENT_TEST")
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
