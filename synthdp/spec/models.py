"""The whole YAML contract of a release: every field, its check, its unit and its default, in one place.

Everything here is public knowledge that the steward writes down; nothing is ever fitted to rows. All models
are frozen and refuse unknown keys. `synthdp.spec.load` turns YAML into a `ReleaseSpec` and reports every
mistake with line and column; checks that need two parts of the spec live in `synthdp.spec.checks`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

# A spreadsheet may run a cell that begins with one of these as a formula; some take the full-width forms for them.
FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Besides control characters: line separators, byte order marks, and what turns the reading direction of what follows.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|~[^/]*/|.*::?//")  # "C:/" is a drive


class Model(BaseModel):
    """Base of every part of the contract: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False, allow_inf_nan=False)


def _wrong(*problems: tuple[str, str]) -> PydanticCustomError:
    """Several mistakes of one model at once, as (field, message); field "" is the model itself."""
    return PydanticCustomError("wrong", "{text}", {"text": "; ".join(m for _, m in problems), "problems": problems})


def starts_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell of this text, also where it parts fields by semicolons; numbers are none."""
    return any(part.startswith(FORMULA_START) and not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", part) for part in text.split(";"))


def _category(value: str) -> str:
    if starts_formula(value):
        raise ValueError(f"category {value!r} starts like a spreadsheet formula; rename it, or prefix it with a letter")
    if CONTROL.search(value):
        raise ValueError(f"category {value!r} holds a control character or a line break; rename it")
    return value


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if twice:
        raise ValueError(f"listed more than once: {', '.join(twice)}")
    return values


def _text(value: Any) -> Any:
    """YAML writes codes such as 0, 1 and true without quotes; where a category or a name is wanted they are text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _real(value: Any) -> Any:
    return float(value) if isinstance(value, float) else value


def _instant(value: Any) -> Any:
    """Only ISO dates and times: pydantic would read a bare number as seconds since 1970."""
    if not isinstance(value, datetime) and not (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value)):
        raise ValueError(f"expected a date such as 2024-12-31, or 2024-12-31T23:59:59; got {value!r}")
    return value


def _without_zone(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise ValueError("times are without time zone: leave out the Z or the +hh:mm")
    return value


Whole = Annotated[int, Strict(), BeforeValidator(_whole)]
Real = Annotated[float, Strict(), BeforeValidator(_real)]
Flag = Annotated[bool, Strict()]
Instant = Annotated[
    datetime, BeforeValidator(_instant), AfterValidator(_without_zone), WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"})
]
Category = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float | bool), AfterValidator(_category)]
Categories = Annotated[tuple[Category, ...], Field(min_length=1, max_length=4096), AfterValidator(_unique)]
Name = Annotated[str, Field(min_length=1, max_length=128), BeforeValidator(_text, json_schema_input_type=str | int | float | bool)]
Names = Annotated[tuple[Name, ...], AfterValidator(_unique)]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


# --- dataset ---------------------------------------------------------------------------------------------


class CsvSource(Model):
    """A CSV file; `path` is relative to the spec's folder."""

    kind: Literal["csv"]
    path: str
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    missing_values: tuple[str, ...] = Field(default=("",), description="texts that stand for a missing value")


class ParquetSource(Model):
    """A Parquet file or folder; `path` is relative to the spec's folder."""

    kind: Literal["parquet"]
    path: str
    levels_only: Flag = Field(default=False, description="for tables larger than memory: keep a byte or two per value, and judge nothing")


class SqlSource(Model):
    """A query against a database whose URL (with its password) comes from an environment variable."""

    kind: Literal["sql"]
    url_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = Field(description="name of the environment variable that holds the URL")
    query: str


class BuiltinSource(Model):
    """A simulated table that ships with synthdp; see `synthdp.data.builtin`."""

    kind: Literal["builtin"]
    name: Literal["synthetic", "pain1000", "pain5000", "eedi"]


