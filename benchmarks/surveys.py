"""Surveys of 1,600 rows and 29 columns: the spec that `init` drafts, beside ten tuned by hand.

    python -m benchmarks.surveys [--seeds 100 101 102] [--epsilon 1 3] [--specs init coarse ...]

The surveys are drawn from causal models (`surveys_model.py`). Writes results/surveys.csv, a row for
each run; runs that it holds are not run again.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.surveys_model import Survey
from benchmarks.tables import released
from synthdp.spec.load.loader import parse_spec

RESULTS = Path(__file__).parent / "results" / "surveys.csv"
KEY = ["seed", "spec", "epsilon"]
DELTA = 1e-5
Change = Callable[[dict[str, Any], Survey], None]


def _bins(count: int) -> Change:
    def change(spec: dict[str, Any], survey: Survey) -> None:
        for name in survey.grid:
            spec["columns"][name]["bins"] = count

    return change


def _grid(spec: dict[str, Any], survey: Survey) -> None:
    """Bins of equal mass, which only who has seen the table can know."""
    for name, edges in survey.grid.items():
        lower = spec["columns"][name]["lower"]
        inner = [float(e) for e in edges if lower < e < spec["columns"][name]["upper"]]
        spec["columns"][name]["edges"] = [lower, *inner]


def _shares(**shares: float) -> Change:
    def change(spec: dict[str, Any], survey: Survey) -> None:
        spec["privacy"]["shares"] = shares

    return change


def _mode(mode: str) -> Change:
    def change(spec: dict[str, Any], survey: Survey) -> None:
        spec["graph"] = {"mode": mode}
        if mode == "given":
            spec["graph"]["edges"] = [
                f"{', '.join(c)} -> {n}" for n, c in survey.causes.items() if c
            ]

    return change


TUNED: dict[str, tuple[Change, ...]] = {
    "init": (),
    "coarse 8": (_bins(8),),
    "coarse 16": (_bins(16),),
    "equal mass": (_grid,),
    "equal mass, tables .1": (_grid, _shares(measure=0.1, graph=0.9, train=0)),
    "equal mass, tables .3": (_grid, _shares(measure=0.3, graph=0.7, train=0)),
    "equal mass, tables .45": (_grid, _shares(measure=0.45, graph=0.55, train=0)),
    "tables .1": (_shares(measure=0.1, graph=0.9, train=0),),
    "tables .35": (_shares(measure=0.35, graph=0.65, train=0),),
    "true graph": (_grid, _mode("given"), _shares(measure=0.3, pairs=0.5, train=0.2)),
    "no graph": (_grid, _mode("none"), _shares(measure=0.3, pairs=0.5, train=0.2)),
}
"""The spec that `init` drafts, and ten that somebody made better who may try and look."""


def spec_text(survey: Survey, tuning: str, epsilon: float) -> str:
    """The spec, as JSON, which is YAML."""
    spec: dict[str, Any] = {
        "synthdp": 1,
        "dataset": {
            "id": "survey",
            "source": {"kind": "csv", "path": "values.csv", "missing_values": [""]},
            "privacy_unit": {"kind": "row", "meaning": "one person"},
            "rows": {"kind": "public", "value": len(survey.table)},
        },
        "columns": copy.deepcopy(dict(survey.columns)),
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "graph": {"mode": "predict"},
        "evaluation": {"targets": ["outcome"], "holdout": 0.2},
    }
    for change in TUNED[tuning]:
        change(spec, survey)
    return json.dumps(spec)


def measure(seed: int, tuning: str, epsilon: float) -> dict[str, float]:
    """Figures of one run."""
    survey = Survey(seed)
    spec = parse_spec(spec_text(survey, tuning, epsilon), path="survey")
    evaluation = spec.evaluation.model_copy(update={"holdout": 0.0})
    compute = spec.compute.model_copy(update={"threads": 1})
    spec = spec.model_copy(update={"evaluation": evaluation, "compute": compute})
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        synthetic = released(spec, survey.table.astype(object), Path(folder))
        seconds = time.process_time() - start
    return {**survey.score(synthetic.replace("", None)), "cpu_s": seconds}


def main() -> None:
    """Run what is missing, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=(100, 101, 102))
    parser.add_argument("--epsilon", nargs="+", type=float, default=(1.0, 3.0))
    parser.add_argument("--specs", nargs="+", default=tuple(TUNED), choices=TUNED)
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    for seed in asked.seeds:
        for epsilon in asked.epsilon:
            for tuning in asked.specs:
                key = dict(zip(KEY, (seed, tuning, epsilon), strict=True))
                if (known[KEY] == pd.Series(key)).all(axis=1).any():
                    continue
                row = key | measure(seed, tuning, epsilon)
                known = pd.concat([known, pd.DataFrame([row])], ignore_index=True)
                known.round(4).to_csv(RESULTS, index=False)
                print(
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()},
                    flush=True,
                )
    print(known.drop(columns="seed").groupby(KEY[1:], sort=False).mean().round(4).to_string())


if __name__ == "__main__":
    main()
