"""Mode learn from rows to a verified bundle, where the search leaves most pairs undecided."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from synthdp import Bundle
from synthdp.errors import OutputError
from synthdp.graph import CausalGraph
from synthdp.release import release
from synthdp.verify import verify_bundle
from tests.builders import predict_spec, predict_table

pytestmark = pytest.mark.check

SEARCHED = {
    "graph": {"mode": "learn"},
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-5,
        "shares": {"measure": 0.2, "graph": 0.6, "train": 0.2},
    },
    "synthesizer": {"steps": 20, "batch": 64, "hidden": 8},
    "attacks": {"membership": {"enabled": False}},
}
measured_pc = sys.modules["synthdp.graph.discovery.measured_pc"]  # a function has its name, too
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a release whose search finds nothing for certain: every test is undecided."""
    folder = tmp_path_factory.mktemp("learn")
    predict_table().to_csv(folder / "table.csv", index=False)
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(predict_spec(**SEARCHED), sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthdp.privacy.plan.GROUP_SIZES", (1, 2))
        patch.setattr(measured_pc, "separates", lambda answer, tests, level: True)
        release(path, out=folder / "out")
    return folder / "out" / "bundle"


def test_the_model_keeps_what_the_search_left_open(made: Path) -> None:
    graph = CausalGraph.from_json(json.loads((made / "graph.json").read_text()))
    kinds = {e.provenance for e in graph.edges}
    assert "predictive" in kinds and not kinds & {"learned", "given"}
    model = json.loads((made / "model.json").read_text())
    assert model["architecture"]["direct"] is True
    names = list(graph.nodes)
    arrows = [
        (names[p], name)
        for name, parents in zip(names, model["architecture"]["parents"], strict=True)
        for p in parents
    ]
    assert set(arrows) == set(graph.directed)
    assert verify_bundle(made).ok


def test_synthetic_rows_have_the_dependence(made: Path) -> None:
    """Without arrows columns are independent: Cramer's V of the strongest pair is then below .1."""
    real, drawn = predict_table(), Bundle(made).table()
    graph = CausalGraph.from_json(json.loads((made / "graph.json").read_text()))
    found = []
    for cause, effect in graph.directed:
        tables = [t.groupby([cause, effect], observed=False).size() for t in (real, drawn)]
        if len(tables[0]) <= 12:
            found.append(_v(tables[1].unstack(fill_value=0).to_numpy()))
    assert found and max(found) > 0.15


def _v(counts: np.ndarray[Any, Any]) -> float:
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    square = ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum() / counts.sum()
    return float(np.sqrt(square / (min(counts.shape) - 1)))


def test_texts_say_what_predictive_arrows_are(made: Path, synthdp: Any) -> None:
    assert "a predictive arrow keeps it, which is no cause" in (made / "DATACARD.md").read_text()
    graph = CausalGraph.from_json(json.loads((made / "graph.json").read_text()))
    cause, effect = graph.directed[0]
    bundle = Bundle(made)
    value = bundle.table()[cause].dropna().iloc[0]
    with pytest.raises(OutputError, match=r"no causes|left open whether"):
        bundle.sample(5, do={cause: value})
    assert synthdp("sample", made, "--rows", 5, "--do", f"{effect}=").code == 2
