"""What a bundle is, and every file of it that is a function of its other files.

Spec, ledger, certificate, profile, graph, noisy counts, estimands, model and rows are primary: no
other file tells them. `DERIVED` has the rest. `write` writes what the table says, and `verify`
writes it again and compares bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from synthdp.bundle.certificate import Certificate, profile_svg
from synthdp.bundle.certificate_text import effects_svg, render
from synthdp.bundle.content import MODEL_FILES
from synthdp.bundle.deployment import DEPLOYMENT, deployment_record, deployment_yaml
from synthdp.bundle.descriptions import DATACARD, datacard, graph_title, readme
from synthdp.bundle.noisy_values import ESTIMANDS, read_tables
from synthdp.bundle.report_page import REPORT, link_strengths, public_report
from synthdp.bundle.signing import STATEMENT
from synthdp.bundle.table_files import (
    CROISSANT,
    CSV_NAME,
    PARQUET_NAME,
    WrittenFile,
    croissant,
    descriptor,
)
from synthdp.data.domain import Domain
from synthdp.files import parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec


@dataclass(frozen=True)
class Bundle:
    """What the bundle in `folder` states; its larger parts are read when they are asked for.

    `spec` is the public one, `day` the one on which the run was settled (ISO date).
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

    @property
    def domain(self) -> Domain:
        """Its columns and levels."""
        return Domain.from_spec(self.spec.columns)

    @cached_property
    def graph(self) -> CausalGraph:
        """The graph of `graph.json`."""
        return CausalGraph.from_json(parse_json(read_text(self.folder / "graph.json")))

    @cached_property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The noisy tables of `marginals.json`."""
        return read_tables(self.folder)

    @cached_property
    def profile(self) -> Any:
        """The content of `privacy/profile.json`."""
        return parse_json(read_text(self.folder / "privacy/profile.json"))

    @cached_property
    def deltas(self) -> dict[float, float]:
        """Delta at each epsilon of the profile."""
        return {p["epsilon"]: p["delta"] for p in self.profile["points"]}

    @cached_property
    def csv(self) -> WrittenFile:
        """The table as CSV."""
        return written(self.folder / CSV_NAME)

    @cached_property
    def parquet(self) -> WrittenFile:
        """The table as Parquet."""
        return written(self.folder / PARQUET_NAME)


def written(path: Path) -> WrittenFile:
    """A file of the bundle as its descriptions state it."""
    return WrittenFile(path.name, path.stat().st_size, sha256(path))


@dataclass(frozen=True)
class Derived:
    """How the text of a file follows from the bundle (None: the spec asks for no such file).

    `wrong` is what `verify` says of another text.
    """

    make: Callable[[Bundle], str | None]
    wrong: str


def _datacard(b: Bundle) -> str:
    strengths = link_strengths(b.folder, b.spec, b.graph, b.tables)
    return datacard(b.spec, b.certificate, b.graph, b.tables, strengths, day=b.day)


def _croissant(b: Bundle) -> str:
    return as_json(croissant(b.spec, b.certificate, day=b.day, csv=b.csv, parquet=b.parquet))


def _datapackage(b: Bundle) -> str:
    return as_json(descriptor(b.spec, run=b.certificate.run, csv=b.csv))


def _deployment(b: Bundle) -> str | None:
    record = deployment_record(b.spec, b.certificate, day=b.day)
    return None if record is None else deployment_yaml(record)


DERIVED: dict[str, Derived] = {
    "privacy/certificate.md": Derived(
        lambda b: render(b.certificate), "does not say what privacy/certificate.json says"
    ),
    "README.md": Derived(
        lambda b: readme(b.spec, b.certificate, day=b.day),
        "does not say what spec.yaml and privacy/certificate.json say",
    ),
    DATACARD: Derived(
        _datacard,
        "does not say what spec.yaml, graph.json, marginals.json, synthetic.csv and"
        " privacy/certificate.json say",
    ),
    "privacy/effects.svg": Derived(
        lambda b: effects_svg(b.certificate), "does not show what privacy/certificate.json says"
    ),
    "privacy/profile.svg": Derived(
        lambda b: profile_svg(b.profile, b.certificate), "does not show privacy/profile.json"
    ),
    DEPLOYMENT: Derived(
        _deployment, "does not say what spec.yaml and privacy/certificate.json say"
    ),
    "graph.svg": Derived(
        lambda b: b.graph.to_svg(title=graph_title(b.spec)), "does not show graph.json"
    ),
    "datapackage.json": Derived(_datapackage, f"does not describe {CSV_NAME} as the spec does"),
    CROISSANT: Derived(
        _croissant, "does not describe the table as spec.yaml and privacy/certificate.json do"
    ),
    REPORT: Derived(
        lambda b: public_report(b.folder), "does not show what the bundle's other files say"
    ),
}
"""Every derived file by its name, the public report last: it shows others."""

# In a bundle only where the spec states its publication, has estimands, or a key was given. SUMS
# lists the first two and not the third: the statement names SUMS.
BY_SPEC = (DEPLOYMENT, ESTIMANDS)
OPTIONAL = (*BY_SPEC, STATEMENT)
PRIMARY = (
    "graph.json",
    "marginals.json",
    *MODEL_FILES,
    "privacy/certificate.json",
    "privacy/ledger.json",
    "privacy/profile.json",
    "spec.yaml",
    CSV_NAME,
    PARQUET_NAME,  # derived, but its bytes differ by version: `verify` compares its rows
)
FILES = tuple(sorted({*PRIMARY, *DERIVED} - {*OPTIONAL}))


def as_json(content: object) -> str:
    """JSON for files: readable, stable, and never NaN or infinity."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
