"""What acts on a target together, from rows to a verified bundle: found, told, drawn, resumed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp import Bundle
from synthdp.errors import VerifyError
from synthdp.graph import ActsTogether, CausalGraph
from synthdp.privacy import ChosenInteractions, plan
from synthdp.release import release, resume
from synthdp.spec import load_spec
from synthdp.verify import Reader, verify_bundle
from synthdp.verify.rewritten import check_graph
from tests.builders import skeleton
from tests.release.conftest import dying

pytestmark = pytest.mark.check

ROWS, PURPOSE = 4000, "graph: interactions"
SIGN = {"type": "boolean", "false": "no", "true": "yes"}
COLUMNS: dict[str, Any] = {name: dict(SIGN) for name in ("a", "b", "c", "label")}
COLUMNS["age"] = {"type": "integer", "lower": 18, "upper": 90}
AWAY = skeleton(ROWS, source={"kind": "parquet", "path": "table"})["dataset"]
FOUND = (ActsTogether(("a", "b", "c"), "label"),)


def parity_table() -> pd.DataFrame:
    """The label is the parity of three signs in nine of ten rows, and goes with no column."""
    rng = np.random.default_rng(7)
    signs = rng.random((ROWS, 3)) < 0.5
    label = (signs.sum(1) % 2 == 1) ^ (rng.random(ROWS) < 0.1)
    values = np.column_stack([signs, label])
    frame = pd.DataFrame(np.where(values, "yes", "no"), columns=["a", "b", "c", "label"])
    return frame.assign(age=rng.integers(18, 91, ROWS))


def write(folder: Path, **sections: Any) -> Path:
    parity_table().to_csv(folder / "table.csv", index=False)
    spec = {
        **skeleton(ROWS, source={"kind": "csv", "path": "table.csv"}),
        "columns": COLUMNS,
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "graph": {"mode": "predict"},
        "evaluation": {"targets": ["label"], "classifiers": ["logistic"], "triples": 4},
        "attacks": {"membership": {"enabled": False}},
        "tracking": {"enabled": False},
        "compute": {"threads": 1},
        **sections,
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output folder of a release."""
    folder = tmp_path_factory.mktemp("parity")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "GROUP_SIZES", (1, 2))
        release(write(folder), out=folder / "out")
        yield folder / "out"


def purposes(bundle: Path) -> list[str]:
    entries = json.loads((bundle / "privacy/ledger.json").read_text())["entries"]
    return [e["body"]["purpose"] for e in entries if e["kind"] == "charge"]


def graph_of(bundle: Path) -> CausalGraph:
    return CausalGraph.from_json(json.loads((bundle / "graph.json").read_text()))


def parity_kept(frame: pd.DataFrame) -> float:
    """The share of rows whose label is the parity of the three signs."""
    yes = frame[["a", "b", "c", "label"]].astype(str).isin(["yes", "True"])
    return float((yes.sum(axis=1) % 2 == 0).mean())


def test_a_parity_is_found_drawn_and_told(made: Path) -> None:
    """Nine of ten rows had it; found .89 to .91."""
    bundle = made / "bundle"
    assert PURPOSE in purposes(bundle) and verify_bundle(bundle).ok
    assert graph_of(bundle).together == FOUND
    assert {(n, "label") for n in "abc"} <= set(graph_of(bundle).directed)
    frame = pd.read_csv(bundle / "synthetic.csv", dtype=str)
    assert 0.85 < parity_kept(frame) < 0.95
    # and in rows that anyone draws of the model
    assert 0.85 < parity_kept(Bundle(bundle).sample(4000, seed=1)) < 0.95
    texts = {
        "DATACARD.md": "and paid for: a with b with c on label. No cause is claimed.",
        "privacy/certificate.md": "what acts on a target together by noisy choices",
        "report.html": "act together on",
    }
    for name, told in texts.items():
        assert told in " ".join((bundle / name).read_text(encoding="utf-8").split())


def test_given_and_do_follow_what_acts_together(made: Path) -> None:
    bundle = Bundle(made / "bundle")
    fixed = {"a": "yes", "b": "yes", "c": "yes"}
    drawn = bundle.sample(1000, given=fixed, seed=2)
    assert parity_kept(drawn) > 0.8 and set(drawn["a"].astype(str)) <= {"yes", "True"}


def test_what_nobody_paid_for_is_refused(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(made / "bundle", copy)
    graph = json.loads((copy / "graph.json").read_text())
    unread = Reader(copy, parsed=load_spec(copy / "spec.yaml"))  # no entry of the ledger
    assert any("nothing was charged" in problem for problem in check_graph(unread))
    wrong: list[dict[str, Any]] = [
        {"columns": ["a"], "target": "label", "ways": 1},
        {"columns": ["a", "label"], "target": "age", "ways": 1},
        {"columns": ["a", "b"], "target": "label", "ways": 0},
        {"columns": "ab", "target": "label", "ways": 1},
        {"target": "label"},
    ]
    for together in wrong:
        (copy / "graph.json").write_text(json.dumps(graph | {"together": [together]}))
        with pytest.raises(VerifyError, match="graph"):
            verify_bundle(copy)


def test_a_killed_run_goes_on_with_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is made once: what was told comes from the journal."""
    path = write(tmp_path)
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))
    with monkeypatch.context() as patch:
        patch.setattr("synthdp.model.fit.train", dying())
        with pytest.raises(KeyboardInterrupt):
            release(path, out=tmp_path / "out")
    monkeypatch.setattr(ChosenInteractions, "run", dying(AssertionError))
    resume(tmp_path / "out")
    bundle = tmp_path / "out" / "bundle"
    assert graph_of(bundle).together == FOUND and verify_bundle(bundle).ok
    assert purposes(bundle).count(PURPOSE) == 1


@pytest.mark.parametrize(
    "sections",
    [
        {"privacy": {"epsilon": 1.0, "delta": 1e-5}},
        {"evaluation": {"targets": []}},
        {"graph": {"mode": "none"}},
        {"dataset": AWAY, "compute": {"engine": "arrow"}},
    ],
    ids=["few rows", "no target", "another mode", "an engine"],
)
def test_without_the_rule_nothing_is_planned(
    sections: dict[str, Any], tmp_path: Path, planned: Callable[[Path], list[str]]
) -> None:
    assert PURPOSE not in planned(write(tmp_path, **sections))


@pytest.fixture
def planned() -> Callable[[Path], list[str]]:
    from synthdp.data import Domain
    from synthdp.model import plan_for

    def purposes_of(path: Path) -> list[str]:
        spec = load_spec(path)
        return [s.purpose for s in plan_for(spec, Domain.from_spec(spec.columns)).spends]

    return purposes_of
