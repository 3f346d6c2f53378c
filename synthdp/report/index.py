"""The index of a folder of releases: one self-contained HTML page, without script or network.

Its content are texts, most of which were read from bundles that anyone may have made. The template
escapes each of them; characters that would turn the reading direction, or cannot be seen, are
written as escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """One release. `checked` is good, bad or plain, as `checks` says why.

    `links` are texts and addresses relative to the page, percent-encoded. `verdicts` are those of
    its public report. `differs` is how it differs from the bundle before it, and `difference` every
    figure of that.
    """

    place: str
    day: str
    run: str
    rows: str
    gates: tuple[str, ...]
    signed: str
    decision: str
    checked: State
    checks: str
    links: tuple[tuple[str, str], ...]
    verdicts: tuple[Verdict, ...]
    differs: tuple[str, ...] = ()
    difference: ReportTable | None = None

    def lines(self) -> Iterator[Verdict]:
        """What is told of it, in the order of the page."""
        no = self.decision.startswith("decided") and not self.decision.startswith("decided: yes")
        by_noise = any("noise decided" in gate for gate in self.gates)
        yield Verdict("Decision", self.decision, "", "bad" if no else "plain")
        gates = "\n".join(self.gates) or "none declared"
        yield Verdict("Gates", gates, "", "fair" if by_noise else "plain")
        yield Verdict("Verification", self.checks, "", self.checked)
        yield Verdict("Signature", self.signed, "")
        yield Verdict("Rows", self.rows, "")
        yield Verdict("Since the one before", "\n".join(self.differs) or "-", "")
        yield from self.verdicts


@dataclass(frozen=True, kw_only=True)
class IndexedDataset:
    """The bundles of one dataset, oldest first; none where a ledger alone knows of it.

    `without` are runs that have no bundle here, `withheld` how many of them got none. `series` has
    the waves side by side.
    """

    name: str
    title: str
    budget: str
    over: bool
    bundles: tuple[IndexedBundle, ...]
    withheld: int
    without: ReportTable | None
    series: ReportTable | None = None

    def lines(self) -> dict[str, list[Verdict | None]]:
        """By heading what is told of each bundle; None of one whose report has no such verdict."""
        told = [{line.heading: line for line in bundle.lines()} for bundle in self.bundles]
        headings = dict.fromkeys(heading for lines in told for heading in lines)
        return {heading: [lines.get(heading) for lines in told] for heading in headings}


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


def index_text(content: IndexContent) -> str:
    """The facts of the page as text, one a line."""
    told = [f"damaged: {place}: {reasons[0]}" for place, reasons in content.damaged]
    for dataset in content.datasets:
        told += ["", f"{dataset.title}: {dataset.budget}"]
        for nth, bundle in enumerate(dataset.bundles, 1):
            told.append(f"{nth}. {bundle.place}, {bundle.day}, run {bundle.run}")
            for line in bundle.lines():
                word = f"{line.word}, " if line.text and line.word else ""
                why = f": {line.text}" if line.state in ("fair", "bad") and line.text else ""
                number = line.number.replace("\n", "; ")
                told.append(f"   {line.heading}: {word}{number}{why}")
        tables = (dataset.series, dataset.without)
        told += [", ".join(row) for table in tables if table for row in table.rows]
    return "\n".join(told)


def _cards(content: IndexContent) -> list[Verdict]:
    bundles = [b for dataset in content.datasets for b in dataset.bundles]
    wrong = len(content.damaged) + sum(b.checked == "bad" for b in bundles)
    signed = sum(b.signed != "unsigned" for b in bundles)
    found = len(bundles) + len(content.damaged)
    withheld = sum(dataset.withheld for dataset in content.datasets)
    state: State = "unknown"
    how = "nothing was verified: not all damage would be seen"
    if content.verified:
        how, state = "each was verified when this page was made", "good" if found else "unknown"
    state, signatures = "bad" if wrong else state, f"{signed} of {len(bundles)}"
    return [
        Verdict("Bundles", f"{found}", f"of {many(len(content.datasets), 'dataset')}"),
        Verdict("Damaged or refuted", f"{wrong} of {found}", how, state),
        Verdict("State a signature", signatures, "the others prove no publisher"),
        Verdict(
            "Withheld",
            f"{withheld}" if content.ledger else "not known",
            "runs that were paid for, and have no bundle",
            "bad" if withheld else "plain",
        ),
    ]


def shown(value: Any) -> str:
    """A value of a comparison as text: numbers of four digits.

    >>> shown(None), shown(3), shown(0.99934)
    ('-', '3', '0.9993')
    """
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
