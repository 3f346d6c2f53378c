"""`python engine_killer.py FOLDER ENGINE`: `killer` over a release whose rows lie in an engine.

It trains on a secret sample, measures estimands together and holds rows out. Looks are written
down where the engine is asked for a purpose; so is which rows are held out, at each opening.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import killer
import numpy as np
import pandas as pd
import yaml

from synthdp.privacy import session
from synthdp.privacy.engines import EngineTable, on_dask
from synthdp.release import RunFolder
from tests.privacy.engines.tables import Here

ROWS, FILES = 2400, 3
UNITS: dict[str, Any] = {
    "arrow": {"kind": "row", "meaning": "one person"},
    "dask": {"kind": "id", "column": "id", "max_rows": 2, "meaning": "one person"},
}
SECTIONS: dict[str, Any] = {
    "columns": {
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "smoker": {"type": "boolean", "false": "never", "true": "yes"},
        "serial": {"type": "integer", "lower": 0, "upper": ROWS - 1, "bins": 6},
    },
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-5,
        "shares": {"measure": 0.3, "estimands": 0.3, "train": 0.4},
        "cap": {"epsilon": 25, "delta": 1e-4},
    },
    "graph": {"mode": "given", "edges": ["sex -> smoker"]},
    "estimands": [
        {"kind": "question", "ask": "mean(serial) where smoker by sex"},
        {"kind": "table", "columns": ["sex", "smoker"]},
        {"kind": "question", "ask": "count(serial > 900)"},
    ],
    "synthesizer": {
        "sample": 1200,
        "steps": 12,
        "batch": 32,
        "hidden": 8,
        "latent": 2,
        "checkpoint_every": 4,
    },
    "evaluation": {
        "holdout": 0.3,
        "targets": ["smoker"],
        "classifiers": ["logistic"],
        "max_rows": 200,
        "triples": 0,
    },
}
LOOKS = ("count", "add_up", "sampled_codes")


def prepare(folder: Path, engine: str) -> None:
    """Files and spec, once. `serial` tells rows apart, and ids have up to four rows each."""
    if (folder / "spec.yaml").exists():
        return
    rng = np.random.default_rng(3)
    sex = rng.choice(["female", "male"], ROWS)
    smoker = np.where(rng.random(ROWS) < np.where(sex == "male", 0.9, 0.1), "yes", "never")
    unit = UNITS[engine]
    table = pd.DataFrame({"sex": sex, "smoker": smoker, "serial": np.arange(ROWS)})
    if unit["kind"] == "id":
        table["id"] = np.arange(ROWS) ** 2 % 1201
    (folder / "t").mkdir()
    for i, part in enumerate(np.split(np.arange(ROWS), FILES)):
        table.iloc[part].to_parquet(folder / "t" / f"{i}.parquet", index=False)
    dataset = killer.SPEC["dataset"] | {
        "source": {"kind": "parquet", "path": "t"},
        "privacy_unit": unit,
        "rows": {"kind": "approximate", "value": ROWS},
    }
    compute = {"threads": 1, "engine": engine}
    spec = killer.SPEC | SECTIONS | {"dataset": dataset, "compute": compute}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def watch(folder: Path, log: int) -> None:
    """Write down looks, kept values and held-out rows. What the steward looks at has no purpose."""
    asking: list[str] = []

    def during(name: str, purposes_of: Callable[..., Iterable[str]]) -> None:
        true = getattr(session.Session, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            asking[:] = purposes_of(*arguments, **options)
            try:
                return true(self, *arguments, **options)
            finally:
                asking.clear()

        setattr(session.Session, name, call)

    during("release", lambda mechanism, *, purpose: [purpose])
    during("_seen_together", list)
    for name in LOOKS:
        watch_look(name, asking, folder, log)
    watch_held_out(log)
    killer.watch_kept(log)


def watch_look(name: str, asking: list[str], folder: Path, log: int) -> None:
    """Write down for whom an engine is asked, with what the ledger on disk says of it."""
    true = getattr(EngineTable, name)

    def ask(self: Any, *arguments: Any) -> Any:
        charged = killer.charged_on_disk(folder / ".synthdp" / "ledger.db") if asking else []
        for purpose in asking:
            line = {"look": purpose, "charged": purpose in charged}
            os.write(log, f"{json.dumps(line)}\n".encode())
        return true(self, *arguments)

    setattr(EngineTable, name, ask)


def watch_held_out(log: int) -> None:
    """Write down which rows are held out and which stay, by all that the steward may draw."""
    true = EngineTable.__init__

    def opened(self: Any, engine: Any, misfits: Any) -> None:
        true(self, engine, misfits)
        _, frame, held = engine.draw(10 * ROWS)
        serials = np.sort(np.where(held, -1, 1) * (frame["serial"].to_numpy(np.int64) + 1))
        digest = hashlib.sha256(serials.tobytes()).hexdigest()
        line = {"held out": int(held.sum()), "of": len(held), "digest": digest}
        os.write(log, f"{json.dumps(line)}\n".encode())

    EngineTable.__init__ = opened  # type: ignore[method-assign]


@killer.breakage
def other_rows_are_held_out_after_a_resume() -> None:
    """The coins have another key in each process."""
    coins = np.random.default_rng(os.getpid())
    RunFolder.holdout_coins = lambda self, other: coins  # type: ignore[method-assign]


def arm(folder: Path, kill: int | None, log: int) -> None:
    """Points, those of an engine too, and what is watched."""
    on_dask.DaskEngine = Here  # its tasks run in this process, which is the one that is killed
    watch(folder, os.open(folder / "looks", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    asked = [(EngineTable, name, f"engine's {name}") for name in LOOKS]
    killer.arm_points(folder, kill, log, asked)


if __name__ == "__main__":
    killer.prepare = lambda folder: prepare(folder, sys.argv[2])
    killer.arm = arm
    killer.main(Path(sys.argv[1]).resolve())
