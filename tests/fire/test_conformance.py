"""What every ledger database must do, SQLite and PostgreSQL alike."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from synthdp.errors import BudgetError, VerifyError
from synthdp.ledger import Ledger, missing
from synthdp.ledger import database as ledger_database

pytestmark = pytest.mark.check

Make = Callable[..., Any]


def execute(url: str, *statements: str) -> None:
    """Change a ledger behind its back."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def filled(url: str, reserve: Make, charge: Make) -> Ledger:
    """Seven entries: cap, reserve, two charges, settle, reserve, charge."""
    ledger = Ledger(url)
    reserve(ledger, "r")
    charge(ledger, "r")
    charge(ledger, "r", "train")
    ledger.settle("adult", "r")
    reserve(ledger, "s", 0.5)
    charge(ledger, "s")
    return ledger


def test_a_whole_run_and_its_balance(url: str, reserve: Make, charge: Make) -> None:
    ledger = filled(url, reserve, charge)
    assert [e.kind for e in ledger.entries()] == [
        "cap",
        "reserve",
        "charge",
        "charge",
        "settle",
        "reserve",
        "charge",
    ]
    assert [e.seq for e in ledger.entries(run="s")] == [6, 7]
    balance = ledger.balance("adult")
    assert (balance.epsilon, balance.cap_epsilon, balance.delta) == (1.5, 3.0, pytest.approx(2e-6))
    ledger.verify_chain()
    assert [e.hash for e in Ledger(url).entries()] == [e.hash for e in ledger.entries()]


def test_every_write_counts_once(url: str, reserve: Make, charge: Make) -> None:
    """What was lost on its way back from the database is simply tried again."""
    ledger = Ledger(url)
    for write in (
        lambda: reserve(ledger, "r"),
        lambda: charge(ledger, "r"),
        lambda: ledger.settle("adult", "r"),
    ):
        assert write() == write()
    assert [e.kind for e in ledger.entries()] == ["cap", "reserve", "charge", "settle"]
    assert ledger.balance("adult").epsilon == 1.0


def test_a_run_has_one_reservation(url: str, reserve: Make) -> None:
    ledger = Ledger(url)
    reserve(ledger, "r")
    for change in ({"epsilon": 0.5}, {"dataset": "other"}, {"delta": 1e-7}):
        with pytest.raises(BudgetError, match="already has another reservation"):
            reserve(ledger, "r", **change)
    reserve(
        ledger, "r", body={"by": "somebody else", "adjacency": "add_remove"}
    )  # whoever resumes the run
    assert ledger.balance("adult").epsilon == 1.0


def test_nothing_is_settled_that_reserved_nothing(url: str) -> None:
    ledger = Ledger(url)
    with pytest.raises(BudgetError, match="no open reservation"):
        ledger.settle("adult", "r")
    assert ledger.entries() == []


def test_spends_of_different_neighbours_are_not_added(url: str, reserve: Make) -> None:
    ledger = Ledger(url)
    reserve(ledger, "r")
    with pytest.raises(BudgetError, match="do not add up"):
        reserve(ledger, "s", body={"adjacency": "replace_one"})
    reserve(ledger, "s", dataset="other", body={"adjacency": "replace_one"})
    assert ledger.balance("adult").epsilon == 1.0


