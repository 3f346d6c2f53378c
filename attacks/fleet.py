"""Many small trainings, each with one atomic result file, so that only models in flight can be lost.

joblib's loky pool loses a whole batch when one worker dies; here every finished task has already put its file
in the folder, and what is missing is submitted again. A task that was running when a worker died is run again
*alone*, so that blame is exact, and reported after `attempts` deaths instead of being retried for ever.
Running again with the same folder continues, also after Ctrl-C or `kill -9` of the whole program.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from attacks.errors import FleetError

Arrays = Mapping[str, npt.NDArray[Any]]
Work = Callable[[int], Arrays]


class WorkerDied(Exception):
    """A runner lost a worker process; tasks in flight are lost, result files are not."""


class Runner(Protocol):
    """Runs `job` on every index somewhere and yields indices as they finish, in any order.

    Raises `WorkerDied` when a worker is lost. An ordinary exception of the job comes through as it is.
    """

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`."""
        ...


@dataclass(frozen=True)
class Serial:
    """One task after another in this process: for tests and debugging."""

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`, in order."""
        for index in indices:
            yield job(index)


@dataclass(frozen=True)
class Loky:
    """Worker processes on this machine, `workers` tasks at a time, one thread of linear algebra each."""

    workers: int = 2

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`, in the pool's order."""
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # With one job joblib would run in this very process, where a dying task takes everything along:
        # ask for two processes and hand out one task at a time.
        dispatch: int | str = 1 if self.workers == 1 else "2*n_jobs"
        try:
            with parallel_config(backend="loky", inner_max_num_threads=1), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
                # max_nbytes: joblib would otherwise spill large arrays, which are rows, into temporary files.
                workers = max(2, self.workers)
                parallel = Parallel(n_jobs=workers, batch_size=1, pre_dispatch=dispatch, return_as="generator_unordered", max_nbytes=None)
                yield from parallel(delayed(job)(index) for index in indices)
        except BrokenProcessPool as error:  # TerminatedWorkerError is one, too
            raise WorkerDied(type(error).__name__) from None


RUNNERS: dict[str, Callable[[int], Runner]] = {"serial": lambda workers: Serial(), "loky": Loky}


@dataclass(frozen=True)
class Progress:
    """How far a fleet is. `remaining_s` is None until a task of this run has finished."""

    finished: int
    failed: int
    total: int
    elapsed_s: float
    remaining_s: float | None


@dataclass(frozen=True)
class Harvest:
    """Results by task, and the tasks that always killed their worker."""

    results: dict[int, dict[str, npt.NDArray[Any]]] = field(repr=False)
    failed: tuple[int, ...]


@dataclass(frozen=True)
class _Job:
    """Runs one task in a worker: leaves a mark when it starts, and an atomic result file when it is done."""

    folder: Path
    fingerprint: str
    work: Work

    def __call__(self, index: int) -> int:
        _mark(self.folder, index).touch()
        _write(self.folder, index, {**self.work(index), "fingerprint": np.array(self.fingerprint)})
        return index


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Where and how tasks run. `folder` holds what was derived from rows: keep it with the private data.

    `attempts`: how often a task may kill its worker before it is given up and reported.
    """

    folder: Path
    runner: Runner = Serial()
    attempts: int = 3
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        """Make the folder absolute: a worker that is kept from an earlier run may stand in another one."""
        object.__setattr__(self, "folder", Path(self.folder).absolute())

    def within(self, name: str) -> Fleet:
        """The same fleet on a sub-folder."""
        return replace(self, folder=self.folder / name)

    def run(self, work: Work, count: int, *, fingerprint: str) -> Harvest:
        """Run tasks `0 .. count-1`, of which those with a result file are not run again.

        `work(index)` returns named arrays (no object arrays). `fingerprint` names the whole computation:
        results of another one are refused rather than mixed in.

        Raises:
            FleetError: the folder holds results of another computation, or workers die before any task starts.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in (*self.folder.glob("*.tmp"), *self.folder.glob("*.started")):
            leftover.unlink(missing_ok=True)
        for index in _done(self.folder, count):
            _read(self.folder, index, fingerprint)
        failed = self._drain(_Job(self.folder, fingerprint, work), count)
        return Harvest({i: _read(self.folder, i, fingerprint) for i in _done(self.folder, count)}, tuple(sorted(failed)))

    def _drain(self, job: _Job, count: int) -> set[int]:
        """Submit what is missing until nothing is, or only tasks that kill; the tasks given up."""
        failed: set[int] = set()
        barren, report = 0, self._reporter(count)
        report(failed)
        while missing := sorted(set(range(count)) - set(_done(self.folder, count)) - failed):
            try:
                for _ in self.runner(job, missing):
                    report(failed)
            except WorkerDied:
                suspects = [i for i in missing if _mark(self.folder, i).exists() and not _result(self.folder, i).exists()]
                barren = 0 if suspects or any(_result(self.folder, i).exists() for i in missing) else barren + 1
                if barren >= self.attempts:
                    raise FleetError(f"workers died {barren} times before any task started: run with the serial runner to see why") from None
                failed |= {i for i in suspects if not self._alone(job, i)}
                report(failed)
        return failed

    def _alone(self, job: _Job, index: int) -> bool:
        """Whether a suspect finishes when nothing else runs; its death in company counts as one attempt."""
        for _ in range(max(1, self.attempts - 1)):
            try:
                return bool(list(self.runner(job, [index])))
            except WorkerDied:
                continue
        return False

    def _reporter(self, count: int) -> Callable[[set[int]], None]:
        """A function that tells the progress callback how far the folder is."""
        begin, before = time.monotonic(), len(_done(self.folder, count))

        def report(failed: set[int]) -> None:
            if self.progress is not None:
                finished, elapsed = len(_done(self.folder, count)), time.monotonic() - begin
                rate = (finished - before) / elapsed if elapsed > 0 else 0.0
                remaining = (count - finished - len(failed)) / rate if rate > 0 else None
                self.progress(Progress(finished, len(failed), count, elapsed, remaining))

        return report


def _result(folder: Path, index: int) -> Path:
    return folder / f"model-{index:06d}.npz"


def _mark(folder: Path, index: int) -> Path:
    return folder / f"model-{index:06d}.started"


def _done(folder: Path, count: int) -> list[int]:
    """Tasks below `count` that have a result file."""
    present = set(os.listdir(folder))
    return [i for i in range(count) if _result(folder, i).name in present]


def _write(folder: Path, index: int, arrays: Arrays) -> None:
    """Write the result under its final name in one step: readers see all of it or nothing."""
    temporary = folder / f"model-{index:06d}.{os.getpid()}.tmp"
    with temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(_result(folder, index))
    _mark(folder, index).unlink(missing_ok=True)


def _read(folder: Path, index: int, fingerprint: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one finished task."""
    with np.load(_result(folder, index), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop("fingerprint", "")) != fingerprint:
        raise FleetError(f"{folder} holds results of another run (other rows, target, threat model or seed): choose an empty folder")
    return arrays
