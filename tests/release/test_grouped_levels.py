"""A bundle whose pairs are counted on groups of levels: what is drawn from it, what is said of its
noise and its quality, and files that state other groups.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from synthdp.bundle import level_law, read_tables
from synthdp.data import Domain
from synthdp.errors import OutputError, VerifyError
from synthdp.graph.level_groups import groups_of
from synthdp.release import release
from synthdp.sample import Sampler, generator
from synthdp.spec import load_spec
from synthdp.verify import inspect_bundle, noise_of
from synthdp.verify.diff import Sides, distances
from tests.builders import PREDICT_ROWS, predict_spec, predict_table
from tests.release.conftest import refit

pytestmark = pytest.mark.check

Spoil = Callable[[list[dict[str, Any]]], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with 73 levels of age, and a constraint that cuts through a group of them."""
    folder = tmp_path_factory.mktemp("grouped")
    table = predict_table(1600).query("age >= 21").head(PREDICT_ROWS)
    table.to_csv(folder / "table.csv", index=False)
    spec = predict_spec(
        constraints=["age >= 21"],
        evaluation={"enabled": False},
        attacks={"membership": {"enabled": False}},
    )
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return release(path, out=folder / "out").bundle


def grouped(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tables that are counted on groups of the levels of age."""
    return [table for table in tables if "age" in table.get("starts", {})]


def merged(table: dict[str, Any]) -> None:
    """The table with the first two groups of age as one."""
    axis = table["columns"].index("age")
    counts = np.asarray(table["counts"], float).reshape(table["shape"])
    starts = table["starts"]["age"]
    summed = np.add.reduceat(counts, [0, *range(2, len(starts))], axis=axis)
    table["starts"]["age"] = [starts[0], *starts[2:]]
    table["shape"], table["counts"] = list(summed.shape), summed.ravel().tolist()


SPOILED: dict[str, tuple[Spoil, str]] = {
    "groups in two ways": (
        lambda tables: merged(grouped(tables)[0]),
        "groups levels otherwise than the tables before it",
    ),
    "groups of another column": (
        lambda tables: (
            tables[0].update(starts=grouped(tables)[0]["starts"])
            if "age" not in tables[0]["columns"]
            else tables[1].update(starts=grouped(tables)[0]["starts"])
        ),
        "groups levels of a column that it does not have",
    ),
    "groups that do not begin at 0": (
        lambda tables: [t["starts"]["age"].__setitem__(0, 1) for t in grouped(tables)],
        "has no groups of levels of column 'age'",
    ),
    "groups beyond the levels": (
        lambda tables: [t["starts"]["age"].__setitem__(-1, 999) for t in grouped(tables)],
        "has no groups of levels of column 'age'",
    ),
    "groups of a column without order": (
        lambda tables: [t["starts"].update(sex=[0, 1]) for t in grouped(tables)],
        "groups",
    ),
    "starts that are a list": (lambda tables: tables[0].update(starts=[0]), "marginals.json"),
    "starts that are a number": (
        lambda tables: tables[0].update(starts={"age": 3}),
        "marginals.json",
    ),
    "columns that are lists": (
        lambda tables: tables[0].update(columns=[tables[0]["columns"]]),
        "marginals.json",
    ),
    "columns that are numbers": (lambda tables: tables[0].update(columns=[1]), "marginals.json"),
    "no columns": (lambda tables: tables[0].update(columns=3), "marginals.json"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_other_groups_are_refused_by_verify_and_by_sample(
    made: Path, tmp_path: Path, name: str
) -> None:
    spoil, said = SPOILED[name]
    bundle = tmp_path / "bundle"
    shutil.copytree(made, bundle)
    content = json.loads((bundle / "marginals.json").read_text())
    spoil(content["tables"])
    (bundle / "marginals.json").write_text(json.dumps(content))
    refit(bundle)
    assert any(said in problem for problem in inspect_bundle(bundle).problems)
    with pytest.raises(VerifyError, match=r"marginals\.json"):
        Sampler.of_bundle(bundle)


def rows_of(bundle: Path, rows: int, **asked: list[str]) -> pd.DataFrame:
    blocks = Sampler.of_bundle(bundle).sample(rows, rng=generator(1), **asked)
    return pd.concat(blocks, ignore_index=True)


def test_given_a_level_rows_have_it_and_are_those_of_its_group(made: Path) -> None:
    old, young = (rows_of(made, 2000, given=[f"age={age}"]) for age in (85, 25))
    assert set(old["age"]) == {85} and set(young["age"]) == {25}
    share = [(rows["grade"] == "high").mean() for rows in (old, young)]
    assert share[0] > 0.5 > 0.3 > share[1], "grades follow age"


def test_a_constraint_that_cuts_a_group_holds_for_every_row(made: Path) -> None:
    assert rows_of(made, 3000)["age"].min() >= 21
    with pytest.raises(OutputError, match="constraint"):
        rows_of(made, 10, given=["age=20"])


def test_levels_of_more_rows_follow_the_published_law(made: Path) -> None:
    """Chance to fail: below 1e-9 (each half of the ages within .05; its spread is .004)."""
    shares = (rows_of(made, 20_000)["age"] >= 56).mean()
    published = (pd.read_csv(made / "synthetic.csv")["age"] >= 56).mean()
    assert shares == pytest.approx(published, abs=0.05)


def test_noise_and_quality_are_read_on_the_groups(made: Path) -> None:
    spec = load_spec(made / "spec.yaml")
    domain, tables = Domain.from_spec(spec.columns), read_tables(made)
    groups = groups_of(tables, domain)
    assert set(groups.starts) == {"age"} and groups.coarse["age"].levels < 30
    assert level_law(made, domain, margins=True).groups == groups
    stated = noise_of(tables, false_alarms=1e-9)
    assert stated is not None and not (stated.too_little or stated.too_much)
    found = list(distances(Sides.read(made, made, domain)))
    assert found and all(d.a == d.b and d.verdict == "same" for d in found)
    ages = [table for table in tables if "age" in table.columns and table.starts]
    wrong = [
        type(t)(t.columns, t.counts, t.sigma / 4, t.starts) if t in ages else t for t in tables
    ]
    wrongly = noise_of(wrong, false_alarms=1e-9)
    assert wrongly is not None and wrongly.too_much, "a quarter of the noise is stated"
