"""What the membership study varies: table, causal graph, privacy; and the trainer that goes with
each cell.

The model is the causal VAE alone, as in the paper: started from one-way tables and neither raked
nor balanced. Batches of 100 and ten latent dimensions as in its appendix B. What is told apart from
the paper by cost stands in `TABLES`: steps, where the paper has 50 to 100 epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.ablation_cells import Cell as Ablated
from benchmarks.ablation_cells import release_of
from synthdp.audit.shadow_models import (
    ShadowTrainer,
    drawn_rows,
    fitted_shadows,
    plan_at,
    shadow_spec,
)
from synthdp.data import builtin
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.graph.causal import CausalGraph
from synthdp.spec import model as spec
from synthdp.spec.load.loader import load_spec

ROOT = Path(__file__).parent.parent
SEED = 0  # of the partial and the wrong graph and of the target, all of them public
BATCH, LATENT = 100, 10
Codes = npt.NDArray[np.uint16]

# The paper's partial graph clubs columns into nodes; arrows are then known between nodes only.
SURVEY_NODES: Mapping[str, tuple[str, ...]] = {
    "person": ("region", "urban", "age", "sex"),
    "means": ("education", "employed", "income", "insured"),
    "habits": ("smoker", "exercise", "diet", "stress"),
    "body": ("sleep", "bmi", "pressure", "cholesterol", "diabetes"),
    "care": ("visits", "medication", "cost", "enrolled", "outcome"),
}
ABLATED = {
    "none": "none",
    "complete": "given",
    "partial": "half",
    "wrong": "wrong",
    "learned": "learned",
}  # as the ablation calls them


@dataclass(frozen=True)
class Table:
    """A built-in table: its spec, training steps of a model, and hidden units of a column."""

    spec: str
    builtin: str
    steps: int
    hidden: int
    graphs: tuple[str, ...]


# 24,531 pairs of columns are more than a search takes, so that no graph is learned on Pain; its
# partial graph is a random half of the arrows.
TABLES: Mapping[str, Table] = {
    "synthetic": Table(
        "synthetic-learn", "synthetic", 200, 32, ("none", "complete", "partial", "wrong", "learned")
    ),
    "pain1000": Table("pain1000", "pain1000", 100, 16, ("none", "complete", "partial", "wrong")),
    "pain5000": Table("pain5000", "pain5000", 100, 16, ("none", "complete", "partial", "wrong")),
}


@dataclass(frozen=True)
class Cell:
    """One cell of the study. `graph` none is the non-causal twin; `epsilon` infinite is no
    privacy.
    """

    table: str
    graph: str
    epsilon: float

    @property
    def name(self) -> str:
        """Also the name of its folder and file."""
        return f"{self.table}-{self.graph}-{'dp' if np.isfinite(self.epsilon) else 'plain'}"


def cells(tables: Sequence[str]) -> list[Cell]:
    """All cells of some tables, the paper's own first and what trains one by one last."""
    return [
        Cell(name, graph, epsilon)
        for name in tables
        for graphs in (("none", "complete"), ("partial", "wrong"), ("learned",))
        for epsilon in (1.0, np.inf)
        for graph in graphs
        if graph in TABLES[name].graphs
    ]


@dataclass(frozen=True)
class Setting:
    """Rows as codes, and what trains on them."""

    rows: Codes
    shadow: ShadowTrainer

    def several(
        self, rows: Sequence[Codes], *, sets: int, rng: np.random.Generator
    ) -> Iterator[list[Codes]]:
        """For the paper's split: `sets` synthetic sets of one model on each of `rows`."""
        own = self.shadow
        for fitted in fitted_shadows(rows, own.spec, own.domain, own.plan, own.graph):
            yield [drawn_rows(fitted, own.spec, rng) for _ in range(sets)]


def setting(
    cell: Cell,
    *,
    rows: int | None = None,
    steps: int | None = None,
    pairs: int = 100,
    workers: int = 1,
) -> Setting:
    """Everything of a cell; fewer `rows` and `steps` for a quick look."""
    table = TABLES[cell.table]
    base = load_spec(ROOT / "specs" / f"{table.spec}.yaml")
    frame = builtin.frame(table.builtin)
    frame = frame.assign(
        **{name: frame[name].astype(str).str.lower() for name in frame.select_dtypes("bool")}
    ).iloc[:rows]
    true, clubbed = (
        builtin.graph(table.builtin),
        cell.graph == "partial" and cell.table == "synthetic",
    )
    count, batch = len(frame), min(BATCH, max(1, len(frame) // 4))
    base = base.model_copy(
        update={
            "graph": _clubbed(true) if clubbed else true,
            "privacy": base.privacy.model_copy(
                update={"epsilon": 1.0, "pairs": (), "shares": spec.Shares(measure=0.2, train=0.8)}
            ),
            "synthesizer": spec.SynthesizerSettings(latent=LATENT, hidden=table.hidden, ema=0.99),
            "evaluation": base.evaluation.model_copy(
                update={"targets": (), "disclosure": "confidential"}
            ),
            "gates": (),
            "attacks": spec.Attacks(
                membership=spec.MembershipAttack(
                    rows=count, steps=steps or table.steps, pairs=pairs
                )
            ),
            "compute": base.compute.model_copy(update={"threads": workers}),
        }
    )
    shadow = shadow_spec(base)
    shadow = shadow.model_copy(
        update={"synthesizer": shadow.synthesizer.model_copy(update={"batch": batch})}
    )
    how = Ablated(
        graph="given" if clubbed else ABLATED[cell.graph],
        tables="one-way",
        sampling="drawn",
        epsilon=cell.epsilon,
    )
    release = release_of(shadow, how, rows=count, seed=SEED)
    domain = Domain.from_spec(release.columns)
    plan = plan_at(release, domain, cell.epsilon)
    own = ShadowTrainer(
        release, domain, plan, CausalGraph.from_spec(release.graph, domain.names), white_box=True
    )
    codes = encode(domain, frame)[0].astype(np.uint16)
    return Setting(codes, own)


def _clubbed(true: spec.Graph) -> spec.Graph:
    """Only the arrows between nodes of columns are known."""
    node = {name: group for group, members in SURVEY_NODES.items() for name in members}
    arrows = dict.fromkeys((node[a], node[b]) for a, b in true.pairs() if node[a] != node[b])
    return spec.Graph(
        mode="given",
        groups=dict(SURVEY_NODES),
        edges=tuple(spec.Edge(causes=(a,), effects=(b,)) for a, b in arrows),
    )