def test_a_clock_set_back_changes_nothing(
    url: str, reserve: Make, charge: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(datetime(2030, 1, 1, tzinfo=UTC) - timedelta(days=400 * i) for i in range(10))

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return next(times)

    monkeypatch.setattr(ledger_database, "datetime", Clock)
    ledger = filled(url, reserve, charge)
    stamps = [e.at for e in ledger.entries()]
    assert stamps == sorted(stamps, reverse=True) and len(set(stamps)) == 7
    assert [e.seq for e in ledger.entries()] == list(range(1, 8))
    ledger.verify_chain()
    assert ledger.balance("adult").epsilon == 1.5


TABLE = "synthdp_ledger"
COLUMNS = "dataset, run, kind, body, at"
TAMPERING = {
    "smaller epsilon": (
        [
            f"update {TABLE} set body = replace(body, '\"epsilon\": 1.0', '\"epsilon\": 0.1') where"
            " seq = 2"
        ],
        2,
    ),
    "another event": ([f"update {TABLE} set body = replace(body, '2.0', '9.0') where seq = 3"], 3),
    "a key twice": (
        [f"update {TABLE} set body = replace(body, '{{', '{{\"x\": 1, ') where seq = 4"],
        4,
    ),
    "no JSON": ([f"update {TABLE} set body = 'x' where seq = 4"], 4),
    "JSON of another shape": ([f"update {TABLE} set body = '[1]' where seq = 4"], 4),
    "another dataset": ([f"update {TABLE} set dataset = 'other' where seq = 2"], 2),
    "another run": ([f"update {TABLE} set run = 'q' where seq = 3"], 3),
    "another kind": ([f"update {TABLE} set kind = 'settle' where seq = 3"], 3),
    "another time": ([f"update {TABLE} set at = '2020-01-01T00:00:00+00:00' where seq = 5"], 5),
    "another hash": ([f"update {TABLE} set hash = 'f' where seq = 5"], 5),
    "another predecessor": ([f"update {TABLE} set previous = 'f' where seq = 6"], 6),
    "first row gone": ([f"delete from {TABLE} where seq = 1"], 2),
    "middle row gone": ([f"delete from {TABLE} where seq = 4"], 5),
    "middle row gone, the rest moved up": (
        [
            f"delete from {TABLE} where seq = 4",
            *(f"update {TABLE} set seq = {i - 1} where seq = {i}" for i in (5, 6, 7)),
        ],
        4,
    ),
    "two rows swapped": (
        [f"update {TABLE} set seq = {b} where seq = {a}" for a, b in ((3, 99), (4, 3), (99, 4))],
        3,
    ),
    "row put in at the end": (
        [f"insert into {TABLE} select 8, {COLUMNS}, 'p', 'h' from {TABLE} where seq = 5"],
        8,
    ),
    "row copied with its hash": (
        [
            f"insert into {TABLE} select 8, {COLUMNS}, (select hash from {TABLE} where seq = 7),"
            f" 'h' from {TABLE} where seq = 1"
        ],
        8,
    ),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_seen_the_row_named_and_nothing_reserved(
    url: str, kind: str, reserve: Make, charge: Make
) -> None:
    ledger = filled(url, reserve, charge)
    statements, row = TAMPERING[kind]
    execute(url, *statements)
    with pytest.raises(VerifyError, match=rf"row {row} "):
        ledger.verify_chain()
    with pytest.raises(VerifyError, match=rf"row {row} "):
        reserve(ledger, "t", 0.1)


@pytest.mark.slow
def test_tampering_figure(
    figure: Callable[..., None], tmp_path: Any, reserve: Make, charge: Make
) -> None:
    seen = 0
    for number, (statements, row) in enumerate(TAMPERING.values()):
        url = f"sqlite:///{tmp_path / f'{number}.db'}"
        ledger = filled(url, reserve, charge)
        execute(url, *statements)
        try:
            ledger.verify_chain()
        except VerifyError as error:
            seen += f"row {row} " in str(error)
    assert seen == len(TAMPERING)
    figure("ledger: tampering seen and its row named", seen, len(TAMPERING))


def test_a_tail_cut_off_is_seen_by_what_was_published_alone(
    url: str, reserve: Make, charge: Make
) -> None:
    ledger = filled(url, reserve, charge)
    published = ledger.run_entries("s")
    execute(url, f"delete from {TABLE} where seq > 5")
    ledger.verify_chain()  # a shorter chain is a chain: nothing in it can tell
    assert ledger.balance("adult").epsilon == 1.0
    assert missing(published, ledger.entries()) == tuple(published)


def test_a_ledger_written_anew_is_seen_by_what_was_published(
    url: str, tmp_path: Any, reserve: Make, charge: Make
) -> None:
    ledger = filled(url, reserve, charge)
    published = ledger.run_entries("s")
    forged = Ledger(f"sqlite:///{tmp_path / 'forged.db'}")
    reserve(forged, "r", 0.1)
    charge(forged, "r")
    charge(forged, "r", "train")
    forged.settle("adult", "r")
    reserve(forged, "s", 0.5)
    charge(forged, "s")
    forged.verify_chain()
    assert missing(published, forged.entries()) == tuple(published)
    assert missing(published, ledger.entries()) == ()
