"""A release that looks for numbers that many rows have: what is drawn, told and checked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.release import release
from synthdp.sample import Sampler, generator
from synthdp.verify import inspect_bundle
from tests.builders import skeleton
from tests.release.conftest import certificate, refit

pytestmark = pytest.mark.check

ROWS = 4000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of 4,000 rows: a tenth earn 12,570, and half of the shares are 100."""
    folder, rng = tmp_path_factory.mktemp("heaps"), np.random.default_rng(3)
    pay = np.where(rng.random(ROWS) < 0.1, 12_570, np.exp(rng.normal(9, 1, ROWS)).round())
    share = np.where(rng.random(ROWS) < 0.5, 100.0, (100 * rng.beta(4, 2, ROWS)).round(2))
    table = pd.DataFrame({"pay": pay.astype(int), "share": share, "old": rng.random(ROWS) < 0.5})
    table["old"] = np.where(table["old"], "yes", "no")
    table.to_csv(folder / "table.csv", index=False)
    spec = {
        **skeleton(ROWS, source={"kind": "csv", "path": "table.csv"}),
        "columns": {
            "pay": {"type": "integer", "lower": 0, "upper": 2_000_000},
            "share": {"type": "number", "lower": 0, "upper": 100, "decimals": 2},
            "old": {"type": "boolean", "false": "no", "true": "yes"},
        },
        "privacy": {"epsilon": 4.0, "delta": 1e-5},
        "graph": {"mode": "predict"},
        "sampling": {"rows": ROWS},
        "evaluation": {"enabled": False},
        "tracking": {"enabled": False},
        "compute": {"threads": 1},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return release(path, out=folder / "out").bundle


def test_heaps_are_drawn_as_often_as_they_are_and_the_bundle_verifies(made: Path) -> None:
    assert not inspect_bundle(made).problems
    rows = pd.read_csv(made / "synthetic.csv")
    more = pd.concat(Sampler.of_bundle(made).sample(ROWS, rng=generator(1)))
    for drawn in (rows, more):
        assert (drawn["pay"] == 12_570).mean() == pytest.approx(0.1, abs=0.03)
        assert (drawn["share"] == 100).mean() == pytest.approx(0.5, abs=0.05)
    told = json.loads((made / "marginals.json").read_text())["heaps"]
    assert {*told["counts"]["pay"]} == {"12570.0"} and {*told["counts"]["share"]} == {"100.0"}
    assert min(n for own in told["counts"].values() for n in own.values()) >= told["threshold"]


def test_the_look_is_planned_charged_and_certified(made: Path) -> None:
    facts = certificate(made)
    (planned,) = (p for p in facts["planned"] if p["purpose"] == "heaps")
    assert "thresholded_gaussian" in json.dumps(planned["event"])
    assert "on numbers that occur" in planned["mechanism"]


SPOILED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing told": (lambda m: m.pop("heaps"), "do not agree"),
    "less noise": (lambda m: m["heaps"].update(sigma=1.0), "noise that was paid for"),
    "a lower threshold": (lambda m: m["heaps"].update(threshold=2), "noise that was paid for"),
    "a rare number": (lambda m: m["heaps"]["counts"]["pay"].update({"9.0": 3}), "below"),
    "another column": (lambda m: m["heaps"]["counts"].update(old={}), "columns that the spec"),
    "out of bounds": (lambda m: m["heaps"]["counts"]["pay"].update({"-9.0": 10**6}), "bounds"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_heaps_that_nobody_paid_for_are_refused(made: Path, tmp_path: Path, name: str) -> None:
    spoil, said = SPOILED[name]
    bundle = tmp_path / "bundle"
    shutil.copytree(made, bundle)
    content = json.loads((bundle / "marginals.json").read_text())
    spoil(content)
    (bundle / "marginals.json").write_text(json.dumps(content))
    refit(bundle)
    assert any("heaps" in p and said in p for p in inspect_bundle(bundle).problems)
