"""How measured PC scales: rows of the alarm network read from Parquet as levels only, and columns
of random networks.

    python -m benchmarks.discovery_scaling [--rows 10000 100000 1000000 10000000] [--columns 5 10 20
    50 100 200 400 950]

Each point runs in a process of its own on one thread: the reading (for rows), then the search at
epsilon 1, delta 1e-5, counting and noise included. Memory is the most that the process held,
libraries included. Random networks have columns of 2 to 4 levels with at most two parents among the
ten before, and 100,000 rows; how many links they have is told, how many were found, and how many of
these are right. From 225 columns on a screen chooses the pairs that are measured. Writes
results/discovery_scaling.csv and .png.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bif import BayesianNetwork
from benchmarks.discovery import RESULTS, network
from benchmarks.memory import peak_mb

ROOT = Path(__file__).parent.parent
EPSILON, DELTA = 1.0, 1e-5
CHUNK = 200_000
ROWS_OF_COLUMNS = 100_000
COLUMNS = [5, 10, 20, 50, 100, 200, 400, 950]


def write_parquet(net: BayesianNetwork, rows: int, path: Path) -> None:
    """A sample of a network in a Parquet file. Beyond one chunk its rows come again and again: cost
    depends on their number.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in net.levels])
    codes = net.sample(min(CHUNK, rows), rng=np.random.default_rng(rows))
    columns = [
        pa.DictionaryArray.from_arrays(codes[:, i], list(labels)).dictionary_decode()
        for i, labels in enumerate(net.levels.values())
    ]
    chunk = pa.Table.from_arrays(columns, schema=schema)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, CHUNK):
            writer.write_table(chunk.slice(0, rows - start))


def random_network(columns: int, *, rng: np.random.Generator) -> BayesianNetwork:
    """Columns of 2 to 4 levels, each with up to two parents among the ten before it."""
    names = [f"c{i}" for i in range(columns)]
    levels = {n: tuple(map(str, range(rng.integers(2, 5)))) for n in names}
    parents, tables = {}, {}
    for i, n in enumerate(names):
        near = names[max(0, i - 10) : i]
        parents[n] = (
            tuple(rng.choice(near, size=min(len(near), int(rng.integers(0, 3))), replace=False))
            if near
            else ()
        )
        tables[n] = rng.dirichlet(
            np.ones(len(levels[n])), size=tuple(len(levels[p]) for p in parents[n])
        )
    return BayesianNetwork(levels, parents, tables)


def from_parquet(path: Path, rows: int) -> dict[str, Any]:
    """Read as levels only and search, in this process."""
    from synthdp.privacy.noise import Streams
    from synthdp.privacy.private import Private
    from synthdp.privacy.source import read_private
    from synthdp.privacy.table import Table
    from synthdp.spec.model import Dataset, DeclaredRows, ParquetSource, RowUnit

    dataset = Dataset(
        id="scaling",
        source=ParquetSource(kind="parquet", path=path.name, levels_only=True),
        privacy_unit=RowUnit(kind="row", meaning="one row"),
        rows=DeclaredRows(kind="public", value=rows),
    )
    domain = network("alarm").domain()
    started = time.perf_counter(), time.process_time()
    private: Private[Table] = read_private(
        dataset, domain, folder=path.parent, holdout=0.0, streams=Streams.fresh()
    )
    reading = time.perf_counter() - started[0], time.process_time() - started[1]
    return {"read_s": reading[0], "read_cpu_s": reading[1]} | search(
        private, network("alarm"), rows, path.parent
    )


def search(private: Any, net: BayesianNetwork, rows: int, folder: Path) -> dict[str, Any]:
    """Measured PC by a session with a ledger of its own."""
    from synthdp.graph.discovery import algorithm_named
    from synthdp.ledger.ledger import Ledger
    from synthdp.privacy.calibration import make_search_plan
    from synthdp.privacy.noise import Streams
    from synthdp.privacy.session import Session
    from synthdp.spec.model import Graph

    settings, domain = Graph(mode="learn"), net.domain()
    plan = make_search_plan(
        algorithm_named("measured_pc").spends(settings, domain, rows), epsilon=EPSILON, delta=DELTA
    )
    ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}")
    ledger.reserve("scaling", "run", epsilon=EPSILON, delta=DELTA, cap=None, body={})
    journal = folder / "journal"
    journal.mkdir()
    session = Session(
        private,
        plan,
        ledger,
        dataset="scaling",
        run="run",
        streams=Streams.fresh(),
        journal=journal,
    )
    started = time.perf_counter(), time.process_time()
    algorithm_named("measured_pc").search(session, settings, domain, None)
    return {
        "search_s": time.perf_counter() - started[0],
        "search_cpu_s": time.process_time() - started[1],
    }


