"""The commands `plan` and `budget`, which read no row, and `release`, `resume`, `attack` and
`study`.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from synthdp.cli.options import Json, Out, SpecArgument, show, working, write_file
from synthdp.errors import BudgetError, OutputError, SpecError

if TYPE_CHECKING:
    from synthdp.api.drafts import Checked


def plan(
    spec: SpecArgument,
    what_if: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            help="Other epsilons, parted by commas, such as 0.5,1,2,4: what each of them would"
            " give.",
        ),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Run a release on simulated rows, and hold its answers and its table against"
            " them.",
        ),
    ] = False,
    goal: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="What would reach it, such as 'half-width 1.5': the epsilon, or the share of"
            " estimands, with which 95% intervals are that wide to either side.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show every spend, the ledger before and after, and the expected cost and quality; reads no
    rows, also where it rehearses.
    """
    from synthdp.api.release import check_plain
    from synthdp.api.spec import Spec, check_affordable

    epsilons = [] if what_if is None else _epsilons(what_if, "--what-if")
    half_width = None if goal is None else _half_width(goal)
    loaded = Spec.load(spec)
    if loaded.linked is not None:
        check_plain({"--what-if": what_if, "--rehearse": rehearse, "--for": goal})
    with working():
        planned, balance = loaded.planned(epsilons, rehearse=rehearse, half_width=half_width)
    show(planned, as_json=as_json)
    check_affordable(loaded, planned, balance)


