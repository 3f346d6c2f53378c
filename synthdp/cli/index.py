"""`synthdp index`: a page over a folder of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthdp.cli.options import Json, show, write_file

DEFAULT_LEDGER = ".synthdp/ledger.db"


def index(
    folder: Annotated[Path, typer.Argument(help="A folder with releases or bundles below it.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write [default: FOLDER/index.html].")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify each bundle, which reads all its rows.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", help="The publisher's public key (PEM), for --verify: accept only its bundles."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger", help=f"Ledger file or SQLAlchemy URL [default: {DEFAULT_LEDGER}, if any]."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a static page of every bundle below a folder: epsilon, cap, gates, signature,
    verification, reports and differences; reads no original rows.
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from synthdp.bundle.signing.keys import load_public_key
    from synthdp.cli.budget import open_book
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.report.index.page import render_index
    from synthdp.verify.releases import index_of

    page = _target(folder, out)
    verify = verify or key is not None
    if ledger is None and Path(DEFAULT_LEDGER).exists():
        ledger = DEFAULT_LEDGER
    with ProgressDisplay() as display, Reporter(display).stage("index") as progress:
        content = index_of(
            folder,
            page=page,
            now=datetime.now(UTC),
            verify=verify,
            key=None if key is None else load_public_key(key),
            ledger=() if ledger is None else open_book(ledger).entries(),
            ledger_name=_ledger_name(ledger),
            progress=progress,
        )
    write_file(page, render_index(content), option="--out")
    bundles = sum(len(dataset.bundles) for dataset in content.datasets)
    lines = [
        f"{page}: {bundles} bundles{', verified' if verify else ', not verified'}",
        *(f"damaged: {place}: {reasons[0]}" for place, reasons in content.damaged),
    ]
    facts = {"index": str(page)} | asdict(content)
    show(facts, as_json=as_json, text=lambda: "\n".join(lines))


def _ledger_name(ledger: str | None) -> str:
    """A ledger as a page may show it."""
    from synthdp.spec.addresses import shown_address, shown_path

    if ledger is None:
        return ""
    return shown_address(ledger) if "://" in ledger else shown_path(ledger)


def _target(folder: Path, out: Path | None) -> Path:
    """The file to write; another's page is not replaced.

    Raises:
        OutputError: there is no such folder, or the file holds something else.
    """
    from synthdp.errors import OutputError
    from synthdp.report.index.page import MARK

    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder", hint="give a folder with releases below it")
    page = out or folder / "index.html"
    if page.exists() and not (page.is_file() and MARK.encode() in page.read_bytes()):
        raise OutputError(
            f"{page} is no index of synthdp, so it is never replaced",
            hint="choose another file with --out",
        )
    return page
