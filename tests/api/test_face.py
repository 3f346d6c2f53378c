"""The Python face: lazy, typed, the command line's own words, and rows that come from Python."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import yaml

import synthdp
from synthdp.errors import BudgetError, DataError, GateError, OutputError, SpecError, VerifyError
from synthdp.evaluate.dp_scores import ChargedScore
from synthdp.inference import Figure
from synthdp.ledger import Ledger
from synthdp.spec import draft_spec, load_spec
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
        "assert dir(synthdp) == sorted(synthdp.__all__);"
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
    assert plan.ledger["spent_before"] == 0.0 and plan.ledger["cap"] == 9.0
    assert plan.ledger["rule"] == "a Gaussian filter" and 0.5 < plan.ledger["spent_after"] < 1.0
    assert not (tmp_path / ".synthdp").exists()
    html = plan._repr_html_()
    assert "Plan for clinic" in html and "measure" in html and "Expected cost" in html


def test_a_spec_is_replaced_key_by_key_where_its_text_has_it(tmp_path: Path) -> None:
    """In any style of YAML; comments and lines stay, so that a mistake is told at its line."""
    text = (
        CLINIC.replace("graph: {mode: given, edges: [age -> smoker, sex -> smoker]}", "graph:")
        .replace(
            "gates: [{metric: tv1_noisy, at_most: 1}]", "gates:\n- metric: tv1_noisy\n  at_most: 1"
        )
        .replace("batch: 64,", "batch:\n    64,  # rows\n ")
        .replace("columns:\n", "columns:\n  # of the form\n")
        .replace("sampling: {rows: 200, oversample: 2}\n", "")
    )
    text = text.replace("graph:\n", "graph:\n  mode: given\n  edges:\n  - age -> smoker\n")
    spec = synthdp.Spec(text, path=tmp_path / "clinic.yaml")
    assert spec.replace().text == text and spec.columns is spec.content.columns
    other = spec.replace(
        epsilon=2,
        batch=32,
        edges=["sex -> smoker"],
        gates=[],
        even=("sex",),
        title="Hamburg: the city",
        compute={"threads": 2},
        **{"sampling.rows": 500, "privacy.cap.epsilon": 5, "attacks.membership": {"pairs": 24}},
    )
    found = other.content
    assert found.privacy.cap is not None and found.privacy.cap.epsilon == 5
    assert (found.privacy.epsilon, found.sampling.rows) == (2, 500)
    assert found.synthesizer.batch == 32 and found.gates == () and found.sampling.even == ("sex",)
    assert [e.causes for e in found.graph.edges] == [("sex",)] and found.attacks.membership.enabled
    assert found.dataset.title == "Hamburg: the city" and found.compute.threads == 2
    assert (found.privacy.delta, found.columns) == (1e-5, spec.content.columns)
    assert "# of the form" in other.text and other.path == spec.path
    assert spec.content.privacy.epsilon == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"epsilon": -1},
            r"clinic.yaml:1\d:\d+: privacy.epsilon: got -1; it must be at least 0.01",
        ),
        ({"epsilom": 1}, r"clinic.yaml:\d+:1: epsilom: "),
        ({"privacy.epsilon.most": 1}, "privacy.epsilon: "),
        ({"rows": 10}, "rows: is a key of dataset and sampling"),
        ({"title": Path("x")}, "title: got a value that YAML does not have"),
    ],
)
def test_a_replacement_is_checked_as_a_spec_is(
    change: dict[str, Any], told: str, at_work: Path
) -> None:
    with pytest.raises(SpecError, match=told):
        synthdp.Spec.load("clinic.yaml").replace(**change)


def test_a_draft_of_dtypes_is_that_of_the_same_types_in_a_file(tmp_path: Path) -> None:
    """And has nothing of any row, whatever categories a dtype carries."""
    frame = pd.DataFrame(
        {
            "age": [41],
            "weight": [1.5],
            "ill": [True],
            "seen": pd.to_datetime(["2024-02-29"]),
            "ward": pd.Categorical(["zq-canary-9182"]),
            " note": ["zq-canary-9182"],
            "Unnamed: 0": [0],
        }
    )
    draft = synthdp.Spec.draft(frame.dtypes, rows=4000)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    of_file = draft_spec(tmp_path / "t.parquet", ask=None, rows=4000)
    for start, stop in [("  privacy_unit:", "# One entry"), ("  age:", "\ngraph:")]:
        own, whole = (t[t.index(start) : t.index(stop, t.index(start))] for t in (draft, of_file))
        assert own == whole and own
    assert 'drop: ["Unnamed: 0"]' in draft and "kind: dataframe" in draft and "path:" not in draft
    assert "zq-canary" not in draft and "DataFrame's" in draft
    assert draft == synthdp.Spec.draft(dict(frame.dtypes), rows=4000)
    with pytest.raises(SpecError, match=r"dataset\.id"):
        synthdp.Spec(draft, path=tmp_path / "draft.yaml")


@pytest.mark.parametrize("given", [pd.DataFrame({"a": [7_215]}), {"a": "no such type 7215"}])
def test_a_draft_is_made_of_dtypes_alone(given: Any) -> None:
    with pytest.raises(DataError, match="dtypes") as refused:
        synthdp.Spec.draft(given)
    assert "215" not in str(refused.value)


# --- rows from Python ---


@pytest.mark.parametrize(
    ("age", "visits", "warned"),
    [
        ("str", "str", []),
        ("int64", "int64", []),
        ("Int64", "Int64", []),
        ("float64", "int64", ["'age'"]),
        ("int64", "str", ["'visits'"]),
        ("object", "float64", ["'age'", "'visits'"]),
    ],
)
def test_dtypes_that_pandas_infers_are_warned_of(
    age: str,
    visits: str,
    warned: list[str],
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Whole numbers as decimals, and numbers as text beside others that are none."""
    spec = spec_at(tmp_path, columns={"visits": {"type": "integer", "lower": 0, "upper": 9}})
    frame = clinic().assign(visits="7")
    spec.inspect(frame.astype({"age": age, "visits": visits}))
    told = [w for w in recwarn if w.category is UserWarning and "dtypes" in str(w.message)]
    assert [w.filename for w in told] == [__file__][: len(warned)]
    for warning in told:
        text = str(warning.message)
        assert re.findall(r"'\w+'", text) == warned and "state the dtypes" in text
        assert "float" not in text and "7" not in text


