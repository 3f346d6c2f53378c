"""`dataset`: where the rows lie, what is protected, and how many there are.

And what is about the run: `tracking`, `compute`, `publication` and `signing`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Unit
from pydantic import AfterValidator, Field, field_validator, model_validator

from synthdp.spec.model.fields import AS_TEXT, Flag, Model, Name, Real, Slug, Whole, unique, wrong

SourceName = Annotated[str, Field(max_length=1000), AS_TEXT]
"""The name of a column in the source: any text, for it need not be one that is released."""


class ChosenColumns(Model):
    """Which columns of a source are read, and under which names.

    Left out of what is published: only the steward needs the names.
    """

    drop: Annotated[tuple[SourceName, ...], AfterValidator(unique)] = Field(
        default=(),
        description="columns of the source that are not read; all others must be declared",
        examples=[["name", "address"]],
    )
    rename: dict[SourceName, Name] = Field(
        default={},
        description="columns of the source, and their names in the spec",
        examples=[{"Q12_a": "smoker"}],
    )


class CsvSource(ChosenColumns):
    """A CSV file in UTF-8 whose first line names the columns.

    Each further line is a row, and no field contains a line break.
    """

    kind: Literal["csv"] = Field(description="a CSV file", examples=["csv"])
    path: str = Field(
        description="the file, relative to the spec's folder", examples=["data/people.csv"]
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        default=",", description="what parts the fields of a line", examples=[";"]
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="what stands before the decimals of numbers", examples=[","]
    )
    missing_values: tuple[str, ...] = Field(
        default=("",), description="texts that stand for a missing value", examples=[["", "NA"]]
    )


class ParquetSource(ChosenColumns):
    """Parquet files."""

    kind: Literal["parquet"] = Field(description="Parquet", examples=["parquet"])
    path: str = Field(
        description=(
            "a file, a folder or a pattern such as data/*.parquet, relative to the spec's folder;"
            " or an address of s3://, gs:// or https://, with keys in the environment"
        ),
        examples=["data/people.parquet"],
    )
    levels_only: Flag = Field(
        default=False,
        description=(
            "for tables larger than memory: keep a byte or two per value, and judge nothing"
        ),
        examples=[True],
    )


class SqlSource(Model):
    """A query to a database; an environment variable has the database's URL, with its password."""

    kind: Literal["sql"] = Field(description="a query against a database", examples=["sql"])
    url_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = Field(
        description=(
            "environment variable that holds the URL; a relative SQLite file lies in the"
            " spec's folder"
        ),
        examples=["PEOPLE_DATABASE_URL"],
    )
    query: str = Field(
        description=(
            "one SELECT of what `columns` declares, one row for each stored row: without"
            " GROUP BY, DISTINCT, LIMIT, aggregates, window functions, set operations or"
            " random values"
        ),
        examples=["SELECT age, sex, income FROM people"],
    )


class BuiltinSource(Model):
    """A simulated table that ships with synthdp, to try things on."""

    kind: Literal["builtin"] = Field(
        description="a simulated table that ships with synthdp", examples=["builtin"]
    )
    name: Literal["synthetic", "pain1000", "pain5000", "eedi"] = Field(
        description="which one; `synthdp init --builtin` writes whole specs of all but the first",
        examples=["pain1000"],
    )


class DataFrameSource(ChosenColumns):
    """A pandas DataFrame that is given from Python, with `synthdp.Spec.release(df)`."""

    kind: Literal["dataframe"] = Field(
        description="a pandas DataFrame, given from Python", examples=["dataframe"]
    )


Source = Annotated[
    CsvSource | ParquetSource | SqlSource | BuiltinSource | DataFrameSource,
    Field(discriminator="kind"),
]


class RowUnit(Model):
    """Protects one row: right only when no person has several."""

    max_rows: ClassVar[int] = 1

    kind: Literal["row"] = Field(description="each row is protected by itself", examples=["row"])
    meaning: str = Field(
        min_length=1,
        description="what one row is, e.g. 'one person'",
        examples=["one surveyed person"],
    )


