"""What a bundle states: its parts, read from its files when they are asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.noisy_values import read_tables
from synthdp.bundle.table_files import CSV_NAME, PARQUET_NAME, WrittenFile, check_header
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column
from synthdp.data.kinds import column_kind
from synthdp.files import check_plain, parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

REPORT = "report.html"
MAX_ROWS = 100_000  # of the table; their order is random, so the first are a fair sample


@dataclass(frozen=True)
class Bundle:
    """What the bundle in `folder` states.

    `spec` is the public one, `day` the one on which the run was settled (ISO date). Where a file is
    not what it should be, a part raises OSError, ValueError, KeyError, TypeError or SynthdpError.
    """

    folder: Path
    spec: ReleaseSpec
    certificate: Certificate
    day: str

    @classmethod
    def stated(cls, folder: Path) -> Bundle:
        """What a bundle states, unverified.

        Raises:
            OSError, ValueError, KeyError, TypeError, SynthdpError: it is not what it should be.
        """
        spec = parse_spec(read_text(folder / "spec.yaml"), path="spec.yaml")
        facts = parse_json(read_text(folder / "privacy/certificate.json"))
        ledger = parse_json(read_text(folder / "privacy/ledger.json"))
        day = str(ledger["entries"][-1]["at"])[:10]
        return cls(folder, spec, Certificate.model_validate(facts), day)

    def json(self, name: str) -> Any:
        """The content of a JSON file."""
        return parse_json(read_text(self.folder / name))

    @cached_property
    def domain(self) -> Domain:
        """Its columns and levels."""
        return Domain.from_spec(self.spec.columns)

    @cached_property
    def graph(self) -> CausalGraph:
        """The graph of `graph.json`."""
        return CausalGraph.from_json(self.json("graph.json"))

    @cached_property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The noisy tables of `marginals.json`."""
        return read_tables(self.folder)

    @cached_property
    def profile(self) -> Any:
        """The content of `privacy/profile.json`."""
        return self.json("privacy/profile.json")

    @cached_property
    def deltas(self) -> dict[float, float]:
        """Delta at each epsilon of the profile."""
        return {p["epsilon"]: p["delta"] for p in self.profile["points"]}

    @cached_property
    def codes(self) -> Codes:
        """Levels of the modelled columns in the first `MAX_ROWS` rows: `[rows, columns]`."""
        path = self.folder / CSV_NAME
        check_plain(path)
        check_header(path, tuple(self.spec.columns))
        frame = pd.read_csv(
            path,
            nrows=MAX_ROWS,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            encoding="utf-8",
            index_col=False,
        )
        kinds = ((c, column_kind(c).parsed(c, frame[c.name])) for c in self.domain.columns)
        return np.column_stack([encode_column(c, values).codes for c, values in kinds])

    @cached_property
    def csv(self) -> WrittenFile:
        """The table as CSV."""
        return written(self.folder / CSV_NAME)

    @cached_property
    def parquet(self) -> WrittenFile:
        """The table as Parquet."""
        return written(self.folder / PARQUET_NAME)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def written(path: Path) -> WrittenFile:
    """A file of the bundle as its descriptions state it."""
    return WrittenFile(path.name, path.stat().st_size, sha256(path))
