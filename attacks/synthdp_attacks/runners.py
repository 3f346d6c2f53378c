"""Where the groups of tasks of a fleet run: here, in joblib's workers, or on a Dask cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol
from uuid import uuid4
from warnings import catch_warnings, filterwarnings

from synthdp_attacks.threat import AttackError

Group = tuple[int, ...]  # tasks that are run together
Job = Callable[[Group], Group]


class FleetError(AttackError):
    """A fleet of trainings cannot go on.

    The result folder is foreign, or workers die before any task starts.
    """


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
        yield from map(job, groups)

    def slots(self) -> int:
        return 1


@dataclass(frozen=True)
class Loky:
    """Processes of joblib on this machine: `workers` groups at a time.

    Each uses one thread of linear algebra.
    """

    workers: int = 2

    def __call__(self, job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
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
            with parallel_config(backend="loky", inner_max_num_threads=1), catch_warnings():
                filterwarnings("ignore", message="A worker stopped while some jobs")
                yield from parallel(map(delayed(job), groups))
        except BrokenProcessPool as error:  # TerminatedWorkerError is one, too
            raise WorkerDied(type(error).__name__) from None

    def slots(self) -> int:
        return max(1, self.workers)


@dataclass(frozen=True)
class Dask:
    """As many groups at a time as the cluster at `address` has threads, such as `tcp://host:8786`.

    Rows travel to the workers inside the job. Its `repr` shows nothing, and its exceptions, which
    may quote rows, come home sealed: scheduler and worker log the names of tasks and nothing else.

    `timeout_s`: how long the scheduler may take to answer, and how long the cluster may be without
    any worker. The result folder must be one that all machines share at one path. Start workers
    with `--nthreads 1`: what dies takes along every task of its process. Encryption is Dask's own
    (`tls://` and its configuration).

    Raises:
        FleetError: no address, no dask, no answer, or no workers.
    """

    address: str | None = field(repr=False)
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.address:
            raise FleetError(
                "the dask runner needs the address of a scheduler, such as tcp://host:8786"
            )

    def __call__(self, job: Job, groups: Sequence[Group]) -> Generator[Group, None, None]:
        landed = SimpleQueue[Any]()
        with self._connect() as client, catch_warnings():  # closed, it calls off what is left
            filterwarnings("ignore", message="Sending large graph")  # it is the table
            names = [f"model-{group[0]:06d}-{uuid4().hex}" for group in groups]
            flying = dict(zip(client.map(Sealed(job), groups, key=names), groups, strict=True))
            for future in flying:
                future.add_done_callback(landed.put)
            while flying:
                try:
                    future = landed.get(timeout=self.timeout_s)
                except Empty:  # a long training, or nobody to do it
                    self._see_workers(client)
                    continue
                if future.status != "finished":
                    raise _told(future.exception())
                yield flying.pop(future)

    def slots(self) -> int:
        with self._connect() as client:
            return int(max(1, sum(client.nthreads().values())))

    def check(self) -> None:
        """See whether a scheduler answers, before anything depends on it."""
        self._connect().close()

    def _see_workers(self, client: Any) -> None:
        try:
            client.wait_for_workers(1, timeout=self.timeout_s)
        except TimeoutError:
            raise FleetError(
                f"the Dask cluster at {self._shown} has been without workers for"
                f" {self.timeout_s:g} s: start some with `dask worker {self._shown} --nthreads 1`,"
                " then run again (finished models are kept)"
            ) from None
        except OSError as error:  # the scheduler went away
            raise WorkerDied(type(error).__name__) from None

    def _connect(self) -> Any:
        try:
            from distributed import Client
        except ImportError:
            raise FleetError(
                "the dask runner needs dask.distributed: pip install 'dask[distributed]'"
            ) from None
        try:
            # A client that gets no answer complains once more when the program ends: knock first.
            # In a thread, because a notebook's own has an event loop already.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _knock(str(self.address), self.timeout_s)).result()
        except (ValueError, TypeError) as error:
            raise FleetError(
                f"{self._shown} is no address that Dask can use ({type(error).__name__}): give"
                " tcp://host:port, or tls://host:port and certificates in Dask's configuration"
            ) from None
        except OSError:
            raise FleetError(
                f"no Dask scheduler answers at {self._shown} within {self.timeout_s:g} s: start one"
                " with `dask scheduler`, or correct the address"
            ) from None
        return Client(self.address, timeout=self.timeout_s, set_as_default=False)

    @property
    def _shown(self) -> str:
        """The address as it may be printed: without user and password."""
        scheme, mark, rest = str(self.address).rpartition("://")
        return scheme + mark + rest.rpartition("@")[2]


async def _knock(address: str, timeout_s: float) -> None:
    from distributed import Security
    from distributed.comm import connect

    comm = await connect(address, timeout=timeout_s, **Security().get_connection_args("client"))
    await comm.close()


def _told(error: BaseException | None) -> BaseException:
    """The job's own error, or what is to be said of the cluster's."""
    from distributed import KilledWorker

    if isinstance(error, _SealedError) and error.original is not None:
        return error.original
    if error is None or isinstance(error, KilledWorker | CancelledError):
        return WorkerDied("or the scheduler went away")
    return FleetError(
        f"Dask could not run a task or send its error back ({type(error).__name__}): give client,"
        " scheduler and workers the same packages, and run with the serial runner to see errors of"
        " the task"
    )


@dataclass(frozen=True)
class Sealed:
    """A job in a worker, whose `repr`, which Dask logs, does not show what it holds."""

    job: Job = field(repr=False)

    def __call__(self, group: Group) -> None:
        try:
            self.job(group)
            return
        except Exception as error:
            failure = _SealedError(error)
        raise failure  # outside of `except`: a chained exception would be logged in full


class _SealedError(Exception):
    """Carries an exception home; neither its text nor its `repr` shows anything of it."""

    def __init__(self, original: BaseException | None = None) -> None:
        super().__init__()
        self.original = original
