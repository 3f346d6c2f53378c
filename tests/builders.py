"""What tests build specs from: the parts that every spec must have, so that a test states only
what it is about.
"""

import logging
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import Audit, AuditRecord, DeclaredAttack, Membership
from synthdp.privacy.dpsgd import DpSgd
from synthdp.spec.model import ReleaseSpec, Shares


def skeleton(rows: int = 1000, **dataset: Any) -> dict[str, Any]:
    """The required sections of a spec but `columns`, for `rows` rows of a table without a file.

    >>> skeleton(rows=50)["dataset"]["rows"]
    {'kind': 'public', 'value': 50}
    """
    return {
        "synthdp": 1,
        "dataset": {
            "id": "d",
            "source": {"kind": "builtin", "name": "synthetic"},
            "privacy_unit": {"kind": "row", "meaning": "one person"},
            "rows": {"kind": "public", "value": rows},
            **dataset,
        },
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }


def build_spec(columns: dict[str, Any], *, rows: int = 1000, **sections: Any) -> ReleaseSpec:
    """A spec of these columns; `sections` are added or replace those of `skeleton`."""
    return ReleaseSpec.model_validate({**skeleton(rows), "columns": columns, **sections})


PREDICT_ROWS = 1500
PREDICT_COLUMNS: dict[str, Any] = {
    "smoker": {"type": "boolean", "false": "no", "true": "yes"},
    "sex": {"type": "categorical", "categories": ["female", "male"]},
    "age": {"type": "integer", "lower": 18, "upper": 90},
    "grade": {"type": "ordinal", "categories": ["low", "middle", "high"], "missing": True},
    "visits": {"type": "integer", "lower": 0, "upper": 20, "spikes": [0], "edges": [1, 3, 8]},
}


def predict_spec(**sections: Any) -> dict[str, Any]:
    """A spec of mode predict over `predict_table`, saved as table.csv, with everything judged.

    `sections` are added or replace whole sections.
    """
    return {
        **skeleton(PREDICT_ROWS, source={"kind": "csv", "path": "table.csv"}),
        "columns": PREDICT_COLUMNS,
        "privacy": {
            "epsilon": 2.0,
            "delta": 1e-5,
            "shares": {"measure": 0.2, "graph": 0.8, "train": 0},
        },
        "graph": {"mode": "predict", "tiers": [["sex", "age"], ["grade"]]},
        "sampling": {"rows": 800, "oversample": 2},
        "evaluation": {"targets": ["smoker"], "classifiers": ["logistic"], "triples": 4},
        "attacks": {"membership": {"rows": 60, "pairs": 4, "steps": 10}},
        "tracking": {"enabled": False},
        "compute": {"threads": 1},
        **sections,
    }


def predict_table(rows: int = PREDICT_ROWS) -> pd.DataFrame:
    """A table for `predict_spec`: visits depend on smoking, smoking on sex, grades on age."""
    rng = np.random.default_rng(7)
    sex = rng.choice(["female", "male"], rows)
    age = rng.integers(18, 91, rows)
    smoker = rng.random(rows) < np.where(sex == "male", 0.9, 0.1)
    grade = np.where(age < 40, "low", np.where(age < 70, "middle", "high"))
    return pd.DataFrame(
        {
            "smoker": np.where(smoker, "yes", "no"),
            "sex": sex,
            "age": age,
            "grade": np.where(rng.random(rows) < 0.2, "", grade),
            "visits": rng.integers(1, 15, rows) * (rng.random(rows) < np.where(smoker, 0.8, 0.2)),
        }
    )


def mostly_trained(spec: ReleaseSpec) -> ReleaseSpec:
    """Adult's spec with most of its budget on training, as it was before it started from tables.

    Training that gets a twentieth of the budget has so much noise that half of it is too much for
    an audit to tell.
    """
    shares = Shares(measure=0.29, pairs=0.15, targets=0.19, train=0.37)
    pairs = (("capital-gain", "income"), ("capital-loss", "income"))
    return spec.model_copy(
        update={
            "privacy": spec.privacy.model_copy(update={"shares": shares, "pairs": pairs}),
            "synthesizer": spec.synthesizer.model_copy(update={"steps": 800}),
        }
    )


def dp_sgd(**changes: Any) -> DpSgd:
    """Settings of a small training with some of them changed."""
    usual = {"rate": 0.5, "steps": 3, "expected_batch": 8.0, "clip": 0.7, "noise_multiplier": 1.1}
    usual |= {"learning_rate": 0.01, "ema": 0.9, "checkpoint_every": 2}
    return DpSgd(**usual | changes)


@cache
def one_audit(*, refuted: bool = False) -> Audit:
    """What an audit with canaries finds, without making one."""
    return Audit(
        mechanism="m",
        method="x",
        unit_rows=1,
        runs=100,
        epsilon=1.0,
        delta=1e-5,
        epsilon_lower=0.1,
        epsilon_provable=3.0,
        fault="half the noise",
        power=0.9,
        refuted=refuted,
    )


def audit_record(**changes: Any) -> AuditRecord:
    """A record of an audit that found nothing, but for the `changes`."""
    plain: dict[str, Any] = {"program": "synthdp 0", "day": "2026-01-01", "rows": "simulated"}
    return AuditRecord(**plain | {"spends": ()} | changes)


def declared_attack(name: str, **changes: Any) -> DeclaredAttack:
    """An attack on 50 models in each world that told nothing, but for the `changes`."""
    plain = {"advantage": 0.1, "lower": -0.1, "upper": 0.3, "auc": 0.6, "epsilon_lower": 0}
    return DeclaredAttack(**{"attack": name, "models": 50, "refuted": False} | plain | changes)


def membership(*attacks: DeclaredAttack, **changes: Any) -> Membership:
    """A game of 100 pairs in which `attacks` were declared."""
    plain = {"advantage": 0.1, "lower": -0.1, "upper": 0.3, "ceiling": 0.11, "refuted": False}
    return Membership(**{"pairs": 100, "attacks": attacks} | plain | changes)


def lacks_r(*packages: str) -> str:
    """What this machine lacks to run R with some packages, in words; nothing where it lacks none.

    R is no part of the project's environment: tests that need it are skipped without it.
    """
    if shutil.which("Rscript") is None:
        return "no R on this machine"
    asked = " && ".join(f"requireNamespace('{name}', quietly = TRUE)" for name in packages)
    done = subprocess.run(
        ["Rscript", "-e", f"quit(status = !({asked or 'TRUE'}))"], capture_output=True, check=False
    )
    return "" if done.returncode == 0 else f"R lacks one of {', '.join(packages)}"


@contextmanager
def dask_processes(workers: int = 2) -> Iterator[Any]:
    """A Dask cluster of worker processes, which are started again whenever they die.

    Dask looks 15 seconds after each death whether the worker is back, and else gives it up for
    good: a worker that dies again in that very moment would stay away. Here it looks an hour later.
    """
    import dask

    cluster: Any = pytest.importorskip("distributed").LocalCluster
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        cluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as running,
    ):
        yield running
