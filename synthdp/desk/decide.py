"""The page on which somebody decides on a finished release, of what `synthdp.api.reviews` has."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from synthdp.api import reviews
from synthdp.desk.draft import Json, lies_in
from synthdp.desk.page import field, grid
from synthdp.errors import BoundaryError, OutputError, withheld

PROGRAMS = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
CONFIDENTIAL = "CONFIDENTIAL: it has figures of real rows, without noise. For who decides alone."
OUTSIDE = "To choose the best-looking of several releases is outside the guarantee."


class Case:
    """A release in an output folder, and what was said on its page, which no file has yet.

    Raises:
        OutputError: it is no finished release.
    """

    def __init__(self, out: Path, ledger: str | None) -> None:
        reviews.finished(out)
        self.out, self.ledger, self.report = out.absolute(), ledger, out.absolute() / reviews.REPORT
        self.now: reviews.Review | None = None
        self.said, self.problem, self.counting = dict[str, str](), "", False

    def begin(self) -> None:
        """Verify the bundle, in a process that opens no file named as that of its rows."""
        rows, own = reviews.rows_of(self.out), [os.path.realpath(self.out), *PROGRAMS]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open" and isinstance(args[0], str | bytes):
                path = os.path.realpath(os.fsdecode(args[0]))
                named = any(lies_in(part, rows) for part in path.split(os.sep))
                if named and not lies_in(path, own):
                    raise BoundaryError("the desk opens no rows")

        sys.addaudithook(hook)
        self._start(tuple)

    def _start(self, first: Callable[[], tuple[str, ...]]) -> None:
        """Do something, show its warnings, and read the release again, beside what else is done."""
        self.problem, self.counting = "", True

        def work() -> None:
            try:
                self.problem = "\n".join(first())
                self.now = reviews.review(self.out, self.ledger)
            except Exception as error:  # told on the page
                self.problem = str(withheld(error))
            self.counting = False

        threading.Thread(target=work, name="review").start()

    def act(self, asked: Json) -> None:
        """Keep what is said on the page, or begin to write the decision, or to read again.

        Raises:
            OutputError: there is no such field or button, or the page saw another state.
        """
        if asked["do"] == "set":
            self.said |= {str(loc[0]): str(value) for loc, value in asked["values"]}
        elif asked["do"] == "read" and not self.counting:
            self._start(tuple)
        elif asked["do"] == "decide" and self.now and not self.counting:
            if asked["seen"] != self.now.seen:
                raise OutputError("this is not what was shown; nothing was recorded")
            said = (self.now, {**self.said}, self.ledger)
            self._start(lambda: reviews.record(self.out, *said).warnings)
        else:
            raise OutputError("the desk has no such button, or it is shut; nothing was recorded")

    def shown(self) -> Json:
        """The whole page as it stands."""
        now, status = self.now, ["verifying the bundle ..."] * self.counting
        if now is not None:
            status += [now.decided, *(f"{what}: {text}" for what, text in now.facts.items())]
        return {
            "seen": now.seen if now else "",
            "name": self.out.name,
            "banner": CONFIDENTIAL,
            "status": [*status, "no row is read, nothing is spent"],
            "counting": int(self.counting),
            "said": self.problem,
            "tools": [{"label": "read it again", "do": "read"}],
            "sections": [{"id": title.split()[0].lower(), "title": title, "parts": parts}
                         for title, parts in (self._sections(now) if now else ())],
        }  # fmt: skip

    def _sections(self, now: reviews.Review) -> Iterator[tuple[str, list[Json]]]:
        told = "What the plan expected before any row was read, and what came"
        both = ((told, now.expected), ("Gates", now.gates))
        tables = [grid(caption, head, rows) for caption, (head, *rows) in both if rows]
        yield "Expected beside got", [{"kind": "text", "text": OUTSIDE}, *tables]
        lines = {line.what: (line.state, f"{line.what}: {line.found}") for line in now.red_lines}
        notes = [{"tone": state, "text": text} for state, text in lines.values() if state != "ask"]
        fields = [self._asked(key, text, "radio", reviews.TOLD)
                  for key, (state, text) in lines.items() if state == "ask"]  # fmt: skip
        yield "Red lines", [{"kind": "notes", "of": notes}, {"kind": "fields", "of": fields}]
        fields = [self._asked(key, label) for key, label in reviews.FORM.items()]
        fields.append(self._asked("answer", "The answer", "radio", reviews.ANSWERS))
        missed = reviews.still_open(now, self.said)
        told = f"Still open: {'; '.join(missed)}." if missed else "It goes into the ledger."
        write = {"kind": "button", "label": "write the decision", "do": "decide"}
        yield "Decide", [{"kind": "fields", "of": fields}, {"kind": "text", "text": told},
                         write | {"shut": bool(missed)}]  # fmt: skip
        if self.report.is_file():
            yield "Report", [{"kind": "frame", "label": "Internal report"}]

    def _asked(self, key: str, label: str, how: str = "text", options: Any = None) -> Json:
        return field(self.said, (key,), label, how, [*(options or {}).items()])
