"""What the files of the command line share: options that many commands have, and how a result is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from synthdp.errors import printable

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Out = Annotated[Path | None, typer.Option("--out", help="Output folder [default: releases/DATASET].")]


def show(data: dict[str, Any], *, as_json: bool, text: Callable[[], str]) -> None:
    """Print a result: JSON, or the text."""
    typer.echo(json.dumps(data, indent=1, default=str) if as_json else printable(text()))
