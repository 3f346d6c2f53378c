"""The session: what is charged, when, and what a killed run does again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError, OutputError
from synthdp.privacy.ledger import Ledger
from synthdp.privacy.mechanisms import AdaptiveMarginals, Arrays, NoisyMarginals, NoisyTable
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import Plan, Spend
from synthdp.privacy.private import _KERNEL_KEY, Confidential, Private
from synthdp.privacy.session import REHEARSAL, Rehearsal, Session
from synthdp.privacy.table import Table


class Killed(BaseException):
    """As a kill -9 would end the process: nothing in the code may catch it."""


@dataclass(frozen=True)
class Watched:
    """A planned mechanism that calls `look` when it sees the rows."""

    inner: NoisyMarginals
    look: Callable[[Table], None]

    @property
    def name(self) -> str:
        return self.inner.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        return self.inner.event(rows_per_unit)

    def run(self, table: Table, streams: Streams) -> tuple[NoisyTable, ...]:
        self.look(table)
        return self.inner.run(table, streams)

    def pack(self, value: Any) -> Arrays:
        return self.inner.pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        return self.inner.unpack(arrays)


@dataclass
class Scene:
    """A reserved run on a small table; `session()` opens it, again and again as a resumed run does."""

    ledger: Ledger
    plan: Plan
    table: Table
    journal: Path
    measure: NoisyMarginals

    def session(self, **changes: Any) -> Session:
        known = {"dataset": "adult", "run": "r", "streams": Streams.fresh(), "journal": self.journal}
        return Session(Private(self.table, key=_KERNEL_KEY), changes.pop("plan", self.plan), self.ledger, **{**known, **changes})

    def charges(self) -> list[str]:
        return [e.body["purpose"] for e in self.ledger.run_entries("r") if e.kind == "charge"]


@pytest.fixture
def scene(tmp_path: Path, ledger: Ledger, domain_of: Callable[..., Domain], table_of: Callable[..., Table]) -> Scene:
    domain = domain_of(3, 2)
    measure = NoisyMarginals(domain, (("a",), ("b",)), 30.0)
    plan = Plan(1.0, 1e-5, "add_remove", 1, (Spend("measure", measure), Spend("graph: all", AdaptiveMarginals(domain, 40.0))))
    ledger.reserve("adult", "r", epsilon=1.0, delta=1e-5, cap=None, body={})
    (tmp_path / "journal").mkdir()
    return Scene(ledger, plan, table_of(domain, np.array([[0, 1], [2, 0], [1, 1]])), tmp_path / "journal", measure)


def test_released_value_carries_the_receipt_of_its_charge(scene: Scene) -> None:
    released = scene.session().release(scene.measure, purpose="measure")
    (receipt,) = released.receipts
    (entry,) = [e for e in scene.ledger.entries() if e.kind == "charge"]
    assert (receipt.run, receipt.entry) == ("r", entry.hash)
    assert [t.counts.shape for t in released.value] == [(3,), (2,)]


def test_charge_is_durable_before_the_rows_are_seen(scene: Scene) -> None:
    seen: list[list[str]] = []
    url = scene.ledger.url

    def look(table: Table) -> None:
        seen.append([e.kind for e in Ledger(url).entries()])  # another connection: only what is committed

    scene.session().release(Watched(scene.measure, look), purpose="measure")
    assert seen == [["reserve", "charge"]]


def test_mechanism_that_fails_has_been_paid_for(scene: Scene) -> None:
    def fail(table: Table) -> None:
        raise Killed

    session = scene.session()
    with pytest.raises(Killed):
        session.release(Watched(scene.measure, fail), purpose="measure")
    assert scene.charges() == ["measure"]
    with pytest.raises(BudgetError, match="already released"):
        session.release(scene.measure, purpose="measure")


@pytest.mark.parametrize("case", ["not planned", "other sigma", "other tables", "twice"])
def test_what_the_plan_does_not_hold_is_not_run(scene: Scene, case: str) -> None:
    looks: list[Table] = []
    session = scene.session()
    mechanism, purpose = scene.measure, "measure"
    if case == "not planned":
        purpose = "measure again"
    elif case == "other sigma":
        mechanism = replace(mechanism, sigma=29.0)
    elif case == "other tables":
        mechanism = replace(mechanism, tables=(*mechanism.tables, ("a", "b")))
    else:
        session.release(mechanism, purpose=purpose)
    before = len(scene.ledger.entries())
    with pytest.raises(BudgetError):
        session.release(Watched(mechanism, looks.append), purpose=purpose)
    assert looks == []
    assert len(scene.ledger.entries()) == before


def test_ledger_that_refuses_keeps_the_rows_shut(scene: Scene) -> None:
    looks: list[Table] = []
    session = scene.session()
    scene.ledger.settle("adult", "r")
    with pytest.raises(BudgetError, match="no open reservation"):
        session.release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []


def test_journal_gives_a_released_value_back_without_a_second_look(scene: Scene) -> None:
    looks: list[Table] = []
    first = scene.session().release(scene.measure, purpose="measure")
    again = scene.session().release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []
    assert again.receipts == first.receipts
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(first.value, again.value, strict=True))
    assert scene.charges() == ["measure"]


def test_killed_between_charge_and_journal_runs_again_under_the_same_charge(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("synthdp.privacy.session._write", die)
        with pytest.raises(Killed):
            scene.session().release(scene.measure, purpose="measure")
    looks: list[Table] = []
    scene.session().release(Watched(scene.measure, looks.append), purpose="measure")
    assert len(looks) == 1
    assert scene.charges() == ["measure"]


@pytest.mark.parametrize("step", ["save_file", "fsync", "replace"])
def test_killed_while_writing_the_journal_leaves_no_half_value(scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        target = {"save_file": "safetensors.numpy.save_file", "fsync": "os.fsync", "replace": "pathlib.Path.replace"}[step]
        patch.setattr(target, die)
        with pytest.raises(Killed):
            scene.session().release(scene.measure, purpose="measure")
    assert not list(scene.journal.glob("*.safetensors"))
    scene.session().release(scene.measure, purpose="measure")


def test_damaged_journal_is_refused_rather_than_run_again(scene: Scene) -> None:
    scene.session().release(scene.measure, purpose="measure")
    (scene.journal / "measure.safetensors").write_bytes(b"\x80\x04.")
    with pytest.raises(OutputError, match="damaged"):
        scene.session().release(scene.measure, purpose="measure")


def test_tables_chosen_late_are_paid_by_the_planned_spend(scene: Scene) -> None:
    budget = scene.plan.spends[1].mechanism
    assert isinstance(budget, AdaptiveMarginals)
    released = scene.session().release(budget.choose([("a", "b")]), purpose="graph: all")
    assert released.value[0].counts.shape == (3, 2)
    none = budget.choose([])
    assert none.event(1) == budget.event(1)


def test_plan_above_the_reservation_is_refused(scene: Scene) -> None:
    for plan in (replace(scene.plan, epsilon=1.1), replace(scene.plan, delta=1e-4), replace(scene.plan, epsilon=0.01)):
        with pytest.raises(BudgetError, match="reserved epsilon 1"):
            scene.session(plan=plan)
    for wrong in ({"dataset": "other"}, {"run": "s"}):
        with pytest.raises(BudgetError, match="no open reservation"):
            scene.session(**wrong)


def test_only_one_process_at_a_time(scene: Scene) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from synthdp.privacy.session import _lock; from pathlib import Path\n"
         "_lock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()", str(scene.journal / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(BudgetError, match="another process"):
            scene.session()
        holder.kill()
    scene.session()


def test_inspect_is_confidential_and_free(scene: Scene) -> None:
    before = len(scene.ledger.entries())
    inside = scene.session().inspect(lambda table: len(table.codes), reason="a row count")
    assert isinstance(inside, Confidential)
    assert inside.for_steward() == 3
    assert len(scene.ledger.entries()) == before


def test_neither_session_nor_table_shows_rows(scene: Scene) -> None:
    assert repr(scene.table) == "<Table>"
    assert vars(scene.session())["_private"].__repr__() == "<Private>"


def test_rehearsal_checks_the_plan_and_has_no_receipt_of_a_ledger(scene: Scene) -> None:
    rehearsal = Rehearsal(scene.table.codes, scene.measure.domain, scene.plan)
    assert rehearsal.release(scene.measure, purpose="measure").receipts == {REHEARSAL}
    with pytest.raises(BudgetError, match="already released"):
        rehearsal.release(scene.measure, purpose="measure")
    with pytest.raises(BudgetError, match="not in the plan"):
        rehearsal.release(scene.measure, purpose="other")
