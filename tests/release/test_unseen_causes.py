"""`graph.unseen_causes` from rows to a verified bundle, and what readers are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.errors import SpecError
from synthdp.graph import CausalGraph
from synthdp.release import release
from synthdp.spec import parse_spec
from synthdp.verify import inspect_bundle, verify_bundle
from tests.builders import predict_spec, skeleton

pytestmark = pytest.mark.check

ROWS = 50_000
SHARES = {"measure": 0.2, "graph": 0.6, "train": 0.2}
SEARCHED = {
    **skeleton(ROWS, source={"kind": "csv", "path": "table.csv"}),
    "columns": {name: {"type": "boolean"} for name in "xyac"},
    "evaluation": {"targets": ["c"], "classifiers": ["logistic"], "triples": 4},
    "graph": {"mode": "learn", "unseen_causes": True},
    "privacy": {"epsilon": 2.0, "delta": 1e-6, "shares": SHARES},
    "synthesizer": {"steps": 20, "batch": 64, "hidden": 8},
    "attacks": {"membership": {"enabled": False}},
}


def table() -> pd.DataFrame:
    """x -> a <- y and a -> c. Unseen causes may join x and a, or y and a, but not a and c."""
    rng = np.random.default_rng(8)
    x, y = (rng.random(ROWS) < 0.5 for _ in "xy")
    a = rng.random(ROWS) < 0.1 + 0.4 * x + 0.4 * y
    c = rng.random(ROWS) < 0.2 + 0.6 * a
    return pd.DataFrame({"x": x, "y": y, "a": a, "c": c}).replace({True: "true", False: "false"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unseen")
    table().to_csv(folder / "table.csv", index=False)
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(predict_spec(**SEARCHED), sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthdp.privacy.plan.GROUP_SIZES", (1, 2))
        release(path, out=folder / "out")
    return folder / "out" / "bundle"


def test_the_bundle_has_marks_and_refuses_what_they_leave_open(made: Path, synthdp: Any) -> None:
    graph = CausalGraph.from_json(json.loads((made / "graph.json").read_text()))
    assert {str(link) for link in graph.pag or ()} == {"x o-> a", "y o-> a", "a --> c"}
    assert verify_bundle(made).ok
    assert "a --> c   visible" in synthdp("graph", "show", made).out
    assert synthdp("sample", made, "--do", "c=true", "--rows", "5").code == 0
    refused = synthdp("sample", made, "--do", "a=true", "--rows", "5")
    assert refused.code != 0 and "unseen common cause may explain" in refused.err
    effect = synthdp("effect", made, "--treatment", "a", "--outcome", "c")
    assert effect.code != 0 and "is not identified where causes may be unseen" in effect.err
    assert synthdp("effect", made, "--treatment", "a", "--outcome", "c", "--adjust", "x").code == 0


@pytest.mark.parametrize("drop", [True, False])
def test_verify_holds_the_key_against_the_spec(made: Path, drop: bool, tmp_path: Path) -> None:
    copy = shutil.copytree(made, tmp_path / "bundle")
    name = "graph.json" if drop else "spec.yaml"
    text = (copy / name).read_text()
    if drop:
        content = json.loads(text)
        del content["pag"]
        text = json.dumps(content)
    else:
        text = text.replace("  unseen_causes: true\n", "")
    (copy / name).write_text(text)
    found = " ".join(str(p) for p in inspect_bundle(copy).problems)
    assert ("has no pag" if drop else "has a pag") in found


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"mode": "predict", "unseen_causes": True}, "graph mode is predict"),
        (
            {"mode": "learn", "unseen_causes": True, "algorithm": "rcit_pc"},
            "graph algorithm is rcit_pc",
        ),
    ],
)
def test_only_a_search_that_tells_its_sets_may_ask(graph: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_spec(yaml.safe_dump(predict_spec(**{**SEARCHED, "graph": graph})), path="spec.yaml")
