"""The picture of `benchmarks.tables`: AUC of the label and distance of pairs, beside peers.

    python -m benchmarks.pictures tables

Epsilon 1; means of the runs in results/tables.csv. Of the five tables of before, the AUC of real
rows and SWIFT's one run, on another machine, stand here as they were taken.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import look
from benchmarks.tables import ELSEWHERE, MORE, TABLES

TAKEN = {
    ("real", "init"): {"auc": (0.918, 0.843, 0.925, 0.946, 0.907), "tv2": (0.0,) * 5},
    ("dpsynth", "grid"): {
        "auc": (0.905, 0.742, 0.893, 0.896, 0.843),
        "tv2": (0.040, 0.131, 0.052, 0.133, 0.025),
    },
}
WAYS = {
    ("predict", "init"): ("synthdp, as init drafts it", look.OF["synthdp"], "o"),
    ("predict", "grid"): ("synthdp, given the bins", look.SKY, "o"),
    ("dpsynth", "grid"): ("dpsynth SWIFT, given the bins", look.OF["dpsynth"], "D"),
    ("dpmm-aim", "grid"): ("dpmm AIM, given the bins", look.OF["dpmm-aim"], "X"),
    ("dpmm-mst", "grid"): ("dpmm MST, given the bins", look.OF["dpmm-mst"], "X"),
    ("real", "init"): ("real rows", look.REAL, "|"),
}


def plot(runs: pd.DataFrame, path: Path) -> None:
    """Two panels, a line for each table."""
    names = [*TABLES, *MORE, *ELSEWHERE]
    runs = runs[runs["epsilon"] == 1.0]
    means = runs.groupby(["mode", "bins", "table"])[["auc", "tv2"]].mean()
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    titles = {"auc": "AUC of the label on real rows (higher is better)",
              "tv2": "total variation of two-way tables (lower is better)"}  # fmt: skip
    for panel, (measure, title) in zip(panels, titles.items(), strict=True):
        for way, (label, colour, marker) in WAYS.items():
            values = dict(zip(TABLES, TAKEN.get(way, {measure: ()})[measure], strict=False))
            if way in means.index.droplevel("table"):
                values |= means.loc[way, measure].to_dict()
            rows = [(value, names.index(n)) for n, value in values.items() if n in names]
            panel.scatter(*zip(*rows, strict=True), c=colour, marker=marker, s=50, label=label)
        panel.set_title(title)
        panel.set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path)
