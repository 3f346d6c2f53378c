"""The attack half of the ablation: the membership game on a sub-sample of Adult, against each
cell's own pipeline.

All cells have the same rows and the same target, the most isolated row. `given` and `none` are the
causal model and its non-causal twin; beside the whole pipeline stands the model alone, which is not
raked to exact tables where nothing is private.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation_cells import ROOT, Cell, adult, release_of
from benchmarks.adult_protocol import split
from synthdp.audit.membership import Board
from synthdp.audit.shadow_models import ShadowTrainer, plan_at, shadow_spec
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.graph.causal import CausalGraph
from synthdp.progress import unheard
from synthdp.spec.model import Attacks, MembershipAttack
from synthdp_attacks import isolated_targets
from synthdp_attacks.statistics import Interval

# The paper's question first: causal and not, private and not.
CELLS = (
    *(
        Cell(graph=graph, epsilon=epsilon)
        for epsilon in (1.0, math.inf)
        for graph in ("given", "none")
    ),
    *(
        Cell(graph=graph, tables="one-way", sampling="drawn", epsilon=math.inf)
        for graph in ("given", "none")
    ),
    *(
        Cell(graph=graph, epsilon=epsilon)
        for epsilon in (1.0, math.inf)
        for graph in ("wrong", "half")
    ),
    *(Cell(graph=graph, epsilon=10.0) for graph in ("given", "none")),
    *(
        Cell(graph=graph, tables="one-way", sampling="drawn", epsilon=math.inf)
        for graph in ("wrong", "half")
    ),
)
FULL = MembershipAttack(rows=500, pairs=100, steps=200)
QUICK = MembershipAttack(rows=40, pairs=4, steps=2)
ROWS_SEED = 0  # of the sub-sample and the target, which are public


def attacked(cell: Cell, game: MembershipAttack, *, jobs: int) -> dict[str, Any]:
    """The game against one cell: advantage with its interval, what the claim allows (without a
    claim: anything), and what it is read beside.
    """
    base = adult().model_copy(update={"attacks": Attacks(membership=game)})
    release = release_of(shadow_spec(base), cell, rows=game.rows, seed=ROWS_SEED)
    domain = Domain.from_spec(release.columns)
    compute = release.compute.model_copy(update={"threads": jobs})
    graph = CausalGraph.from_spec(release.graph, domain.names)
    trainer = ShadowTrainer(
        release.model_copy(update={"compute": compute}),
        domain,
        plan_at(release, domain, cell.epsilon),
        graph,
    )
    rows, rng = _rows(domain, game.rows), np.random.default_rng(ROWS_SEED)
    board = Board(rows, isolated_targets(rows, 1, rng))
    with tempfile.TemporaryDirectory() as folder:
        declared_alone: dict[str, tuple[str, ...]] = {"extractors": (), "classifiers": ()}
        coins = np.random.default_rng()
        report = board.attacked(trainer, Path(folder), coins, unheard, **declared_alone)
    control = report.control.value if report.control else math.nan
    return asdict(cell) | {
        "pairs": game.pairs,
        **_columns("advantage", report.main.advantage),
        "ceiling": 1.0 if report.ceiling is None else report.ceiling,
        **_columns("auc", report.main.auc),
        "baseline_advantage": report.baseline.value,
        "control_advantage": control,
    }


def _rows(domain: Domain, count: int) -> np.ndarray[Any, Any]:
    table = split(ROOT / "specs" / "data" / "adult.csv")[0].replace("", np.nan)
    chosen = table.iloc[np.random.default_rng(ROWS_SEED).permutation(len(table))[:count]]
    codes: np.ndarray[Any, Any] = encode(domain, chosen)[0].astype(np.uint16)
    return codes


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_lower": interval.lower, f"{name}_upper": interval.upper}
