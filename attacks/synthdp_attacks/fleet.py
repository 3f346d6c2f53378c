"""Many small trainings, each with one atomic result file, so that only models in flight can be
lost.

joblib's loky pool loses a whole batch when one worker dies; here every finished task has already
put its file in the folder, and what is missing is submitted again. A task that was running when a
worker died is run again *alone*, so that blame is exact, and reported after `attempts` deaths
instead of being retried for ever. Work that can do several tasks in less time than one after the
other (`GroupWork`) is handed out in groups; files, resuming and
blame stay those of single tasks: a group that kills is cut in halves until the task that does it is
found. Running again with the same folder continues, also after Ctrl-C or `kill -9` of the whole
program.
"""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from synthdp_attacks.dask_runner import Dask
from synthdp_attacks.errors import FleetError
from synthdp_attacks.identity import checked_identity
from synthdp_attacks.progress import Progress, Teller
from synthdp_attacks.runners import Loky, Runner, Serial, WorkerDied

Arrays = Mapping[str, npt.NDArray[Any]]
Work = Callable[[int], Arrays]
Group = tuple[int, ...]  # tasks that are run together


@runtime_checkable
class GroupWork(Protocol):
    """Work that may be done several tasks at a time."""

    @property
    def group(self) -> int:
        """Most tasks that are worth doing together, at least 1."""
        ...

    def __call__(self, index: int) -> Arrays:
        """The results of one task."""
        ...

    def many(self, indices: Sequence[int]) -> Iterator[Arrays]:
        """The results of each task, in the order of `indices`, as they are ready."""
        ...


class MakeRunner(Protocol):
    """Makes a runner from the number of tasks at a time and the address of a cluster, of which it
    takes what it needs.
    """

    def __call__(self, *, workers: int, address: str | None) -> Runner:
        """Make the runner."""
        ...


RUNNERS: dict[str, MakeRunner] = {
    "serial": lambda *, workers, address: Serial(),
    "loky": lambda *, workers, address: Loky(workers),
    "dask": lambda *, workers, address: Dask(address),
}
SHARED = "workers on other machines need a folder that all machines share at the same path"
VISIBLE_WITHIN_S = 60.0  # a file of another machine may take that long to show in a shared folder


@dataclass(frozen=True)
class Harvest:
    """Results by task, and the tasks that always killed their worker."""

    results: dict[int, dict[str, npt.NDArray[Any]]] = field(repr=False)
    failed: tuple[int, ...]


