"""synthdp as one of the peers: the same files in and out as `benchmarks.peers_fit.job`, the whole
budget on the synthesizer.

    python -m benchmarks.peers_ours FOLDER

`mechanism` is `given`: the spec specs/TABLE.yaml as it is, its graph given or tested; or `none`:
without any graph (what it would spend on the graph is then spent on training). The rows come as
values in values.csv, and are read as any release reads them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.adult import plain
from benchmarks.peers_fit.job import Job, run
from synthdp.data.domain import Domain
from synthdp.ledger.ledger import Ledger
from synthdp.model.fit import fit as fit_pipeline
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.session import Session
from synthdp.privacy.source import read_private
from synthdp.spec.checks.checks import check
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import CsvSource, DeclaredRows, Graph, ReleaseSpec

SPECS = Path(__file__).parent.parent / "specs"


def release_for(job: Job, rows: int) -> ReleaseSpec:
    """The table's spec for the rows to fit, which it may know the number of, as the peers do."""
    base = load_spec(SPECS / f"{job.table}.yaml")
    base = plain(base) if job.mechanism == "none" else base
    source = CsvSource(kind="csv", path="values.csv")
    privacy = base.privacy.model_copy(
        update={"epsilon": job.epsilon, "delta": job.delta, "cap": None}
    )
    if job.mechanism == "none":
        shares = privacy.shares
        privacy = privacy.model_copy(
            update={
                "shares": shares.model_copy(
                    update={"graph": 0.0, "train": shares.train + shares.graph}
                )
            }
        )
    return check(
        base.model_copy(
            update={
                "dataset": base.dataset.model_copy(
                    update={"source": source, "rows": DeclaredRows(kind="public", value=rows)}
                ),
                "privacy": privacy,
                "graph": Graph(mode="none") if job.mechanism == "none" else base.graph,
                "sampling": base.sampling.model_copy(update={"rows": rows}),
                "evaluation": base.evaluation.model_copy(
                    update={"holdout": 0.0, "targets": (), "disclosure": "confidential"}
                ),
                "gates": (),
                "compute": base.compute.model_copy(update={"threads": 1}),
            }
        )
    )


def fit(job: Job, rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Plan, measure, find or test the graph, train, sample."""
    release = release_for(job, len(rows))
    domain, streams = Domain.from_spec(release.columns), Streams.fresh()
    private = read_private(release.dataset, domain, folder=job.folder, holdout=0.0, streams=streams)
    ledger = Ledger(f"sqlite:///{job.folder / 'ledger.db'}")
    ledger.reserve(
        release.dataset.id, "run", epsilon=job.epsilon, delta=job.delta, cap=None, body={}
    )
    plan = plan_for(release, domain)
    journal = job.folder / "journal"
    journal.mkdir()
    session = Session(
        private,
        plan,
        ledger,
        dataset=release.dataset.id,
        run="run",
        streams=streams,
        journal=journal,
    )
    fitted = fit_pipeline(session, release, domain, progress=lambda done, total: None)
    codes = sample(fitted, release, rng=fresh_generator(), progress=lambda done, total: None).value
    return pd.DataFrame(codes, columns=list(job.levels)), plan.epsilon_spent


if __name__ == "__main__":
    run(fit)
