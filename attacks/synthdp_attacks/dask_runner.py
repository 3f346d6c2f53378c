"""Tasks on the workers of a Dask cluster.

Dask by itself runs a task again on the next worker when one dies, up to a number that only the
scheduler's owner can set, and waits for ever once none is left. Here every task is pinned to one
worker, one for each of its threads; a task whose worker has left the cluster is lost, and its death
is the fleet's to judge.

Rows travel to the workers inside the task. Nothing that holds them has a `repr`, and the job's
exceptions,
which may quote them, come home sealed: scheduler and worker log the names of tasks and nothing
else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4
from warnings import catch_warnings, filterwarnings

from synthdp_attacks.errors import FleetError
from synthdp_attacks.runners import WorkerDied

LOOK_EVERY_S = 1.0  # a dead worker is noticed that late at most

Job = Callable[[int], int]


@dataclass(frozen=True)
class Dask:
    """As many tasks at a time as the cluster at `address` has threads, such as `tcp://host:8786`.

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
        """Refuse what cannot be an address."""
        if not self.address:
            raise FleetError(
                "the dask runner needs the address of a scheduler, such as tcp://host:8786"
            )

    @property
    def shown(self) -> str:
        """The address as it may be printed: without user and password."""
        scheme, mark, rest = str(self.address).rpartition("://")
        return scheme + mark + rest.rpartition("@")[2]

    def __call__(self, job: Job, indices: Sequence[int]) -> Iterator[int]:
        """Run the job on `indices`; those that lost their worker are reported when the others are
        done.
        """
        client = self._connect()
        crew = _Crew(client, job, list(reversed(indices)))
        try:
            yield from crew.work(self._no_workers, self.timeout_s)
        except (
            OSError,
            TimeoutError,
        ) as error:  # the scheduler went away; job errors are unsealed below
            raise WorkerDied(type(error).__name__) from None
        finally:
            crew.call_off()
            client.close()
        if crew.failure is not None:
            raise crew.failure
        if crew.lost:
            raise WorkerDied(f"{len(crew.lost)} tasks lost their worker")

    def slots(self) -> int:
        """Threads of the workers that the cluster has now.

        Raises:
            FleetError: it does not answer.
        """
        client = self._connect()
        try:
            threads: dict[str, int] = client.nthreads()
            return max(1, sum(threads.values()))
        finally:
            client.close()

    def check(self) -> None:
        """See whether a scheduler answers, before anything depends on it."""
        self._connect().close()

    def _connect(self) -> Any:
        try:
            from distributed import Client
        except ImportError:
            raise FleetError(
                "the dask runner needs dask.distributed: pip install 'synthdp[dist]'"
            ) from None
        try:
            # A client that gets no answer complains once more when the program ends: knock first.
            # In a thread, because a notebook's own has an event loop already.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _knock(str(self.address), self.timeout_s)).result()
        except (ValueError, TypeError) as error:
            raise FleetError(
                f"{self.shown} is no address that Dask can use ({type(error).__name__}): give"
                " tcp://host:port, or tls://host:port and certificates in Dask's configuration"
            ) from None
        except (OSError, TimeoutError):
            raise FleetError(
                f"no Dask scheduler answers at {self.shown} within {self.timeout_s:g} s: start one"
                " with `dask scheduler`, or correct the address"
            ) from None
        return Client(self.address, timeout=self.timeout_s, set_as_default=False)

    def _no_workers(self) -> FleetError:
        return FleetError(
            f"the Dask cluster at {self.shown} has been without workers for {self.timeout_s:g} s:"
            f" start some with `dask worker {self.shown} --nthreads 1`, then run again (finished"
            " models are kept)"
        )


async def _knock(address: str, timeout_s: float) -> None:
    from distributed import Security
    from distributed.comm import connect

    comm = await connect(address, timeout=timeout_s, **Security().get_connection_args("client"))
    await comm.close()


