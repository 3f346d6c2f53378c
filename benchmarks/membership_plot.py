"""The picture of the membership study, after the paper's figures 2 to 5: how much less an attacker
sees with privacy, with a graph, with both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks import look
from synthdp_attacks.statistics import Interval, difference

EXTRACTORS = ("naive", "histogram", "correlation", "ensemble", "targeted", "elbo", "tables")
# What is taken away, and what is left in: (graph, epsilon) of the first less the second.
PANELS = {
    "privacy, no graph": (("none", math.inf), ("none", 1.0)),
    "privacy, complete graph": (("complete", math.inf), ("complete", 1.0)),
    "complete graph, no privacy": (("none", math.inf), ("complete", math.inf)),
    "complete graph, epsilon 1": (("none", 1.0), ("complete", 1.0)),
    "partial graph, no privacy": (("none", math.inf), ("partial", math.inf)),
    "partial graph, epsilon 1": (("none", 1.0), ("partial", 1.0)),
}
MARKERS = "osD^"


def plot(study: pd.DataFrame, path: Path) -> None:
    """A line for each kind of attack, a point for each classifier on it, filled where its 95%
    interval leaves out 0. Right of 0 the attacker sees less.
    """
    honest = study[study["split"] == "by model pair"]
    tables = list(dict.fromkeys(honest["table"]))
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for panel, (title, cells) in zip(axes.flat, PANELS.items(), strict=True):
        found = [(place, *gap) for place, t in enumerate(tables) for gap in _gaps(honest, t, cells)]
        for place, line, gap in found:
            sure = gap.lower > 0 or gap.upper < 0
            colour = look.SERIES[place]
            panel.plot(
                gap.value,
                line + 0.24 * (place - (len(tables) - 1) / 2),
                marker=MARKERS[place],
                markersize=5,
                color=colour,
                markerfacecolor=colour if sure else "none",
                linestyle="",
            )
        told = sum(gap.lower > 0 or gap.upper < 0 for *_, gap in found)
        panel.axvline(0, color=look.GREY, linewidth=0.8)
        panel.set_title(title)
        panel.set_title(f"{told} of {len(found)} sure", loc="right", fontsize=8, color=look.GREY)
        panel.set_yticks(range(len(EXTRACTORS)), EXTRACTORS)
        panel.set_ylim(len(EXTRACTORS) - 0.5, -0.5)
    for panel in axes[1]:
        panel.set_xlabel("advantage that the attacker loses")
    shown = [
        Line2D([], [], marker=m, linestyle="", color=c, label=t)
        for t, m, c in zip(tables, MARKERS, look.SERIES, strict=False)
    ]
    figure.legend(handles=shown, loc="outside lower center", ncols=len(shown))
    figure.suptitle(
        "What privacy and a causal graph take from membership attacks (a point: one classifier;"
        " filled: its 95% interval leaves out 0, as 1 in 20 does by chance)"
    )
    figure.savefig(path)


def _gaps(
    honest: pd.DataFrame, table: str, cells: tuple[tuple[str, float], tuple[str, float]]
) -> Iterator[tuple[int, Interval]]:
    """The line of each attack that both cells have, and what the second takes from it."""
    own = honest[honest["table"] == table]
    for line, extractor in enumerate(EXTRACTORS):
        for classifier in dict.fromkeys(own[own["extractor"] == extractor]["classifier"]):
            without, with_ = (_interval(own, extractor, classifier, *cell) for cell in cells)
            if without is not None and with_ is not None:
                yield line, difference(without, with_)


def _interval(
    own: pd.DataFrame, extractor: str, classifier: Any, graph: str, epsilon: float
) -> Interval | None:
    rows = own[
        (own["extractor"] == extractor)
        & (own["classifier"] == classifier)
        & (own["graph"] == graph)
        & (own["epsilon"] == epsilon)
    ]
    if not len(rows):
        return None
    return Interval(*(float(rows.iloc[0][f"advantage{end}"]) for end in ("", "_lower", "_upper")))
