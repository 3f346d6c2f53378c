"""Twelve waves of Adult that drift, one budget for all: the last one beside a release that has it
all, and beside one without the waves before it.

    python -m benchmarks.over_time_waves --folder FOLDER [--waves 12] [--rows 10000] [--runs 5]

A wave has so many rows, drawn from Adult with replacement by weights that tilt towards age and long
hours, more with each wave; a second last wave, `broken`, has the label turned around in half of the
rows. The same people may be in all waves, so that budgets add up: a ledger with a cap of
(1, 1e-5) admits all of them. Each wave is a whole release in mode predict, verified, after the
bundle of the one before. TV2 is the mean total variation of all pairs of columns between the
released rows and the wave's own, on groups of levels of about equal mass. Writes
results/over_time_waves.csv, a row for each release; what FOLDER holds is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from synthdp.bundle.noisy_values import INNOVATIONS
from synthdp.bundle.table_files import CSV_NAME
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.evaluate.fidelity import fidelity
from synthdp.files import SUMS
from synthdp.graph.level_groups import equal_groups
from synthdp.ledger.composition import FOR_LOST, gaussian_delta, gaussian_epsilon
from synthdp.release.run import release
from synthdp.spec.load.loader import load_spec
from synthdp.verify.checks import verify_bundle

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "over_time_waves.csv"
CAP = (1.0, 1e-5)
DELTA = 1e-6
TILT = {"age": 0.5, "hours-per-week": 0.4}
"""What a standard deviation adds to the logarithm of a row's weight in the last wave."""


def wave_of(table: pd.DataFrame, at: tuple[int, int, int], rows: int, *, broken: bool) -> Any:
    """The rows of one wave of a run, as texts; `at`: the run, the wave, of how many waves."""
    run_, number, waves = at
    rng = np.random.default_rng((run_, number))
    tilt = np.zeros(len(table))
    for name, size in TILT.items():
        values = table[name].astype(float)
        tilt += size * number / (waves - 1) * (values - values.mean()) / values.std()
    weights = np.exp(tilt)
    chosen = table.iloc[rng.choice(len(table), rows, p=weights / weights.sum())].copy()
    if broken:
        half, turned = rng.random(rows) < 0.5, {"<=50K": ">50K", ">50K": "<=50K"}
        chosen.loc[half, "income"] = chosen.loc[half, "income"].map(turned)
    return chosen


def share_of(waves: int) -> float:
    """Epsilon at `DELTA` of one of so many waves that fit the cap together."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        fits = gaussian_delta(CAP[0], middle) <= (1 - FOR_LOST) * CAP[1]
        low, high = (middle, high) if fits else (low, middle)
    return 0.995 * gaussian_epsilon(low / math.sqrt(waves), DELTA)


def spec_of(folder: Path, name: str, rows: int, epsilon: float, after: Path | None) -> Path:
    """A spec as `init` drafts it, for the rows in NAME.csv."""
    written = yaml.safe_load((ROOT / "specs" / "adult.yaml").read_text(encoding="utf-8"))
    dataset = written["dataset"] | {"rows": {"kind": "public", "value": rows}}
    asked = {
        "synthdp": 1,
        "dataset": dataset | {"source": {"kind": "csv", "path": f"{name}.csv"}},
        "columns": written["columns"],
        "privacy": {"epsilon": epsilon, "delta": DELTA, "ledger": f"sqlite:///{folder}/l.db"},
        "graph": {"mode": "predict"},
        "evaluation": {"enabled": False, "targets": ["income"]},
        "attacks": {"membership": {"enabled": False}},
        "tracking": {"enabled": False},
    }
    asked["privacy"]["cap"] = {"epsilon": CAP[0], "delta": CAP[1]}
    asked["waves"] = {"name": name, "people": "same"}
    if after is not None:
        digest = hashlib.sha256((after / SUMS).read_bytes()).hexdigest()
        asked["waves"]["after"] = {"bundle": str(after), "sha256": digest}
    if name == "single":
        del asked["waves"]
        asked["dataset"]["id"] = "single"
        asked["privacy"] |= {"delta": CAP[1], "ledger": f"sqlite:///{folder}/single.db"}
    if name == "alone":
        asked["dataset"]["id"] = "alone"
    if name in ("alone", "broken"):
        asked["privacy"]["ledger"] = f"sqlite:///{folder}/{name}.db"
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")
    return path


def judged(spec: Path, bundle: Path, csv: Path) -> float:
    """TV2 of the released rows."""
    loaded = load_spec(spec)
    domain = Domain.from_spec(loaded.columns)
    codes = [
        encode(domain, frame[list(domain.names)].mask(frame == ""))[0]
        for frame in (
            pd.read_csv(path, dtype=str, keep_default_na=False) for path in (csv, bundle / CSV_NAME)
        )
    ]
    margins = [
        np.bincount(codes[0][:, i], minlength=n) / len(codes[0]) for i, n in enumerate(domain.sizes)
    ]
    groups = equal_groups(domain, margins)
    found = fidelity(groups.of(codes[0]), groups.of(codes[1]), groups.coarse, triples=0)
    assert found.tv2 is not None  # Adult has more than one column
    return found.tv2


def run(folder: Path, number_of_run: int, waves: int, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.read_csv(ROOT / "specs" / "data" / "adult.csv", dtype=str, keep_default_na=False)
    names = [f"w{number}" for number in range(waves)]
    key = {"waves": waves, "rows": rows, "run": number_of_run}
    for name in ["single", "alone", *names, "broken"]:
        number = names.index(name) if name in names else waves - 1
        csv = folder / f"{name}.csv"
        out = folder / "apart" / name if name == "broken" else folder / name
        epsilon = CAP[0] if name == "single" else share_of(waves)
        last = number and name not in ("single", "alone")
        after = folder / names[number - 1] / "bundle" if last else None
        if (out / "bundle").exists():
            continue
        at = (number_of_run, number, waves)
        wave_of(table, at, rows, broken=name == "broken").to_csv(csv, index=False)
        started = time.process_time()
        path = spec_of(folder, name, rows, epsilon, after)
        release(path, out=out, force=True)
        verify_bundle(out / "bundle")
        row = key | {
            "release": name,
            "epsilon": epsilon,
            "tv2": judged(path, out / "bundle", csv),
            "broken_tables": broken_tables(out / "bundle"),
            "cpu_s": time.process_time() - started,
        }
        print(json.dumps(row), flush=True)
        known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame()
        kept = pd.concat([known, pd.DataFrame([row])])
        kept.drop_duplicates([*key, "release"], keep="last").to_csv(RESULTS, index=False)


def broken_tables(bundle: Path) -> str:
    """The tables that stepped further than drift and noise explain, in the last step."""
    if not (bundle / INNOVATIONS).exists():
        return ""
    told = json.loads((bundle / INNOVATIONS).read_text(encoding="utf-8"))
    found = [t for t in told["tables"] if t["counted_in"][-1] == told["waves"][-1]]
    few = [t for t in found if t["chances"][-1] < told["break_below"]]
    with_label = sum("income" in t["columns"] for t in few)
    return f"{len(few)} of {len(found)}, {with_label} with the label"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waves", type=int, default=12)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, required=True, help="where the releases lie")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    for number in range(asked.runs):
        run(asked.folder.absolute() / str(number), number, asked.waves, asked.rows)


if __name__ == "__main__":
    main()
