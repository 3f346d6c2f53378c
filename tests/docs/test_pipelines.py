"""The snippets of docs/guides/pipelines.md are read, and their commands run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "pipelines.md"
EXAMPLE = ROOT / "docs" / "example"


def snippets(language: str) -> list[str]:
    return [block.text for block in blocks(PAGE) if block.language == language]


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line in `folder`, with this Python's synthdp."""
    script = f'synthdp() {{ "{sys.executable}" -m synthdp "$@"; }}\n{line}'
    return subprocess.run(["bash", "-ec", script], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "specs"))


@pytest.mark.check
def test_the_hook_passes_a_spec_and_stops_a_mistake(folder: Path) -> None:
    (hook,) = yaml.safe_load(snippets("yaml")[0])["repos"][0]["hooks"]
    assert run(f"{hook['entry']} clinic.yaml", folder).returncode == 0
    (folder / "clinic.yaml").write_text("synthdp: 1\n")
    assert run(f"{hook['entry']} clinic.yaml", folder).returncode == 2


@pytest.mark.check
def test_the_actions_steps_run(folder: Path) -> None:
    steps = yaml.safe_load(snippets("yaml")[1])["jobs"]["check"]["steps"]
    commands = [step["run"] for step in steps if "synthdp " in step.get("run", "")]
    assert len(commands) == 2
    for command in commands:
        done = run(command, folder)
        assert done.returncode == 0, done.stderr
    assert (folder / "plan-clinic.yaml.json").stat().st_size > 1000


def test_airflows_graph_is_read() -> None:
    pytest.importorskip("airflow", reason="Airflow is not installed: pip install apache-airflow")
    exec(compile(snippets("python")[0], str(PAGE), "exec"), {})


@pytest.mark.slow
def test_dagsters_asset_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dagster = pytest.importorskip("dagster", reason="Dagster is not installed: pip install dagster")
    monkeypatch.chdir(folder)
    scope: dict[str, object] = {"__name__": "pipelines"}
    exec(compile(snippets("python")[1], str(PAGE), "exec"), scope)
    done = dagster.materialize([scope["clinic"]])
    assert done.success and (folder / "releases/clinic/bundle/synthetic.csv").exists()
