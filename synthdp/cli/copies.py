"""The command that writes copies of a bundle's columns, whose pooled analyses are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from synthdp.cli.options import Json, show, write_file
from synthdp.errors import OutputError
from synthdp.spec.wording import many

STATEMENT = "spanned.json"


def copies(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    out: Annotated[Path, typer.Option("--out", help="New folder for the copies.")],
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns of your analysis: a,b,c [default: all]."),
    ] = None,
    m: Annotated[int, typer.Option("--m", help="Number of copies.", min=2, max=1000)] = 20,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of each [default: five times those counted].", min=1),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For repeatable copies; costs no privacy.", min=0)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write copies of some columns whose pooled analyses have right 95% intervals for what a
    bundle's noisy tables span; spanned.json says for what.
    """
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.inference.copies import copies_of
    from synthdp.progress import Reporter
    from synthdp.sample.files import write_blocks
    from synthdp.spec.expressions.names import listed_names
    from synthdp.spec.load.loader import load_spec

    check_folder(out)
    names = (
        None if columns is None else listed_names(columns, load_spec(bundle / "spec.yaml").columns)
    )
    with ProgressDisplay() as display, Reporter(display).stage("fit"):
        found = copies_of(bundle, m, columns=names, rows=rows, seed=seed)
    make_folder(out)
    with ProgressDisplay() as display, Reporter(display).stage("copies") as progress:
        for i, table in enumerate(found, 1):
            write_blocks(iter([table]), found.columns, out / f"copy-{i:0{len(str(m))}d}.csv")
            progress(i, m)
    write_file(out / STATEMENT, json.dumps(found.spanned, indent=1) + "\n", option="--out")
    facts = {"folder": str(out), "seed": seed, **found.spanned}
    show(facts, as_json=as_json, text=lambda: copies_text(out, found.spanned))


def check_folder(out: Path) -> None:
    """Check that copies can go to a folder of their own.

    Raises:
        OutputError: it holds something, or is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(
            f"{out}: is a file, or a folder that holds something",
            hint="name a new folder with --out: copies of two runs must not be pooled",
        )


def make_folder(out: Path) -> None:
    """Make the folder, and those that it lies in.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot make {out}: {error.strerror}", hint="choose another folder with --out"
        ) from None


def copies_text(out: Path, spanned: dict[str, Any]) -> str:
    """What was written, and what it is right for."""
    lines = [
        f"wrote {many(spanned['copies'], 'copy', 'copies')} of {many(spanned['rows'], 'row')}, and"
        f" {STATEMENT}, to {out}"
    ]
    for told in spanned["sets"]:
        merged = "; ".join(
            f"{name} {' + '.join(levels)}"
            for name, groups in told["together"].items()
            for levels in groups
        )
        some = f", with levels together: {merged}" if merged else ""
        lines.append(f"  {', '.join(told['columns'])}: spanned{some}")
    whys = {"no table": "no table has it", "too rare": "its cells are too rare for the noise"}
    lines += [
        f"  {', '.join(one['columns'])}: NOT spanned, {whys[one['why']]}"
        for one in spanned["not_spanned"]
    ]
    return "\n".join([*lines, *(f"- {said}" for said in spanned["about"])])
