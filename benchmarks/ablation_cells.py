"""What the ablation varies, as changes of a spec: the causal graph, the tables that are measured,
the choice of rows, and privacy.

A cell without privacy is the same training by the same code
(`synthdp.audit.shadow_models.without_privacy`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.adult import untargeted
from synthdp.spec.checks.checks import check
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import DeclaredRows, Edge, Graph, ReleaseSpec, Shares

ROOT = Path(__file__).parent.parent
GRAPH_SHARE = 0.3  # of the budget, where the graph is learned
ADULT_GROUPS: Mapping[str, tuple[str, ...]] = {
    "origin": ("native-country", "race"),
    "household": ("marital-status", "relationship"),
    "work": ("occupation", "workclass", "hours-per-week"),
    "capital": ("capital-gain", "capital-loss"),
}


@dataclass(frozen=True)
class Cell:
    """One cell of the table; the defaults are those of `specs/adult.yaml`.

    `graph` is a key of `GRAPHS`. `tables`: `one-way`, or `pairs` for those of the spec besides.
    `sampling`: rows are `drawn`, `raked` to the
    noisy tables, or `balanced` besides. `epsilon` infinite: no privacy.
    """

    graph: str = "given"
    tables: str = "pairs"
    sampling: str = "balanced"
    epsilon: float = 1.0


def adult() -> ReleaseSpec:
    """`specs/adult.yaml` without what only a release needs, and without the targets' stage, which a
    plain VAE cannot have.
    """
    base = untargeted(load_spec(ROOT / "specs" / "adult.yaml"))
    return base.model_copy(
        update={
            "privacy": base.privacy.model_copy(update={"cap": None}),
            "evaluation": base.evaluation.model_copy(
                update={"holdout": 0.0, "targets": (), "disclosure": "confidential"}
            ),
            "gates": (),
            "compute": base.compute.model_copy(update={"threads": 1}),
        }
    )


def release_of(base: ReleaseSpec, cell: Cell, *, rows: int, seed: int) -> ReleaseSpec:
    """The spec of a cell for a public number of rows; `seed` draws what is random in the graph.

    Raises:
        SpecError: its parts do not fit together, as pairs without the choice of rows that uses
            them.
    """
    pairs = base.privacy.pairs if cell.tables == "pairs" else ()
    shares = base.privacy.shares if pairs else _without_pairs(base.privacy.shares)
    shares = _with_search(shares) if cell.graph == "learned" else shares
    changes = {
        "dataset": base.dataset.model_copy(
            update={"rows": DeclaredRows(kind="public", value=rows)}
        ),
        "privacy": base.privacy.model_copy(update={"pairs": pairs, "shares": shares}),
        "graph": GRAPHS[cell.graph](base, np.random.default_rng(seed)),
        "sampling": base.sampling.model_copy(
            update={"rake": cell.sampling != "drawn", "balance": cell.sampling == "balanced"}
        ),
    }
    return check(base.model_copy(update=changes))


# --- budgets and graphs ---


def _without_pairs(shares: Shares) -> Shares:
    """What pairs would cost goes into the training."""
    return Shares(measure=shares.measure, graph=shares.graph, train=shares.train + shares.pairs)


def _with_search(shares: Shares) -> Shares:
    """All others give up the same part for the search."""
    kept = {name: (1 - GRAPH_SHARE) * share for name, share in shares.model_dump().items()}
    return Shares(
        **kept | {"graph": 1 - math.fsum(share for name, share in kept.items() if name != "graph")}
    )


def _half(base: ReleaseSpec, rng: np.random.Generator) -> Graph:
    """A random half of the arrows; whatever the others stood for is left to z."""
    arrows = base.graph.pairs()
    return _with_arrows(
        [
            arrows[i]
            for i in sorted(rng.choice(len(arrows), math.ceil(len(arrows) / 2), replace=False))
        ]
    )


def _wrong(base: ReleaseSpec, rng: np.random.Generator) -> Graph:
    """The same arrows between columns that were permuted at random: as many, of the same shape,
    without a cycle.
    """
    names = list(base.columns)
    other = dict(zip(names, (names[i] for i in rng.permutation(len(names))), strict=True))
    return _with_arrows([(other[a], other[b]) for a, b in base.graph.pairs()])


def _clubbed(base: ReleaseSpec, _: np.random.Generator) -> Graph:
    """Only the arrows between groups of columns are known, and of those whole groups."""
    group_of = {name: group for group, members in ADULT_GROUPS.items() for name in members}
    arrows = dict.fromkeys((group_of.get(a, a), group_of.get(b, b)) for a, b in base.graph.pairs())
    return _with_arrows([(a, b) for a, b in arrows if a != b]).model_copy(
        update={"groups": dict(ADULT_GROUPS)}
    )


def _with_arrows(arrows: list[tuple[str, str]]) -> Graph:
    return Graph(mode="given", edges=tuple(Edge(causes=(a,), effects=(b,)) for a, b in arrows))


GRAPHS: Mapping[str, Callable[[ReleaseSpec, np.random.Generator], Graph]] = {
    "given": lambda base, rng: base.graph,
    "groups": _clubbed,
    "half": _half,
    "wrong": _wrong,
    "learned": lambda base, rng: Graph(mode="learn"),
    "none": lambda base, rng: Graph(mode="none"),
}
"""The expert's graph, two partial ones, a wrong one, one that is found from the rows at the expense
of the rest, and none.
"""
