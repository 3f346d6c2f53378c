"""What a fleet of shadow models costs: trained side by side, and one by one.

    python -m benchmarks.fleet [--models 400] [--alone 20] [--steps 100] [--workers 2] [--tables
    synthetic adult]

Two tables of 500 rows and 9 columns: the first columns of the built-in survey, and those of Adult
with its income as a target, which has a training stage of its own. First both ways take turns in
one process of one thread, so that both see the same machine: CPU seconds of a model (median of the
turns), and their ratio. Then the membership game trains the whole fleet in groups on loky workers:
wall seconds, CPU seconds of a model with the start of the workers, and the peak of resident memory
of a worker. Writes results/fleet.csv. Nothing here is a release.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from synthdp.audit.shadow_models import ShadowTrainer, shadow_spec
from synthdp.data import builtin
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.calibration import make_plan
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import Attacks, Edge, Graph, MembershipAttack, ReleaseSpec
from synthdp_attacks import Fleet, Loky, ThreatModel, play

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
ROWS = 500
ROWS_SEED = 0  # of the sub-sample, which is public
TURNS = 5

Codes = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Job:
    """Rows and the trainer of their shadow models."""

    rows: Codes
    trainer: ShadowTrainer


def survey(steps: int) -> Job:
    """The first nine columns of the built-in survey, with the arrows among them."""
    spec = load_spec(ROOT / "specs" / "synthetic-learn.yaml")
    spec = spec.model_copy(update={"graph": builtin.graph("synthetic")})
    return _job(spec, list(spec.columns)[:9], builtin.frame("synthetic"), steps)


def adult(steps: int) -> Job:
    """The first eight columns of Adult and its income, the target, with the arrows among them."""
    spec = load_spec(ROOT / "specs" / "adult.yaml")
    frame = pd.read_csv(
        ROOT / "specs" / "data" / "adult.csv", dtype=str, keep_default_na=False
    ).replace("", np.nan)
    columns = list(spec.columns)
    return _job(spec, [*columns[:8], columns[-1]], frame, steps)


TABLES: dict[str, Callable[[int], Job]] = {"synthetic": survey, "adult": adult}


def _job(spec: ReleaseSpec, names: list[str], frame: pd.DataFrame, steps: int) -> Job:
    edges = [
        (tuple(c for c in e.causes if c in names), tuple(c for c in e.effects if c in names))
        for e in spec.graph.edges
    ]
    privacy = spec.privacy.model_copy(
        update={
            "epsilon": 1.0,
            "pairs": tuple(p for p in spec.privacy.pairs if set(p) <= set(names)),
        }
    )
    spec = spec.model_copy(
        update={
            "columns": {name: spec.columns[name] for name in names},
            "graph": Graph(
                mode="given",
                edges=tuple(Edge(causes=c, effects=e) for c, e in edges if c and e),
            ),
            "privacy": privacy,
            "constraints": (),
            "evaluation": spec.evaluation.model_copy(update={"disclosure": "confidential"}),
            "gates": (),
            "attacks": Attacks(membership=MembershipAttack(rows=ROWS, steps=steps)),
        }
    )
    shadow = shadow_spec(spec)
    domain = Domain.from_spec(shadow.columns)
    codes = encode(domain, frame[names])[0].astype(np.uint16)
    rows = codes[np.random.default_rng(ROWS_SEED).permutation(len(codes))[:ROWS]]
    return Job(
        rows,
        ShadowTrainer(
            shadow,
            domain,
            make_plan(shadow, domain),
            CausalGraph.from_spec(shadow.graph, domain.names),
        ),
    )


def costs(job: Job, *, alone: int) -> tuple[float, float]:
    """CPU seconds of a model one by one, and side by side in groups of the trainer's size; `alone`
    models in all go one by one.
    """
    trainer, turns = job.trainer, min(TURNS, alone)
    singles, groups = [], []
    for turn in range(turns + 1):  # the first turn, which pays for imports, does not count
        seeds = np.random.SeedSequence(turn).spawn(trainer.group)
        begin = time.process_time()
        for seed in seeds[: alone // turns]:
            trainer(job.rows, seed_sequence=seed)
        middle = time.process_time()
        list(trainer.many([job.rows] * trainer.group, seed_sequences=seeds))
        singles.append((middle - begin) / (alone // turns))
        groups.append((time.process_time() - middle) / trainer.group)
    return statistics.median(singles[1:]), statistics.median(groups[1:])


def fleet(job: Job, *, models: int, workers: int) -> tuple[float, float, float]:
    """Wall seconds of a game of `models` models, CPU seconds of one of them, and the peak MB of a
    worker.
    """
    from joblib.externals.loky import get_reusable_executor

    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        target, rest = job.rows[0], job.rows[1:]
        running = Fleet(folder=Path(folder), runner=Loky(workers))
        game = play(
            rest,
            target,
            job.trainer,
            pairs=models // 2,
            rng=np.random.default_rng(),
            fleet=running,
            threat=ThreatModel(),
        )
        assert game.lost == 0
    wall = time.monotonic() - begin
    get_reusable_executor().shutdown(wait=True)  # only children that have ended are counted
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu / models, after.ru_maxrss / 1024


def measured(name: str, *, models: int, alone: int, steps: int, workers: int) -> dict[str, object]:
    """One line of the table."""
    job = TABLES[name](steps)
    single, grouped = costs(job, alone=alone)
    wall, cpu, peak = fleet(job, models=models, workers=workers)
    return {
        "table": name,
        "rows": ROWS,
        "columns": len(job.trainer.domain),
        "steps": steps,
        "group": job.trainer.group,
        "one_by_one_cpu_s": single,
        "side_by_side_cpu_s": grouped,
        "ratio_per_core": single / grouped,
        "fleet_models": models,
        "workers": workers,
        "fleet_wall_s": wall,
        "fleet_cpu_s_per_model": cpu,
        "worker_peak_mb": peak,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=400)
    parser.add_argument("--alone", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        measured(
            name,
            models=options.models,
            alone=options.alone,
            steps=options.steps,
            workers=options.workers,
        )
        for name in options.tables
    ]
    table = pd.DataFrame(lines).round(4)
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / "fleet.csv", index=False)
    print(table.T.to_string(header=False))


if __name__ == "__main__":
    main()
