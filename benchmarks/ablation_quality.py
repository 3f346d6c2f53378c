"""The quality half of the ablation: each cell fitted on the Adult rows and scored by the protocol
of all Adult figures.
"""

from __future__ import annotations

import io
import math
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.ablation_cells import ROOT, Cell, adult, release_of
from benchmarks.adult_protocol import score, split
from synthdp.audit.shadow_models import plan_at
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode, encode
from synthdp.model.fit import fit
from synthdp.model.sampling import sample
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.session import Rehearsal

# Graph and privacy in full, then one change at a time. Pairs are measured for the choice of rows,
# and so fall with it.
CELLS = (
    *(
        Cell(graph=graph, epsilon=epsilon)
        for epsilon in (1.0, math.inf)
        for graph in ("given", "none", "wrong", "half", "groups")
    ),
    Cell(graph="learned"),
    Cell(tables="one-way"),
    Cell(tables="one-way", sampling="raked"),
    Cell(tables="one-way", sampling="drawn"),
    Cell(graph="learned", epsilon=math.inf),  # minutes: without noise nothing ends the search early
)
FIGURES = ("mean_auc", "mean_f1", "tv1", "tv2", "tv3", "cpu_s")
QUICK_ROWS, QUICK_STEPS = 600, 3


def measured(cell: Cell, run: int, *, quick: bool) -> dict[str, Any]:
    """One fit of a cell, rehearsed on the public rows, and its figures. A random graph is another
    one in each run.
    """
    train, test = (
        rows[:QUICK_ROWS] if quick else rows
        for rows in split(ROOT / "specs" / "data" / "adult.csv")
    )
    base = adult()
    if quick:
        base = base.model_copy(
            update={
                "synthesizer": base.synthesizer.model_copy(
                    update={"steps": QUICK_STEPS, "batch": 60}
                )
            }
        )
    release = release_of(base, cell, rows=len(train), seed=run)
    domain = Domain.from_spec(release.columns)
    codes = encode(domain, train.replace("", np.nan))[0].astype(np.uint16)
    started = time.process_time()
    plan = plan_at(release, domain, cell.epsilon)
    fitted = fit(Rehearsal(codes, domain, plan), release, domain, progress=_quiet)
    drawn = sample(fitted, release, rng=fresh_generator(), progress=_quiet).value
    cost = {"cpu_s": time.process_time() - started, "arrows": len(fitted.graph.graph.dag.edges)}
    return (
        asdict(cell)
        | {"run": run}
        | cost
        | score(domain, train, test, _as_read(decode(domain, drawn, rng=fresh_generator())))
    )


def _as_read(frame: pd.DataFrame) -> pd.DataFrame:
    """What a reader of the released file gets."""
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)), dtype=str, keep_default_na=False)


def _quiet(done: int, total: int) -> None:
    """No progress inside a fit."""
