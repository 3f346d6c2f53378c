"""What the benchmark of effects says of its runs, and that its estimates are those of the
randomised plan.
"""

import pandas as pd
import pytest

from benchmarks.effects import NAMES, real_rows, summary

pytestmark = pytest.mark.check


def test_real_effects_are_differences_of_means() -> None:
    table = pd.read_csv("specs/data/rand-hie.csv")
    free = table["lncoins"] == 0
    found = {row["effect"]: row["estimate"] for row in real_rows()}
    assert found[NAMES[0]] == pytest.approx(
        table.loc[free, "mdvis"].mean() - table.loc[~free, "mdvis"].mean(), abs=1e-6
    )
    assert found[NAMES[1]] == pytest.approx(
        table.loc[free, "mdvis"].mean() - table.loc[table["lncoins"] > 4, "mdvis"].mean(), abs=1e-6
    )


def test_summary_counts_intervals_that_hold_the_real_estimate() -> None:
    row = {
        "variant": "real rows",
        "epsilon": 0.0,
        "effect": "e",
        "estimate": 1.0,
        "low": 0.8,
        "high": 1.2,
        "error": 0.1,
    }
    runs = [
        {**row, "variant": "causal", "epsilon": 1.0, "estimate": m, "low": m - 0.2, "high": m + 0.2}
        for m in (0.9, 1.1, 1.4)
    ]
    (told,) = summary(pd.DataFrame([row, *runs])).to_dict("records")
    assert (told["covered"], told["mean"]) == ("2 of 3", pytest.approx(1.133)) and told[
        "rmse"
    ] == pytest.approx(0.245, abs=1e-3)
