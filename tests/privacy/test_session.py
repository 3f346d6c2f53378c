"""The session: what is charged, when, and what a killed run does again."""

import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from safetensors.numpy import save_file

from synthdp.data import Domain
from synthdp.errors import BudgetError, DataError, InternalError, OutputError
from synthdp.ledger import Ledger
from synthdp.privacy import Arrays
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals, NoisyTable
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
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
    """A reserved run on a small table; `session()` opens it again and again."""

    ledger: Ledger
    plan: ReleasePlan
    table: Table
    journal: Path
    measure: NoisyMarginals

    def session(self, **changes: Any) -> Session:
        known = {
            "dataset": "adult",
            "run": "r",
            "streams": Streams.fresh(),
            "journal": self.journal,
        }
        return Session(
            Private(self.table, key=_KERNEL_KEY),
            changes.pop("plan", self.plan),
            self.ledger,
            **{**known, **changes},
        )

    def file(self, purpose: str) -> Path:
        (found,) = self.journal.glob(f"{purpose}.*.safetensors")
        return found

    def charges(self) -> list[str]:
        return [e.body["purpose"] for e in self.ledger.run_entries("r") if e.kind == "charge"]


@pytest.fixture
def scene(
    tmp_path: Path, ledger: Ledger, domain_of: Callable[..., Domain], table_of: Callable[..., Table]
) -> Scene:
    domain = domain_of(3, 2)
    measure = NoisyMarginals(domain, (("a",), ("b",)), 30.0)
    plan = ReleasePlan(
        1.0,
        1e-5,
        "add_remove",
        1,
        measure=measure,
        graph={"all": AdaptiveMarginals(domain, 40.0)},
    )
    ledger.reserve("adult", "r", epsilon=1.0, delta=1e-5, cap=None, body={})
    (tmp_path / "journal").mkdir()
    return Scene(
        ledger,
        plan,
        table_of(domain, np.array([[0, 1], [2, 0], [1, 1]])),
        tmp_path / "journal",
        measure,
    )


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
        seen.append(
            [e.kind for e in Ledger(url).entries()]
        )  # another connection: only what is committed

    scene.session().release(Watched(scene.measure, look), purpose="measure")
    assert seen == [["reserve", "lease", "charge"]]


def test_mechanism_that_fails_has_been_paid_for(scene: Scene) -> None:
    def fail(table: Table) -> None:
        raise Killed

    session = scene.session()
    with pytest.raises(Killed):
        session.release(Watched(scene.measure, fail), purpose="measure")
    assert scene.charges() == ["measure"]
    with pytest.raises(BudgetError, match="already released"):
        session.release(scene.measure, purpose="measure")


SECRET = "secret 12345"


@pytest.mark.parametrize("how", ["release", "release_together", "inspect"])
def test_an_error_over_rows_leaves_as_its_kind_and_place(scene: Scene, how: str) -> None:
    """Its text may quote them, and its frames hold them."""

    def fail(table: Table) -> None:
        quoted = f"{SECRET} {table.codes}"
        try:
            raise KeyError(quoted)
        except KeyError:
            raise ValueError(quoted) from None

    session, broken = scene.session(), Watched(scene.measure, fail)
    looks: dict[str, Callable[[], object]] = {
        "release": lambda: session.release(broken, purpose="measure"),
        "release_together": lambda: session.release_together({"measure": broken}),
        "inspect": lambda: session.inspect(fail, reason="a look"),
    }
    with pytest.raises(InternalError, match=r"internal error ValueError \(message with") as told:
        looks[how]()
    error = told.value
    assert f"in {fail.__name__}" in str(error) and "test_session.py:" in str(error)
    assert error.__cause__ is None and error.__context__ is None
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert SECRET not in "".join(shown.format()) + str(error.to_json())
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert "fail" not in {frame.f_code.co_name for frame in frames}
    held = [value for frame in frames[1:] for value in frame.f_locals.values()]
    held += [part for value in held if isinstance(value, tuple | list) for part in value]
    assert not any(isinstance(value, Table) for value in held)


