"""`graph`: what is known of the causes, and what a release does with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Unit
from pydantic import BeforeValidator, Field

from synthdp.spec.model.fields import Model, Name, Names, Real, Whole

MAX_PARENTS = 16
"""Most parents that mode learn gives a column."""


class Edge(Model):
    """Arrows from every name in `causes` to every name in `effects`; in YAML also "a, b -> c"."""

    causes: Annotated[Names, Field(min_length=1)] = Field(
        description="columns or groups that act", examples=[["age", "sex"]]
    )
    effects: Annotated[Names, Field(min_length=1)] = Field(
        description="columns or groups that they act on", examples=[["income"]]
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
"""Published algorithms that claim privacy they do not give. Benchmarks run them; a release does
not.
"""


def _sound(value: Any) -> Any:
    if isinstance(value, str) and value in UNSOUND:
        raise ValueError(f"{value} is not private as published: {UNSOUND[value]}")
    return value


class Graph(Model):
    """What is known of the causes, and what a release does with it."""

    mode: Literal["none", "given", "validate", "learn", "predict"] = Field(
        default="given",
        description=(
            "given: take the arrows; for shares.graph validate tests them, learn finds them,"
            " predict measures pairs of columns that depend on each other, with arrows that"
            " claim no cause; none: a plain VAE"
        ),
        examples=["validate"],
    )
    edges: Edges = Field(
        default=(),
        description="given arrows; in mode learn they are required arrows",
        examples=[["age, sex -> education", "education -> income"]],
    )
    forbidden: Edges = Field(
        default=(), description="arrows that cannot be", examples=[["income -> age"]]
    )
    tiers: tuple[Annotated[Names, Field(min_length=1)], ...] = Field(
        default=(),
        description="earliest first; no arrow goes back",
        examples=[[["age", "sex"], ["income"]]],
    )
    groups: dict[Name, Annotated[Names, Field(min_length=2)]] = Field(
        default={},
        description="columns that share one node of the graph",
        examples=[{"health": ["hlthg", "hlthf", "hlthp"]}],
    )
    latent: tuple[Annotated[Names, Field(min_length=2)], ...] = Field(
        default=(),
        description="columns with an unseen common cause",
        examples=[[["income", "health"]]],
    )
    unseen_causes: bool = Field(
        default=False,
        description=(
            "mode learn, measured_pc: columns may have unknown common causes; the graph says which"
            " links show a cause all the same, for no more budget"
        ),
        examples=[True],
    )
    algorithm: Annotated[
        Literal["measured_pc", "rcit_pc", "priv_pc", "svt_pc", "em_pc"], BeforeValidator(_sound)
    ] = Field(
        default="measured_pc",
        description="how mode learn searches; rcit_pc is for numbers",
        examples=["rcit_pc"],
    )
    orient_share: Annotated[Real, Field(ge=0, le=0.8), Unit("part of shares.graph")] = Field(
        default=0.0,
        description="rcit_pc: for the direction of numeric links that PC leaves open",
        examples=[0.3],
    )
    level: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = Field(
        default=0.05, description="family-wise level of the tests", examples=[0.01]
    )
    max_parents: Annotated[Whole, Field(ge=1, le=MAX_PARENTS), Unit("columns")] = Field(
        default=6,
        description=(
            "most parents that mode learn gives a column: the strongest, or of svt_pc and"
            " em_pc, which release no strength, the first"
        ),
        examples=[4],
    )
    on_refuted: Literal["flag", "drop", "fail"] = Field(
        default="flag",
        description="mode validate: tell a refuted arrow, take it out, or stop the run",
        examples=["fail"],
    )

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every given arrow as (cause, effect), in the order written, groups not expanded."""
        return tuple((a, b) for e in self.edges for b in e.effects for a in e.causes)
