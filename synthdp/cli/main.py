"""The command line: parses, calls, prints. Data goes to stdout, progress and errors to stderr.

Exit codes: 0 ok, 1 internal, 2 spec or output invalid, 3 budget refused, 4 gate failed (budget
spent, bundle withheld), 5 data does not fit the spec, 6 verify failed, 130 interrupted (Ctrl-C) and
143 ended by SIGTERM, both resumable.

Heavy modules are imported inside commands, so that `--help` and `validate` start at once.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any, NoReturn

import typer

from synthdp import __version__
from synthdp.cli.bundle import answer, copies, effect, export, index, sample, show_pair
from synthdp.cli.graph import graph_app
from synthdp.cli.options import Commands, begin, say, show_error, shown, terminable
from synthdp.cli.plan import attack, budget, plan, release, resume, study, watch
from synthdp.cli.review import review_app
from synthdp.cli.spec import desk, init, inspect, schema, validate
from synthdp.errors import BUDGET, StoppedError, SynthdpError, budget_note, error_json, withheld

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
    *(validate, schema, init, inspect, desk, plan, watch, release, resume, attack),
    *(budget, sample, answer, effect, copies, index, export, study),
):
    app.command(**shown(command.__name__))(command)
app.command("show", **shown("show"))(show_pair)


def _show_version(asked: bool) -> None:
    if asked:
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


def main() -> None:
    """Entry point: turn errors into exit codes and text on stderr.

    With `--json`, the error is also one object on stdout.
    """
    begin()
    gc.set_threshold(100_000)  # imports make no garbage, and arrays are freed without a collector
    with terminable():
        try:
            app(standalone_mode=False)
        except SynthdpError as error:
            _exit_with(error)
        except (KeyboardInterrupt, typer.Abort):  # in a question, or before a command began
            _exit_with(StoppedError("interrupted"))
        except Exception as error:
            usage: Any = error  # of Typer's own click, whose errors have no public base
            if not hasattr(usage, "show"):
                _exit_with(withheld(error))
            usage.show()
            budget = "nothing was spent"  # no command has begun
            say(f"{BUDGET}{budget}", err=True)
            show_error(error_json(usage.format_message(), exit_code=2) | {"budget": budget})
            sys.exit(2)


def _exit_with(error: SynthdpError) -> NoReturn:
    budget = budget_note(error)
    told = budget is not None and "nothing was spent" not in str(error)
    say(f"synthdp: {error}" + (f"\n  {budget}" if told else ""), err=True)
    show_error(
        error.to_json() | ({} if budget is None else {"budget": budget.removeprefix(BUDGET)})
    )
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
