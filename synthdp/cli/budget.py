"""What each dataset has spent, against its cap: as facts, as text and as a picture.

The facts say on what it was spent, and by whom.

Reservations of a dataset add up (`ledger.ledger` has the proof), so that each begins where the one
before it ended: the picture is a waterfall. Everything here is public or the steward's own;
nothing comes out of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from synthdp.cli.text import render, table
from synthdp.drawing.svg import COOL, FAINT, HOT, INK, frame, label, line, shortened
from synthdp.errors import BudgetError, printable
from synthdp.ledger.entries import Entry
from synthdp.ledger.ledger import Ledger
from synthdp.spec.addresses import (
    from_folder,
    shown_address,
    shown_path,
    sqlite_address,
    sqlite_file,
)

Facts = Mapping[str, Any]

UNSTATED = "not stated"


# --- facts ---


def open_book(ledger: str) -> Ledger:
    """The ledger at a path or SQLAlchemy URL, its chain verified.

    A relative path starts from the working folder.

    Raises:
        BudgetError: there is no such ledger.
        VerifyError: it was tampered with; names the row.
    """
    address = (
        from_folder(ledger, Path.cwd())
        if "://" in ledger
        else sqlite_address(Path(ledger).absolute())
    )
    file = sqlite_file(address)
    if file is not None and not file.exists():
        raise BudgetError(
            f"no ledger at {shown_address(address) if '://' in ledger else shown_path(ledger)}",
            hint=(
                "the first release makes it, in .synthdp/ledger.db beside the spec; name another"
                " place with --ledger"
            ),
        )
    book = Ledger(address)
    book.verify_chain()
    return book


def budget_facts(book: Ledger, dataset: str | None) -> list[dict[str, Any]]:
    """Balances and runs by dataset, oldest run first.

    Raises:
        BudgetError: the ledger does not know `dataset`.
    """
    names = sorted({e.dataset for e in book.entries()})
    if dataset is not None and dataset not in names:
        raise BudgetError(
            f"the ledger knows no dataset {dataset!r}",
            hint=f"it knows {', '.join(names) or 'none'}",
        )
    return [_dataset_facts(book, name) for name in names if dataset in (None, name)]


def _dataset_facts(book: Ledger, name: str) -> dict[str, Any]:
    entries, balance = book.entries(dataset=name), book.balance(name)
    return {
        "dataset": name,
        "epsilon": balance.epsilon,
        "delta": balance.delta,
        "cap_epsilon": balance.cap_epsilon,
        "cap_delta": balance.cap_delta,
        "runs": [
            _run_facts(e, [other for other in entries if other.run == e.run])
            for e in entries
            if e.kind == "reserve"
        ],
        "units": sorted(
            {e.body["unit"] for e in entries if e.kind == "reserve" and "unit" in e.body}
        ),
    }


def _run_facts(reservation: Entry, own: Sequence[Entry]) -> dict[str, Any]:
    return {
        "run": reservation.run,
        "at": reservation.at,
        "by": reservation.body.get("by") or UNSTATED,
        "epsilon": reservation.body["epsilon"],
        "delta": reservation.body["delta"],
        "on": [e.body["purpose"] for e in own if e.kind == "charge"],
        "settled": any(e.kind == "settle" for e in own),
    }


# --- text ---


def budget_text(facts: Sequence[Facts]) -> str:
    """A table for each dataset: what every run took, and what all runs up to it took together."""
    return "\n\n".join(_dataset_text(data) for data in facts)


def _dataset_text(data: Facts) -> str:
    # What a steward wrote is escaped before rich would drop what cannot be seen of it.
    rows = [
        (
            _day(run),
            printable(_by(run)),
            f"{run['epsilon']:.4g}",
            f"{end:.4g}",
            run["run"],
            _state(run),
        )
        for run, end in zip(data["runs"], _ends(data)[1:], strict=True)
    ]
    left = _left(data)
    if left is not None:
        rows.append(("", "left", f"{left:.4g}", f"{data['cap_epsilon']:.4g}", "", ""))
    header = ("reserved", "by", "epsilon", "together", "run", "on")
    headline = (
        f"{data['dataset']}: epsilon {data['epsilon']:g} spent{_against(data)}; delta"
        f" {data['delta']:g}{_of(data['cap_delta'])}"
    )
    return "\n".join([headline, render(table(header, rows, numbers=[2, 3])), *_warnings(data)])


def _day(run: Facts) -> str:
    return str(run["at"][:10])


def _by(run: Facts) -> str:
    return shortened(run["by"], most=24)


def _who(run: Facts) -> str:
    return f"{_day(run)} {_by(run)}"


def _state(run: Facts) -> str:
    on = ", ".join(run["on"]) or "nothing yet"
    return f"{on} ({'settled' if run['settled'] else 'open: resume it, its budget is taken'})"


def _ends(data: Facts) -> list[float]:
    ends = [0.0]
    for run in data["runs"]:
        ends.append(ends[-1] + run["epsilon"])
    return ends


def _scale(data: Facts) -> float:
    return max(data["epsilon"], data["cap_epsilon"] or 0.0) or 1.0


def _left(data: Facts) -> float | None:
    return None if data["cap_epsilon"] is None else max(data["cap_epsilon"] - data["epsilon"], 0.0)


def _of(cap: float | None) -> str:
    return "" if cap is None else f" of {cap:g}"


def _against(data: Facts) -> str:
    return (
        ", no cap"
        if data["cap_epsilon"] is None
        else f", of {data['cap_epsilon']:g}, {_left(data):.4g} left"
    )


def _warnings(data: Facts) -> list[str]:
    found = []
    if len(data["units"]) > 1:
        found.append(
            f"warning: runs protect different units ({'; '.join(data['units'])}); their sum bounds"
            " only what all of them protect"
        )
    if data["cap_epsilon"] is not None and data["epsilon"] > data["cap_epsilon"] * (1 + 1e-9):
        found.append("warning: more is spent than the cap allows; the cap was lowered afterwards")
    return found


# --- picture ---

LEFT, WIDTH, ROW, RIGHT = 230, 420, 26, 330  # names, bars, one line, what for


def budget_svg(facts: Sequence[Facts]) -> str:
    """The waterfalls as one self-contained SVG."""
    body: list[str] = []
    y = 34.0
    for data in facts:
        drawn, y = _waterfall(data, y)
        body += drawn
        y += ROW
    spent = "; ".join(f"{d['dataset']}: epsilon {d['epsilon']:g} spent{_against(d)}" for d in facts)
    title = "Privacy budget: what was spent, on what, and by whom"
    return frame(
        body,
        name="budget",
        title=title,
        description=spent or "nothing was spent",
        width=LEFT + WIDTH + RIGHT,
        height=int(y),
    )


def _waterfall(data: Facts, y: float) -> tuple[list[str], float]:
    """Shapes of one dataset, from `y` down, and where they end."""
    unit = WIDTH / _scale(data)
    out = [
        label(
            14,
            y,
            f"{data['dataset']}: epsilon {data['epsilon']:g} spent{_against(data)}",
            size=15,
            bold=True,
        )
    ]
    top, left = y + 10, _left(data)
    for run, (start, end) in zip(data["runs"], pairwise(_ends(data)), strict=True):
        y += ROW
        colour, at = COOL if run["settled"] else FAINT, LEFT + end * unit
        purposes = ", ".join(run["on"]) or "nothing yet"
        still_open = "" if run["settled"] else " (open)"
        out += [
            label(LEFT - 10, y + 5, _who(run), anchor="end"),
            _box(LEFT + start * unit, y - 8, (end - start) * unit, colour),
            label(
                LEFT + WIDTH + 14,
                y + 5,
                shortened(f"{run['epsilon']:g}: {purposes}{still_open}", most=44),
            ),
        ]
        out += (
            [line(at, y - 8, at, y + ROW + 8, colour=FAINT, width=0.8)]
            if run is not data["runs"][-1] or left is not None
            else []
        )
    if left is not None:
        y, cap = y + ROW, LEFT + data["cap_epsilon"] * unit
        out += [
            label(LEFT - 10, y + 5, "left", anchor="end"),
            _box(LEFT + data["epsilon"] * unit, y - 8, left * unit, "none", edge=FAINT),
        ]
        out += [
            label(LEFT + WIDTH + 14, y + 5, f"{left:.4g}"),
            line(cap, top, cap, y + 14, colour=HOT, width=2),
        ]
        out.append(
            label(
                cap,
                y + 28,
                f"cap {data['cap_epsilon']:g}",
                anchor="middle",
                size=11,
                colour=HOT,
            )
        )
        y += 14
    for warning in _warnings(data):
        y += ROW
        out.append(label(14, y, shortened(warning, most=150), size=12, colour=HOT))
    return out, y + ROW


def _box(x: float, y: float, width: float, fill: str, *, edge: str = INK) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="16" fill="{fill}"'
        f' stroke="{edge}" stroke-width="0.6"/>'
    )
