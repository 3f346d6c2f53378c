"""`dataset`: where the rows lie, what is protected, and how many there are; and its `waves`.

And what is about the run: `tracking`, `compute`, `publication` and `signing`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Unit
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from synthdp.spec.model.fields import (
    AS_TEXT,
    Flag,
    Model,
    Name,
    Real,
    Slug,
    Whole,
    key,
    refused,
    unique,
    wrong,
)

SourceName = Annotated[str, Field(max_length=1000), AS_TEXT]
"""The name of a column in the source: any text, for it need not be one that is released."""


class ChosenColumns(Model):
    """Which columns of a source are read, and under which names.

    Left out of what is published: only the steward needs the names.
    """

    drop: Annotated[tuple[SourceName, ...], AfterValidator(unique)] = key(
        "columns that are not read; all others must be declared",
        ["name", "address"],
        default=(),
    )
    rename: dict[SourceName, Name] = key(
        "columns, and their names in the spec", {"Q12_a": "smoker"}, default={}
    )


class CsvSource(ChosenColumns):
    """In UTF-8; the first line names the columns, and no field contains a line break."""

    kind: Literal["csv"] = key("a CSV file", "csv")
    path: str = key("the file, relative to the spec's folder", "data/people.csv")
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = key(
        "what parts the fields of a line", ";", default=","
    )
    decimal: Literal[".", ","] = key("what stands before the decimals of numbers", ",", default=".")
    missing_values: tuple[str, ...] = key("texts for a missing value", ["", "NA"], default=("",))


class ParquetSource(ChosenColumns):
    """Parquet files."""

    kind: Literal["parquet"] = key("Parquet", "parquet")
    path: str = key(
        "a file, a folder or a pattern, relative to the spec's folder, or an s3://, gs:// or"
        " https:// address, with keys in the environment",
        "data/people.parquet",
    )
    levels_only: Flag = key(
        "keep a byte or two per value, and judge nothing",
        True,
        default=False,
    )


class SqlSource(Model):
    """A query to a database."""

    kind: Literal["sql"] = key("a query against a database", "sql")
    url_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = key(
        "environment variable with the URL; a relative SQLite file is in the spec's folder",
        "PEOPLE_DATABASE_URL",
    )
    query: str = key(
        "one SELECT that makes one row of each stored row: no GROUP BY, DISTINCT, LIMIT,"
        " aggregates, window functions, set operations or random values",
        "SELECT age, sex, income FROM people",
    )


class BuiltinSource(Model):
    """A simulated table, to try things on."""

    kind: Literal["builtin"] = key("a simulated table that ships with synthdp", "builtin")
    name: Literal["synthetic", "pain1000", "pain5000", "eedi"] = key("which one", "pain1000")


class DataFrameSource(ChosenColumns):
    """A pandas DataFrame, given with `synthdp.Spec.release(df)`."""

    kind: Literal["dataframe"] = key("a pandas DataFrame, given from Python", "dataframe")


Source = Annotated[
    CsvSource | ParquetSource | SqlSource | BuiltinSource | DataFrameSource,
    Field(discriminator="kind"),
]


class RowUnit(Model):
    """Protects one row: right only when no person has several."""

    max_rows: ClassVar[int] = 1
    whom: ClassVar[str | None] = None

    kind: Literal["row"] = key("each row is protected by itself", "row")
    meaning: str = key("what one row is, e.g. 'one person'", "one surveyed person", min_length=1)


class IdUnit(Model):
    """Protects everything of one id: at most `max_rows` of its rows, a random choice, are used.
    Plain whole numbers are compared as numbers, other ids as text: 1, 1.0, ' 1' and 01 are one id;
    A1 and a1 are two. Every row needs one.
    """

    kind: Literal["id"] = key("all rows of one id are protected together", "id")
    column: Name = key("the column with the ids, which is never released", "patient_id")
    max_rows: Annotated[Whole, Field(ge=1, le=64), Unit("rows")] = key(
        "most rows of one id that are used; noise grows with it", 5
    )
    meaning: str = key("what one id is, e.g. 'one patient'", "one patient", min_length=1)

    @property
    def whom(self) -> str | None:
        """Whom rows and figures of a release stand for, where it is not each row of the table."""
        most = self.max_rows
        each, more = "one random row", "each id counts once"
        if most > 1:
            each, more = f"at most {most} random rows", f"an id with more counts as {most}"
        return (
            f"rows and figures stand for {each} of each id ({self.meaning}), not for all rows of"
            f" the table: {more}, and a share or a mean of all rows may differ"
        )


PrivacyUnit = Annotated[RowUnit | IdUnit, Field(discriminator="kind")]


class DeclaredRows(Model):
    """Number of rows, as a declared constant, never computed from the table."""

    kind: Literal["public", "approximate"] = key(
        "whether `value` may be known exactly, or is round, and the exact number used nowhere",
        "approximate",
    )
    value: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] = key(
        "number of rows", 20_000
    )


class DomainFrom(Model):
    """The run of `synthdp init --private` that found bounds and categories. A release is refused
    where the ledger lacks it, or all such runs reserved more than is stated.
    """

    run: Annotated[str, Field(pattern=r"^[0-9]{8}-[0-9a-f]{12}$")] = key(
        "the run's id in the ledger", "20261124-0123456789ab"
    )
    epsilon: Annotated[Real, Field(gt=0, le=100), Unit("nats")] = key(
        "epsilon that all such runs reserved", 0.5
    )
    delta: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = key(
        "delta that they reserved", 1e-7
    )


OutOfDomain = Literal["refuse", "clamp"]
OUT_OF_DOMAIN = key(
    "values outside the domain: refuse the table, or take the nearest bound or first category",
    "clamp",
    default="refuse",
)


class Described(Model):
    """What every dataset says of itself."""

    id: Slug = key("key of the ledger, which all releases of one table share", "adult")
    title: str | None = key("for the bundle's metadata", "Adult, synthetic", default=None)
    description: str | None = key(
        "what the synthetic table is",
        "The UCI Adult table, synthetic",
        default=None,
    )
    licence: str | None = key("of the synthetic table", "CC-BY-4.0", default=None)
    citation: str | None = key(
        "how to cite the original", "Becker and Kohavi (1996), Adult, UCI repository", default=None
    )
    contact: Annotated[str, Field(min_length=1, max_length=300)] | None = key(
        "whom users may ask; published",
        "Data desk, desk@statistics.example",
        default=None,
    )


class Dataset(Described):
    """The table."""

    source: Source = key("where the rows lie", {"kind": "csv", "path": "data/adult.csv"})
    privacy_unit: PrivacyUnit = key(
        "what is protected", {"kind": "row", "meaning": "one surveyed person"}
    )
    rows: DeclaredRows = key("how many rows there are", {"kind": "public", "value": 48_842})
    out_of_domain: OutOfDomain = OUT_OF_DOMAIN
    domain_from: DomainFrom | None = key(
        "the run of `synthdp init --private` that wrote this",
        {"run": "20261124-0123456789ab", "epsilon": 0.5, "delta": 1e-7},
        default=None,
    )


class PriorSource(Model):
    """Public rows that the noisy tables are shrunk to: either `source` or `bundle`. They are not
    protected.
    """

    source: str | None = key(
        "a CSV file of public rows, relative to the spec's folder",
        "public.csv",
        default=None,
    )
    bundle: str | None = key(
        "a bundle's folder, whose synthetic rows are the prior", "earlier/bundle", default=None
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = key(
        "of the file, or of the bundle's SHA256SUMS, which a bundle needs",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        default=None,
    )
    licence: Annotated[str, Field(min_length=1, max_length=300)] | None = key(
        "of the file, which must have one", "CC-BY-4.0", default=None
    )
    statement: Annotated[str, Field(min_length=1, max_length=2000)] = key(
        "what it is, and why it may be used; published",
        "Census of 1990, public since 1995; nobody of it is protected here",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> PriorSource:
        if (self.source is None) == (self.bundle is None):
            raise wrong(("", "a prior has either `source`, a CSV file, or `bundle`, a folder"))
        if self.bundle is not None and self.sha256 is None:
            raise wrong(("sha256", "missing; a bundle is taken by the digest of its SHA256SUMS"))
        if self.source is not None and self.licence is None:
            raise wrong(("licence", "missing; a file of public rows has one, if only 'CC0-1.0'"))
        return self

    @property
    def name(self) -> str:
        """The last part of its path, by which it is told."""
        return (self.source or self.bundle or "").replace("\\", "/").rstrip("/").rpartition("/")[2]


# --- waves: a table that is collected again and again, and released each time ---


WaveName = Annotated[str, AS_TEXT, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Disjoint(Model):
    """Nobody is in two waves: the one that took most counts."""

    disjoint: Annotated[str, Field(min_length=1, max_length=200)] = key(
        "what is fixed at entry and differs between waves; nothing checks it",
        "birth_year",
    )


class Rotating(Model):
    """A rotating panel: as many waves count as a person may be in, those that took most."""

    rotating: Annotated[Whole, Field(ge=1, le=1000), Unit("waves")] = key(
        "most waves that one person is in; nothing checks it", 4
    )


def _people(given: Any) -> str:
    if not isinstance(given, dict):
        return type(given).__name__ if isinstance(given, Disjoint | Rotating) else "same"
    return "Rotating" if "rotating" in given else "Disjoint"


People = Annotated[
    Annotated[Literal["same"], Tag("same")]
    | Annotated[Disjoint, Tag("Disjoint")]
    | Annotated[Rotating, Tag("Rotating")],
    Discriminator(_people),
]


class EarlierWave(Model):
    """The wave before."""

    bundle: str = key(
        "its folder, relative to the spec's",
        "releases/clinic-2026/bundle",
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = key(
        "the SHA-256 of its file SHA256SUMS", "0" * 64
    )


class Waves(Model):
    """Which wave of the series this table is."""

    name: WaveName = key("the wave's own name", "2027")
    people: People = key(
        "who is in several waves: `same`, perhaps everyone, or one of",
        {"rotating": 4},
    )
    planned: Annotated[Whole, Field(ge=2, le=1000), Unit("waves")] | None = key(
        "waves in all: a run that would leave each one to come less than it takes is refused",
        5,
        default=None,
    )
    after: EarlierWave | None = key(
        "the wave before, whose noisy tables help to know this one",
        {"bundle": "releases/clinic-2026/bundle", "sha256": "0" * 64},
        default=None,
    )

    @property
    def most(self) -> int | None:
        """How many waves one person may be in; None for all."""
        if isinstance(self.people, Rotating):
            return self.people.rotating
        return 1 if isinstance(self.people, Disjoint) else None


EngineName = Literal["auto", "memory", "arrow", "dask", "sql"]
NO_DUCKDB = (
    "duckdb is no engine any more: it let what a file says of a whole column decide how one row is"
    " read (docs/advisories.md); set arrow for files on one machine, dask for many machines or ids,"
    " sql for a database"
)


class Tracking(Model):
    """In MLflow: for the steward only."""

    enabled: Flag = key("whether to log to MLflow", False, default=True)
    uri: str | None = key(
        "MLflow tracking URI; a relative SQLite file is in the spec's folder; default:"
        " mlflow.db there",
        "http://mlflow.example:5000",
        default=None,
    )
    experiment: Annotated[str, Field(min_length=1, max_length=200)] = key(
        "its name in MLflow", "census", default="synthdp"
    )


class Compute(Model):
    """Nothing here changes what is released."""

    device: Literal["cpu", "cuda"] = key("where the model is trained", "cuda", default="cpu")
    threads: Annotated[Whole, Field(ge=1, le=1024), Unit("threads")] | None = key(
        "most threads of this machine; default: all cores", 4, default=None
    )
    backend: Literal["loky", "dask"] = key(
        "where fleets of shadow models run", "dask", default="loky"
    )
    engine: Annotated[EngineName, refused({"duckdb": NO_DUCKDB})] = key(
        "where the table is counted; auto: memory, or arrow for an address or a pattern",
        "dask",
        default="auto",
    )
    address: str | None = key(
        "address of the Dask scheduler; default: processes of this machine",
        "tcp://cluster.example:8786",
        default=None,
    )

    @model_validator(mode="after")
    def _address(self) -> Compute:
        if self.backend == "dask" and self.address is None:
            raise wrong(("", "backend dask needs an address"))
        if self.address is not None and "dask" not in (self.backend, self.engine):
            raise wrong(("", "an address is that of Dask, and neither backend nor engine is dask"))
        return self


class Curator(Model):
    """Who publishes the release."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = key(
        "of the organisation", "Office of Statistics"
    )
    type: Literal["Government", "Industry", "Nonprofit"] = key("what it is", "Government")


