"""Where the groups of tasks of a fleet run: in this process, or in joblib's workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

Group = tuple[int, ...]  # tasks that are run together
Job = Callable[[Group], Group]


class WorkerDied(Exception):
    """A worker process is lost, and with it the tasks in flight; result files are not."""


class Runner(Protocol):
    """Runs a job on groups of tasks, and yields each group as it ends, in any order.

    It raises `WorkerDied` when it cannot go on after a death. An exception of the job comes through
    as it is. The fleet closes the generator as soon as something goes wrong, which calls off what
    is outstanding.
    """

    def __call__(self, job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
        """Run the job on each of `groups`."""
        ...

    def slots(self) -> int:
        """Groups that run at a time, at least 1: work is cut so that all of them are busy."""
        ...


@dataclass(frozen=True)
class Serial:
    """One group after another in this process: for tests and debugging."""

    def __call__(self, job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
        """Run the job on `groups`, in order."""
        for group in groups:
            yield job(group)

    def slots(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Loky:
    """Processes of joblib on this machine: `workers` groups at a time.

    Each uses one thread of linear algebra.
    """

    workers: int = 2

    def __call__(self, job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
        """Run the job on `groups`, in the pool's order."""
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        parallel = Parallel(
            n_jobs=max(2, self.workers),  # one job would run in this process, and take it along
            pre_dispatch=1 if self.workers == 1 else "2*n_jobs",
            batch_size=1,
            return_as="generator_unordered",
            max_nbytes=None,  # joblib spills large arrays, which are rows, into temporary files
        )
        try:
            with (
                parallel_config(backend="loky", inner_max_num_threads=1),
                warnings.catch_warnings(),
            ):
                warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
                yield from parallel(delayed(job)(group) for group in groups)
        except BrokenProcessPool as error:  # TerminatedWorkerError is one, too
            raise WorkerDied(type(error).__name__) from None

    def slots(self) -> int:
        """The workers."""
        return max(1, self.workers)
