"""The command `desk`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from synthdp.cli.options import Json, SpecArgument, show


def desk(
    spec: SpecArgument,
    port: Annotated[
        int | None, typer.Option(help="Port on loopback [default: a free one].", min=1, max=65535)
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open the page in a browser, where this is a terminal.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Write a spec on a local page, beside what it would protect, cost and answer: for one user of
    this machine, until Ctrl-C or an hour without use. Reads no row, spends nothing.
    """
    from synthdp.desk.serve import opened

    with opened(spec, port=port) as made:
        way_in = made.way_in.as_uri()
        lines = [way_in, "(opens the page, once; Ctrl-C ends it)"]
        show({"open": way_in}, as_json=as_json, text=lambda: "\n".join(lines))
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            typer.launch(way_in)  # the file has the token, and no other account may read it
        made.run()
