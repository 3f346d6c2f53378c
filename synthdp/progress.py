"""Progress for people: stages that start, advance and end, shown where `shown_on` says so.

It shows names and public counts, never figures from rows.

>>> with stage("read"):  # nobody listens
...     advance(1, 2)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Advance(Protocol):
    """Hears how far a stage is; `what` names the step that has begun, where steps have names."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None: ...


def unheard(done: int, total: int, what: str = "", /) -> None:
    """An `Advance` that does nothing."""


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


@dataclass(frozen=True)
class _Shown:
    """What runs now: its display, if there is one, and the wall time of its stages so far."""

    display: Display | None = None
    seconds: dict[str, float] = field(default_factory=dict)


_shown: ContextVar[_Shown | None] = ContextVar("shown", default=None)
_advance: ContextVar[Advance] = ContextVar("advance", default=unheard)


def _now() -> _Shown:
    return _shown.get() or _Shown()


@contextmanager
def shown_on(display: Display | None = None) -> Iterator[None]:
    """Inside, this thread's progress is shown on `display`; without one, where it was shown before.

    The times of stages are counted anew (`seconds`).
    """
    token = _shown.set(_Shown(display or _now().display))
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def stage(title: str) -> Iterator[Advance]:
    """Begin a stage of what runs, and end it."""
    started, shown = time.perf_counter(), _now()
    heard = _advance.set(shown.display.start(title) if shown.display else unheard)
    try:
        yield _advance.get()
    finally:
        _advance.reset(heard)
        took = time.perf_counter() - started
        shown.seconds[title] = shown.seconds.get(title, 0.0) + took
        if shown.display:
            shown.display.finish(title, took)


def advance(done: int, total: int, what: str = "", /) -> None:
    """Say how far the innermost stage is, if one runs."""
    _advance.get()(done, total, what)


def seconds() -> dict[str, float]:
    """Return the wall time of each stage that has ended inside `shown_on`, by its title."""
    return dict(_now().seconds)


def tell(text: str) -> None:
    """Say what is done, before something long begins."""
    if display := _now().display:
        display.tell(text)


def warn(texts: Sequence[str]) -> None:
    """Show what the steward should know before what runs goes on."""
    if display := _now().display:
        for text in texts:
            display.warn(text)


class Steps:
    """Counts the steps of a stage as they begin; `total` is how many there are at most."""

    def __init__(self, total: int, progress: Advance = advance) -> None:
        self._total, self._progress, self._begun = total, progress, 0

    def begin(self, what: str) -> None:
        """The step before has ended, and `what` begins."""
        self._progress(self._begun, max(self._total, self._begun + 1), what)
        self._begun += 1

    def run(self, what: str, work: Callable[[], _T]) -> _T:
        """The result of `work`, a step by this name."""
        self.begin(what)
        return work()
