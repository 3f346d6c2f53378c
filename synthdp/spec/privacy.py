"""`privacy`: the budget of a release, how it is split, and the cap of its dataset."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from synthdp.spec.fields import Model, Names, Real, wrong


class Shares(Model):
    """How the budget is split: relative weights that sum to 1. Graph search is paid only where the mode needs it."""

    measure: Annotated[Real, Field(ge=0, le=1)] = 0.2
    pairs: Annotated[Real, Field(ge=0, le=1)] = 0.0
    graph: Annotated[Real, Field(ge=0, le=1)] = 0.0
    targets: Annotated[Real, Field(ge=0, le=1)] = 0.0
    train: Annotated[Real, Field(ge=0, le=1)] = 0.8

    @model_validator(mode="after")
    def _sum(self) -> Shares:
        total = self.measure + self.pairs + self.graph + self.targets + self.train
        if abs(total - 1) > 1e-9:
            parts = " + ".join(f"{name} {share:g}" for name, share in self.model_dump().items() if share or name not in ("pairs", "targets"))
            raise wrong(("", f"shares must sum to 1, got {total:g} ({parts})"))
        return self


class Cap(Model):
    """The most that all releases of this dataset id may spend together."""

    epsilon: Annotated[Real, Field(gt=0, le=1000)]
    delta: Annotated[Real, Field(gt=0, lt=1)]


class Privacy(Model):
    # Below these the accountant's grid and tails no longer tell one budget from another.
    epsilon: Annotated[Real, Field(ge=0.01, le=100)] = Field(description="total for everything in the run")
    delta: Annotated[Real, Field(ge=1e-12, lt=1)] = Field(description="total for everything in the run; below 1 / rows")
    adjacency: Literal["add_remove", "replace_one"] = Field(default="add_remove", description="what neighbouring tables are")
    shares: Shares = Shares()
    pairs: Annotated[tuple[Annotated[Names, Field(min_length=2, max_length=2)], ...], Field(max_length=1000)] = Field(
        default=(), description="pairs of columns whose two-way tables are measured too, for shares.pairs; the released rows are held to them"
    )
    cap: Cap | None = None
    ledger: str | None = Field(default=None, description="SQLAlchemy URL; default: .synthdp/ledger.db beside the spec")
