"""Commands on a spec before a release: `validate`, `schema`, `init`, `inspect`, `desk`.

`inspect`, and `init --private`, read rows; nothing else here does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from synthdp.cli.options import (
    Browser,
    Json,
    LedgerOfRun,
    Port,
    SpecArgument,
    say,
    show,
    working,
    write_file,
)
from synthdp.errors import BudgetError, OutputError, SpecError, disk_errors
from synthdp.spec.load.wording import many, up

if TYPE_CHECKING:
    from synthdp.privacy.inspection import Misfit
    from synthdp.release.private_init import PrivateInit
    from synthdp.spec.draft import Request
    from synthdp.spec.model import LinkedSpec
    from synthdp.spec.questions import Ask


def validate(spec: SpecArgument, as_json: Json = False) -> None:
    """Check a spec and list every mistake at once; reads no data."""
    from synthdp.release.plan_view import spec_warnings
    from synthdp.spec.load.loader import own_text, parse_any
    from synthdp.spec.model import ReleaseSpec

    content = parse_any(own_text(spec), path=str(spec))
    if not isinstance(content, ReleaseSpec):
        facts, text = _linked(content)
        show(facts, as_json=as_json, text=lambda: f"{spec}: valid\n{text}")
        return
    columns, epsilon, graph = len(content.columns), content.privacy.epsilon, content.graph.mode
    facts = {"valid": True, "dataset": content.dataset.id, "columns": columns, "epsilon": epsilon}
    facts |= {"graph": graph, "warnings": (warnings := spec_warnings(content))}
    told = [
        f"{spec}: valid ({columns} columns, epsilon {epsilon:g}, graph {graph})",
        *(f"warning: {warning}" for warning in warnings),
    ]
    show(facts, as_json=as_json, text=lambda: "\n".join(told))


def _linked(spec: LinkedSpec) -> tuple[dict[str, Any], str]:
    """What a valid spec of linked tables holds, for programs and for people."""
    from synthdp.spec.checks.linked import linked_traps
    from synthdp.spec.expressions.parsed import parse_arrow

    dataset, visits, graph = spec.dataset, spec.dataset.visits, spec.graph
    tables = {name: len(spec.columns[name]) for name in (dataset.persons_name, dataset.visits_name)}
    arrows = sum(len(causes) * len(effects) for causes, effects in map(parse_arrow, graph.edges))
    facts = {"valid": True, "dataset": dataset.id, "tables": tables, "at_most": visits.at_most}
    facts |= {"epsilon": spec.privacy.epsilon, "graph": graph.mode, "arrows": arrows}
    facts |= {"rules": list(spec.constraints), "warnings": (warnings := linked_traps(spec))}
    persons, of_visits = (f"{name}: {many(tables[name], 'column')}" for name in tables)
    told = [
        f"{persons}; protected is {dataset.privacy_unit.meaning}",
        f"{of_visits}; of each person the first {visits.at_most} by {visits.order}",
        f"epsilon {spec.privacy.epsilon:g}, graph {graph.mode} ({many(arrows, 'arrow')}),"
        f" {many(len(spec.constraints), 'rule')}",
        *(f"warning: {warning}" for warning in warnings),
    ]
    return facts, "\n".join(told)


def schema(as_json: Json = False) -> None:
    """Print the spec's JSON schema, for editors; it is JSON either way."""
    from synthdp.spec.writing import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


_asked = partial(typer.Option, rich_help_panel="With --private")

