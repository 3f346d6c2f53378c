"""The whole YAML contract of a release: each file has a section's fields, units and defaults.

Everything here is public knowledge that the steward writes down; nothing is ever fitted to rows.
All models are frozen and refuse unknown keys. `synthdp.spec.load.loader` turns YAML into a
`ReleaseSpec` and reports every mistake with line and column. `synthdp.spec.checks.checks`
lists the checks that need two parts of the spec.

Import models from here; the files behind it are for reading and changing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from synthdp.spec.model.columns.types import (
    COLUMN_TYPES,
    RESOLUTION_SECONDS,
    Boolean,
    Categorical,
    Column,
    ColumnBase,
    Datetime,
    Integer,
    Number,
    Ordinal,
    Ranged,
    category_types,
    derived_of,
)
from synthdp.spec.model.dataset import (
    BuiltinSource,
    ChosenColumns,
    Compute,
    CsvSource,
    Curator,
    DataFrameSource,
    Dataset,
    DeclaredRows,
    DomainFrom,
    IdUnit,
    ParquetSource,
    PrivacyUnit,
    Publication,
    RowUnit,
    Signing,
    Source,
    SqlSource,
    Tracking,
)
from synthdp.spec.model.evaluation import (
    ATTACK_FIGURES,
    ATTACK_METRICS,
    CONFIDENTIAL_METRICS,
    DP_METRICS,
    PUBLIC_METRICS,
    AskedEstimand,
    Attacks,
    ClassifierName,
    Effect,
    EffectEstimand,
    Estimand,
    Evaluation,
    Gate,
    MembershipAttack,
    RegressionEstimand,
    TableEstimand,
)
from synthdp.spec.model.fields import (
    ADDRESS,
    CONTROL,
    FORMULA_START,
    Categories,
    Category,
    Flag,
    Instant,
    Model,
    Name,
    Names,
    Real,
    Slug,
    ValueMap,
    Whole,
    starts_formula,
)
from synthdp.spec.model.graph import (
    UNSOUND,
    Constraint,
    Constraints,
    Edge,
    Edges,
    Graph,
    Sampling,
    SynthesizerSettings,
)
from synthdp.spec.model.privacy import Cap, Privacy, Shares

__all__ = [
    "ADDRESS",
    "ATTACK_FIGURES",
    "ATTACK_METRICS",
    "COLUMN_TYPES",
    "CONFIDENTIAL_METRICS",
    "CONTROL",
    "DP_METRICS",
    "FORMULA_START",
    "PUBLIC_METRICS",
    "RESOLUTION_SECONDS",
    "UNSOUND",
    "AskedEstimand",
    "Attacks",
    "Boolean",
    "BuiltinSource",
    "Cap",
    "Categorical",
    "Categories",
    "Category",
    "ChosenColumns",
    "ClassifierName",
    "Column",
    "ColumnBase",
    "Compute",
    "Constraint",
    "Constraints",
    "CsvSource",
    "Curator",
    "DataFrameSource",
    "Dataset",
    "Datetime",
    "DeclaredRows",
    "DomainFrom",
    "Edge",
    "Edges",
    "Effect",
    "EffectEstimand",
    "Estimand",
    "Evaluation",
    "Flag",
    "Gate",
    "Graph",
    "IdUnit",
    "Instant",
    "Integer",
    "MembershipAttack",
    "Model",
    "Name",
    "Names",
    "Number",
    "Ordinal",
    "ParquetSource",
    "Privacy",
    "PrivacyUnit",
    "Publication",
    "Ranged",
    "Real",
    "RegressionEstimand",
    "ReleaseSpec",
    "RowUnit",
    "Sampling",
    "Shares",
    "Signing",
    "Slug",
    "Source",
    "SqlSource",
    "SynthesizerSettings",
    "TableEstimand",
    "Tracking",
    "ValueMap",
    "Whole",
    "category_types",
    "derived_of",
    "starts_formula",
]


_DATASET = {
    "id": "people",
    "source": {"kind": "csv", "path": "people.csv"},
    "privacy_unit": {"kind": "row", "meaning": "one person"},
    "rows": {"kind": "approximate", "value": 20_000},
}
_COLUMNS = {
    "age": {"type": "integer", "lower": 0, "upper": 100, "unit": "years"},
    "sex": {"type": "categorical", "categories": ["Female", "Male"]},
    "education": {
        "type": "ordinal",
        "categories": ["school", "college", "university"],
        "missing": True,
    },
    "income": {"type": "number", "lower": 0.0, "upper": 200_000.0, "spikes": [0.0], "decimals": 0},
}
_PUBLICATION = {
    "curators": [{"name": "Office of Statistics", "type": "Government"}],
    "intended_use": "teaching, and trying out methods",
    "region": "United States of America",
}


class ReleaseSpec(Model):
    """One release of one table."""

    synthdp: Literal[1] = Field(description="version of this contract", examples=[1])
    dataset: Dataset = Field(
        description="the table, and what of it is protected", examples=[_DATASET]
    )
    columns: Annotated[dict[Name, Column], Field(min_length=1)] = Field(
        description="what each column may hold, by its name", examples=[_COLUMNS]
    )
    privacy: Privacy = Field(description="the budget", examples=[{"epsilon": 1.0, "delta": 1e-6}])
    graph: Graph = Field(
        default=Graph(mode="none"),
        description="what is known of the causes; without this section there is no graph",
        examples=[
            {"mode": "given", "edges": ["age, sex -> education", "age, education -> income"]}
        ],
    )
    estimands: Annotated[tuple[Estimand, ...], Field(max_length=50)] = Field(
        default=(),
        description="numbers that privacy.shares.estimands pays for, with intervals in the bundle",
        examples=[[{"kind": "question", "ask": "mean(income) by sex"}]],
    )
    synthesizer: SynthesizerSettings = Field(
        default=SynthesizerSettings(), description="the model", examples=[{"steps": 800}]
    )
    sampling: Sampling = Field(
        default=Sampling(), description="the rows that it writes", examples=[{"rows": 10_000}]
    )
    constraints: Constraints = Field(
        default=(),
        description=(
            "what every synthetic row must fulfil, e.g. `marital-status` == 'Never-married'; real"
            " rows are not held to it"
        ),
        examples=[["age >= 16"]],
    )
    evaluation: Evaluation = Field(
        default=Evaluation(),
        description="how the result is judged on real rows, for the steward",
        examples=[{"targets": ["income"]}],
    )
    attacks: Attacks = Field(
        default=Attacks(),
        description="how the result is attacked, for the steward",
        examples=[{"membership": {"rows": 200, "pairs": 24}}],
    )
    gates: tuple[Gate, ...] = Field(
        default=(),
        description="bounds that must hold, or the bundle is withheld",
        examples=[[{"metric": "tv1_noisy", "at_most": 0.05}]],
    )
    tracking: Tracking = Field(
        default=Tracking(), description="where the release is logged", examples=[{"enabled": False}]
    )
    compute: Compute = Field(
        default=Compute(), description="where the work is done", examples=[{"threads": 2}]
    )
    publication: Publication | None = Field(
        default=None,
        description="what a public register asks about the release",
        examples=[_PUBLICATION],
    )
    signing: Signing = Field(
        default=Signing(), description="who vouches for the bundle", examples=[{"required": False}]
    )
    maps: dict[Name, ValueMap] = Field(
        default={},
        description="maps from texts of the source to categories, for columns that name them",
        examples=[{"status": {"+": "positive", "-": "negative"}}],
    )

    @property
    def modelled(self) -> dict[str, Column]:
        """The columns that are read and modelled: all but those that are computed from others."""
        return {name: column for name, column in self.columns.items() if derived_of(column) is None}
