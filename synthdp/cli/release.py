"""`synthdp release`, `resume` and `attack`: a run from its spec to its bundle, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from synthdp.cli.options import Json, Out, SpecArgument, show

Force = Annotated[
    bool, typer.Option("--force", help="Replace an existing bundle, or drop an interrupted run.")
]


def release(
    spec: SpecArgument,
    out: Out = None,
    force: Force = False,
    attack: Annotated[
        Literal["now", "later"],
        typer.Option("--attack", help="Run the declared attack now, or later by `synthdp attack`."),
    ] = "now",
    as_json: Json = False,
) -> None:
    """Run a release: measure, train, sample, write the bundle, and judge it."""
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.run import release as run_release

    with ProgressDisplay() as display:
        outcome = run_release(spec, out=out, force=force, reporter=Reporter(display), attack=attack)
    _finish(outcome, as_json=as_json)


def resume(
    out: Annotated[Path, typer.Argument(help="Output folder of the interrupted run.")],
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            help=(
                "Go on by this spec; it may differ in constraints, sampling and what else is done"
                " with released values."
            ),
        ),
    ] = None,
    without: Annotated[
        Literal["attack"] | None,
        typer.Option("--without", help="Finish without the declared attack: `--without attack`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run without paying again."""
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.run import resume as resume_run

    with ProgressDisplay() as display:
        outcome = resume_run(
            out,
            spec_path=spec,
            reporter=Reporter(display),
            attack="now" if without is None else "never",
        )
    _finish(outcome, as_json=as_json)


def attack(
    out: Annotated[Path, typer.Argument(help="Output folder of a release with an attack put off.")],
    as_json: Json = False,
) -> None:
    """Run the attack that a release has put off: reads the rows again, spends nothing, and writes
    the internal report anew.
    """
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.run import run_attack

    with ProgressDisplay() as display:
        outcome = run_attack(out, reporter=Reporter(display))
    _finish(outcome, as_json=as_json)


def _finish(outcome: Any, *, as_json: bool) -> None:
    from synthdp.cli.text import outcome_facts, outcome_text

    facts = outcome_facts(outcome)
    show(facts, as_json=as_json, text=lambda: outcome_text(outcome))
    outcome.check_passed()
