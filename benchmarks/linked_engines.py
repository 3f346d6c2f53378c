"""What a release of persons with visits takes, in memory, by engine arrow and by sql: time, memory.

    python -m benchmarks.linked_engines [--persons 100000 1000000] [--engines memory arrow sql]
        [--address postgresql+psycopg://USER@HOST/DATABASE]

Makes a table of persons and one of their visits (twelve of each on average, at most twelve stay;
in no order, in Parquet files of 2^20 rows), and releases 10,000 persons of them with a given graph,
each in a process of its own on two threads. Told are seconds of the whole release, and of its
stages that read the files and count views of them; CPU seconds of the process, and the most memory
that it held, libraries included. Engine `sql` needs `--address` of a PostgreSQL server of this
machine and a superuser: both tables are copied there, and the server's CPU seconds are told, too.
Rows of results/linked_engines.csv that are not measured anew stay.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.discovery import RESULTS
from benchmarks.engine_tables import drop_from_database, load_into_database, server_cpu_seconds
from benchmarks.memory import peak_mb

ROOT = Path(__file__).parent.parent
TABLE = RESULTS / "linked_engines.csv"
FILE_ROWS = 1 << 20
ENGINES = ("memory", "arrow", "sql")
FIGURES = [f"{stage}seconds" for stage in ("read_", "count_and_fit_", "", "cpu_", "server_cpu_")]
FIGURES += ["peak_mb"]
SPEC = """\
synthdp: 1
dataset:
  id: tall
  tables:
    persons:
      source: {persons_source}
      key: id
      rows: {{kind: approximate, value: {persons}}}
    visits:
      source: {visits_source}
      of: persons
      key: of
      order: day
      at_most: 12
  privacy_unit: {{kind: person, meaning: one made-up person with all visits}}
columns:
  persons:
    sex: {{type: categorical, categories: [F, M]}}
    born: {{type: datetime, lower: 1920-01-01, upper: 1999-12-31}}
    smoker: {{type: categorical, categories: [never, former, current]}}
  visits:
    day: {{type: datetime, lower: 2015-01-01, upper: 2024-12-31}}
    stage: {{type: ordinal, categories: [0, 1, 2, 3]}}
    bp: {{type: integer, lower: 80, upper: 220, bins: 16}}
    drug: {{type: boolean}}
    admitted: {{type: boolean}}
constraints: [persons.born <= visits.day]
privacy: {{epsilon: 1, delta: 1e-8, cap: {{epsilon: 100, delta: 1e-6}}}}
graph:
  mode: given
  edges:
    - persons.age, persons.smoker -> visits[1].stage
    - visits[-1].stage, visits[-1].drug, persons.smoker -> visits.stage
    - visits.stage, visits[-1].bp -> visits.bp
    - visits.bp, visits.stage, visits[-1].drug -> visits.drug
    - visits.stage, visits.drug -> visits.admitted
    - visits.stage -> visits.end
    - visits[-1].stage -> visits.gap
