"""How a table that is never in memory is counted: time and memory against rows, by engine.

    python -m benchmarks.engines [--rows 1000000 10000000] [--engines arrow dask levels_only]
        [--ids] [--threads 2] [--keep FOLDER] [--address postgresql+psycopg://USER@HOST/DATABASE]

Makes a table of 20 columns in Parquet files of 2^20 rows (ten texts of a random network, five whole
and five real numbers that depend on them), and does up to three things with it, each in a process
of its own: `synthdp graph validate` of the declared graph; a release of mode predict, where noisy
tables are the model; and `sampled`, a whole release that validates the graph and trains on a secret
sample of a million rows or a tenth of the table, and draws 100,000 rows or a tenth of it.
`levels_only` reads levels into memory, for comparison. Told are seconds, CPU seconds of the process
and of those that it started, the most memory that the process held (libraries included; not that of
Dask's workers), and how often the table was passed over. With `--ids` a unit is an id of three rows
on average, of which two stay. Engine `sql` needs `--address` of a PostgreSQL server of this machine
and a superuser: the table is copied there, and the server's CPU seconds are told, too. The table is
deleted afterwards unless a folder to keep it is named. Writes results/engines.csv; points that it
holds are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.discovery import RESULTS
from benchmarks.engine_tables import (
    REALS,
    WHOLES,
    drop_from_database,
    load_into_database,
    network,
    server_cpu_seconds,
    write_table,
)
from benchmarks.memory import peak_mb

ROOT = Path(__file__).parent.parent
TABLE = RESULTS / "engines.csv"
ADDRESS = "SYNTHDP_ENGINES_DATABASE"  # the environment variable that a spec of engine `sql` names
ENGINES = ("levels_only", "arrow", "dask", "sql")
WORK = ("validate", "release", "sampled")
MAX_SAMPLE, MAX_DRAWN = 1_000_000, 100_000  # rows of work `sampled`


@dataclass(frozen=True)
class Point:
    """One run over a table of `rows` rows."""

    rows: int
    engine: str
    work: str
    ids: bool = False
    threads: int = 2


def spec_text(point: Point) -> str:
    """The spec of a point, for a table in the folder t beside it."""
    texts = "\n".join(
        f"  {name}: {{type: categorical, categories: [{', '.join(levels)}]}}"
        for name, levels in network().levels.items()
    )
    names = list(network().levels)
    wholes = "\n".join(
        f"  w{i}: {{type: integer, lower: 0, upper: 119, bins: 12}}" for i in range(WHOLES)
    )
    reals = "\n".join(
        f"  r{i}: {{type: number, lower: -6, upper: 10, bins: 16, decimals: 2}}"
        for i in range(REALS)
    )
    edges = [f"{', '.join(own)} -> {name}" for name, own in network().parents.items() if own]
    edges += [f"{names[i]} -> w{i}, r{i}" for i in range(WHOLES)]
    listed = "\n".join(f"    - {edge}" for edge in edges)
    graph = (
        "  mode: predict" if point.work == "release" else f"  mode: validate\n  edges:\n{listed}"
    )
    shares = (
        "{measure: 0.2, graph: 0.8, train: 0}"
        if point.work == "release"
        else "{measure: 0.2, graph: 0.2, train: 0.6}"
    )
    sampled = point.work == "sampled"
    drawn = min(MAX_DRAWN, point.rows // 10) if sampled else 10_000
    training = ""
    if sampled or point.engine == "sql":  # which fetches no other rows to train on
        training = f"synthesizer: {{sample: {min(MAX_SAMPLE, point.rows // 10)}}}\n"
    unit = "{kind: row, meaning: one simulated row}"
    if point.ids:
        unit = "{kind: id, column: id, max_rows: 2, meaning: one simulated person}"
    only = ", levels_only: true" if point.engine == "levels_only" else ""
    drop = "" if point.ids else ", drop: [id]"
    source = f"{{kind: parquet, path: t{drop}{only}}}"
    if point.engine == "sql":
        own = [*names, *(f"{kind}{i}" for kind in "wr" for i in range(WHOLES))]
        query = f"SELECT {', '.join(own)} FROM rows{point.rows}"
        source = f'{{kind: sql, url_env: {ADDRESS}, query: "{query}"}}'
    engine = "memory" if point.engine == "levels_only" else point.engine
    return f"""\