@pytest.mark.parametrize(
    ("raised", "left"),
    [
        (DataError("column 'a'"), DataError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(3), SystemExit),
        (ModuleNotFoundError(name="torch"), OutputError),  # which says what to install
    ],
)
def test_what_is_told_of_an_error_that_quotes_no_row(
    scene: Scene, raised: BaseException, left: type[BaseException]
) -> None:
    def fail(table: Table) -> None:
        row = f"{SECRET} {table.codes}"
        try:
            raise KeyError(row)
        except KeyError as error:
            raise raised from error

    with pytest.raises(left) as told:
        scene.session().release(Watched(scene.measure, fail), purpose="measure")
    assert told.value is raised or left is OutputError
    shown = traceback.TracebackException.from_exception(told.value, capture_locals=True)
    assert SECRET not in "".join(shown.format())


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
    scene.session().settle()
    with pytest.raises(BudgetError, match="no open reservation"):
        scene.session().release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []


def test_journal_gives_a_released_value_back_without_a_second_look(scene: Scene) -> None:
    looks: list[Table] = []
    first = scene.session().release(scene.measure, purpose="measure")
    again = scene.session().release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []
    assert again.receipts == first.receipts
    assert all(
        np.array_equal(a.counts, b.counts) for a, b in zip(first.value, again.value, strict=True)
    )
    assert scene.charges() == ["measure"]


