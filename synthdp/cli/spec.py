"""Commands on a spec before a release: `validate`, `schema`, `init`. None of them reads a row."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from synthdp.cli.options import Json, SpecArgument, say, show, write_file

if TYPE_CHECKING:
    from synthdp.spec.init.questions import Ask


def validate(spec: SpecArgument, as_json: Json = False) -> None:
    """Check a spec and list every mistake at once; reads no data."""
    from synthdp.release.plan_view import spec_warnings
    from synthdp.spec.load.loader import load_spec

    loaded = load_spec(spec, lists=True)
    warnings = spec_warnings(loaded)
    facts = {
        "valid": True,
        "dataset": loaded.dataset.id,
        "columns": len(loaded.columns),
        "epsilon": loaded.privacy.epsilon,
        "graph": loaded.graph.mode,
        "warnings": warnings,
    }
    valid = (
        f"{spec}: valid ({len(loaded.columns)} columns, epsilon {loaded.privacy.epsilon:g},"
        f" graph {loaded.graph.mode})"
    )
    told = [valid, *(f"warning: {warning}" for warning in warnings)]
    show(facts, as_json=as_json, text=lambda: "\n".join(told))


def schema(as_json: Json = False) -> None:
    """Print the spec's JSON schema, for editors; it is JSON either way."""
    from synthdp.spec.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


PRIVATE = "With --private"

Builtin = Annotated[
    str | None,
    typer.Option(
        "--builtin", help="Instead of a file: pain1000, pain5000 or eedi, ready to be released."
    ),
]
CodebookFile = Annotated[
    Path | None,
    typer.Option(
        "--codebook",
        help="A code book of the table: Table Schema (.json), DDI (.xml), REDCap dictionary (.csv),"
        " SPSS (.sav, .zsav, .por) or Stata (.dta); no row of it is read.",
    ),
]
Rows = Annotated[
    int | None,
    typer.Option("--rows", help="The number of rows, as a constant that may be published.", min=1),
]
Decimal = Annotated[
    Literal[".", ","] | None,
    typer.Option("--decimal", help="What stands before the decimals of numbers in a CSV file."),
]
PrivateFlag = Annotated[
    bool,
    typer.Option(
        "--private",
        rich_help_panel=PRIVATE,
        help="Find types, bounds and categories in the rows, under differential privacy; this"
        " spends a budget, and needs --cap.",
    ),
]
Epsilon = Annotated[
    float, typer.Option(rich_help_panel=PRIVATE, help="Epsilon to spend on it.", min=0.01, max=100)
]
Delta = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=PRIVATE,
        help="Delta to spend on it [default: a hundredth of 1 / rows or less].",
    ),
]
Cap = Annotated[
    tuple[float, float] | None,
    typer.Option(
        rich_help_panel=PRIVATE,
        help="EPSILON DELTA, the most that all runs of this dataset may spend, releases too.",
    ),
]
LedgerUrl = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PRIVATE, help="The draft's privacy.ledger [default: beside the draft]."
    ),
]
DatasetId = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PRIVATE, help="Key of the ledger [default: from the file's name]."
    ),
]
UnitText = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PRIVATE,
        help="What is protected: row, or COLUMN:MAX_ROWS for all of one id.",
    ),
]
Meaning = Annotated[
    str | None, typer.Option(rich_help_panel=PRIVATE, help='What one unit is, e.g. "one person".')
]


