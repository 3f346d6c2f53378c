"""What a secret sample costs: releases of one table, trained on all its rows and on samples.

    python -m benchmarks.secret_sample [--again] [--runs 4]

Tables have one or five million rows and 30 columns with 48 arrows, drawn from a random Bayesian
network (`benchmarks.random_networks`), which the spec gives as the graph; each run draws another. A
release reads it as levels only and writes 100,000 rows, at epsilon 1, with 400 steps of batch 2048,
on one thread. It is compared with another sample of the network: total variation of single columns
and of pairs, and the mean AUC of gradient boosting that learns each of `TARGETS` on the release's
rows. The last line is that of as many rows of the network itself. What results/secret_sample.csv
holds is not run again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from benchmarks.bif import BayesianNetwork
from benchmarks.discovery import RESULTS
from benchmarks.random_networks import random_network
from benchmarks.scaling import BATCH, STEPS, WRITTEN, Point, spec_text
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.evaluate.fidelity import fidelity
from synthdp.model.planning import plan_for
from synthdp.release.run import release
from synthdp.spec.load.loader import load_spec

Codes = npt.NDArray[np.uint16]

TABLE = RESULTS / "secret_sample.csv"
TARGETS = ("x13", "x18", "x20", "x25")  # with causes, and not certain given all other columns
ALL = 0  # instead of a sample
SAMPLES = {1_000_000: (ALL, 500_000, 200_000, 50_000, 20_000), 5_000_000: (ALL, 1_000_000)}
CHUNK = 200_000


@dataclass(frozen=True)
class Linked(Point):
    """A table whose columns have more causes."""

    def network(self) -> BayesianNetwork:
        """The same for all runs."""
        return random_network(3)


def text_with(point: Linked, sample: int) -> str:
    """The spec that trains on a secret sample of about so many rows, or on all."""
    wanted = f", sample: {sample}" if sample else ""
    before = f"synthesizer: {{steps: {STEPS}, batch: {BATCH}}}"
    text = spec_text(point)
    assert before in text
    return text.replace(before, f"synthesizer: {{steps: 400, batch: 2048{wanted}}}")


def write_table(point: Linked, path: Path, rng: np.random.Generator) -> None:
    """Rows of the network, each drawn once."""
    net = point.network()
    schema = pa.schema([(name, pa.string()) for name in net.levels])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(0, point.rows, CHUNK):
            codes = net.sample(CHUNK, rng=rng)
            columns = [
                pa.DictionaryArray.from_arrays(codes[:, i], list(labels)).dictionary_decode()
                for i, labels in enumerate(net.levels.values())
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def judged(net: BayesianNetwork, rows: Codes, rng: np.random.Generator) -> dict[str, float]:
    """How far `rows` are from the network."""
    fresh = net.sample(WRITTEN, rng=rng).astype(np.uint16)
    distance = fidelity(fresh, rows, net.domain())
    aucs = [_auc(rows, fresh, list(net.levels).index(name)) for name in TARGETS]
    return {"tv1": distance.tv1, "tv2": distance.tv2 or 0.0, "auc": float(np.mean(aucs))}


def _auc(rows: Codes, fresh: Codes, target: int) -> float:
    """Of a classifier of one column, one level against the rest, learned on `rows`."""
    learner = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    learner.fit(np.delete(rows, target, 1), rows[:, target])
    chances = learner.predict_proba(np.delete(fresh, target, 1))
    several = chances.shape[1] > 2
    return float(
        roc_auc_score(
            fresh[:, target],
            chances if several else chances[:, 1],
            multi_class="ovr" if several else "raise",
        )
    )


def released(point: Linked, folder: Path, sample: int) -> dict[str, Any]:
    """One release of the table in `folder`."""
    net = point.network()
    path = folder / f"{sample}.yaml"
    path.write_text(text_with(point, sample), encoding="utf-8")
    spec = load_spec(path)
    planned = plan_for(spec, Domain.from_spec(spec.columns)).train
    assert planned is not None
    begun = time.process_time()
    outcome = release(path, out=folder / f"out {sample}")
    figures = {
        "cpu_seconds": time.process_time() - begun,
        "noise_multiplier": planned.noise_multiplier,
        "rate": planned.rate,
    }
    assert outcome.bundle is not None
    rows, _ = encode(net.domain(), pd.read_csv(outcome.bundle / "synthetic.csv"))
    return figures | judged(net, rows, np.random.default_rng(1))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true", help="measure every line again")
    parser.add_argument("--runs", type=int, default=4, help="releases of each sample")
    options = parser.parse_args()
    held = pd.DataFrame() if options.again or not TABLE.exists() else pd.read_csv(TABLE)
    for rows, run in product(SAMPLES, range(options.runs)):
        point = Linked(rows=rows)
        missing = [s for s in SAMPLES[rows] if not _is_in(held, rows, s, run)]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as name:
            write_table(point, Path(name) / "table.parquet", np.random.default_rng(run))
            for sample in missing:
                line = {"rows": rows, "sample": sample, "run": run}
                line |= released(point, Path(name), sample)
                held = pd.concat([held, pd.DataFrame([line])], ignore_index=True)
                held.round(5).to_csv(TABLE, index=False)
                print(line, flush=True)
    print(held.groupby(["rows", "sample"]).agg(["mean", "std"]).round(4).to_string())
    net = Linked().network()
    drawn = net.sample(WRITTEN, rng=np.random.default_rng(2)).astype(np.uint16)
    print("drawn from the network", judged(net, drawn, np.random.default_rng(1)))


def _is_in(held: pd.DataFrame, rows: int, sample: int, run: int) -> bool:
    if held.empty:
        return False
    return bool(held[["rows", "sample", "run"]].eq([rows, sample, run]).all(axis=1).any())


if __name__ == "__main__":
    main()
