"""What each dataset has spent, on what and by whom, against its cap: as facts, text and a picture.

Reservations of a dataset add up, or count by a Gaussian filter (`ledger.ledger` and
`ledger.composition` have the proofs), so that each begins where the one before it ended: the
picture is a waterfall. Everything here is public or the steward's own; nothing comes out of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from synthdp.api.text import Rows, render
from synthdp.drawing import COOL, FAINT, HOT, INK, frame, label, line, shortened
from synthdp.errors import BudgetError, printable
from synthdp.ledger.composition import Wave
from synthdp.ledger.entries import Balance, Entry, balance_of_entries
from synthdp.ledger.ledger import Ledger
from synthdp.spec import addresses

Facts = Mapping[str, Any]


def shown_ledger(ledger: str) -> str:
    """A ledger's path or URL as a page may show it."""
    return addresses.shown_address(ledger) if "://" in ledger else addresses.shown_path(ledger)


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
    runs, units, reserved = list[dict[str, Any]](), set[str](), list[Entry]()
    for entry in entries:
        if entry.kind != "reserve":
            continue
        own = [other for other in entries if other.run == entry.run]
        reserved.append(entry)
        until = balance_of_entries(name, reserved)
        until = replace(until, cap_epsilon=balance.cap_epsilon, cap_delta=balance.cap_delta)
        runs.append(
            {
                "run": entry.run,
                "at": entry.at,
                "by": entry.body.get("by") or "not stated",
                "epsilon": entry.body["epsilon"],
                "delta": entry.body["delta"],
                "together": until.together,
                "on": [e.body["purpose"] for e in own if e.kind == "charge"],
                "settled": any(e.kind == "settle" for e in own),
            }
        )
        units |= {entry.body["unit"]} if "unit" in entry.body else set()
    return {
        "dataset": name,
        "epsilon": balance.epsilon,
        "delta": balance.delta,
        "cap_epsilon": balance.cap_epsilon,
        "cap_delta": balance.cap_delta,
        "together": balance.together,
        "rule": balance.rule,
        "room": _room(balance, reserved[-1].body) if reserved else None,
        "runs": runs,
        "units": sorted(units),
    }


def _room(balance: Balance, last: Mapping[str, Any]) -> int | None:
    """How many runs more like the `last` one the filter admits, up to 999; None where it is not the
    rule.
    """
    if not balance.mu or "mu" not in last:
        return None
    for runs in range(999):
        wave = Wave(f"to come: {runs}", balance.most)  # of a series, each of another wave
        bound = last["mu"], last["lost"]
        balance = balance.after(last["epsilon"], last["delta"], bound, wave)
        if balance.over:
            return runs
    return 999


def budget_text(facts: Sequence[Facts]) -> str:
    """A table for each dataset: what every run took, and what all runs up to it took together."""
    return "\n\n".join(map(_dataset_text, facts))


def _dataset_text(data: Facts) -> str:
    rows = []
    for run, end in zip(data["runs"], _ends(data)[1:], strict=True):
        state = "settled" if run["settled"] else "open: resume it, its budget is taken"
        on = f"{', '.join(run['on']) or 'nothing yet'} ({state})"
        # What a steward wrote is escaped before rich would drop what cannot be seen of it.
        by = printable(shortened(run["by"], most=24))
        epsilon, together = f"{run['epsilon']:.4g}", f"{end:.4g}"
        rows.append((run["at"][:10], by, epsilon, together, run["run"], on))
    if (left := _left(data)) is not None:
        rows.append(("", "left", f"{left:.4g}", f"{data['cap_epsilon']:.4g}", "", ""))
    header = ("reserved", "by", "epsilon", "together", "run", "on")
    cap = "" if data["cap_delta"] is None else f" of {data['cap_delta']:g}, by addition"
    headline = f"{_headline(data)}; delta {data['delta']:g}{cap}"
    if data["room"] is not None:
        more = "999 or more" if data["room"] == 999 else data["room"]
        headline = (
            f"{_headline(data)}, by {data['rule']} at delta {data['cap_delta']:g};"
            f" epsilons add up to {data['epsilon']:g}; room for {more} more like the last"
        )
    return "\n".join([headline, render(Rows(header, rows, numbers=[2, 3])), *_warnings(data)])


def _headline(data: Facts) -> str:
    left = _left(data)
    cap = ", no cap" if left is None else f", of {data['cap_epsilon']:g}, {left:.4g} left"
    return f"{data['dataset']}: epsilon {data['together']:.4g} spent{cap}"


def _ends(data: Facts) -> list[float]:
    return [0.0, *(run["together"] for run in data["runs"])]


def _left(data: Facts) -> float | None:
    return None if data["cap_epsilon"] is None else max(data["cap_epsilon"] - data["together"], 0.0)


def _warnings(data: Facts) -> list[str]:
    found = []
    if len(data["units"]) > 1:
        found.append(
            f"warning: runs protect different units ({'; '.join(data['units'])}); their sum bounds"
            " only what all of them protect"
        )
    if data["cap_epsilon"] is not None and data["together"] > data["cap_epsilon"] * (1 + 1e-9):
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
    return frame(
        body,
        name="budget",
        title="Privacy budget: what was spent, on what, and by whom",
        description="; ".join(map(_headline, facts)) or "nothing was spent",
        width=LEFT + WIDTH + RIGHT,
        height=int(y),
    )


def _waterfall(data: Facts, y: float) -> tuple[list[str], float]:
    unit = WIDTH / (max(data["together"], data["cap_epsilon"] or 0.0) or 1.0)
    out = [label(14, y, _headline(data), size=15, bold=True)]
    top, left = y + 10, _left(data)

    def row(name: str, start: float, length: float, fill: str, edge: str, told: str) -> None:
        out.append(label(LEFT - 10, y + 5, name, anchor="end"))
        out.append(
            f'<rect x="{LEFT + start * unit:.1f}" y="{y - 8:.1f}"'
            f' width="{max(length * unit, 1):.1f}" height="16" fill="{fill}" stroke="{edge}"'
            ' stroke-width="0.6"/>'
        )
        out.append(label(LEFT + WIDTH + 14, y + 5, told))

    for run, (start, end) in zip(data["runs"], pairwise(_ends(data)), strict=True):
        y += ROW
        what = ", ".join(run["on"]) or "nothing yet"
        told = f"{run['epsilon']:g}: {what}{'' if run['settled'] else ' (open)'}"
        who = f"{run['at'][:10]} {shortened(run['by'], most=24)}"
        fill = COOL if run["settled"] else FAINT
        row(who, start, end - start, fill, INK, shortened(told, most=44))
        if run is not data["runs"][-1] or left is not None:
            at = LEFT + end * unit
            out.append(line(at, y - 8, at, y + ROW + 8, colour=FAINT, width=0.8))
    if left is not None:
        y, cap = y + ROW, LEFT + data["cap_epsilon"] * unit
        row("left", data["together"], left, "none", FAINT, f"{left:.4g}")
        out.append(line(cap, top, cap, y + 14, colour=HOT, width=2))
        named = f"cap {data['cap_epsilon']:g}"
        out.append(label(cap, y + 28, named, anchor="middle", size=11, colour=HOT))
        y += 14
    for warning in _warnings(data):
        y += ROW
        out.append(label(14, y, shortened(warning, most=150), size=12, colour=HOT))
    return out, y + ROW