Builtin = Annotated[
    str | None,
    typer.Option(help="Instead of a file: pain1000, pain5000 or eedi, ready to be released."),
]
CodebookFile = Annotated[
    Path | None,
    typer.Option(
        help="A code book of the table: Table Schema (.json), DDI (.xml), REDCap dictionary (.csv),"
        " SPSS (.sav, .zsav, .por) or Stata (.dta); no row of it is read."
    ),
]
RowCount = Annotated[
    int | None, typer.Option(help="The number of rows, as a constant that may be published.", min=1)
]
Decimal = Annotated[
    Literal[".", ","] | None,
    typer.Option(help="What stands before the decimals of numbers in a CSV file."),
]
PrivateFlag = Annotated[
    bool,
    _asked(
        "--private",
        help="Find types, bounds and categories in the rows, under differential privacy; this"
        " spends a budget, and needs --cap.",
    ),
]
Epsilon = Annotated[float, _asked(help="Epsilon to spend on it.", min=0.01, max=100)]
Delta = Annotated[
    float | None, _asked(help="Delta to spend on it [default: a hundredth of 1 / rows or less].")
]
Cap = Annotated[
    tuple[float, float] | None,
    _asked(help="EPSILON DELTA, the most that all runs of this dataset may spend, releases too."),
]
LedgerUrl = Annotated[
    str | None, _asked(help="The draft's privacy.ledger [default: beside the draft].")
]
DatasetId = Annotated[str | None, _asked(help="Key of the ledger [default: from the file's name].")]
UnitText = Annotated[
    str | None, _asked(help="What is protected: row, or COLUMN:MAX_ROWS for all of one id.")
]
Meaning = Annotated[str | None, _asked(help='What one unit is, e.g. "one person".')]


