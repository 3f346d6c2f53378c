"""The search alone on ordered columns of many levels: five public tables, and random ones.

    python -m benchmarks.ordered [--epsilon .3 1 3] [--runs 3] [--seeds 16] [--rows 10000 100000]

Each search has the whole budget, with delta 1e-5, by the road of a release. `strong` pairs of
numbers and of yes or no have a rank correlation above .3. Of these `dependent` were found to be so,
and `linked` have a link in the end; the others were separated by other columns. On the five tables
nobody knows the links. On random tables (`benchmarks/random_tables.py`, seeds that no constant was
chosen on) `true`, `false` and `missed` count links. Writes results/ordered.csv.
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations, product
from pathlib import Path
from sys import modules
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from scipy.stats import spearmanr

from benchmarks.random_tables import random_table
from benchmarks.tables import TABLES, newcomer_spec
from benchmarks.tables_protocol import PublicTable
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode_column
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import Skeleton, algorithm_named, pc_skeleton
from synthdp.graph.discovery.measured_pc import measured_pc
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.session import Rehearsal
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import Graph

Codes = npt.NDArray[np.uint16]
Links = set[frozenset[str]]

RESULTS = Path(__file__).parent / "results" / "ordered.csv"
DELTA, STRONG, FIRST_SEED = 1e-5, 0.3, 101
SHARES = {"measure": 0.2, "graph": 0.6, "train": 0.2}


def public(name: str) -> tuple[Domain, Codes]:
    """Domain and levels of the rows to fit of a public table, as a newcomer describes it."""
    table = PublicTable(name)
    rows, _ = table.split
    text = newcomer_spec(table, rows=len(rows), epsilon=1.0, mode="learn", bins="init")
    described = yaml.safe_load(text)
    described["privacy"]["shares"] = SHARES
    domain = Domain.from_spec(parse_spec(yaml.safe_dump(described), path=name).columns)
    codes = [encode_column(c, rows[c.name].replace("", None)).codes for c in domain.columns]
    return domain, np.column_stack(codes).astype(np.uint16)


def searched(domain: Domain, codes: Codes, epsilon: float) -> tuple[CausalGraph, Links, float]:
    """The graph, the pairs that were found dependent, and CPU seconds."""
    own, settings, kept = algorithm_named("measured_pc"), Graph(mode="learn"), list[Skeleton]()

    def recorded(*args: Any, **options: Any) -> Skeleton:
        kept.append(pc_skeleton(*args, **options))
        return kept[-1]

    spends = own.spends(settings, domain, len(codes))
    rehearsal = Rehearsal(codes, domain, make_search_plan(spends, epsilon=epsilon, delta=DELTA))
    started = time.process_time()
    with mock.patch.object(modules[measured_pc.__module__], "pc_skeleton", recorded):
        found = own.search(rehearsal, settings, domain, None)
    seconds = time.process_time() - started
    graph = found if isinstance(found, CausalGraph) else found.value
    tests = kept[0].evidence.items()
    return graph, {frozenset(p) for p, t in tests if t[0][1].verdict == "dependent"}, seconds


def figures(domain: Domain, codes: Codes, epsilon: float) -> tuple[dict[str, Any], Links]:
    """A row of the table, and the links found."""
    graph, dependent, seconds = searched(domain, codes, epsilon)
    links: Links = {frozenset(p) for p in (*graph.directed, *graph.undirected)}
    rank = np.abs(spearmanr(codes.astype(float)).statistic)
    numbers = [c.name for c in domain.columns if c.ranged or c.levels == 2]
    strong = {
        frozenset(p)
        for p in combinations(numbers, 2)
        if rank[domain.index(p[0]), domain.index(p[1])] > STRONG
    }
    row = {
        "strong": len(strong),
        "dependent": len(strong & dependent),
        "linked": len(strong & links),
        "links": len(links),
        "undecided": len(graph.open_pairs),
        "cpu_s": round(seconds, 2),
    }
    return row, links


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.3, 1.0, 3.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 100_000])
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in TABLES:
        domain, codes = public(name)
        for run, epsilon in product(range(asked.runs), asked.epsilon):
            key = {"table": name, "rows": len(codes), "epsilon": epsilon, "run": run}
            found.append(key | figures(domain, codes, epsilon)[0])
    for rows, seed in product(asked.rows, range(FIRST_SEED, FIRST_SEED + asked.seeds)):
        table = random_table(seed, rows)
        for epsilon in asked.epsilon:
            row, links = figures(table.domain, table.codes, epsilon)
            true, wanted = len(links & table.links), len(table.links)
            row |= {"true": true, "false": len(links) - true, "missed": wanted - true}
            found.append({"table": "random", "rows": rows, "epsilon": epsilon, "run": seed} | row)
    results = pd.DataFrame(found)
    results.to_csv(RESULTS, index=False)
    by = results.drop(columns="run").groupby(["table", "rows", "epsilon"])
    print(by.sum().join(by.cpu_s.max(), rsuffix="_most").to_string())


if __name__ == "__main__":
    main()
