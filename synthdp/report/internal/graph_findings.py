"""The report's tables on a validated graph: each arrow and each implied independence, what the
tables say, and how well they could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from synthdp.report.internal.appendix import ReportTable
from synthdp.report.internal.findings import number

MAX_ROWS = 200
ORDER = ("refuted", "undecided", "supported")
HEADINGS = (
    "claim",
    "status",
    "effect (Cohen's w)",
    "at most",
    "smallest detectable effect",
    "p-value",
)
CAPTIONS = {
    "arrow": "Arrows, held against noisy tables",
    "independence": "Implied independences, held against noisy tables",
}


def finding_tables(validation: Mapping[str, Any] | None) -> list[ReportTable]:
    """One table for arrows and one for independences, refuted ones first; none without a
    validation.
    """
    if validation is None:
        return []
    found = sorted(validation["findings"], key=lambda f: ORDER.index(f["status"]))
    return [_table(kind, [f for f in found if f["kind"] == kind]) for kind in CAPTIONS]


def _table(kind: str, found: Sequence[Mapping[str, Any]]) -> ReportTable:
    rows = tuple(
        (
            _claim(f),
            f["status"],
            *(
                number(f[k])
                for k in ("effect", "effect_upper", "smallest_detectable_effect", "p_value")
            ),
        )
        for f in found
    )
    return ReportTable(CAPTIONS[kind], HEADINGS, rows[:MAX_ROWS], max(len(rows) - MAX_ROWS, 0))


def _claim(finding: Mapping[str, Any]) -> str:
    words = (
        f"{finding['x']} -> {finding['y']}"
        if finding["kind"] == "arrow"
        else f"{finding['x']} independent of {finding['y']}"
    )
    return words + (f" given {', '.join(finding['given'])}" if finding["given"] else "")
