"""Commands that ask a bundle for a number with its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from synthdp.cli.options import Json, show, write_file
from synthdp.errors import OutputError
from synthdp.spec.load.wording import many


def answer(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    query: Annotated[
        str | None,
        typer.Argument(
            help=(
                'The question, e.g. "mean(visits) where age >= 65 by sex" [default: every result'
                " that the release paid for]."
            ),
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer a question from a bundle's noisy tables, with a 95% interval where there is one.
    Without a question, print what the release measured and paid for.
    """
    from synthdp.cli.options import ProgressDisplay

    if query is None:
        _paid(bundle, as_json)
        return
    with ProgressDisplay():
        from synthdp.inference.answer import answer_bundle

        found = answer_bundle(bundle, query)
    show(found.to_json(), as_json=as_json, text=lambda: str(found))


def _paid(bundle: Path, as_json: bool) -> None:
    """Every result that a release paid for."""
    from synthdp.cli.options import ProgressDisplay

    with ProgressDisplay():
        from synthdp.inference.estimands import bundle_estimands

        results = bundle_estimands(bundle)
    texts = [str(result) for result in results] or [
        'this release paid for no results of its own; ask it, e.g. with "count()"'
    ]
    facts = {"estimands": [result.to_json() for result in results]}
    show(facts, as_json=as_json, text=lambda: "\n\n".join(texts))


def effect(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
    treatment: Annotated[str, typer.Option("--treatment", help="The column that acts.")],
    outcome: Annotated[str, typer.Option("--outcome", help="The column that it acts on.")],
    adjust: Annotated[
        list[str] | None,
        typer.Option(
            "--adjust",
            help=(
                "Columns to adjust for, with commas between them, or none; may be repeated"
                " [default: a set that the graph allows]."
            ),
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
    from synthdp.cli.options import ProgressDisplay

    with ProgressDisplay():
        from synthdp.inference.effect import effect_of_bundle
        from synthdp.inference.effect_query import EffectQuery

        columns = None if adjust is None else _columns(bundle, adjust)
        found = effect_of_bundle(bundle, EffectQuery(treatment, outcome, columns, reference, level))
    show(found.to_json(), as_json=as_json, text=lambda: str(found))


def _columns(bundle: Path, given: list[str]) -> tuple[str, ...]:
    """Names of columns; the word none alone stands for no column."""
    from synthdp.spec.expressions.parsed import listed_names
    from synthdp.spec.load.loader import load_spec

    if given == ["none"]:
        return ()
    known = load_spec(bundle / "spec.yaml").columns
    return tuple(name for text in given for name in listed_names(text, known))


# --- copies ---
#
# The command that writes copies of a bundle's columns, whose pooled analyses are right.


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
    from synthdp.cli.options import ProgressDisplay
    from synthdp.inference.copies import copies_of
    from synthdp.progress import Reporter
    from synthdp.sample.files import write_blocks
    from synthdp.spec.expressions.parsed import listed_names
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


# --- export ---
#
# `synthdp export`: a bundle's table into a database.


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

    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.sample.warehouse import write_table

    with ProgressDisplay() as display, Reporter(display).stage("export") as progress:
        done = write_table(bundle, to, table, replace=replace, key=key, progress=progress)
    verb = "replaced" if done.replaced else "made"
    text = f"{done.database}: {verb} the table {done.table} with {done.rows:,} verified rows"
    show(asdict(done), as_json=as_json, text=lambda: text)


# --- index ---
#
# `synthdp index`: a page over a folder of releases.


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

    from synthdp.bundle.signing import load_public_key
    from synthdp.cli.budget import open_book
    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.report.index import render_index
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
    from synthdp.report.index import MARK

    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder", hint="give a folder with releases below it")
    page = out or folder / "index.html"
    if page.exists() and not (page.is_file() and MARK.encode() in page.read_bytes()):
        raise OutputError(
            f"{page} is no index of synthdp, so it is never replaced",
            hint="choose another file with --out",
        )
    return page
