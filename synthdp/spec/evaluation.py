"""`evaluation` and `attacks`: how the result is judged, for the steward only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from synthdp.spec.fields import Flag, Model, Names, Real, Whole, unique

ClassifierName = Literal["logistic", "boosted_trees", "random_forest", "knn", "linear_svc", "kernel_svc"]


class Evaluation(Model):
    """Judging on real rows: for the steward only, never bundled."""

    enabled: Flag = True
    holdout: Annotated[Real, Field(ge=0, lt=0.9)] = Field(default=0.2, description="chance of each unit to be kept out of the fit, as test rows")
    targets: Names = Field(default=(), description="columns that classifiers predict")
    classifiers: Annotated[tuple[ClassifierName, ...], Field(min_length=1), AfterValidator(unique)] = ("logistic", "boosted_trees", "random_forest")
    max_rows: Annotated[Whole, Field(ge=100)] = Field(default=20_000, description="most rows that classifiers see")
    triples: Annotated[Whole, Field(ge=0, le=10_000)] = Field(default=64, description="random 3-way tables that are compared")


class MembershipAttack(Model):
    """Shadow-model membership inference on a sub-sample; one synthetic set per model, split by model pair."""

    enabled: Flag = True
    rows: Annotated[Whole, Field(ge=20, le=100_000)] = Field(default=300, description="rows of each shadow model")
    pairs: Annotated[Whole, Field(ge=4, le=10_000)] = Field(default=40, description="model pairs (with / without the target)")
    steps: Annotated[Whole, Field(ge=1)] = Field(default=100, description="DP-SGD steps of each shadow model")


class Attacks(Model):
    membership: MembershipAttack = MembershipAttack()