Source = Annotated[CsvSource | ParquetSource | SqlSource | BuiltinSource, Field(discriminator="kind")]


class RowUnit(Model):
    """Protects one row. Right only when no person has several rows; that is why it must be named."""

    kind: Literal["row"]
    meaning: str = Field(min_length=1, description="what one row is, e.g. 'one person'")


class IdUnit(Model):
    """Protects everything of one id: at most `max_rows` of its rows (a random choice) are used."""

    kind: Literal["id"]
    column: Name
    max_rows: Annotated[Whole, Field(ge=1, le=64)]
    meaning: str = Field(min_length=1, description="what one id is, e.g. 'one patient'")


PrivacyUnit = Annotated[RowUnit | IdUnit, Field(discriminator="kind")]


class Rows(Model):
    """Number of rows, as a declared constant; rates and batches come from it, never from the table."""

    kind: Literal["public", "approximate"]
    value: Annotated[Whole, Field(ge=1, le=2_000_000_000)]


class Dataset(Model):
    id: Slug = Field(description="key of the ledger: all releases of one table share it")
    title: str | None = None
    description: str | None = None
    licence: str | None = None
    citation: str | None = None
    source: Source
    privacy_unit: PrivacyUnit
    rows: Rows
    out_of_domain: Literal["refuse", "clamp"] = Field(default="refuse", description="what to do with values outside the declared domain")


# --- columns ---------------------------------------------------------------------------------------------


class ColumnBase(Model):
    missing: Flag = Field(default=False, description="whether values may be missing; missing is then a state of its own")
    description: str | None = None
    unit: str | None = None


class Categorical(ColumnBase):
    type: Literal["categorical"]
    categories: Categories


class Ordinal(ColumnBase):
    type: Literal["ordinal"]
    categories: Categories = Field(description="from lowest to highest")


class Boolean(ColumnBase):
    type: Literal["boolean"]
    false: Category = "false"
    true: Category = "true"

    @model_validator(mode="after")
    def _two_labels(self) -> Boolean:
        if self.false == self.true:
            raise _wrong(("true", f"labels of false and true are both {self.true!r}"))
        return self


class Integer(ColumnBase):
    """Whole numbers in [lower, upper]. Bins are half-open from each edge to the next; the last ends at `upper`."""

    type: Literal["integer"]
    lower: Whole
    upper: Whole
    bins: Annotated[Whole, Field(ge=1, le=1024)] = Field(default=32, description="number of equal-width bins")
    edges: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="left edges of the bins, instead of `bins`"
    )
    spikes: Annotated[tuple[Whole, ...], Field(max_length=64), AfterValidator(_unique)] = Field(
        default=(), description="values with a level of their own; zero inflation is [0]"
    )

    @model_validator(mode="after")
    def _ranges(self) -> Integer:
        return _check_range(self)


class Number(ColumnBase):
    """Real numbers in [lower, upper], written with `decimals` digits."""

    type: Literal["number"]
    lower: Real
    upper: Real
    bins: Annotated[Whole, Field(ge=1, le=1024)] = Field(default=32, description="number of equal-width bins")
    edges: Annotated[tuple[Real, ...], Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="left edges of the bins, instead of `bins`"
    )
    spikes: Annotated[tuple[Real, ...], Field(max_length=64), AfterValidator(_unique)] = Field(
        default=(), description="values with a level of their own; zero inflation is [0]"
    )
    decimals: Annotated[Whole, Field(ge=0, le=12)] = Field(default=4, description="digits written after the point")

    @model_validator(mode="after")
    def _ranges(self) -> Number:
        return _check_range(self)


