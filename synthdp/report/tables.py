"""Tables of text for the appendix of a report, and how many rows of them a page shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReportTable:
    """A caption, column headings and rows of text; `left_out` rows are in `internal.json` only."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class PageLimits:
    """Most rows of long tables and most overlays, so that the page stays small."""

    pairs: int
    levels: int
    overlays: int


def cut(table: ReportTable, max_rows: int) -> ReportTable:
    """The table with at most `max_rows` rows; the others are counted in `left_out`."""
    left_out = max(0, len(table.rows) - max_rows)
    return ReportTable(table.caption, table.headings, table.rows[:max_rows], left_out)