@dataclass(frozen=True)
class _Job:
    """Runs a group of tasks, named by its first, in a worker: each leaves a mark when the group
    starts, and an atomic result file when it is done.
    """

    folder: Path
    fingerprint: str
    work: Work
    groups: Mapping[int, Group] = field(default_factory=dict)

    def __call__(self, first: int) -> int:
        if not self.folder.is_dir():
            raise FleetError(
                f"the worker on {socket.gethostname()} sees no folder {self.folder}: {SHARED}"
            )
        group = self.groups[first]
        for index in group:
            _mark(self.folder, index).touch()
        results = (
            self.work.many(group)
            if len(group) > 1 and isinstance(self.work, GroupWork)
            else map(self.work, group)
        )
        for index, arrays in zip(group, results, strict=True):
            _write(self.folder, index, {**arrays, "fingerprint": np.array(self.fingerprint)})
        return first


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Where and how tasks run. `folder` holds what was derived from rows: keep it with the private
    data.

    `attempts`: how often a task may kill its worker before it is given up and reported. `progress`
    is called as models finish, perhaps
    from another thread, never twice at a time. `identity`: a name of the trainer and its settings,
    by which results are found again, in place of the one that `synthdp_attacks.identity` makes;
    whoever gives it sees to it that another trainer has another name.
    """

    folder: Path
    runner: Runner = field(default_factory=Serial)
    attempts: int = 3
    progress: Callable[[Progress], None] | None = None
    identity: str | None = None

    def __post_init__(self) -> None:
        """Make the folder absolute: a worker that is kept from an earlier run may stand in another
        one.
        """
        object.__setattr__(self, "folder", Path(self.folder).absolute())
        if self.identity is not None:
            checked_identity(self.identity)

    def within(self, name: str) -> Fleet:
        """The same fleet on a sub-folder."""
        return replace(self, folder=self.folder / name)

    def run(self, work: Work, count: int, *, fingerprint: str) -> Harvest:
        """Run tasks `0 .. count-1`, of which those with a result file are not run again.

        `work(index)` returns named arrays (no object arrays); `GroupWork` is handed out in groups
        of at most its `group`. `fingerprint` names the whole computation: results of another one
        are refused rather than mixed in. A result file that cannot be read, after a full disk
        perhaps, is removed with a warning and its task run again.

        Raises:
            FleetError: the folder holds results of another computation or is not shared with the
                workers, or these die before any task starts.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in (*self.folder.glob("*.tmp"), *self.folder.glob("*.started")):
            leftover.unlink(missing_ok=True)
        self._remove_unreadable(count, fingerprint)
        failed = self._drain(_Job(self.folder, fingerprint, work), count)
        return Harvest(
            {i: _read(self.folder, i, fingerprint) for i in _done(self.folder, count)},
            tuple(sorted(failed)),
        )

    def _remove_unreadable(self, count: int, fingerprint: str) -> None:
        """See that all results are of this run, and take away those that are none."""
        broken = []
        for index in _done(self.folder, count):
            try:
                _read(self.folder, index, fingerprint)
            except _UnreadableResult:
                broken.append(index)
        for index in broken:  # only now: the folder is not another run's
            _result(self.folder, index).unlink(missing_ok=True)
        if broken:
            warnings.warn(
                f"{len(broken)} result files in {self.folder} could not be read; their models are"
                " trained again",
                stacklevel=3,
            )

    def _drain(self, job: _Job, count: int) -> set[int]:
        """Submit what is missing until nothing is, or only tasks that kill; the tasks given up."""
        teller = Teller(self.progress, lambda: len(_done(self.folder, count)), count)
        teller.tell()
        with teller.watching():
            return self._finish(job, count, teller)

    def _finish(self, job: _Job, count: int, teller: Teller) -> set[int]:
        failed: set[int] = set()
        barren = 0
        while missing := sorted(set(range(count)) - set(_done(self.folder, count)) - failed):
            groups = self._groups(job.work, missing)
            try:
                self._submit(job, groups, tell=teller.tell)
            except WorkerDied:
                suspects = [
                    left
                    for group in groups
                    if (
                        left := self._unfinished(i for i in group if _mark(self.folder, i).exists())
                    )
                ]
                barren = (
                    0 if suspects or len(self._unfinished(missing)) < len(missing) else barren + 1
                )
                if barren >= self.attempts:
                    raise FleetError(
                        f"workers died {barren} times before any task started: run with the serial"
                        " runner to see why"
                    ) from None
                for group in suspects:
                    failed |= self._alone(job, group, tell=teller.tell)
                    teller.failed = len(failed)
                teller.tell()
        return failed

    def _groups(self, work: Work, missing: Sequence[int]) -> list[Group]:
        """What is missing, cut in groups of nearly the same size, as many as keep all slots of the
        runner busy to the end.
        """
        most = work.group if isinstance(work, GroupWork) else 1
        if most <= 1:
            return [(index,) for index in missing]
        slots = self.runner.slots()
        rounds = math.ceil(len(missing) / (most * slots))
        return [
            tuple(part.tolist())
            for part in np.array_split(np.asarray(missing), min(rounds * slots, len(missing)))
        ]

    def _unfinished(self, indices: Iterable[int]) -> Group:
        """Those of the tasks that have no result file."""
        return tuple(i for i in indices if not _result(self.folder, i).exists())

    def _submit(self, job: _Job, groups: Sequence[Group], *, tell: Callable[[], None]) -> None:
        """Run groups of tasks where the runner does, and see that each task leaves its file."""
        members = {group[0]: group for group in groups}
        running = self.runner(replace(job, groups=members), list(members))
        try:
            for first in running:
                for index in members[first]:
                    _await_result(self.folder, index)
                tell()
        finally:
            # An exception keeps the generator alive for as long as somebody looks at its traceback;
            # a cluster must hear of it, or of Ctrl-C, at once.
            if isinstance(running, Generator):
                running.close()

    def _alone(self, job: _Job, group: Group, *, tell: Callable[[], None]) -> set[int]:
        """Tasks of a suspect group that kill even when nothing else runs; a task's death in company
        counts as one of its attempts.

        A group that dies again is cut in halves, so that its innocent tasks still run together.
        """
        for _ in range(max(1, self.attempts - 1) if len(group) == 1 else 1):
            try:
                self._submit(job, [group], tell=tell)
            except WorkerDied:
                continue
            break
        left = self._unfinished(group)
        if len(group) == 1:
            return set(left)
        half = len(left) // 2
        return {
            i
            for part in (left[:half], left[half:])
            if part
            for i in self._alone(job, part, tell=tell)
        }


def _result(folder: Path, index: int) -> Path:
    return folder / f"model-{index:06d}.npz"


def _mark(folder: Path, index: int) -> Path:
    return folder / f"model-{index:06d}.started"


def _done(folder: Path, count: int) -> list[int]:
    """Tasks below `count` that have a result file."""
    present = set(os.listdir(folder))
    return [i for i in range(count) if _result(folder, i).name in present]


def _await_result(folder: Path, index: int) -> None:
    """Wait until the file of a task that has finished shows."""
    deadline = time.monotonic() + VISIBLE_WITHIN_S
    while not _result(folder, index).exists():
        if time.monotonic() > deadline:
            raise FleetError(
                f"task {index} has finished, and its result file did not appear in {folder}:"
                f" {SHARED}"
            )
        time.sleep(0.1)


def _write(folder: Path, index: int, arrays: Arrays) -> None:
    """Write the result under its final name in one step: readers see all of it or nothing."""
    temporary = (
        folder / f"model-{index:06d}.{uuid4().hex}.tmp"
    )  # process numbers repeat on other machines
    with temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(_result(folder, index))
    _mark(folder, index).unlink(missing_ok=True)


class _UnreadableResult(FleetError):
    """A result file that no fleet could have finished writing."""


def _read(folder: Path, index: int, fingerprint: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one finished task; objects are never unpickled.

    Raises:
        FleetError: the file cannot be read, or is another run's.
    """
    try:
        # What is no archive would be taken for a pickle, and the error would advise to load it
        # "unsafely".
        if not zipfile.is_zipfile(_result(folder, index)):
            raise zipfile.BadZipFile
        with np.load(_result(folder, index), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
        raise _UnreadableResult(
            f"the result file {_result(folder, index)} cannot be read: run again, and its model is"
            " trained anew"
        ) from None
    if str(arrays.pop("fingerprint", "")) != fingerprint:
        raise FleetError(
            f"{folder} holds results of another run (other rows, target, threat model, seed or"
            " trainer - its code or settings): choose an empty folder; a trainer that only looks"
            " different can be named, see `identity` of `Fleet`"
        )
    return arrays
