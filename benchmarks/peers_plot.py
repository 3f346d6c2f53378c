"""The picture of `benchmarks.peers`: quality against CPU seconds, one column for each table; shapes
are peers, fillings are epsilons.
"""

from __future__ import annotations

from pathlib import Path

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
FILLS = {0.1: "white", 1.0: "darkgrey", 10.0: "black"}
UTILITY = {"pain5000": ("mean_acc", "mean accuracy, 20 targets x 5 classifiers")}
AUC = ("mean_auc", "mean AUC of five classifiers")


def plot(table: pd.DataFrame, path: Path) -> None:
    """Utility above (higher is better), distance of pair tables below (lower is better); points are
    means over runs.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    mpl.use("Agg")
    good = table[table["outcome"] == "ok"]
    fits = good[good["epsilon"] > 0]
    names = list(dict.fromkeys(fits["table"]))
    if not names:
        return
    figure = Figure(figsize=(4.6 * len(names) + 0.6, 8.2))
    axes = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        utility, label = UTILITY.get(name, AUC)
        for row, (what, words) in enumerate(
            [(utility, label), ("tv2", "mean total variation of pair tables")]
        ):
            panel = axes[row][column]
            _points(panel, fits[fits["table"] == name], what)
            panel.set(ylabel=words, xscale="log")
            panel.xaxis.set(
                major_locator=LogLocator(subs=(1, 2, 5)),
                major_formatter="{x:g}",
                minor_formatter=NullFormatter(),
            )
        _ceilings(axes[0][column], good[(good["table"] == name) & (good["epsilon"] == 0)], utility)
        axes[0][column].set_title(f"{name}, tested on real rows", fontsize=10)
        axes[1][column].set_xlabel("CPU seconds of fit and sample, one thread")
        axes[1][column].set_ylim(0, 1.1 * fits.loc[fits["table"] == name, "tv2"].max())
    _legend(figure, fits)
    figure.tight_layout(rect=(0, 0.13 if len(names) == 1 else 0.07, 1, 1))
    figure.savefig(path, dpi=130)


def _points(panel, fits: pd.DataFrame, what: str) -> None:  # type: ignore[no-untyped-def]
    for peer, own in fits.groupby("peer", sort=True):
        marker, _ = MARKERS[str(peer)]
        size = 190 if marker == "*" else 75
        means = own.groupby("epsilon", sort=True)[["cpu_s", what]].mean()
        panel.plot(means["cpu_s"], means[what], color="grey", linewidth=0.7, zorder=2)
        fills = [FILLS.get(float(epsilon), "lightgrey") for epsilon in means.index]
        panel.scatter(
            means["cpu_s"],
            means[what],
            marker=marker,
            s=size,
            facecolor=fills,
            edgecolor="black",
            linewidth=1.1,
            zorder=3,
        )
    panel.grid(color="lightgrey", linewidth=0.5)


def _ceilings(panel, real: pd.DataFrame, what: str) -> None:  # type: ignore[no-untyped-def]
    """What real rows reach, as they are and after the grid."""
    for (_, one), style, side in zip(
        real.sort_values("peer").iterrows(), ("-", ":"), ("left", "right"), strict=False
    ):
        panel.axhline(one[what], color="black", linewidth=0.9, linestyle=style)
        x, up = (0.01, 2) if side == "left" else (0.99, -9)
        place = {
            "xycoords": ("axes fraction", "data"),
            "xytext": (0, up),
            "textcoords": "offset points",
        }
        panel.annotate(one["peer"], (x, one[what]), ha=side, fontsize=7, **place)


def _legend(figure, fits: pd.DataFrame) -> None:  # type: ignore[no-untyped-def]
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def key(marker: str, label: str) -> Line2D:
        return Line2D(
            [],
            [],
            linestyle="",
            marker=marker,
            markerfacecolor="darkgrey",
            markeredgecolor="black",
            markersize=9,
            label=label,
        )

    shapes = [key(m, label) for peer, (m, label) in MARKERS.items() if (fits["peer"] == peer).any()]
    fills = [
        Patch(facecolor=fill, edgecolor="black", label=f"epsilon {epsilon:g}")
        for epsilon, fill in FILLS.items()
        if (fits["epsilon"] == epsilon).any()
    ]
    figure.legend(
        handles=shapes + fills,
        loc="lower center",
        ncols=2 if figure.get_figwidth() < 6 else 4,
        frameon=False,
        fontsize=9,
    )
