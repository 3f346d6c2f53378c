"""The command line: parses, calls, prints. Data goes to stdout, progress and errors to stderr.

Exit codes: 0 ok, 1 internal, 2 spec or output invalid, 3 budget refused, 4 gate failed (budget
spent, bundle withheld), 5 data does not fit the spec, 6 verify failed, 130 interrupted (Ctrl-C) and
143 ended by SIGTERM, both resumable.

Heavy modules are imported inside commands, so that `--help` and `validate` start at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from synthdp.cli.bundle import answer, copies, effect, export, index
from synthdp.cli.graph import graph_app
from synthdp.cli.options import (
    Commands,
    Json,
    begin,
    say,
    show,
    show_error,
    shown,
    terminable,
    write_file,
)
from synthdp.cli.plan import attack, plan, release, resume
from synthdp.cli.review import review_app
from synthdp.cli.spec import init, inspect, schema, validate
from synthdp.errors import (
    BUDGET,
    StoppedError,
    SynthdpError,
    budget_note,
    error_json,
    missing_package,
)

app = typer.Typer(
    cls=Commands,
    help="Private synthetic data with a causal graph, one budget and a bundle anyone can verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(graph_app, name="graph", **shown("graph"))
app.add_typer(review_app)
for command in (
    *(validate, schema, init, inspect, plan, release, resume, attack),
    *(answer, effect, copies, index, export),
):
    app.command(**shown(command.__name__))(command)


def _show_version(asked: bool) -> None:
    if asked:
        from synthdp import __version__

        typer.echo(f"synthdp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass  # the option acts by itself; without a command, Typer prints the help


@app.command(**shown("keygen"))
def keygen(
    folder: Annotated[Path, typer.Argument(help="Where to put the two files.")],
    as_json: Json = False,
) -> None:
    """Make a key pair to sign bundles with; existing keys are never replaced."""
    from synthdp.bundle.signing import make_keys

    private, public = make_keys(folder)
    show(
        {"private": str(private), "public": str(public)},
        as_json=as_json,
        text=lambda: (
            f"{private}: keep it secret; to sign releases, export SYNTHDP_SIGNING_KEY={private}\n"
            f"{public}: publish it; others check with `synthdp verify BUNDLE --key {public.name}`"
        ),
    )


@app.command(**shown("sample"))
def sample(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder.")],
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
            help=(
                "Condition on an observed COLUMN=VALUE, or on what a constraint could say, such as"
                " age >= 65 and not smoker; may be repeated."
            ),
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
    from synthdp.cli.options import ProgressDisplay
    from synthdp.errors import OutputError
    from synthdp.progress import Reporter
    from synthdp.sample.files import check_file, write_blocks
    from synthdp.sample.sampler import Sampler, generator

    if out is not None:
        check_file(out)
    elif as_json:
        raise OutputError(
            "--json prints facts where the rows would go",
            hint="give --out FILE.csv or FILE.parquet",
        )
    sampler = Sampler.of_bundle(bundle)
    warning = sampler.warning(do or [])
    if warning:
        say(f"warning: {warning}", err=True)
    with ProgressDisplay() as display, Reporter(display).stage("sample") as progress:
        blocks = sampler.sample(
            rows, do=do or [], given=given or [], rng=generator(seed), progress=progress
        )
        write_blocks(blocks, sampler.columns, out)
    if out is not None:
        facts = {
            "file": str(out),
            "rows": rows,
            "do": do or [],
            "given": given or [],
            "seed": seed,
            "calibrated": sampler.calibrated(do or []),
            "warnings": [warning] if warning else [],
        }
        show(facts, as_json=as_json, text=lambda: f"wrote {rows:,} rows to {out}")


@app.command(**shown("budget"))
def budget(
    dataset: Annotated[str | None, typer.Argument(help="Dataset id [default: all].")] = None,
    ledger: Annotated[
        str, typer.Option(help="Ledger file or SQLAlchemy URL.")
    ] = ".synthdp/ledger.db",
    set_cap: Annotated[
        tuple[float, float] | None, typer.Option(help="New cap: EPSILON DELTA.")
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(
            "--check",
            help=(
                "A published bundle whose entries must still be there, one of each run; may be"
                " repeated."
            ),
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the picture to this file too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what each dataset has spent, on what, by whom, and what is left; checks the ledger's
    chain.
    """
    from synthdp.cli.budget import budget_facts, budget_svg, budget_text, open_book
    from synthdp.errors import BudgetError
    from synthdp.verify.at_hand import check_one_of_each_run, check_published

    book = open_book(ledger)
    checked = {str(bundle): check_published(book.entries(), bundle) for bundle in check or []}
    check_one_of_each_run(check or [])
    if set_cap is not None:
        if dataset is None:
            raise BudgetError("--set-cap needs a dataset id")
        book.set_cap(dataset, epsilon=set_cap[0], delta=set_cap[1])
    facts = budget_facts(book, dataset)
    if svg is not None:
        write_file(svg, budget_svg(facts), option="--svg")
    confirmed = [
        f"{bundle}: all {count} entries that it published are in the ledger"
        for bundle, count in checked.items()
    ]
    show(
        {"datasets": facts, "checked": checked},
        as_json=as_json,
        text=lambda: "\n".join([budget_text(facts), *confirmed]),
    )


def main() -> None:
    """Entry point: turn errors into exit codes and text on stderr.

    With `--json`, the error is also one object on stdout.
    """
    begin()
    with terminable():
        try:
            app(standalone_mode=False)
        except SynthdpError as error:
            _exit_with(error)
        except (KeyboardInterrupt, typer.Abort):  # in a question, or before a command began
            _exit_with(StoppedError("interrupted"))
        except Exception as error:
            if (missing := missing_package(error)) is not None:
                _exit_with(missing)
            _unexpected(error)


def _exit_with(error: SynthdpError) -> NoReturn:
    budget = budget_note(error)
    told = budget is not None and "nothing was spent" not in str(error)
    say(f"synthdp: {error}" + (f"\n  {budget}" if told else ""), err=True)
    show_error(
        error.to_json() | ({} if budget is None else {"budget": budget.removeprefix(BUDGET)})
    )
    sys.exit(error.exit_code)


def _unexpected(error: Exception) -> NoReturn:
    """Print a usage error as Typer does, and of a bug only its kind and place.

    The text of a bug may quote rows.
    """
    # Typer carries its own copy of click, so its errors have no public base.
    show = getattr(error, "show", None)
    if show is not None:
        show()
        budget = "nothing was spent"  # no command has begun
        say(f"{BUDGET}{budget}", err=True)
        told = error_json(error.format_message(), exit_code=2)  # type: ignore[attr-defined]
        show_error(told | {"budget": budget})
        sys.exit(2)
    import traceback

    frames = [
        f"{Path(f.filename).name}:{f.lineno} in {f.name}"
        for f in traceback.extract_tb(error.__traceback__)
    ]
    what = f"internal error {type(error).__name__} (message withheld: it may quote data)"
    lines = [f"synthdp: {what}", "  at " + "\n     ".join(frames[-6:])]
    if (spent := budget_note(error)) is not None:
        lines.append(f"  {spent}")
    say("\n".join(lines), err=True)
    show_error(error_json(what, exit_code=1))
    sys.exit(1)


if __name__ == "__main__":
    main()