def test_killed_between_charge_and_journal_runs_again_under_the_same_charge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("step", ["save", "fsync", "replace"])
def test_killed_while_writing_the_journal_leaves_no_half_value(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        target = {
            "save": "safetensors.numpy.save",
            "fsync": "os.fsync",
            "replace": "pathlib.Path.replace",
        }[step]
        patch.setattr(target, die)
        with pytest.raises(Killed):
            scene.session().release(scene.measure, purpose="measure")
    assert not list(scene.journal.glob("*.safetensors"))
    scene.session().release(scene.measure, purpose="measure")


def test_damaged_journal_is_refused_rather_than_run_again(scene: Scene) -> None:
    scene.session().release(scene.measure, purpose="measure")
    scene.file("measure").write_bytes(b"\x80\x04.")
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
    for plan in (
        replace(scene.plan, epsilon=1.1),
        replace(scene.plan, delta=1e-4),
        replace(scene.plan, epsilon=0.01),
    ):
        with pytest.raises(BudgetError, match="reserved epsilon 1"):
            scene.session(plan=plan)
    for wrong in ({"dataset": "other"}, {"run": "s"}):
        with pytest.raises(BudgetError, match="no open reservation"):
            scene.session(**wrong)


# --- copies of a run, and older ones ---


def test_whoever_opens_a_run_takes_it_over_and_the_other_one_stops(scene: Scene) -> None:
    """A copy of a run's folder gives no second look for one charge."""
    first = scene.session()
    second = scene.session(journal=copy_of(scene.journal, "copy"))
    looks: list[Table] = []
    with pytest.raises(BudgetError, match="another process has taken over run r"):
        first.release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == [] and scene.charges() == []
    second.release(scene.measure, purpose="measure")
    with pytest.raises(BudgetError, match="another process has taken over run r"):
        first.settle()
    second.settle()


def test_a_value_that_was_looked_at_while_another_process_took_over_is_not_used(
    scene: Scene,
) -> None:
    """Both charge once and look; the one whose value is kept goes on, the other stops."""
    rival: list[Session] = []

    def taken_over(table: Table) -> None:
        rival.append(scene.session(journal=copy_of(scene.journal, "copy")))

    with pytest.raises(BudgetError, match="was used nowhere"):
        scene.session().release(Watched(scene.measure, taken_over), purpose="measure")
    rival[0].release(scene.measure, purpose="measure")
    assert (
        scene.charges() == ["measure"]
        and [e.kind for e in scene.ledger.entries()].count("kept") == 1
    )


def test_a_copy_that_missed_a_value_is_refused_for_good(scene: Scene) -> None:
    copy = copy_of(scene.journal, "copy")
    scene.session().release(scene.measure, purpose="measure")
    looks: list[Table] = []
    with pytest.raises(OutputError, match="missing, damaged, or not the one that was used"):
        scene.session(journal=copy).release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []


def test_a_journal_older_than_the_ledger_gives_no_second_look(scene: Scene) -> None:
    backup = copy_of(scene.journal, "backup")
    first = scene.session().release(scene.measure, purpose="measure")
    newest = copy_of(scene.journal, "newest")
    looks: list[Table] = []
    with pytest.raises(OutputError, match="an older copy is refused"):
        scene.session(journal=backup).release(
            Watched(scene.measure, looks.append), purpose="measure"
        )
    again = scene.session(journal=newest).release(
        Watched(scene.measure, looks.append), purpose="measure"
    )
    assert looks == [] and np.array_equal(first.value[0].counts, again.value[0].counts)


def test_another_value_under_the_right_name_is_refused(scene: Scene) -> None:
    """The ledger holds the digest of the value that was used."""
    scene.session().release(scene.measure, purpose="measure")
    other = scene.measure.pack(scene.measure.run(scene.table, Streams.fresh()))
    save_file(other, scene.file("measure"))
    with pytest.raises(OutputError, match="not the one that was used"):
        scene.session().release(scene.measure, purpose="measure")


def test_steps_after_the_checkpoint_that_is_kept_are_done_once(scene: Scene) -> None:
    """An older checkpoint is refused, the newest is given, a kept value replaces them."""
    session = scene.session()
    keeping = session.checkpoints("train")
    assert keeping is not None and keeping.last() is None
    keeping.keep(2, {"w": np.array([1.0])})
    older = copy_of(scene.journal, "older")
    keeping.keep(4, {"w": np.array([2.0])})
    newest = scene.session().checkpoints("train")
    assert newest is not None and (kept := newest.last()) is not None and kept["w"] == [2.0]
    stale = scene.session(journal=older).checkpoints("train")
    assert stale is not None
    with pytest.raises(OutputError, match="not the one that was used"):
        stale.last()
    with pytest.raises(BudgetError, match="taken over"):
        keeping.keep(6, {"w": np.array([3.0])})


def test_a_settled_run_looks_at_nothing_even_under_a_charge_that_was_never_used(
    scene: Scene,
) -> None:
    def fail(table: Table) -> None:
        raise Killed

    session, looks = scene.session(), list[Table]()
    with pytest.raises(Killed):
        session.release(Watched(scene.measure, fail), purpose="measure")
    session.settle()
    with pytest.raises(BudgetError, match="has settled, and kept no value"):
        scene.session().release(Watched(scene.measure, looks.append), purpose="measure")
    assert looks == []


def test_an_answer_that_was_lost_is_the_entry_that_was_written(scene: Scene) -> None:
    """The commit came through and its answer did not: the same call again gives the same entry."""
    lease = scene.ledger.lease("adult", "r")
    write = {"purpose": "measure", "mechanism": "m", "event": {}, "after": lease.hash}
    first = scene.ledger.charge("adult", "r", **write)
    assert scene.ledger.charge("adult", "r", **write) == first
    with pytest.raises(BudgetError, match="taken over"):
        scene.ledger.keep(
            "adult", "r", purpose="measure", step=None, sha256="0" * 64, after=lease.hash
        )


def test_a_run_of_an_earlier_version_is_not_gone_on_with(scene: Scene) -> None:
    """It kept its values without the ledger's knowing, so that they would be looked at again."""
    scene.ledger.charge("adult", "r", purpose="measure", mechanism=scene.measure.name, event={})
    with pytest.raises(BudgetError, match="earlier version"):
        scene.session()


def copy_of(journal: Path, name: str) -> Path:
    return Path(shutil.copytree(journal, journal.with_name(name)))


def test_inspect_is_confidential_and_free(scene: Scene) -> None:
    session = scene.session()
    before = len(scene.ledger.entries())
    inside = session.inspect(lambda table: len(table.codes), reason="a row count")
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
