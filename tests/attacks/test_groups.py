"""Models of a fleet that are trained in groups: one file each, nothing finished is lost, and blame
is for the one that kills.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp_attacks import (
    Arrays,
    AttackError,
    Codes,
    Dask,
    Fleet,
    Game,
    Group,
    GroupWork,
    Job,
    Loky,
    Progress,
    Runner,
    Serial,
    WorkerDied,
    play,
)
from tests.attacks.runners import values

ROWS = np.arange(120).reshape(40, 3) % 7


@dataclass(frozen=True)
class Squares:
    """Counts in files how often each task was begun and finished, and kills its process where
    told.
    """

    runs: Path
    group: int = 4
    kills: tuple[int, ...] = ()  # tasks that kill whenever they are begun
    once: int | None = None  # a task that kills when it is begun first
    pause_s: float = 0.0
    at_home: int = field(default_factory=os.getpid)

    def __call__(self, index: int) -> Arrays:
        self._note("alone", index)
        return self._result(index)

    def many(self, indices: Sequence[int]) -> Iterator[Arrays]:
        self._note("together", *indices)
        for index in indices:
            yield self._result(index)

    def _result(self, index: int) -> Arrays:
        time.sleep(self.pause_s)
        first = self._note("begun", index) == 1
        if index in self.kills or (index == self.once and first):
            if os.getpid() == self.at_home:
                raise Killed
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": np.array([index * index]), "worker": np.array([os.getpid()])}

    def _note(self, what: str, *indices: int) -> int:
        path = self.runs / "-".join(map(str, (what, *indices)))
        with path.open("a") as stream:
            stream.write("x")
        return path.stat().st_size


def noted(runs: Path, what: str) -> dict[tuple[int, ...], int]:
    found = {
        tuple(map(int, p.name.split("-")[1:])): p.stat().st_size
        for p in runs.iterdir()
        if p.name.startswith(what)
    }
    return dict(sorted(found.items()))


class Deaths:
    """One worker in this process: a task that would kill it raises instead."""

    def __call__(self, job: Job, groups: Sequence[Group]) -> Iterator[Group]:
        for group in groups:
            try:
                yield job(group)
            except Killed:
                raise WorkerDied("in play") from None

    def slots(self) -> int:
        return 2


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture(
    params=[
        "in this process",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("loky", "dask")),
    ]
)
def runner(request: pytest.FixtureRequest) -> Runner:
    """One worker in play, or two real ones, on this machine or on the cluster."""
    if request.param == "in this process":
        return Deaths()
    return Loky(2) if request.param == "loky" else Dask(request.getfixturevalue("processes"))


def test_groups_are_cut_for_the_slots_and_each_task_has_its_file(
    tmp_path: Path, runs: Path
) -> None:
    seen: list[Progress] = []
    work = Squares(runs)
    assert isinstance(work, GroupWork)
    harvest = Fleet(folder=tmp_path / "f", progress=seen.append).run(work, 10, fingerprint="a")
    assert values(harvest) == {i: i * i for i in range(10)}
    assert list(noted(runs, "together")) == [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)]
    assert not noted(runs, "alone")
    assert sorted(p.name for p in (tmp_path / "f").iterdir()) == [
        f"model-{i:06d}.npz" for i in range(10)
    ]
    assert [p.finished for p in seen] == [0, 4, 7, 10] and {p.total for p in seen} == {10}


def test_all_slots_get_work(tmp_path: Path) -> None:
    fleet = Fleet(folder=tmp_path, runner=Loky(3))
    dealt = {24: [8] * 3, 25: [9, 8, 8], 100: [17] * 4 + [16] * 2, 2: [1, 1]}
    for count, sizes in dealt.items():
        groups = fleet._groups(Squares(tmp_path, group=20), range(count))
        assert [len(group) for group in groups] == sizes


def test_only_what_is_missing_is_run_again(tmp_path: Path, runs: Path) -> None:
    folder = tmp_path / "f"
    Fleet(folder=folder).run(Squares(runs), 10, fingerprint="a")
    for index in (1, 5, 6, 7, 9):
        (folder / f"model-{index:06d}.npz").unlink()
    Fleet(folder=folder).run(Squares(runs), 10, fingerprint="a")
    assert list(noted(runs, "together").items())[1:3] == [((1, 5, 6), 1), ((4, 5, 6), 1)]
    assert noted(runs, "together")[7, 9]


def test_too_few_results_are_an_error(tmp_path: Path, runs: Path) -> None:
    class Short(Squares):
        def many(self, indices: Sequence[int]) -> Iterator[Arrays]:
            yield self(indices[0])

    with pytest.raises(ValueError, match="shorter"):
        Fleet(folder=tmp_path / "f").run(Short(runs), 4, fingerprint="a")


@pytest.mark.parametrize("victim", [4, 6, 7])
def test_a_worker_that_dies_in_a_group_loses_no_finished_model(
    tmp_path: Path, runs: Path, runner: Runner, victim: int
) -> None:
    """The first, one amid, and the last of a group of four."""
    harvest = Fleet(folder=tmp_path / "f", runner=runner).run(
        Squares(runs, once=victim), 16, fingerprint="a"
    )
    assert values(harvest) == {i: i * i for i in range(16)} and harvest.failed == ()
    begun = {key[0]: times for key, times in noted(runs, "begun").items()}
    # those before it were written, and beside it runs at most the group in flight
    assert begun[victim] == 2 and all(begun[i] == 1 for i in range(4, victim))
    assert set(noted(runs, "alone")) >= {(i,) for i in range(victim, 8)}
    assert sum(times - 1 for times in begun.values()) <= 1 + 4


@pytest.mark.parametrize("attempts", [2, 3])
def test_the_blame_is_for_the_task_that_kills(
    tmp_path: Path, runs: Path, runner: Runner, attempts: int
) -> None:
    fleet = Fleet(folder=tmp_path / "f", runner=runner, attempts=attempts)
    harvest = fleet.run(Squares(runs, kills=(6,)), 12, fingerprint="a")
    assert harvest.failed == (6,)
    assert values(harvest) == {i: i * i for i in range(12) if i != 6}
    assert noted(runs, "alone")[6,] == attempts - 1


class Killer(threading.Thread):
    """Kills worker processes at moments that nothing has to do with, and remembers what was
    finished by then.
    """

    def __init__(self, folder: Path, kills: int, rng: np.random.Generator) -> None:
        super().__init__(daemon=True)
        self.folder, self.kills, self.rng, self.done = folder, kills, rng, 0
        self.finished: dict[Path, float] = {}

    def run(self) -> None:
        while self.done < self.kills:
            time.sleep(float(self.rng.uniform(0.1, 0.6)))
            self.finished |= {p: p.stat().st_mtime_ns for p in self.folder.glob("model-*.npz")}
            for path in sorted(self.finished, key=lambda p: self.finished[p])[-1:]:
                with np.load(path) as arrays:
                    worker = int(arrays["worker"][0])
                try:
                    os.kill(worker, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.done += 1


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_no_finished_model(
    tmp_path: Path, runs: Path, runner: Runner
) -> None:
    """Six deaths of whatever worker wrote last; no file that was there before a death is written
    again.
    """
    if isinstance(runner, Deaths):
        pytest.skip("needs workers of their own")
    folder, work = tmp_path / "f", Squares(runs, group=8, pause_s=0.05)
    folder.mkdir()
    killer = Killer(folder, 6, np.random.default_rng(9))
    killer.start()
    harvest = Fleet(folder=folder, runner=runner, attempts=20).run(work, 160, fingerprint="a")
    assert harvest.failed == () and values(harvest) == {i: i * i for i in range(160)}
    assert killer.done >= 3 and len(killer.finished) >= 10
    assert all(path.stat().st_mtime_ns == written for path, written in killer.finished.items())


@dataclass(frozen=True)
class Sampler:
    """A trainer whose groups give what it gives one by one."""

    group: int

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes:
        return np.random.default_rng(seed_sequence.spawn(1)[0]).choice(rows, size=10)

    def many(
        self, rows: Sequence[Codes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[Codes]:
        assert 1 < len(rows) <= self.group
        return (
            self(own, seed_sequence=seed) for own, seed in zip(rows, seed_sequences, strict=True)
        )


def game(folder: Path, trainer: Any, runner: Runner) -> Game:
    fleet, rng = Fleet(folder=folder, runner=runner), np.random.default_rng(3)
    return play(ROWS, ROWS[0], trainer, pairs=5, rng=rng, fleet=fleet)


def sets(played: Game) -> list[Any]:
    return [s.tolist() for s in (*played.shadows, *played.challenges)]


def test_a_game_is_the_same_in_groups_on_every_runner(tmp_path: Path, runner: Runner) -> None:
    alone = game(
        tmp_path / "alone",
        lambda rows, *, seed_sequence: Sampler(1)(rows, seed_sequence=seed_sequence),
        Serial(),
    )
    for name, other in (("serial", Serial()), ("other", runner)):
        grouped = game(tmp_path / name, Sampler(4), other)
        assert sets(grouped) == sets(alone)
        assert grouped.shadow_members.tolist() == alone.shadow_members.tolist()


def test_each_set_of_a_group_is_checked(tmp_path: Path) -> None:
    class Floats(Sampler):
        def many(
            self, rows: Sequence[Codes], *, seed_sequences: Sequence[np.random.SeedSequence]
        ) -> Iterator[Codes]:
            return (own * 0.5 for own in rows)  # type: ignore[misc]

    with pytest.raises(AttackError, match="float64"):
        game(tmp_path, Floats(4), Serial())
