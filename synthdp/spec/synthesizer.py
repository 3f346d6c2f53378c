"""`synthesizer`, `sampling` and `constraints`: the model that is trained, and the rows that it writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from synthdp.spec.fields import Flag, Model, Names, Real, Whole, unique


class Synthesizer(Model):
    """The causally consistent DP-VAE. What is not set follows public rules of rows, columns and epsilon."""

    kind: Literal["causal_vae"] = "causal_vae"
    latent: Annotated[Whole, Field(ge=1, le=256)] = Field(default=2, description="dimensions of z; more pay where there is no graph")
    hidden: Annotated[Whole, Field(ge=1, le=4096)] = Field(default=32, description="hidden units per column and in the encoder")
    steps: Annotated[Whole, Field(ge=1, le=1_000_000)] = Field(default=1000, description="DP-SGD steps")
    batch: Annotated[Whole, Field(ge=1, le=1_000_000)] = Field(default=1024, description="expected batch; the sampling rate is batch / declared rows")
    clip: Annotated[Real, Field(gt=0, le=1e6)] = Field(default=1.0, description="bound on a unit's gradient norm")
    learning_rate: Annotated[Real, Field(gt=0, le=10)] = 0.009
    ema: Annotated[Real, Field(ge=0, lt=1)] = Field(default=0.999, description="decay of the weight average; 0 turns it off")
    checkpoint_every: Annotated[Whole, Field(ge=1)] = Field(default=200, description="steps between checkpoints")
    targets: Names = Field(
        default=(), description="columns that will be predicted: what they depend on is learned in a stage of its own, for shares.targets"
    )


class Sampling(Model):
    rows: Annotated[Whole, Field(ge=1, le=2_000_000_000)] | None = Field(default=None, description="rows to write; default: the declared number")
    rake: Flag = Field(default=True, description="calibrate the model and its sample to the noisy marginals")
    balance: Flag = Field(default=True, description="choose rows whose two-way tables are nearer the model's than independent draws are")
    oversample: Annotated[Whole, Field(ge=1, le=64)] = Field(default=4, description="draws per written row before raking")


Constraint = Annotated[str, Field(min_length=1, max_length=1000)]
Constraints = Annotated[tuple[Constraint, ...], Field(max_length=100), AfterValidator(unique)]