def watch(
    spec: SpecArgument,
    what_if: Annotated[
        str | None,
        typer.Option("--what-if", help="Other epsilons to tell of, such as 0.5,1,2,4."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Tell it once, and fail where there are mistakes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a spec and tell what its release would come to, at once and after each save, until
    Ctrl-C: mistakes with line and column, warnings, and the plan. Reads no row, spends nothing.
    """
    from synthdp.api.drafts import check
    from synthdp.spec.load.loader import own_text

    epsilons, told, before = [] if what_if is None else _epsilons(what_if, "--what-if"), None, None
    while True:
        try:
            now = own_text(spec)
        except SpecError as error:
            now = str(error)
        if now != told and (once or now == before):  # an editor empties a file before it writes
            told, found = now, check(None, spec)
            head = "" if once else time.strftime("%H:%M:%S ")
            _tell(found, epsilons, head=head, as_json=as_json)
            if once:
                sys.exit(0 if found.spec else SpecError.exit_code)
        before = now
        time.sleep(0.25)


def _tell(found: Checked, epsilons: list[float], *, head: str, as_json: bool) -> None:
    """Print what a text shows, and the forecast where it is a spec."""
    from synthdp.api.drafts import forecast

    facts, told = forecast(found, epsilons)
    head += "no mistakes" if found.spec else "not a spec yet"
    lines = [head, str(found), told, "no row was read, nothing was spent"]
    text = "\n".join(filter(None, lines))
    show(found.to_json() | facts, as_json=as_json, indent=None, text=lambda: text)
    sys.stdout.flush()


def _epsilons(listed: str, option: str) -> list[float]:
    """The numbers of a list that an option has, parted by commas.

    Raises:
        OutputError: one is no number, or none that a spec may have.
    """
    from synthdp.release.what_if import check

    try:
        epsilons = list(map(float, listed.split(",")))
    except ValueError:
        raise OutputError(
            f"{option} {listed!r} is no list of numbers", hint="write it like 0.5,1,2,4"
        ) from None
    check(epsilons, option)
    return epsilons


def _half_width(goal: str) -> float:
    """The number of a goal.

    Raises:
        OutputError: it is none that can be planned for.
    """
    what, _, size = goal.strip().partition(" ")
    with suppress(ValueError):
        if what == "half-width" and 0 < float(size) < math.inf:
            return float(size)
    raise OutputError(
        f"--for {goal!r} is no goal",
        hint='write it like --for "half-width 1.5", in the unit of the estimands',
    )


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
            help="A published bundle whose entries must still be there, one of each run; may be"
            " repeated.",
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
    from synthdp.cli.budget import budget_facts, budget_svg, budget_text
    from synthdp.ledger.connect import open_book
    from synthdp.verify.at_hand import check_one_of_each_run, check_published, decided

    book = open_book(ledger)
    entries = book.entries()
    checked = {str(bundle): check_published(entries, bundle) for bundle in check or []}
    check_one_of_each_run(check or [])
    if set_cap is not None:
        if dataset is None:
            raise BudgetError("--set-cap needs a dataset id")
        book.set_cap(dataset, epsilon=set_cap[0], delta=set_cap[1])
    facts = budget_facts(book, dataset)
    if svg is not None:
        write_file(svg, budget_svg(facts), option="--svg")
    confirmed = [
        f"{bundle}: all {count} entries that it published are in the ledger;"
        f" {decided(Path(bundle), entries)}"
        for bundle, count in checked.items()
    ]
    found = {"datasets": facts, "checked": checked}
    show(found, as_json=as_json, text=lambda: "\n".join([budget_text(facts), *confirmed]))


Force = Annotated[
    bool, typer.Option("--force", help="Replace an existing bundle, or drop an interrupted run.")
]


def release(
    spec: SpecArgument,
    out: Out = None,
    force: Force = False,
    attack: Annotated[
        Literal["now", "later"] | None,
        typer.Option(
            "--attack",
            help="Run the attack now, or later by `synthdp attack`. Where neither this nor the spec"
            " says so, an attack that takes longer than the release is left out.",
        ),
    ] = None,
    accept_refusals: Annotated[
        bool,
        typer.Option(
            "--accept-refusals",
            help="Pay for estimands also where they are likely to be refused (see `plan`).",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a release: measure, train, sample, write the bundle, and judge it."""
    from synthdp.ledger.connect import budget_noted
    from synthdp.release import run
    from synthdp.spec.load.loader import linked_in, own_text

    with budget_noted():
        linked = linked_in(text := own_text(spec), path=str(spec))
    if linked is not None:
        from synthdp.api.release import check_plain
        from synthdp.release.linked import release_linked

        check_plain({"--accept-refusals": accept_refusals})
        with working():
            done = release_linked(linked, spec, text, out=out, force=force, attack=attack or "now")
        show(done, as_json=as_json)
        return
    with working():
        outcome = run.release(
            spec, text=text, out=out, force=force, attack=attack, accept_refusals=accept_refusals
        )
    show(outcome, as_json=as_json)
    outcome.check_passed()


def resume(
    out: Annotated[Path, typer.Argument(help="Output folder of the interrupted run.")],
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            help="Go on by this spec; it may differ in constraints, sampling and what else is done"
            " with released values.",
        ),
    ] = None,
    without: Annotated[
        Literal["attack"] | None,
        typer.Option("--without", help="Finish without the declared attack: `--without attack`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run without paying again."""
    from synthdp.ledger.connect import budget_noted
    from synthdp.release import run
    from synthdp.release.run_folder import kept_spec
    from synthdp.spec.load.loader import linked_in

    with budget_noted("nothing more was spent"):
        path, text = kept_spec(out)
        linked = linked_in(text, path=str(path))
    if linked is not None:
        from synthdp.api.release import check_plain
        from synthdp.release.linked import resume_linked

        check_plain({"--spec": spec})
        with working():
            done = resume_linked(linked, out, attack="now" if without is None else "never")
        show(done, as_json=as_json)
        return
    with working():
        outcome = run.resume(out, spec_path=spec, attack="now" if without is None else "never")
    show(outcome, as_json=as_json)
    outcome.check_passed()


def attack(
    out: Annotated[Path, typer.Argument(help="Output folder of a release with an attack put off.")],
    as_json: Json = False,
) -> None:
    """Run the attack that a release has put off: reads the rows again, spends nothing, and writes
    the internal report anew.
    """
    from synthdp.release.afterwards import check_waits

    with working():
        check_waits(out)
    resume(out, spec=None, without=None, as_json=as_json)


def study(
    spec: SpecArgument,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated",
            help="Draw rows from the spec instead of real ones: the result is public.",
        ),
    ] = False,
    epsilons: Annotated[
        str | None,
        typer.Option(
            "--epsilons",
            help="More epsilons, parted by commas, such as 0.1,1,10: what the rows are good for at"
            " each of them, with the graph and without.",
        ),
    ] = None,
    targets: Annotated[
        int, typer.Option("--targets", help="Units that are attacked, the most isolated.", min=1)
    ] = 1,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compare releases with the spec's graph and without one, under privacy and without: what
    attacks see, what models learn. Takes as long as several audits, spends no budget. On real rows
    the result is for the steward alone.
    """
    from synthdp.api.text import study_text
    from synthdp.release import study as room

    more = [] if epsilons is None else _epsilons(epsilons, "--epsilons")
    rows: Literal["simulated", "real"] = "simulated" if simulated else "real"
    with working():
        found, folder = room.study(spec, rows=rows, out=out, epsilons=more, targets=targets)
    facts = found.to_json() | {"folder": str(folder)}
    show(facts, as_json=as_json, text=lambda: study_text(found, folder))
