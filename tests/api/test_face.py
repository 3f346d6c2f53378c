"""The Python face: lazy, typed, the command line's own words, and rows that come from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import yaml

import synthdp
from synthdp.errors import BudgetError, DataError, GateError, OutputError, SpecError, VerifyError
from synthdp.ledger.ledger import Ledger
from synthdp.spec.load.loader import load_spec
from tests.api.conftest import CLINIC, clinic


def spec_at(folder: Path, **changes: Any) -> synthdp.Spec:
    """The clinic's spec in a folder of its own, some of its sections changed."""
    content = yaml.safe_load(CLINIC.replace("1e-5", "0.00001").replace("1e-4", "0.0001"))
    for section, change in changes.items():
        content[section] = {**content[section], **change} if isinstance(change, dict) else change
    clinic().to_csv(folder / "clinic.csv", index=False)
    return synthdp.Spec.from_dict(content, folder=folder)


# --- names ---


def test_importing_costs_nothing() -> None:
    """Neither numpy nor any module of the package is loaded with it."""
    code = (
        "import sys, synthdp; names = set(sys.modules);"
        "assert not names & {'numpy', 'pandas', 'torch', 'pydantic'}, names;"
        "assert {n for n in names if n.startswith('synthdp.')} == set(), names;"
        "assert {'Bundle', 'Spec', 'resume'} <= set(dir(synthdp));"
        "synthdp.Spec, synthdp.Bundle;"
        "assert not set(sys.modules) & {'numpy', 'pandas', 'torch', 'pydantic'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_stated_once_and_types_are_shipped() -> None:
    from synthdp import api

    assert set(synthdp.__all__) - {"__version__"} == set(api.__all__)
    assert (Path(synthdp.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="no attribute 'Spek'"):
        _ = synthdp.Spek


def test_rooms_of_the_package_stay_importable_beside_the_names() -> None:
    import synthdp.audit.plan
    import synthdp.release.run

    assert callable(synthdp.release.run.release) and callable(synthdp.audit_release)


# --- specs and plans ---


@pytest.mark.check
def test_a_spec_from_python_is_the_one_in_the_file(at_work: Path) -> None:
    content = yaml.safe_load(CLINIC.replace("1e-5", "0.00001").replace("1e-4", "0.0001"))
    assert synthdp.Spec.from_dict(content).content == synthdp.Spec.load("clinic.yaml").content
    shared = ["no", "yes"]  # one list in two places: YAML would write an alias, which is refused
    content["columns"] = {
        name: {"type": "categorical", "categories": shared} for name in ("one", "two")
    }
    content["graph"] = {"mode": "none"}
    assert list(synthdp.Spec.from_dict(content).content.columns) == ["one", "two"]


@pytest.mark.parametrize("value", [object(), Path("x"), [object()], np.float64(1)])
def test_what_yaml_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="a value that YAML does not have"):
        synthdp.Spec.from_dict({"synthdp": 1, "dataset": value})


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """Of fields, and where these are right, between sections."""
    graph = {"mode": "given", "edges": ["a -> b"]}
    with pytest.raises(SpecError) as refused:
        spec_at(tmp_path, privacy={"epsilon": -1, "dalta": 1e-5}, graph=graph)
    assert {p.field for p in refused.value.problems} >= {"privacy.epsilon", "privacy.dalta"}
    with pytest.raises(SpecError) as refused:
        spec_at(tmp_path, graph=graph, synthesizer={"targets": ["c"]})
    assert {p.field for p in refused.value.problems} >= {"graph.edges #1", "synthesizer.targets #1"}


def test_a_plan_reads_no_rows_and_makes_no_ledger(tmp_path: Path) -> None:
    spec = spec_at(tmp_path)
    (tmp_path / "clinic.csv").unlink()
    plan = spec.plan()
    assert plan.ledger == {"spent_before": 0.0, "spent_after": 1.0, "cap": 9.0}
    assert not (tmp_path / ".synthdp").exists()
    html = plan._repr_html_()
    assert "Plan for clinic" in html and "measure" in html and "Expected cost" in html


# --- rows from Python ---


@pytest.mark.check
def test_rows_from_python_are_counted_under_the_dataset_as_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, then a DataFrame: one ledger, one cap of two, and a third release is refused."""
    monkeypatch.chdir(tmp_path)
    spec = spec_at(tmp_path, privacy={"cap": {"epsilon": 2, "delta": 1e-4}})
    frame = clinic()
    frame["age"] = frame["age"].astype(int)
    frame["smoker"] = frame["smoker"].mask(frame["smoker"] == "")
    spec.release(out=tmp_path / "a")
    released = spec.release(frame, out=tmp_path / "b")
    for refused in (spec.plan, lambda: spec.release(frame, out=tmp_path / "c")):
        with pytest.raises(BudgetError, match="cap"):
            refused()
    ledger = Ledger(f"sqlite:///{tmp_path / '.synthdp' / 'ledger.db'}")
    assert ledger.balance("clinic").epsilon == 2.0
    assert load_spec(released.bundle.path / "spec.yaml").dataset.source.kind == "dataframe"
    assert released.bundle.verify().ok
    assert not (tmp_path / "b" / ".run").exists()


def test_nothing_is_spent_or_left_behind_where_the_rows_do_not_fit(tmp_path: Path) -> None:
    spec, canary = spec_at(tmp_path), "zq-canary-9182"
    with pytest.raises(DataError, match="outside the declared domain in columns 'sex'") as refused:
        spec.release(clinic().assign(sex=canary), out=tmp_path / "out")
    assert canary not in str(refused.value)
    assert refused.value.__notes__ == ["budget: nothing was spent"]
    assert not (tmp_path / "out" / ".run").exists()
    assert spec.plan().ledger["spent_before"] == 0


def test_an_interrupted_run_asks_for_the_same_rows_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = spec_at(tmp_path), tmp_path / "out"
    frame = clinic().replace({"smoker": {"": None}})

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.job.sample", stopped)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            spec.release(frame, out=out)
    (note,) = interrupted.value.__notes__
    assert "`synthdp.resume(" in note and "epsilon 1 at delta 1e-05 stays spent" in note
    with pytest.raises(DataError, match="no rows were given"):
        synthdp.resume(out)
    assert synthdp.resume(out, frame).bundle.verify().ok
    assert spec.plan().ledger["spent_before"] == 1.0


def test_a_run_of_a_file_takes_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, out = spec_at(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.job.sample", None)
        with pytest.raises(TypeError):
            spec.release(out=out)
    with pytest.raises(DataError, match="is of kind csv"):
        synthdp.resume(out, clinic())
    assert synthdp.resume(out).bundle.path.exists()


def test_a_failed_gate_withholds_the_bundle(tmp_path: Path) -> None:
    spec = spec_at(tmp_path, gates=[{"metric": "tv1_noisy", "at_most": 0}])
    with pytest.raises(GateError, match="the bundle is withheld: tv1_noisy: needs at most 0"):
        spec.release(out=tmp_path / "out")
    assert not (tmp_path / "out" / "bundle").exists()


# --- bundles ---


def test_a_bundle_shows_public_figures_and_escapes_its_texts(at_work: Path, tmp_path: Path) -> None:
    html = synthdp.Bundle("releases/clinic/bundle")._repr_html_()
    assert "Guarantee" in html and "Shares and tables" in html and "<script" not in html
    spec = spec_at(tmp_path, dataset={"title": "<script>alert(1)</script>"})
    release = spec.release(out=tmp_path / "out")
    for shown in (release, release.bundle):
        assert "<script" not in shown._repr_html_()
    assert "Gate tv1_noisy" in release._repr_html_()


def test_samples_have_the_types_of_the_table(at_work: Path) -> None:
    bundle = synthdp.Bundle("releases/clinic/bundle")
    old = bundle.sample(100, given="age >= 40 and sex == 'female'", seed=3)
    assert (old["age"] >= 40).all() and set(old["sex"]) == {"female"}
    with pytest.raises(SpecError, match="agee"):
        bundle.sample(10, given="agee >= 40")
    drawn = bundle.sample(300, given={"smoker": None}, seed=3)
    assert drawn.dtypes.equals(bundle.table().dtypes) and drawn["smoker"].isna().all()
    assert drawn.equals(bundle.sample(300, given={"smoker": None}, seed=3))
    assert bundle.sample(20, do={"smoker": True})["smoker"].all()
    with pytest.raises(SpecError, match="outside the domain of 'sex'"):
        bundle.sample(1, do={"sex": "other"})
    with pytest.raises(OutputError, match="0 rows"):
        bundle.sample(0)


def test_the_graph_and_the_noisy_tables_are_those_of_the_files(at_work: Path) -> None:
    bundle = synthdp.Bundle("releases/clinic/bundle")
    assert nx.is_directed_acyclic_graph(bundle.graph) and len(bundle.graph) == 3
    assert all(facts["directed"] for *_, facts in bundle.graph.edges(data=True))
    one_way = bundle.marginals["age",]
    assert isinstance(one_way, pd.Series) and len(one_way) == 4


def test_a_changed_or_missing_file_is_refused(at_work: Path, tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="cannot read SHA256SUMS"):
        synthdp.Bundle(tmp_path).table()
    with pytest.raises(VerifyError):
        synthdp.Bundle("releases/clinic").verify()


def test_a_bundle_has_no_real_rows_to_audit(at_work: Path) -> None:
    with pytest.raises(OutputError, match="no real rows"):
        synthdp.audit_release(synthdp.Bundle("releases/clinic/bundle"), rows="real")
