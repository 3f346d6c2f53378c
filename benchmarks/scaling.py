"""How a whole release scales: time and peak memory against rows, columns and epsilon.

    python -m benchmarks.scaling [--again]

Tables are samples of random Bayesian networks (columns of 2 to 4 levels, at most two parents among
the ten before), which the spec gives as the graph, in Parquet files that are read as levels only. A
point is one `release` in a process of its own on one thread, from reading to bundle, without
judging and attack: 200 steps of batch 1024, 100,000 rows written. It is told with the seconds of
each stage, the most memory that the process held (libraries included), and how far the one- and
two-way tables of the release are from those of another sample of the network. Points that
results/scaling.csv already holds are not run again; results/scaling.png is drawn from all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bif import BayesianNetwork
from benchmarks.discovery import RESULTS
from benchmarks.discovery_scaling import random_network, write_parquet
from benchmarks.memory import peak_mb

ROOT = Path(__file__).parent.parent
TABLE = RESULTS / "scaling.csv"
STEPS, BATCH, WRITTEN = 200, 1024, 100_000
DELTA = 1e-8  # below 1 / rows of the tallest table


@dataclass(frozen=True)
class Point:
    """One release: a sample of `rows` rows and `columns` columns at total `epsilon`."""

    rows: int = 100_000
    columns: int = 20
    epsilon: float = 1.0

    def network(self) -> BayesianNetwork:
        """The same for all points of as many columns."""
        return random_network(self.columns, rng=np.random.default_rng(self.columns))


SERIES: dict[str, tuple[Point, ...]] = {
    "rows": tuple(Point(rows=n) for n in (10_000, 100_000, 1_000_000, 5_000_000)),
    "columns": tuple(Point(columns=n) for n in (10, 30, 100, 300, 950)),
    "epsilon": tuple(Point(epsilon=e) for e in (0.1, 1.0, 10.0)),
}


def spec_text(point: Point) -> str:
    """The spec of a point, for a table in table.parquet beside it."""
    network = point.network()
    columns = "\n".join(
        f"  {name}: {{type: categorical, categories: [{', '.join(levels)}]}}"
        for name, levels in network.levels.items()
    )
    edges = "\n".join(
        f"    - {', '.join(own)} -> {name}" for name, own in network.parents.items() if own
    )
    return f"""\
synthdp: 1
dataset:
  id: scaling
  source: {{kind: parquet, path: table.parquet, levels_only: true}}
  privacy_unit: {{kind: row, meaning: one simulated row}}
  rows: {{kind: public, value: {point.rows}}}
columns:
{columns}
privacy: {{epsilon: {point.epsilon}, delta: {DELTA}}}
graph:
  mode: given
  edges:
{edges}
synthesizer: {{steps: {STEPS}, batch: {BATCH}}}
sampling: {{rows: {WRITTEN}}}
evaluation: {{enabled: false}}
attacks: {{membership: {{enabled: false}}}}
tracking: {{enabled: false}}
compute: {{threads: 1}}
"""


def run_here(point: Point, folder: Path) -> dict[str, float]:
    """Release the point's table, which lies in `folder`, in this process."""
    from synthdp.evaluate.fidelity import fidelity
    from synthdp.release.run import release

    started = time.perf_counter(), time.process_time()
    outcome = release(folder / "spec.yaml", out=folder / "out")
    figures = {
        "seconds": time.perf_counter() - started[0],
        "cpu_seconds": time.process_time() - started[1],
    }
    figures |= {
        f"{stage.replace(' ', '_')}_s": seconds for stage, seconds in outcome.seconds.items()
    }
    figures["peak_mb"] = peak_mb()
    assert outcome.bundle is not None
    network = point.network()
    codes = pd.read_csv(outcome.bundle / "synthetic.csv", dtype=np.uint16)[
        list(network.levels)
    ].to_numpy()
    distance = fidelity(
        network.sample(WRITTEN, rng=np.random.default_rng(1)).astype(np.uint16),
        codes,
        network.domain(),
    )
    return figures | {"tv1": distance.tv1, "tv2": distance.tv2 or 0.0}


def run_apart(point: Point) -> dict[str, Any]:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(point.network(), point.rows, Path(folder) / "table.parquet")
        (Path(folder) / "spec.yaml").write_text(spec_text(point), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "benchmarks.scaling",
            "--here",
            json.dumps(asdict(point)),
            folder,
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return asdict(point) | figures


def held(*, again: bool) -> dict[Point, dict[str, Any]]:
    """The points that an earlier run measured."""
    if again or not TABLE.exists():
        return {}
    found = pd.read_csv(TABLE).to_dict("records")
    return {
        Point(int(row["rows"]), int(row["columns"]), float(row["epsilon"])): {
            str(k): v for k, v in row.items()
        }
        for row in found
    }


def plot(measured: dict[Point, dict[str, Any]], path: Path) -> None:
    """Seconds of the stages above, memory below; one column of axes for each series."""
    from matplotlib.figure import Figure

    from benchmarks import look

    stages = {
        "cpu_seconds": "all, CPU time",
        "measure_and_train_s": "measure and train",
        "read_s": "read",
        "sample_s": "sample",
        "bundle_and_report_s": "bundle",
    }
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3)
    for (what, points), above, below in zip(SERIES.items(), *axes, strict=True):
        rows = [measured[p] for p in points if p in measured]
        x = [row[what] for row in rows]
        for key, label in stages.items():
            above.plot(x, [row[key] for row in rows], marker="o", label=label)
        below.plot(x, [row["peak_mb"] for row in rows], marker="o", color=look.SYNTHETIC)
        fixed = {
            "rows": "20 columns, epsilon 1",
            "columns": "100,000 rows, epsilon 1",
            "epsilon": "100,000 rows, 20 columns",
        }[what]
        above.set(
            title=fixed, xlabel=what, ylabel=f"seconds ({STEPS} steps)", xscale="log", yscale="log"
        )
        below.set(
            xlabel=what, ylabel="peak memory, MB", xscale="log", yscale="log", ylim=(100, 10_000)
        )
    axes[0][0].legend()
    figure.savefig(path)


def main() -> None:
    """Run what is missing, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true", help="measure every point again")
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_here(Point(**json.loads(options.here[0])), Path(options.here[1]))))
        return
    measured = held(again=options.again)
    for point in dict.fromkeys(p for points in SERIES.values() for p in points):
        if point not in measured:
            measured[point] = run_apart(point)
            print(measured[point], flush=True)
            pd.DataFrame(list(measured.values())).round(4).to_csv(TABLE, index=False)
    plot(measured, RESULTS / "scaling.png")


if __name__ == "__main__":
    main()
