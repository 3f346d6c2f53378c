"""A table that is plainly not the declared one is refused: before anything is spent where it is
empty, else before training.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.errors import WrongTableError
from synthdp.model import check_total, noisy_total
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import load_spec

pytestmark = pytest.mark.check

DECLARED = {"rows": {"kind": "approximate", "value": 20_000}}


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "csv", "path": "table.csv"},
        {"kind": "parquet", "path": "table.parquet", "levels_only": True},
    ],
)
def test_an_empty_table_is_refused_before_anything_is_spent(
    tiny: Any,
    synthdp: Any,
    make_table: Callable[..., pd.DataFrame],
    source: dict[str, Any],
) -> None:
    rows = make_table().head(0)
    tiny.write(rows, dataset={"source": source}, evaluation={"enabled": False})
    rows.astype({"visits": "int64", "weight": "float64"}).astype(
        {c: "str" for c in ("sex", "grade", "smoker", "joined")}
    ).to_parquet(tiny.folder / "table.parquet", index=False)
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 5 and "the table has no rows" in done.err and tiny.kinds() == []


def test_a_table_of_other_size_stops_before_training(
    tiny: Any, synthdp: Any, make_table: Callable[..., pd.DataFrame]
) -> None:
    """400 of 20,000 rows: half of those to fit, 8,000, is more than 70 deviations away."""
    tiny.write(make_table(400), dataset=DECLARED)
    done = synthdp("release", tiny.spec, "--out", tiny.out, "--json")
    error = json.loads(done.out)
    assert (
        done.code == 5
        and "this is not the declared table: dataset.rows declares 20,000 rows, 16,000 of them to fit"  # noqa: E501
        in error["error"]
    )
    assert "nothing was trained" in error["hint"] and "--force" in error["hint"]
    assert "epsilon 1 at delta 1e-05 stays spent" in error["budget"]
    assert "charged so far: measure; what was measured is kept in" in error["budget"]
    assert error["budget"] in done.err
    assert [k for k in tiny.kinds() if k != "kept"] == [
        "cap",
        "reserve",
        "charge",
    ]
    assert not tiny.bundle.exists()
    again = synthdp("resume", tiny.out)
    assert again.code == 5
    assert "this is not the declared table" in again.err
    assert [k for k in tiny.kinds() if k == "charge"] == ["charge"]
    tiny.write(make_table(400))
    assert synthdp("release", tiny.spec, "--out", tiny.out, "--force").code == 0


def test_a_table_within_what_approximate_allows_is_told_of(
    tiny: Any, synthdp: Any, make_table: Callable[..., pd.DataFrame]
) -> None:
    tiny.write(
        make_table(6_000),
        dataset={"rows": {"kind": "approximate", "value": 10_000}},
        evaluation={"enabled": False},
    )
    done = synthdp("release", tiny.spec, "--out", tiny.out)
    assert done.code == 0
    assert "warning: dataset.rows declares 10,000 rows, and the noisy counts say" in done.out


def tables(rows: float, *, sigma: float = 10.0, seed: int = 1) -> list[NoisyTable]:
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 20)
    return [
        NoisyTable((str(k),), rows / k + rng.normal(0, sigma * (1 + k), k), sigma * (1 + k))
        for k in sizes
    ]


def test_the_total_has_the_deviation_that_it_states() -> None:
    """Of 4,000 totals with a seed; the law of their variance rejects 5% either way."""
    off = np.array([noisy_total(tables(5_000, seed=i)).rows - 5_000 for i in range(4_000)])
    deviation = noisy_total(tables(5_000)).deviation
    assert abs(off.std() / deviation - 1) < 0.05 and abs(off.mean()) < 0.1 * deviation
    assert deviation < min(np.sqrt(t.counts.size) * t.sigma for t in tables(5_000))


@pytest.mark.parametrize("holdout", [0.0, 0.5])
def test_where_the_limits_are(tiny: Any, holdout: float) -> None:
    spec = load_spec(
        tiny.write(dataset=DECLARED, evaluation={"holdout": holdout, "targets": []}).spec
    )
    exact = [NoisyTable(("sex",), np.array([1.0, 0.0]), 10.0)]
    noise = 10 * np.sqrt(2)
    fit = 20_000 * (1 - holdout)

    def told(rows: float) -> list[str]:
        return check_total([NoisyTable(exact[0].columns, exact[0].counts * rows, 10.0)], spec)

    for limit, side in ((fit / 2, -1), (fit * 2, 1)):
        slack = 4 * np.hypot(noise, np.sqrt(limit * holdout))
        assert told(limit + side * (slack - 1))
        with pytest.raises(WrongTableError):
            told(limit + side * (slack + 1))
    assert told(fit) == [] and told(fit - 4 * noise + 1) == []


def test_where_ids_are_the_unit_few_rows_may_be_left(tiny: Any) -> None:
    unit = {"kind": "id", "column": "who", "max_rows": 2, "meaning": "one person"}
    spec = load_spec(tiny.write(dataset=DECLARED | {"privacy_unit": unit}).spec)
    few, many = ([NoisyTable(("sex",), np.array([n, 0.0]), 10.0)] for n in (100.0, 100_000.0))
    (warning,) = check_total(few, spec)
    assert "Only rows that max_rows leaves are counted" in warning
    with pytest.raises(WrongTableError):
        check_total(many, spec)