class Publication(Model):
    """What a public register asks: the bundle then holds `privacy/deployment.yaml`, a record for
    the OpenDP Deployments Registry.
    """

    curators: Annotated[tuple[Curator, ...], Field(min_length=1, max_length=20)] = key(
        "who publishes the release", [{"name": "Office of Statistics", "type": "Government"}]
    )
    intended_use: Annotated[str, Field(min_length=1)] = key(
        "what the release is for", "teaching, and trying out methods"
    )
    region: Annotated[str, Field(min_length=1)] = key(
        "the region that the data describe", "United States of America"
    )
    sector: (
        Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None
    ) = key("the sector that the data come from", "Healthcare", default=None)
    justification: str | None = key(
        "how epsilon and delta were chosen, and why",
        "the review board's limit for this table",
        default=None,
    )
    consulted: str | None = key(
        "who was asked before",
        "the ethics board of the university, on 12 March 2026",
        default=None,
    )
    until: str | None = key(
        "until when it may be used, or is looked at again",
        "the next wave, at the latest 2029",
        default=None,
    )
    authors: tuple[Annotated[str, Field(min_length=1)], ...] = key(
        "who fills it in; default: the curators", ["A. Steward"], default=()
    )
    decision: Literal["required", "optional"] = key(
        "required: `synthdp export` waits for a yes that `synthdp decide` recorded",
        "required",
        default="optional",
    )


PUBLICATION = key(
    "what a public register asks about the release",
    {
        "curators": [{"name": "Office of Statistics", "type": "Government"}],
        "intended_use": "teaching, and trying out methods",
        "region": "United States of America",
    },
    default=None,
)


class Signing(Model):
    """Who signs the bundle."""

    key_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = key(
        "environment variable with the private key's path",
        "CENSUS_SIGNING_KEY",
        default="SYNTHDP_SIGNING_KEY",
    )
    required: Flag = key("refuse to release without a key", True, default=False)
