"""synthdp beside its peers: the same rows, the same public grid, the same total epsilon, the same
judges, in one run.

    python -m benchmarks.peers [--tables adult rand-hie pain5000] [--peers synthdp dpmm-mst ...]
    [--epsilon .1 1 10]
                               [--runs 3] [--limit 900] [--again]

Each peer is installed, pinned, in an environment of its own (~/.cache/synthdp-peers or
$SYNTHDP_PEERS) and fits in a process of its own on one thread. It gets the rows as levels of the
spec's public grid, with the number of levels of each column, and nothing else; levels come back,
and values are drawn inside their bins by the same code for all. (epsilon, delta) is the total for
everything, delta that of the spec. Peers also know the number of rows, and so does synthdp here.
What each peer is set to stands in its script in benchmarks/peers_fit/. What a peer's own accountant
does not see (levels that occur, a training that ends by a loss on real rows, exact numbers of rows)
is not charged to it. Seconds are CPU seconds of fit and sample, children included, without imports;
memory is the peak of the process. After --limit CPU seconds (or four times as many of clock) a fit
is ended, and further runs of it are not tried.

Writes results/peers.csv, one row for each run, peers that fail among them with words, and
results/peers.png. Runs that it already holds are not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.peers_plot import plot
from benchmarks.peers_run import Peer, Request, python_of, run
from benchmarks.tabular_protocol import Table
from synthdp import __version__
from synthdp.data.encoding import decode
from synthdp.privacy.noise import fresh_generator

RESULTS = Path(__file__).parent / "results"
TABLES = ("adult", "rand-hie", "pain5000")
FIT = "benchmarks.peers_fit.fit_"
PEERS: dict[str, Peer] = {
    "synthdp": Peer("benchmarks.peers_ours", "given"),
    "synthdp-no-graph": Peer("benchmarks.peers_ours", "none"),
    "dpmm-mst": Peer(FIT + "dpmm", "mst", ("dpmm==0.1.9",)),
    "dpmm-aim": Peer(FIT + "dpmm", "aim", ("dpmm==0.1.9",)),
    "smartnoise-mst": Peer(FIT + "smartnoise", "mst", ("smartnoise-synth==1.0.8", "torch==2.13.0")),
    # For pictures and sound only; PyPI's builds do not load beside a torch for CPUs.
    "mostlyai": Peer(
        FIT + "mostlyai",
        "argn",
        ("mostlyai-engine==2.7.3",),
        unneeded=("torchvision", "torchaudio"),
    ),
    "dpsynth": Peer(
        FIT + "dpsynth",
        "swift",
        (
            (
                "dpsynth @"
                " git+https://github.com/google/dpsynth@cf8075f319b96c2e009e4ea6bb55378faccbbc80"
            ),
        ),
    ),
}
REAL, GRID = "real rows", "real rows on the grid"
FIGURES = ("mean_auc", "hgb_auc", "mean_acc", "mean_f1", "tv1", "tv2", "tv3", "cpu_s", "rss_gb")
ALL = "all"  # the table of a peer that does not install


@dataclass(frozen=True, order=True)
class Cell:
    """One run: the peer's name, or that of what is compared with (at epsilon 0)."""

    run: int
    table: str
    epsilon: float
    peer: str


Row = dict[str, Any]
Measure = Callable[[Cell], Row]


def measure(cell: Cell, *, seconds: float) -> Row:
    """Fit and judge one cell."""
    table = Table(cell.table)
    train, _ = table.split
    if cell.peer in (REAL, GRID):
        frame = (
            train
            if cell.peer == REAL
            else decode(table.domain, table.codes(train), rng=fresh_generator())
        )
        return {"outcome": "ok", **table.score(frame)}
    # Plain names: labels in the wild hold spaces and letters that a peer may trip over.
    plain = [f"c{i}" for i in range(len(table.domain))]
    codes = pd.DataFrame(table.codes(train), columns=plain)
    delta = table.spec.privacy.delta
    request = Request(
        cell.table,
        codes,
        train,
        dict(zip(plain, table.domain.sizes, strict=True)),
        cell.epsilon,
        delta,
    )
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(PEERS[cell.peer], request, Path(folder), seconds=seconds)
    row: Row = {"outcome": outcome.words, "pinned": _pinned(cell.peer), "delta": delta}
    if outcome.codes is None or outcome.cost is None:
        return row
    return (
        row
        | outcome.cost
        | table.score(decode(table.domain, outcome.codes.to_numpy(), rng=fresh_generator()))
    )


def _pinned(peer: str) -> str:
    return " ".join(PEERS[peer].requirements) or f"synthdp {__version__}"


