"""`synthdp export`: a bundle's table into a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthdp.cli.options import Json, show


def export(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="SYNTHDP_EXPORT_TO",
            help="SQLAlchemy URL of the database; one with a password belongs into the variable.",
        ),
    ],
    table: Annotated[str, typer.Option("--table", help="Table to make: NAME or SCHEMA.NAME.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a table that an earlier export wrote.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The publisher's public key (PEM): accept only its bundles."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a bundle, and write its synthetic rows as a typed table of a database."""
    from dataclasses import asdict

    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.sample.warehouse import write_table

    with ProgressDisplay() as display, Reporter(display).stage("export") as progress:
        done = write_table(bundle, to, table, replace=replace, key=key, progress=progress)
    verb = "replaced" if done.replaced else "made"
    text = f"{done.database}: {verb} the table {done.table} with {done.rows:,} verified rows"
    show(asdict(done), as_json=as_json, text=lambda: text)
