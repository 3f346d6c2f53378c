"""Databases and disks that fail: the error says so, nothing is half written, and trying again
counts once.
"""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from killer import SPEC, prepare
from postgres import Server, private_server

from synthdp.errors import BudgetError, OutputError, SynthdpError
from synthdp.ledger import INTERNAL, Ledger
from synthdp.ledger import database as ledger_database
from synthdp.privacy import plan
from synthdp.progress import Advance, shown_on
from synthdp.release import release, resume
from synthdp.verify import verify_bundle

pytestmark = pytest.mark.check

Make = Callable[..., Any]
KINDS = ["cap", "reserve", "charge", "charge", "charge", "charge", "settle"]


def check_unspent_then_write(
    ledger: Ledger, write: Callable[[], Any], mend: Callable[[], Any], *, says: str
) -> None:
    """`write` fails and leaves the ledger as it was; once mended it succeeds, and doing it twice
    counts once.
    """
    before = ledger.entries()
    with pytest.raises(BudgetError, match=says):
        write()
    mend()
    assert ledger.entries() == before
    assert write() == write()
    assert len(ledger.entries()) == len(before) + 1
    ledger.verify_chain()


def writes(ledger: Ledger, reserve: Make, charge: Make) -> dict[str, Callable[[], Any]]:
    """One write of each kind, on a ledger that has run `r` open."""
    reserve(ledger, "r", 0.5)
    charge(ledger, "r")
    return {
        "reserve": lambda: reserve(ledger, "s", 0.5),
        "charge": lambda: charge(ledger, "r", "train"),
        "settle": lambda: ledger.settle("adult", "r"),
    }


WRITES = ["reserve", "charge", "settle"]


# --- locks ---


@pytest.mark.parametrize("kind", WRITES)
def test_a_database_that_stays_locked(
    url: str, kind: str, reserve: Make, charge: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_database, "LOCK_SECONDS", 1)
    ledger = Ledger(url)
    write = writes(ledger, reserve, charge)[kind]
    other = sa.create_engine(url, poolclass=sa.pool.NullPool).connect()
    if url.startswith("sqlite"):
        other.connection.driver_connection.isolation_level = None
    other.exec_driver_sql(
        "BEGIN IMMEDIATE" if url.startswith("sqlite") else "LOCK TABLE synthdp_ledger IN SHARE MODE"
    )
    check_unspent_then_write(
        ledger,
        write,
        lambda: (other.rollback(), other.close()),
        says="(lock|no answer in time).*nothing was spent",
    )


def test_a_lock_that_is_let_go_in_time_is_waited_for(url: str, reserve: Make) -> None:
    ledger = Ledger(url)
    held, done = threading.Event(), []

    def hold() -> None:
        with ledger_database.writing(ledger._engine):
            held.set()
            threading.Event().wait(0.7)
            done.append("held")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    reserve(ledger, "r")
    assert done == ["held"]
    thread.join()


# --- answers that get lost ---


