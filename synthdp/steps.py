"""Progress within a stage whose steps have names: how far it is, and what is being done.

Names and counts follow from the spec alone, never from rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Advance(Protocol):
    """Hears how far a stage is; `what` names the step that has begun, where steps have names."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None: ...


def unheard(done: int, total: int, what: str = "", /) -> None:
    """Nobody listens."""


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
