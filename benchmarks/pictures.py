"""Draw every picture of benchmarks/results anew from the files beside it, and measure nothing.

    python -m benchmarks.pictures [NAME ...]

Names are those of the pictures, without .png; all of them where none is given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks import (
    ablation,
    ablation_plot,
    adult,
    discovery,
    discovery_scaling,
    effects,
    lattice,
    membership_plot,
    numeric,
    orientation,
    over_time,
    peers_plot,
    scaling,
    tables_plot,
)

RESULTS = Path(__file__).parent / "results"


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / f"{name}.csv")


PICTURES: dict[str, Callable[[Path], object]] = {
    "ablation": lambda path: ablation_plot.plot(
        ablation.summarised(_table("ablation")), _table("ablation_attack"), path
    ),
    "adult": lambda path: adult.plot(_table("adult"), path),
    "discovery": lambda path: discovery.plot(
        _table("discovery"), path, delta=1e-3, adjacency="add_remove"
    ),
    "discovery_scaling": lambda path: discovery_scaling.plot(_table("discovery_scaling"), path),
    "effects": lambda path: effects.plot(_table("effects"), path),
    "lattice": lambda path: lattice.plot(_table("lattice"), path),
    "membership": lambda path: membership_plot.plot(_table("membership"), path),
    "numeric": lambda path: numeric.plot(_table("numeric_tests"), _table("numeric_pc"), path),
    "orientation": lambda path: orientation.plot(_table("orientation"), path),
    "over_time": lambda path: over_time.plot(
        _table("over_time_priors"), _table("over_time_waves"), path
    ),
    "peers": lambda path: peers_plot.plot(_table("peers"), path),
    "scaling": lambda path: scaling.plot(scaling.held(again=False), path),
    "tables": lambda path: tables_plot.plot(_table("tables"), path),
}


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    for name in parser.parse_args().names or PICTURES:
        PICTURES[name](RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
