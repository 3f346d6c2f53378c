"""`synthdp graph`: show, convert and compare causal graphs; learn or validate one alone.

Only `learn` and `validate` read rows; they reserve and charge the graph's share of the spec's
budget. Exit codes are those of `synthdp`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from synthdp.cli.options import Json, say, shown_graph, working, write_file
from synthdp.cli.options import show as tell
from synthdp.errors import GateError
from synthdp.report.prose import say_of_plan
from synthdp.spec.load.wording import up

if TYPE_CHECKING:
    from synthdp.graph.causal import CausalGraph
    from synthdp.graph.validation import ValidationReport
    from synthdp.release.graph_only import GraphOutcome

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
    from synthdp.graph.formats import WRITERS, read_graph

    form = form or ("json" if as_json else None)
    graph = read_graph(source, lists=True)
    if around is not None:
        graph = graph.around(around, depth=depth)
    text = graph_text(graph) if form is None else WRITERS[form](graph)
    if out is not None:
        write_file(out, text, option="--out")
        say(f"wrote {out}", err=True)
    elif form is None or sys.stdout.isatty():
        say(text.rstrip("\n"))
    else:
        typer.echo(text, nl=False)  # a program gets every character as it is


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
    from synthdp.graph.causal import difference
    from synthdp.graph.formats import read_graph
    from synthdp.graph.picture import DIFFERENCE, draw

    found = difference(*(read_graph(path, lists=True) for path in (before, after)))
    if svg is not None:
        title = f"{before.name} and {after.name}"
        drawn = draw(found.picture(), title=title, styles=DIFFERENCE)
        write_file(svg, drawn, option="--svg")
    tell(
        found.to_json(), as_json=as_json, text=lambda: say_of_plan("graph_difference", found=found)
    )


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
            help="What is released: a noisy two-way table, which tells most; or one of the scores"
            " of Kusner et al. (2016)."
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
    from synthdp.release.graph_only import run_orientation

    with working():
        job, found = run_orientation(spec, (one, other), score=score, out=out, force=force)
    planned, delta, run = job.plan.epsilon_spent, job.plan.delta, job.folder.run
    cost: dict[str, Any] = {"epsilon_planned": planned, "epsilon_spent": job.spent.epsilon_spent}
    guess = ": no more than a guess" if found.probability < 0.8 else ""
    text = (
        f"{found.cause} -> {found.effect}: the scores without noise say the same with probability"
        f" {found.probability:.3f} ({found.score}){guess}\n"
        f"epsilon {up(planned)} at delta {delta:g}, run {run}"
    )
    tell(found, as_json=as_json, text=lambda: text, **cost, delta=delta, run=run)


def _run(
    spec: Path, mode: Literal["learn", "validate"], *, out: Path | None, force: bool, as_json: bool
) -> None:
    from synthdp.release.graph_only import run_graph

    with working():
        outcome = run_graph(spec, mode=mode, out=out, force=force)
    folder, refused = outcome.job.out, outcome.refused
    more: dict[str, Any] = {"folder": str(folder), "refused": refused is not None}
    tell(outcome, as_json=as_json, text=lambda: outcome_text(outcome), **more)
    if refused:
        privacy = outcome.job.spec.privacy
        spent = f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is spent"
        hint = f"{spent}, and another run pays again; see {folder / 'graph.json'}"
        raise GateError(refused.message, hint=hint)


# --- text ---


def graph_text(graph: CausalGraph) -> str:
    """All links in column order of their effects, aligned; then groups and unseen causes."""
    rank = {n: i for i, n in enumerate(graph.nodes)}
    links = sorted(
        (e for e in graph.edges if e.structural), key=lambda e: (rank[e.effect], rank[e.cause])
    )
    arrow = {True: "->", False: "--"}
    aligned = _aligned([(f"{e.cause} {arrow[e.directed]} {e.effect}", e.provenance) for e in links])
    # 20: pairs without an answer that a text names
    return say_of_plan("graph", graph=graph, links=aligned, most=20)


def validation_text(found: ValidationReport) -> str:
    """Every claim with its status, refuted ones first.

    Each line has the largest effect that was not excluded, and the smallest that its test could
    have detected.
    """
    from synthdp.graph.validation import validation_sentences

    order = ("refuted", "undecided", "supported")
    rows = []
    for f in sorted(found.findings, key=lambda f: order.index(f.status)):
        bounds = (f.answer.effect_upper, f.answer.detectable)
        upper, least = (f"{b:.3g}" if b < float("inf") else "any" for b in bounds)
        effect = f"effect {f.answer.effect:.3g}, at most {upper}, smallest detectable {least}"
        rows.append((f.status, str(f.claim), effect))
    counts = found.counts()
    head = [
        f"{kind}s: {', '.join(f'{n} {status}' for status, n in counts[kind].items())}"
        for kind in ("arrow", "independence")
    ]
    told = validation_sentences(found.to_json())
    return "\n".join([*head, *told, *_aligned(rows)])


def outcome_text(outcome: GraphOutcome) -> str:
    parts = [graph_text(outcome.graph)]
    parts += [validation_text(outcome.validation)] if outcome.validation else []
    cost = outcome.to_json()["privacy"]
    return "\n".join([*parts, say_of_plan("graph_cost", cost=cost, out=outcome.job.out)])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    padded = ((f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)
    return [f"  {'   '.join(cells).rstrip()}" for cells in padded]
