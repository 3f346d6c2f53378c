"""Sums of numbers of linked tables, from spec to `verify` and `answer`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import synthdp
from synthdp.api.text import linked_plan_text
from synthdp.errors import SpecError
from synthdp.release import planned_linked
from synthdp.verify import verify_bundle
from tests.release.linked.conftest import problems, run, spec_at, write_spec, write_tables

SHARES = {"persons": 0.1, "first": 0.1, "steps": 0.3, "ends": 0.1, "moments": 0.4}


def summed(**more: Any) -> dict[str, Any]:
    budget = {"epsilon": 40.0, "cap": {"epsilon": 100.0, "delta": 1e-4}, "shares": SHARES}
    return {"privacy": budget} | more


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with sums; not to be changed."""
    folder = tmp_path_factory.mktemp("added")
    write_tables(folder)
    return run(write_spec(folder, summed())).bundle


@pytest.mark.check
def test_means_are_of_measured_sums(added: Path) -> None:
    assert verify_bundle(added).ok
    certified = dict(json.loads((added / "privacy/certificate.json").read_text())["sensitivities"])
    assert certified["moments"] == 1
    stays = pd.read_csv(added.parents[1] / "stays.csv").sort_values(["of_patient", "day"])
    true = stays.groupby("of_patient").head(4)["cost"].mean()
    bundle = synthdp.Bundle(added)
    figure = bundle.answer("mean(stays.cost)").figures[0]
    assert figure.by_levels is not None and figure.of_rows is not None
    low, high = map(float, figure.of_rows)
    assert low - 2 < true < high + 2 and high - low < 15
    assert bundle.answer("mean(patients.age)").figures[0].by_levels is not None


@pytest.mark.check
@pytest.mark.parametrize("forged", ["sigma", "products", "gone"])
def test_sums_that_were_changed_are_refused(added: Path, tmp_path: Path, forged: str) -> None:
    bundle = Path(shutil.copytree(added, tmp_path / "bundle"))
    told = json.loads((bundle / "marginals.json").read_text())
    if forged == "gone":
        del told["moments"]
    else:
        told["moments"][forged] = 1.0 if forged == "sigma" else [1.0]
    (bundle / "marginals.json").write_text(json.dumps(told))
    assert "marginals.json" in problems(bundle)


def test_plans_tell_them_and_leave_them_out_where_noise_would_drown_them(ward: Path) -> None:
    facts, _ = planned_linked(spec_at(write_spec(ward.parent, summed())), ward)
    (spend,) = [s for s in facts["spends"] if s["purpose"] == "moments"]
    assert spend["rows_of_a_person"] == 1 and spend["tables"] == 7
    assert "means of numbers will have noise" in linked_plan_text(facts)
    assert spec_at(write_spec(ward.parent)).privacy.shares.moments == 0
    many = {"privacy": {"epsilon": 40.0, "cap": {"epsilon": 100.0, "delta": 1e-4}}}
    found = spec_at(write_spec(ward.parent, many)).privacy.shares
    assert found.moments == 0.1 and found.steps == pytest.approx(0.45)


def test_a_share_that_buys_nothing_is_refused(ward: Path) -> None:
    columns = spec_at(ward).model_dump(mode="json", exclude_unset=True)["columns"]
    del columns["stays"]["cost"]
    graph, rules = {"edges": ["stays[-1].stage -> stays.stage"]}, ["stays.day <= patients.died"]
    path = write_spec(ward.parent, summed(columns=columns, graph=graph, constraints=rules))
    with pytest.raises(SpecError, match=r"no column is a number"):
        spec_at(path)
