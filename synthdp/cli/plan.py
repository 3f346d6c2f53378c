"""The command `plan`, and what it says of other budgets; it reads no row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from synthdp.cli.options import Json, SpecArgument, show

WhatIf = Annotated[
    str | None,
    typer.Option(
        "--what-if",
        help="Other epsilons, parted by commas, such as 0.5,1,2,4: what each of them would give.",
    ),
]


def plan(spec: SpecArgument, what_if: WhatIf = None, as_json: Json = False) -> None:
    """Show every spend, the ledger before and after, and the expected cost and quality; reads no
    rows.
    """
    from synthdp.ledger.connect import (
        balance_of,
        check_affordable,
        entries_of,
        other_ids,
    )
    from synthdp.ledger.domain_search import check_domain_from
    from synthdp.release.plan_view import plan_facts
    from synthdp.spec.load.loader import load_spec
    from synthdp.verify.at_hand import check_nearby

    epsilons = None if what_if is None else _epsilons(what_if)
    loaded = load_spec(spec)
    entries, balance = entries_of(loaded, spec), balance_of(loaded, spec)
    check_nearby(entries, loaded.dataset.id, Path("releases") / loaded.dataset.id)
    check_domain_from(loaded, entries)
    warnings = other_ids(loaded, entries)
    facts = plan_facts(loaded, balance, warnings=warnings)
    if epsilons is not None:
        facts |= {"what_if": _what_if(spec, epsilons)}
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
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.what_if import what_if
    from synthdp.spec.load.loader import spec_text

    with ProgressDisplay() as display, Reporter(display).stage("what if") as progress:
        return what_if(spec_text(spec), epsilons, progress=progress)


def _text(facts: Mapping[str, Any]) -> str:
    from synthdp.cli.text import plan_text, render, table

    planned = plan_text(facts)
    if "what_if" not in facts:
        return planned
    from synthdp.release.what_if import figures_table

    header, rows = figures_table(facts["what_if"])
    numbers = range(1, len(header))
    return f"{planned}\n\n{render(table('', header, rows, numbers=numbers))}"
