"""Arrows of a search, and marks that allow for unseen causes, where a common cause is hidden.

    python -m benchmarks.unseen_causes [sachs child alarm]

One column of a public network is left out, a common cause of others, and a search at 100,000 rows
finds the rest, with noise as in tests/graph (zCDP, delta 1e-5). An arrow a -> b is false where a is
no ancestor of b in the whole network; a tail at a is false as well, and an arrowhead at a where a
is one. Prints, for each network and epsilon, the ends and how many of them are false; `none` hides
no column. Seeds are fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import networkx as nx
import numpy as np

from benchmarks.bif import read_bif
from synthdp.data.domain import Domain
from synthdp.graph.discovery.measured_pc import JOINT_SHARES, ROUND_SHARES, MeasurePlan, measured_pc
from synthdp.graph.knowledge import Knowledge
from synthdp.privacy.mechanisms.marginals import NoisyTable

BIF = Path(__file__).parent.parent / "tests" / "graph" / "data"
HIDDEN: Mapping[str, Sequence[str]] = {
    "sachs": ("PKA", "PKC"),
    "child": ("Disease", "LungParench", "Sick"),
    "alarm": (
        "HYPOVOLEMIA",
        "LVFAILURE",
        "CATECHOL",
        "VENTLUNG",
        "INTUBATION",
        "VENTALV",
        "ANAPHYLAXIS",
        "ERRCAUTER",
    ),
}
ROWS, DELTA = 100_000, 1e-5
FIGURES = ("arrows", "false", "tails", "false", "heads", "false", "circles")


def figures(name: str, hidden: str | None, epsilon: float, seed: int) -> np.ndarray:
    """The `FIGURES` of one search."""
    net, rng = read_bif(BIF / f"{name}.bif"), np.random.default_rng([seed, 7])
    whole, truth = net.domain(), net.graph().dag
    codes = net.sample(ROWS, rng=rng).astype(np.int64)
    kept = [i for i, column in enumerate(whole.names) if column != hidden]
    domain, codes = Domain(tuple(whole.columns[i] for i in kept)), codes[:, kept]
    log = np.log(1 / DELTA)
    rho = (np.sqrt(log + epsilon) - np.sqrt(log)) ** 2

    def measure(round_: str, tables: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
        share = {**JOINT_SHARES, **ROUND_SHARES}[round_]
        sigma = float(np.sqrt(len(tables) / (share * rho)))
        found = []
        for columns in tables:
            sizes = [domain[n].levels for n in columns]
            cells = np.ravel_multi_index([codes[:, domain.index(n)] for n in columns], sizes)
            flat = np.bincount(cells, minlength=int(np.prod(sizes)))
            counts = flat.reshape(sizes).astype(np.float64)
            found.append(NoisyTable(columns, counts + np.rint(rng.normal(0, sigma, sizes)), sigma))
        return tuple(found)

    graph = measured_pc(measure, MeasurePlan(), domain, Knowledge(domain.names), unseen=True)
    before = {n: nx.ancestors(truth, n) for n in truth}
    ends = [
        (mark, at in before[other])
        for link in graph.pag or ()
        for at, other, mark in ((link.a, link.b, link.at_a), (link.b, link.a, link.at_b))
    ]
    return np.array(
        [
            len(graph.directed),
            sum(a not in before[b] for a, b in graph.directed),
            sum(mark == "tail" for mark, _ in ends),
            ends.count(("tail", False)),
            sum(mark == "arrow" for mark, _ in ends),
            ends.count(("arrow", True)),
            sum(mark == "circle" for mark, _ in ends),
        ]
    )


def main() -> None:
    print("network", "epsilon", "hidden", *FIGURES, sep="\t")
    for name in sys.argv[1:] or HIDDEN:
        for epsilon in (1.0, 10.0):
            one = [figures(name, h, epsilon, seed) for h in HIDDEN[name] for seed in (1, 2)]
            none = [figures(name, None, epsilon, seed) for seed in (1, 2, 3, 4)]
            for label, found in (("one", one), ("none", none)):
                print(name, epsilon, label, *np.sum(found, axis=0), sep="\t", flush=True)


if __name__ == "__main__":
    main()
