"""`tracking` and `compute`: where a release is logged, and on what it runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Unit
from pydantic import Field, field_validator, model_validator

from synthdp.spec.model.fields import Flag, Model, Whole, wrong

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
