"""Commands on a bundle: numbers with intervals, rows, copies, exports, and a page over many."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from synthdp.cli.options import BundleArgument, Json, LedgerOfRun, say, show, working, write_file
from synthdp.errors import BudgetError, OutputError, QueryError, disk_errors
from synthdp.spec.load.wording import many


def answer(
    bundle: BundleArgument,
    query: Annotated[
        str | None,
        typer.Argument(
            help='The question, e.g. "mean(visits) where age >= 65 by sex"; - reads questions from'
            " standard input, one a line [default: every result that the release paid for].",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Literal["csv"] | None,
        typer.Option("--format", help="Print the figures of questions as CSV [default: text]."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--every",
            help="Print one CSV of every mean, median and count, of all rows and by each other"
            " column.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer a question from a bundle's noisy tables, with a 95% interval where there is one.
    Without a question, print what the release measured and paid for.
    """
    from synthdp.files import check_sums, read_text
    from synthdp.spec.expressions.query import CHANGE, parse_query
    from synthdp.spec.load.loader import linked_in, load_spec

    if form is not None and (as_json or query is None):
        raise OutputError(
            "--format csv is of the figures of a question", hint="ask one, or take --json alone"
        )
    if every:
        _every(bundle, alone=query is None and form is None and not as_json)
        return
    if query == "-":
        _session(bundle, as_json=as_json, as_csv=form is not None)
        return
    if query is not None:  # a mistake is told before anything slow is imported
        check_sums(bundle, ("spec.yaml",))
        if linked_in(read_text(bundle / "spec.yaml"), path="spec.yaml") is None:
            asked = CHANGE.fullmatch(query)
            parse_query(asked[1] if asked else query, load_spec(bundle / "spec.yaml").columns)
    with working():
        from synthdp.inference.answer import questions_of

        questions = questions_of(bundle)
        found = None if query is None else questions.answer(query)
        paid = questions.paid if query is None else ()
    if found is not None and form is not None:
        typer.echo(found.to_csv(), nl=False)
        return
    if found is not None:
        show(found, as_json=as_json)
        return
    facts = {"estimands": [result.to_json() for result in paid]}
    none = 'this release paid for no results of its own; ask it, e.g. with "count()"'
    show(facts, as_json=as_json, text=lambda: "\n\n".join(map(str, paid)) or none)


def _every(bundle: Path, *, alone: bool) -> None:
    """The honest companion of the rows: with what is not known among it."""
    from synthdp.inference.answer import HEADER, as_csv, questions_of

    if not alone:
        raise OutputError("--every asks its own questions, and prints CSV", hint="give it alone")
    with working():
        lines = [
            [found.query.text, ", ".join(found.query.by), ", ".join(group), *told]
            for found in questions_of(bundle).every()
            for group, told in found.lines()
        ]
    typer.echo(as_csv(("question", "by", "group", *HEADER), lines), nl=False)


def _session(bundle: Path, *, as_json: bool, as_csv: bool) -> None:
    """Answer the questions of standard input, line by line: in JSON each is a line, else an empty
    line parts them. One that cannot be answered is told, and does not end the others.
    """
    from synthdp.inference.answer import questions_of

    questions, refused = questions_of(bundle), 0
    for text in filter(None, map(str.strip, sys.stdin)):
        try:
            found = questions.answer(text)
        except (QueryError, OutputError) as error:
            refused += 1
            say(f"synthdp: {error}", err=True)
            if as_json:
                show({"query": text, **error.to_json()}, as_json=True, indent=None)
            continue
        if as_csv:
            typer.echo(found.to_csv())
        elif as_json:
            show(found, as_json=True, indent=None)
        else:
            say(f"{found}\n")
    if refused:
        raise OutputError(f"{many(refused, 'question')} could not be answered", hint="see above")


