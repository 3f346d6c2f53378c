"""What a plan says of other budgets, held against the plans of specs that have them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import synthdp
from synthdp.data import Domain
from synthdp.errors import BudgetError, OutputError
from synthdp.model import plan_for
from synthdp.privacy import accounting
from synthdp.privacy.plan import ReleasePlan
from synthdp.release import expected_quality
from synthdp.release.what_if import MAX_EPSILONS, figures_table, what_if
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

pytestmark = pytest.mark.check

Run = Callable[..., Any]
COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 99},
    "pay": {"type": "number", "lower": 0, "upper": 50, "missing": True},
    "sick": {"type": "boolean", "false": "no", "true": "yes"},
}
LEARN = {
    "graph": {"mode": "learn"},
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-5,
        "shares": {"measure": 0.2, "graph": 0.6, "train": 0.2},
    },
}
PREDICT = {"graph": {"mode": "predict"}}


def text_of(**sections: Any) -> str:
    return yaml.safe_dump({**skeleton(20_000), "columns": COLUMNS, **sections}, sort_keys=False)


@pytest.mark.parametrize("sections", [LEARN, PREDICT], ids=["learn", "predict"])
def test_a_budget_gives_what_a_spec_of_it_would(sections: dict[str, Any]) -> None:
    text = text_of(**sections)
    for found in what_if(text, [0.5, 3.0]):
        content = yaml.safe_load(text)
        content["privacy"]["epsilon"] = found["epsilon"]
        spec = parse_spec(yaml.safe_dump(content), path="s")
        domain = Domain.from_spec(spec.columns)
        plan = plan_for(spec, domain)
        assert plan.measure is not None
        assert found["noise"]["measure"] == [min(plan.measure.sigmas), max(plan.measure.sigmas)]
        assert found["quality"] == expected_quality(spec, domain, plan).to_json()
        trained = [(t["steps"], t["noise_multiplier"]) for t in found["training"]]
        assert trained == ([] if plan.train is None else [(800, plan.train.noise_multiplier)])
        assert found["noise_multipliers"].keys() == {f"graph: {name}" for name in plan.graph}


def test_fine_bins_are_those_of_each_budget() -> None:
    few, many = (
        option["quality"]["columns"][1] for option in what_if(text_of(**PREDICT), [0.01, 4])
    )
    assert few["levels"] < many["levels"]


def test_the_attacker_is_held_by_the_composed_events() -> None:
    options = what_if(text_of(), [0.1, 1, 10])
    right = [option["right_at_most"] for option in options]
    assert 0.5 < right[0] < right[1] < right[2] <= 1
    for option in options:
        epsilon = option["epsilon"]
        odds = 2.718281828459045**epsilon
        assert option["right_at_most"] <= (odds + 1e-5) / (1 + odds) + 1e-9
    spec = parse_spec(text_of(), path="s")
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    ((_, advantage),) = accounting.delta_profile(
        plan.composed(), epsilons=(0.0,), adjacency="add_remove"
    )
    assert right[1] == pytest.approx((1 + advantage) / 2)


def test_the_command_shows_a_column_for_each_and_spends_nothing(
    tmp_path: Path, synthdp: Any
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text_of(**LEARN), encoding="utf-8")
    said = synthdp("plan", path, "--what-if", "0.5,1,2,4")
    assert said.code == 0 and "what if: " in said.err
    (head,) = (line for line in said.out.splitlines() if line.startswith("what if: epsilon"))
    assert head.split()[3:] == ["0.5", "1", "2", "4"]
    for row in (
        "right about one unit, all others known, at most",
        "noise: measure",
        "noise multiplier: train, 800 steps",
        "single columns off by (TV)",
        "pairs with a medium dependence that is seen",
    ):
        assert row in said.out
    facts = json.loads(synthdp("plan", path, "--what-if", "0.5,4", "--json").out)
    assert [option["epsilon"] for option in facts["what_if"]] == [0.5, 4]
    assert "what_if" not in json.loads(synthdp("plan", path, "--json").out)
    assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("0.5,x", "'0.5,x' is no list of numbers"),
        ("", "'' is no list of numbers"),
        ("0.5,0", "epsilon 0 is not allowed"),
        ("nan", "epsilon nan is not allowed"),
        ("101", "epsilon 101 is not allowed"),
        (",".join(["1"] * (MAX_EPSILONS + 1)), "9 epsilons"),
    ],
)
def test_other_numbers_are_refused_before_anything(
    asked: str, says: str, tmp_path: Path, synthdp: Any
) -> None:
    spec = tmp_path / "nothing.yaml"
    for words in (("plan", spec, "--what-if"), ("study", spec, "--simulated", "--epsilons")):
        done = synthdp(*words, asked)
        assert done.code == 2 and says in done.err and "0.5,1,2,4" in done.err
        assert f"synthdp: {words[-1]}" in done.err


def test_python_has_it_as_a_table(tmp_path: Path) -> None:
    spec = synthdp.Spec.from_dict(yaml.safe_load(text_of(**LEARN)), folder=tmp_path)
    plan = spec.plan(what_if=[0.5, 4])
    told = plan.what_if
    assert told["epsilon"].tolist() == [0.5, 4.0]
    assert told["tv1"].is_monotonic_decreasing and told["decidable_pairs"].is_monotonic_increasing
    assert "At other budgets" in plan._repr_html_()
    assert spec.plan().what_if.empty and "At other budgets" not in spec.plan()._repr_html_()
    with pytest.raises(OutputError, match="not allowed"):
        spec.plan(what_if=[-1])


def test_a_budget_that_cannot_be_planned_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
        if spec.privacy.epsilon < 1:
            raise BudgetError("below what the accountant can resolve")
        return plan_for(spec, domain)

    monkeypatch.setattr("synthdp.release.what_if.plan_for", planned)
    options = what_if(text_of(), [0.5, 2])
    assert options[0] == {"epsilon": 0.5, "refused": "below what the accountant can resolve"}
    head, rows = figures_table(options)
    assert head == ["what if: epsilon", "0.5", "2"] and rows[0] == ["can be planned", "no", "-"]
    assert all(row[1] == "-" != row[2] for row in rows[1:])
