"""`synthdp inspect`: what does not fit a spec, for the steward's eyes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthdp.cli.options import Json, SpecArgument, say, show

if TYPE_CHECKING:
    from synthdp.privacy.inspection import Misfit

KINDS = {
    "type": "cannot be read as the column's type",
    "fraction": "no whole number",
    "type or fraction": "cannot be read, or no whole number",
    "bound": "below lower, or above upper",
    "category": "none of the categories or codes",
    "missing": "missing, and the column may not be",
}


def inspect(
    spec: SpecArgument,
    examples: Annotated[
        bool, typer.Option("--examples", help="Show the five commonest values of each, too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write it to this file too, for its owner alone (mode 0600)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the values that do not fit a spec, by column and kind, for your eyes alone: it is
    outside the guarantee, costs no budget and must not be published.
    """
    from dataclasses import asdict

    from synthdp.errors import OutputError
    from synthdp.files import write_private
    from synthdp.release.misfits import WARNING, misfits_for_steward
    from synthdp.spec.load.loader import load_spec

    found = misfits_for_steward(load_spec(spec, lists=True), spec, examples=examples)
    told = f"{WARNING}\n{misfits_text(found)}"
    if out is not None:
        try:
            write_private(out, told + "\n")
        except OSError as error:
            message, hint = f"cannot write {out}: {error.strerror}", "choose another with --out"
            raise OutputError(message, hint=hint) from None
    facts = {"warning": WARNING, "misfits": [asdict(misfit) for misfit in found]}
    show(facts, as_json=as_json, text=lambda: told)
    if out is not None:
        say(f"wrote {out}, for its owner alone: {WARNING}", err=True)


def misfits_text(found: Sequence[Misfit]) -> str:
    """A line for each column and kind."""
    from synthdp.cli.text import render, table

    if not found:
        return "every value fits the spec"
    rows = [
        (
            misfit.column,
            misfit.kind,
            f"{misfit.rows:,}",
            KINDS[misfit.kind],
            ", ".join(f"{value} ({rows:,})" for value, rows in misfit.examples),
        )
        for misfit in found
    ]
    head = ["column", "kind", "rows", "what is wrong", "commonest values (rows)"]
    if not any(misfit.examples for misfit in found):
        head, rows = head[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    return render(table(head, rows, numbers=[2]))
