"""Cards and tables as HTML, for objects that a notebook shows.

Text is escaped by the template. What is shown is public: a notebook keeps its outputs, and may be
sent on.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the reports import what draws, and a face that is only imported draws nothing
    from synthdp.report.tables import ReportTable
    from synthdp.report.verdicts import Verdict


def cards_html(
    title: str,
    cards: Sequence[Verdict],
    *,
    tables: Sequence[ReportTable] = (),
    svg: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """HTML of a title, verdict cards, tables, a picture and notes, without any script.

    >>> from synthdp.report.verdicts import Verdict
    >>> html = cards_html("A <title>", [Verdict("Epsilon", "1", "at delta 1e-05")])
    >>> "A &lt;title&gt;" in html
    True
    """
    from synthdp.report.parts import template

    picture = None if svg is None else base64.b64encode(svg.encode()).decode()
    html: str = template("notebook.html.j2").render(
        title=title, cards=cards, tables=tables, picture=picture, notes=notes
    )
    return html
