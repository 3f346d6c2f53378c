"""What a learned graph does not show of directions is published as unknown, and nothing rests on
it: rows of a fork a <- b -> c, which no data tell from a chain.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp import Bundle
from synthdp.errors import OutputError
from synthdp.graph import WRITERS, read_graph
from synthdp.release import release
from synthdp.verify import verify_bundle
from tests.builders import build_spec, skeleton

pytestmark = pytest.mark.check

ROWS = 6_000
YES_NO = {"type": "categorical", "categories": ["no", "yes"]}


def fork(rng: np.random.Generator) -> pd.DataFrame:
    """P(b = yes) is .4 whatever a is set to."""
    b = rng.random(ROWS) < 0.4
    a, c = (rng.random(ROWS) < np.where(b, *p) for p in ((0.8, 0.2), (0.7, 0.3)))
    return pd.DataFrame({n: np.where(v, "yes", "no") for n, v in {"a": a, "b": b, "c": c}.items()})


def written(folder: Path, **sections: Any) -> Path:
    """The spec of a release of the fork, in `folder`."""
    base = skeleton(ROWS) | {
        "columns": dict.fromkeys("abc", YES_NO),
        "privacy": {
            "epsilon": 3.0,
            "delta": 1e-6,
            "shares": {"graph": 0.4, "measure": 0.3, "train": 0.3},
        },
        "synthesizer": {"steps": 10, "batch": 64, "hidden": 8},
        "evaluation": {"enabled": False},
        "attacks": {"membership": {"enabled": False}},
        "tracking": {"enabled": False},
    }
    folder.mkdir(exist_ok=True)
    base["dataset"]["source"] = {"kind": "csv", "path": str(folder / "table.csv")}
    fork(np.random.default_rng(5)).to_csv(folder / "table.csv", index=False)
    path = folder / "spec.yaml"
    path.write_text(json.dumps(base | sections), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fork")
    release(written(folder, graph={"mode": "learn"}), out=folder / "out")
    return folder / "out" / "bundle"


def test_links_that_no_data_direct_have_no_direction_anywhere(learned: Path) -> None:
    stated = json.loads((learned / "graph.json").read_text())
    assert [(e["from"], e["to"], e["directed"]) for e in stated["edges"]] == [
        ("a", "b", False),
        ("b", "c", False),
    ]
    assert verify_bundle(learned).ok
    page = (learned / "report.html").read_text()
    assert "2 links of unknown direction" in page and "a - b" in page
    assert "2 links, 2 of unknown direction" in (learned / "DATACARD.md").read_text()
    assert "arrowhead" not in (learned / "graph.svg").read_text()


def test_what_rests_on_a_direction_is_refused_or_a_range(learned: Path) -> None:
    bundle = Bundle(learned)
    for column in "abc":
        with pytest.raises(OutputError, match="nothing shows which is the cause of"):
            bundle.sample(10, do={column: "yes"})
    assert len(bundle.sample(10, given={"a": "yes"})) == 10
    found = bundle.effect("a", "b", level="yes")
    low, high = found.figures[0].interval or (1.0, 1.0)
    assert low <= 0.0 < 0.5 < high, "of a on b there is no effect, and no data show it"
    assert any("nothing shows which is the cause of a and b" in s for s in found.about)


def test_a_pasted_graph_keeps_what_is_unknown(learned: Path, tmp_path: Path) -> None:
    text = WRITERS["yaml"](read_graph(learned))
    pasted = yaml.safe_load(text)["graph"]
    assert pasted == {"mode": "given", "undirected": [["a", "b"], ["b", "c"]]}
    assert build_spec(dict.fromkeys("abc", YES_NO), graph=pasted).graph.mode == "given"
    privacy = {"epsilon": 3.0, "delta": 1e-6, "shares": {"measure": 0.7, "train": 0.3}}
    path = written(tmp_path / "given", graph=pasted, privacy=privacy)
    release(path, out=tmp_path / "out")
    bundle = Bundle(tmp_path / "out" / "bundle")
    assert verify_bundle(bundle.path).ok
    with pytest.raises(OutputError, match="nothing shows which is the cause of"):
        bundle.sample(10, do={"a": "yes"})
    found = bundle.effect("a", "b", level="yes")
    assert any("nothing shows which is the cause of a and b" in s for s in found.about), found


Run = Callable[..., Any]


def test_graph_learn_and_diff_speak_of_classes(learned: Path, synthdp: Run, tmp_path: Path) -> None:
    shown = synthdp("graph", "show", learned)
    assert "0 arrows, 2 links of unknown direction" in shown.out and "a -- b" in shown.out
    chain, collider = tmp_path / "chain.yaml", tmp_path / "collider.yaml"
    chain.write_text("graph: {edges: [a -> b, b -> c]}")
    collider.write_text("graph: {edges: [a -> b, c -> b]}")
    same = synthdp("graph", "diff", chain, learned)
    assert "compared by what observational data can show" in same.out
    assert "structural Hamming distance 0" in same.out
    assert "2 turned" in synthdp("graph", "diff", collider, learned).out
