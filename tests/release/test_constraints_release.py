"""A release with constraints: they hold in the bundle, the bundle says so, and verify sees a row
that breaks one.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.errors import GateError, SpecError, VerifyError
from synthdp.model import DrawSettings
from synthdp.sample import Sampler
from synthdp.verify import verify_bundle
from tests.release.conftest import refit

pytestmark = pytest.mark.check

TEXTS = [
    "visits == 0 or weight >= 60",
    "joined >= '2021-01-01' or not smoker",
    "grade is missing or grade != 'high' or visits < 8",
]


def mended(bundle: Any, old: str, new: str) -> None:
    """The table changed, with checksums that fit."""
    table = bundle / "synthetic.csv"
    table.write_text(table.read_text().replace(old, new, 1))
    refit(bundle)


def test_a_release_holds_its_constraints_and_says_so(tiny: Any) -> None:
    tiny.write(constraints=TEXTS, attacks={"membership": {"enabled": False}}).release()
    table = pd.read_csv(tiny.bundle / "synthetic.csv", parse_dates=["joined"])
    assert len(table) == 250
    assert ((table["visits"] == 0) | (table["weight"] >= 60)).all()
    assert ((table["joined"] >= "2021-01-01") | (table["smoker"] == "never")).all()
    assert not ((table["grade"] == "high") & (table["visits"] >= 8)).any()
    assert verify_bundle(tiny.bundle).ok
    for name in ("README.md", "privacy/certificate.md"):
        assert "\n    visits == 0 or weight >= 60\n" in (tiny.bundle / name).read_text()
    assert "visits == 0 or weight" in (tiny.out / "internal" / "internal.html").read_text()
    row = table[(table["visits"] == 0) & (table["smoker"] == "never") & table["grade"].isna()].iloc[
        0
    ]
    mended(tiny.bundle, f"{row['sex']},,never,0,{row['weight']},", f"{row['sex']},,never,5,41.0,")
    with pytest.raises(
        VerifyError, match="1 rows do not fulfil the constraint 'visits == 0 or weight >= 60'"
    ):
        verify_bundle(tiny.bundle)


def test_an_impossible_constraint_is_refused_before_anything_is_spent(tiny: Any) -> None:
    with pytest.raises(SpecError, match="none of 50,000 rows"):
        tiny.write(constraints=["visits > 20"]).release()
    assert tiny.kinds() == []


def test_constraints_that_the_model_does_not_fulfil_withhold_the_bundle(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthdp.model.constraints.SETTINGS", DrawSettings(min_share=0.9))
    with pytest.raises(GateError, match="the hardest, 'weight < 60'"):
        tiny.write(constraints=["weight < 60", "visits < 20"]).release()
    assert not tiny.bundle.exists() and tiny.kinds().count("charge") == 2


AFTER = {"type": "number", "lower": 60, "upper": 160, "decimals": 1, "derived": "weight + visits"}
SEEN = {
    "type": "datetime",
    "lower": "2020-01-01",
    "upper": "2024-01-31",
    "derived": "joined + visits",
}


def test_what_an_equation_would_say_is_a_derived_column_that_costs_nothing(
    tiny: Any, make_table: Any
) -> None:
    """The source may hold the column; its values are not read."""
    with pytest.raises(SpecError, match="is an equation between numbers"):
        tiny.write(
            columns={"after": {**AFTER, "derived": None}}, constraints=["after == weight + visits"]
        ).release()
    table = make_table()
    out = tiny.write(
        table.assign(after="no number"),
        columns={"after": AFTER, "seen": SEEN},
        constraints=["after <= 110"],
    ).release()
    assert [s.purpose for s in out.job.plan.spends] == ["measure", "train"]
    assert verify_bundle(tiny.bundle).ok
    rows = pd.read_csv(tiny.bundle / "synthetic.csv", parse_dates=["joined", "seen"])
    assert list(rows.columns) == [*table.columns, "after", "seen"] and (rows["after"] <= 110).all()
    pd.testing.assert_series_equal(
        rows["after"], (rows["weight"] + rows["visits"]).clip(60).round(1).rename("after")
    )
    assert ((rows["seen"] - rows["joined"]).dt.days == rows["visits"]).all()
    measured = {
        n
        for t in json.loads((tiny.bundle / "marginals.json").read_text())["tables"]
        for n in t["columns"]
    }
    assert measured == {*table.columns}
    assert (
        "    after = weight + visits\n" in (tiny.bundle / "privacy" / "certificate.md").read_text()
    )
    for name in ("DATACARD.md", "croissant.json", "datapackage.json"):
        assert "computed from other columns: " in (tiny.bundle / name).read_text()
    frames = list(
        Sampler.of_bundle(tiny.bundle).sample(300, given=["visits=5"], rng=np.random.default_rng(1))
    )
    drawn = pd.concat(frames)
    np.testing.assert_allclose(drawn["after"], (drawn["weight"] + 5).clip(60))
    row = rows[rows["after"] > 60].iloc[0]
    mended(tiny.bundle, f",{row['after']},", f",{row['after'] + 0.1:.1f},")
    with pytest.raises(
        VerifyError, match="'after' is not what the spec computes it from in 1 rows"
    ):
        verify_bundle(tiny.bundle)
