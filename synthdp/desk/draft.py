"""The text of a spec on the desk: read, changed, undone; and its forecast, counted meanwhile.

The file is the only truth. Nothing is written over what another program wrote meanwhile, and
nothing in this process opens the rows: `shut` sees to that.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.api import drafts
from synthdp.api.drafts import Checked, check
from synthdp.errors import BoundaryError, OutputError, SynthdpError, withheld

CHANGED = "the file was changed by another program; nothing was written"
Forecast = tuple[dict[str, Any], str]
Step = float | str


@dataclass(frozen=True)
class DeskSettings:
    """What a desk keeps to.

    Attributes:
        epsilons: forecast besides a spec's own.
        past: texts that "undo" steps back to.
        claims: of a graph that are listed; all are counted.
        body: most bytes that a page sends at once.
        idle: seconds without a request after which the desk ends.
    """

    epsilons: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
    past: int = 50
    claims: int = 20
    body: int = 1 << 20
    idle: float = 3600.0


SETTINGS = DeskSettings()


class Text:
    """A text of the file at `path`: its digest (`seen`), what it says and shows, where rows lie."""

    def __init__(self, path: Path, text: str) -> None:
        self.text, self.seen = text, hashlib.sha256(text.encode()).hexdigest()
        self.content, self.found = drafts.said(text), check(text, path)
        self.apart = drafts.apart(self.content, path)


class Draft:
    """A spec's file while the desk is open. One change at a time.

    Attributes:
        now: the text as it was last read or written.
        start: the text when the desk was opened.
        past: texts before this one, the last one last.
        half_width: what an estimand's interval should have, as its user wrote it.

    Raises:
        SpecError: the file cannot be read.
        OutputError: it is of linked tables.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.past, self.half_width = path, list[str](), ""
        self._lock, self._asked = threading.Lock(), threading.Event()
        self._told: dict[tuple[str, Step], Forecast] = {}
        self._counted = "", list[Any]()
        self.read()
        dataset = self.now.content.get("dataset")
        if isinstance(dataset, dict) and "tables" in dataset:
            hint = "write it with an editor beside `synthdp watch`"
            raise OutputError("the desk is for specs of one table, and this has several", hint=hint)
        self.start = self.now.text

    def read(self) -> None:
        """Take the file as it is now."""
        self.now = Text(self.path, drafts.spec_text(self.path))
        self._asked.set()

    def stale(self) -> bool:
        """Whether the file is not what was last read or written here."""
        with suppress(SynthdpError):
            return drafts.spec_text(self.path) != self.now.text
        return True

    def change(self, seen: str, edit: Callable[[str], str], *, undo: bool = False) -> None:
        """Write what `edit` makes of the text that a page has `seen`.

        Raises:
            OutputError: the file, or the text here, is not what it was; nothing is written.
            SpecError: this edit cannot be made; nothing is written.
        """
        with self._lock:
            if self.stale() or seen != self.now.seen:
                raise OutputError(CHANGED, hint="read it again")
            made, before = edit(self.now.text), self.now.text
            if made == before:
                return
            drafts.keep(made, self.path)
            self.past = self.past[:-1] if undo else [*self.past[1 - SETTINGS.past :], before]
            self.now = Text(self.path, made)
            self._asked.set()

    def want(self, half_width: str) -> None:
        """Ask what reaches a half-width, or no longer where that is empty.

        Raises:
            OutputError: it is no number above 0.
        """
        with suppress(ValueError):
            if not half_width or 0 < float(half_width) < math.inf:
                self.half_width = half_width
                self._asked.set()
                return
        raise OutputError("a half-width is a number above 0, such as 1.5")

    def steps(self) -> tuple[Step, ...]:
        """What is forecast: 0 for the text as it is, the half-width that is asked for, and other
        epsilons, the nearest first.
        """
        if self.now.found.spec is None:
            return ()
        own = self.now.found.spec.content.privacy.epsilon
        others = sorted({*SETTINGS.epsilons} - {own}, key=lambda e: max(e / own, own / e))
        return (0.0, *filter(None, [self.half_width]), *others)

    def told(self, step: Step = 0.0) -> Forecast | None:
        """What a step gives, as `drafts.forecast` has it; None where that is not counted yet."""
        return self._told.get((self.now.seen, step))

    def counted(self) -> list[Any]:
        """What noise does to the columns of the text, as far as that is known."""
        seen, columns = self._counted
        return columns if seen == self.now.seen else []

    def begin(self) -> None:
        """From here on forecast whatever the text is, in a process that is `shut`."""
        shut(self)
        threading.Thread(target=self._forecast, name="forecast").start()

    def _forecast(self) -> None:
        """Forecast the text as it stands, until the program ends; what is stale is dropped."""
        alive = threading.main_thread().is_alive  # a thread that is cut off in a library aborts all
        while self._asked.wait(0.5) or alive():
            self._asked.clear()
            now = self.now
            self._told = {key: told for key, told in self._told.items() if key[0] == now.seen}
            for step in self.steps():
                if self._asked.is_set() or not alive():
                    break
                if (now.seen, step) not in self._told:
                    if step == 0:
                        self._counted = now.seen, []
                    self._told[now.seen, step] = _told(now.found, step, self._counted[1])


