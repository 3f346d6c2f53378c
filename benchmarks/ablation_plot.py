"""The picture of the ablation: a line for each cell, quality on the left, the attack on the
right.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks import look

LINES = {
    ("given", "pairs", "balanced"): "expert graph",
    ("groups", "pairs", "balanced"): "partial: four groups",
    ("half", "pairs", "balanced"): "partial: half the arrows",
    ("wrong", "pairs", "balanced"): "wrong: columns permuted",
    ("learned", "pairs", "balanced"): "learned from the rows",
    ("none", "pairs", "balanced"): "no graph (plain VAE)",
    ("given", "one-way", "balanced"): "expert, one-way tables only",
    ("given", "one-way", "raked"): "the same, rows not balanced",
    ("given", "one-way", "drawn"): "the same, not raked: the model alone",
    ("half", "one-way", "drawn"): "half the arrows, the model alone",
    ("wrong", "one-way", "drawn"): "wrong graph, the model alone",
    ("none", "one-way", "drawn"): "no graph, the model alone",
}
COLOURS = {1.0: look.SYNTHETIC, 10.0: look.SKY, math.inf: look.REAL}
OFFSET = {1.0: -0.2, 10.0: 0.0, math.inf: 0.2}  # so that all can be seen on one line


def plot(quality: pd.DataFrame, attack: pd.DataFrame, path: Path) -> None:
    """Draw `summarised` quality and the attack's table; whiskers are 95% intervals."""
    figure = Figure(figsize=(12.5, 5), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for _, row in quality.iterrows():
        for axes, name in ((left, "mean_auc"), (middle, "tv2")):
            half = row[f"{name}_pm"]
            _whisker(
                axes,
                row,
                row[name],
                0.0 if math.isnan(half) else half,
                0.0 if math.isnan(half) else half,
            )
    for _, row in attack.drop_duplicates(
        ["graph", "tables", "sampling", "epsilon"], keep="last"
    ).iterrows():
        value = row["advantage"]
        _whisker(right, row, value, value - row["advantage_lower"], row["advantage_upper"] - value)
        if math.isfinite(row["epsilon"]):
            right.plot(row["ceiling"], _height(row), marker="|", markersize=14, color=look.BOUND)
    left.set_yticks(range(len(LINES)), list(LINES.values()))
    left.set_ylim(len(LINES) - 0.5, -0.5)
    left.set(
        title="mean AUC of five classifiers", xlabel="trained on synthetic, tested on real rows"
    )
    middle.set(title="mean total variation of pair tables", xlabel="against the fit rows")
    right.set(
        title="advantage of a membership attack",
        xlabel="500 rows; bar: the most that epsilon allows",
        xlim=(-0.5, 1.05),
    )
    right.axvline(0, color=look.GREY, linewidth=0.8)
    look.better(left, "right")
    look.better(middle, "left")
    for axes in (left, middle, right):
        axes.grid(axis="x", visible=False)
    shown = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in COLOURS.values()]
    names = ["no privacy" if math.isinf(epsilon) else f"epsilon {epsilon:g}" for epsilon in COLOURS]
    figure.legend(shown, names, loc="outside lower center", ncols=len(shown))
    figure.suptitle(
        "Adult, delta 1e-5: what graph, tables, choice of rows and privacy are worth (whiskers: 95%"
        " intervals; none on one run)"
    )
    figure.savefig(path)


def _height(row: Any) -> float:
    return (
        list(LINES).index((row["graph"], row["tables"], row["sampling"])) + OFFSET[row["epsilon"]]
    )


def _whisker(axes: Axes, row: Any, value: float, down: float, up: float) -> None:
    axes.errorbar(
        value,
        _height(row),
        xerr=[[down], [up]],
        fmt="o",
        markersize=5,
        capsize=3,
        color=COLOURS[row["epsilon"]],
    )
