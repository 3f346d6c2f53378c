"""The ablation: graph x tables x choice of rows x privacy. What each is worth in quality, and what
it shows to a membership attack.

    python -m benchmarks.ablation [--runs 3] [--pairs 100] [--only quality attack] [--graphs given
    none ...] [--jobs 1] [--quick] [--out FOLDER]

Quality: the Adult rows and protocol of `benchmarks.adult`, one change at a time from
`specs/adult.yaml`, and graph x privacy in full. Attack: the membership game on 500 of these rows;
`--pairs` models with the target and as many without for each cell. Runs and cells that ablation.csv
and ablation_attack.csv already hold are not run again. All intervals are 95%: Student's t over
runs, and those of `synthdp_attacks.statistics`. Rows are
public and every fit is a rehearsal: nothing here is a release. `--quick` goes through a few cells
with few rows and steps: a look at the road.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, parallel_config
from scipy import stats

from benchmarks import ablation_attack, ablation_quality
from benchmarks.ablation_cells import GRAPHS, Cell
from benchmarks.ablation_plot import plot
from synthdp.spec.model import MembershipAttack
from synthdp_attacks.statistics import Interval, difference

RESULTS = Path(__file__).parent / "results"
CELL = list(asdict(Cell()))
QUICK_EVERY = 8  # of so many cells, --quick takes one


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, print the tables, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="fits of each cell")
    parser.add_argument("--pairs", type=int, default=100, help="model pairs of each game")
    parser.add_argument(
        "--only",
        nargs="*",
        default=["quality", "attack"],
        choices=["quality", "attack"],
        help="nothing: only tables and plot",
    )
    parser.add_argument(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        choices=list(GRAPHS),
        help="run the cells of these alone",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results; default: benchmarks/results, and a temporary one for --quick",
    )
    options = parser.parse_args(arguments)
    out = options.out or (Path(tempfile.mkdtemp()) if options.quick else RESULTS)
    quality, attack = (
        Table(out / "ablation.csv", [*CELL, "run"]),
        Table(out / "ablation_attack.csv", [*CELL, "pairs"]),
    )
    if "quality" in options.only:
        run_quality(
            quality,
            _chosen(ablation_quality.CELLS, options),
            runs=options.runs,
            jobs=options.jobs,
            quick=options.quick,
        )
    if "attack" in options.only:
        game = (
            ablation_attack.QUICK
            if options.quick
            else ablation_attack.FULL.model_copy(update={"pairs": options.pairs})
        )
        run_attack(attack, _chosen(ablation_attack.CELLS, options), game, jobs=options.jobs)
    summary = summarised(quality.frame) if quality.held else pd.DataFrame()
    print(summary.to_string(index=False), attack.frame.to_string(index=False), sep="\n\n")
    print(*gains(quality.frame), *differences(attack.frame), sep="\n")
    plot(summary, attack.frame, out / "ablation.png")


def _chosen(cells: Sequence[Cell], options: argparse.Namespace) -> list[Cell]:
    """What the options leave of the cells."""
    return [
        cell
        for cell in cells[:: QUICK_EVERY if options.quick else 1]
        if cell.graph in options.graphs
    ]


class Table:
    """A CSV file of measured rows, each named by the columns `key`."""

    def __init__(self, path: Path, key: list[str]) -> None:
        self.path, self.key = path, key
        self.frame = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=key)

    @property
    def held(self) -> set[tuple[Any, ...]]:
        """Names of the rows."""
        return set(self.frame[self.key].itertuples(index=False, name=None))

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row at once: what was measured is not lost."""
        fresh = pd.DataFrame([row]).round(5)
        self.frame = (
            fresh if self.frame.empty else pd.concat([self.frame, fresh], ignore_index=True)
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.frame.to_csv(self.path, index=False)


def run_quality(table: Table, cells: Sequence[Cell], *, runs: int, jobs: int, quick: bool) -> None:
    """Every cell once, then every cell a second time, and so on: an interrupted table is even."""
    missing = [
        (cell, run)
        for run in range(runs)
        for cell in cells
        if (*asdict(cell).values(), run) not in table.held
    ]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        fits = Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(ablation_quality.measured)(c, run, quick=quick) for c, run in missing
        )
        for row in fits:
            table.add(row)
            print({name: row[name] for name in (*table.key, "mean_auc", "tv2")}, flush=True)


def run_attack(table: Table, cells: Sequence[Cell], game: MembershipAttack, *, jobs: int) -> None:
    """The game against each cell."""
    for cell in cells:
        if (*asdict(cell).values(), game.pairs) not in table.held:
            row = ablation_attack.attacked(cell, game, jobs=jobs)
            table.add(row)
            print({name: row[name] for name in (*table.key, "advantage", "ceiling")}, flush=True)


def summarised(quality: pd.DataFrame) -> pd.DataFrame:
    """Means over the runs of each cell, and half the width of their 95% intervals by Student's t
    (`_pm`; nothing for one run).
    """
    figures = list(ablation_quality.FIGURES)
    groups = quality.groupby(CELL, sort=False)[figures]
    table = groups.mean()
    counts = groups.size()
    half = groups.sem().mul(
        [stats.t.ppf(0.975, n - 1) if n > 1 else math.nan for n in counts], axis=0
    )
    table[[f"{name}_pm" for name in figures[:-1]]] = half[figures[:-1]].to_numpy()
    return table.assign(runs=counts).reset_index().round(4)


def gains(quality: pd.DataFrame) -> Iterator[str]:
    """In words: how much better than the model without a graph each graph is, all else equal, by
    Welch's interval; cells of two runs or more.
    """
    for names, cells in quality.groupby(CELL[1:], sort=False):
        runs = {
            str(graph): own for graph, own in cells.groupby("graph", sort=False) if len(own) > 1
        }
        for graph in (g for g in runs if g != "none" and "none" in runs):
            for figure in ("mean_auc", "tv2"):
                first, second = runs[graph][figure], runs["none"][figure]
                gap = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
                value = first.mean() - second.mean()
                yield _told(
                    f"{figure}, graph {graph} less none",
                    CELL[1:],
                    names,
                    Interval(value, gap.low, gap.high),
                )


def differences(attack: pd.DataFrame) -> Iterator[str]:
    """In words: how much less than the model without a graph each graph shows to the attack, all
    else equal.
    """
    for names, cells in attack.groupby([*CELL[1:], "pairs"], sort=False):
        advantage = {
            row["graph"]: Interval(row["advantage"], row["advantage_lower"], row["advantage_upper"])
            for _, row in cells.iterrows()
        }
        for graph in (g for g in advantage if g != "none" and "none" in advantage):
            gap = difference(advantage[graph], advantage["none"])
            yield _told(f"advantage, graph {graph} less none", [*CELL[1:], "pairs"], names, gap)


def _told(what: str, keys: Sequence[str], names: Sequence[object], gap: Interval) -> str:
    setting = ", ".join(f"{k} {v}" for k, v in zip(keys, names, strict=True))
    return (
        f"{what} ({setting}): {gap.value:+.4f}, 95% interval {gap.lower:+.4f} to {gap.upper:+.4f}"
    )


if __name__ == "__main__":
    main()
