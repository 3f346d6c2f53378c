"""Sampling from a bundle's model: post-processing, so it is free, as often as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import decode, encode_column
from synthdp.errors import SpecError, SpecProblem, VerifyError
from synthdp.model.synthesizer import Synthesizer
from synthdp.privacy.noise import fresh_generator
from synthdp.spec.load import load_spec


def sample_bundle(bundle: Path, *, rows: int, do: Sequence[str], seed: int | None) -> pd.DataFrame:
    """`rows` rows from the model in `bundle`, as values; `do` holds interventions as COLUMN=VALUE.

    Raises:
        VerifyError: the bundle holds no readable model of its spec's columns.
        SpecError: an intervention names an unknown column or a value outside its domain.
    """
    domain = Domain.from_spec(load_spec(bundle / "spec.yaml").columns)
    synthesizer = Synthesizer.load(bundle)
    if (synthesizer.columns, synthesizer.architecture.sizes) != (domain.names, domain.sizes):
        raise VerifyError(f"the model in {bundle} is not over the columns and levels of its spec", hint=f"see `synthdp verify {bundle}`")
    rng = fresh_generator() if seed is None else np.random.default_rng(seed)
    codes = synthesizer.sample(rows, rng=rng, do=dict(_intervention(text, domain) for text in do))
    return decode(domain, codes, rng=rng)


def _intervention(text: str, domain: Domain) -> tuple[str, int]:
    name, separator, value = text.partition("=")
    if not separator:
        raise _wrong(text, "needs the form COLUMN=VALUE")
    if name not in domain.names:
        raise _wrong(text, f"unknown column {name!r}; columns are {', '.join(domain.names)}")
    return name, _level(domain[name], value, text)


def _level(column: ColumnDomain, value: str, text: str) -> int:
    if value == "missing" and column.missing_level is not None:
        return column.missing_level
    encoded = encode_column(column, pd.Series([value], dtype="str"))
    if encoded.misfits:
        allowed = f"{column.lower:g} to {column.upper:g}" if column.ranged else ", ".join(column.labels)
        raise _wrong(text, f"{value!r} is outside the domain of {column.name}: {allowed}")
    return int(encoded.codes[0])


def _wrong(text: str, message: str) -> SpecError:
    return SpecError([SpecProblem("--do", 1, 1, text, message)])
