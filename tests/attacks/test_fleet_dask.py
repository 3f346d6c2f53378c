"""Fleets on Dask: the same results, deaths told apart from errors, nothing of the rows in a log,
nothing left running.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp_attacks import Codes, Dask, Fleet, FleetError, Game, Progress, Sealed, Serial, play
from tests.attacks.runners import runs_of, squares, values

pytestmark = pytest.mark.check

LocalCluster: Any = pytest.importorskip("distributed").LocalCluster

ROWS = np.arange(120).reshape(40, 3) % 7
CANARY = "canary-4711"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose scheduler and one worker are threads of this process: their logs and tasks
    can be seen.
    """
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster


def test_serial_and_dask_give_the_same_game(tmp_path: Path, processes: str) -> None:
    def sampled(rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        return np.random.default_rng(seed_sequence.spawn(1)[0]).choice(rows, size=10)

    def game(name: str, runner: Serial | Dask) -> Game:
        fleet, rng = Fleet(folder=tmp_path / name, runner=runner), np.random.default_rng(3)
        return play(ROWS, ROWS[0], sampled, pairs=4, rng=rng, fleet=fleet)

    serial, dask = game("serial", Serial()), game("dask", Dask(processes))
    assert [s.tolist() for s in (*serial.shadows, *serial.challenges)] == [
        s.tolist() for s in (*dask.shadows, *dask.challenges)
    ]
    assert serial.shadow_members.tolist() == dask.shadow_members.tolist()


@pytest.mark.check
def test_a_task_that_always_kills_is_reported_and_nothing_else_runs_twice(
    tmp_path: Path, runs: Path, processes: str
) -> None:
    harvest = Fleet(folder=tmp_path / "f", runner=Dask(processes), attempts=2).run(
        squares(runs, kills=lambda i, run: i == 2), 8, fingerprint="a"
    )
    assert harvest.failed == (2,)
    assert values(harvest) == {i: i * i for i in range(8) if i != 2}
    assert runs_of(runs) == {i: 1 + (i == 2) for i in range(8)}


@pytest.mark.slow
def test_a_task_that_kills_once_is_run_again(tmp_path: Path, runs: Path, processes: str) -> None:
    harvest = Fleet(folder=tmp_path / "f", runner=Dask(processes)).run(
        squares(runs, kills=lambda i, run: i == 5 and run == 1), 12, fingerprint="a"
    )
    assert harvest.failed == () and sorted(harvest.results) == list(range(12))
    assert runs_of(runs) == {i: 1 + (i == 5) for i in range(12)}


def test_an_error_comes_through_and_no_log_tells_it_or_the_rows(
    tmp_path: Path, cluster: Any
) -> None:
    said, secret = Listener(), np.array([CANARY])
    names = ("distributed", "distributed.worker", "distributed.scheduler")

    def work(index: int) -> dict[str, np.ndarray]:
        if index == 2:
            raise ArithmeticError(f"bad value {secret[0]}")
        return {"square": np.array([index])}

    logger = logging.getLogger("distributed")
    logger.addHandler(said)
    level = logger.level
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    fleet = Fleet(folder=tmp_path / "f", runner=Dask(cluster.scheduler_address))
    try:
        with pytest.raises(ArithmeticError, match=CANARY) as caught:
            fleet.run(work, 3, fingerprint="finger-4712")
    finally:
        logger.removeHandler(said)
        for name in names:
            logging.getLogger(name).setLevel(level)
    assert caught.value.__notes__ == ["in task 2 of a fleet"]
    assert "Compute Failed" in said.text and "_SealedError()" in said.text
    seen = said.text + str(cluster.scheduler.get_events())
    assert CANARY not in seen and "finger-4712" not in seen


class Listener(logging.Handler):
    """Keeps what is logged."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


def idle(cluster: Any) -> bool:
    scheduler = cluster.scheduler
    return not scheduler.tasks and set(scheduler.clients) == {"fire-and-forget"}


def settles(check: Callable[[], bool]) -> bool:
    """Whether something becomes true within a minute."""
    deadline = time.monotonic() + 60
    while not check() and time.monotonic() < deadline:
        time.sleep(0.02)
    return check()


def test_ctrl_c_calls_off_what_is_outstanding(tmp_path: Path, runs: Path, cluster: Any) -> None:
    end = tmp_path / "end"

    def work(index: int) -> dict[str, np.ndarray]:
        (runs / str(index)).touch()
        while index > 0 and not end.exists():
            time.sleep(0.02)
        return {"square": np.array([index])}

    def interrupt(progress: Progress) -> None:
        if progress.finished:
            raise KeyboardInterrupt

    runner = Dask(cluster.scheduler_address)
    fleet = Fleet(folder=tmp_path / "f", runner=runner, progress=interrupt)
    # `caught` keeps the traceback, and with it the generators, alive
    with pytest.raises(KeyboardInterrupt) as caught:
        fleet.run(work, 8, fingerprint="a")
    try:
        assert caught.tb is not None
        assert settles(lambda: idle(cluster))
    finally:
        end.touch()
    assert len(runs_of(runs)) <= 2  # the finished one, and at most one that could not be stopped
    harvest = Fleet(folder=tmp_path / "f").run(work, 8, fingerprint="a")
    assert sorted(harvest.results) == list(range(8))


def test_a_cluster_without_workers_is_an_error_not_a_wait(tmp_path: Path, runs: Path) -> None:
    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as empty:
        runner = Dask(empty.scheduler_address, timeout_s=2.0)
        runner.check()
        told = r"without workers for 2 s: start some with `dask worker tcp://127.*models are kept"
        with pytest.raises(FleetError, match=told):
            Fleet(folder=tmp_path / "f", runner=runner).run(squares(runs), 2, fingerprint="a")
        assert settles(lambda: idle(empty))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (
            "tcp://127.0.0.1:9",
            r"no Dask scheduler answers at tcp://127.0.0.1:9 within 0.3 s",
        ),
        ("tcp://user:secret@127.0.0.1:9", r"tcp://127.0.0.1:9 is no address"),
        ("nowhere://user:secret@127.0.0.1:9", r"nowhere://127.0.0.1:9 is no address"),
        ("127.0.0.1", r"127.0.0.1 is no address"),
        ("tls://127.0.0.1:9", r"tls://127.0.0.1:9 is no address .* certificates"),
    ],
)
def test_no_scheduler_is_a_clear_error_without_the_password(address: str, told: str) -> None:
    runner = Dask(address, timeout_s=0.3)
    with pytest.raises(FleetError, match=told) as caught:
        runner.check()
    assert "secret" not in str(caught.value) + repr(runner) and caught.value.__suppress_context__


def test_a_task_does_not_show_what_it_holds() -> None:
    assert repr(Sealed(Serial().__call__)) == "Sealed()"  # type: ignore[arg-type]


def test_a_missing_dask_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FleetError, match=r"pip install 'dask\[distributed\]'"):
        Dask("tcp://127.0.0.1:9").check()


@pytest.mark.check
def test_an_address_is_needed() -> None:
    for empty in (None, ""):
        with pytest.raises(FleetError, match="address of a scheduler"):
            Dask(empty)
