"""Thirteen tables that no expert wrote a spec for: a newcomer's spec, as `synthdp init` drafts it.

    python -m benchmarks.tables [--tables employee wine ...] [--folder FOLDER]
                                [--epsilon .3 1 3] [--runs 3] [--mode predict none real]
                                [--bins init grid] [--bounds 10] [--peers dpmm-aim dpsynth ...]

The spec has types, bounds, categories, decimals and the label of each table, and nothing else: no
graph, no shares, no bins. With `--bins grid` the bins are those of the public grid on which tables
are compared, as peers get them. `--bounds 10` has bounds of money that are ten times too wide.
Delta is 1e-5; the number of rows is declared. CPU seconds are those of fit and sample on one
thread. `--mode real` learns the label on the rows to fit. `--peers` are fitted to levels of the
public grid, as in `benchmarks.peers`, for at most `--limit` CPU seconds; their name stands for the
mode. `loans` is read from `--folder` (benchmarks/data/tables/README.md says how one gets it) and
left out without it. Writes results/tables.csv, a row for each run; runs that it holds are not run
again.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.peers import PEERS
from benchmarks.peers_run import Request, run
from benchmarks.tables_protocol import PublicTable
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode
from synthdp.graph.prior import PublicRows
from synthdp.ledger.ledger import Ledger
from synthdp.model.constraints import Constraints
from synthdp.model.fit import fit
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.session import Session
from synthdp.privacy.source import read_private
from synthdp.progress import unheard
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

TABLES = ("employee", "wine", "bike", "grid", "hotel")
MORE = ("credit", "caravan", "poker", "shoppers", "spam", "dropout", "student")
ELSEWHERE = ("loans",)
RESULTS = Path(__file__).parent / "results" / "tables.csv"
KEY = ["table", "mode", "bins", "epsilon", "run"]
DELTA, RUN = 1e-5, "run"


def newcomer_spec(
    table: PublicTable, *, rows: int, epsilon: float, mode: str, bins: str, bounds: int = 1
) -> str:
    """The spec as YAML; the bounds of money are `bounds` times those of the description."""
    columns = {name: _column(grid, bins) for name, grid in table.columns.items()}
    for column in (columns[name] for name in table.described.get("money", ())):
        lower, upper = column["lower"], column["upper"]
        column |= {"lower": min(lower, bounds * lower), "upper": bounds * upper}
    spec = {
        "synthdp": 1,
        "dataset": {
            "id": table.name,
            "title": table.name,
            "source": {"kind": "csv", "path": "values.csv", "missing_values": [""]},
            "privacy_unit": {"kind": "row", "meaning": "one row"},
            "rows": {"kind": "public", "value": rows},
        },
        "columns": columns,
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "graph": {"mode": mode},
        "evaluation": {"targets": [table.described["target"]]},
    }
    return yaml.safe_dump(spec, sort_keys=False)


def _column(grid: dict[str, Any], bins: str) -> dict[str, Any]:
    """The column as `init` writes it from the table's description."""
    if grid["kind"] == "cat":
        entry: dict[str, Any] = {"type": "categorical", "categories": grid["categories"]}
    else:
        whole = grid["kind"] == "int"
        lower, upper = grid["lower"], 1.0 if grid["upper"] == 1.0001 else grid["upper"]
        entry = {"type": "integer" if whole else "number", "lower": lower, "upper": upper}
        if not whole:
            entry["decimals"] = grid["decimals"]
        if bins == "grid":
            entry |= {"edges": grid["edges"], "spikes": grid["spikes"]}
    return entry | ({"missing": True} if grid.get("missing") else {})


def released(
    spec: ReleaseSpec, rows: pd.DataFrame, folder: Path, *, prior: PublicRows | None = None
) -> pd.DataFrame:
    """A synthetic table of texts, by the road of a release, with the whole budget on it."""
    rows.to_csv(folder / "values.csv", index=False)
    domain, streams = Domain.from_spec(spec.columns), Streams.fresh()
    private = read_private(spec.dataset, domain, folder=folder, holdout=0.0, streams=streams)
    ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}")
    dataset, privacy = spec.dataset.id, spec.privacy
    ledger.reserve(dataset, RUN, epsilon=privacy.epsilon, delta=privacy.delta, cap=None, body={})
    journal = folder / "journal"
    journal.mkdir()
    session = Session(
        private,
        plan_for(spec, domain),
        ledger,
        dataset=dataset,
        run=RUN,
        streams=streams,
        journal=journal,
    )
    fitted, rng = fit(session, spec, domain, progress=unheard, prior=prior), fresh_generator()
    codes = sample(fitted, spec, rng=rng, progress=unheard).value
    table = Constraints.from_spec(spec, fitted.drawn_from(domain)).decode(codes, rng=rng)
    table.to_csv(folder / "synthetic.csv", index=False)
    return pd.read_csv(folder / "synthetic.csv", dtype=str, keep_default_na=False)


