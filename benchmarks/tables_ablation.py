"""What each part of mode predict is worth, on five tables and three surveys without an expert.

    python -m benchmarks.tables_ablation [--runs 3] [--epsilon 1] [--variants ...] [--tables ...]

Each variant is the spec that `init` drafts, with one part taken out or changed (`VARIANTS`).
`every earlier column` is the control for the worth of a graph: a causal model in which every
column depends on all earlier ones, trained by DP-SGD, with the label predicted in a stage of its
own. `learned graph` is the same model of what mode learn leaves of these links, knowing only that
the label comes last. `no graph` is a plain VAE. Writes results/tables_ablation.csv, a row for each
run; runs that it holds are not run again. Prints what each part is worth: the mean over tables of a
variant less that of the whole, with 95% intervals from the spread of runs.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from benchmarks.surveys import spec_text
from benchmarks.surveys_model import Survey
from benchmarks.tables import TABLES, newcomer_spec, released
from benchmarks.tables_protocol import PublicTable
from synthdp.graph.predict import smoothed_pair
from synthdp.spec.load.loader import parse_spec

RESULTS = Path(__file__).parent / "results" / "tables_ablation.csv"
SURVEYS = ("survey 100", "survey 101", "survey 102")
KEY = ["table", "variant", "epsilon", "run"]
FIGURES = ("auc", "tv1", "tv2", "tv3", "c2st_grid", "missing", "sd_mean", "cpu_s")
BINS = 32
Change = Callable[[dict[str, Any], str], None]


@dataclass(frozen=True)
class Variant:
    """`change` edits the spec for a label; `patches` replace names of the program by others."""

    change: Change = lambda spec, label: None
    patches: tuple[tuple[str, Any], ...] = ()


def _every_earlier(spec: dict[str, Any], label: str) -> None:
    names = [*(n for n in spec["columns"] if n != label), label]
    edges = [f"{', '.join(names[:i])} -> {name}" for i, name in enumerate(names) if i]
    spec["graph"] = {"mode": "given", "edges": edges}
    shares = {"measure": 0.2, "pairs": 0.4, "targets": 0.15, "train": 0.25}
    spec["privacy"]["shares"] = shares
    spec["synthesizer"] = {"targets": [label]}


def _learned(spec: dict[str, Any], label: str) -> None:
    spec["graph"] = {
        "mode": "learn",
        "tiers": [[n for n in spec["columns"] if n != label], [label]],
    }
    spec["privacy"]["shares"] = {"measure": 0.2, "graph": 0.4, "targets": 0.15, "train": 0.25}
    spec["synthesizer"] = {"targets": [label]}


def _mode_none(spec: dict[str, Any], label: str) -> None:
    spec["graph"] = {"mode": "none"}


def _wide_bins(spec: dict[str, Any], label: str) -> None:
    for column in spec["columns"].values():
        if "lower" in column:
            column["bins"] = BINS


def _unsmoothed(first: Any, second: Any, shares: Any, sigma: float) -> Any:
    """The noisy table itself; whether it shows a dependence is told as always."""
    kept = np.maximum(shares, 0)
    return replace(smoothed_pair(first, second, shares, sigma), probabilities=kept / kept.sum())


SEARCH, PAIRS = "synthdp.graph.predict.", "synthdp.graph.predict."
VARIANTS: dict[str, Variant] = {
    "whole": Variant(),
    "every earlier column": Variant(_every_earlier),
    "learned graph": Variant(_learned),
    "no graph": Variant(_mode_none),
    "one round of pairs": Variant(
        patches=((f"{SEARCH}PREDICTION_SHARES", {"all pairs": 0.999, "chosen pairs": 0.001}),)
    ),
    "label like any column": Variant(patches=((f"{SEARCH}targets_in", lambda pair, targets: 0),)),
    "pairs not smoothed": Variant(patches=((f"{PAIRS}smoothed_pair", _unsmoothed),)),
    "margins not smoothed": Variant(
        patches=(("synthdp.graph.margins.smoothed_margin", lambda c, shares, s: shares),)
    ),
    "bins of equal width": Variant(_wide_bins),
    "missing one by one": Variant(
        patches=(
            (f"{PAIRS}missing_groups", lambda tables, columns: ()),
            (f"{SEARCH}likely_partners", lambda tables, columns: []),
        )
    ),
}


def measure(table: str, variant: Variant, epsilon: float) -> dict[str, float]:
    """Figures of one run."""
    judge, rows, label, text = _described(table, epsilon)
    described = yaml.safe_load(text)
    variant.change(described, label)
    spec = parse_spec(yaml.safe_dump(described, sort_keys=False), path=table)
    evaluation = spec.evaluation.model_copy(update={"holdout": 0.0})
    compute = spec.compute.model_copy(update={"threads": 1})
    spec = spec.model_copy(update={"evaluation": evaluation, "compute": compute})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as changed:
        for name, value in variant.patches:
            changed.enter_context(mock.patch(name, value))
        start = time.process_time()
        synthetic = released(spec, rows, Path(folder))
        seconds = time.process_time() - start
    return {**judge(synthetic), "cpu_s": seconds}


def _described(
    name: str, epsilon: float
) -> tuple[Callable[[pd.DataFrame], dict[str, float]], pd.DataFrame, str, str]:
    """How a table is judged, its rows to fit, its label, and the spec of a newcomer."""
    if name in TABLES:
        table = PublicTable(name)
        train, _ = table.split
        text = newcomer_spec(table, rows=len(train), epsilon=epsilon, mode="predict", bins="init")
        return table.score, train, table.described["target"], text
    survey = Survey(int(name.split()[1]))
    rows = survey.table.astype(object)
    return (
        lambda t: survey.score(t.replace("", None)),
        rows,
        "outcome",
        spec_text(survey, "init", epsilon),
    )


def worth(runs: pd.DataFrame, figure: str) -> pd.DataFrame:
    """Each variant less the whole: mean over tables, and half the width of its 95% interval.

    The tables are these; what is uncertain is the noise of runs, with one variance for each table.
    """
    cells = runs.dropna(subset=[figure]).groupby(["variant", "table"])[figure]
    means = cells.mean().unstack("table")
    sizes = cells.size().unstack("table")
    within = cells.var().unstack("table").mean(axis=0)
    lines = {}
    for variant in means.index.drop("whole"):
        shared = means.loc[variant].notna() & means.loc["whole"].notna()
        gap = (means.loc[variant] - means.loc["whole"])[shared]
        each = 1 / sizes.loc[variant][shared] + 1 / sizes.loc["whole"][shared]
        error = float(np.sqrt((within[shared] * each).sum())) / len(gap)
        freedom = int((sizes[shared.index[shared]] - 1).sum().sum())
        lines[variant] = {
            "whole": means.loc["whole"][shared].mean(),
            "less": gap.mean(),
            "half": error * stats.t.ppf(0.975, freedom),
            "tables": len(gap),
        }
    return pd.DataFrame(lines).T


def main() -> None:
    """Run what is missing, and print what each part is worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = (*TABLES, *SURVEYS)
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--epsilon", nargs="+", type=float, default=(1.0,))
    parser.add_argument("--variants", nargs="+", default=tuple(VARIANTS), choices=VARIANTS)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    cells = itertools.product(range(asked.runs), asked.epsilon, asked.tables, asked.variants)
    for run, epsilon, table, variant in cells:
        key = dict(zip(KEY, (table, variant, epsilon, run), strict=True))
        if (known[KEY] == pd.Series(key)).all(axis=1).any():
            continue
        row = key | measure(table, VARIANTS[variant], epsilon)
        known = pd.concat([known, pd.DataFrame([row])], ignore_index=True)
        known.round(4).to_csv(RESULTS, index=False)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    for epsilon in asked.epsilon:
        for kind, tables in (("five tables", TABLES), ("surveys", SURVEYS)):
            chosen = known[(known["epsilon"] == epsilon) & known["table"].isin(tables)]
            for figure in FIGURES:
                if figure in chosen and chosen[figure].notna().any():
                    print(f"\n{kind}, epsilon {epsilon:g}, {figure}")
                    print(worth(chosen, figure).round(4).to_string())


if __name__ == "__main__":
    main()