def _told(found: Checked, step: Step, columns: list[Any]) -> Forecast:
    """What a step of a text gives; `columns` fill meanwhile where it is the first."""
    try:
        if isinstance(step, str):
            return {}, "\n".join(drafts.reach(found, float(step)))
        if step:
            return {"option": drafts.at_epsilon(found, step)}, ""
        facts, told = drafts.forecast(found, counted=columns.append)
        return facts | {"claims": drafts.claims(found)}, told
    except Exception as error:  # told on the page, like what a text has wrong
        return {"refused": withheld(error).to_json()}, str(withheld(error))


# --- what this process may not do ---

READERS = ("pyarrow.csv.", "pyarrow.dataset.", "pyarrow.parquet.", "mlflow.", "dask.",
           "synthdp.tracking.", "synthdp.privacy.readers.", "synthdp.privacy.engines.")  # fmt: skip
OUTWARD = {"socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}
CONFIDENTIAL = {"internal", "internal.json", "internal.html", "mlflow.db", "mlartifacts"}


def shut(draft: Draft) -> None:
    """From here on this process opens no file of rows or confidential one by its path, no database
    but the ledger and no connection, starts nothing, and imports nothing that reads tables. There
    is no way back.
    """

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in OUTWARD:
            raise BoundaryError("the desk connects to nothing, and starts nothing")
        if event == "import" and f"{args[0]}.".startswith(READERS):
            raise BoundaryError(f"the desk reads no tables, and so does not import {args[0]}")
        if event == "sqlite3.connect" and not _same(args[0], draft.now.apart.ledger):
            raise BoundaryError("the desk opens no database but the ledger")
        if event == "open" and isinstance(args[0], str | bytes) and _of_rows(args[0], draft):
            raise BoundaryError("the desk opens no rows, and no figures of rows")

    sys.addaudithook(hook)


def _same(given: object, file: str | None) -> bool:
    asked = str(given).removeprefix("file:").partition("?")[0]
    return file is not None and os.path.realpath(asked) == os.path.realpath(file)


def _of_rows(given: str | bytes, draft: Draft) -> bool:
    """Whether a path is of rows, or of what was counted on them without noise."""
    path = os.path.realpath(os.fsdecode(given))
    if CONFIDENTIAL & {*path.split(os.sep)} and not path.endswith((".py", ".pyc")):
        return True
    return lies_in(path, map(os.path.realpath, draft.now.apart.rows))


def lies_in(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of some places, in one of them, or fits one as a pattern."""
    return any(f"{path}/".startswith(f"{p}/") or fnmatch.fnmatch(path, p) for p in places)