def cells(tables: list[str], peers: list[str], epsilons: list[float], runs: int) -> Iterator[Cell]:
    """Everything that is asked for, first all first runs."""
    for table in tables:
        yield from (Cell(0, table, 0.0, what) for what in (REAL, GRID))
    for number in range(runs):
        for table in tables:
            yield from (
                Cell(number, table, epsilon, peer) for epsilon in epsilons for peer in peers
            )


def install(peers: list[str], rows: dict[Cell, Row]) -> list[str]:
    """The peers that are installed; of the others `rows` tells why not."""
    ready = []
    for peer in peers:
        cell = Cell(0, ALL, 0.0, peer)
        rows.pop(cell, None)
        python, why = python_of(PEERS[peer])
        if python is None:
            rows[cell] = {"outcome": f"does not install: {why}", "pinned": _pinned(peer)}
        else:
            ready.append(peer)
    return ready


def complete(asked: Iterator[Cell], rows: dict[Cell, Row], path: Path, measuring: Measure) -> None:
    """Measure what `rows` lacks, and write it after each. Nothing is tried again that went wrong
    once.
    """
    for cell in asked:
        earlier = (
            rows.get(Cell(number, cell.table, cell.epsilon, cell.peer))
            for number in range(cell.run + 1)
        )
        if cell in rows or any(row and row["outcome"] != "ok" for row in earlier):
            continue
        rows[cell] = measuring(cell)
        print(told(cell, rows[cell]), flush=True)
        write(rows, path)
    write(rows, path)


def told(cell: Cell, row: Row) -> str:
    """One line."""
    figures = " ".join(f"{name} {row[name]:.3f}" for name in FIGURES if name in row)
    return (
        f"{cell.table}, epsilon {cell.epsilon:g}, {cell.peer}, run {cell.run}:"
        f" {figures if row['outcome'] == 'ok' else row['outcome']}"
    )


def write(rows: dict[Cell, Row], path: Path) -> None:
    """All rows, sorted."""
    path.parent.mkdir(exist_ok=True)
    columns = [
        "table",
        "peer",
        "epsilon",
        "run",
        "outcome",
        *FIGURES,
        "epsilon_spent",
        "delta",
        "pinned",
    ]
    order = sorted(rows, key=lambda c: (c.table, c.epsilon, c.peer, c.run))
    table = [
        {"table": c.table, "peer": c.peer, "epsilon": c.epsilon, "run": c.run, **rows[c]}
        for c in order
    ]
    pd.DataFrame(table, columns=columns).round(
        dict.fromkeys((*FIGURES, "epsilon_spent"), 5)
    ).to_csv(path, index=False)


def held(path: Path) -> dict[Cell, Row]:
    """The runs of an earlier call."""
    if not path.exists():
        return {}
    keys = {"table": str, "peer": str, "epsilon": float, "run": int}
    found: dict[Cell, Row] = {}
    for record in pd.read_csv(path, dtype=keys).to_dict("records"):
        row: Row = {str(k): v for k, v in record.items() if not pd.isna(v)}
        found[Cell(row.pop("run"), row.pop("table"), row.pop("epsilon"), row.pop("peer"))] = row
    return found


def summary(path: Path) -> str:
    """Means over runs, and below what went wrong."""
    table = pd.read_csv(path)
    good, bad = table[table["outcome"] == "ok"], table[table["outcome"] != "ok"]
    groups = good.groupby(["table", "epsilon", "peer"], sort=True)
    means = groups[list(FIGURES)].mean().round(3)
    means.insert(0, "runs", groups.size())
    where = [
        f"{row.peer}" if row.table == ALL else f"{row.table}, epsilon {row.epsilon:g}, {row.peer}"
        for row in bad.itertuples()
    ]
    lines = [f"{place}: {outcome}" for place, outcome in zip(where, bad["outcome"], strict=True)]
    return "\n".join([means.to_string(na_rep=""), *lines])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=900.0, help="CPU seconds for one fit")
    parser.add_argument(
        "--again", action="store_true", help="run again what the results already hold"
    )
    options = parser.parse_args()
    path = RESULTS / "peers.csv"
    asked = set(cells(options.tables, options.peers, options.epsilon, options.runs))
    rows = {cell: row for cell, row in held(path).items() if not (options.again and cell in asked)}
    ready = install(options.peers, rows)
    complete(
        cells(options.tables, ready, options.epsilon, options.runs),
        rows,
        path,
        lambda cell: measure(cell, seconds=options.limit),
    )
    print(summary(path))
    plot(pd.read_csv(path), RESULTS / "peers.png")


if __name__ == "__main__":
    main()
