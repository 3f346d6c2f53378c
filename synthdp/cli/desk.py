"""The command `desk`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from synthdp.cli.options import Browser, Json, LedgerOfRun, Port, show


def desk(
    what: Annotated[
        Path, typer.Argument(metavar="SPEC|OUT", help="A spec, or a release's output folder.")
    ],
    port: Port = None,
    browser: Browser = True,
    ledger: LedgerOfRun = None,
    as_json: Json = False,
) -> None:
    """Write a spec on a local page, beside what it would protect, cost and answer; or decide on a
    finished release. For one user of this machine, until Ctrl-C or an hour without use. Reads no
    row, spends nothing.
    """
    from synthdp.desk.serve import opened

    with opened(what, port=port, ledger=ledger) as made:
        way_in = made.way_in.as_uri()
        text = f"{way_in}\n(opens the page, once; Ctrl-C ends it)"
        show({"open": way_in}, as_json=as_json, text=lambda: text)
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            typer.launch(way_in)  # the file has the token, and no other account may read it
        made.run()
