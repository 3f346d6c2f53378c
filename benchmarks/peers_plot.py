"""The picture of `benchmarks.peers`: quality against CPU seconds, one column for each table; shapes
and colours are peers, sizes are epsilons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

MARKERS = {
    "synthdp": ("*", "synthdp, its spec's graph"),
    "synthdp-no-graph": ("P", "synthdp, no graph"),
    "dpmm-mst": ("^", "dpmm, MST"),
    "dpmm-aim": ("s", "dpmm, AIM"),
    "smartnoise-mst": ("v", "smartnoise-synth, MST"),
    "mostlyai": ("o", "mostlyai-engine, DP-SGD"),
    "dpsynth": ("D", "dpsynth, SWIFT"),
}
SIZES = {0.1: 45.0, 1.0: 90.0, 10.0: 180.0}
UTILITY = {"pain5000": ("mean_acc", "mean accuracy, 20 targets x 5 classifiers")}
AUC = ("mean_auc", "mean AUC of five classifiers")


def plot(table: pd.DataFrame, path: Path) -> None:
    """Utility above (higher is better), distance of pair tables below (lower is better); points are
    means over runs.
    """
    from matplotlib.figure import Figure

    from benchmarks import look

    good = table[table["outcome"] == "ok"]
    fits = good[good["epsilon"] > 0]
    names = list(dict.fromkeys(fits["table"]))
    if not names:
        return
    figure = Figure(figsize=(3.8 * len(names) + 0.6, 7), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True)
    ticks = [t for t in (5, 10, 20, 50, 100, 200, 500, 1000) if t <= 2 * fits["cpu_s"].max()]
    for column, name in enumerate(names):
        utility, label = UTILITY.get(name, AUC)
        above, below = axes[:, column]
        for panel, what, words in (
            (above, utility, label),
            (below, "tv2", "mean total variation of pair tables"),
        ):
            _points(panel, fits[fits["table"] == name], what)
            panel.set(ylabel=words, xscale="log")
            panel.set_xticks(ticks, [str(t) for t in ticks])
            panel.set_xticks([], minor=True)
        _ceilings(above, good[(good["table"] == name) & (good["epsilon"] == 0)], utility)
        above.set_title(name)
        look.better(above, "left and up")
        look.better(below, "left and down")
        below.set_xlabel("CPU seconds of fit and sample, one thread")
        below.set_ylim(0, 1.1 * fits.loc[fits["table"] == name, "tv2"].max())
    _legend(figure, fits)
    figure.savefig(path)


def _points(panel: Any, fits: pd.DataFrame, what: str) -> None:
    from benchmarks import look

    for peer, own in fits.groupby("peer", sort=True):
        marker, _ = MARKERS[str(peer)]
        means = own.groupby("epsilon", sort=True)[["cpu_s", what]].mean()
        panel.scatter(
            means["cpu_s"],
            means[what],
            marker=marker,
            s=[SIZES.get(float(epsilon), 40.0) for epsilon in means.index],
            color=look.OF[str(peer)],
            edgecolor="white",
            linewidth=0.6,
            zorder=3,
        )


def _ceilings(panel: Any, real: pd.DataFrame, what: str) -> None:
    """What real rows reach, as they are and after the grid."""
    from benchmarks import look

    for (_, one), style, end in zip(
        real.sort_values("peer").iterrows(), ("-", ":"), ("bottom", "top"), strict=False
    ):
        panel.axhline(one[what], color=look.REAL, linewidth=0.9, linestyle=style)
        panel.text(
            0.99,
            one[what],
            one["peer"],
            ha="right",
            va=end,
            fontsize=7,
            transform=panel.get_yaxis_transform(),
        )


def _legend(figure: Any, fits: pd.DataFrame) -> None:
    from matplotlib.lines import Line2D

    from benchmarks import look

    shapes = [
        Line2D([], [], linestyle="", marker=m, color=look.OF[peer], markersize=8, label=label)
        for peer, (m, label) in MARKERS.items()
        if (fits["peer"] == peer).any()
    ]
    sizes = [
        Line2D([], [], linestyle="", marker="o", color=look.GREY, markersize=size**0.5,
               label=f"epsilon {epsilon:g}")
        for epsilon, size in SIZES.items()
        if (fits["epsilon"] == epsilon).any()
    ]  # fmt: skip
    figure.legend(
        handles=shapes + sizes,
        loc="outside lower center",
        ncols=2 if figure.get_figwidth() < 6 else 5,
    )
