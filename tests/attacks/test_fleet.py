"""Fleets lose nothing that was finished: killed workers, Ctrl-C, foreign folders, tasks that always
kill.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp_attacks import (
    RUNNERS,
    Dask,
    Fleet,
    FleetError,
    Group,
    Job,
    Loky,
    Progress,
    Serial,
    WorkerDied,
    tell_share,
)
from tests.attacks.runners import runs_of, squares, values


@pytest.fixture
def fleet(tmp_path: Path) -> Callable[..., Fleet]:
    """`fleet(option=…)` is a fleet in the folder `f`."""
    return partial(Fleet, folder=tmp_path / "f")


@pytest.mark.parametrize(
    "runner", [Serial(), *(pytest.param(Loky(n), marks=pytest.mark.slow) for n in (1, 2))]
)
def test_all_tasks_run_once(tmp_path: Path, runs: Path, runner: Serial | Loky, fleet: Any) -> None:
    harvest = fleet(runner=runner).run(squares(runs), 6, fingerprint="a")
    assert values(harvest) == {i: i * i for i in range(6)} and harvest.failed == ()
    assert runs_of(runs) == dict.fromkeys(range(6), 1)
    assert sorted(p.name for p in (tmp_path / "f").iterdir()) == [
        f"model-{i:06d}.npz" for i in range(6)
    ]


@pytest.mark.check
def test_a_killed_worker_loses_no_finished_model(runs: Path, fleet: Any) -> None:
    harvest = fleet(runner=Loky(2)).run(
        squares(runs, kills=lambda i, run: i == 5 and run == 1), 12, fingerprint="a"
    )
    assert values(harvest) == {i: i * i for i in range(12)} and harvest.failed == ()
    counted = runs_of(runs)
    assert counted[5] == 2
    # Only what was in flight beside the victim (one other worker) may have run twice.
    assert sum(n - 1 for i, n in counted.items() if i != 5) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_always_kills_is_reported_and_the_rest_finishes(
    runs: Path, workers: int, fleet: Any
) -> None:
    own = fleet(runner=Loky(workers), attempts=3)
    harvest = own.run(squares(runs, kills=lambda i, run: i == 2), 6, fingerprint="a")
    assert harvest.failed == (2,)
    assert values(harvest) == {i: i * i for i in range(6) if i != 2}
    assert runs_of(runs)[2] == 3


class Interrupted:
    """A serial runner that is interrupted after three tasks."""

    def __call__(self, job: Job, groups: Sequence[Group]) -> Iterator[Group]:
        for group in groups[:3]:
            yield job(group)
        raise KeyboardInterrupt


def test_after_ctrl_c_the_rest_is_run(tmp_path: Path, runs: Path, fleet: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fleet(runner=Interrupted()).run(squares(runs), 8, fingerprint="a")
    (tmp_path / "f" / "model-000005.99.tmp").write_bytes(b"half a file")
    (tmp_path / "f" / "model-000005.started").touch()
    harvest = fleet().run(squares(runs), 8, fingerprint="a")
    assert values(harvest) == {i: i * i for i in range(8)}
    assert runs_of(runs) == dict.fromkeys(range(8), 1)
    assert not list((tmp_path / "f").glob("*.tmp"))


def test_results_of_another_run_are_refused(runs: Path, fleet: Any) -> None:
    fleet().run(squares(runs), 2, fingerprint="a")
    with pytest.raises(FleetError, match="another run"):
        fleet().run(squares(runs), 2, fingerprint="b")


class Planted:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.mark,)


def spoil(path: Path, how: str, mark: Path) -> None:
    whole = path.read_bytes()
    if how == "pickled":
        np.savez(path, square=np.array([Planted(mark)], dtype=object), fingerprint=np.array("a"))
    elif how == "bare pickle":
        path.write_bytes(np.array([Planted(mark)], dtype=object).dumps())
    else:
        changed = bytes(b ^ 255 for b in whole[60:90])
        path.write_bytes(
            {
                "empty": b"",
                "text": b"no archive",
                "half": whole[: len(whole) // 2],
                "flipped": whole[:60] + changed + whole[90:],
            }[how]
        )


@pytest.mark.parametrize("how", ["empty", "text", "half", "flipped", "pickled", "bare pickle"])
def test_a_result_file_that_cannot_be_read_is_made_again(
    tmp_path: Path, runs: Path, how: str, fleet: Any
) -> None:
    own = fleet()
    own.run(squares(runs), 4, fingerprint="a")
    spoil(tmp_path / "f" / "model-000002.npz", how, tmp_path / "mark")
    with pytest.warns(
        UserWarning,
        match=r"1 result files in .*/f could not be read; their models are trained again",
    ):
        assert values(own.run(squares(runs), 4, fingerprint="a")) == {i: i * i for i in range(4)}
    assert runs_of(runs) == {0: 1, 1: 1, 2: 2, 3: 1}
    assert not (tmp_path / "mark").exists()  # no object was unpickled


def test_nothing_is_removed_from_the_folder_of_another_run(
    tmp_path: Path, runs: Path, fleet: Any
) -> None:
    fleet().run(squares(runs), 2, fingerprint="a")
    (tmp_path / "f" / "model-000000.npz").write_bytes(b"no archive")
    with pytest.raises(FleetError, match="another run"):
        fleet().run(squares(runs), 2, fingerprint="b")
    assert (tmp_path / "f" / "model-000000.npz").exists()


def test_object_arrays_are_not_written(tmp_path: Path, fleet: Any) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        fleet().run(lambda i: {"square": np.array([{}], dtype=object)}, 1, fingerprint="a")
    assert not list((tmp_path / "f").glob("*.npz"))


class NeverStarts:
    """A pool whose workers die before they take a task."""

    def __call__(self, job: Job, groups: Sequence[Group]) -> Iterator[Group]:
        raise WorkerDied("no memory")


def test_workers_that_never_start_are_an_error_not_a_loop(runs: Path, fleet: Any) -> None:
    with pytest.raises(FleetError, match="died 3 times before any task"):
        fleet(runner=NeverStarts(), attempts=3).run(squares(runs), 2, fingerprint="a")


class Elsewhere:
    """Workers that do not see the fleet's folder, or another one of that name."""

    def __init__(self, folder: Path, *, other: bool) -> None:
        self.folder, self.other = folder, other

    def __call__(self, job: Job, groups: Sequence[Group]) -> Iterator[Group]:
        for group in groups:
            kept = self.folder.rename(self.folder.with_name("kept"))
            if self.other:
                self.folder.mkdir()
            try:
                done = job(group)
            finally:
                if self.other:
                    self.folder.rename(self.folder.with_name("other"))
                kept.rename(self.folder)
            yield done


