"""Many small trainings, each with one atomic result file.

A crash loses only the trainings that were running.

What has no file is run, after the death of a worker as after Ctrl-C or `kill -9` of the whole
program. A group of tasks that was running when a worker died is run again *alone*, so that blame is
exact, and in halves where it dies once more; a task that kills is given up after `attempts` deaths.
"""

from __future__ import annotations

import math
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from synthdp_attacks.dask_runner import Dask
from synthdp_attacks.errors import FleetError
from synthdp_attacks.identity import checked_identity
from synthdp_attacks.progress import Progress, Teller
from synthdp_attacks.results import Arrays, Results
from synthdp_attacks.runners import Group, Loky, Runner, Serial, WorkerDied

Work = Callable[[int], Arrays]
RUNNERS: dict[str, Callable[..., Runner]] = {
    "serial": lambda *, workers, address: Serial(),
    "loky": lambda *, workers, address: Loky(workers),
    "dask": lambda *, workers, address: Dask(address),
}  # from the number of tasks at a time and the address of a cluster
SHARED = "workers on other machines need a folder that all machines share at the same path"
VISIBLE_WITHIN_S = 60.0  # a file of another machine may take that long to show in a shared folder


@runtime_checkable
class GroupWork(Protocol):
    """Work that may be done several tasks at a time, in less time than one after the other."""

    @property
    def group(self) -> int:
        """Most tasks that are worth doing together, at least 1."""
        ...

    def many(self, indices: Sequence[int]) -> Iterator[Arrays]:
        """The results of each task, in the order of `indices`, as they are ready."""
        ...


@dataclass(frozen=True)
class Harvest:
    """Results by task, and the tasks that always killed their worker."""

    results: dict[int, dict[str, npt.NDArray[Any]]] = field(repr=False)
    failed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Where and how tasks run.

    `folder` holds what was derived from rows: keep it with the private data.

    `attempts`: how often a task may kill its worker before it is given up and reported. `progress`
    is called as models finish, perhaps from another thread, never twice at a time. `identity`: a
    name of the trainer and its settings, by which results are found again, in place of the one that
    `synthdp_attacks.identity` makes; whoever gives it sees to it that another trainer has another
    name.
    """

    folder: Path
    runner: Runner = field(default_factory=Serial)
    attempts: int = 3
    progress: Callable[[Progress], None] | None = None
    identity: str | None = None

    def __post_init__(self) -> None:
        """Make the folder absolute: a worker of an earlier run may have another working folder."""
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
        perhaps, is removed with a warning and its task run again. An exception of `work` comes
        through with a note that says which task it is from.

        Raises:
            FleetError: the folder holds results of another computation or is not shared with the
                workers, or these die before any task starts.
        """
        job = _Job(results := Results(self.folder, fingerprint), work)
        if broken := results.prepare(count):
            warnings.warn(
                f"{broken} result files in {self.folder} could not be read; their models are"
                " trained again",
                stacklevel=2,
            )
        tasks = range(count)
        teller = Teller(self.progress, lambda: count - len(results.missing(tasks)), count)
        teller.tell()
        with teller.watching():
            failed = self._finish(job, tasks, teller)
        return Harvest(
            {i: results.read(i) for i in tasks if i not in failed}, tuple(sorted(failed))
        )

    def _finish(self, job: _Job, tasks: range, teller: Teller) -> set[int]:
        """Run what is missing until nothing is, or only tasks that kill: these are returned."""
        failed: set[int] = set()
        deaths: Counter[Group] = Counter()
        suspects: list[Group] = []  # had begun when a worker died
        barren = 0
        while missing := job.results.missing(i for i in tasks if i not in failed):
            suspects = [left for group in suspects if (left := job.results.missing(group))]
            alone = bool(suspects)
            groups = [suspects.pop()] if alone else self._groups(job.work, missing)
            begun = self._submit(job, groups, teller)
            barren = 0 if begun or job.results.missing(missing) != missing else barren + 1
            if barren >= self.attempts:
                raise FleetError(
                    f"workers died {barren} times before any task started: run with the serial"
                    " runner to see why"
                )
            for left in begun:
                half = len(left) // 2 if alone else 0
                deaths[left] += alone
                if len(left) == 1 and deaths[left] >= max(1, self.attempts - 1):
                    failed.update(left)
                else:
                    suspects += [part for part in (left[:half], left[half:]) if part]
            teller.failed = len(failed)
            if begun:
                teller.tell()
        return failed

    def _groups(self, work: Work, missing: Sequence[int]) -> list[Group]:
        """The missing tasks in groups of nearly the same size.

        There are as many groups as keep all slots of the runner busy to the end.
        """
        most = work.group if isinstance(work, GroupWork) else 1
        if most <= 1:
            return [(index,) for index in missing]
        slots = self.runner.slots()
        rounds = math.ceil(len(missing) / (most * slots))
        parts = np.array_split(np.asarray(missing), min(rounds * slots, len(missing)))
        return [tuple(part.tolist()) for part in parts]

    def _submit(self, job: _Job, groups: Sequence[Group], teller: Teller) -> list[Group]:
        """Run groups where the runner does; what of them had begun when a worker died."""
        results = job.results
        for index in (i for group in groups for i in group):
            results.mark(index).unlink(missing_ok=True)
        # An exception keeps a generator alive as long as somebody looks at its traceback, and a
        # cluster must hear of it, or of Ctrl-C, at once.
        with suppress(WorkerDied), closing(self.runner(job, groups)) as running:
            for group in running:
                self._await(results, group)
                teller.tell()
        return [left for group in groups if (left := results.begun(group))]

    def _await(self, results: Results, group: Group) -> None:
        """Wait until the files of a group that has ended show, or the marks of its death."""
        deadline = time.monotonic() + VISIBLE_WITHIN_S
        while hidden := set(results.missing(group)) - set(results.begun(group)):
            if time.monotonic() > deadline:
                raise FleetError(
                    f"task {min(hidden)} has finished, and its result file did not appear in"
                    f" {self.folder}: {SHARED}"
                )
            time.sleep(0.1)


@dataclass(frozen=True)
class _Job:
    """Runs a group of tasks in a worker.

    Each task leaves a mark when the group begins, and a result when it is done.
    """

    results: Results
    work: Work

    def __call__(self, group: Group) -> Group:
        if not self.results.folder.is_dir():
            raise FleetError(
                f"the worker on {socket.gethostname()} sees no folder {self.results.folder}:"
                f" {SHARED}"
            )
        left = self.results.missing(group)
        if self.results.begun(left):
            return group  # a cluster runs it again after a death, which is the fleet's to judge
        for index in left:
            self.results.mark(index).touch()
        together = self.work if len(left) > 1 and isinstance(self.work, GroupWork) else None
        try:
            done = together.many(left) if together else map(self.work, left)
            for index, arrays in zip(left, done, strict=True):
                self.results.write(index, arrays)
        except Exception as error:
            error.add_note(f"in task {', '.join(map(str, self.results.missing(left)))} of a fleet")
            raise
        return group
