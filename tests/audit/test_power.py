"""What a plan says of the membership attack is what the attack then is."""

import json
from typing import Any

import numpy as np
import pytest

from synthdp.api.text import plan_text
from synthdp.audit import AttackPower, TableMeasurer, attack_power, shadow_spec
from synthdp.data import Domain
from synthdp.ledger import Balance
from synthdp.model import plan_for
from synthdp.release.plan_view import plan_facts
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp_attacks import Counts, epsilon_lower_bound
from tests.builders import build_spec, skeleton

pytestmark = pytest.mark.check

COLUMNS: dict[str, Any] = {
    "old": {"type": "boolean"},
    "sick": {"type": "boolean"},
    "town": {"type": "categorical", "categories": ["a", "b", "c"]},
}


def spec_of(*, pairs: int, epsilon: float = 1.0, mode: str = "none") -> ReleaseSpec:
    return build_spec(
        COLUMNS,
        rows=20_000,
        graph={"mode": mode},
        privacy={"epsilon": epsilon, "delta": 1e-6},
        attacks={"membership": {"pairs": pairs, "rows": 200, "steps": 50}},
    )


def power_of(spec: ReleaseSpec) -> AttackPower:
    domain = Domain.from_spec(spec.columns)
    return attack_power(spec, domain, plan_for(spec, domain))


def test_the_bounds_are_those_of_games_that_are_all_won() -> None:
    power = power_of(spec_of(pairs=41))
    assert (power.models, power.attacks) == (82, 3)
    for bound, games in ((power.by_models, 21), (power.by_tables, 41 * 25)):
        won = Counts(games, games, 0, games)
        assert bound == epsilon_lower_bound(won, delta=1e-6, confidence=1 - 0.05 / 3)
    lost = Counts(20, 21, 0, 21)
    assert epsilon_lower_bound(lost, delta=1e-6, confidence=1 - 0.05 / 3) < power.by_models


@pytest.mark.parametrize("mode", ["none", "predict"])
def test_tables_are_counted_as_the_attack_counts_them(mode: str) -> None:
    """So many that each more would mean fewer releases."""
    spec = spec_of(pairs=10_000, mode=mode)
    domain = Domain.from_spec(spec.columns)
    measurer = TableMeasurer(domain, plan_for(shadow_spec(spec), domain))
    tables = len(measurer(np.zeros((200, 3), dtype=np.uint16)))
    assert tables == (3 if mode == "none" else 9)
    assert power_of(spec).releases == max(10_000, 50_000 // (2 * tables))


def test_a_claim_that_no_bound_can_refute_is_told() -> None:
    told = str(power_of(spec_of(pairs=40, epsilon=6.0)))
    assert "trains 80 models on 200 rows each" in told and "5% error together" in told
    assert "so neither bound can refute the plan's epsilon of 6" in told
    assert "so the models' bound cannot refute the plan's epsilon of 2" in str(
        power_of(spec_of(pairs=40, epsilon=2.0))
    )
    assert "refute" not in str(power_of(spec_of(pairs=40, epsilon=0.5)))


def test_more_models_take_longer_and_show_more() -> None:
    few, many = power_of(spec_of(pairs=20)), power_of(spec_of(pairs=200))
    assert 8 * few.cpu_seconds < many.cpu_seconds < 12 * few.cpu_seconds
    assert few.by_models < many.by_models and few.by_models < few.by_tables


@pytest.mark.parametrize("enabled", [True, False])
def test_plan_says_it(enabled: bool) -> None:
    attacks = {"membership": {"enabled": enabled, "pairs": 40}}
    spec = build_spec(COLUMNS, rows=20_000, graph={"mode": "none"}, attacks=attacks)
    balance = Balance("d", epsilon=0.0, delta=0.0, cap_epsilon=None, cap_delta=None)
    facts = plan_facts(spec, balance)
    assert json.loads(json.dumps(facts))["attack"] == (
        power_of(spec).to_json() if enabled else None
    )
    assert ("if it won every game" in " ".join(plan_text(facts).split())) == enabled


@pytest.mark.parametrize(
    ("columns", "rows", "seconds"), [(10, 5000, 6.3), (30, 10_000, 10.8), (80, 20_000, 19.8)]
)
def test_a_plan_knows_what_mode_predict_takes(columns: int, rows: int, seconds: float) -> None:
    """Within 30% of what generated tables took, half of numbers with two decimals, half of about
    five categories: the seconds of fit and draw, and five of all else.
    """
    number = {"type": "number", "lower": -6, "upper": 6, "decimals": 2}
    class_ = {"type": "categorical", "categories": ["a", "b", "c", "d", "e"]}
    every = {f"c{i}": number if i % 2 else class_ for i in range(columns)}
    sections = skeleton(rows) | {"columns": every, "graph": {"mode": "predict"}}
    sections["evaluation"] = {"targets": ["c0"]}
    spec = parse_spec(json.dumps(sections), path="spec.yaml")
    balance = Balance("d", epsilon=0.0, delta=0.0, cap_epsilon=None, cap_delta=None)
    told = plan_facts(spec, balance)["expected"]["cpu_seconds"]
    assert 0.7 < told / seconds < 1.3