@dataclass
class _Crew:
    """The workers of a cluster, what each is at, and what is still waiting (taken from the end)."""

    client: Any
    job: Job
    waiting: list[int]
    flying: dict[Any, tuple[int, str]] = field(default_factory=dict)
    landed: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    lost: list[int] = field(default_factory=list)
    failure: BaseException | None = None

    def work(self, no_workers: Callable[[], FleetError], patience_s: float) -> Iterator[int]:
        """Indices as they finish, until all are done or lost, or one failed."""
        seen = time.monotonic()
        while (self.waiting or self.flying) and self.failure is None:
            threads: dict[str, int] = self.client.nthreads()
            seen = time.monotonic() if threads else seen
            if time.monotonic() - seen > patience_s:
                raise no_workers()
            self._give_up(
                [future for future, (_, worker) in self.flying.items() if worker not in threads]
            )
            for worker, count in threads.items():
                self._fill(worker, count)
            yield from self._finished()

    def call_off(self) -> None:
        """Cancel what is outstanding. Dask cannot stop a running training: it ends by itself and is
        kept.
        """
        with suppress(OSError, TimeoutError):
            if self.flying:
                self.client.cancel(list(self.flying))
        self.flying.clear()

    def _fill(self, worker: str, threads: int) -> None:
        """Submit waiting tasks until the worker has one for each thread."""
        busy = sum(where == worker for _, where in self.flying.values())
        for _ in range(min(threads - busy, len(self.waiting))):
            index = self.waiting.pop()
            with catch_warnings():
                filterwarnings(
                    "ignore", message="Sending large graph"
                )  # it is the table, once for each training
                future = self.client.submit(
                    _run,
                    _SealedTask(self.job),
                    index,
                    key=f"model-{index:06d}-{uuid4().hex}",
                    workers=[worker],
                )
            self.flying[future] = (index, worker)
            future.add_done_callback(self.landed.put)

    def _finished(self) -> Iterator[int]:
        """Wait for a task to land, and yield those that did."""
        with suppress(Empty):
            future = self.landed.get(timeout=LOOK_EVERY_S)
            while True:
                if future in self.flying:
                    yield from self._outcome(future)
                future = self.landed.get_nowait()

    def _outcome(self, future: Any) -> Iterator[int]:
        if (
            future.status == "finished"
        ):  # the value stays where it is: a worker that dies now takes nothing along
            yield self.flying.pop(future)[0]
        elif future.status == "error":
            self._judge(future)
        else:
            self._give_up([future])

    def _judge(self, future: Any) -> None:
        """Tell a dead worker from an error of the job, and that from one of the cluster."""
        from distributed import KilledWorker

        error = future.exception()
        if isinstance(error, KilledWorker):
            self._give_up([future])
        elif isinstance(error, _TaskFailed):
            self.failure = error.original
        else:
            self.failure = FleetError(
                f"Dask could not run a task or send its error back ({type(error).__name__}): give"
                " client, scheduler and workers the same packages, and run with the serial runner"
                " to see errors of the task"
            )

    def _give_up(self, futures: list[Any]) -> None:
        """Count tasks as lost, and keep Dask from trying them once more."""
        if futures:
            self.lost += [self.flying.pop(future)[0] for future in futures]
            self.client.cancel(futures)


@dataclass(frozen=True)
class _SealedTask:
    """A job whose `repr`, which Dask logs, does not show what it holds."""

    job: Job = field(repr=False)


class _TaskFailed(Exception):
    """Carries an exception home; neither its text nor its `repr` shows anything of it."""

    def __init__(self, original: BaseException | None = None) -> None:
        super().__init__()
        self.original = original


def _run(sealed: _SealedTask, index: int) -> None:
    """Run one task in a worker."""
    try:
        sealed.job(index)
    except Exception as error:
        failure = _TaskFailed(error)
    else:
        return
    raise failure  # outside of `except`: a chained exception would be logged in full