def of_columns(columns: int) -> dict[str, Any]:
    """Search rows of a random network, in this process."""
    from synthdp.graph.discovery import algorithm_named
    from synthdp.privacy.calibration import make_search_plan
    from synthdp.privacy.session import Rehearsal
    from synthdp.spec.model import Graph

    rng = np.random.default_rng(columns)
    net = random_network(columns, rng=rng)
    settings, domain = Graph(mode="learn"), net.domain()
    plan = make_search_plan(
        algorithm_named("measured_pc").spends(settings, domain, ROWS_OF_COLUMNS),
        epsilon=EPSILON,
        delta=DELTA,
    )
    rehearsal = Rehearsal(net.sample(ROWS_OF_COLUMNS, rng=rng), domain, plan)
    started = time.perf_counter(), time.process_time()
    found: Any = algorithm_named("measured_pc").search(rehearsal, settings, domain, None)
    figures = {
        "search_s": time.perf_counter() - started[0],
        "search_cpu_s": time.process_time() - started[1],
    }
    graph = getattr(found, "value", found)
    true = {frozenset((parent, name)) for name, of in net.parents.items() for parent in of}
    linked = {frozenset(pair) for pair in (*graph.directed, *graph.undirected)}
    return figures | {"links": len(true), "found": len(linked), "right": len(true & linked)}


def point(kind: str, size: int) -> dict[str, Any]:
    """One point in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        if kind == "rows":
            write_parquet(network("alarm"), size, path)
        command = [
            sys.executable,
            "-m",
            "benchmarks.discovery_scaling",
            "--point",
            kind,
            str(size),
            str(path),
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        megabytes = path.stat().st_size / 1e6 if path.exists() else None
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"kind": kind, "size": size, "parquet_mb": megabytes} | figures


def plot(table: pd.DataFrame, path: Path) -> None:
    """Seconds and memory against rows, seconds against columns."""
    from matplotlib.figure import Figure

    from benchmarks import look  # noqa: F401 - its colours and fonts

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    rows, columns = table[table.kind == "rows"], table[table.kind == "columns"]
    axes[0].plot(rows["size"], rows.search_cpu_s, marker="o", label="search")
    axes[0].plot(rows["size"], rows.read_cpu_s, marker="s", label="reading Parquet")
    axes[0].set(
        title="alarm, 37 columns", xlabel="rows", ylabel="CPU seconds", xscale="log", yscale="log"
    )
    axes[0].legend()
    axes[1].plot(rows["size"], rows.rss_mb, marker="o")
    axes[1].set(
        title="alarm, 37 columns",
        xlabel="rows",
        ylabel="most memory of the process, MB",
        xscale="log",
        ylim=(0, None),
    )
    axes[2].plot(columns["size"], columns.search_cpu_s, marker="o")
    axes[2].set(
        title=f"random networks, {ROWS_OF_COLUMNS:,} rows",
        xlabel="columns",
        ylabel="CPU seconds of the search",
        xscale="log",
        yscale="log",
    )
    figure.savefig(path)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000, 10_000_000]
    )
    parser.add_argument("--columns", type=int, nargs="*", default=COLUMNS)
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        kind, size, path = options.point[0], int(options.point[1]), Path(options.point[2])
        figures = from_parquet(path, size) if kind == "rows" else of_columns(size)
        print(json.dumps(figures | {"rss_mb": peak_mb()}))
        return
    points = []
    for kind, size in [("columns", n) for n in options.columns] + [
        ("rows", n) for n in options.rows
    ]:
        points.append(point(kind, size))
        print(points[-1], flush=True)
    table = pd.DataFrame(points).round(3)
    table.to_csv(RESULTS / "discovery_scaling.csv", index=False)
    plot(table, RESULTS / "discovery_scaling.png")


if __name__ == "__main__":
    main()
