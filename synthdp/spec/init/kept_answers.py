"""Answers to `synthdp init` that survive an interruption: each is written to a file as it is given.

The file lies beside the draft that they are for, and goes when that is written. It holds what was
typed, which is about the table and not of its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from synthdp.files import write_whole
from synthdp.spec.init.questions import Ask

_T = TypeVar("_T")
BACK = "<"
"""The answer that goes back to the question before."""


class GoBackError(Exception):
    """The question before is to be asked again."""


class KeptAnswers:
    """An `Ask` that gives kept answers again as long as the same questions are asked.

    From the first other question on it asks, and what was kept beyond it is forgotten. The answer
    `BACK` raises `GoBackError`; the draft is then begun anew, after `back`.
    """

    def __init__(self, ask: Ask, file: Path) -> None:
        self.ask, self.file = ask, file
        self.left: list[tuple[str, str]] = _kept(file)
        self.found = len(self.left)
        self.given: list[tuple[str, str]] = []

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str:
        asked = question
        # A question that is asked again begins with what was wrong: the answer to it did not fit.
        if self.given and question.endswith(self.given[-1][0]) and question != self.given[-1][0]:
            asked = self.given.pop()[0]
        if self.left and self.left[0][0] == question:
            answer = self.left.pop(0)[1]
        else:
            self.left = []
            answer = self.ask(question, allowed=allowed, default=default)
            if answer.strip() == BACK:
                raise GoBackError
        self.given.append((asked, answer))
        if not self.left:
            write_whole(self.file, json.dumps(self.given, ensure_ascii=False, indent=1))
        return answer

    def back(self) -> None:
        """Give all answers again but the last one."""
        self.left, self.given = self.given[:-1], []

    def forget(self) -> None:
        """Remove the file: the draft is written."""
        self.file.unlink(missing_ok=True)


def with_back(kept: KeptAnswers, make: Callable[[], _T]) -> _T:
    """What `make` makes of answers, begun anew whenever one goes back."""
    while True:
        try:
            return make()
        except GoBackError:
            kept.back()


def _kept(file: Path) -> list[tuple[str, str]]:
    """The answers in a file; none where there is no such file, or another."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        pairs = [(question, answer) for question, answer in found]
    except (OSError, ValueError, TypeError):
        return []
    return pairs if all(isinstance(text, str) for pair in pairs for text in pair) else []