@pytest.mark.parametrize(
    ("other", "told"), [(False, "sees no folder"), (True, r"result file did not appear in .*/f: ")]
)
def test_a_folder_that_is_not_shared_is_told(
    tmp_path: Path, runs: Path, other: bool, told: str, monkeypatch: Any, fleet: Any
) -> None:
    monkeypatch.setattr("synthdp_attacks.fleet.VISIBLE_WITHIN_S", 0.0)
    with pytest.raises(FleetError, match=told + r".*all machines share at the same path"):
        fleet(runner=Elsewhere(tmp_path / "f", other=other)).run(squares(runs), 2, fingerprint="a")


@pytest.mark.parametrize("runner", [Serial(), pytest.param(Loky(2), marks=pytest.mark.slow)])
def test_an_error_of_the_work_comes_through_and_says_of_which_task(
    runner: Serial | Loky, fleet: Any
) -> None:
    def work(index: int) -> dict[str, np.ndarray]:
        if index == 1:
            raise ArithmeticError("diverged")
        return {"square": np.array([index])}

    with pytest.raises(ArithmeticError, match="diverged") as caught:
        fleet(runner=runner).run(work, 2, fingerprint="a")
    assert caught.value.__notes__ == ["in task 1 of a fleet"]


def test_progress_counts_up_and_estimates(runs: Path, fleet: Any) -> None:
    seen: list[Progress] = []
    fleet(progress=seen.append).run(squares(runs), 4, fingerprint="a")
    assert [p.finished for p in seen] == [0, 1, 2, 3, 4]
    assert (
        seen[0].remaining_s is None and seen[-1].remaining_s == 0 and {p.total for p in seen} == {4}
    )


def test_runners_by_name() -> None:
    made = {name: make(workers=3, address="tcp://host:8786") for name, make in RUNNERS.items()}
    assert made == {"serial": Serial(), "loky": Loky(3), "dask": Dask("tcp://host:8786")}


class Together:
    """Four tasks as one group, which says how far it is and then waits to be heard."""

    group = 4

    def __init__(self, heard: list[Progress]) -> None:
        self.heard = heard

    def __call__(self, index: int) -> dict[str, Any]:
        raise AssertionError("not one by one")

    def many(self, indices: Sequence[int]) -> Iterator[dict[str, Any]]:
        for share in (0.3, 0.6, 0.9):
            tell_share(share)
            until = time.monotonic() + 30
            while max(p.underway for p in self.heard) < int(4 * share):
                assert time.monotonic() < until
                time.sleep(0.005)
        for index in indices:
            yield {"square": np.array([index])}


def test_progress_tells_what_a_group_has_done_before_it_ends(fleet: Any) -> None:
    """And nothing of it is kept when it has."""
    heard: list[Progress] = []
    own = fleet(progress=heard.append, every_s=0.01)
    assert values(own.run(Together(heard), 4, fingerprint="a")) == {i: i for i in range(4)}
    reached = [p.finished + p.underway for p in heard]
    assert reached == sorted(reached) and {0, 1, 2, 3, 4} == set(reached)
    assert heard[-1].finished == 4 and heard[-1].underway == 0
    assert not list(own.folder.glob("*.started"))
    tell_share(0.5)  # nobody listens outside of a task
