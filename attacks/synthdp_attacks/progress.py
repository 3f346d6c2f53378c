"""How far a fleet is, told as models finish, also while a runner is busy with a group of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOK_EVERY_S = 1.0  # how often result files are counted while the runner is silent


@dataclass(frozen=True)
class Progress:
    """The progress of a fleet.

    `remaining_s` is None until a task of this run, or a group of them, has finished.
    """

    finished: int
    failed: int
    total: int
    elapsed_s: float
    remaining_s: float | None


@dataclass
class Teller:
    """Tells `listener` how many of `total` tasks have left a file, by `count`.

    There are never two calls at a time; they may come from a separate thread.

    Time left is judged when the runner reports only: of a group that is trained side by side the
    first models come late and the others at once.
    """

    listener: Callable[[Progress], None] | None
    count: Callable[[], int]
    total: int
    failed: int = 0
    _rate: float | None = None
    _told: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _error: BaseException | None = None

    def __post_init__(self) -> None:
        """Start the clock."""
        self._begin, self._before = time.monotonic(), self.count()

    def tell(self) -> None:
        """A task or group has ended, or nothing has begun."""
        if self.listener is None:
            return
        with self._lock:
            if self._error is not None:  # of the listener, when the thread told it
                raise self._error
            finished, elapsed = self.count(), time.monotonic() - self._begin
            self._rate = (finished - self._before) / elapsed if elapsed > 0 else None
            self._say(finished, elapsed)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Tell of new files in between."""
        ended = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(ended,), name="fleet progress", daemon=True
        )
        if self.listener is not None:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if self.listener is not None:
                thread.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_EVERY_S):
            with self._lock:
                try:
                    finished = self.count()
                except OSError:  # a shared folder that is away for a moment
                    continue
                try:
                    if finished > self._told:
                        self._say(finished, time.monotonic() - self._begin)
                except BaseException as error:  # the run's own thread raises it
                    self._error = error
                    return

    def _say(self, finished: int, elapsed: float) -> None:
        assert self.listener is not None
        self._told = finished
        left = self.total - finished - self.failed
        self.listener(
            Progress(
                finished,
                self.failed,
                self.total,
                elapsed,
                left / self._rate if self._rate else None,
            )
        )
