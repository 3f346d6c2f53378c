"""Progress on stderr: a live bar on a terminal, elsewhere a plain line every so often.

A command that says nothing for ten seconds looks as if it hung: between its stages, too, a line
says that it works.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from synthdp.progress import Advance

PLAIN_SECONDS = 8.0  # of silence before a plain line
SPEED_SECONDS = 180.0  # over which the speed is taken: on a busy machine shorter ones jump


class ProgressDisplay:
    """Running stages as bars on a terminal, else as plain lines; finished ones as plain lines."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<20}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            speed_estimate_period=SPEED_SECONDS,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._running: dict[str, _Plain] = {}
        self._between = _Plain("working")
        self._ended = threading.Event()

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        threading.Thread(target=self._tell, name="progress", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._progress.stop()

    def start(self, title: str) -> Advance:
        """A bar without an end until the stage says how long it is."""
        task = self._tasks[title] = self._progress.add_task(title, total=None)
        plain = self._running[title] = _Plain(title)

        def advance(done: int, total: int, what: str = "", /) -> None:
            plain.advance(done, total, what)
            self._progress.update(
                task, completed=done, total=total, description=f"{title}: {what}" if what else title
            )

        return advance

    def finish(self, title: str, seconds: float) -> None:
        """Remove the bar and print the stage's line.

        What others print cannot tear a single live line.
        """
        self._running.pop(title)
        self._progress.remove_task(self._tasks.pop(title))
        self._between.told()
        self._console.print(f"{title}: {seconds:.1f} s", markup=False)

    def warn(self, text: str) -> None:
        """A line that stays."""
        self.tell(f"warning: {text}")

    def tell(self, text: str) -> None:
        """Likewise, of good news."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _tell(self) -> None:
        """Until the end: a line of each stage whose last line, or whose start, is long enough
        ago, or one of the command where no stage runs. Bars move by themselves.
        """
        while not self._ended.wait(PLAIN_SECONDS / 16):
            bars = list(self._running.values())
            plain = bars if not self._console.is_terminal else []
            for one in plain if bars else [self._between]:
                if line := one.due():
                    self._console.print(line, markup=False, soft_wrap=True)


class _Plain:
    """How far one stage is, in words."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._started = self._told = self._heard = time.monotonic()
        self._at = 0, 0, ""

    def advance(self, done: int, total: int, what: str) -> None:
        """So far by now."""
        self._at, self._heard = (done, total, what), time.monotonic()

    def told(self) -> None:
        """Something was said just now."""
        self._told = time.monotonic()

    def due(self) -> str | None:
        """The next line, if it is time for one."""
        now = time.monotonic()
        if now - self._told < PLAIN_SECONDS:
            return None
        self._told = now
        done, total, what = self._at
        spent = now - self._started
        parts = [f"{done:,} of {total:,}" if total else "", what, f"{spent:.0f} s so far"]
        # As if the other steps took as long as those that have ended; of one that takes longer,
        # nothing is known.
        left = (self._heard - self._started) / done * total - spent if done else 0.0
        if left > 0:
            parts.append(f"about {left:.0f} s left")
        return f"{self.title}: {', '.join(filter(None, parts))}"
