"""The model of a release in MLflow's registry: loaded by its alias, it draws rows."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import synthdp
from synthdp.release import release
from synthdp.tracking import Tracker, TrackingRecord, log_later
from synthdp.tracking.server import USER, latest_runs, serving
from tests.release.conftest import Tiny

pytestmark = pytest.mark.check

NAME, TRACKED = "tiny-synthetic", {"enabled": True}
CAP = {"cap": {"epsilon": 9, "delta": 1e-3}}
FAILING = [{"metric": "tv1_noisy", "at_most": 0}]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """A folder with one release in MLflow, and then a withheld one."""
    from synthdp.privacy import plan

    made = Tiny(tmp_path_factory.mktemp("registered"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1,))
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        made.write(tracking=TRACKED, privacy=CAP)
        assert release(made.spec, out=made.folder / "first").warnings == ()
        made.write(tracking=TRACKED, privacy=CAP, gates=FAILING)
        assert release(made.spec, out=made.folder / "second").bundle is None
        yield made


def client_of(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def loaded(uri: str) -> Any:
    """The model, as who draws rows loads it; MLflow's address is global there."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    try:
        return mlflow.pyfunc.load_model(f"models:/{NAME}@released")
    finally:
        mlflow.set_tracking_uri(before)


def store(made: Tiny) -> str:
    return f"sqlite:///{made.folder / 'mlflow.db'}"


def test_rows_are_drawn_from_the_registered_model(tracked: Tiny) -> None:
    model = loaded(store(tracked))
    rows = model.predict(pd.DataFrame([{"rows": 40}]))
    table = pd.read_parquet(tracked.folder / "first" / "bundle" / "synthetic.parquet")
    assert len(rows) == 40 and list(rows) == list(table)
    asked = [
        {"rows": 3, "given": ["sex=male"], "do": []},
        {"rows": 2, "given": [], "do": ["visits=4"]},
    ]
    both = model.predict(pd.DataFrame(asked))
    assert len(both) == 5 and set(both["sex"][:3]) == {"male"} and set(both["visits"][3:]) == {4}


@pytest.mark.parametrize(
    "wrong", [{"rows": 2, "given": ["sex=none"]}, {"given": ["sex=male"]}, {"rows": 0}]
)
def test_what_cannot_be_drawn_is_refused(tracked: Tiny, wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"sex|rows"):
        loaded(store(tracked)).predict(pd.DataFrame([wrong]))


def test_a_withheld_release_registers_nothing(tracked: Tiny) -> None:
    client = client_of(store(tracked))
    (version,) = client.search_model_versions(f"name = '{NAME}'")
    run = TrackingRecord.kept(tracked.folder / "first").run
    assert version.tags["synthdp.run"] == run and version.tags["signed"] == "no"
    assert float(version.tags["epsilon"]) == pytest.approx(1, abs=0.01)
    assert client.get_registered_model(NAME).aliases == {"released": version.version}
    (known,) = client.search_experiments(filter_string="name = 'synthdp'")
    assert len(client.search_logged_models([known.experiment_id])) == 1
    names = {r.info.run_name: r for r in client.search_runs([known.experiment_id])}
    withheld = names["tiny - withheld - eps 1"]
    assert set(names) == {"tiny - released - eps 1", "tiny - withheld - eps 1"}
    assert not (withheld.outputs and withheld.outputs.model_outputs)
    assert TrackingRecord.kept(tracked.folder / "second").bundle is None


def test_the_logged_model_is_code_and_public_files(tracked: Tiny) -> None:
    """No pickle in any form, no rows, and nothing that the bundle does not hold."""
    bundle = tracked.folder / "first" / "bundle"
    (model,) = (tracked.folder / "mlflow-artifacts" / "models").iterdir()
    files = [path for path in model.rglob("*") if path.is_file()]
    named = {path.name for path in files}
    assert {"MLmodel", "drawn_rows.py", "model.safetensors"} <= named
    (code,) = (path for path in files if path.name == "synthdp.zip")
    root = Path(synthdp.__file__).parents[1]
    with zipfile.ZipFile(code) as archive:
        for name in archive.namelist():
            own = root / "attacks" if name.startswith("synthdp_attacks/") else root
            assert name.endswith(".py") and archive.read(name) == (own / name).read_bytes()
    files.remove(code)
    assert not any(path.suffix in (".pkl", ".pickle", ".pt", ".csv", ".parquet") for path in files)
    assert not any(path.read_bytes()[:1] == b"\x80" or zipfile.is_zipfile(path) for path in files)
    for path in (model / "artifacts" / "artifacts" / "part").iterdir():
        assert path.read_bytes() == (bundle / path.name).read_bytes()


