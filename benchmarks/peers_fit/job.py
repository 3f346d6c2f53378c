"""What a fit is asked for and what it hands back: files in one folder, so that any Python can do
it.

job.json        name of the table, levels of each column, epsilon, delta, and which mechanism
train.csv       the rows to fit, as levels 0 .. levels-1
synthetic.csv   written: as many rows, as levels
cost.json       written: CPU seconds of fit and sample (children included), peak memory, epsilon as
the peer accounts for it
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.memory import peak_mb


@dataclass(frozen=True)
class Job:
    """One fit of `table`: `levels` is the public number of levels of each column, (`epsilon`,
    `delta`) the total for everything.
    """

    table: str
    levels: dict[str, int]
    epsilon: float
    delta: float
    mechanism: str
    folder: Path


# Rows as levels in; synthetic rows as levels and the epsilon that was spent out.
Fit = Callable[[Job, pd.DataFrame], tuple[pd.DataFrame, float]]


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def run(fit: Fit) -> None:
    """Run `fit` on each folder that the command line names, one after the other. What was imported
    before is not part of the cost in seconds.
    """
    for argument in sys.argv[1:]:
        _run(fit, Path(argument))


def _run(fit: Fit, folder: Path) -> None:
    job = Job(**json.loads((folder / "job.json").read_text(encoding="utf-8")), folder=folder)
    rows = pd.read_csv(folder / "train.csv")
    started = cpu_seconds()
    synthetic, spent = fit(job, rows)
    cost = {"cpu_s": cpu_seconds() - started, "epsilon_spent": spent}
    memory = max(peak_mb() / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20)
    synthetic.to_csv(folder / "synthetic.csv", index=False)
    (folder / "cost.json").write_text(json.dumps(cost | {"rss_gb": memory}), encoding="utf-8")
