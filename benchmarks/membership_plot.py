"""The picture of the membership study, after the paper's figures 2 to 5: how much less an attacker
sees with privacy, with a graph, with both.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.ablation_attack import difference
from synthdp_attacks.statistics import Interval

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
COLOURS = dict(
    zip(
        EXTRACTORS,
        ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink"),
        strict=True,
    )
)


def plot(study: pd.DataFrame, path: Path) -> None:
    """Draw the change of advantage, with 95% intervals; above 0 the attacker sees less."""
    honest = study[study["split"] == "by model pair"]
    tables = list(dict.fromkeys(honest["table"]))
    figure = Figure(figsize=(3.1 * len(PANELS), 3.6 * len(tables)), layout="constrained")
    axes = figure.subplots(len(tables), len(PANELS), sharey=True, squeeze=False)
    for row, table in enumerate(tables):
        own = honest[honest["table"] == table]
        for column, (title, (without, with_)) in enumerate(PANELS.items()):
            panel, place = axes[row][column], 0
            for extractor in EXTRACTORS:
                for classifier in dict.fromkeys(own[own["extractor"] == extractor]["classifier"]):
                    both = [
                        _interval(own, extractor, classifier, *where) for where in (without, with_)
                    ]
                    if both[0] is not None and both[1] is not None:
                        gap = difference(both[0], both[1])
                        spread = [[gap.value - gap.lower], [gap.upper - gap.value]]
                        label = (
                            extractor
                            if classifier
                            == own[own["extractor"] == extractor]["classifier"].iloc[0]
                            else None
                        )
                        panel.errorbar(
                            place,
                            gap.value,
                            yerr=spread,
                            fmt="o",
                            markersize=3,
                            linewidth=0.8,
                            color=COLOURS[extractor],
                            label=label,
                        )
                    place += 1
                place += 1
            panel.axhline(0, color="grey", linewidth=0.8)
            panel.set_xticks([])
            panel.set_title(f"{table}: {title}", fontsize=9)
        axes[row][0].set_ylabel("advantage lost by the attacker")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(EXTRACTORS),
        frameon=False,
        fontsize=9,
    )
    figure.suptitle(
        "What privacy and a causal graph take from membership attacks (95% intervals; classifiers"
        " side by side)",
        fontsize=11,
    )
    figure.savefig(path, dpi=110)


def _interval(
    own: pd.DataFrame, extractor: str, classifier: str, graph: str, epsilon: float
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
