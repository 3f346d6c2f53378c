"""`dataset`: where the rows lie, what is protected, and how many there are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from synthdp.spec.fields import Flag, Model, Name, Slug, Whole


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
