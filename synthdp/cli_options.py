"""What the files of the command line share: options that many commands have, and how a result is printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from synthdp.errors import OutputError, printable

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text, of an error too.")]
Out = Annotated[Path | None, typer.Option("--out", help="Output folder [default: releases/DATASET].")]


@dataclass
class _Stdout:
    """Whether stdout has the JSON of this command: an error that comes after its facts adds no second object."""

    has_json: bool = False


_stdout = _Stdout()


def show(data: dict[str, Any], *, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result: JSON, or the text."""
    if as_json:
        _stdout.has_json = True
    typer.echo(json.dumps(data, indent=1, default=str) if as_json else printable(text()))


def begin() -> None:
    """A command begins: nothing is on stdout yet."""
    _stdout.has_json = False


def show_error(error: dict[str, Any]) -> None:
    """Where `--json` was given, and no facts are on stdout, the error there; under torchrun by the first process alone."""
    words = list(takewhile(lambda word: word != "--", sys.argv[1:]))  # of a usage error, no command was told its options
    if "--json" in words and not _stdout.has_json and os.environ.get("RANK", "0") == "0":
        show(error, as_json=True, text=str)


def write_file(path: Path, text: str, *, option: str) -> None:
    """Write what `option` of the command line asked for.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}", hint=f"choose another file with {option}") from None
