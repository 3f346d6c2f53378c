"""How fast a model is sampled: rows per second and peak memory against columns.

    python -m benchmarks.sampling [--rows 500000] [--threads 2] [--repeats 5]

Models are those that the specs build (Adult: 14 columns; Pain5000: 222; EEDI-shaped: 950 with their
own hidden width), untrained, since neither time nor memory depends on what was learnt, but with
random weights of the decoder: units without weights are left out. Adult is there with 32 and with
64 hidden units. Each line is a process of its own: levels by `Synthesizer.sample`, the best wall
time of the repeats and the rows per CPU second of that repeat, and the same to a CSV file by
`synthdp sample`'s own path, values decoded. Peak memory is of the whole process, libraries included
(about 300 MB). Results go to results/sampling.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.discovery import RESULTS
from benchmarks.memory import peak_mb

SPECS = Path(__file__).parent.parent / "specs"
CASES = (("adult.yaml", 32), ("adult.yaml", 64), ("pain5000.yaml", None), ("eedi.yaml", None))
CELLS = 28_000_000  # values to draw at most, so that wide tables take no longer than narrow ones


def main() -> None:
    """Run every case and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="rows to draw; fewer of wide tables"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(measured(**json.loads(asked.here))))
        return
    lines = []
    for name, hidden in CASES:
        case = {
            "spec": name,
            "hidden": hidden,
            "rows": asked.rows,
            "threads": asked.threads,
            "repeats": asked.repeats,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.sampling", "--here", json.dumps(case)],
            capture_output=True,
            text=True,
            check=True,
        )
        lines.append(json.loads(done.stdout.splitlines()[-1]))
        print(pd.DataFrame(lines[-1:]).to_string(index=False), flush=True)
    pd.DataFrame(lines).to_csv(RESULTS / "sampling.csv", index=False)


def measured(
    *, spec: str, hidden: int | None, rows: int, threads: int, repeats: int
) -> dict[str, object]:
    """One case, in this process."""
    from synthdp.bundle.table_files import write_blocks
    from synthdp.data.domain import Domain
    from synthdp.data.level_groups import LevelGroups
    from synthdp.graph.causal import CausalGraph
    from synthdp.graph.level_groups import LevelLaw
    from synthdp.model.ancestral import DECODE_LEVELS
    from synthdp.model.constraints import Constraints
    from synthdp.model.fit import architecture_for
    from synthdp.model.synthesizer import untrained
    from synthdp.sample.sampler import Sampler
    from synthdp.spec.load.loader import load_spec

    release = load_spec(SPECS / spec)
    if hidden is not None:
        release = release.model_copy(
            update={"synthesizer": release.synthesizer.model_copy(update={"hidden": hidden})}
        )
    domain = Domain.from_spec(release.columns)
    model = untrained(
        domain,
        architecture_for(release, domain, CausalGraph.from_spec(release.graph, domain.names)),
    )
    decoder = f"{DECODE_LEVELS}.weight"
    drawn = np.random.default_rng(0).normal(0, 0.1, model.weights[decoder].shape)
    model = replace(model, weights={**model.weights, decoder: drawn.astype(np.float32)})
    rows = min(rows, CELLS // len(domain))
    wall, cpu = best(
        lambda: model.sample(rows, rng=np.random.default_rng(1), threads=threads), repeats
    )
    peak = peak_mb()
    law = LevelLaw(LevelGroups(domain, {}), ())
    sampler = Sampler(release.columns, domain, model, Constraints(domain, ()), law, raked=False)
    with tempfile.TemporaryDirectory() as folder:
        blocks = sampler.sample(rows // 4, rng=np.random.default_rng(1))
        file_wall, _ = best(
            lambda: write_blocks(blocks, release.columns, Path(folder) / "rows.csv"), 1
        )
    return {
        "spec": spec.removesuffix(".yaml"),
        "columns": len(domain),
        "hidden": model.architecture.hidden,
        "rows": rows,
        "threads": threads,
        "rows_per_second": round(rows / wall),
        "rows_per_cpu_second": round(rows / cpu),
        "peak_mb": round(peak),
        "csv_rows_per_second": round(rows // 4 / file_wall),
        "csv_peak_mb": round(peak_mb()),
    }


def best(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Wall and CPU seconds of the repeat with the least wall time."""
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(found)


if __name__ == "__main__":
    main()
