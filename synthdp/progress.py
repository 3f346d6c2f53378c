"""Progress for people: stages that start, advance and end.

It shows names and public counts, never figures from rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Advance(Protocol):
    """Hears how far a stage is; `what` names the step that has begun, where steps have names."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None: ...


def unheard(done: int, total: int, what: str = "", /) -> None:
    """An `Advance` that does nothing."""


class Steps:
    """Counts the steps of a stage as they begin; `total` is how many there are at most."""

    def __init__(self, total: int, progress: Advance = unheard) -> None:
        self._total, self._progress, self._begun = total, progress, 0

    def begin(self, what: str) -> None:
        """The step before has ended, and `what` begins."""
        self._progress(self._begun, max(self._total, self._begun + 1), what)
        self._begun += 1

    def run(self, what: str, work: Callable[[], _T]) -> _T:
        """The result of `work`, a step by this name."""
        self.begin(what)
        return work()


class Display(Protocol):
    """Where progress is shown."""

    def start(self, title: str) -> Advance:
        """A stage begins; the answer is called as it advances."""
        ...

    def finish(self, title: str, seconds: float) -> None:
        """The stage has ended."""
        ...

    def warn(self, text: str) -> None:
        """Something that the steward should know now."""
        ...

    def tell(self, text: str) -> None:
        """Something that the steward may go on with."""
        ...


class Reporter:
    """Times stages and passes their progress on to a display, if there is one."""

    def __init__(self, display: Display | None = None) -> None:
        self._display = display
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, title: str) -> Iterator[Advance]:
        """One stage of a run; its wall time is added up in `seconds`."""
        started = time.perf_counter()
        heard = _advance.set(self._display.start(title) if self._display else unheard)
        try:
            yield _advance.get()
        finally:
            _advance.reset(heard)
            seconds = time.perf_counter() - started
            self.seconds[title] = self.seconds.get(title, 0.0) + seconds
            if self._display:
                self._display.finish(title, seconds)

    def tell(self, text: str) -> None:
        """Say what is done, before something long begins."""
        if self._display:
            self._display.tell(text)

    def warn(self, texts: Sequence[str]) -> None:
        """Show what the steward should know before the run goes on."""
        if self._display:
            for text in texts:
                self._display.warn(text)


# --- progress of what runs now ---

_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)
_advance: ContextVar[Advance] = ContextVar("advance", default=unheard)


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Inside, `stage` and `advance` of this thread are shown on `display`.

    >>> with stage("read"):  # nobody listens
    ...     advance(1, 2)
    """
    token = _reporter.set(Reporter(display))
    try:
        yield
    finally:
        _reporter.reset(token)


def current() -> Reporter:
    """Return the reporter of the command that runs; where there is none, one that shows nothing."""
    return _reporter.get() or Reporter()


@contextmanager
def stage(title: str) -> Iterator[Advance]:
    """One stage of what runs, shown where `shown_on` says so."""
    with current().stage(title) as told:
        yield told


def advance(done: int, total: int, what: str = "", /) -> None:
    """Say how far the innermost stage is, if one runs."""
    _advance.get()(done, total, what)