sampling: {{persons: 10000}}
tracking: {{enabled: false}}
compute: {{threads: 2, engine: {engine}}}
"""


COLUMNS = {"persons": "id, sex, born, smoker", "visits": "of, day, stage, bp, drug, admitted"}
ADDRESS = "SYNTHDP_LINKED_DATABASE"  # the environment variable that a spec of engine `sql` names


def spec_text(persons: int, engine: str) -> str:
    """The spec of an engine."""
    asked = "{{kind: sql, url_env: {}, query: 'SELECT {} FROM {}'}}".format
    sources = {
        f"{name}_source": asked(ADDRESS, columns, name)
        if engine == "sql"
        else f"{{kind: parquet, path: {name}}}"
        for name, columns in COLUMNS.items()
    }
    return SPEC.format(persons=persons, engine=engine, **sources)


def write_tables(folder: Path, persons: int) -> int:
    """Both tables below a folder; how many visits there are."""
    rng = np.random.default_rng(5)
    names = np.array([f"P{n:08d}" for n in rng.permutation(10 * persons)[:persons]])
    days = np.datetime64("1935-01-01") + rng.integers(0, 20_000, persons)
    own = {"id": names, "sex": rng.choice(["F", "M"], persons), "born": days}
    _write(
        folder / "persons", own | {"smoker": rng.choice(["never", "former", "current"], persons)}
    )
    many = rng.integers(10, 15, persons)
    owner = rng.permutation(np.repeat(np.arange(persons, dtype=np.int32), many))
    rows = len(owner)
    stage = rng.integers(0, 4, rows).astype(np.int8)
    visits = {
        "of": names[owner],
        "day": np.datetime64("2015-01-01") + rng.integers(0, 3650, rows),
        "stage": stage,
        "bp": np.clip(rng.normal(120 + 8 * stage, 15), 80, 220).astype(np.int16),
        "drug": rng.random(rows) < 0.2 + 0.1 * stage,
    }
    _write(folder / "visits", visits | {"admitted": rng.random(rows) < 0.05 + 0.1 * stage})
    return rows


def _write(folder: Path, columns: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    rows = len(next(iter(columns.values())))
    for at, start in enumerate(range(0, rows, FILE_ROWS)):
        cut = {name: values[start : start + FILE_ROWS] for name, values in columns.items()}
        pq.write_table(pa.table(cut), folder / f"{at:04d}.parquet")


def run_here(folder: Path) -> dict[str, Any]:
    """A release of the spec in a folder, in this process."""
    import synthdp

    done = synthdp.Spec.load(folder / "spec.yaml").release(out=folder / "out")
    used = resource.getrusage(resource.RUSAGE_SELF)
    stages = {
        "read_seconds": done.seconds["read"],
        "count_and_fit_seconds": done.seconds["measure and fit"],
        "seconds": sum(done.seconds.values()),
        "cpu_seconds": used.ru_utime + used.ru_stime,
    }
    told: dict[str, Any] = {name: round(value, 1) for name, value in stages.items()}
    return told | {"peak_mb": round(peak_mb())}


def measure(persons: int, engines: list[str], address: str) -> list[dict[str, Any]]:
    """Each engine in a process of its own, over the same files."""
    found = []
    with tempfile.TemporaryDirectory() as made:
        visits = write_tables(Path(made), persons)
        for engine in engines:
            before, sql = 0.0, engine == "sql"
            if sql:
                for name in COLUMNS:
                    load_into_database(Path(made) / name, address, name)
                before = server_cpu_seconds(address)
            text = spec_text(persons, engine)
            (Path(made) / "spec.yaml").write_text(text, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.linked_engines", "--here", made],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            subprocess.run(["rm", "-rf", f"{made}/out", f"{made}/.synthdp"], check=True)
            server = server_cpu_seconds(address) - before if sql else 0.0
            for name in COLUMNS if sql else ():
                drop_from_database(address, name)
            if done.returncode:
                raise SystemExit(done.stderr)
            told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            told["server_cpu_seconds"] = round(server, 1) if sql else None
            found.append({"persons": persons, "visits": visits, "engine": engine} | told)
            print(found[-1], flush=True)
    return found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["arrow"])
    parser.add_argument("--address", default="", help="URL of a PostgreSQL server, for engine sql")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(run_here(options.here)))
        return
    if not options.address and "sql" in options.engines:
        parser.error("engine sql needs --address")
    os.environ[ADDRESS] = options.address
    held = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    for persons in options.persons:
        new = measure(persons, options.engines, options.address)
        done = {(row["persons"], row["engine"]) for row in new}
        held = [row for row in held if (row["persons"], row["engine"]) not in done] + new
    columns = ["persons", "visits", "engine", *FIGURES]
    pd.DataFrame(held, columns=columns).sort_values("persons", kind="stable").to_csv(
        TABLE, index=False
    )


if __name__ == "__main__":
    main()