@pytest.mark.check
def test_rows_from_python_are_counted_under_the_dataset_as_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, then a DataFrame: one ledger, one cap for two, and a third release is refused."""
    monkeypatch.chdir(tmp_path)
    spec = spec_at(tmp_path, privacy={"cap": {"epsilon": 1.35, "delta": 1e-4}})
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
    assert 0.5 < spec.plan().ledger["spent_before"] < 1.0


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


def test_a_bundle_says_what_it_is(at_work: Path, tmp_path: Path) -> None:
    bundle = synthdp.Bundle("releases/clinic/bundle")
    shown = "'releases/clinic/bundle': dataset 'clinic', epsilon 1, 200 rows"
    assert repr(bundle) == f"Bundle({shown})"
    assert repr(synthdp.Bundle(tmp_path)) == f"Bundle('{tmp_path.as_posix()}')"


def test_an_answer_is_a_frame_of_its_figures(at_work: Path) -> None:
    answer = synthdp.Bundle("releases/clinic/bundle").answer("mean(age) by sex")
    frame = answer.to_frame()
    assert frame["sex"].tolist() == ["female", "male"] and set(frame["tier"]) == {"C"}
    assert frame["estimate"].tolist() == [figure.estimate for figure in answer.figures]
    assert set(frame["unit"]) == {"years"} and frame[["low", "high"]].isna().all(axis=None)
    assert frame.to_csv(index=False) == answer.to_csv()
    refused = replace(answer, figures=(answer.figures[0], Figure("male", refused="too few")))
    assert refused.to_frame()["refused"].fillna("").tolist() == ["", "too few"]
    whole = synthdp.Bundle("releases/clinic/bundle").answer("share(smoker)").to_frame().loc[0]
    assert whole["low"] < whole["estimate"] < whole["high"] and whole["tier"] == "A"


def test_scores_that_were_paid_for_are_a_frame(
    at_work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = synthdp.Bundle("releases/clinic/bundle")
    names = ["name", "target", "value", "low", "high"]
    assert bundle.scores.empty and bundle.scores.columns.tolist() == names
    paid = ChargedScore(name="tv1", counts=(4,), sigma=1.0, value=0.1, low=0.0, high=0.2)
    certified = bundle.certificate.model_copy(update={"scores": (paid,)})
    monkeypatch.setattr(synthdp.Bundle, "certificate", certified)
    assert bundle.scores.loc[0].tolist() == ["tv1", None, 0.1, 0.0, 0.2]


def test_rows_are_asked_for_as_sdv_has_it(at_work: Path) -> None:
    bundle = synthdp.Bundle("releases/clinic/bundle")
    assert bundle.sample(num_rows=30, seed=3).equals(bundle.sample(30, seed=3))
    for asked in (None, 3):
        with pytest.raises(OutputError, match="one of n and num_rows"):
            bundle.sample(asked, num_rows=asked)


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
