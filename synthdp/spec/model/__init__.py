"""The whole YAML contract of a release: each file has a section's fields, units and defaults.

Everything here is public knowledge that the steward writes down; nothing is ever fitted to rows.
All models are frozen and refuse unknown keys. `synthdp.spec.load.loader` turns YAML into a
`ReleaseSpec` and reports every mistake with line and column. `synthdp.spec.checks.checks`
lists the checks that need two parts of the spec.

Import models from here; the files behind it are for reading and changing.
"""

# ruff: noqa: F403, F405 (the models of all sections are imported from here)

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from synthdp.spec.model.columns import *
from synthdp.spec.model.dataset import *
from synthdp.spec.model.evaluation import *
from synthdp.spec.model.fields import *
from synthdp.spec.model.graph import *
from synthdp.spec.model.linked import *

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


class ReleaseSpec(Model):
    """One release of one table."""

    synthdp: Literal[1] = key("version of this contract", 1)
    dataset: Dataset = key("the table, and what of it is protected", _DATASET)
    columns: Annotated[dict[Name, Column], Field(min_length=1)] = key(
        "what each column may hold, by its name", _COLUMNS
    )
    privacy: Privacy = key("the budget", {"epsilon": 1.0, "delta": 1e-6})
    prior: PriorSource | None = key(
        "public rows that the model starts from",
        {"source": "public.csv", "licence": "CC0-1.0", "statement": "Census of 1990, public"},
        default=None,
    )
    graph: Graph = key(
        "what is known of the causes",
        {"mode": "given", "edges": ["age, sex -> education", "age, education -> income"]},
        default=Graph(mode="none"),
    )
    estimands: Annotated[tuple[Estimand, ...], Field(max_length=50)] = key(
        "numbers that are paid for, with intervals in the bundle",
        [{"kind": "question", "ask": "mean(income) by sex"}],
        default=(),
    )
    synthesizer: SynthesizerSettings = key(
        "the model", {"steps": 800}, default=SynthesizerSettings()
    )
    sampling: Sampling = key("the rows that it writes", {"rows": 10_000}, default=Sampling())
    constraints: Constraints = key(
        "what every synthetic row must fulfil; real rows are not held to it",
        ["age >= 16"],
        default=(),
    )
    evaluation: Evaluation = key(
        "how the result is judged on real rows, for the steward",
        {"targets": ["income"]},
        default=Evaluation(),
    )
    attacks: Attacks = key(
        "how the result is attacked, for the steward",
        {"membership": {"rows": 200, "pairs": 24}},
        default=Attacks(),
    )
    gates: tuple[Gate, ...] = key(
        "bounds that must hold, or the bundle is withheld",
        [{"metric": "tv1_noisy", "at_most": 0.05}],
        default=(),
    )
    tracking: Tracking = key("where the release is logged", {"enabled": False}, default=Tracking())
    compute: Compute = key("where the work is done", {"threads": 2}, default=Compute())
    publication: Publication | None = PUBLICATION
    waves: Waves | None = key(
        "which wave this is of a table that is collected again and again",
        {"name": "2027", "people": "same"},
        default=None,
    )
    signing: Signing = key("who vouches for the bundle", {"required": False}, default=Signing())
    maps: dict[Name, ValueMap] = key(
        "maps of texts to categories, for columns that name them",
        {"status": {"+": "positive", "-": "negative"}},
        default={},
    )

    @property
    def pays_for_sums(self) -> bool:
        """Whether sums of rows are measured beside tables: for estimands, or of all numbers."""
        return bool(self.estimands) or self.privacy.shares.moments > 0

    @property
    def modelled(self) -> dict[str, Column]:
        """The columns that are read and modelled: all but those that are computed from others."""
        return {name: column for name, column in self.columns.items() if derived_of(column) is None}

    def cells(self, names: Iterable[str]) -> int:
        """Cells of the table over those of `names` that are columns."""
        return math.prod(self.columns[n].level_count for n in names if n in self.columns)