def init(
    csv: Annotated[
        Path | None, typer.Argument(help="A CSV or Parquet file; only its header is read.")
    ] = None,
    builtin: Builtin = None,
    codebook: CodebookFile = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the draft.")] = Path(
        "spec.yaml"
    ),
    rows: Rows = None,
    ask: Annotated[
        bool, typer.Option(help="Ask for types, units, bounds, bins and budget.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
    decimal: Decimal = None,
    private: PrivateFlag = False,
    epsilon: Epsilon = 0.5,
    delta: Delta = None,
    cap: Cap = None,
    ledger: LedgerUrl = None,
    dataset_id: DatasetId = None,
    unit: UnitText = None,
    meaning: Meaning = None,
    as_json: Json = False,
) -> None:
    """Write a draft spec from a table's header, and a code book where there is one; asks for units,
    bounds and bins, never reads them from rows, and shows the levels they make. Answers are kept
    when it is interrupted. With --private it finds all that in the rows instead, at a price; give
    the command again to go on with an interrupted run.
    """
    from synthdp.cli.private_init import Options, run_private
    from synthdp.errors import OutputError

    if out.exists() and not force:
        raise OutputError(f"{out} exists", hint="give --force to replace it, or --out another file")
    question = _ask if ask and sys.stdin.isatty() else None
    if private:
        options = Options(
            csv, out, rows, epsilon, delta, cap, ledger, dataset_id, unit, meaning, decimal
        )
        if codebook is not None:
            hint = "give one of them: a code book costs nothing"
            raise OutputError("--codebook and --private", hint=hint)
        run_private(options, ask=question, force=force, as_json=as_json)
        return
    given = {"--cap": cap, "--unit": unit, "--delta": delta, "--ledger": ledger}
    given |= {"--dataset-id": dataset_id, "--meaning": meaning}
    if alone := [name for name, value in given.items() if value is not None]:
        raise OutputError(f"{alone[0]} belongs to --private", hint="add --private, or leave it out")
    if csv is None:
        text = _builtin_draft(builtin)
        write_file(out, text, option="--out")
    else:
        text = _draft(csv, codebook, out, question, rows, decimal)
    _preview(out, text, as_json=as_json)


def _draft(
    csv: Path,
    codebook: Path | None,
    out: Path,
    ask: Ask | None,
    rows: int | None,
    decimal: str | None,
) -> str:
    """Write a draft of the table in `csv`; answers so far outlive an interruption beside it."""
    from synthdp.errors import OutputError
    from synthdp.spec.codebook import read_codebook
    from synthdp.spec.init.draft import draft_spec
    from synthdp.spec.init.header import read_header
    from synthdp.spec.init.kept_answers import KeptAnswers, with_back

    if not out.parent.is_dir():
        hint = "make it, or choose another --out"
        raise OutputError(f"there is no folder {out.parent}", hint=hint)
    kept = KeptAnswers(ask, out.with_name(f"{out.name}.answers")) if ask else None
    if kept and kept.found:
        note = f"going on with {kept.found} answers of {kept.file}; delete it to begin anew"
        typer.echo(note, err=True)
    if kept:
        typer.echo("the answer < goes back to the question before; Ctrl-C keeps answers", err=True)
    book = None if codebook is None else read_codebook(codebook)
    if book is not None:
        found = {column.name for column in book.of(read_header(csv).names).values()}
        if lacking := [column.name for column in book.columns if column.name not in found]:
            few = f"{', '.join(lacking[:10])}{' and more' if len(lacking) > 10 else ''}"
            typer.echo(f"not in {csv}, and left out: {few} (of {codebook})", err=True)
    relative = Path(os.path.relpath(csv, out.parent)) if csv.exists() else csv

    def draft() -> str:
        return draft_spec(csv, ask=kept, rows=rows, path=relative, codebook=book, decimal=decimal)

    for note in read_header(csv, decimal=decimal).remarks:
        say(f"note: {note}", err=True)
    try:
        text = with_back(kept, draft) if kept else draft()
    except (KeyboardInterrupt, typer.Abort):
        if kept and kept.given:
            note = f"{len(kept.given)} answers are kept in {kept.file}: the same command goes on"
            typer.echo(f"\n{note}", err=True)
        raise
    write_file(out, text, option="--out")
    if kept:
        kept.forget()
    return text


def _builtin_draft(name: str | None) -> str:
    from synthdp.data.builtin.drafts import DRAFTS
    from synthdp.errors import OutputError

    if name is None or name not in DRAFTS:
        raise OutputError(
            "no table to draft a spec for",
            hint=f"give a CSV file, or --builtin with one of {', '.join(DRAFTS)}",
        )
    return DRAFTS[name]()


def _preview(out: Path, text: str, *, as_json: bool) -> None:
    """Show the levels of each column where the draft is complete, and what to do next."""
    from synthdp.cli.column_preview import column_facts
    from synthdp.cli.text import columns_text
    from synthdp.errors import SpecError
    from synthdp.spec.checks.traps import traps
    from synthdp.spec.load.loader import parse_spec

    columns, left, warnings = [], 0, list[str]()
    try:
        spec = parse_spec(text, path=str(out))
        columns, warnings = column_facts(spec), traps(spec)
    except SpecError as error:
        left = len(error.problems)
    facts = {"file": str(out), "complete": left == 0, "left": left, "columns": columns}
    facts |= {"warnings": warnings}
    if as_json or columns:
        show(facts, as_json=as_json, text=lambda: columns_text(columns))
    for warning in warnings:
        say(f"warning: {warning}", err=True)
    ready = f"it is complete: run `synthdp plan {out}`, then `synthdp release {out}`"
    todo = (
        f"{left} places are left to fill in: `synthdp validate {out}` lists them" if left else ready
    )
    say(f"wrote {out}; {todo}", err=True)


def _ask(question: str, *, allowed: tuple[str, ...] = (), default: str | None = None) -> str:
    *notes, question = question.split("\n")
    for note in notes:
        say(note, err=True)
    choices = f" ({', '.join(allowed)})" if allowed else ""
    suffix = " " if question.endswith("?") and not choices and not default else ": "
    answer: str = typer.prompt(
        f"{question}{choices}",
        default=default or "",
        show_default=bool(default),
        prompt_suffix=suffix,
        err=True,
    )
    return answer