class IdUnit(Model):
    """Protects everything of one id: at most `max_rows` of its rows (a random choice) are used.

    Ids are compared as text without the white space around it, plain whole numbers as numbers: 1,
    1.0, ' 1' and 01 are one id; A1 and a1 are two. Every row needs an id.
    """

    kind: Literal["id"] = Field(
        description="all rows of one id are protected together", examples=["id"]
    )
    column: Name = Field(
        description="the column with the ids; it is never modelled or released",
        examples=["patient_id"],
    )
    max_rows: Annotated[Whole, Field(ge=1, le=64), Unit("rows")] = Field(
        description="most rows of one id that are used; noise grows with it", examples=[5]
    )
    meaning: str = Field(
        min_length=1, description="what one id is, e.g. 'one patient'", examples=["one patient"]
    )


PrivacyUnit = Annotated[RowUnit | IdUnit, Field(discriminator="kind")]


class DeclaredRows(Model):
    """Number of rows, as a declared constant.

    Rates and batches are computed from it, never from the table.
    """

    kind: Literal["public", "approximate"] = Field(
        description=(
            "whether `value` is exact and may be known, or round, and the exact number is"
            " used nowhere"
        ),
        examples=["approximate"],
    )
    value: Annotated[Whole, Field(ge=1, le=2_000_000_000), Unit("rows")] = Field(
        description="number of rows", examples=[20_000]
    )


class DomainFrom(Model):
    """The run of `synthdp init --private` that found types, bounds and categories in the rows.

    A release is refused where the dataset's ledger does not hold it, or where all such runs
    reserved more than is stated.
    """

    run: Annotated[str, Field(pattern=r"^[0-9]{8}-[0-9a-f]{12}$")] = Field(
        description="the run's id in the ledger", examples=["20261124-0123456789ab"]
    )
    epsilon: Annotated[Real, Field(gt=0, le=100), Unit("nats")] = Field(
        description="epsilon that all such runs reserved", examples=[0.5]
    )
    delta: Annotated[Real, Field(gt=0, lt=1), Unit("probability")] = Field(
        description="delta that they reserved", examples=[1e-7]
    )


class Dataset(Model):
    """The table that is released, and what of it is protected."""

    id: Slug = Field(
        description="key of the ledger: all releases of one table share it", examples=["adult"]
    )
    title: str | None = Field(
        default=None, description="title, for the bundle's metadata", examples=["Adult, synthetic"]
    )
    description: str | None = Field(
        default=None,
        description="what the synthetic table is, for the bundle's metadata",
        examples=["The UCI Adult table, synthetic"],
    )
    licence: str | None = Field(
        default=None, description="licence of the synthetic table", examples=["CC-BY-4.0"]
    )
    citation: str | None = Field(
        default=None,
        description="how to cite the original",
        examples=["Becker and Kohavi (1996), Adult, UCI repository"],
    )
    contact: Annotated[str, Field(min_length=1, max_length=300)] | None = Field(
        default=None,
        description=(
            "whom users may ask, e.g. to run their final code on the original; published with"
            " the bundle"
        ),
        examples=["Data desk, desk@statistics.example"],
    )
    source: Source = Field(
        description="where the rows lie", examples=[{"kind": "csv", "path": "data/adult.csv"}]
    )
    privacy_unit: PrivacyUnit = Field(
        description="what is protected",
        examples=[{"kind": "row", "meaning": "one surveyed person"}],
    )
    rows: DeclaredRows = Field(
        description="how many rows there are", examples=[{"kind": "public", "value": 48_842}]
    )
    out_of_domain: Literal["refuse", "clamp"] = Field(
        default="refuse",
        description=(
            "values outside the declared domain: refuse the table, or take the nearest bound"
            " or first category"
        ),
        examples=["clamp"],
    )
    domain_from: DomainFrom | None = Field(
        default=None,
        description=(
            "the run of `synthdp init --private` that wrote this; left out where the domain"
            " is public knowledge"
        ),
        examples=[{"run": "20261124-0123456789ab", "epsilon": 0.5, "delta": 1e-7}],
    )


