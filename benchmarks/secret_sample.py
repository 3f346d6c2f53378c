"""What a secret sample costs: releases of one table, trained on all its rows and on samples.

    python -m benchmarks.secret_sample [--again] [--runs 4]

The table has a million rows and 30 columns with 48 arrows, drawn from a random Bayesian network
(`benchmarks.random_networks`), which the spec gives as the graph; each run draws another. A release
reads it as levels only and writes 100,000 rows, at epsilon 1, with 400 steps of batch 2048, on one
thread. It is compared with another sample of the network: total variation of single columns and of
pairs, and the mean AUC of gradient boosting that learns each of `TARGETS` on the release's rows.
The last line is that of as many rows of the network itself. What results/secret_sample.csv holds is
not run again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from benchmarks.discovery import RESULTS
from benchmarks.random_networks import random_network
from benchmarks.scaling import BATCH, STEPS, WRITTEN, Point, spec_text
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.evaluate.fidelity import fidelity
from synthdp.graph.formats.bif import BayesianNetwork
from synthdp.model.planning import plan_for
from synthdp.release.run import release
from synthdp.spec.load.loader import load_spec

Codes = npt.NDArray[np.uint16]

TABLE = RESULTS / "secret_sample.csv"
TARGETS = ("x13", "x18", "x20", "x25")  # with causes, and not certain given all other columns
SAMPLES = (None, 500_000, 200_000, 50_000, 20_000)  # None: all rows
ALL = 0  # instead of a sample, in the table
CHUNK = 200_000


@dataclass(frozen=True)
class Linked(Point):
    """A table whose columns have more causes."""

    rows: int = 1_000_000

    def network(self) -> BayesianNetwork:
        """The same for all runs."""
        return random_network(3)


POINT = Linked()


def text_with(sample: int | None) -> str:
    """The spec that trains on a secret sample of about so many rows; None: on all."""
    wanted = "" if sample is None else f", sample: {sample}"
    before = f"synthesizer: {{steps: {STEPS}, batch: {BATCH}}}"
    text = spec_text(POINT)
    assert before in text
    return text.replace(before, f"synthesizer: {{steps: 400, batch: 2048{wanted}}}")


def write_table(net: BayesianNetwork, path: Path, rng: np.random.Generator) -> None:
    """Rows of the network, each drawn once."""
    schema = pa.schema([(name, pa.string()) for name in net.levels])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(0, POINT.rows, CHUNK):
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


def released(net: BayesianNetwork, folder: Path, sample: int | None) -> dict[str, Any]:
    """One release of the table in `folder`."""
    path = folder / f"{sample}.yaml"
    path.write_text(text_with(sample), encoding="utf-8")
    spec = load_spec(path)
    planned = plan_for(spec, Domain.from_spec(spec.columns)).train
    assert planned is not None
    begun = time.process_time()
    outcome = release(path, out=folder / f"out {sample}")
    figures = {
        "cpu_seconds": time.process_time() - begun,
        "train_seconds": outcome.seconds["measure and train"],
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
    net = POINT.network()
    for run in range(options.runs):
        missing = [s for s in SAMPLES if held.empty or not _is_in(held, s or ALL, run)]
        if not missing:
            continue
        rng = np.random.default_rng(run)
        with tempfile.TemporaryDirectory() as name:
            write_table(net, Path(name) / "table.parquet", rng)
            for sample in missing:
                line = {"sample": sample or ALL, "run": run}
                line |= released(net, Path(name), sample)
                held = pd.concat([held, pd.DataFrame([line])], ignore_index=True)
                held.round(4).to_csv(TABLE, index=False)
                print(line, flush=True)
    print(held.groupby("sample").agg(["mean", "std"]).round(4).to_string())
    print(
        "direct",
        judged(
            net,
            net.sample(WRITTEN, rng=np.random.default_rng(2)).astype(np.uint16),
            np.random.default_rng(1),
        ),
    )


def _is_in(held: pd.DataFrame, sample: int, run: int) -> bool:
    return bool(((held["sample"] == sample) & (held["run"] == run)).any())


if __name__ == "__main__":
    main()
