"""`synthdp init --private`: its options, and what it shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthdp.cli.options import say, show
from synthdp.spec.wording import up

if TYPE_CHECKING:
    from synthdp.release.private_init import PrivateInit
    from synthdp.spec.init.private_draft import FoundColumn, Request
    from synthdp.spec.init.questions import Ask


@dataclass(frozen=True)
class Options:
    """The options of the command, as they were given."""

    csv: Path | None
    out: Path
    rows: int | None
    epsilon: float
    delta: float | None
    cap: tuple[float, float] | None
    ledger: str | None
    dataset: str | None
    unit: str | None
    meaning: str | None
    decimal: str | None


def run_private(options: Options, *, ask: Ask | None, force: bool, as_json: bool) -> None:
    """Find the columns, write the draft, and show what was found."""
    from synthdp.cli.progress_bar import ProgressDisplay
    from synthdp.progress import Reporter
    from synthdp.release.private_init import private_init
    from synthdp.spec.init.kept_answers import KeptAnswers, with_back

    if ask is None:
        csv, request = request_of(options, None)
    else:
        kept = KeptAnswers(ask, options.out.with_name(f"{options.out.name}.answers"))
        csv, request = with_back(kept, lambda: request_of(options, kept))
        kept.forget()
    with ProgressDisplay() as display:
        found = private_init(request, csv, options.out, force=force, reporter=Reporter(display))
    facts = {"file": str(options.out)} | found.to_json()
    show(facts, as_json=as_json, text=lambda: found_text(found))
    say(f"wrote {options.out}; read it, then run `synthdp plan {options.out}`", err=True)


def request_of(options: Options, ask: Ask | None) -> tuple[Path, Request]:
    """The file, and what is asked for; what is missing is asked, or refused.

    Raises:
        BudgetError: there is no cap.
        OutputError: another option is missing or not allowed; nothing was spent.
        DataError: the file has no usable header.
    """
    from synthdp.errors import BudgetError, OutputError
    from synthdp.spec.checks.budget import suggested_delta
    from synthdp.spec.init.header import read_header
    from synthdp.spec.init.private_draft import Request
    from synthdp.spec.init.questions import ask_decimal, ask_rows, ask_unit
    from synthdp.spec.init.writing import slug_of

    csv = options.csv
    if csv is None:
        raise OutputError("no table to look at", hint="give a CSV file")
    if options.cap is None:
        raise BudgetError(
            "--private spends a budget, and there is no cap for what this dataset may spend in all",
            hint=(
                "agree on one with the data's owner, and give --cap EPSILON DELTA; nothing was"
                " spent"
            ),
        )
    header = read_header(csv, decimal=options.decimal)
    names = header.names
    if header.kind != "csv":
        raise OutputError(
            "--private reads CSV files alone",
            hint="save the table as CSV in UTF-8; nothing was spent",
        )
    if header.decimal_unknown and ask:
        header = read_header(csv, decimal=ask_decimal(ask))
    elif header.decimal_unknown:
        raise _missing("--decimal", "what stands before decimals, . or , as semicolons part fields")
    if options.unit is None and ask:
        unit = ask_unit(ask, names)
    else:
        unit = _unit(options, names)
    if options.rows is None and ask:
        rows = ask_rows(ask, unit)
    elif options.rows is None:
        raise _missing("--rows", "the number of rows, as a constant that may be published")
    else:
        rows = {"kind": "approximate", "value": options.rows}
    usual = float(suggested_delta(int(rows["value"]))) / 10
    return csv, Request(
        path=Path(os.path.relpath(csv, options.out.parent)),
        header=header,
        columns=tuple(name for name in names if name != unit.get("column")),
        dataset=options.dataset or slug_of(csv),
        unit=unit,
        rows=rows,
        epsilon=options.epsilon,
        delta=float(f"{usual:g}") if options.delta is None else options.delta,
        cap=options.cap,
        ledger=options.ledger,
    )


def _unit(options: Options, names: tuple[str, ...]) -> dict[str, Any]:
    """The `privacy_unit` section from --unit and --meaning."""
    from synthdp.errors import OutputError

    if options.unit is None:
        raise _missing("--unit", "row, or COLUMN:MAX_ROWS for everything of one id")
    if not options.meaning:
        raise _missing("--meaning", 'what one unit is, e.g. "one person"')
    if options.unit == "row":
        return {"kind": "row", "meaning": options.meaning}
    column, _, most = options.unit.rpartition(":")
    if column not in names or not most.isdecimal():
        raise OutputError(
            f"--unit {options.unit}: is neither row nor COLUMN:MAX_ROWS",
            hint=f"columns: {', '.join(names)}; nothing was spent",
        )
    return {"kind": "id", "column": column, "max_rows": int(most), "meaning": options.meaning}


def _missing(option: str, what: str) -> Exception:
    from synthdp.errors import OutputError

    return OutputError(
        f"--private needs {option}", hint=f"give {option}: {what}; nothing was spent"
    )


def found_text(found: PrivateInit) -> str:
    """What was found, as text."""
    from synthdp.cli.text import render, table

    privacy, header = found.job.spec.privacy, ["column", "type", "found", "expected loss", "+-"]
    rows = [_row(column) for column in found.columns]
    return render(
        table(header, rows, numbers=[3, 4]),
        "(found under differential privacy: expected losses are shares of rows, and have errors)",
        f"epsilon {up(found.job.plan.epsilon_spent)} of {privacy.epsilon:g}, at delta"
        f" {privacy.delta:g}, run {found.job.folder.run}",
        f"releases of {found.job.spec.dataset.id} come on top, under the same cap",
    )


def _row(column: FoundColumn) -> list[str]:
    kind, missing = str(column.entry["type"]), column.entry.get("missing")
    return [
        column.name,
        kind,
        column.found + ("; may be missing" if missing else ""),
        f"{100 * column.lost:.1f}%",
        f"{100 * column.error:.1f}%",
    ]