synthdp: 1
dataset:
  id: engines
  source: {source}
  privacy_unit: {unit}
  rows: {{kind: approximate, value: {point.rows}}}
columns:
{texts}
{wholes}
{reals}
privacy: {{epsilon: 1, delta: {0.1 / point.rows:.3e}, shares: {shares}}}
graph:
{graph}
{training}sampling: {{rows: {drawn}}}
evaluation: {{enabled: false}}
attacks: {{membership: {{enabled: false}}}}
tracking: {{enabled: false}}
compute: {{threads: {point.threads}, engine: {engine}}}
"""


def run_here(point: Point, folder: Path) -> dict[str, float]:
    """The work of a point, whose table lies in `folder`, in this process."""
    from synthdp.privacy.engines import EngineTable
    from synthdp.release.graph_only import run_graph
    from synthdp.release.run import release

    passes, true_count = [1], EngineTable.count

    def count(self: EngineTable, groups: Any, tables: Any) -> Any:
        passes.append(len(tables))
        return true_count(self, groups, tables)

    EngineTable.count = count  # type: ignore[method-assign]
    began = time.perf_counter()
    spec, out = folder / "spec.yaml", folder / "out"
    if point.work == "validate":
        run_graph(spec, mode="validate", out=out)
    else:
        release(spec, out=out)
    seconds = time.perf_counter() - began
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in (own, others)), 1),
        "peak_mb": round(peak_mb()),
        "passes": len(passes),
        "tables": sum(passes[1:]),
    }


def run_apart(point: Point, table: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "t").symlink_to(table)
        (folder / "spec.yaml").write_text(spec_text(point), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.engines", "--here", json.dumps(asdict(point))]
        done = subprocess.run(
            [*command, made],
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


def run_in_database(point: Point, table: Path, address: str) -> dict[str, Any]:
    """The same over a copy of `table` in a database, with the CPU seconds of its server."""
    name = f"rows{point.rows}"
    megabytes = load_into_database(table, address, name)
    try:
        before = server_cpu_seconds(address)
        figures = run_apart(point, table)
        spent = server_cpu_seconds(address) - before
    finally:
        drop_from_database(address, name)
    return figures | {"server_cpu_seconds": round(spent, 1), "megabytes": round(megabytes)}


def measure(points: list[Point], keep: Path | None, address: str | None) -> None:
    """Run what is not in the results yet; each table is made once for its points."""
    held = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    known = {tuple(row[k] for k in asdict(points[0])) for row in held}
    for rows in dict.fromkeys(p.rows for p in points):
        wanted = [p for p in points if p.rows == rows and tuple(asdict(p).values()) not in known]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as made:
            table = (keep or Path(made)).resolve() / f"rows{rows}"
            if not table.exists():
                write_table(rows, table)
            size = sum(f.stat().st_size for f in table.iterdir()) / 1e6
            for point in wanted:
                figures = {"megabytes": round(size)}
                if point.engine == "sql":
                    assert address is not None
                    figures |= run_in_database(point, table, address)
                else:
                    figures |= run_apart(point, table)
                held.append(figures)
                print(held[-1], flush=True)
                pd.DataFrame(held).to_csv(TABLE, index=False)
            if keep is None:
                shutil.rmtree(table)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[10**6, 10**7])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES[:4])
    parser.add_argument("--work", nargs="+", choices=WORK, default=WORK[:2])
    parser.add_argument("--ids", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--address", help="URL of a PostgreSQL database, for engine sql")
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_here(Point(**json.loads(options.here[0])), Path(options.here[1]))))
        return
    if options.address is None and "sql" in options.engines:
        parser.error("engine sql needs --address")
    os.environ[ADDRESS] = options.address or ""
    points = [
        Point(rows, engine, work, options.ids, options.threads)
        for rows in options.rows
        for engine in options.engines
        for work in options.work
        if not (options.ids and engine in ("levels_only", "arrow"))
    ]
    measure(points, options.keep, options.address)


if __name__ == "__main__":
    main()