def test_no_package_index_is_asked_for_synthdp(tracked: Tiny) -> None:
    """Nobody owns the name there. Its own code draws the rows, in a process that has no other."""
    (model,) = (tracked.folder / "mlflow-artifacts" / "models").glob("*/artifacts")
    listed = (model / "requirements.txt").read_text().split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", line) for line in listed)
    names = {line.partition("==")[0].lower() for line in listed}
    assert {"mlflow", "numpy", "pandas", "sqlalchemy", "safetensors"} <= names
    assert not {name for name in names if "synthdp" in name} and "torch" not in names
    assert "synthdp" not in (model / "conda.yaml").read_text()
    code = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)];"
        "import mlflow, pandas as pd;"
        f"model = mlflow.pyfunc.load_model({str(model)!r});"
        "assert len(model.predict(pd.DataFrame([{'rows': 9}]))) == 9;"
        "import synthdp, synthdp_attacks;"
        f"assert synthdp.__file__.startswith({str(model / 'code' / 'synthdp.zip')!r})"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tracked.folder, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_what_is_logged_again_is_registered_once(tracked: Tiny) -> None:
    assert log_later(tracked.folder / "first") == []
    assert len(client_of(store(tracked)).search_model_versions(f"name = '{NAME}'")) == 1


def test_an_older_release_does_not_take_the_alias(tracked: Tiny, tmp_path: Path) -> None:
    tracked.write(tracking=TRACKED, privacy=CAP | {"epsilon": 2})
    assert release(tracked.spec, out=tracked.folder / "third").warnings == ()
    late = f"sqlite:///{tmp_path / 'late.db'}"
    for out in ("third", "first"):
        assert log_later(tracked.folder / out, store=late) == []
    client = client_of(late)
    (first, third) = sorted(
        client.search_model_versions(f"name = '{NAME}'"), key=lambda v: float(v.tags["epsilon"])
    )
    assert client.get_registered_model(NAME).aliases == {"released": third.version}
    assert first.version > third.version


def test_a_bundle_of_another_run_is_not_registered(tracked: Tiny, tmp_path: Path) -> None:
    """As where a bundle was replaced before `synthdp track` was given."""
    record = TrackingRecord.kept(tracked.folder / "first")
    record.run, late = "20260101-aaaaaaaaaaaa", f"sqlite:///{tmp_path / 'late.db'}"
    with Tracker(record, record.params, uri=late, folder=tmp_path) as log:
        log.release(tracked.folder / "first" / "bundle")
    assert log.warnings == ["MLflow: could not register the model (ValueError)"]
    assert list(client_of(late).search_model_versions()) == []


@pytest.mark.slow
def test_a_server_takes_the_model_too(
    tracked: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its artifacts go through the server, as on another machine."""
    uri = f"sqlite:///{tmp_path / 'server.db'}"
    monkeypatch.setenv("MLFLOW_ARTIFACTS_DESTINATION", str(tmp_path / "artifacts"))
    with serving(uri, port=None, experiment="synthdp") as pages:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", USER)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", str(pages.password))
        address = pages.base
        assert log_later(tracked.folder / "first", store=address) == []
        assert len(loaded(address).predict(pd.DataFrame([{"rows": 7}]))) == 7
        ((name, link),) = latest_runs(pages, "synthdp")
    assert name == "tiny - released - eps 1" and link.endswith("?workflowType=machine_learning")
    assert list((tmp_path / "artifacts").rglob("model.safetensors"))
