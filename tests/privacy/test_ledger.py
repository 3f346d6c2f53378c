"""The ledger: caps under races, tampering, and reservations that cannot be spent twice."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from synthdp.errors import BudgetError, VerifyError
from synthdp.ledger import GENESIS, Ledger, entry_hash, verify_entries

EVENT = {"event": "gaussian", "noise_multiplier": 2.0}
CAP = (3.0, 1e-4)


def reserve(
    ledger: Ledger,
    run: str,
    epsilon: float = 1.0,
    *,
    dataset: str = "adult",
    cap: tuple[float, float] | None = CAP,
) -> None:
    ledger.reserve(dataset, run, epsilon=epsilon, delta=1e-5, cap=cap, body={"by": "me"})


def charge(
    ledger: Ledger, run: str, *, event: dict[str, Any] | None = None, dataset: str = "adult"
) -> str:
    return ledger.charge(dataset, run, purpose="measure", mechanism="m", event=event or EVENT).hash


# --- balances and caps ---


def test_reservations_add_up_and_the_cap_holds(ledger: Ledger) -> None:
    for run in ("r1", "r2", "r3"):
        reserve(ledger, run)
    with pytest.raises(
        BudgetError, match=r"epsilon: needs 0\.01, 0 left on dataset adult; cap 3, spent 3"
    ):
        reserve(ledger, "r4", 0.01)
    balance = ledger.balance("adult")
    assert (balance.epsilon, balance.cap_epsilon, balance.cap_delta) == (3.0, *CAP)
    assert balance.delta == pytest.approx(3e-5)
    reserve(ledger, "r4", dataset="other", cap=None)  # each dataset has its own cap


def test_delta_has_a_cap_too(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="delta: needs"):
        ledger.reserve("d", "r", epsilon=0.1, delta=2e-4, cap=CAP, body={})


def test_decimal_fractions_fit_their_sum(ledger: Ledger) -> None:
    for run, epsilon in (("a", 0.1), ("b", 0.2)):
        reserve(ledger, run, epsilon, cap=(0.3, 1e-4))


def test_cap_is_fixed_by_the_first_release_and_changed_openly(ledger: Ledger) -> None:
    reserve(ledger, "r1")
    with pytest.raises(BudgetError, match="the ledger's is epsilon 3"):
        reserve(ledger, "r2", cap=(9.0, 1e-4))
    ledger.set_cap("adult", epsilon=0.5, delta=1e-4)
    with pytest.raises(BudgetError, match=r"cap 0\.5, spent 1"):
        reserve(ledger, "r2", 0.1, cap=None)
    ledger.set_cap("adult", epsilon=5.0, delta=1e-4)
    reserve(ledger, "r2", 4.0, cap=None)
    assert [e.kind for e in ledger.entries()] == ["cap", "reserve", "cap", "cap", "reserve"]


def test_check_agrees_with_reserve(ledger: Ledger) -> None:
    ledger.check("adult", epsilon=3.0, delta=1e-5, cap=CAP)
    with pytest.raises(BudgetError, match=r"needs 3\.1"):
        ledger.check("adult", epsilon=3.1, delta=1e-5, cap=CAP)
    assert ledger.entries() == []


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0])
def test_amounts_that_defeat_a_comparison_are_refused(ledger: Ledger, amount: float) -> None:
    for attempt in (
        lambda: reserve(ledger, "r", amount),
        lambda: reserve(ledger, "r", 0.1, cap=(amount, 1e-4)),
        lambda: ledger.set_cap("adult", epsilon=amount, delta=1e-4),
    ):
        with pytest.raises(BudgetError):
            attempt()
    assert ledger.entries() == []


# --- charges ---


def test_same_charge_is_made_once_and_another_is_refused(ledger: Ledger) -> None:
    reserve(ledger, "r")
    assert charge(ledger, "r") == charge(ledger, "r")
    with pytest.raises(BudgetError, match="already charged 'measure' with another event"):
        charge(ledger, "r", event={"event": "gaussian", "noise_multiplier": 1.0})
    assert [e.kind for e in ledger.run_entries("r")] == ["cap", "reserve", "charge"]


def test_no_charge_without_an_open_reservation_on_that_dataset(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="no open reservation"):
        charge(ledger, "r")
    reserve(ledger, "r")
    with pytest.raises(BudgetError, match="no open reservation on dataset other"):
        charge(ledger, "r", dataset="other")
    ledger.settle("adult", "r")
    with pytest.raises(BudgetError, match="no open reservation"):
        charge(ledger, "r")


def test_settling_twice_is_one_settlement_and_keeps_the_spend(ledger: Ledger) -> None:
    reserve(ledger, "r")
    assert ledger.settle("adult", "r") == ledger.settle("adult", "r")
    assert ledger.balance("adult").epsilon == 1.0


# --- tampering ---


def tampered(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("update synthdp_ledger set body = replace(body, '1.0', '0.1') where seq = 2", 2),
        ("update synthdp_ledger set dataset = 'other' where seq = 3", 3),
        ("update synthdp_ledger set at = '2020-01-01T00:00:00+00:00' where seq = 4", 4),
        ("update synthdp_ledger set kind = 'settle' where seq = 3", 3),
        ("update synthdp_ledger set hash = 'f' where seq = 3", 3),
        ("update synthdp_ledger set previous = 'f' where seq = 2", 2),
        ("delete from synthdp_ledger where seq = 1", 2),
        ("delete from synthdp_ledger where seq = 3", 4),
        ("update synthdp_ledger set seq = 9 where seq = 3", 4),
        (
            (
                "insert into synthdp_ledger select 9, dataset, run, kind, body, at, 'p', 'h' from"
                " synthdp_ledger where seq = 2"
            ),
            9,
        ),
    ],
)
def test_tampering_is_found_and_the_row_named(tmp_path: Path, statement: str, row: int) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'l.db'}")
    reserve(ledger, "r")
    charge(ledger, "r")
    reserve(ledger, "s")
    ledger.verify_chain()
    tampered(tmp_path / "l.db", statement)
    with pytest.raises(VerifyError, match=f"row {row} "):
        ledger.verify_chain()


def test_a_row_put_in_with_a_good_hash_breaks_the_next(ledger: Ledger) -> None:
    reserve(ledger, "r")
    first, second = ledger.entries()
    content = {
        "seq": 1,
        "dataset": "adult",
        "run": "x",
        "kind": "cap",
        "body": {"epsilon": 99.0, "delta": 1e-4},
        "at": first.at,
        "previous": GENESIS,
    }
    forged = type(first)(**content, hash=entry_hash(**content))
    with pytest.raises(VerifyError, match="row 2"):
        verify_entries([forged, second])


# --- races ---


def _race(arguments: tuple[str, int]) -> bool:
    url, i = arguments
    try:
        reserve(Ledger(url), f"r{i}", 0.5)
    except BudgetError:
        return False
    return True


def test_threads_racing_for_the_last_of_a_cap(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    Ledger(url)
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(_race, [(url, i) for i in range(32)]))
    assert sum(won) == 6
    assert Ledger(url).balance("adult").epsilon == 3.0
    Ledger(url).verify_chain()


RACER = """
import sys, time
from synthdp.errors import BudgetError
from synthdp.ledger.ledger import Ledger
url, run, start = sys.argv[1], sys.argv[2], float(sys.argv[3])
time.sleep(max(0.0, start - time.time()))
try:
    Ledger(url).reserve("adult", run, epsilon=0.5, delta=1e-5, cap=(3.0, 1e-4), body={})
