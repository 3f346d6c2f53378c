"""The report's section on columns that look like functions of others. Confidential."""

from __future__ import annotations

from typing import Any

from synthdp.evaluate.functional.suggest import Suggestion, SuggestionReport
from synthdp.report.parts import number
from synthdp.report.tables import ReportTable

WARNING = (
    "These suggestions come from the real rows and cost no budget. A line that only the rows showed"
    " makes the spec, and with it everything that is released, depend on them: that is a leak,"
    " which no epsilon covers. Declare what is true by definition of the columns, which is a public"
    " fact, and nothing else; take the values in a constraint from the codebook, not from here."
)
NOTE = (
    "A line was read by the spec's own parser and passes its checks. Rows that miss a value count"
    " neither for it nor against it. What is computed is right in every synthetic row; rows that"
    " break a constraint are drawn again, and a release stops where fewer than 1 in 100 fulfil all"
    " of them."
)
PLACES = {
    "derived": "columns",
    "constraint": "constraints",
    "words": "the spec has no line for it",
}
HEADINGS = (
    "columns",
    "in the spec under",
    "line",
    "remark",
    "holds in real rows",
    "broken by synthetic rows",
    "off by, on average",
)


def suggestion_view(report: SuggestionReport | None) -> dict[str, Any]:
    """Sentence, warning and table of the section."""
    rows = () if report is None else tuple(_row(s) for s in report.suggestions)
    return {
        "suggestion_sentence": suggestion_sentence(report),
        "suggestion_warning": WARNING,
        "suggestion_note": NOTE,
        "suggestion_table": ReportTable("Columns that could be declared", HEADINGS, rows),
    }


def suggestion_sentence(report: SuggestionReport | None) -> str:
    """How many suggestions there are, and what was looked at."""
    if report is None:
        return "Evaluation is turned off in the spec: columns were not looked at."
    looked = f"{report.columns} columns of {report.rows:,} real rows"
    if report.left_out:
        looked += f" ({report.left_out} further columns were not looked at)"
    if not report.suggestions:
        return f"No column looks like a function of others, or bound by one, in {looked}."
    lines = sum(bool(s.line) for s in report.suggestions)
    words = len(report.suggestions) - lines
    parts = [f"{lines} that a line of the spec could declare"] if lines else []
    parts += [f"{words} that it has no line for"] if words else []
    return (
        f"Columns that look like functions of others, or bound by one, in {looked}:"
        f" {' and '.join(parts)}."
    )


def _row(found: Suggestion) -> tuple[str, ...]:
    return (
        ", ".join(found.columns),
        PLACES[found.kind],
        found.line,
        found.remark,
        f"all {found.holds:,}",
        "no rows" if found.broken is None else f"{found.broken:.1%}",
        "" if found.off is None else number(found.off),
    )
