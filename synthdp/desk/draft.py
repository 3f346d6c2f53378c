"""The text of a spec on the desk: read, changed, undone; and its forecast, counted meanwhile.

The file is the only truth. Nothing is written over what another program wrote meanwhile, and
nothing in this process opens the rows: `shut` sees to that.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from synthdp.api import drafts
from synthdp.api.drafts import check
from synthdp.errors import BoundaryError, OutputError, SynthdpError, withheld

CHANGED = "the file was changed by another program; nothing was written"
Json = dict[str, Any]


class Text:
    """A text of the file at `path`: its digest (`seen`), what it says and shows, where rows lie. As
    that is counted, what noise does to its `columns`, and what each step gives (`told`): `plan`,
    `claims` and `said` at 0, for the text as it is; an `option` at another epsilon.
    """

    EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)  # forecast besides a spec's own

    def __init__(self, path: Path, text: str) -> None:
        self.text, self.seen = text, hashlib.sha256(text.encode()).hexdigest()
        self.content, self.found = drafts.said(text), check(text, path)
        self.apart = drafts.apart(self.content, path)
        self.columns, self.told, self.steps = list[Any](), dict[float, Json](), list[float]()
        if self.found.spec is not None:
            own = self.found.spec.content.privacy.epsilon
            others = {*self.EPSILONS} - {own}  # the nearest first
            self.steps = [0.0, *sorted(others, key=lambda e: max(e / own, own / e))]

    def count(self, step: float) -> None:
        """Find what a step gives; an error is told on the page, like what a text has wrong."""
        try:
            if step:
                self.told[step] = {"option": drafts.at_epsilon(self.found, step)}
            else:
                facts, told = drafts.forecast(self.found, counted=self.columns.append)
                self.told[step] = facts | {"said": told, "claims": drafts.claims(self.found)}
        except Exception as error:
            self.told[step] = {"said": str(withheld(error))}


class Draft:
    """A spec's file while the desk is open. One change at a time.

    `now` is the text as it was last read or written, `start` that when the desk was opened, `past`
    those in between, the last one last.

    Raises:
        SpecError: the file cannot be read.
        OutputError: it is of linked tables.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.past = path, list[str]()
        self._lock, self._asked = threading.Lock(), threading.Event()
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
            self.past = self.past[:-1] if undo else [*self.past[-49:], before]
            self.now = Text(self.path, made)
            self._asked.set()

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
            for step in now.steps:
                if self._asked.is_set() or not alive():
                    break
                if step not in now.told:
                    now.count(step)


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
        if event == "sqlite3.connect":
            asked = os.path.realpath(str(args[0]).removeprefix("file:").partition("?")[0])
            if draft.now.apart.ledger is None or asked != os.path.realpath(draft.now.apart.ledger):
                raise BoundaryError("the desk opens no database but the ledger")
        if event == "open" and isinstance(args[0], str | bytes) and _of_rows(args[0], draft):
            raise BoundaryError("the desk opens no rows, and no figures of rows")

    sys.addaudithook(hook)


def _of_rows(given: str | bytes, draft: Draft) -> bool:
    """Whether a path is of rows, or of what was counted on them without noise."""
    path = os.path.realpath(os.fsdecode(given))
    if CONFIDENTIAL & {*path.split(os.sep)} and not path.endswith((".py", ".pyc")):
        return True
    return lies_in(path, map(os.path.realpath, draft.now.apart.rows))


def lies_in(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of some places, in one of them, or fits one as a pattern."""
    return any(f"{path}/".startswith(f"{p}/") or fnmatch.fnmatch(path, p) for p in places)
