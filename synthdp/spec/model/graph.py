"""`privacy`: the budget, how it is split, and the cap of its dataset; and what it buys.

`graph`: what is known of the causes, and what a release does with it. `synthesizer`, `sampling` and
`constraints`: the model and the rows that it writes.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from annotated_types import Unit
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from synthdp.spec.model.fields import (
    MOST,
    Flag,
    Model,
    Name,
    Names,
    Real,
    Whole,
    key,
    refused,
    unique,
    wrong,
)

Part = Annotated[Real, Field(ge=0, le=1), Unit("part of the budget")]


class Parts(Model):
    """Relative weights that sum to 1."""

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = math.fsum(self.model_dump().values())
        if abs(total - 1) > 1e-9:
            parts = " + ".join(
                f"{name} {share:g}"
                for name, share in self.model_dump().items()
                if share or name not in ("pairs", "targets", "estimands", "moments", "heaps")
            )
            left = [n for n, x in self.model_dump().items() if x and n not in self.model_fields_set]
            unsaid = (
                f"; {' and '.join(left)} not written, and so by default: write e.g. {left[-1]}: 0"
                if left
                else ""
            )
            raise wrong(("", f"shares must sum to 1, got {total:g} ({parts}){unsaid}"))
        return self


class Shares(Parts):
    """Relative weights that sum to 1. Graph search is paid only where the mode needs it."""

    measure: Part = key("for noisy tables of one column each", 0.3, default=0.2)
    pairs: Part = key("for the tables of `privacy.pairs`", 0.15, default=0.0)
    graph: Part = key("for modes validate, learn and predict", 0.15, default=0.0)
    targets: Part = key(
        "for the stage that `synthesizer.targets` have of their own", 0.2, default=0.0
    )
    estimands: Part = key(
        "for `estimands`, in equal parts; 0.15 where shares are left out", 0.15, default=0.0
    )
    moments: Part = key(
        "for sums of all numbers, by which intervals of means narrow; 0.1 where shares are"
        " left out and noise allows",
        0.1,
        default=0.0,
    )
    heaps: Part = key(
        "for `privacy.heaps`; 0.1 in mode predict where shares are left out, rows in memory"
        " and noise allows",
        0.1,
        default=0.0,
    )
    train: Part = key(
        "for training the model by DP-SGD; mode predict does without it", 0.4, default=0.8
    )


class Cap(Model):
    """The most that all releases of this dataset id may spend."""

    epsilon: Annotated[Real, Field(gt=0, le=1000), Unit("nats")] = key("most epsilon in all", 3.0)
    delta: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = key("most delta in all", 1e-4)


CAP = key(
    "cap on all releases; without one, nothing is refused",
    {"epsilon": 3.0, "delta": 1e-4},
    default=None,
)
LEDGER = key(
    "SQLAlchemy URL; a relative SQLite file is in the spec's folder; default:"
    " .synthdp/ledger.db there",
    "postgresql://ledger.example/synthdp",
    default=None,
)


class Budget(Model):
    """What is bought, of one table or of linked ones."""

    # Below these the accountant's grid and tails no longer tell one budget from another.
    epsilon: Annotated[Real, Field(ge=0.01, le=100), Unit("nats")] = key(
        "total for everything in the run", 1.0
    )
    delta: Annotated[Real, Field(ge=1e-12, lt=1), Unit("probability")] = key(
        "total for everything in the run; below 1 / rows", 1e-6
    )
    adjacency: Literal["add_remove", "replace_one"] = key(
        "neighbouring tables: one unit more or less, or one replaced",
        "add_remove",
        default="add_remove",
    )


class Privacy(Budget):
    """The guarantee, and how its budget is split."""

    shares: Shares = key(
        "how the budget is split; default in mode predict: measure 0.2, graph 0.8, train 0; where a"
        " range leaves out its bins: measure 0.4, graph 0.6, train 0",
        {"measure": 0.2, "graph": 0.2, "train": 0.6},
        default=Shares(),
    )
    pairs: Annotated[
        tuple[Annotated[Names, Field(min_length=2, max_length=2)], ...], Field(max_length=1000)
    ] = key(
        "pairs that shares.pairs measures, all where none is named; rows are held to them",
        [["capital-gain", "income"]],
        default=(),
    )
    heaps: Names = key(
        "where shares.heaps looks for common numbers; default: columns of numbers without"
        " bins and spikes",
        ["income"],
        default=(),
    )
    cap: Cap | None = CAP
    ledger: str | None = LEDGER

    def for_tables(self) -> Self:
        """The same without estimands, moments and heaps, whose shares one-way tables get."""
        shares, others = self.shares, ("estimands", "moments", "heaps")
        freed = {"measure": shares.measure + math.fsum(getattr(shares, n) for n in others)}
        freed |= dict.fromkeys(others, 0.0)
        return self.model_copy(update={"heaps": (), "shares": shares.model_copy(update=freed)})


class Edge(Model):
    """Arrows from every name in `causes` to every name in `effects`; in YAML also "a, b -> c"."""

    causes: Annotated[Names, Field(min_length=1)] = key(
        "columns or groups that act", ["age", "sex"]
    )
    effects: Annotated[Names, Field(min_length=1)] = key(
        "columns or groups that they act on", ["income"]
    )


def sides(value: Any) -> Any:
    """The two sides of an arrow that is written as a text; what is no text is left as it is."""
    if isinstance(value, dict | Edge):
        return value
    parts = value.split("->") if isinstance(value, str) else []
    if len(parts) != 2 or not all(p.strip() for p in parts):
        more = len(parts) > 2
        how = "; a name with a comma or an arrow needs a map: {causes: [...], effects: [...]}"
        raise ValueError(f'expected "cause, cause -> effect", got {value!r}{how if more else ""}')
    return {
        "causes": [n.strip() for n in parts[0].split(",")],
        "effects": [n.strip() for n in parts[1].split(",")],
    }


Arrow = Annotated[
    str, Field(pattern=r"^.*\S.*->.*\S.*$", description="cause, cause -> effect, effect")
]
Edges = tuple[Annotated[Edge, BeforeValidator(sides, json_schema_input_type=Edge | Arrow)], ...]


UNSOUND = {
    "priv_pc_published": (
        "its sensitivity is false, its last pass is not charged and its total depends on the rows;"
        " use priv_pc"
    ),
    "svt_pc_published": "its sensitivity is false and its last pass is not charged; use svt_pc",
    "em_pc_published": "its separating sets are chosen without noise; use em_pc",
    "pcd": (
        "it answers without noise where its decision cannot flip, which no epsilon allows; use"
        " rcit_pc"
    ),
}
"""Published algorithms that claim privacy they do not give, and what to use instead."""


class Graph(Model):
    """What is known of the causes."""

    mode: Literal["none", "given", "validate", "learn", "predict"] = key(
        "given: take the arrows; validate: test them; learn: find them; predict: measure"
        " pairs, with arrows that claim no cause; none: a plain VAE",
        "validate",
        default="given",
    )
    edges: Edges = key(
        "given arrows; in mode learn they are required arrows",
        ["age, sex -> education", "education -> income"],
        default=(),
    )
    undirected: tuple[Annotated[Names, Field(min_length=2, max_length=2)], ...] = key(
        "modes given and validate: links of unknown direction, on which no effect or"
        " intervention rests",
        [["smoker", "dose"]],
        default=(),
    )
    forbidden: Edges = key("arrows that cannot be", ["income -> age"], default=())
    tiers: tuple[Annotated[Names, Field(min_length=1)], ...] = key(
        "earliest first; no arrow goes back", [["age", "sex"], ["income"]], default=()
    )
    groups: dict[Name, Annotated[Names, Field(min_length=2)]] = key(
        "columns that share one node of the graph",
        {"health": ["hlthg", "hlthf", "hlthp"]},
        default={},
    )
    latent: tuple[Annotated[Names, Field(min_length=2)], ...] = key(
        "columns with an unseen common cause", [["income", "health"]], default=()
    )
    unseen_causes: bool = key(
        "mode learn, measured_pc: columns may have unknown common causes",
        True,
        default=False,
    )
    algorithm: Annotated[
        Literal["measured_pc", "rcit_pc", "priv_pc", "svt_pc", "em_pc"],
        refused({n: f"{n} is not private as published: {why}" for n, why in UNSOUND.items()}),
    ] = key(
        "how mode learn searches, and validate tests (the first two); rcit_pc is for numbers",
        "rcit_pc",
        default="measured_pc",
    )
    orient_share: Annotated[Real, Field(ge=0, le=0.8), Unit("part of shares.graph")] = key(
        "rcit_pc: for the direction of numeric links that PC leaves open", 0.3, default=0.0
    )
    level: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = key(
        "family-wise level of the tests", 0.01, default=0.05
    )
    max_parents: Annotated[Whole, Field(ge=1, le=MOST.parents), Unit("columns")] = key(
        "most parents that mode learn gives a column",
        4,
        default=6,
    )
    on_refuted: Literal["flag", "drop", "fail"] = key(
        "mode validate: tell a refuted arrow, drop it, or stop", "fail", default="flag"
    )

    @property
    def group_of(self) -> dict[str, str]:
        """The group of each column that is in one."""
        return {name: group for group, names in self.groups.items() for name in names}

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every given arrow as (cause, effect), in the order written, groups not expanded."""
        return tuple((a, b) for e in self.edges for b in e.effects for a in e.causes)