except BudgetError as error:
    sys.exit(3 if "needs 0.5, 0 left" in str(error) else 1)
"""


@pytest.mark.check
def test_eight_processes_racing_for_the_last_of_a_cap(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.db'}"
    reserve(Ledger(url), "first", 2.5)
    start = str(time.time() + 4)
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, url, f"r{i}", start]) for i in range(8)
    ]
    assert sorted(r.wait(timeout=300) for r in racers) == [0] + [3] * 7
    assert Ledger(url).balance("adult").epsilon == 3.0
    Ledger(url).verify_chain()


# --- databases that fail ---


def test_write_that_fails_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'l.db'}")
    reserve(ledger, "r")
    monkeypatch.chdir(tmp_path)
    read_only = Ledger(f"sqlite:///file:{tmp_path / 'l.db'}?mode=ro&uri=true")
    assert not Path("file:").exists()
    with pytest.raises(BudgetError, match="refused to write"):
        reserve(read_only, "s")
    with pytest.raises(BudgetError, match="refused to write"):
        charge(read_only, "r")
    assert ledger.balance("adult").epsilon == 1.0
    ledger.verify_chain()


SECRET = "hunter2"
BAD_URLS: dict[str, Callable[[Path], str]] = {
    "not a database": lambda p: f"sqlite:///{p / 'text.db'}",
    "no such dialect": lambda p: f"nosuch://u:{SECRET}@h/d",
    "no driver": lambda p: f"mysql+pymysql://u:{SECRET}@h/d",
    "nobody listens": lambda p: f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/d",
    "not a URL": lambda p: f"u:{SECRET}@h",
    "folder is a file": lambda p: f"sqlite:///{p / 'text.db' / 'l.db'}",
}


@pytest.mark.parametrize("kind", BAD_URLS)
def test_ledger_that_cannot_be_opened_says_so_without_its_password(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "text.db").write_text("this is no database, whatever its name says " * 20)
    with pytest.raises(BudgetError, match="cannot open the ledger") as caught:
        Ledger(BAD_URLS[kind](tmp_path))
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value)
    assert caught.value.__suppress_context__