def init(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="csv [visits]",
            help="A CSV or Parquet file; only its header is read. Of linked tables two, the one"
            " with a row for each person first.",
        ),
    ] = None,
    builtin: Builtin = None,
    codebook: CodebookFile = None,
    out: Annotated[Path, typer.Option(help="Where to write the draft.")] = Path("spec.yaml"),
    rows: RowCount = None,
    ask: Annotated[
        bool, typer.Option(help="Ask for types, units, bounds, bins and budget, on a terminal.")
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
    if out.exists() and not force:
        raise OutputError(f"{out} exists", hint="give --force to replace it, or --out another file")
    question = _ask if ask and sys.stdin.isatty() else None
    csv = tables[0] if tables else None
    if private and len(tables or ()) > 1:
        raise OutputError("--private reads one table", hint="nothing was spent")
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
    if not tables:
        from synthdp.data.builtin import DRAFTS

        if builtin is None or builtin not in DRAFTS:
            hint = f"give a CSV file, or --builtin with one of {', '.join(DRAFTS)}"
            raise OutputError("no table to draft a spec for", hint=hint)
        write_file(out, text := DRAFTS[builtin](), option="--out")
    else:
        if ask and question is None:
            note = "no terminal to ask on: what a header does not say is left to be filled in"
            typer.echo(f"{note} (--no-ask says so beforehand)", err=True)
        text = _draft(tables, codebook, out, question, rows, decimal)
    _preview(out, text, as_json=as_json)


def _draft(
    files: list[Path],
    codebook: Path | None,
    out: Path,
    ask: Ask | None,
    rows: int | None,
    decimal: str | None,
) -> str:
    """Write a draft of the tables in `files`; answers so far outlive an interruption beside it."""
    from synthdp.spec.codebook import read_codebook
    from synthdp.spec.draft import draft_spec, read_header
    from synthdp.spec.draft_linked import draft_linked, table_names
    from synthdp.spec.questions import KeptAnswers, with_back

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
    headers = [read_header(file, decimal=decimal) for file in files]
    if book is not None:
        found = {column.name for h in headers for column in book.of(h.names).values()}
        if lacking := [column.name for column in book.columns if column.name not in found]:
            few = f"{', '.join(lacking[:10])}{' and more' if len(lacking) > 10 else ''}"
            where = " or ".join(map(str, files))
            typer.echo(f"not in {where}, and left out: {few} (of {codebook})", err=True)
    paths = [Path(os.path.relpath(file, out.parent)) if file.exists() else file for file in files]

    def draft() -> str:
        known: Any = {"ask": kept, "rows": rows, "codebook": book, "decimal": decimal}
        if len(files) == 1:
            return draft_spec(files[0], path=paths[0], **known)
        return draft_linked(table_names(files), paths=table_names(paths), **known)

    for note in dict.fromkeys(note for header in headers for note in header.remarks):
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


def _preview(out: Path, text: str, *, as_json: bool) -> None:
    from synthdp.data.domain import Domain
    from synthdp.spec.checks.checks import traps
    from synthdp.spec.checks.linked import linked_traps
    from synthdp.spec.load.loader import parse_any
    from synthdp.spec.model import LinkedSpec

    columns, left, warnings = list[dict[str, Any]](), 0, list[str]()
    try:
        spec = parse_any(text, path=str(out))
        declared: Any = spec.columns if isinstance(spec, LinkedSpec) else {"": spec.columns}
        columns = [
            {"column": f"{table}.{c.name}" if table else c.name}
            | {"type": c.type, "levels": c.levels, "labels": list(c.labels)}
            for table, own in declared.items()
            for c in Domain.from_spec(own).columns
        ]
        warnings = linked_traps(spec) if isinstance(spec, LinkedSpec) else traps(spec)
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


def columns_text(facts: Sequence[dict[str, Any]]) -> str:
    """The levels that a spec gives each column, as text; of many the first and the last."""
    from synthdp.api.text import Rows, render

    rows = []
    for column in facts:
        labels = column["labels"]
        if len(labels) > 8:
            labels = [*labels[:4], "...", *labels[-3:]]
        rows.append((column["column"], column["type"], f"{column['levels']}", " | ".join(labels)))
    return render(
        Rows(["column", "type", "levels", ""], rows, numbers=[2]),
        "(from the spec alone; no row was read)",
    )


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


# --- inspect ---

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
    from synthdp.files import write_private
    from synthdp.release.judge import WARNING, misfits_for_steward
    from synthdp.spec.load.loader import load_spec

    found = misfits_for_steward(load_spec(spec, lists=True), spec, examples=examples)
    told = f"{WARNING}\n{misfits_text(found)}"
    if out is not None:
        with disk_errors(f"cannot write {out}", hint="choose another with --out"):
            write_private(out, told + "\n")
    facts = {"warning": WARNING, "misfits": list(map(asdict, found))}
    show(facts, as_json=as_json, text=lambda: told)
    if out is not None:
        say(f"wrote {out}, for its owner alone: {WARNING}", err=True)


def misfits_text(found: Sequence[Misfit]) -> str:
    """A line for each column and kind."""
    from synthdp.api.text import Rows, render

    if not found:
        return "every value fits the spec"
    head = ["column", "kind", "rows", "what is wrong", "commonest values (rows)"]
    shown = len(head) if any(misfit.examples for misfit in found) else len(head) - 1
    rows = []
    for m in found:
        examples = ", ".join(f"{value} ({rows:,})" for value, rows in m.examples)
        rows.append((m.column, m.kind, f"{m.rows:,}", KINDS[m.kind], examples)[:shown])
    return render(Rows(head[:shown], rows, numbers=[2]))


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


# --- private init ---


@dataclass(frozen=True)
class Options:
    """The options of `init --private`, as they were given."""

    csv: Path | None
    out: Path
    rows: int | None
    epsilon: float
    delta: float | None
    cap: tuple[float, float] | None
    ledger: str | None
    dataset: str | None
    unit: str | None
    meaning: str | None
    decimal: str | None


def run_private(options: Options, *, ask: Ask | None, force: bool, as_json: bool) -> None:
    """Find the columns, write the draft, and show what was found."""
    from synthdp.release.private_init import private_init
    from synthdp.spec.questions import KeptAnswers, with_back

    if ask is None:
        csv, request = request_of(options, None)
    else:
        kept = KeptAnswers(ask, options.out.with_name(f"{options.out.name}.answers"))
        csv, request = with_back(kept, lambda: request_of(options, kept))
        kept.forget()
    with working():
        found = private_init(request, csv, options.out, force=force)
    facts = {"file": str(options.out)} | found.to_json()
    show(facts, as_json=as_json, text=lambda: found_text(found))
    say(f"wrote {options.out}; read it, then run `synthdp plan {options.out}`", err=True)


def request_of(options: Options, ask: Ask | None) -> tuple[Path, Request]:
    """The file, and what is asked for; what is missing is asked, or refused.

    Raises:
        BudgetError: there is no cap.
        OutputError: another option is missing or not allowed; nothing was spent.
        DataError: the file has no usable header.
    """
    from synthdp.spec.checks.budget import suggested_delta
    from synthdp.spec.draft import Request, read_header
    from synthdp.spec.questions import DECIMAL, answer, ask_rows, ask_unit
    from synthdp.spec.writing import slug_of

    csv = options.csv
    if csv is None:
        raise OutputError("no table to look at", hint="give a CSV file")
    if options.cap is None:
        raise BudgetError(
            "--private spends a budget, and there is no cap for what this dataset may spend in all",
            hint="agree on one with the data's owner, and give --cap EPSILON DELTA; nothing was"
            " spent",
        )
    header = read_header(csv, decimal=options.decimal)
    if header.kind != "csv":
        hint = "save the table as CSV in UTF-8; nothing was spent"
        raise OutputError("--private reads CSV files alone", hint=hint)
    if header.decimal_unknown:
        if ask is None:
            what = "what stands before decimals, . or , as semicolons part fields"
            raise _missing("--decimal", what)
        header = read_header(csv, decimal=answer(ask, DECIMAL))
    names = header.names
    unit = ask_unit(ask, names) if options.unit is None and ask else _unit(options, names)
    if options.rows is not None:
        rows: dict[str, Any] = {"kind": "approximate", "value": options.rows}
    elif ask is not None:
        rows = ask_rows(ask, unit)
    else:
        raise _missing("--rows", "the number of rows, as a constant that may be published")
    usual = float(suggested_delta(int(rows["value"]))) / 10
    return csv, Request(
        path=Path(os.path.relpath(csv, options.out.parent)),
        header=header,
        columns=tuple(name for name in names if name != unit.get("column")),
        dataset=options.dataset or slug_of(csv),
        unit=unit,
        rows=rows,
        epsilon=options.epsilon,
        delta=float(f"{usual:g}") if options.delta is None else options.delta,
        cap=options.cap,
        ledger=options.ledger,
    )


def _unit(options: Options, names: tuple[str, ...]) -> dict[str, Any]:
    """The `privacy_unit` section from --unit and --meaning."""
    if options.unit is None:
        raise _missing("--unit", "row, or COLUMN:MAX_ROWS for everything of one id")
    if not options.meaning:
        raise _missing("--meaning", 'what one unit is, e.g. "one person"')
    if options.unit == "row":
        return {"kind": "row", "meaning": options.meaning}
    column, _, most = options.unit.rpartition(":")
    if column not in names or not most.isdecimal():
        raise OutputError(
            f"--unit {options.unit}: is neither row nor COLUMN:MAX_ROWS",
            hint=f"columns: {', '.join(names)}; nothing was spent",
        )
    return {"kind": "id", "column": column, "max_rows": int(most), "meaning": options.meaning}


def _missing(option: str, what: str) -> OutputError:
    hint = f"give {option}: {what}; nothing was spent"
    return OutputError(f"--private needs {option}", hint=hint)


def found_text(found: PrivateInit) -> str:
    from synthdp.api.text import Rows, render

    privacy, header = found.job.spec.privacy, ["column", "type", "found", "expected loss", "+-"]
    rows = []
    for c in found.columns:
        missing = "; may be missing" if c.entry.get("missing") else ""
        losses = (f"{100 * share:.1f}%" for share in (c.lost, c.error))
        rows.append((c.name, str(c.entry["type"]), c.found + missing, *losses))
    return render(
        Rows(header, rows, numbers=[3, 4]),
        "(found under differential privacy: expected losses are shares of rows, and have errors)",
        f"epsilon {up(found.job.plan.epsilon_spent)} of {privacy.epsilon:g}, at delta"
        f" {privacy.delta:g}, run {found.job.folder.run}",
        f"releases of {found.job.spec.dataset.id} come on top, under the same cap",
    )
