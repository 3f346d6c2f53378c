"""The report's section on estimands: what was released beside the real rows. Confidential."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synthdp.report.internal.content import EstimandBeside
from synthdp.report.parts import number
from synthdp.report.tables import ReportTable

HEADINGS = ("estimand", "group", "released", "95% interval", "all real rows", "inside")


def estimand_view(estimands: Sequence[EstimandBeside]) -> dict[str, Any]:
    """Sentence and table of the section; no rows where the spec names no estimands."""
    known = [e for e in estimands if e.covered is not None]
    inside = sum(bool(e.covered) for e in known)
    refused = len(estimands) - len(known)
    sentence = f"{inside} of {len(known)} released intervals hold the figure of all real rows"
    if refused:
        sentence += f"; {refused} figures were not given, for too few rows"
    return {
        "estimand_sentence": f"{sentence}. An interval also allows for sampling.",
        "estimand_table": ReportTable("Estimands", HEADINGS, tuple(map(_row, estimands))),
    }


def _row(beside: EstimandBeside) -> tuple[str, ...]:
    def text(value: float | None) -> str:
        return f"{value:.1%}" if beside.statistic == "share" and value else number(value)

    ends = "none" if beside.interval is None else " to ".join(map(text, beside.interval))
    inside = {True: "yes", False: "no", None: ""}[beside.covered]
    return beside.text, beside.group, text(beside.released), ends, text(beside.real), inside
