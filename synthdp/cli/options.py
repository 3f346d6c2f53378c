"""What the commands share: common options, and how a result is printed."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from typer.core import TyperGroup

from synthdp.cli.help import ranks
from synthdp.errors import OutputError, StoppedError, TerminatedError, budget_note, printable

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text, of an error too.")
]
SpecArgument = Annotated[Path, typer.Argument(help="The release's spec (YAML).")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Output folder [default: releases/DATASET].")
]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as a Ctrl-C does."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated`, unless the process has something else in mind for it."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if ours and signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


class Commands(TyperGroup):
    """The group of commands; it turns an interruption into an error of synthdp.

    Typer would drop the note that the run put on the interruption about its budget.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of their panels."""
        return sorted(super().list_commands(ctx), key=lambda name: ranks().get(name, 999))

    def invoke(self, ctx: Any) -> Any:
        """As Typer does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            again = (
                "the same command goes on with the models that it has trained"
                if ctx.invoked_subcommand == "audit"
                else None
            )
            error = (
                TerminatedError("ended by SIGTERM", hint=again)
                if isinstance(stop, Terminated)
                else StoppedError("interrupted", hint=again)
            )
            if (note := budget_note(stop)) is not None:
                error.add_note(note)
            raise error from None


@dataclass
class _Stdout:
    """Whether stdout already has the JSON of this command.

    An error that follows the facts then adds no second object.
    """

    has_json: bool = False


_stdout = _Stdout()


def show(data: dict[str, Any], *, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result: JSON, or the text."""
    if as_json:
        _stdout.has_json = True
        typer.echo(json.dumps(data, indent=1, default=str))
    else:
        say(text())


class _Verdicts(RegexHighlighter):
    """Colours of what is good, bad or to be heeded, where our own texts say it."""

    highlights: ClassVar[list[str]] = [
        r"(?m)^(?P<yellow>warning|note)\b",
        r"(?m)^(?P<green>ok)\b",
        r"(?m)^(?P<red>WRONG|synthdp:)",
        r"(?m)^gate .*: (?:(?P<green>passed)|(?P<red>FAILED))$",
        r"  (?:(?P<green>better)|(?P<red>worse))(?=  |$)",
        r"(?m)^bundle  (?P<yellow>withheld)$",
    ]


def say(text: str, *, err: bool = False) -> None:
    """Print `text`: on a terminal in its width and colours, elsewhere as it is."""
    console, shown = Console(stderr=err), printable(text)
    if console.is_terminal:
        coloured = Text(shown)
        _Verdicts().highlight(coloured)
        console.print(coloured)
    else:
        typer.echo(shown, err=err)


def begin() -> None:
    """A command begins: nothing is on stdout yet."""
    _stdout.has_json = False


def show_error(error: dict[str, Any]) -> None:
    """Print the error on stdout, if `--json` was given and no facts are there."""
    # After a usage error no command has parsed its options: they are read here.
    words = list(takewhile(lambda word: word != "--", sys.argv[1:]))
    if "--json" in words and not _stdout.has_json:
        show(error, as_json=True, text=str)


def write_file(path: Path, text: str, *, option: str) -> None:
    """Write what `option` of the command line asked for.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}", hint=f"choose another file with {option}"
        ) from None
