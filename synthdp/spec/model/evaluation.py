"""`evaluation` and `attacks`: how the result is judged, for the steward only."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Unit
from pydantic import AfterValidator, Field

from synthdp.spec.model.fields import Flag, Model, Name, Names, Real, Whole, renamed, unique

DISCLOSURE_SHARE = 0.05  # of the budget, where a spec that has DP scores does not say
ClassifierName = Literal[
    "logistic", "boosted_trees", "random_forest", "knn", "linear_svc", "kernel_svc"
]


class Effect(Model):
    """An average effect of a treatment, estimated from real and from synthetic rows."""

    treated: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="expression over one column: who is compared",
        examples=["lncoins == 0"],
    )
    control: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="expression over the same column: with whom; default: all other rows",
        examples=["lncoins > 4"],
    )
    outcome: Name = Field(
        description="column whose mean is compared: a number, or categories by their position",
        examples=["mdvis"],
    )
    adjust: Names | None = Field(
        default=None,
        description="columns held fixed; default: the treatment's causes in the graph",
        examples=[["disea"]],
    )


class Evaluation(Model):
    """Evaluation on real rows, for the steward only.

    Its scores are never bundled, except for headline scores that are paid for.
    """

    enabled: Flag = Field(default=True, description="whether to judge at all", examples=[False])
    holdout: Annotated[Real, Field(ge=0, lt=0.9), Unit("probability")] = Field(
        default=0.2,
        description="chance of a unit to be kept out of the fit, for tests",
        examples=[0.1],
    )
    disclosure: Annotated[Literal["confidential", "private"], renamed({"charged": "private"})] = (
        Field(
            default="confidential",
            description=(
                "whether all figures stay with the steward, or headline scores are counted with"
                " noise, paid for and published"
            ),
            examples=["private"],
        )
    )
    disclosure_share: Annotated[Real, Field(ge=0, lt=1), Unit("part of the budget")] | None = Field(
        default=None,
        description=(
            "disclosure private: what the scores cost; privacy.shares split the rest. Default:"
            f" {DISCLOSURE_SHARE:g}"
        ),
        examples=[0.1],
    )
    targets: Names = Field(
        default=(),
        description="columns that classifiers predict; mode predict draws them last",
        examples=[["income"]],
    )
    classifiers: Annotated[
        tuple[ClassifierName, ...], Field(min_length=1), AfterValidator(unique)
    ] = Field(
        default=("logistic", "boosted_trees", "random_forest"),
        description="what predicts them, trained on synthetic and on real rows",
        examples=[["logistic", "knn"]],
    )
    max_rows: Annotated[Whole, Field(ge=100), Unit("rows")] = Field(
        default=20_000,
        description=(
            "most rows that classifiers see; outside memory (compute.engine), most rows that"
            " are judged"
        ),
        examples=[5000],
    )
    triples: Annotated[Whole, Field(ge=0, le=10_000), Unit("tables")] = Field(
        default=64, description="random 3-way tables that are compared", examples=[16]
    )
    random_targets: Annotated[Whole, Field(ge=0, le=1000), Unit("columns")] = Field(
        default=0,
        description=(
            "the long protocol: so many columns, drawn by a public seed, are predicted by"
            " five classifiers or regressors"
        ),
        examples=[20],
    )
    subgroups: Names = Field(
        default=(),
        description=(
            "columns whose categories are judged as groups; default: three with few categories"
        ),
        examples=[["sex"]],
    )
    effects: Annotated[tuple[Effect, ...], Field(max_length=20)] = Field(
        default=(),
        description="average treatment effects that are compared",
        examples=[[{"treated": "lncoins == 0", "outcome": "mdvis"}]],
    )

    @property
    def held_out(self) -> float:
        """The chance of each unit to be kept out of the fit: none is where nothing is judged."""
        return self.holdout if self.enabled else 0.0

    @property
    def dp_scores(self) -> bool:
        """Whether headline scores are paid for and published."""
        return self.enabled and self.disclosure == "private"

    @property
    def dp_share(self) -> float:
        """The part of the whole budget that the scores get."""
        if not self.dp_scores:
            return 0.0
        return DISCLOSURE_SHARE if self.disclosure_share is None else self.disclosure_share


class MembershipAttack(Model):
    """Shadow-model membership inference on a sub-sample.

    Each model gives one synthetic set; sets are split by pair.
    """

    enabled: Flag = Field(default=True, description="whether to attack at all", examples=[False])
    rows: Annotated[Whole, Field(ge=20, le=100_000), Unit("rows")] = Field(
        default=300, description="rows of each shadow model", examples=[200]
    )
    pairs: Annotated[Whole, Field(ge=4, le=10_000), Unit("pairs of models")] = Field(
        default=40, description="model pairs (with / without the target)", examples=[24]
    )
    steps: Annotated[Whole, Field(ge=1), Unit("steps")] = Field(
        default=100, description="DP-SGD steps of each shadow model", examples=[60]
    )


class Attacks(Model):
    """Attacks on the release, for the steward only: a sanity check, no proof."""

    membership: MembershipAttack = Field(
        default=MembershipAttack(),
        description="membership inference with shadow models",
        examples=[{"rows": 200, "pairs": 24, "steps": 60}],
    )