def effect(
    bundle: BundleArgument,
    treatment: Annotated[str, typer.Option("--treatment", help="The column that acts.")],
    outcome: Annotated[str, typer.Option("--outcome", help="The column that it acts on.")],
    adjust: Annotated[
        list[str] | None,
        typer.Option(
            "--adjust",
            help="Columns to adjust for, with commas between them, or none; may be repeated"
            " [default: a set that the graph allows].",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The level that others are compared with [default: the first]."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="The level of a categorical outcome whose share is asked for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the effect of one column on another by a bundle's graph and noisy tables, with a 95%
    interval where there is one.
    """
    with working():
        from synthdp.inference.effect import effect_of_bundle
        from synthdp.inference.effect_query import EffectQuery

        given = () if adjust in (None, ["none"]) else _columns(bundle, adjust or [])
        columns = None if adjust is None else given
        found = effect_of_bundle(bundle, EffectQuery(treatment, outcome, columns, reference, level))
    show(found, as_json=as_json)


def _columns(bundle: Path, given: list[str]) -> tuple[str, ...]:
    from synthdp.files import read_text
    from synthdp.spec.expressions.parsed import listed_names
    from synthdp.spec.load.loader import linked_in, load_spec

    linked = linked_in(read_text(bundle / "spec.yaml"), path="spec.yaml") is not None
    known = () if linked else load_spec(bundle / "spec.yaml").columns
    return tuple(name for text in given for name in listed_names(text, known))


def show_pair(
    bundle: BundleArgument,
    pair: Annotated[tuple[str, str], typer.Option("--pair", help="Two columns.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Picture to write, .svg [default: text alone].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the noisy table of two columns beside that of a bundle's rows, and what noise may move;
    free of charge.
    """
    from synthdp.api.bundle import Bundle

    with working():
        found = Bundle(bundle).pair(*pair)
    if out is not None:
        write_file(out, found.to_svg(), option="--out")
    show(found, as_json=as_json)


def sample(
    bundle: BundleArgument,
    rows: Annotated[int, typer.Option(help="Rows to draw.", min=1, max=2_000_000_000)],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File to write, .csv or .parquet [default: CSV on stdout]."),
    ] = None,
    do: Annotated[
        list[str] | None, typer.Option("--do", help="Intervene: COLUMN=VALUE; may be repeated.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            help="Condition on an observed COLUMN=VALUE, or on what a constraint could say, such as"
            " age >= 65 and not smoker; may be repeated.",
        ),
    ] = None,
    lost: Annotated[
        Literal["nobody", "natural"] | None,
        typer.Option(
            "--lost",
            help="Of persons with visits, under --do: nobody stops or dies, or they end by their"
            " law.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For repeatable samples; costs no privacy.", min=0)
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw rows from a bundle's model, free of charge; with --do under an intervention, with
    --given of those that were observed so.
    """
    from synthdp.bundle.content import is_linked
    from synthdp.bundle.table_files import check_file, write_blocks
    from synthdp.sample.sampler import Sampler, generator

    if is_linked(bundle):
        facts, text = _sample_linked(bundle, rows, out, do or [], given or [], lost=lost, seed=seed)
        show(facts, as_json=as_json, text=lambda: text)
        return
    if lost is not None:
        hint = "leave it out: one table has nobody who is lost"
        raise OutputError("--lost is of persons with visits", hint=hint)
    if out is not None:
        check_file(out)
    elif as_json:
        hint = "give --out FILE.csv or FILE.parquet"
        raise OutputError("--json prints facts where the rows would go", hint=hint)
    sampler, do, given = Sampler.of_bundle(bundle), do or [], given or []
    warnings = [warning] if (warning := sampler.warning(do)) else []
    for text in warnings:
        say(f"warning: {text}", err=True)
    with working("sample"):
        blocks = sampler.sample(rows, do=do, given=given, rng=generator(seed))
        write_blocks(blocks, sampler.columns, out)
    if out is not None:
        facts = {"file": str(out), "rows": rows, "do": do, "given": given, "seed": seed}
        facts |= {"calibrated": sampler.calibrated(do), "warnings": warnings}
        show(facts, as_json=as_json, text=lambda: f"wrote {rows:,} rows to {out}")


def _sample_linked(
    bundle: Path,
    persons: int,
    out: Path | None,
    do: list[str],
    given: list[str],
    *,
    lost: Literal["nobody", "natural"] | None,
    seed: int | None,
) -> tuple[dict[str, Any], str]:
    """Both tables of new persons into a folder; returns facts and words.

    Raises:
        OutputError: there is no folder to write to, or something is given; and as of
            `sample.linked.intervention`.
    """
    from synthdp.sample.linked import write_sample
    from synthdp.sample.sampler import generator

    if out is None:
        hint = "name a new folder with --out"
        raise OutputError("persons and their visits are two tables", hint=hint)
    if given:
        hint = "leave --given out, and take the persons that are so"
        raise OutputError("persons with visits are not drawn by what is given", hint=hint)
    with working("sample"):
        about = write_sample(bundle, persons, out, rng=generator(seed), do=do, lost=lost)
    facts = {"folder": str(out), "persons": persons, "seed": seed, "do": do, "lost": lost}
    text = f"wrote {many(persons, 'person')} with their visits to {out}"
    return facts | {"about": about}, "\n".join([text, *(f"- {said}" for said in about)])


STATEMENT = "spanned.json"


def copies(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option("--out", help="New folder for the copies.")],
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="Columns of your analysis: a,b,c [default: all]."),
    ] = None,
    m: Annotated[int, typer.Option("--m", help="Number of copies.", min=2, max=1000)] = 20,
    rows: Annotated[
        int | None, typer.Option(help="Rows of each [default: five times those counted].", min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For repeatable copies; costs no privacy.", min=0)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write copies of some columns whose pooled analyses have right 95% intervals for what a
    bundle's noisy tables span; spanned.json says for what.
    """
    from synthdp.bundle.table_files import write_blocks
    from synthdp.inference.copies import copies_of

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(
            f"{out}: is a file, or a folder that holds something",
            hint="name a new folder with --out: copies of two runs must not be pooled",
        )
    names = None if columns is None else _columns(bundle, [columns])
    with working("fit"):
        found = copies_of(bundle, m, columns=names, rows=rows, seed=seed)
    with disk_errors(f"cannot make {out}", hint="choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
    with working("copies") as progress:
        for i, table in enumerate(found, 1):
            write_blocks(iter([table]), found.columns, out / f"copy-{i:0{len(str(m))}d}.csv")
            progress(i, m)
    write_file(out / STATEMENT, json.dumps(found.spanned, indent=1) + "\n", option="--out")
    facts = {"folder": str(out), "seed": seed, **found.spanned}
    show(facts, as_json=as_json, text=lambda: copies_text(out, found.spanned))


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


def export(
    bundle: BundleArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            envvar="SYNTHDP_EXPORT_TO",
            help="SQLAlchemy URL of the database; one with a password belongs into the variable.",
        ),
    ],
    table: Annotated[
        str,
        typer.Option(
            "--table",
            help="Table to make: NAME or SCHEMA.NAME; of linked tables NAME_TABLE each.",
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a table that an earlier export wrote.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The publisher's public key (PEM): accept only its bundles."),
    ] = None,
    ledger: LedgerOfRun = None,
    as_json: Json = False,
) -> None:
    """Verify a bundle, and write its synthetic rows as a typed table of a database, unless somebody
    decided against it.
    """
    from synthdp.api.bundle import book_of_run
    from synthdp.sample.warehouse import write_table

    entries = None
    with working("export"):
        with nullcontext() if ledger else suppress(BudgetError):  # then the spec says what it takes
            entries = book_of_run(bundle.absolute(), ledger).entries()
        done = write_table(bundle, to, table, replace=replace, key=key, ledger=entries)
    verb = "replaced" if done.replaced else "made"
    text = (
        f"{done.database}: {verb} the table{'s' * (', ' in done.table)} {done.table} with"
        f" {done.rows:,} verified rows; {done.decision}"
    )
    show(asdict(done), as_json=as_json, text=lambda: text)


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
    """Write a static page of every bundle below a folder, those of a dataset beside each other:
    what is left of the cap, decisions, gates, verification, differences, and the verdicts of their
    public reports; reads no original rows.
    """
    from synthdp.bundle.signing import load_public_key
    from synthdp.cli.budget import shown_ledger
    from synthdp.ledger.connect import open_book
    from synthdp.report.index import MARK, index_text, render_index
    from synthdp.verify.releases import index_of

    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder", hint="give a folder with releases below it")
    page = out or folder / "index.html"
    if page.exists() and not (page.is_file() and MARK.encode() in page.read_bytes()):
        raise OutputError(
            f"{page} is no index of synthdp, so it is never replaced",
            hint="choose another file with --out",
        )
    verify = verify or key is not None
    if ledger is None and Path(DEFAULT_LEDGER).exists():
        ledger = DEFAULT_LEDGER
    with working("index") as progress:
        content = index_of(
            folder,
            page=page,
            now=datetime.now(UTC),
            verify=verify,
            key=None if key is None else load_public_key(key),
            ledger=() if ledger is None else open_book(ledger).entries(),
            ledger_name="" if ledger is None else shown_ledger(ledger),
            progress=progress,
        )
    write_file(page, render_index(content), option="--out")
    bundles = sum(len(dataset.bundles) for dataset in content.datasets)
    head = f"{page}: {bundles} bundles{', verified' if verify else ', not verified'}"
    facts = {"index": str(page)} | asdict(content)
    show(facts, as_json=as_json, text=lambda: f"{head}\n{index_text(content)}".rstrip())
