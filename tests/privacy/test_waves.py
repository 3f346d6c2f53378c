"""What waves of a series cost a person who is in some of them: `synthdp.ledger.composition`."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.errors import BudgetError
from synthdp.ledger import (
    FOR_LOST,
    NOTHING,
    Balance,
    Entry,
    Ledger,
    Wave,
    balance_of_entries,
    check_affordable,
    gaussian_delta,
    ledger_facts,
    together,
)
from synthdp.ledger import entries as of_entries
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

CAP = (3.0, 1e-4)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


def reserve(ledger: Ledger, run: str, wave: Wave | None, **changes: Any) -> Balance:
    wanted: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "cap": CAP, "bound": (0.27, 1e-8)}
    ledger.reserve("clinic", run, body={}, wave=wave, **{**wanted, **changes})
    return ledger.balance("clinic")


def test_the_same_people_add_up_and_disjoint_ones_do_not(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(f"sqlite:///{tmp_path / 'other.db'}")
    for i in range(9):
        same = reserve(ledger, f"r{i}", Wave(str(i), None))
    with pytest.raises(BudgetError, match="by a Gaussian filter"):
        reserve(ledger, "r9", Wave("9", None))
    for i in range(30):
        once = reserve(other, f"r{i}", Wave(str(i), 1))
    assert (same.epsilon, once.epsilon) == (9.0, 1.0)
    assert same.mu == pytest.approx(0.81) and once.mu == pytest.approx(0.27)
    assert once.rule == "a Gaussian filter of the 1 largest waves"


def test_runs_of_one_wave_add_up_and_a_run_without_one_counts_for_everyone(ledger: Ledger) -> None:
    reserve(ledger, "search", None, bound=(0.1, 1e-9))
    for i in range(3):
        reserve(ledger, f"a{i}", Wave("a", 1), bound=(0.2, 1e-9))
    found = reserve(ledger, "b", Wave("b", 1), bound=(0.3, 3e-9))
    assert found.mu == pytest.approx(math.sqrt(0.1**2 + 3 * 0.2**2))
    assert found.lost == pytest.approx(1e-9 + 3e-9) and found.epsilon == 4.0


def test_a_series_has_one_statement_on_its_people(ledger: Ledger) -> None:
    reserve(ledger, "a", Wave("a", 4))
    with pytest.raises(BudgetError, match="people who may be in at most 4 of them"):
        reserve(ledger, "b", Wave("b", 1))


def played(rng: np.random.Generator, ledger: Ledger, most: int | None) -> list[Entry]:
    """A series whose steward asks for what comes to mind, until the ledger refuses some."""
    for i in range(14):
        wave = None if rng.random() < 0.1 else Wave(str(rng.integers(6)), most)
        mu, lost = float(rng.uniform(0.05, 0.5)), float(rng.choice([1e-9, 2e-6]))
        epsilon = float(rng.uniform(0.1, 1.2))
        try:
            reserve(ledger, f"r{i}", wave, bound=(mu, lost), epsilon=epsilon)
        except BudgetError:
            continue
    return [e for e in ledger.entries() if e.kind == "reserve"]


def passed(entries: list[Entry], most: int | None) -> bool:
    """Whether somebody, in some waves of a series, loses more than the cap: every set is tried."""
    names = {e.body["wave"]["name"] for e in entries if "wave" in e.body}
    for size in range(min(len(names), len(names) if most is None else most) + 1):
        for own in combinations(sorted(names), size):
            met = [e.body for e in entries if e.body.get("wave", {"name": own[:1]})["name"] in own
                   or "wave" not in e.body]  # fmt: skip
            if "mu" not in entries[0].body:
                if math.fsum(b["epsilon"] for b in met) > CAP[0] * (1 + 1e-9):
                    return True
                continue
            mu, lost = math.hypot(*(b["mu"] for b in met)), math.fsum(b["lost"] for b in met)
            if gaussian_delta(CAP[0], mu) + lost > CAP[1] or lost > FOR_LOST * CAP[1] * (1 + 1e-9):
                return True
    return False


@pytest.mark.check
@pytest.mark.parametrize("most", [1, 2, 4, None])
def test_nobody_loses_more_than_the_cap_in_any_waves(
    most: int | None, tmp_path: Path, figure: Callable[..., None]
) -> None:
    refused = lost = 0
    for play in range(12):
        ledger = Ledger(f"sqlite:///{tmp_path / f'{play}.db'}")
        entries = played(np.random.default_rng(play), ledger, most)
        lost += passed(entries, most)
        refused += len(entries) < 14
        by_one = Balance("clinic", 0.0, 0.0, *CAP)  # as a plan counts, run after run
        for e in entries:
            wave = Wave(**e.body["wave"]) if "wave" in e.body else None
            bound = (e.body["mu"], e.body["lost"]) if "mu" in e.body else None
            by_one = by_one.after(e.body["epsilon"], e.body["delta"], bound, wave)
        told = ledger.balance("clinic")
        assert by_one.together == pytest.approx(told.together) and by_one.waves.keys() == (
            told.waves.keys()
        )
    figure("series of waves in which somebody lost more than the cap", lost, 12)
    assert refused > 6 and lost == 0


FAULTS = {
    "the waves that came last": lambda own, most: own[-most:],
    "the least": lambda own, most: sorted(own)[:most],
    "one wave less": lambda own, most: sorted(own, reverse=True)[: most - 1],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_rule_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(always: Any, waves: Any, most: int) -> Any:
        amounts = zip(NOTHING, *waves.values(), strict=True)
        largest = [FAULTS[fault](list(amount), most or 1) for amount in amounts]
        return together([always, *zip(*largest, strict=True)])

    monkeypatch.setattr(of_entries, "of_series", wrong)
    found = False
    for play in range(12):
        ledger = Ledger(f"sqlite:///{tmp_path / f'{play}.db'}")
        found |= passed(played(np.random.default_rng(play), ledger, 2), 2)
    assert found


def test_a_run_without_a_wave_must_not_be_forgotten(ledger: Ledger) -> None:
    reserve(ledger, "all", None, bound=(0.8, 1e-8))
    with pytest.raises(BudgetError):
        reserve(ledger, "a", Wave("a", 1), bound=(0.5, 1e-8))


# --- waves to come ---


def spec(people: Any, planned: int = 5, epsilon: float = 1.0) -> ReleaseSpec:
    asked = skeleton(1000)
    asked["dataset"]["id"] = "clinic"
    asked["privacy"] |= {"epsilon": epsilon, "cap": {"epsilon": CAP[0], "delta": CAP[1]}}
    asked["waves"] = {"name": "2027", "people": people, "planned": planned}
    asked["columns"] = {"old": {"type": "boolean"}}
    return ReleaseSpec.model_validate(asked)


@pytest.mark.parametrize(
    ("people", "mu", "fits"),
    [
        ("same", 0.27, True),  # five times 0.27 is 0.6
        ("same", 0.6, False),
        ({"rotating": 2}, 0.57, True),
        ({"rotating": 4}, 0.57, False),
        ({"disjoint": "birth_year"}, 0.8, True),
    ],
)
def test_a_plan_keeps_the_share_of_waves_to_come(people: Any, mu: float, fits: bool) -> None:
    asked, nothing = spec(people), Balance("clinic", 0.0, 0.0, None, None)
    facts = ledger_facts(asked, nothing, (mu, 1e-8))
    assert facts["waves"]["to_come"] == 4 and facts["waves"]["fits"] == fits
    if fits:
        check_affordable(asked, nothing, facts)
        return
    with pytest.raises(BudgetError, match="the cap leaves too little for 4 waves to come"):
        check_affordable(asked, nothing, facts)


def test_waves_that_were_released_are_not_to_come(ledger: Ledger) -> None:
    for name in ("2025", "2026"):
        reserve(ledger, name, Wave(name, None))
    facts = ledger_facts(spec("same"), ledger.balance("clinic"), (0.27, 1e-8))
    assert facts["waves"]["to_come"] == 2
    again = balance_of_entries("clinic", ledger.entries())
    assert [*again.waves] == ["2025", "2026"]
