"""`privacy`: the budget of a release, how it is split, and the cap of its dataset."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from annotated_types import Unit
from pydantic import Field, model_validator

from synthdp.spec.model.fields import Model, Names, Real, key, wrong

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
                if share or name not in ("pairs", "targets", "estimands", "moments")
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
    """How the budget is split: relative weights that sum to 1.

    Graph search is paid only where the mode needs it.
    """

    measure: Part = key("for noisy tables of one column each", 0.3, default=0.2)
    pairs: Part = key("for the tables of `privacy.pairs`", 0.15, default=0.0)
    graph: Part = key(
        "for looking at the graph, in modes validate, learn and predict", 0.15, default=0.0
    )
    targets: Part = key(
        "for the stage that `synthesizer.targets` have of their own", 0.2, default=0.0
    )
    estimands: Part = key(
        "for `estimands`, in equal parts; 0.15 where shares are left out", 0.15, default=0.0
    )
    moments: Part = key(
        "for sums of all numbers and of their squares, by which means have intervals that narrow;"
        " 0.1 where shares are left out and noise leaves something of them",
        0.1,
        default=0.0,
    )
    train: Part = key(
        "for training the model by DP-SGD; mode predict does without it", 0.4, default=0.8
    )


class Cap(Model):
    """The most that all releases of this dataset id may spend together."""

    epsilon: Annotated[Real, Field(gt=0, le=1000), Unit("nats")] = key("most epsilon in all", 3.0)
    delta: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = key("most delta in all", 1e-4)


CAP = key(
    "cap on all releases; without one, nothing is refused",
    {"epsilon": 3.0, "delta": 1e-4},
    default=None,
)
LEDGER = key(
    "SQLAlchemy URL; a relative SQLite file is in the spec's folder; default:"
    " .synthdp/ledger.db beside the spec",
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
        "what neighbouring tables are: one unit more or less, or one unit replaced",
        "add_remove",
        default="add_remove",
    )


class Privacy(Budget):
    """The guarantee that is bought, and how its budget is split."""

    shares: Shares = key(
        "how the budget is split; default in mode predict: measure 0.2, graph 0.8, train 0; where a"
        " range leaves out its bins: measure 0.4, graph 0.6, train 0",
        {"measure": 0.2, "graph": 0.2, "train": 0.6},
        default=Shares(),
    )
    pairs: Annotated[
        tuple[Annotated[Names, Field(min_length=2, max_length=2)], ...], Field(max_length=1000)
    ] = key(
        "pairs of columns whose two-way tables are measured for shares.pairs (all pairs where none"
        " is named); rows are held to them, and the model starts from them where every arrow has"
        " one",
        [["capital-gain", "income"]],
        default=(),
    )
    cap: Cap | None = CAP
    ledger: str | None = LEDGER