class SynthesizerSettings(Model):
    """The causally consistent DP-VAE. What is left out of `latent`, `hidden`, `steps` and `batch`
    follows the rest of the spec; these defaults are of a large table with a graph.
    """

    kind: Literal["causal_vae"] = key("the only kind so far", "causal_vae", default="causal_vae")
    latent: Annotated[Whole, Field(ge=1, le=256), Unit("dimensions")] = key(
        "dimensions of z; 4 without a graph, 1 beyond 400 columns and where nothing is trained",
        4,
        default=2,
    )
    hidden: Annotated[Whole, Field(ge=1, le=4096), Unit("units")] = key(
        "hidden units per column and in the encoder; 16 beyond 64 columns, 8 beyond 400, no fewer"
        " than a target's levels; 1 where nothing is trained",
        64,
        default=32,
    )
    steps: Annotated[Whole, Field(ge=1, le=1_000_000), Unit("steps")] = key(
        "DP-SGD steps; 300 below 10,000 rows, 200 beyond 400 columns", 800, default=800
    )
    batch: Annotated[Whole, Field(ge=1, le=1_000_000), Unit("rows")] = key(
        "expected rows of a step: a tenth of the declared rows below 5,120, 512 up to 26,000,"
        " then a 48th, at most 4,096",
        512,
        default=1024,
    )
    sample: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] | None = key(
        "expected rows of a secret sample of the units; default: all",
        1_000_000,
        default=None,
    )
    clip: Annotated[Real, Field(gt=0, le=1e6), Unit("gradient norm")] = key(
        "bound on a unit's gradient norm", 0.5, default=1.0
    )
    learning_rate: Annotated[Real, Field(gt=0, le=10)] = key(
        "step size of the optimiser", 0.005, default=0.009
    )
    ema: Annotated[Real, Field(ge=0, lt=1)] = key(
        "decay of the weight average; 0 turns it off", 0.99, default=0.999
    )
    checkpoint_every: Annotated[Whole, Field(ge=1), Unit("steps")] = key(
        "steps between checkpoints", 500, default=200
    )
    targets: Names = key(
        "columns that will be predicted, learned for shares.targets",
        ["income"],
        default=(),
    )


class Sampling(Model):
    """How synthetic rows are drawn, free of charge."""

    rows: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] | None = key(
        "rows to write; default: the declared number", 10_000, default=None
    )
    rake: Flag = key("fit the model and its sample to the noisy tables", False, default=True)
    balance: Flag = key(
        "choose rows whose two-way tables are near the model's",
        False,
        default=True,
    )
    oversample: Annotated[Whole, Field(ge=1, le=64), Unit("draws")] = key(
        "draws per written row before raking", 8, default=4
    )
    even: Names = key(
        "columns drawn last, evenly over rows that are alike",
        ["income"],
        default=(),
    )


Constraint = Annotated[str, Field(min_length=1, max_length=1000)]
Constraints = Annotated[tuple[Constraint, ...], Field(max_length=100), AfterValidator(unique)]
