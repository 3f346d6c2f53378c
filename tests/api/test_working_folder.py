"""Objects keep to the folders that they were made in, whatever the working folder becomes."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import synthdp
from synthdp.bundle import make_keys
from synthdp.data import Domain
from synthdp.errors import BudgetError, OutputError
from synthdp.ledger import Ledger
from synthdp.privacy import read_query
from synthdp.privacy.engines.on_sql import SqlEngine
from synthdp.release import job
from synthdp.spec.model import Categorical, SqlSource
from synthdp.tracking import tracker
from tests.api.conftest import CLINIC, clinic
from tests.privacy.engines.tables import reading_of

# Noisy tables are the model, which takes a moment, and one release is all that the cap allows.
TABLES = (
    CLINIC.replace("train: 0.2", "graph: 0.2, train: 0")
    .replace("mode: given, edges: [age -> smoker, sex -> smoker]", "mode: predict")
    .replace("cap: {epsilon: 9", "cap: {epsilon: 1")
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The working folder is `work`, with a spec and its table; calling it goes to `results`."""
    for name in ("work", "results"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("clinic.yaml").write_text(TABLES, encoding="utf-8")
    clinic().to_csv("clinic.csv", index=False)
    return lambda: monkeypatch.chdir(tmp_path / "results")


def ledgers(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in folder.rglob("ledger.db")]


def reserve(folder: Path) -> None:
    """A spend of all that the cap allows, in the default ledger of `folder`."""
    (folder / ".synthdp").mkdir()
    Ledger(f"sqlite:///{folder / '.synthdp' / 'ledger.db'}").reserve(
        "clinic", "20240101-000000000000", epsilon=1.0, delta=1e-5, cap=(1.0, 1e-4), body={}
    )


def going(patch: pytest.MonkeyPatch, leave: Callable[[], None]) -> None:
    """Have each release leave the working folder once it has measured."""
    sample = job.sample

    def away(*given: Any, **named: Any) -> Any:
        leave()
        return sample(*given, **named)

    patch.setattr("synthdp.release.job.sample", away)


# --- specs ---


@pytest.mark.check
def test_a_second_release_from_another_folder_meets_the_same_cap(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    spec = synthdp.Spec.load("clinic.yaml")
    spec.release()
    elsewhere()
    with pytest.raises(BudgetError, match="cap"):
        spec.release(clinic().replace({"smoker": {"": None}}))
    assert ledgers(tmp_path) == ["work/.synthdp/ledger.db"]
    assert list((tmp_path / "results").iterdir()) == []


def test_a_plan_asks_the_ledger_beside_the_file_that_was_loaded(
    elsewhere: Callable[[], None],
) -> None:
    spec = synthdp.Spec.load("clinic.yaml")
    reserve(Path.cwd())
    elsewhere()
    with pytest.raises(BudgetError, match="cap"):
        spec.plan()


def test_a_spec_is_that_of_the_file_behind_a_link_when_it_was_loaded(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to("work/clinic.yaml")
    spec = synthdp.Spec.load(link)
    link.unlink()
    assert spec.path == tmp_path / "work" / "clinic.yaml" and "'clinic.yaml'" in repr(spec)


def test_a_spec_from_python_stays_in_its_folder(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    content = yaml.safe_load(TABLES.replace("1e-5", "0.00001").replace("1e-4", "0.0001"))
    spec = synthdp.Spec.from_dict(content, folder=".")
    reserve(Path.cwd())
    elsewhere()
    with pytest.raises(BudgetError, match="cap"):
        spec.plan()
    with pytest.raises(OutputError, match="there is no folder work"):  # another one was meant
        synthdp.Spec.from_dict(content, folder="work")


def test_a_notebook_that_runs_a_cell_again_elsewhere_names_the_same_ledger(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    """Without a folder it is the one of the first cell; a process of its own has its own first."""
    content = {**yaml.safe_load(TABLES), "privacy": {"epsilon": 1, "delta": 0.00001}}
    code = (
        "import os, synthdp; paths = [];\n"
        "for folder in ('.', '../results'):\n"
        "    os.chdir(folder)\n"
        f"    paths.append(synthdp.Spec.from_dict({content!r}).path.parent.name)\n"
        "assert paths == ['work', 'work'], paths"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.check
def test_a_run_that_is_left_behind_ends_where_it_began(
    tmp_path: Path, elsewhere: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook goes elsewhere while a release runs: its folder, store and key stay."""
    make_keys(Path("keys"))
    monkeypatch.setenv("SYNTHDP_SIGNING_KEY", "keys/signing-key.pem")
    going(monkeypatch, elsewhere)
    release = synthdp.Spec.load("clinic.yaml").release(out="out")
    assert release.bundle.path == tmp_path / "work" / "out" / "bundle"
    assert release.bundle.verify(key=tmp_path / "work" / "keys" / "signing-key.pub.pem").ok
    assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.check
@pytest.mark.parametrize("out", ["out", None])
def test_a_run_goes_on_with_the_paths_that_it_began_with(
    tmp_path: Path,
    elsewhere: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    out: str | None,
) -> None:
    stores = list[Path]()
    monkeypatch.setattr(
        "synthdp.release.tracked.tracker",
        lambda *a, folder, **k: stores.append(folder) or tracker(*a, folder=folder, **k),
    )
    spec = synthdp.Spec.load("clinic.yaml")
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.job.sample", None)
        with pytest.raises(TypeError) as stopped:
            spec.release(out=out)
    there = tmp_path / "work" / (out or "releases/clinic")
    assert str(there) in stopped.value.__notes__[0]  # what continues it, from wherever
    monkeypatch.chdir(tmp_path / "work" if out else there.parent)
    going(monkeypatch, elsewhere)
    release = synthdp.resume(out or "clinic")
    assert release.report.exists() and release.report.is_relative_to(there)
    assert release.bundle.spec.dataset.id == "clinic" and not (there / ".run").exists()
    assert stores == [tmp_path / "work"] * 2
    assert list((tmp_path / "results").iterdir()) == []


# --- bundles and audits ---


@pytest.mark.check
def test_a_bundle_is_read_from_anywhere(workplace: Path, elsewhere: Callable[[], None]) -> None:
    os.chdir(workplace)
    bundle = synthdp.Bundle("releases/clinic/bundle")
    assert repr(bundle).startswith("Bundle('releases/clinic/bundle': ")
    elsewhere()
    assert len(bundle.table()) == 200 and bundle.verify().ok
    assert repr(bundle).startswith(f"Bundle('{workplace.as_posix()}/releases/clinic/bundle': ")


@pytest.mark.parametrize("out", [None, "there"])
def test_an_audit_writes_where_it_was_asked_for(
    elsewhere: Callable[[], None], monkeypatch: pytest.MonkeyPatch, out: str | None
) -> None:
    asked = list[Path]()
    monkeypatch.setattr("synthdp.audit.plan.audit", lambda *_, out, **__: (asked.append(out), None))
    monkeypatch.setattr("synthdp.audit.plan.check_unrefuted", lambda *_, **__: None)
    synthdp.audit_release(synthdp.Spec.load("clinic.yaml"), out=out)
    assert asked == [Path(out or "releases/clinic").absolute()]


# --- sources ---


def test_a_relative_sqlite_file_lies_in_the_folder_of_the_spec(
    tmp_path: Path, elsewhere: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass over the table reads the same file, in memory and in the database."""
    with sqlite3.connect("t.db") as connection:
        connection.executescript("create table t (sex text); insert into t values ('f'), ('m')")
    connection.close()
    monkeypatch.setenv("TEST_DB_URL", "sqlite:///t.db")
    source = SqlSource(kind="sql", url_env="TEST_DB_URL", query="select sex from t")
    column = Categorical(type="categorical", categories=["f", "m"])
    engine = SqlEngine(source, reading_of(Domain.from_spec({"sex": column})), list, Path.cwd())
    elsewhere()
    assert engine.survey().rows == 2
    found = read_query(source, folder=tmp_path / "work", check=list, check_rows=float)
    assert found["sex"].tolist() == ["f", "m"]
    assert list((tmp_path / "results").iterdir()) == []
