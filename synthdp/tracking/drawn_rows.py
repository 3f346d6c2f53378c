"""The released model as MLflow loads it: code, which reads a bundle's files. Nothing is unpickled.

MLflow keeps a copy of this file and of synthdp beside the model's files, and runs the copies where
the model is loaded. Sampling is post-processing: it costs no privacy.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

sys.path.insert(0, str(Path(__file__).with_name("code") / "synthdp.zip"))

from synthdp.bundle.table_files import typed_rows
from synthdp.errors import OutputError
from synthdp.sample.sampler import Sampler, generator


class DrawnRows(PythonModel):  # type: ignore[misc]  # mlflow has no types that mypy follows
    """Draws rows of a release, as `synthdp sample` does."""

    def load_context(self, context: Any) -> None:
        """Read the files that rows are drawn from."""
        self.sampler = Sampler.of_bundle(Path(context.artifacts["bundle"]))

    def predict(self, context: Any, model_input: pd.DataFrame) -> pd.DataFrame:
        """The rows of all requests, one request after the other.

        Each row of `model_input` is a request: how many `rows`, and COLUMN=VALUE as lists in
        `given`, what was observed, and in `do`, what is set. Both columns may be left out.
        """
        requests = model_input.to_dict("records")
        return pd.concat([self._drawn(r) for r in requests], ignore_index=True)

    def _drawn(self, request: dict[str, Any]) -> pd.DataFrame:
        rows, do = int(request["rows"]), _listed(request.get("do"))
        if rows < 1:
            raise OutputError(f"{rows} rows cannot be drawn", hint="ask for one row or more")
        if warning := self.sampler.warning(do):
            warnings.warn(warning, stacklevel=2)
        blocks = self.sampler.sample(
            rows,
            do=do,
            given=_listed(request.get("given")),
            rng=generator(None),
        )
        return typed_rows(blocks, self.sampler.columns)


def _listed(settings: Iterable[str] | None) -> list[str]:
    return [] if settings is None else list(settings)


set_model(DrawnRows())
