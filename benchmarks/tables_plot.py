"""The picture of `benchmarks.tables`: AUC of the label and distance of pairs, beside peers.

    python -m benchmarks.pictures tables

Epsilon 1; means of the runs in results/tables.csv. SWIFT (google/dpsynth) is on no package index:
its one run, on another machine, stands here as it was taken.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import look

TABLES = ("employee", "wine", "bike", "grid", "hotel")
REAL = dict(zip(TABLES, (0.918, 0.843, 0.925, 0.946, 0.907), strict=True))
SWIFT = {
    "auc": dict(zip(TABLES, (0.905, 0.742, 0.893, 0.896, 0.843), strict=True)),
    "tv2": dict(zip(TABLES, (0.040, 0.131, 0.052, 0.133, 0.025), strict=True)),
}
WAYS = {
    ("predict", "init"): ("synthdp, as init drafts it", look.OF["synthdp"]),
    ("predict", "grid"): ("synthdp, given the bins", look.SKY),
    ("swift", "grid"): ("dpsynth SWIFT, given the bins", look.OF["dpsynth"]),
    ("dpmm-aim", "grid"): ("dpmm AIM, given the bins", look.OF["dpmm-aim"]),
    ("dpmm-mst", "grid"): ("dpmm MST, given the bins", look.OF["dpmm-mst"]),
}


def plot(runs: pd.DataFrame, path: Path) -> None:
    """Two panels of bars."""
    runs = runs[runs["epsilon"] == 1.0]
    means = runs.groupby(["mode", "bins", "table"])[["auc", "tv2"]].mean()
    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"auc": "AUC of the label on real rows (higher is better)",
              "tv2": "total variation of two-way tables (lower is better)"}  # fmt: skip
    for panel, (measure, title) in zip(panels, titles.items(), strict=True):
        for at, (way, (label, colour)) in enumerate(WAYS.items()):
            values = [
                SWIFT[measure][t] if way[0] == "swift" else means.loc[(*way, t), measure]
                for t in TABLES
            ]
            places = [i + 0.16 * (at - 2) for i in range(len(TABLES))]
            panel.bar(places, values, width=0.15, color=colour, label=label)
        if measure == "auc":
            for i, name in enumerate(TABLES):
                real = "real rows" if i == 0 else None
                panel.hlines(REAL[name], i - 0.42, i + 0.42, color=look.REAL, lw=1.2, label=real)
            panel.set_ylim(0.6, 0.97)
        panel.set_xticks(range(len(TABLES)), TABLES)
        panel.set_title(title)
        panel.grid(axis="x", visible=False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path)
