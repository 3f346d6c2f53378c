"""Are links as likely true as `measured_pc` tells? Shares of true links by told probability.

    python -m benchmarks.link_calibration [--networks 160] [--tables 60] [--folder FOLDER]

Random networks (seeds from 2000) and random tables of numbers (from 4000), none of which chose a
constant, at a random epsilon of .3, 1 and 3 and 2,000 to 200,000 rows each, delta 1e-5, by the road
of a release; and with `--folder` the public networks `UNSEEN` of benchmarks.discovery, at 20,000
and 100,000 rows. Writes results/link_calibration.csv, a row for each kind, epsilon and told
probability.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.bif import BayesianNetwork
from benchmarks.discovery import UNSEEN, network, ordered_domain
from benchmarks.private_pc import run
from benchmarks.random_networks import random_network
from benchmarks.random_tables import random_table
from synthdp.data.domain import Domain

RESULTS = Path(__file__).parent / "results" / "link_calibration.csv"
EPSILONS, DELTA = (0.3, 1.0, 3.0), 1e-5
NETWORK_ROWS, TABLE_ROWS = (2_000, 6_000, 20_000, 60_000, 200_000), (3_000, 10_000, 30_000, 100_000)
Links = frozenset[frozenset[str]]


def told(
    kind: str, codes: npt.NDArray[np.uint16], domain: Domain, true: Links, epsilon: float
) -> list[dict[str, Any]]:
    """A row for each link that is told with a probability."""
    graph = run("measured_pc", codes, domain, epsilon=epsilon, delta=DELTA)
    return [
        {"kind": kind, "epsilon": epsilon, "told": e.probability, "true": frozenset(e.pair) in true}
        for e in graph.edges
        if e.probability is not None
    ]


def links_of(net: BayesianNetwork) -> Links:
    """The links of a network."""
    truth = net.graph().cpdag()
    return frozenset(frozenset(pair) for pair in (*truth.directed, *truth.undirected))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=int, default=160)
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    found: list[dict[str, Any]] = []
    for seed in range(2000, 2000 + asked.networks):
        rng, net = np.random.default_rng([99, seed]), random_network(seed)
        rows, epsilon = int(rng.choice(NETWORK_ROWS)), float(rng.choice(EPSILONS))
        codes = net.sample(rows, rng=rng)
        found += told("random networks", codes, ordered_domain(net), links_of(net), epsilon)
    for seed in range(4000, 4000 + asked.tables):
        rng = np.random.default_rng([99, seed])
        rows, epsilon = int(rng.choice(TABLE_ROWS)), float(rng.choice(EPSILONS))
        table = random_table(seed, rows)
        found += told("random tables", table.codes, table.domain, table.links, epsilon)
    for name, rows in product(UNSEEN if asked.folder else (), (20_000, 100_000)):
        net = network(name, asked.folder)
        for seed, epsilon in enumerate(EPSILONS):
            codes = net.sample(rows, rng=np.random.default_rng([seed, rows]))
            found += told("public networks", codes, ordered_domain(net), links_of(net), epsilon)
    by = pd.DataFrame(found).groupby(["kind", "epsilon", "told"]).true
    table = by.agg(links="size", true="sum").reset_index()
    table.to_csv(RESULTS, index=False)
    whole = table.groupby(["kind", "told"])[["links", "true"]].sum()
    print(whole.assign(share=(whole.true / whole.links).round(3)).to_string())


if __name__ == "__main__":
    main()
