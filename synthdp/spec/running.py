"""`tracking` and `compute`: where a release is logged, and on what it runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from synthdp.spec.fields import Flag, Model, Whole, wrong


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
            raise wrong(("", "backend dask needs an address, and only that backend takes one"))
        return self