class Datetime(ColumnBase):
    """Points in time in [lower, upper], without time zone, in whole `resolution` steps."""

    type: Literal["datetime"]
    lower: Instant
    upper: Instant
    bins: Annotated[Whole, Field(ge=1, le=1024)] = Field(default=32, description="number of equal-width bins")
    edges: Annotated[tuple[Instant, ...], Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="left edges of the bins, instead of `bins`"
    )
    spikes: Annotated[tuple[Instant, ...], Field(max_length=64), AfterValidator(_unique)] = Field(
        default=(), description="instants with a level of their own"
    )
    resolution: Literal["day", "hour", "minute", "second"] = "day"

    @model_validator(mode="after")
    def _ranges(self) -> Datetime:
        return _check_range(self)


_Ranged = TypeVar("_Ranged", "Integer", "Number", "Datetime")


def _check_range(column: _Ranged) -> _Ranged:
    lower, upper = column.lower, column.upper
    if not lower < upper:
        raise _wrong(("lower", f"lower {_shown(lower)} must be below upper {_shown(upper)}; a column of one value is categorical, with one category"))
    if isinstance(column, Number) and upper - lower > 1e300:
        raise _wrong(("upper", "the range is wider than 1e300, beyond what bins can be computed on; rescale the column"))
    problems = [*_spike_problems(column), *_edge_problems(column)]
    if problems:
        raise _wrong(*problems)
    return column


