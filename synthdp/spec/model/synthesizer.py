"""`synthesizer`, `sampling` and `constraints`: the model and the rows that it writes."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Unit
from pydantic import AfterValidator, Field

from synthdp.spec.model.fields import Flag, Model, Names, Real, Whole, unique


class SynthesizerSettings(Model):
    """The causally consistent DP-VAE.

    Where they are left out, `latent`, `hidden`, `steps` and `batch` follow the declared rows,
    columns, graph and targets; the defaults here are those of a large table with a graph.
    """

    kind: Literal["causal_vae"] = Field(
        default="causal_vae", description="the only kind so far", examples=["causal_vae"]
    )
    latent: Annotated[Whole, Field(ge=1, le=256), Unit("dimensions")] = Field(
        default=2,
        description=(
            "dimensions of z; 4 where there is no graph, 1 beyond 400 columns and where nothing is"
            " trained"
        ),
        examples=[4],
    )
    hidden: Annotated[Whole, Field(ge=1, le=4096), Unit("units")] = Field(
        default=32,
        description=(
            "hidden units per column and in the encoder; 16 beyond 64 columns, 8 beyond 400,"
            " no fewer than a target's levels; 1 where nothing is trained"
        ),
        examples=[64],
    )
    steps: Annotated[Whole, Field(ge=1, le=1_000_000), Unit("steps")] = Field(
        default=800,
        description="DP-SGD steps; 300 below 10,000 rows, 200 beyond 400 columns",
        examples=[800],
    )
    batch: Annotated[Whole, Field(ge=1, le=1_000_000), Unit("rows")] = Field(
        default=1024,
        description=(
            "expected rows of a step, and so the sampling rate: a tenth of the declared rows"
            " below 5,120, 512 up to 26,000, then a 48th, at most 4,096"
        ),
        examples=[512],
    )
    sample: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] | None = Field(
        default=None,
        description=(
            "for many millions of rows: expected rows of a secret sample of the units, drawn"
            " once for all steps; default: all rows"
        ),
        examples=[1_000_000],
    )
    clip: Annotated[Real, Field(gt=0, le=1e6), Unit("gradient norm")] = Field(
        default=1.0, description="bound on a unit's gradient norm", examples=[0.5]
    )
    learning_rate: Annotated[Real, Field(gt=0, le=10)] = Field(
        default=0.009, description="step size of the optimiser", examples=[0.005]
    )
    ema: Annotated[Real, Field(ge=0, lt=1)] = Field(
        default=0.999, description="decay of the weight average; 0 turns it off", examples=[0.99]
    )
    checkpoint_every: Annotated[Whole, Field(ge=1), Unit("steps")] = Field(
        default=200, description="steps between checkpoints", examples=[500]
    )
    targets: Names = Field(
        default=(),
        description=(
            "columns that will be predicted: what they depend on is learned in a stage of its"
            " own, for shares.targets"
        ),
        examples=[["income"]],
    )


class Sampling(Model):
    """How the synthetic rows are drawn from the model: free of charge."""

    rows: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] | None = Field(
        default=None, description="rows to write; default: the declared number", examples=[10_000]
    )
    rake: Flag = Field(
        default=True,
        description="calibrate the model and its sample to the noisy marginals",
        examples=[False],
    )
    balance: Flag = Field(
        default=True,
        description=(
            "choose rows whose two-way tables are nearer the model's than independent draws are"
        ),
        examples=[False],
    )
    oversample: Annotated[Whole, Field(ge=1, le=64), Unit("draws")] = Field(
        default=4, description="draws per written row before raking", examples=[8]
    )
    even: Names = Field(
        default=(),
        description=(
            "columns drawn last, evenly over rows that are alike, as synthesizer.targets that"
            " lead to nothing always are"
        ),
        examples=[["income"]],
    )


Constraint = Annotated[str, Field(min_length=1, max_length=1000)]
Constraints = Annotated[tuple[Constraint, ...], Field(max_length=100), AfterValidator(unique)]