def measure(
    table: PublicTable, *, epsilon: float, mode: str, bins: str, bounds: int
) -> dict[str, float]:
    """Figures of one run."""
    train, test = table.split
    if mode == "real":
        return table.utility(train, test)
    text = newcomer_spec(
        table, rows=len(train), epsilon=epsilon, mode=mode, bins=bins, bounds=bounds
    )
    spec = parse_spec(text, path=table.name)
    evaluation = spec.evaluation.model_copy(update={"holdout": 0.0})
    compute = spec.compute.model_copy(update={"threads": 1})
    spec = spec.model_copy(update={"evaluation": evaluation, "compute": compute})
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        synthetic = released(spec, train, Path(folder))
        seconds = time.process_time() - start
    return {**table.score(synthetic), "cpu_s": seconds}


def measure_peer(
    table: PublicTable, *, epsilon: float, peer: str, seconds: float
) -> dict[str, float]:
    """Figures of one run of a peer on the public grid; none where it gave no table."""
    name = table.name
    train, _ = table.split
    text = newcomer_spec(table, rows=len(train), epsilon=epsilon, mode="predict", bins="grid")
    domain = Domain.from_spec(parse_spec(text, path=name).columns)
    plain = [f"c{i}" for i in range(len(domain))]
    levels = dict(zip(plain, table.sizes, strict=True))
    codes = pd.DataFrame(table.levels(train), columns=plain)
    request = Request(name, codes, train, levels, epsilon, DELTA)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(PEERS[peer], request, Path(folder), seconds=seconds)
        if outcome.codes is None or outcome.cost is None:
            print(name, peer, epsilon, outcome.words, flush=True)
            return {}
        drawn = decode(domain, outcome.codes.to_numpy(), rng=fresh_generator())
        drawn.to_csv(Path(folder) / "drawn.csv", index=False)
        texts = pd.read_csv(Path(folder) / "drawn.csv", dtype=str, keep_default_na=False)
    return {**table.score(texts), "cpu_s": outcome.cost["cpu_s"]}


def main() -> None:
    """Run what is missing, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = (*TABLES, *MORE, *ELSEWHERE)
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--epsilon", nargs="+", type=float, default=(0.3, 1.0, 3.0))
    modes = ("predict", "none", "real")
    parser.add_argument("--mode", nargs="+", default=("predict",), choices=modes)
    parser.add_argument("--bins", nargs="+", default=("init",), choices=("init", "grid"))
    parser.add_argument("--bounds", type=int, default=1)
    parser.add_argument("--peers", nargs="+", default=(), choices=PEERS)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    wide = "" if asked.bounds == 1 else f", bounds x {asked.bounds}"
    ways = list(itertools.product(asked.mode, asked.bins)) if not asked.peers else []
    ways += [(peer, "grid") for peer in asked.peers]
    for number, name, (mode, bins), epsilon in itertools.product(
        range(asked.runs), asked.tables, ways, asked.epsilon
    ):
        table = PublicTable(name, *([asked.folder] if name in ELSEWHERE else []))
        key = dict(zip(KEY, (name, mode, bins + wide, epsilon, number), strict=True))
        left_out = table.folder is None or (wide and not table.described.get("money"))
        if left_out or (known[KEY] == pd.Series(key)).all(axis=1).any():
            continue
        figures = (
            measure_peer(table, epsilon=epsilon, peer=mode, seconds=asked.limit)
            if asked.peers
            else measure(table, epsilon=epsilon, mode=mode, bins=bins, bounds=asked.bounds)
        )
        known = pd.concat([known, pd.DataFrame([key | figures])], ignore_index=True)
        known.round(4).to_csv(RESULTS, index=False)
        print(key | figures, flush=True)
    print(known.drop(columns="run").groupby(KEY[:-1]).mean().round(4).to_string())


if __name__ == "__main__":
    main()
