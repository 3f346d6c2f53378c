"""A small clinic of made-up persons with visits, and one release of it."""

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.bundle import sha256
from synthdp.files import SUMS
from synthdp.release import LinkedOutcome, release_linked
from synthdp.spec import linked_in
from synthdp.spec.model import LinkedSpec
from synthdp.verify import inspect_bundle

PERSONS, MOST = 300, 4
SPEC: dict[str, Any] = {
    "synthdp": 1,
    "dataset": {
        "id": "ward",
        "tables": {
            "patients": {
                "source": {"kind": "csv", "path": "patients.csv"},
                "key": "patient",
                "rows": {"kind": "approximate", "value": PERSONS},
            },
            "stays": {
                "source": {"kind": "csv", "path": "stays.csv"},
                "of": "patients",
                "key": "of_patient",
                "order": "day",
                "at_most": MOST,
                "ends": {"death": "patients.died"},
            },
        },
        "privacy_unit": {"kind": "person", "meaning": "one patient with all stays"},
    },
    "columns": {
        "patients": {
            "sex": {"type": "categorical", "categories": ["F", "M"]},
            "born": {"type": "datetime", "lower": "1940-01-01", "upper": "1999-12-31", "bins": 6},
            "died": {
                "type": "datetime",
                "lower": "2020-01-01",
                "upper": "2023-12-31",
                "bins": 4,
                "missing": True,
            },
        },
        "stays": {
            "day": {"type": "datetime", "lower": "2020-01-01", "upper": "2023-12-31", "bins": 4},
            "stage": {"type": "ordinal", "categories": [0, 1, 2]},
            "cost": {"type": "number", "lower": 0, "upper": 100, "bins": 4, "missing": True},
        },
    },
    "constraints": [
        "patients.born <= stays.day",
        "stays.day <= patients.died",
        {"nondecreasing": "stays.stage"},
    ],
    "privacy": {"epsilon": 5.0, "delta": 1e-5, "cap": {"epsilon": 8.0, "delta": 1e-4}},
    "graph": {
        "mode": "given",
        "edges": [
            "patients.sex -> stays[1].stage",
            "stays[-1].stage, patients.sex -> stays.stage",
            "stays.stage -> stays.cost, stays.end",
        ],
    },
    "evaluation": {"enabled": False},
    "sampling": {"persons": 250},
    "tracking": {"enabled": False},
}


def write_tables(folder: Path, *, persons: int = PERSONS) -> None:
    """Both CSV files: stages rise, and the dates of a person are in any order of the rows."""
    rng = np.random.default_rng(7)
    keys = [f"id-{i:04d}" for i in rng.permutation(9000)[:persons]]
    dead = rng.random(persons) < 0.2
    people = pd.DataFrame(
        {
            "patient": keys,
            "sex": rng.choice(["F", "M"], persons),
            "born": pd.to_datetime("1940-01-01")
            + pd.to_timedelta(rng.integers(0, 20000, persons), "D"),
            "died": pd.to_datetime("2023-06-01"),
        }
    )
    people["died"] = people["died"].where(dead)
    people.to_csv(folder / "patients.csv", index=False, date_format="%Y-%m-%d")
    many = rng.integers(1, MOST + 3, persons)
    owner = np.repeat(np.arange(persons), many)
    days = np.sort(rng.integers(0, 1200, len(owner)))
    stays = pd.DataFrame({"of_patient": np.array(keys)[owner]})
    stays["day"] = (pd.to_datetime("2020-01-01") + pd.to_timedelta(days, "D")).strftime("%Y-%m-%d")
    stays["stage"] = np.minimum(2, stays.groupby("of_patient").cumcount())
    stays["cost"] = rng.uniform(0, 100, len(owner)).round(2)
    stays.loc[rng.random(len(owner)) < 0.1, "cost"] = np.nan
    stays.sample(frac=1, random_state=1).to_csv(folder / "stays.csv", index=False)


def write_spec(folder: Path, change: dict[str, Any] | None = None) -> Path:
    """The spec, with other values of sections."""
    content = copy.deepcopy(SPEC)
    for name, section in (change or {}).items():
        content[name] = content.get(name, {}) | section if isinstance(section, dict) else section
    path = folder / "ward.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def spec_at(path: Path) -> LinkedSpec:
    """The spec in a file."""
    spec = linked_in(path.read_text(), path=str(path))
    assert spec is not None
    return spec


def run(path: Path, *, out: Path | None = None, force: bool = False) -> LinkedOutcome:
    """A release of the spec at `path`, into its folder."""
    spec, text = spec_at(path), path.read_text()
    return release_linked(spec, path, text, out=out or path.parent / "out", force=force)


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """The spec beside its tables."""
    write_tables(tmp_path)
    return write_spec(tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle; not to be changed."""
    folder = tmp_path_factory.mktemp("ward")
    write_tables(folder)
    return run(write_spec(folder)).bundle


PAID = {
    "privacy": {
        "shares": {"persons": 0.2, "first": 0.2, "steps": 0.3, "ends": 0.1, "estimands": 0.2}
    },
    "estimands": [
        {
            "kind": "effect",
            "treatment": "patients.sex",
            "outcome": "stays[1].stage",
            "level": "0",
            "adjust": [],
        },
        {"kind": "effect", "treatment": "stays.stage", "outcome": "stays.cost"},
    ],
}


@pytest.fixture(scope="session")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that paid for two effects; not to be changed."""
    folder = tmp_path_factory.mktemp("paid")
    write_tables(folder)
    return run(write_spec(folder, PAID)).bundle


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    """A bundle to be spoiled."""
    return Path(shutil.copytree(made, tmp_path / "bundle"))


def problems(bundle: Path, *, mended: bool = True) -> str:
    """What `verify` finds; `mended`: with fitting checksums, as a forger would write them."""
    if mended:
        names = [line.split("  ")[1] for line in (bundle / SUMS).read_text().splitlines()]
        (bundle / SUMS).write_text("".join(f"{sha256(bundle / n)}  {n}\n" for n in names))
    return "\n".join(inspect_bundle(bundle).problems)


def write_hospital(folder: Path, *, patients: int = 8000) -> None:
    """`patients.csv` and `stays.csv` of the guide's hospital."""
    rng, epoch = np.random.default_rng(2), pd.Timestamp("1970-01-01")
    keys = [f"h{i}" for i in rng.permutation(90_000)[:patients]]
    many = rng.integers(1, 15, patients)
    owner = np.repeat(np.arange(patients), many)
    day = epoch + pd.to_timedelta(rng.integers(16_436, 19_900, len(owner)), "D")
    last = pd.Series(day).groupby(owner).max()
    people = pd.DataFrame(
        {
            "patient": keys,
            "sex": rng.choice(["F", "M"], patients),
            "born": epoch + pd.to_timedelta(rng.integers(-18_000, 9_000, patients), "D"),
            "smoker": rng.choice(["never", "former", "current"], patients),
            "died": last.where(rng.random(patients) < 0.2),
        }
    )
    people.to_csv(folder / "patients.csv", index=False, date_format="%Y-%m-%d")
    stays = pd.DataFrame({"patient": np.array(keys)[owner], "day": day})
    stays["stage"] = rng.integers(0, 4, len(owner))
    stays["drug"] = rng.choice(["no", "yes"], len(owner))
    stays.to_csv(folder / "stays.csv", index=False, date_format="%Y-%m-%d")