EngineName = Literal["auto", "memory", "arrow", "dask", "sql"]
NO_DUCKDB = (
    "duckdb is no engine any more: it let what a file says of a whole column decide how one row is"
    " read (docs/advisories.md); set arrow for files on one machine, dask for many machines or ids,"
    " sql for a database"
)


class Tracking(Model):
    """The log of a release in MLflow: for the steward only."""

    enabled: Flag = Field(default=True, description="whether to log to MLflow", examples=[False])
    uri: str | None = Field(
        default=None,
        description=(
            "MLflow tracking URI; a relative SQLite file is in the spec's folder; default:"
            " mlflow.db beside the spec"
        ),
        examples=["http://mlflow.example:5000"],
    )
    experiment: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="synthdp", description="name of the MLflow experiment", examples=["census"]
    )


class Compute(Model):
    """Where the work is done. Nothing here changes what is released."""

    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="where the model is trained", examples=["cuda"]
    )
    threads: Annotated[Whole, Field(ge=1, le=1024), Unit("threads")] | None = Field(
        default=None, description="most threads of this machine; default: all cores", examples=[4]
    )
    backend: Literal["loky", "dask"] = Field(
        default="loky", description="where fleets of shadow models run", examples=["dask"]
    )
    engine: EngineName = Field(
        default="auto",
        description=(
            "where the table is counted: in memory; arrow and dask count Parquet files part"
            " by part, sql in the source's database; auto: memory, or arrow for files at an"
            " address or of a pattern"
        ),
        examples=["dask"],
    )
    address: str | None = Field(
        default=None,
        description=(
            "address of the Dask scheduler; without one, engine dask starts processes of this"
            " machine"
        ),
        examples=["tcp://cluster.example:8786"],
    )

    @field_validator("engine", mode="before")
    @classmethod
    def _no_duckdb(cls, value: Any) -> Any:
        if value == "duckdb":
            raise ValueError(NO_DUCKDB)
        return value

    @model_validator(mode="after")
    def _address(self) -> Compute:
        if self.backend == "dask" and self.address is None:
            raise wrong(("", "backend dask needs an address"))
        if self.address is not None and "dask" not in (self.backend, self.engine):
            raise wrong(("", "an address is that of Dask, and neither backend nor engine is dask"))
        return self


class Curator(Model):
    """Who publishes the release, in the words of that registry."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="name of the organisation", examples=["Office of Statistics"]
    )
    type: Literal["Government", "Industry", "Nonprofit"] = Field(
        description="what it is", examples=["Government"]
    )


class Publication(Model):
    """What a public register asks about a release and only its publisher knows.

    With it the bundle holds `privacy/deployment.yaml`, a tier 3 record for the OpenDP Deployments
    Registry.
    """

    curators: Annotated[tuple[Curator, ...], Field(min_length=1, max_length=20)] = Field(
        description="who publishes the release",
        examples=[[{"name": "Office of Statistics", "type": "Government"}]],
    )
    intended_use: Annotated[str, Field(min_length=1)] = Field(
        description="what the release is for", examples=["teaching, and trying out methods"]
    )
    region: Annotated[str, Field(min_length=1)] = Field(
        description="the region that the data describe", examples=["United States of America"]
    )
    sector: (
        Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None
    ) = Field(
        default=None, description="the sector that the data come from", examples=["Healthcare"]
    )
    justification: str | None = Field(
        default=None,
        description="how epsilon, delta and the settings were chosen, and why",
        examples=["the review board's limit for this table"],
    )
    authors: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="who fills in the record; default: the curators",
        examples=[["A. Steward"]],
    )


class Signing(Model):
    """Who signs the bundle. A spec names only the variable that says where the key lies."""

    key_env: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] = Field(
        default="SYNTHDP_SIGNING_KEY",
        description="environment variable with the path of the private key (`synthdp keygen`)",
        examples=["CENSUS_SIGNING_KEY"],
    )
    required: Flag = Field(
        default=False,
        description="refuse to release without a key, in place of an unsigned bundle",
        examples=[True],
    )
