"""`synthdp graph`: show, convert and compare causal graphs; learn or validate one alone.

Only `learn` and `validate` read rows; they reserve and charge the graph's share of the spec's
budget. Exit codes are those of `synthdp`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from synthdp.cli.options import Json, say, shown_graph, write_file
from synthdp.cli.options import show as tell
from synthdp.spec.load.wording import up

graph_app = typer.Typer(
    help="Show, convert, compare, learn and validate causal graphs.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Format = Literal["yaml", "dot", "dagitty", "svg", "json"]
Source = Annotated[
    Path,
    typer.Argument(
        help="A spec, a bundle, or a graph file (.yaml, .json, .dot, .gv, .dagitty, .dag, .bif,"
        " .gml, .graphml, .tetrad, Tetrad's .txt)."
    ),
]
Spec = Annotated[
    Path, typer.Argument(help="The spec (YAML); its graph.mode must be the command's.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Output folder [default: releases/DATASET/graph].")
]
Force = Annotated[
    bool, typer.Option("--force", help="Drop an interrupted run and pay for a new one.")
]


@graph_app.command(**shown_graph("show"))
def show(
    source: Source,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Convert to this format [default: text for people]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write [default: stdout].")
    ] = None,
    around: Annotated[
        str | None, typer.Option("--around", help="Only this column and what it is linked with.")
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", min=1, help="With --around: how many links away.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Show a graph, or convert it; free of charge, reads no rows."""
    from synthdp.cli.graph_text import graph_text
    from synthdp.graph.formats import WRITERS, read_graph

    form = form or ("json" if as_json else None)
    graph = read_graph(source, lists=True)
    if around is not None:
        graph = graph.around(around, depth=depth)
    text = graph_text(graph) if form is None else WRITERS[form](graph)
    if out is None and form is None:
        say(text.rstrip("\n"))
        return
    if out is None:
        # a program gets every character as it is
        say(text.rstrip("\n")) if sys.stdout.isatty() else typer.echo(text, nl=False)
        return
    write_file(out, text, option="--out")
    say(f"wrote {out}", err=True)


@graph_app.command(**shown_graph("diff"))
def diff(
    before: Source,
    after: Source,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Draw both graphs in one picture, into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two graphs: links added, removed and turned, structural Hamming distance, F1 of
    arcs.
    """
    from synthdp.cli.graph_text import difference_text
    from synthdp.drawing.graph import DIFFERENCE, draw
    from synthdp.graph.diff import difference
    from synthdp.graph.formats import read_graph

    found = difference(*(read_graph(path, lists=True) for path in (before, after)))
    if svg is not None:
        write_file(
            svg,
            draw(found.picture(), title=f"{before.name} and {after.name}", styles=DIFFERENCE),
            option="--svg",
        )
    tell(found.to_json(), as_json=as_json, text=lambda: difference_text(found))


@graph_app.command(**shown_graph("learn"))
def learn(spec: Spec, out: Out = None, force: Force = False, as_json: Json = False) -> None:
    """Learn the spec's graph alone; spends the graph's share of its budget. Give the command again
    to go on with an interrupted run.
    """
    _run(spec, "learn", out=out, force=force, as_json=as_json)


@graph_app.command(**shown_graph("validate"))
def validate(spec: Spec, out: Out = None, force: Force = False, as_json: Json = False) -> None:
    """Hold the spec's graph against noisy tables; spends the graph's share of its budget. Give it
    again to go on with an interrupted run.
    """
    _run(spec, "validate", out=out, force=force, as_json=as_json)


@graph_app.command(**shown_graph("orient"))
def orient(
    spec: Annotated[
        Path, typer.Argument(help="The spec (YAML), with a graph's share of the budget.")
    ],
    one: Annotated[str, typer.Argument(help="A numeric column.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    score: Annotated[
        Literal["table", "hsic", "spearman", "kendall", "iqr"],
        typer.Option(
            help=(
                "What is released: a noisy two-way table, which tells most; or one of the scores of"
                " Kusner et al. (2016)."
            )
        ),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the run while it lasts [default: releases/DATASET/orient]."
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say which of two numeric columns is the cause, by an additive noise model; spends the graph's
    share of the spec's budget.
    """
    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.graph_only import run_orientation

    with ProgressDisplay() as display:
        job, found = run_orientation(
            spec, (one, other), score=score, out=out, force=force, reporter=Reporter(display)
        )
    cost = {
        "epsilon_planned": job.plan.epsilon_spent,
        "epsilon_spent": job.spent.epsilon_spent,
        "delta": job.plan.delta,
        "run": job.folder.run,
    }
    words = (
        f"{found.cause} -> {found.effect}: the scores without noise say the same with probability"
        f" {found.probability:.3f} ({found.score})"
    )
    spent = (
        f"epsilon {up(job.plan.epsilon_spent)} at delta {job.plan.delta:g}, run {job.folder.run}"
    )
    tell(found.to_json() | cost, as_json=as_json, text=lambda: f"{words}\n{spent}")


def _run(
    spec: Path, mode: Literal["learn", "validate"], *, out: Path | None, force: bool, as_json: bool
) -> None:
    from synthdp.cli.graph_text import outcome_text
    from synthdp.cli.options import ProgressDisplay
    from synthdp.errors import GateError
    from synthdp.progress import Reporter
    from synthdp.release.graph_only import run_graph

    with ProgressDisplay() as display:
        outcome = run_graph(spec, mode=mode, out=out, force=force, reporter=Reporter(display))
    tell(_facts(outcome), as_json=as_json, text=lambda: outcome_text(outcome))
    if outcome.refused:
        privacy = outcome.job.spec.privacy
        spent = (
            f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is spent, and another run pays"
            " again"
        )
        raise GateError(
            outcome.refused.message, hint=f"{spent}; see {outcome.job.out / 'graph.json'}"
        )


def _facts(outcome: Any) -> dict[str, Any]:
    facts: dict[str, Any] = outcome.to_json()
    return facts | {"folder": str(outcome.job.out), "refused": outcome.refused is not None}
