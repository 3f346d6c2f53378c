"""Where the tasks of a fleet run: the interface, and the two runners that need nothing but this
machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class WorkerDied(Exception):
    """A runner lost a worker process; tasks in flight are lost, result files are not."""


class Runner(Protocol):
    """Runs `job` on every index somewhere and yields indices as they finish, in any order.

    `slots` says how many indices it runs at a time, so that work in groups is cut to keep all of
    them busy. Raises `WorkerDied` when a worker is lost. An ordinary exception of the job comes
    through as it is. A generator is closed by the fleet as soon as something goes wrong: that is
    the place to call tasks off.
    """

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`."""
        ...

    def slots(self) -> int:
        """Indices that run at a time, at least 1."""
        ...


@dataclass(frozen=True)
class Serial:
    """One task after another in this process: for tests and debugging."""

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`, in order."""
        for index in indices:
            yield job(index)

    def slots(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Loky:
    """Worker processes on this machine, `workers` tasks at a time, one thread of linear algebra
    each.
    """

    workers: int = 2

    def __call__(self, job: Callable[[int], int], indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`, in the pool's order."""
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # With one job joblib would run in this very process, where a dying task takes everything
        # along: ask for two processes and hand out one task at a time.
        dispatch: int | str = 1 if self.workers == 1 else "2*n_jobs"
        try:
            with (
                parallel_config(backend="loky", inner_max_num_threads=1),
                warnings.catch_warnings(),
            ):
                warnings.filterwarnings(
                    "ignore", message="A worker stopped while some jobs were given"
                )
                # max_nbytes: joblib would otherwise spill large arrays, which are rows, into
                # temporary files.
                workers = max(2, self.workers)
                parallel = Parallel(
                    n_jobs=workers,
                    batch_size=1,
                    pre_dispatch=dispatch,
                    return_as="generator_unordered",
                    max_nbytes=None,
                )
                yield from parallel(delayed(job)(index) for index in indices)
        except BrokenProcessPool as error:  # TerminatedWorkerError is one, too
            raise WorkerDied(type(error).__name__) from None

    def slots(self) -> int:
        """The workers."""
        return max(1, self.workers)
