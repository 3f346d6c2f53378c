"""Progress for people: stages that start, advance and end. Says names and public counts, never figures from rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from synthdp.steps import Advance, unheard

__all__ = ["Advance", "Display", "Reporter", "Silent"]


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


class Silent:
    """Shows nothing."""

    def start(self, title: str) -> Advance:
        """Nothing."""
        return unheard

    def finish(self, title: str, seconds: float) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""


class Reporter:
    """Times stages and passes their progress on to a display."""

    def __init__(self, display: Display | None = None) -> None:
        self._display: Display = display or Silent()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, title: str) -> Iterator[Advance]:
        """One stage of a run; its wall time is kept in `seconds`."""
        started = time.perf_counter()
        advance = self._display.start(title)
        try:
            yield advance
        finally:
            self.seconds[title] = time.perf_counter() - started
            self._display.finish(title, self.seconds[title])

    def warn(self, texts: Sequence[str]) -> None:
        """Show what the steward should know before the run goes on."""
        for text in texts:
            self._display.warn(text)
