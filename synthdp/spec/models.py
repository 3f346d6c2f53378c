"""The whole YAML contract of a release: one section of the spec a file, each with its fields, checks, units and defaults.

Everything here is public knowledge that the steward writes down; nothing is ever fitted to rows. All models
are frozen and refuse unknown keys. `synthdp.spec.load` turns YAML into a `ReleaseSpec` and reports every
mistake with line and column; checks that need two parts of the spec live in `synthdp.spec.checks`.

Import models from here; the files behind it are for reading and changing:

    dataset.py      dataset                             synthesizer.py  synthesizer, sampling, constraints
    columns.py      columns                             evaluation.py   evaluation, attacks
    privacy.py      privacy                             gates.py        gates, and which metrics they may bound
    graph.py        graph                               running.py      tracking, compute
    fields.py       what all of them are made of        publication.py  publication, signing
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from synthdp.spec.columns import Boolean, Categorical, Column, ColumnBase, Datetime, Integer, Number, Ordinal
from synthdp.spec.dataset import BuiltinSource, CsvSource, Dataset, IdUnit, ParquetSource, PrivacyUnit, Rows, RowUnit, Source, SqlSource
from synthdp.spec.evaluation import Attacks, ClassifierName, Evaluation, MembershipAttack
from synthdp.spec.fields import (
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
    Whole,
    starts_formula,
)
from synthdp.spec.gates import CONFIDENTIAL_METRICS, PUBLIC_METRICS, Gate
from synthdp.spec.graph import UNSOUND, Edge, Edges, Graph
from synthdp.spec.privacy import Cap, Privacy, Shares
from synthdp.spec.publication import Curator, Publication, Signing
from synthdp.spec.running import Compute, Tracking
from synthdp.spec.synthesizer import Constraint, Constraints, Sampling, Synthesizer

__all__ = [
    "ADDRESS",
    "CONFIDENTIAL_METRICS",
    "CONTROL",
    "FORMULA_START",
    "PUBLIC_METRICS",
    "UNSOUND",
    "Attacks",
    "Boolean",
    "BuiltinSource",
    "Cap",
    "Categorical",
    "Categories",
    "Category",
    "ClassifierName",
    "Column",
    "ColumnBase",
    "Compute",
    "Constraint",
    "Constraints",
    "CsvSource",
    "Curator",
    "Dataset",
    "Datetime",
    "Edge",
    "Edges",
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
    "Real",
    "ReleaseSpec",
    "RowUnit",
    "Rows",
    "Sampling",
    "Shares",
    "Signing",
    "Slug",
    "Source",
    "SqlSource",
    "Synthesizer",
    "Tracking",
    "Whole",
    "starts_formula",
]


class ReleaseSpec(Model):
    """One release of one table."""

    synthdp: Literal[1] = Field(description="version of this contract")
    dataset: Dataset
    columns: Annotated[dict[Name, Column], Field(min_length=1)]
    privacy: Privacy
    graph: Graph = Graph(mode="none")
    synthesizer: Synthesizer = Synthesizer()
    sampling: Sampling = Sampling()
    constraints: Constraints = Field(
        default=(),
        description="what every synthetic row must fulfil, e.g. age >= 18 or `marital-status` == 'Never-married'; real rows are not held to it",
    )
    evaluation: Evaluation = Evaluation()
    attacks: Attacks = Attacks()
    gates: tuple[Gate, ...] = ()
    tracking: Tracking = Tracking()
    compute: Compute = Compute()
    publication: Publication | None = None
    signing: Signing = Signing()