def _shown(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _spike_problems(column: _Ranged) -> Iterator[tuple[str, str]]:
    outside = [s for s in column.spikes if not column.lower <= s <= column.upper]
    if outside:
        yield "spikes", f"spikes must lie in [{_shown(column.lower)}, {_shown(column.upper)}]; outside: {', '.join(map(_shown, outside))}"


def _edge_problems(column: _Ranged) -> Iterator[tuple[str, str]]:
    lower, upper, edges = column.lower, column.upper, column.edges
    if edges is None:
        return
    if "bins" in column.model_fields_set:
        yield "bins", "give either bins or edges, not both"
    falls = [f"{_shown(b)} after {_shown(a)}" for a, b in itertools.pairwise(edges) if a >= b]
    if falls:
        yield "edges", f"edges must increase strictly; got {', '.join(falls)}"
    elif not (lower <= edges[0] and edges[-1] <= upper):
        yield "edges", f"edges must lie in [{_shown(lower)}, {_shown(upper)}]; got {_shown(edges[0])} to {_shown(edges[-1])}"
    elif edges[0] != lower and lower not in column.spikes:
        yield "edges", f"the first edge must be the lower bound {_shown(lower)}; got {_shown(edges[0])}"


Column = Annotated[Categorical | Ordinal | Boolean | Integer | Number | Datetime, Field(discriminator="type")]


# --- privacy ---------------------------------------------------------------------------------------------


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
            raise _wrong(("", f"shares must sum to 1, got {total:g} ({parts})"))
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


# --- graph -----------------------------------------------------------------------------------------------


class Edge(Model):
    """Arrows from every name in `causes` to every name in `effects`; in YAML also "a, b -> c"."""

    causes: Annotated[Names, Field(min_length=1)]
    effects: Annotated[Names, Field(min_length=1)]


def _arrow(value: Any) -> Any:
    if isinstance(value, dict | Edge):
        return value
    sides = value.split("->") if isinstance(value, str) else []
    if len(sides) != 2 or not all(s.strip() for s in sides):
        raise ValueError(f'expected "cause, cause -> effect", got {value!r}')
    return {"causes": [n.strip() for n in sides[0].split(",")], "effects": [n.strip() for n in sides[1].split(",")]}


Arrow = Annotated[str, Field(pattern=r"^.*\S.*->.*\S.*$", description="cause, cause -> effect, effect")]
Edges = tuple[Annotated[Edge, BeforeValidator(_arrow, json_schema_input_type=Edge | Arrow)], ...]


UNSOUND = {
    "priv_pc_published": "its sensitivity is false, its last pass is not charged and its total depends on the rows; use priv_pc",
    "svt_pc_published": "its sensitivity is false and its last pass is not charged; use svt_pc",
    "em_pc_published": "its separating sets are chosen without noise; use em_pc",
    "pcd": "it answers without noise where its decision cannot flip, which no epsilon allows; use rcit_pc",
}
"""Published algorithms that claim privacy they do not give. Benchmarks run them; a release does not."""


def _sound(value: Any) -> Any:
    if isinstance(value, str) and value in UNSOUND:
        raise ValueError(f"{value} is not private as published: {UNSOUND[value]}")
    return value


class Graph(Model):
    mode: Literal["none", "given", "validate", "learn"] = "given"
    edges: Edges = Field(default=(), description="given arrows; in mode learn they are required arrows")
    forbidden: Edges = Field(default=(), description="arrows that cannot be")
    tiers: tuple[Annotated[Names, Field(min_length=1)], ...] = Field(default=(), description="earliest first; no arrow goes back")
    groups: dict[Name, Annotated[Names, Field(min_length=2)]] = Field(default={}, description="columns that share one node of the graph")
    latent: tuple[Annotated[Names, Field(min_length=2)], ...] = Field(default=(), description="columns with an unseen common cause")
    algorithm: Annotated[Literal["measured_pc", "rcit_pc", "priv_pc", "svt_pc", "em_pc"], BeforeValidator(_sound)] = Field(
        default="measured_pc", description="how mode learn searches"
    )
    orient_share: Annotated[Real, Field(ge=0, le=0.8)] = Field(
        default=0.0, description="algorithm rcit_pc: part of the search's budget for the direction of numeric links that PC leaves open"
    )
    level: Annotated[Real, Field(gt=0, lt=1)] = Field(default=0.05, description="family-wise level of the tests")
    max_parents: Annotated[Whole, Field(ge=1, le=16)] = Field(
        default=6,
        description="most parents that mode learn gives a column: the strongest; svt_pc and em_pc release no strength and keep the first columns",
    )
    on_refuted: Literal["flag", "drop", "fail"] = Field(default="flag", description="mode validate: what to do with a refuted arrow")

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every given arrow as (cause, effect), in the order written, groups not expanded."""
        return tuple((a, b) for e in self.edges for b in e.effects for a in e.causes)


# --- the rest --------------------------------------------------------------------------------------------


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
Constraints = Annotated[tuple[Constraint, ...], Field(max_length=100), AfterValidator(_unique)]


ClassifierName = Literal["logistic", "boosted_trees", "random_forest", "knn", "linear_svc", "kernel_svc"]


class Effect(Model):
    """An average effect that is estimated from real and from synthetic rows: of what `treated` says of one column, on `outcome`."""

    treated: Annotated[str, Field(min_length=1, max_length=1000)] = Field(description="expression over one column, e.g. lncoins == 0")
    control: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="expression over the same column for whom they are compared with; default: all other rows"
    )
    outcome: Name = Field(description="column whose mean is compared: a number, or categories by their position")
    adjust: Names | None = Field(default=None, description="columns held fixed; default: the treatment's causes in the graph")


class Evaluation(Model):
    """Judging on real rows: for the steward only, never bundled."""

    enabled: Flag = True
    holdout: Annotated[Real, Field(ge=0, lt=0.9)] = Field(default=0.2, description="chance of each unit to be kept out of the fit, as test rows")
    targets: Names = Field(default=(), description="columns that classifiers predict")
    classifiers: Annotated[tuple[ClassifierName, ...], Field(min_length=1), AfterValidator(_unique)] = ("logistic", "boosted_trees", "random_forest")
    max_rows: Annotated[Whole, Field(ge=100)] = Field(default=20_000, description="most rows that classifiers see")
    triples: Annotated[Whole, Field(ge=0, le=10_000)] = Field(default=64, description="random 3-way tables that are compared")
    random_targets: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=0, description="the long protocol: so many columns, drawn by a public seed, are each predicted by five classifiers, or by regressors"
    )
    subgroups: Names = Field(default=(), description="columns whose categories are judged as groups of their own; default: three with few categories")
    effects: Annotated[tuple[Effect, ...], Field(max_length=20)] = Field(default=(), description="average treatment effects that are compared")


class MembershipAttack(Model):
    """Shadow-model membership inference on a sub-sample; one synthetic set per model, split by model pair."""

    enabled: Flag = True
    rows: Annotated[Whole, Field(ge=20, le=100_000)] = Field(default=300, description="rows of each shadow model")
    pairs: Annotated[Whole, Field(ge=4, le=10_000)] = Field(default=40, description="model pairs (with / without the target)")
    steps: Annotated[Whole, Field(ge=1)] = Field(default=100, description="DP-SGD steps of each shadow model")


class Attacks(Model):
    membership: MembershipAttack = MembershipAttack()


PUBLIC_METRICS = ("tv1_noisy",)
CONFIDENTIAL_METRICS = ("tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "attack_advantage_upper", "attack_auc")


class Gate(Model):
    """A bound that must hold or the bundle is withheld.

    A gate on a figure computed on real rows makes publishing itself depend on rows: it must be opted into
    with `outside_guarantee: true`, and the certificate then says so.
    """

    metric: Literal["tv1_noisy", "tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "attack_advantage_upper", "attack_auc"]
    at_most: Real | None = None
    at_least: Real | None = None
    outside_guarantee: Flag = False

    @model_validator(mode="after")
    def _one_bound(self) -> Gate:
        if (self.at_most is None) == (self.at_least is None):
            raise _wrong(("", "give exactly one of at_most, at_least"))
        if self.metric in CONFIDENTIAL_METRICS and not self.outside_guarantee:
            raise _wrong(
                (
                    "metric",
                    f"{self.metric} is computed on real rows, so a gate on it is outside the guarantee; "
                    f"say outside_guarantee: true to accept that, or use one of {', '.join(PUBLIC_METRICS)}",
                )
            )
        return self


class Tracking(Model):
    enabled: Flag = True
    uri: str | None = Field(default=None, description="MLflow tracking URI; default: mlflow.db beside the spec")
    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "synthdp"


class Compute(Model):
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Annotated[Whole, Field(ge=1, le=1024)] | None = Field(default=None, description="default: all cores")
    backend: Literal["loky", "dask"] = Field(default="loky", description="where fleets of shadow models run")
    address: str | None = Field(default=None, description="address of the Dask scheduler")

    @model_validator(mode="after")
    def _address(self) -> Compute:
        if (self.backend == "dask") != (self.address is not None):
            raise _wrong(("", "backend dask needs an address, and only that backend takes one"))
        return self


class Curator(Model):
    """Who publishes the release, in the words of the OpenDP Deployments Registry."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    type: Literal["Government", "Industry", "Nonprofit"]


class Publication(Model):
    """What a public register asks about a release and only its publisher knows.

    With it the bundle holds `privacy/deployment.yaml`, a tier 3 record for the OpenDP Deployments Registry.
    """

    curators: Annotated[tuple[Curator, ...], Field(min_length=1, max_length=20)]
    intended_use: Annotated[str, Field(min_length=1)]
    region: Annotated[str, Field(min_length=1)] = Field(description="the region that the data describe")
    sector: Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None = None
    justification: str | None = Field(default=None, description="how epsilon, delta and the settings were chosen, and why")
    authors: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), description="who fills in the record; default: the curators")


class Signing(Model):
    """Who signs the bundle. The key itself is never named in a spec, only the variable that says where it lies."""

    key_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = Field(
        default="SYNTHDP_SIGNING_KEY", description="name of the environment variable with the path of the private key (see `synthdp keygen`)"
    )
    required: Flag = Field(default=False, description="refuse to release without a key; otherwise the bundle is then unsigned")


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
