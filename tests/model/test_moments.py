"""Which sums of numbers a spec has measured, by what is declared alone."""

from typing import Any

import pytest

from synthdp.bundle import spec_yaml
from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.model import moment_sums, plan_for
from synthdp.privacy.mechanisms.sums import NUMBER
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

COLUMNS: dict[str, Any] = {
    "arm": {"type": "categorical", "categories": ["a", "b", "c"], "missing": True},
    "town": {"type": "categorical", "categories": [f"t{i}" for i in range(60)]},
    "sick": {"type": "boolean"},
    "age": {"type": "integer", "lower": 0, "upper": 99, "missing": True},
    "cost": {"type": "number", "lower": 0.0, "upper": 1000.0},
    "day": {"type": "datetime", "lower": "2001-01-01", "upper": "2020-12-31"},
}


def spec_of(rows: int = 40_000, mode: str = "predict", **changes: Any) -> ReleaseSpec:
    import yaml

    text = yaml.safe_dump({**skeleton(rows), "columns": COLUMNS, "graph": {"mode": mode}} | changes)
    return parse_spec(text, path="spec.yaml")


def test_every_number_is_added_up_with_its_square_and_by_columns_that_noise_allows() -> None:
    spec = spec_of()
    sums = moment_sums(spec, Domain.from_spec(spec.columns))
    alone = [p for p in sums.products if all(level == NUMBER for _, level in p)]
    age, cost = ("age", NUMBER), ("cost", NUMBER)
    assert alone == [(age,), (age, age), (cost,), (cost, cost)]
    beside = {name for p in sums.products for name, level in p if level != NUMBER}
    assert beside == {"sick", "arm"}, "the mean of an average town would be noise"
    assert (("age", NUMBER), ("arm", 3)) in sums.products, "lacking an arm is a level"
    assert len(sums.products) == 4 + 2 * (4 + 2) and sums.apart


def test_fewer_rows_have_fewer_groups_and_then_no_moments() -> None:
    beside = [
        len(moment_sums(spec, Domain.from_spec(spec.columns)).products)
        for spec in map(spec_of, (40_000, 10_000))
    ]
    assert beside == [16, 8]
    few = spec_of(1000)
    assert few.privacy.shares.moments == 0
    assert plan_for(few, Domain.from_spec(few.columns)).moments is None


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 0.1),
        ({"mode": "none"}, 0.1),
        ({"privacy": {"epsilon": 0.02, "delta": 1e-6}}, 0.0),
        ({"columns": {n: COLUMNS[n] for n in ("arm", "sick", "day")}}, 0.0),
    ],
)
def test_moments_are_measured_by_default_where_noise_leaves_something_of_them(
    changes: dict[str, Any], share: float
) -> None:
    spec = spec_of(**changes)
    assert spec.privacy.shares.moments == pytest.approx(share)
    assert parse_spec(spec_yaml(spec), path="again.yaml").privacy.shares == spec.privacy.shares


def test_they_cost_the_tables_about_a_hundredth() -> None:
    shares = {"measure": 0.4, "graph": 0.6, "train": 0.0}
    without = spec_of(privacy={"epsilon": 1.0, "delta": 1e-5, "shares": shares})
    own = {n: 0.9 * part for n, part in shares.items()} | {"moments": 0.1}
    beside = spec_of(privacy={"epsilon": 1.0, "delta": 1e-5, "shares": own})
    plans = [plan_for(s, Domain.from_spec(s.columns)) for s in (without, beside, spec_of())]
    first, second, third = (plan.measure.sigma if plan.measure else 0.0 for plan in plans)
    assert plans[0].moments is None and plans[1].moments is not None
    assert second / first == pytest.approx(1.011, abs=0.004)
    assert plans[2].heaps and third / first == pytest.approx(1.038, abs=0.004), "with heaps, too"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"columns": {"arm": COLUMNS["arm"], "sick": COLUMNS["sick"]}}, "no column is a number"),
        ({"compute": {"engine": "sql"}}, "engine sql counts and adds up nothing"),
    ],
)
def test_a_share_of_moments_that_buys_nothing_is_refused(
    changes: dict[str, Any], told: str
) -> None:
    shares = {"measure": 0.3, "graph": 0.6, "train": 0.0, "moments": 0.1}
    with pytest.raises(SpecError) as caught:
        spec_of(privacy={"epsilon": 1.0, "delta": 1e-5, "shares": shares}, **changes)
    assert told in "\n".join(p.message for p in caught.value.problems)
