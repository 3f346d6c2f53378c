"""What all pictures of benchmarks share: the colours and fonts of the reports.

Importing it sets Matplotlib up to draw files, without a screen.
"""

from __future__ import annotations

from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.font_manager import get_font_names

from synthdp.drawing import (
    BOUND,
    FONTS,
    GREEN,
    GREY,
    INK,
    LINE,
    OCHRE,
    REAL,
    SERIES,
    SKY,
    SYNTHETIC,
)

__all__ = ["BOUND", "GREEN", "GREY", "INK", "LINE", "OF", "REAL", "SERIES", "SKY", "SYNTHETIC"]

matplotlib.use("Agg")
matplotlib.rcParams.update(
    {
        "font.family": [f for f in FONTS if f in {*get_font_names(), "sans-serif"}],
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.edgecolor": GREY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=SERIES),
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.4,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "figure.titlesize": 11,
        "savefig.dpi": 100,
    }
)

# One colour for one thing, in every picture.
OF = {
    "real rows": REAL,
    "synthdp": SYNTHETIC,
    "synthdp-no-graph": SKY,
    "dpsynth": BOUND,
    "dpmm-aim": GREEN,
    "dpmm-mst": GREY,
    "mostlyai": OCHRE,
    "smartnoise-mst": INK,
}


def better(axes: Any, words: str) -> None:
    """Say at the right end of a picture's head which way is better."""
    axes.set_title(f"better: {words}", loc="right", fontsize=8, color=GREY)
