"""`python tests/dashboard.py FIGURES PAGE`: what the tests measured, as a table in the terminal and
a Markdown page.

FIGURES holds a JSON object a line, as the fixture `figure` writes them. Every figure of `EXPECTED`
has a line on
the dashboard: what is missing is 'not run', and makes the exit status 1. Figures of one name (a
parametrised test) are added up.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

OTHERS = "Others"
FILE_WIDTH = 240  # of what goes to a log: a command on one line
EXPECTED: dict[str, tuple[str, ...]] = {
    "Replay on neighbours": (
        "mechanisms replayed",
        "neighbour pairs replayed",
        "correct configurations without an alarm",
        "planted bugs caught by the replay",
        "pairs of values read without a change",
        "readers of whole columns caught by pairs of values",
        "releases on neighbouring tables that are the same to the byte",
        "planted leaks past the mechanisms that show in the bytes",
    ),
    "Audits": (
        "audits of the true kernel without an alarm",
        "audits whose lower bound is at most the claim",
        "audits: noise/2 detected at 5000 runs",
        "audits: batches of fixed size detected at 5000 runs",
        "mechanisms and epsilons where noise/2 is detected with 95% at 5000 runs",
        "simulated audits of a true claim without an alarm",
        "simulated audits whose lower bound is at most the truth",
    ),
    "Canaries": (
        "canaries: one-run audits of true noise whose lower bound is at most the claim",
        "canaries: one-run audits that detect noise/2, 5000 canaries",
        "canaries: simulated audits of true noise without an alarm",
        "canaries: simulated audits whose lower bound is at most the claim",
    ),
    "Ledger under fire": (
        "kill -9 during a release: points (distinct of all)",
        "kill -9 during a release: spends lost",
        "kill -9 during a release: spends counted twice",
        "kill -9 during a release: runs finished under their own reservation",
        "one run killed over and over: spends counted twice",
        "postgresql: charges kept through a crash of the server",
        "disk full during a release, ledger on the full disk: finished under one reservation",
        "plays of kills, copies and races that passed a cap's filter",
        "releases of Adult at epsilon 1 that fit a cap of 3, by two specs",
        "series of waves in which somebody lost more than the cap",
        "disk full during a release, ledger elsewhere: finished under one reservation",
        "ledger: tampering seen and its row named",
        *(
            f"copied, set back and started twice, ledger on {kind}: plays in which a purpose was"
            " looked at twice"
            for kind in ("sqlite", "postgresql")
        ),
    ),
    "Races": tuple(
        f"ledger on {kind}: {what}"
        for kind in ("sqlite", "postgresql")
        for what in (
            "releases that fitted the cap and won",
            "releases beyond the cap that were let in",
            "racers deadlocked or failed",
        )
    ),
    "Malicious input": (
        "bad inputs refused with the declared error",
        "fuzzed inputs without a crash",
    ),
    "Causal consistency": (
        "graphs whose decoder has no slope outside of a column's parents",
        "implied independences that hold in samples",
        "networks whose interventions do() reproduces",
    ),
    "Accountant": ("accountant grid: cells within bounds",),
    "Noise": ("noise fits: true scale accepted", "noise fits: 0.9x and 1.1x rejected"),
    "Graph search": (
        "networks whose equivalence class PC finds with perfect answers",
        "dependent pairs found in the published simulation",
        "independent pairs kept in the published simulation",
        *(
            f"{algorithm} on {network}, epsilon 1: mean F1 of arcs, 5 samples"
            for network in ("earthquake", "asia", "sachs")
            for algorithm in ("priv_pc", "svt_pc", "em_pc")
        ),
    ),
    "Rank statistics": (
        *(
            f"{what}: neighbours replayed, {rows} rows, {adjacency}"
            for rows, adjacency in ((1, "add_remove"), (3, "add_remove"), (1, "replace_one"))
            for what in ("SparseVector", "Selection")
        ),
        *(
            f"neighbours of small tables within {statistic}'s bounds"
            for statistic in ("kendall", "spearman")
        ),
        *(
            f"{statistic}: largest part of the score's bound that a search reached"
            for statistic in ("kendall", "spearman")
        ),
    ),
    "Membership attacks": (
        "a full bootstrap: least advantage of three games",
        *(f"CART with leaves of {leaf}: least AUC of three games" for leaf in (1, 5)),
        "white box of a VAE without privacy: AUC of the ELBO",
        "white and black boxes of a release at epsilon 1: intervals that contain 0",
        "noisy tables of a release at epsilon 1: upper limit of the advantage, of its ceiling",
        "black box: intervals that contain 0 where rows are ignored",
        "black box: true claims not refuted",
        "black box: controls at chance",
        "black box: intervals above 0 on a full bootstrap",
        "black box: false claims of a full bootstrap refuted",
        "exact ratio of noisy tables: true claims not refuted",
        "exact ratio of noisy tables: three tenths of the noise, refuted",
        *(
            f"{ratio}: {world}"
            for ratio in ("lira_online", "lira_offline")
            for world in (
                "without the target, intervals that contain 0",
                "power against mu = 1, intervals that exclude 0",
            )
        ),
    ),
    "Published bounds that do not hold": (
        "conditional Kendall, n times the largest move found (published bound 4.5)",
        "move of a published p-value over its claimed sensitivity, one row of 50,000",
        "privacy loss of a sieve that is published as free",
    ),
    "Broken kernels": ("broken kernels caught in the right place",),
}


@dataclass
class Row:
    """One figure: `value` of `of`, or neither where it was not run."""

    topic: str
    name: str
    value: float | None = None
    of: float = 0.0
    date: str = ""
    command: str = ""

    def measured(self, over: str) -> str:
        """Numerator and denominator."""
        return "not run" if self.value is None else f"{self.value:g}{over}{self.of:g}"


def collect(lines: list[str]) -> list[Row]:
    """A row for each figure that was expected or written, by topic."""
    rows = {name: Row(topic, name) for topic, names in EXPECTED.items() for name in names}
    for line in lines:
        found = json.loads(line)
        row = rows.setdefault(found["figure"], Row(OTHERS, found["figure"]))
        row.value, row.of = (row.value or 0.0) + found["value"], row.of + found["of"]
        row.date, row.command = found["date"], found["command"]
    return list(rows.values())


def table(rows: list[Row]) -> Table:
    """For the terminal."""
    made = Table("figure", "measured", "date", title="Dashboard")
    made.add_column("command", overflow="fold")
    for topic in dict.fromkeys(row.topic for row in rows):
        made.add_section()
        made.add_row(f"[bold]{topic}[/bold]")
        for row in rows:
            if row.topic == topic:
                cells = (row.name, row.measured(" / "), row.date, row.command)
                made.add_row(*map(escape, cells), style="red" if row.value is None else None)
    return made


def page(rows: list[Row]) -> str:
    """As Markdown."""
    text = [
        "# Dashboard\n",
        "What the suites measured, written by `make slow`: numerator/denominator, when, and where.",
        "`pytest -m figure FILE` measures those of a file again.",
    ]
    for topic in dict.fromkeys(row.topic for row in rows):
        own = [row for row in rows if row.topic == topic]
        files = {file: 0 for row in own for file in re.findall(r"tests/[^: ]+", row.command)}
        dates = sorted({row.date for row in own if row.date})
        where = ", ".join(
            [" to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])), *map(_code, files)]
        )
        text += [f"\n## {topic}\n", *([f"{where}\n"] if files else []), *_told(own)]
    return "\n".join(text) + "\n"


def _code(text: str) -> str:
    return f"`{text}`"


def _told(rows: list[Row]) -> Iterator[str]:
    """Figures, one an item; those that are named alike before or after a colon share one."""
    values = {row.name: f"**{row.measured('/')}**" for row in rows}
    tails: dict[str, tuple[str, ...]] = {}
    for name in values:
        head, _, tail = name.partition(": ")
        tails[head] = (*tails.get(head, ()), tail)
    for shared in dict.fromkeys(tails.values()):
        heads = [head for head, own in tails.items() if own == shared]
        if len(heads) > 1 and shared != ("",):
            cells = (", ".join(values[f"{head}: {tail}"] for tail in shared) for head in heads)
            told = "; ".join(f"{head} {cell}" for head, cell in zip(heads, cells, strict=True))
            yield f"- {' / '.join(shared)}: {told}"
            continue
        for head in heads:
            names = [f"{head}: {tail}" if tail else head for tail in shared]
            told = "; ".join(f"{t} {values[n]}".strip() for t, n in zip(shared, names, strict=True))
            yield f"- {head}: {told}" if shared[0] else f"- {head} {told}"


def main(figures: Path, out: Path) -> int:
    """Print the table, write the page; 1 where a figure is missing."""
    rows = collect(figures.read_text(encoding="utf-8").splitlines() if figures.exists() else [])
    console = Console()
    Console(width=None if console.is_terminal else FILE_WIDTH).print(table(rows))
    out.write_text(page(rows), encoding="utf-8")
    return int(any(row.value is None for row in rows))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
