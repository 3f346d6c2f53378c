"""The command `plan`, and what it says of other budgets; it reads no row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from synthdp.cli.options import Json, Out, SpecArgument, show

if TYPE_CHECKING:
    from synthdp.spec.model import ReleaseSpec


WhatIf = Annotated[
    str | None,
    typer.Option(
        "--what-if",
        help="Other epsilons, parted by commas, such as 0.5,1,2,4: what each of them would give.",
    ),
]


Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Run a release on simulated rows, and hold its answers and its table against them.",
    ),
]


def plan(
    spec: SpecArgument, what_if: WhatIf = None, rehearse: Rehearse = False, as_json: Json = False
) -> None:
    """Show every spend, the ledger before and after, and the expected cost and quality; reads no
    rows, also where it rehearses.
    """
    from synthdp.cli.options import ProgressDisplay
    from synthdp.ledger.connect import (
        balance_of,
        check_affordable,
        check_domain_from,
        entries_of,
        other_ids,
    )
    from synthdp.release.plan_view import plan_facts
    from synthdp.spec.load.loader import load_spec
    from synthdp.verify.at_hand import check_nearby

    epsilons = None if what_if is None else _epsilons(what_if)
    loaded = load_spec(spec, lists=True)
    entries, balance = entries_of(loaded, spec), balance_of(loaded, spec)
    check_nearby(entries, loaded.dataset.id, Path("releases") / loaded.dataset.id)
    check_domain_from(loaded, entries)
    warnings = other_ids(loaded, entries)
    with ProgressDisplay():
        facts = plan_facts(loaded, balance, warnings=warnings)
    if epsilons is not None:
        facts |= {"what_if": _what_if(spec, epsilons)}
    if rehearse:
        facts |= {"rehearsal": _rehearsal(loaded)}
    show(facts, as_json=as_json, text=lambda: _text(facts))
    check_affordable(loaded, balance)


def _epsilons(listed: str) -> list[float]:
    """The numbers of a list, parted by commas.

    Raises:
        OutputError: one is no number, or none that a spec may have.
    """
    from synthdp.errors import OutputError
    from synthdp.release.what_if import check

    try:
        epsilons = [float(part) for part in listed.split(",")]
    except ValueError:
        raise OutputError(
            f"--what-if {listed!r} is no list of numbers", hint="write it like 0.5,1,2,4"
        ) from None
    check(epsilons)
    return epsilons


def _what_if(spec: Path, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.what_if import what_if
    from synthdp.spec.load.loader import own_text

    with ProgressDisplay() as display, Reporter(display).stage("what if") as progress:
        return what_if(own_text(spec), epsilons, progress=progress)


def _rehearsal(loaded: ReleaseSpec) -> dict[str, Any]:
    from synthdp.cli.options import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.rehearse import rehearse

    with ProgressDisplay() as display, Reporter(display).stage("rehearse") as progress:
        return rehearse(loaded, progress=progress)


def _text(facts: Mapping[str, Any]) -> str:
    from synthdp.cli.text import plan_text, render, table

    parts: list[object] = [plan_text(facts)]
    if "what_if" in facts:
        from synthdp.release.what_if import figures_table

        header, rows = figures_table(facts["what_if"])
        parts += ["", table(header, rows, numbers=range(1, len(header)))]
    if "rehearsal" in facts:
        parts += ["", *_rehearsal_parts(facts["rehearsal"])]
    return "\n".join(map(render, parts))


def _rehearsal_parts(facts: Mapping[str, Any]) -> list[object]:
    from synthdp.cli.text import table

    head = f"rehearsal on {facts['rows']:,} simulated rows"
    if "refused" in facts:
        return [f"{head}: {facts['refused']}"]
    pairs = "" if facts["tv2"] is None else f", two-way tables {facts['tv2']:.2g}"
    rows = [
        (a["kind"], *(f"{a[key]}" for key in ("asked", "answered")), *_errors(a), f"{a['covered']}")
        for a in facts["answers"]
    ]
    header = ["answers", "asked", "answered", "bias", "error", "intervals that hold the truth"]
    counts = (f"{n:.0f} {kind.replace('_', ' ')}" for kind, n in facts["graph"].items())
    return [
        f"{head}: the released ones are off by {facts['tv1']:.2g} in single columns{pairs} (total"
        " variation)",
        f"its graph: {', '.join(counts) or 'no arrows'}",
        table(header, rows, numbers=range(1, len(header))),
        "(bias and error in shares of rows, of means in shares of the range; intervals of 95%)",
        *_estimands_part(facts["estimands"]),
    ]


def _estimands_part(figures: Sequence[Mapping[str, Any]]) -> list[object]:
    """What the spec pays for, on the simulated rows, over many draws of its noise."""
    from synthdp.cli.text import table
    from synthdp.inference.words import shown

    if not figures:
        return []
    rows = []
    for figure in figures:
        name = f"{figure['text']}: {figure['group']}" if figure["group"] else figure["text"]
        told = (figure[key] for key in ("truth", "bias", "width"))
        truth, bias, width = (
            "-" if value is None else shown(figure["statistic"], value) for value in told
        )
        covered = "-" if figure["covered"] is None else f"{figure['covered']:.0%}"
        rows.append((name, truth, bias, width, covered, f"{figure['answered']:.0%}"))
    header = ["estimands", "truth", "bias", "width", "intervals that hold it", "answered"]
    return [
        "",
        table(header, rows, numbers=range(1, len(header))),
        "(over draws of the noise; width of the whole 95% interval, with the sampling of the rows)",
    ]


def _errors(answers: Mapping[str, Any]) -> list[str]:
    return ["-" if answers[key] is None else f"{answers[key]:.2g}" for key in ("bias", "error")]


# --- release ---
#
# `synthdp release`, `resume` and `attack`: a run from its spec to its bundle, and what follows.


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
    from synthdp.cli.options import ProgressDisplay
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
    from synthdp.cli.options import ProgressDisplay
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
    from synthdp.cli.options import ProgressDisplay
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
