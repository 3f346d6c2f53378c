"""Counting Parquet files on a Dask cluster: a task counts a part, and its counts come back.

A task is a function of the part alone, so that Dask may run it again where its worker died; what
each task gave is added once. Where units have ids, tasks first deal the rows of each part into
shards by id, as texts and levels; a second task bounds and counts each shard. A task catches its
own errors and gives their kind alone: Dask would log them, and they may quote a row.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import Any, TypeVar

import numpy as np

import synthdp
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import DataError, install
from synthdp.privacy.engines import Integers, Reading, Rows, Survey, on_arrow
from synthdp.privacy.engines.opening import Part, Parts
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Columns, Side, Summands

T = TypeVar("T")
SHARD_ROWS = 1 << 21
TIMEOUT_S = 30


@dataclass(frozen=True)
class DaskEngine:
    """Parquet files that the workers of the cluster at `address` can read at the same paths.

    Without an address the first pass starts a cluster of `threads` processes of this machine, which
    lives as long as the engine. `rows` is the declared number of rows.

    Raises:
        DataError: Dask is not installed, or the scheduler does not answer.
    """

    reading: Reading
    parts: Parts
    rows: int
    threads: int = 1
    address: str | None = field(default=None, repr=False)
    local: list[Any] = field(default_factory=list, repr=False, compare=False)

    def check(self) -> None:
        """See that the cluster answers."""
        with self._client():
            pass

    def survey(self) -> Survey:
        """By one pass over all columns."""
        job = partial(on_arrow.survey_part, self.reading)
        (found,) = on_arrow.summed(self._each(job, self.parts.parts))
        return Survey.of(found)

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By a task for each part, or for each shard of ids."""
        reading, own = self.reading.of(groups, tables)
        if reading.id_column is None:
            job = partial(on_arrow.count_part, reading, own, tuple(tables))
            return on_arrow.summed(self._each(job, self.parts.parts))
        of_shard = partial(on_arrow.count_shard, reading, own, tuple(tables))
        return on_arrow.summed(self._each_shard(of_shard))

    def add_up(self, what: Summands, side: Side) -> Integers:
        """By a task for each part, or for each shard of ids."""
        if self.reading.id_column is None:
            task = partial(on_arrow.add_part, self.reading, what, side)
            (found,) = on_arrow.summed(self._each(task, self.parts.parts))
        else:
            job = partial(on_arrow.add_shard, self.reading, what, side)
            (found,) = on_arrow.summed(self._each_shard(job, values=True))
        return found

    def draw(self, most: int) -> Rows:
        """Of the rows of all parts, or of those that stay of each shard of ids."""
        if self.reading.id_column is not None:
            job = partial(on_arrow.draw_shard, self.reading, most)
            drawn = on_arrow.smallest(most, self._each_shard(job, values=True))
            return on_arrow.drawn_rows(self.reading, drawn)
        tasks = on_arrow.split(self.parts, on_arrow.some_rows(self.parts, most))
        found = self._each(partial(on_arrow.draw_part, self.reading), tasks)
        return on_arrow.whole_rows(self.reading.domain, list(found))

    def sample(self, rate: float, randomness: Randomness) -> Codes:
        """A Poisson batch of all rows; of units with ids, by hashes under a key that is used
        once.
        """
        if self.reading.id_column is not None:
            key = secrets.token_hex(16)
            found = self._each_shard(partial(on_arrow.sample_shard, self.reading, rate, key))
            return np.concatenate(list(found))
        tasks = on_arrow.drawn_of(self.parts, rate, randomness)
        return np.concatenate(list(self._each(partial(on_arrow.sample_part, self.reading), tasks)))

    def units(self) -> Integers | None:
        """Numbered shard by shard: all rows of an id lie in one. No text of an id comes back."""
        if self.reading.id_column is None:
            return None
        found, first = list[Integers](), 0
        for own in self._each_shard(partial(on_arrow.units_shard, self.reading)):
            found.append(own + first)
            first += own.max(initial=-1) + 1
        return np.concatenate(found)

    def _each(self, job: Callable[[Any], T], tasks: Sequence[Any]) -> Iterator[T]:
        import dask

        # A warning of Dask would tell how large tasks are, and so how many units a sample has.
        quiet = {"distributed.admin.large-graph-warning-threshold": "1 PiB"}
        with self._client() as client:
            name = f"count-{secrets.token_hex(8)}"
            with dask.config.set(quiet):
                futures = client.map(_Quiet(job), tasks, pure=False, key=name)
            yield from _gathered(futures)

    def _each_shard(
        self, job: Callable[[list[on_arrow.Shard]], T], *, values: bool = False
    ) -> Iterator[T]:
        """`job` of all rows of each shard: of all ids whose hash is one number."""
        shards = max(1, -(-self.rows // SHARD_ROWS))
        with self._client() as client:
            run = secrets.token_hex(8)
            deal = _Quiet(partial(_dealt, self.reading, shards, values))
            hands = client.map(deal, self.parts.parts, pure=False, key=f"deal-{run}")
            futures = []
            for i in range(shards):
                own = [
                    client.submit(getitem, hand, i, pure=False, key=f"shard-{run}-{i}-{j}")
                    for j, hand in enumerate(hands)
                ]
                futures.append(client.submit(_Quiet(job), own, pure=False, key=f"count-{run}-{i}"))
            del hands
            yield from _gathered(futures)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A client of the cluster.

        Raises:
            DataError: there is none.
        """
        try:
            from distributed import Client
        except ImportError:
            raise DataError(
                "compute.engine dask needs dask.distributed, which is not installed",
                hint=install("dist"),
            ) from None
        if self.address is None:
            if not self.local:
                cluster = _own_cluster(self.threads)
                self.local.append(cluster)
                weakref.finalize(self, cluster.close)
            with Client(self.local[0], set_as_default=False) as client:
                yield client
            return
        scheme, mark, rest = self.address.rpartition("://")
        shown = scheme + mark + rest.rpartition("@")[2]  # without user and password
        failed = ""
        try:
            client = Client(self.address, timeout=TIMEOUT_S, set_as_default=False)
            client.wait_for_workers(1, timeout=TIMEOUT_S)
        except Exception as error:
            failed = type(error).__name__
        if failed:
            raise DataError(
                f"no Dask cluster answers at {shown} ({failed})",
                hint="start `dask scheduler` and `dask worker`, or correct compute.address",
            )
        with client:
            yield client


def _own_cluster(workers: int) -> Any:
    """Processes of this machine that nobody else can use.

    Whoever reaches a scheduler runs code on its workers, and other users of the machine reach its
    ports. So each connection needs a certificate, which is made here; Dask writes its key into a
    folder of this account alone while a process reads it. No page tells of tasks, whose sizes go by
    the rows. Workers spill rows into a folder of this account alone, from which Dask has Python
    take modules, too: its own would be one below the machine's temporary folder, whoever made it.
    """
    import dask
    from distributed import LocalCluster

    folder = tempfile.TemporaryDirectory(prefix="synthdp-", ignore_cleanup_errors=True)
    pages: dict[str, Any] = {
        f"distributed.{server}.http.routes": [] for server in ("scheduler", "worker")
    }
    with dask.config.set(pages | {"temporary-directory": folder.name}):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
            security=True,
        )
    weakref.finalize(cluster, folder.cleanup)
    return cluster


def _gathered(futures: list[Any]) -> Iterator[Any]:
    """What each task gave, once, in their order; each is let go when it was read."""
    futures.reverse()
    while futures:
        value = _result(futures.pop())
        if isinstance(value, Failed):
            if value.told is not None:
                raise DataError(value.told[0], hint=value.told[1])
            raise DataError(
                f"a task of compute.engine dask failed ({value.kind})",
                hint=(
                    f"see that its workers live, have memory and synthdp {synthdp.__version__}, and"
                    " can read dataset.source.path at the same path"
                ),
            )
        yield value


def _result(future: Any) -> Any:
    """What a task gave. One whose workers died, as Dask tells of after four, is asked again."""
    for _ in range(5):  # times that four workers may die of one task, or beside it
        try:
            return future.result()
        except Exception as error:
            failed = Failed(type(error).__name__)
        if failed.kind != "KilledWorker":
            break
        future.retry()
    return failed


@dataclass(frozen=True)
class Failed:
    """In place of what a task should have given: the kind of its error, and nothing else of it but
    the message and hint of one of ours, which quote no row.
    """

    kind: str
    told: tuple[str, str | None] | None = None

    def __getitem__(self, _: int) -> Failed:
        return self


@dataclass(frozen=True)
class _Quiet:
    """A task whose `repr`, which Dask logs, shows nothing, and which raises nothing."""

    job: Callable[[Any], Any] = field(repr=False)
    version: str = synthdp.__version__

    def __call__(self, task: Any) -> Any:
        if self.version != synthdp.__version__:
            return Failed("another version of synthdp")
        given = task if isinstance(task, list) else []
        if failed := [one for one in given if isinstance(one, Failed)]:
            return failed[0]
        try:
            return self.job(task)
        except DataError as error:
            return Failed(type(error).__name__, (error.message, error.hint))
        except Exception as error:
            return Failed(type(error).__name__)


def _dealt(reading: Reading, shards: int, values: bool, part: Part) -> list[on_arrow.Shard]:
    """The rows of a part by the shard of their id."""
    return on_arrow.Shard.of(reading, on_arrow.blocks(reading, part), values=values).dealt(shards)