@pytest.mark.parametrize("kind", WRITES)
def test_a_commit_whose_answer_is_lost_counts_once(
    url: str, kind: str, reserve: Make, charge: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(url)
    write = writes(ledger, reserve, charge)[kind]
    before = len(ledger.entries())
    true = sa.engine.Connection.commit

    def commit(self: sa.engine.Connection) -> None:
        true(self)
        raise sa.exc.OperationalError("COMMIT", {}, OSError("the line went dead"))

    with monkeypatch.context() as patch:
        patch.setattr(sa.engine.Connection, "commit", commit)
        with pytest.raises(BudgetError, match="counts once"):
            write()
    assert len(ledger.entries()) == before + 1
    write()
    assert len(ledger.entries()) == before + 1
    ledger.verify_chain()


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("moment", ["before the row", "after the row", "before the commit"])
def test_a_connection_cut_in_the_middle(
    postgres: Server,
    kind: str,
    moment: str,
    reserve: Make,
    charge: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger(postgres.new_database())
    write = writes(ledger, reserve, charge)[kind]
    true_append, true_commit = ledger_database.append, sa.engine.Connection.commit

    def cut(connection: sa.engine.Connection) -> None:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        assert postgres.run(f"SELECT pg_terminate_backend({pid}, 5000)") == [(True,)]

    def append(connection: sa.engine.Connection, *rest: Any) -> Any:
        if moment == "before the row":
            cut(connection)
        entry = true_append(connection, *rest)
        if moment == "after the row":
            cut(connection)
        return entry

    def commit(self: sa.engine.Connection) -> None:
        if (
            moment == "before the commit"
            and "synthdp_ledger" not in str(self.engine.url)
            and self.get_isolation_level() == "READ COMMITTED"
        ):
            cut(self)
        true_commit(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(ledger_database, "append", append)
    patch.setattr(sa.engine.Connection, "commit", commit)
    check_unspent_then_write(ledger, write, patch.undo, says="refused to write")


# --- servers ---


@pytest.fixture
def own_server(postgres: Server) -> Iterator[Server]:
    """A server that a test may stop."""
    with private_server(postgres.binaries) as server:
        yield server


@pytest.mark.slow
def test_a_server_that_crashes_keeps_every_charge(
    own_server: Server, reserve: Make, charge: Make, figure: Callable[..., None]
) -> None:
    url = own_server.new_database()
    ledger = Ledger(url)
    own_server.run("ALTER SYSTEM SET synchronous_commit = off")
    own_server.run("SELECT pg_reload_conf()")
    kept = 0
    reserve(ledger, "r")
    for number in range(5):
        entry = charge(ledger, "r", f"look {number}")
        own_server.stop()  # as in a power cut
        with pytest.raises(BudgetError, match="cannot be read"):
            ledger.entries()
        with pytest.raises(BudgetError, match=r"refused to write.*nothing was spent"):
            charge(ledger, "r", "another look")
        own_server.start()
        kept += entry in ledger.entries()
    assert kept == 5 and len(ledger.entries()) == 7
    ledger.verify_chain()
    figure("postgresql: charges kept through a crash of the server", kept, 5)


@pytest.mark.slow
def test_a_server_that_forgets_is_refused(own_server: Server) -> None:
    own_server.stop()
    own_server.start("fsync=off")
    with pytest.raises(BudgetError, match="fsync off"):
        Ledger(own_server.url())


@pytest.mark.slow
def test_a_write_is_durable_whatever_the_servers_defaults(postgres: Server) -> None:
    url = postgres.new_database()
    name = url.rsplit("/", 1)[1]
    for setting in (
        "synchronous_commit = off",
        "default_transaction_isolation = 'serializable'",
        "lock_timeout = 0",
    ):
        postgres.run(f"ALTER DATABASE {name} SET {setting}")
    with ledger_database.writing(Ledger(url)._engine) as connection:
        found = [
            connection.exec_driver_sql(f"SHOW {what}").scalar_one()
            for what in ("synchronous_commit", "transaction_isolation", "lock_timeout")
        ]
    assert found == ["on", "read committed", "1min"]


def test_a_sqlite_write_is_durable(tmp_path: Path) -> None:
    with ledger_database.writing(Ledger(f"sqlite:///{tmp_path / 'l.db'}")._engine) as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 3  # EXTRA


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "mssql+pyodbc://u:hunter2@h/d",
    ],
)
def test_a_database_that_cannot_keep_a_ledger_is_refused(url: str) -> None:
    with pytest.raises(BudgetError, match="cannot open the ledger") as caught:
        Ledger(url)
    assert "hunter2" not in str(caught.value)


# --- disks ---


def _in_child(write: Callable[[], Any], megabytes: float) -> str:
    """What `write` raises in a process that may not make a file longer than this."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(megabytes * 1e6), int(megabytes * 1e6)))
        try:
            write()
            os.write(writer, b"written")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        return told.read()


@pytest.mark.parametrize("kind", WRITES)
def test_a_disk_that_takes_no_more(tmp_path: Path, kind: str, reserve: Make, charge: Make) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'l.db'}")
    write = writes(ledger, reserve, charge)[kind]
    before = ledger.entries()
    said = _in_child(write, 0.0005)
    assert said.startswith("BudgetError: the ledger refused to write"), said
    assert ledger.entries() == before
    write()
    assert len(ledger.entries()) == len(before) + 1
    ledger.verify_chain()


def test_a_database_that_reached_its_largest_size(
    tmp_path: Path, reserve: Make, charge: Make
) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'l.db'}")
    reserve(ledger, "r")
    pages = sqlite3.connect(tmp_path / "l.db").execute("PRAGMA page_count").fetchone()[0]

    def limit(connection: Any, _: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(ledger._engine, "connect", limit)
    refusals = []
    for number in range(60):
        try:
            charge(ledger, "r", f"look {number}")
        except BudgetError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 60 and all("full" in said for said in refusals)
    ledger.verify_chain()
    assert len(ledger.entries()) == 2 + 60 - len(refusals)
    sa.event.remove(ledger._engine, "connect", limit)
    charge(ledger, "r", "look 59")
    ledger.verify_chain()


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """A disk of its own, which only root can mount."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    if (
        os.geteuid() != 0
        or not shutil.which("mount")
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip(
            "NO DISK OF OUR OWN: this test mounts a tmpfs, which this machine does not allow"
        )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_real_disk_that_is_full_or_read_only(
    tmp_path: Path, kind: str, fault: str, reserve: Make, charge: Make
) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        ledger = Ledger(f"sqlite:///{disk / 'l.db'}")
        write = writes(ledger, reserve, charge)[kind]

        def remount(how: str) -> None:
            subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

        if fault == "full":
            fill(disk)
            check_unspent_then_write(
                ledger,
                write,
                (disk / "filler").unlink,
                says="refused to write.*full|refused to write.*I/O",
            )
        else:
            remount("ro")
            check_unspent_then_write(
                ledger,
                write,
                lambda: remount("rw"),
                says="refused to write.*readonly|refused to write.*unable to open",
            )


class FullAt:
    """A display that fills the disk when `stage` begins, or has done `step`."""

    def __init__(self, disk: Path, stage: str, step: int | None) -> None:
        self.disk, self.stage, self.step = disk, stage, step

    def start(self, title: str) -> Advance:
        if title == self.stage and self.step is None:
            fill(self.disk)

        def advance(done: int, total: int, what: str = "", /) -> None:
            if title == self.stage and done == self.step:
                fill(self.disk)

        return advance

    def finish(self, title: str, seconds: float) -> None:
        """Nothing to show."""


MOMENTS = [
    ("read", None),
    ("measure and train", None),
    ("measure and train", 2),
    ("measure and train", 11),
    ("sample", None),
    ("bundle", None),
]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["ledger on the full disk", "ledger elsewhere"])
def test_a_release_whose_disk_fills_up_is_resumed(
    tmp_path: Path, where: str, figure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "GROUP_SIZES", (1,))
    finished = 0
    for number, (stage, step) in enumerate(MOMENTS):
        with small_disk(tmp_path / f"disk-{number}", megabytes=3) as disk:
            prepare(disk)
            url = f"sqlite:///{(disk if where == 'ledger on the full disk' else tmp_path) / f'{number}.db'}"  # noqa: E501
            Ledger(url)
            monkeypatch.setitem(SPEC["privacy"], "ledger", url)
            prepare(disk)
            with pytest.raises(SynthdpError) as caught, shown_on(FullAt(disk, stage, step)):
                release(disk / "spec.yaml", out=disk / "out")
            assert isinstance(caught.value, BudgetError | OutputError)
            (disk / "filler").unlink()
            book = Ledger(url).entries()
            if any(e.kind == "reserve" for e in book):
                assert resume(disk / "out").job.folder.run == book[0].run
            else:
                release(disk / "spec.yaml", out=disk / "out")
            assert [
                e.kind for e in Ledger(url).entries() if e.kind not in INTERNAL
            ] == KINDS and verify_bundle(disk / "out" / "bundle").ok
            Ledger(url).verify_chain()
            finished += 1
    assert finished == len(MOMENTS)
    figure(
        f"disk full during a release, {where}: finished under one reservation",
        finished,
        len(MOMENTS),
    )
