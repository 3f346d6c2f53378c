"""Many small trainings, each with one atomic result file: what has no file is run.

That holds after the death of a worker as after Ctrl-C or `kill -9` of the whole program: only what
was running is lost. Tasks that were running when a worker died are run again one at a time, each
*alone*, so that blame is exact; a task that kills is given up after `attempts` deaths.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import socket
import threading
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import joblib
import numpy as np
import numpy.typing as npt

from synthdp_attacks.runners import Dask, FleetError, Group, Loky, Runner, Serial, WorkerDied
from synthdp_attacks.threat import AttackError

Arrays = Mapping[str, npt.NDArray[Any]]
Work = Callable[[int], Arrays]
RUNNERS: dict[str, Callable[..., Runner]] = {
    "serial": lambda *, workers, address: Serial(),
    "loky": lambda *, workers, address: Loky(workers),
    "dask": lambda *, workers, address: Dask(address),
}  # from the number of tasks at a time and the address of a cluster
SHARED = "workers on other machines need a folder that all machines share at the same path"
VISIBLE_WITHIN_S = 60.0  # a file of another machine may take that long to show in a shared folder


@dataclass(frozen=True)
class Progress:
    """The progress of a fleet.

    `remaining_s` is None until a task of this run, or a group of them, has finished. `underway` is
    what running tasks have done, in tasks, as far as their work says so (`tell_share`).
    """

    finished: int
    failed: int
    total: int
    remaining_s: float | None
    underway: int = 0


_share: ContextVar[Callable[[float], None]] = ContextVar("share", default=lambda share: None)


def tell_share(share: float) -> None:
    """Say from inside of a task, or of a group, what share of it is done; elsewhere, nothing."""
    _share.get()(share)


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
    is called as tasks, or groups of them, finish, and looks every `every_s` seconds what running
    ones have done. `identity`: a name of the trainer and its settings, by which results are found
    again, in place of the one that `identity_of` makes; whoever gives it sees to it that another
    trainer has another name.
    """

    folder: Path
    runner: Runner = field(default_factory=Serial)
    attempts: int = 3
    progress: Callable[[Progress], object] | None = None
    identity: str | None = None
    every_s: float = 1.0

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
        results = Results(self.folder, fingerprint)
        if broken := results.prepare(count):
            warnings.warn(
                f"{broken} result files in {self.folder} could not be read; their models are"
                " trained again",
                stacklevel=2,
            )
        begin, before, failed = time.monotonic(), len(results.missing(range(count))), set[int]()
        telling, furthest, told = threading.Lock(), 0, (-1, 0, 0)

        def tell() -> None:
            nonlocal furthest, told
            if self.progress is None:
                return
            with telling:
                running, elapsed = results.missing(range(count)), time.monotonic() - begin
                missing, remaining = len(running), None
                if missing < before:
                    remaining = (missing - len(failed)) * elapsed / (before - missing)
                done = count - missing
                furthest = max(furthest, done + int(sum(map(results.share, running))))
                underway = furthest - done  # what a dead worker had done is done again
                if told != (told := (done, len(failed), underway)):
                    self.progress(Progress(done, len(failed), count, remaining, underway))

        tell()
        with self._telling(tell):
            self._finish(_Job(results, work), range(count), failed, tell)
        return Harvest(
            {i: results.read(i) for i in range(count) if i not in failed}, tuple(sorted(failed))
        )

    @contextmanager
    def _telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` now and then, in a thread, until what is inside has ended."""
        ended, context = threading.Event(), copy_context()

        def ask() -> None:
            while not ended.wait(self.every_s):
                with suppress(OSError):  # the folder goes, or comes back
                    context.run(tell)

        thread = threading.Thread(target=ask, name="fleet", daemon=True)
        if self.progress is not None:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()

    def _finish(self, job: _Job, tasks: range, failed: set[int], tell: Callable[[], None]) -> None:
        """Run what is missing until nothing is, or only tasks that kill: `failed` gets these."""
        deaths: Counter[int] = Counter()
        barren = 0
        while missing := job.results.missing(i for i in tasks if i not in failed):
            suspects = [(i,) for i in missing if deaths[i]]
            begun = self._submit(job, suspects[:1] or self._groups(job.work, missing), tell)
            barren = 0 if begun or job.results.missing(missing) != missing else barren + 1
            if barren >= self.attempts:
                raise FleetError(
                    f"workers died {barren} times before any task started: run with the serial"
                    " runner to see why"
                )
            deaths.update(begun)
            # The first death may be another task's fault.
            failed.update(i for i in begun if deaths[i] >= max(2, self.attempts))
            if begun:
                tell()

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

    def _submit(
        self, job: _Job, groups: Sequence[Group], tell: Callable[[], None]
    ) -> tuple[int, ...]:
        """Run groups where the runner does; the tasks that had begun when a worker died."""
        tasks = [index for group in groups for index in group]
        for index in tasks:
            job.results.mark(index).unlink(missing_ok=True)
        # An exception keeps a generator alive as long as somebody looks at its traceback, and a
        # cluster must hear of it, or of Ctrl-C, at once.
        with suppress(WorkerDied), closing(self.runner(job, groups)) as running:
            for group in running:
                job.results.wait_for(group)
                tell()
        return job.results.begun(tasks)


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
        told = _share.set(partial(self.results.keep_share, left))
        try:
            done = together.many(left) if together else map(self.work, left)
            for index, arrays in zip(left, done, strict=True):
                self.results.write(index, arrays)
        except Exception as error:
            error.add_note(f"in task {', '.join(map(str, self.results.missing(left)))} of a fleet")
            raise
        finally:
            _share.reset(told)
        return group


class UnreadableResult(FleetError):
    """A result file that no fleet could have finished writing."""


@dataclass(frozen=True)
class Results:
    """The results of the computation `fingerprint` in `folder`, a file for each task.

    >>> Results(Path("attack"), "a name of the game").path(7).name
    'model-000007.npz'
    """

    folder: Path
    fingerprint: str = field(repr=False)

    def path(self, index: int) -> Path:
        return self.folder / f"model-{index:06d}.npz"

    def mark(self, index: int) -> Path:
        """The file that says that a task has begun and not ended."""
        return self.folder / f"model-{index:06d}.started"

    def keep_share(self, indices: Iterable[int], share: float) -> None:
        """Note in the marks of tasks that begun what share of them is done."""
        for index in indices:
            with suppress(FileNotFoundError), self.mark(index).open("r+") as mark:
                mark.write(f"{min(share, 1):.4f}")

    def share(self, index: int) -> float:
        """What share of a task is done, as far as its mark says."""
        try:
            return float(self.mark(index).read_text() or 0)
        except (OSError, ValueError):
            return 0.0

    def missing(self, indices: Iterable[int]) -> tuple[int, ...]:
        """Those of the tasks that have no result."""
        present = set(os.listdir(self.folder))
        return tuple(i for i in indices if self.path(i).name not in present)

    def begun(self, indices: Iterable[int]) -> tuple[int, ...]:
        """Those of the tasks that have begun and not ended."""
        return tuple(i for i in self.missing(indices) if self.mark(i).exists())

    def wait_for(self, group: Group) -> None:
        """Wait until the files of a group that has ended show, or the marks of its death.

        Raises:
            FleetError: they do not.
        """
        deadline = time.monotonic() + VISIBLE_WITHIN_S
        while hidden := set(self.missing(group)) - set(self.begun(group)):
            if time.monotonic() > deadline:
                raise FleetError(
                    f"task {min(hidden)} has finished, and its result file did not appear in"
                    f" {self.folder}: {SHARED}"
                )
            time.sleep(0.1)

    def prepare(self, count: int) -> int:
        """Make the folder, for its owner alone, and clear what a killed run left.

        All results must be of this computation. Returns the number of unreadable results that were
        removed.

        Raises:
            FleetError: results of another computation, beside which nothing is removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in (*self.folder.glob("*.tmp"), *self.folder.glob("*.started")):
            leftover.unlink(missing_ok=True)
        broken = []
        for index in sorted(set(range(count)) - set(self.missing(range(count)))):
            try:
                self.read(index)
            except UnreadableResult:
                broken.append(index)
        for index in broken:
            self.path(index).unlink(missing_ok=True)
        return len(broken)

    def write(self, index: int, arrays: Arrays) -> None:
        """Write a result under its final name in one step: readers see all of it or nothing.

        Raises:
            ValueError: an array of objects.
        """
        named = {**arrays, "fingerprint": np.array(self.fingerprint)}
        temporary = self.path(index).with_suffix(f".{uuid4().hex}.tmp")  # no other machine's
        with temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **named)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.path(index))
        self.mark(index).unlink(missing_ok=True)

    def read(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a finished task; objects are never unpickled.

        Raises:
            UnreadableResult: the file is damaged.
            FleetError: it is another computation's.
        """
        path = self.path(index)
        try:
            # numpy takes what is no archive for a pickle, and advises to load it "unsafely".
            if not zipfile.is_zipfile(path):
                raise zipfile.BadZipFile
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
            raise UnreadableResult(
                f"the result file {path} cannot be read: run again, and its model is trained anew"
            ) from None
        if str(arrays.pop("fingerprint", "")) != self.fingerprint:
            raise FleetError(
                f"{self.folder} holds results of another run (other rows, target, threat model,"
                " seed or trainer - its code or settings): choose an empty folder; a trainer that"
                " only looks different can be named, see `identity` of `Fleet`"
            )
        return arrays


def identity_of(trainer: object) -> str:
    """The trainer's own `identity` if it has one, else a digest of what can be seen of it.

    It is the same in every process, and differs where settings or code of the trainer differ: its
    class or function - name, source, what a function closes over - and its fields. Not seen are the
    functions that it calls, other modules, files, services. For these, and where a name should
    outlive a change of the code, a trainer has an attribute `identity`, or `Fleet(identity=...)`
    says it.

    Raises:
        AttackError: its `identity` is an empty text.
    """
    given = getattr(trainer, "identity", None)
    if isinstance(given, str):
        return checked_identity(given)
    return str(joblib.hash(_content(trainer, own=True)))


def checked_identity(identity: str) -> str:
    """A name that was given by hand.

    Raises:
        AttackError: it is no text, or an empty one.
    """
    if not isinstance(identity, str) or not identity.strip():
        raise AttackError(
            f"identity={identity!r}; give a text that names the trainer and its settings, such as"
            " 'mst 1.2, epsilon 1', or leave it out"
        )
    return identity


def _content(value: Any, *, own: bool = False) -> object:
    """What of a trainer (`own`), or of what it holds, goes into its name, as plain values.

    What has no readable content, such as a lock, is described by its type.
    """
    kind = type(value)
    if isinstance(given := getattr(value, "identity", None), str):
        return ("named", given)
    if isinstance(value, dict):
        return sorted((str(name), str(_content(held))) for name, held in value.items())
    if isinstance(value, list | tuple):
        return [kind.__name__, *map(_content, value)]
    if isinstance(value, set | frozenset):  # in an order that is not another in each process
        return sorted(str(_content(part)) for part in value)
    if isinstance(value, partial):
        return [_content(value.func, own=True), _content((value.args, value.keywords))]
    if inspect.ismethod(value):
        return [_content(value.__func__), _content(value.__self__, own=True)]
    if inspect.isfunction(value):
        held = dict(inspect.getclosurevars(value).nonlocals)
        return [_code(value), _content((held, value.__defaults__, value.__kwdefaults__))]
    if inspect.isclass(value):
        return [_code(cls) for cls in inspect.getmro(value) if cls is not object]
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
        return [_content(kind), _content(fields)]
    if own:  # without caches
        cached, attributes = cached_property, getattr(value, "__dict__", {})
        kept = {
            n: a for n, a in attributes.items() if not isinstance(getattr(kind, n, None), cached)
        }
        return [_content(kind), _content(kept)]
    try:
        return str(joblib.hash(value))
    except Exception:  # whatever its own code raises
        return f"{kind.__module__}.{kind.__qualname__}"


def _code(made: Any) -> tuple[str, str, str]:
    """Where a function or class is from, and its source where there is one."""
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):  # typed in, or no Python
        source = ""
    return (str(getattr(made, "__module__", "")), str(getattr(made, "__qualname__", made)), source)
