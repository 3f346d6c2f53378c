"""Validation of given graphs at epsilon 1: deleted arrows noticed, and true graphs refuted.

    python -m benchmarks.validation [--networks asia sachs child alarm] [--rows 20000 100000]
    [--true-runs 100] [--deletions 40]
        [--epsilon 1] [--delta 1e-3] [--adjacency add_remove] [--jobs 1]

Each run draws its own sample from the network, plans the whole budget for the validation and
measures by the road of a release. A true graph is refuted if any of its claims is, at family-wise
level .05. In the other runs one arrow is missing, each in turn; it is noticed if any claim of the
rest is refuted. Writes results/validation.csv.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from benchmarks.discovery import RESULTS, network
from synthdp.graph.stage import rounds, validated
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph

LEVEL = 0.05
KEYS = ["network", "rows", "epsilon", "delta", "adjacency"]


def run(
    name: str,
    rows: int,
    deleted: int | None,
    seed: int,
    epsilon: float,
    delta: float,
    adjacency: Any,
) -> dict[str, Any]:
    """Validate a network's graph, one arrow deleted or none, on a fresh sample."""
    net = network(name)
    domain, graph = net.domain(), net.graph()
    if deleted is not None:
        graph = replace(graph, edges=graph.edges[:deleted] + graph.edges[deleted + 1 :])
    spends = rounds(Graph(mode="validate"), domain, rows=rows)
    plan = make_search_plan(spends, epsilon=epsilon, delta=delta, adjacency=adjacency)
    rehearsal = Rehearsal(net.sample(rows, rng=np.random.default_rng([seed, rows])), domain, plan)
    started = time.process_time()
    report = validated(rehearsal, graph, domain, level=LEVEL).value
    cpu = time.process_time() - started
    arrow = "" if deleted is None else " -> ".join(net.graph().edges[deleted].pair)
    return {
        "network": name,
        "rows": rows,
        "deleted": arrow,
        "refuted": bool(report.refuted),
        "claims": len(report.findings),
        "cpu_s": cpu,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=["asia", "sachs", "child", "alarm"])
    parser.add_argument("--rows", nargs="+", type=int, default=[20_000, 100_000])
    parser.add_argument("--true-runs", type=int, default=100)
    parser.add_argument("--deletions", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-3)
    parser.add_argument("--adjacency", default="add_remove", choices=["add_remove", "replace_one"])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    budget = options.epsilon, options.delta, options.adjacency
    for name in options.networks:
        arrows = len(network(name).graph().edges)
        for size in options.rows:
            kinds = [(None, 1000 + i) for i in range(options.true_runs)] + [
                (i % arrows, 5000 + i) for i in range(options.deletions)
            ]
            found = pd.DataFrame(
                Parallel(n_jobs=options.jobs)(
                    delayed(run)(name, size, deleted, seed, *budget) for deleted, seed in kinds
                )
            )
            line = dict(zip(KEYS, (name, size, *budget), strict=True)) | summary(found)
            print(line, flush=True)
            keep(pd.DataFrame([line]), RESULTS / "validation.csv")


def summary(found: pd.DataFrame) -> dict[str, Any]:
    """Counts of what was refuted."""
    true, less = found[found.deleted == ""], found[found.deleted != ""]
    return {
        "true_graphs_refuted": int(true.refuted.sum()),
        "of_true_graphs": len(true),
        "deletions_noticed": int(less.refuted.sum()),
        "of_deletions": len(less),
        "claims": int(found.claims.median()),
        "cpu_s": round(float(found.cpu_s.median()), 3),
        "never_noticed": "; ".join(
            sorted(set(less[~less.refuted].deleted) - set(less[less.refuted].deleted))
        ),
    }


def keep(fresh: pd.DataFrame, path: Path) -> None:
    """Put a line into the table, in place of an older one for the same setting."""
    if path.exists():
        fresh = pd.concat([pd.read_csv(path, keep_default_na=False), fresh]).drop_duplicates(
            KEYS, keep="last"
        )
    fresh.sort_values(KEYS).to_csv(path, index=False)


if __name__ == "__main__":
    main()
