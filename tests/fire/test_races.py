"""Fifty releases race for the last of a cap: exactly as many win as fit, and nobody waits
forever.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp.ledger import Ledger

pytestmark = pytest.mark.check

RACERS, EPSILON, CAP = 50, 0.3, 2.2
FIT = 7  # floor(2.2 / 0.3)


def race(
    url: str, *breakage: str, racers: int = RACERS, epsilon: float = EPSILON, cap: float = CAP
) -> dict[str, Any]:
    """The result of one race."""
    script = Path(__file__).with_name("racer.py")
    command = [sys.executable, str(script), url, str(racers), str(epsilon), str(cap), *breakage]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check_race(
    url: str, result: dict[str, Any], *, racers: int, fit: int, epsilon: float, cap: float
) -> None:
    """The law of a race."""
    ledger = Ledger(url)
    ledger.verify_chain()
    reserved = [e for e in ledger.entries() if e.kind == "reserve"]
    assert sum(e.body["epsilon"] for e in reserved) <= cap * (1 + 1e-9), "the cap was exceeded"
    assert result["failed"] == []
    assert (result["won"], result["refused"]) == (fit, racers - fit) and len(reserved) == fit
    for entry in reserved:
        assert [e.kind for e in ledger.run_entries(entry.run) if e.kind != "cap"] == [
            "reserve",
            "charge",
            "charge",
            "settle",
        ]
    assert ledger.balance("raced").epsilon == pytest.approx(fit * epsilon)


@pytest.mark.slow
def test_fifty_releases_race_for_the_last_of_a_cap(url: str, figure: Callable[..., None]) -> None:
    result = race(url)
    check_race(url, result, racers=RACERS, fit=FIT, epsilon=EPSILON, cap=CAP)
    kind = url.split(":")[0].split("+")[0]
    figure(f"ledger on {kind}: releases that fitted the cap and won", result["won"], FIT)
    figure(
        f"ledger on {kind}: releases beyond the cap that were let in",
        result["won"] - FIT,
        RACERS - FIT,
    )
    figure(f"ledger on {kind}: racers deadlocked or failed", len(result["failed"]), RACERS)


def test_eight_releases_race_for_one_place(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    check_race(
        url, race(url, racers=8, epsilon=1.0, cap=1.5), racers=8, fit=1, epsilon=1.0, cap=1.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("breakage", ["no lock", "check before the lock"])
def test_a_ledger_without_its_lock_fails_the_race(url: str, breakage: str) -> None:
    result = race(url, breakage)
    with pytest.raises(
        AssertionError, match="cap was exceeded" if breakage == "check before the lock" else None
    ):
        check_race(url, result, racers=RACERS, fit=FIT, epsilon=EPSILON, cap=CAP)


def played(folder: Path, plays: int, *blind: str) -> dict[str, Any]:
    """What the plays of the filter came to."""
    script = Path(__file__).with_name("filter_plays.py")
    command = [sys.executable, str(script), str(folder), str(plays), *blind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ended"].keys() == {"-9", "0", "3"}  # killed, done, refused, and no bug
    assert found["rules"].keys() <= {"a Gaussian filter", "nothing reserved"}
    return found


@pytest.mark.parametrize("plays", [6, pytest.param(400, marks=pytest.mark.slow)])
def test_kills_races_and_ledgers_put_back_pass_no_filter(
    plays: int, tmp_path: Path, figure: Callable[..., None]
) -> None:
    """Published runs stay under the cap, whatever became of processes and of the ledger's file."""
    found = played(tmp_path, plays)
    if plays == 400:
        name = "plays of kills, copies and races that passed a cap's filter"
        figure(name, len(found["passed"]), plays)
    assert found["passed"] == []


@pytest.mark.slow
def test_releases_that_do_not_look_at_bundles_pass_the_filter(tmp_path: Path) -> None:
    """The fault: a ledger that was put back is believed."""
    assert len(played(tmp_path, 20, "blind")["passed"]) > 0
