"""The index of a folder of releases: one self-contained HTML page, without script or network.

Its content are texts, most of which were read from bundles that anyone may have made. The template
escapes each of them; characters that would turn the reading direction, or cannot be seen, are
written as escapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from synthdp.errors import printable
from synthdp.report.prose import template
from synthdp.report.sections import ReportTable
from synthdp.report.verdicts import State, Verdict
from synthdp.spec.load.wording import many

MARK = '<meta name="generator" content="synthdp index">'


@dataclass(frozen=True, kw_only=True)
class IndexedBundle:
    """One line of the page. `checked` is good, bad or plain, as `checks` says why.

    `links` are texts and addresses relative to the page, percent-encoded.
    """

    place: str
    day: str
    run: str
    rows: str
    epsilon: str
    scores: str
    gates: str
    signed: str
    decision: str
    checked: str
    checks: str
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class IndexedDifference:
    """A bundle compared with the one of the same dataset before it."""

    summary: str
    table: ReportTable


@dataclass(frozen=True, kw_only=True)
class IndexedDataset:
    """The bundles of one dataset, oldest first; `without` are runs that have no bundle here."""

    name: str
    title: str
    budget: str
    over: bool
    bundles: tuple[IndexedBundle, ...]
    differences: tuple[IndexedDifference, ...]
    without: ReportTable | None


@dataclass(frozen=True, kw_only=True)
class IndexContent:
    """Everything the page shows. `damaged` are places that look like bundles, and reasons."""

    folder: str
    made: str
    verified: bool
    ledger: str
    datasets: tuple[IndexedDataset, ...]
    damaged: tuple[tuple[str, tuple[str, ...]], ...]


def render_index(content: IndexContent) -> str:
    """The page as HTML text."""
    page: str = template("index.html.j2").render(
        content=content, verdicts=_cards(content), mark=MARK, seen=printable, numbers_file=""
    )
    return page


def _cards(content: IndexContent) -> list[Verdict]:
    bundles = [b for dataset in content.datasets for b in dataset.bundles]
    wrong = len(content.damaged) + sum(b.checked == "bad" for b in bundles)
    signed = sum(b.signed != "unsigned" for b in bundles)
    found = len(bundles) + len(content.damaged)
    state: State = "unknown"
    how = "nothing was verified: not all damage would be seen"
    if content.verified:
        how, state = "each was verified when this page was made", "good" if found else "unknown"
    state, signatures = "bad" if wrong else state, f"{signed} of {len(bundles)}"
    return [
        Verdict("Bundles", f"{found}", f"of {many(len(content.datasets), 'dataset')}"),
        Verdict("Damaged or refuted", f"{wrong} of {found}", how, state),
        Verdict("State a signature", signatures, "the others prove no publisher"),
    ]


def shown(value: Any) -> str:
    """A value of a comparison as text: numbers of four digits.

    >>> shown(None), shown(3), shown(0.99934)
    ('-', '3', '0.9993')
    """
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
