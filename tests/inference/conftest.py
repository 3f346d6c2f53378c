"""A small domain, noisy tables of drawn rows, and the folder of a bundle."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.bundle import tables_json
from synthdp.data import Domain, decode
from synthdp.graph import CausalGraph
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec

COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"type": "integer", "lower": 0, "upper": 79, "bins": 8},
    "sex": {"type": "categorical", "categories": ["female", "male"]},
    "smoker": {"type": "boolean", "false": "no", "true": "yes", "missing": True},
    "visits": {"type": "integer", "lower": 0, "upper": 4, "bins": 5, "missing": True},
    "seen": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-12-31", "bins": 12},
    "weight kg": {"type": "number", "lower": 30, "upper": 130, "bins": 5, "spikes": [30]},
}


def stated(**dataset: Any) -> dict[str, Any]:
    """A spec as a dictionary; `holdout` goes to its evaluation."""
    holdout = dataset.pop("holdout", 0.0)
    return {
        "synthdp": 1,
        "dataset": {
            "id": "clinic",
            "source": {"kind": "csv", "path": "table.csv"},
            "privacy_unit": {"kind": "row", "meaning": "one person"},
            "rows": {"kind": "approximate", "value": 1000},
            **dataset,
        },
        "columns": COLUMNS,
        "privacy": {"epsilon": 1, "delta": 1e-5},
        "graph": {"mode": "none"},
        "evaluation": {"holdout": holdout},
    }


def with_graph(section: dict[str, Any]) -> dict[str, Any]:
    """A spec with this section `graph`, and a share of the budget for it where it needs one."""
    shares = {"shares": {"measure": 0.2, "graph": 0.2, "train": 0.6}}
    privacy = stated()["privacy"] | (shares if section["mode"] == "learn" else {})
    return stated() | {"graph": section, "privacy": privacy}


def spec_with(**dataset: Any) -> ReleaseSpec:
    """The spec, checked."""
    return parse_spec(json.dumps(stated(**dataset)), path="clinic")


@pytest.fixture(scope="session")
def spec() -> ReleaseSpec:
    return spec_with()


@pytest.fixture(scope="session")
def domain(spec: ReleaseSpec) -> Domain:
    return Domain.from_spec(spec.columns)


def drawn_levels(domain: Domain, rows: int, seed: int) -> Any:
    """Levels `[rows, columns]` in which all columns depend on the first."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, domain.sizes[0], rows)
    others = [(first // 2 + rng.integers(0, size, rows)) % size for size in domain.sizes[1:]]
    return np.column_stack([first, *others]).astype(np.uint16)


def counted(
    domain: Domain,
    codes: Any,
    columns: Sequence[str],
    *,
    sigma: float,
    rng: np.random.Generator,
    starts: dict[str, tuple[int, ...]] | None = None,
) -> NoisyTable:
    """A noisy table of levels, on groups of them where `starts` has any."""
    counts = np.zeros([domain[name].levels for name in columns])
    np.add.at(counts, tuple(codes[:, domain.index(name)].astype(int) for name in columns), 1)
    for name, begins in (starts or {}).items():
        counts = np.add.reduceat(counts, begins, axis=columns.index(name))
    noisy = counts + np.round(rng.normal(0, sigma, counts.shape)) if sigma else counts
    return NoisyTable(tuple(columns), noisy, max(sigma, 1e-3), starts or {})


def write_bundle_of(
    folder: Path,
    tables: Sequence[NoisyTable],
    codes: Any,
    domain: Domain,
    *,
    section: dict[str, Any] | None = None,
    graph: CausalGraph | None = None,
) -> Path:
    """The files of a bundle that answers are made of, and their sums. `section` is the spec's
    `graph`, and `graph` what was released.
    """
    folder.mkdir(exist_ok=True, parents=True)
    frame = decode(domain, codes, rng=np.random.default_rng(5))
    files = {
        "spec.yaml": json.dumps(with_graph(section) if section else stated()),
        "graph.json": json.dumps((graph or CausalGraph(domain.names)).to_json()),
        "marginals.json": json.dumps(tables_json(tables)),
        "synthetic.csv": frame.to_csv(index=False),
    }
    sums = []
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        sums.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}")
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    return folder


def heavy(call: str) -> str:
    """Those of the slow packages that `call` imports, in a process of its own."""
    packages = ("torch", "pandas", "opacus", "mlflow", "sklearn")
    probe = f"import sys; from synthdp import Bundle; {call}"
    told = f"print(*(m for m in {packages} if m in sys.modules))"
    command = [sys.executable, "-c", f"{probe}; {told}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def small_bundle(tmp_path: Path, domain: Domain) -> Callable[..., Path]:
    """A folder that answers, of the tables over the named sets of columns."""

    def make(*sets: Sequence[str], sigma: float = 3.0) -> Path:
        rng = np.random.default_rng(11)
        codes = drawn_levels(domain, 1000, 12)
        tables = [counted(domain, codes, names, sigma=sigma, rng=rng) for names in sets]
        return write_bundle_of(tmp_path / "bundle", tables, codes, domain)

    return make
