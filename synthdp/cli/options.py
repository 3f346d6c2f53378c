"""What the commands share: options, help, how a result is printed, and progress on stderr."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typer.core import TyperGroup

from synthdp.errors import StoppedError, TerminatedError, budget_note, disk_errors, printable
from synthdp.progress import Advance, shown_on, stage, unheard

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text, of an error too.")
]
SpecArgument = Annotated[Path, typer.Argument(help="The release's spec (YAML).")]
BundleArgument = Annotated[Path, typer.Argument(help="A bundle folder.")]
LedgerOfRun = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Ledger file or SQLAlchemy URL of the bundle's run [default: that of its release's"
        " spec, or .synthdp/ledger.db].",
    ),
]
Port = Annotated[
    int | None, typer.Option(help="Port on loopback [default: a free one].", min=1, max=65535)
]
Browser = Annotated[
    bool, typer.Option(help="Open the page in a browser, where this is a terminal.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Output folder [default: releases/DATASET].")
]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as a Ctrl-C does."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated`, unless the process has something else in mind for it."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if ours:
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if ours and signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Commands(TyperGroup):
    """The group of commands; it turns an interruption into an error of synthdp.

    Typer would drop the note that the run put on the interruption about its budget.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        ranks = [name for commands in COMMANDS.values() for name in commands]
        return sorted(super().list_commands(ctx), key=ranks.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            again = "the same command goes on with the models that it has trained"
            hint = again if ctx.invoked_subcommand in ("audit", "study") else None
            error = StoppedError("interrupted", hint=hint)
            if isinstance(stop, Terminated):
                error = TerminatedError("ended by SIGTERM", hint=hint)
            if (note := budget_note(stop)) is not None:
                error.add_note(note)
            raise error from None


_facts_shown = threading.Event()  # as JSON: an error that follows adds no second object


def show(
    result: Any,
    *,
    as_json: bool,
    text: Callable[[], str] | None = None,
    indent: int | None = 1,
    **more: object,
) -> None:
    """Print a result: `result.to_json()`, or a mapping, with `more`; else its text."""
    if as_json:
        _facts_shown.set()
        facts = result if isinstance(result, dict) else result.to_json()
        typer.echo(json.dumps(facts | more, indent=indent, default=str))
    else:
        say(str(result) if text is None else text())


class _Verdicts(RegexHighlighter):
    """Colours of what is good, bad or to be heeded, where our own texts say it."""

    highlights: ClassVar[list[str]] = [
        r"(?m)^(?P<yellow>warning|note)\b",
        r"(?m)^(?P<green>ok)\b",
        r"(?m)^(?P<red>WRONG|synthdp:)",
        r"(?m)^gate .*: (?:(?P<green>passed)|(?P<yellow>passed; .*)|(?P<red>FAILED.*))$",
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
    _facts_shown.clear()


def show_error(error: dict[str, Any]) -> None:
    """Print the error on stdout, if `--json` was given and no facts are there."""
    # After a usage error no command has parsed its options: they are read here.
    words = list(takewhile(lambda word: word != "--", sys.argv[1:]))
    if "--json" in words and not _facts_shown.is_set():
        show(error, as_json=True, text=str)


def write_file(path: Path, text: str, *, option: str) -> None:
    """Write what `option` of the command line asked for.

    Raises:
        OutputError: the file cannot be written.
    """
    with disk_errors(f"cannot write {path}", hint=f"choose another file with {option}"):
        path.write_text(text, encoding="utf-8")


# --- help ---


def _examples() -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]]]:
    """Read the examples at the end of each command's help: by panel and command, and of `graph`."""
    panels, graph = dict[str, dict[str, list[str]]](), dict[str, list[str]]()
    text = (Path(__file__).parent / "examples.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith(" "):
            panel = panels.setdefault(line, {})
            continue
        example = line.strip()
        command, part = (example.split() + [""])[1:3]
        if command == "graph":
            panel.setdefault(command, [example])
            graph.setdefault(part, []).append(example)
        else:
            panel.setdefault(command, []).append(example)
    return panels, graph


COMMANDS, GRAPH_COMMANDS = _examples()  # the panels are the headings of docs/commands.md


def shown(command: str) -> dict[str, Any]:
    """What Typer is told of a command."""
    panel = next(panel for panel, commands in COMMANDS.items() if command in commands)
    return {"rich_help_panel": panel, "epilog": _epilog(COMMANDS[panel][command])}


def shown_graph(command: str) -> dict[str, Any]:
    """What Typer is told of a command of `synthdp graph`."""
    return {"epilog": _epilog(GRAPH_COMMANDS[command])}


def _epilog(examples: Sequence[str]) -> str:
    head = "Examples:" if len(examples) > 1 else "Example:"
    return "\n\n".join([head, *(f"`{example}`" for example in examples)])


PLAIN_SECONDS = 8.0  # of silence before a plain line


@contextmanager
def working(title: str | None = None) -> Iterator[Advance]:
    """Show on stderr what is done inside, and how far it is; `title` makes it one stage."""
    named = stage(title) if title else nullcontext(unheard)
    with ProgressDisplay() as display, shown_on(display), named as advance:
        yield advance


class ProgressDisplay:
    """Running stages as bars on a terminal, else as plain lines; finished ones as plain lines.

    A command that says nothing for ten seconds looks as if it hung: between its stages, too, a line
    says that it works.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<20}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            speed_estimate_period=180.0,  # on a busy machine shorter ones jump
            disable=not self._console.is_terminal,
        )
        self._running: dict[str, tuple[Any, _Plain]] = {}
        self._between = _Plain("working")
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="progress", daemon=True)
        self._telling = threading.Lock()  # no line of a stage comes after its last one

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._teller.join()  # no line comes after what the command prints at its end
        self._progress.stop()

    def start(self, title: str) -> Advance:
        task, plain = self._progress.add_task(title, total=None), _Plain(title)
        self._running[title] = task, plain

        def advance(done: int, total: int, what: str = "", /) -> None:
            plain.at, plain.heard = (done, total, what), time.monotonic()
            self._progress.update(
                task, completed=done, total=total, description=f"{title}: {what}" if what else title
            )

        return advance

    def finish(self, title: str, seconds: float) -> None:
        with self._telling:
            task, _ = self._running.pop(title)
            self._progress.remove_task(task)  # what others print cannot tear a single live line
            self._between.told = time.monotonic()
            self._console.print(f"{title}: {seconds:.1f} s", markup=False)

    def warn(self, text: str) -> None:
        self.tell(f"warning: {text}")

    def tell(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _tell(self) -> None:
        """Print a line for every stage that has been silent for long, or for the command where no
        stage runs, until the end. Bars move by themselves.
        """
        while not self._ended.wait(PLAIN_SECONDS / 16):
            with self._telling:
                bars = [plain for _, plain in list(self._running.values())]
                plain = bars if not self._console.is_terminal else []
                for one in plain if bars else [self._between]:
                    if line := one.due():
                        self.tell(line)


class _Plain:
    """How far one stage is, in words; when it was `heard` of, and anything was `told` of it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = self.told = self.heard = time.monotonic()
        self.at = 0, 0, ""

    def due(self) -> str | None:
        """The next line, if it is time for one."""
        now = time.monotonic()
        if now - self.told < PLAIN_SECONDS:
            return None
        self.told = now
        done, total, what = self.at
        spent = now - self.started
        parts = [f"{done:,} of {total:,}" if total else "", what, f"{spent:.0f} s so far"]
        # As if the other steps took as long as those that have ended; of one that takes longer,
        # nothing is known.
        left = (self.heard - self.started) / done * total - spent if done else 0.0
        if left > 0:
            parts.append(f"about {left:.0f} s left")
        return f"{self.title}: {', '.join(filter(None, parts))}"
