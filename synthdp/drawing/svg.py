"""Self-contained SVG: one frame with a title and a description for those who do not see it; all
text escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

INK, FAINT, HOT, COOL = (
    "#111111",
    "#7A7A7A",
    "#C23B00",
    "#0072B2",
)  # colour-blind safe (Okabe and Ito), darkened for contrast


def frame(
    body: Iterable[str], *, name: str, title: str, description: str, width: int, height: int
) -> str:
    """The SVG text of a picture; `name` keeps its ids apart from those of other pictures on one
    page.
    """
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                f' width="{width}" height="{height}" role="img" aria-labelledby="{name}-title'
                f' {name}-desc" font-family="sans-serif" font-size="13">'
            ),
            f'<title id="{name}-title">{safe(title)}</title>',
            f'<desc id="{name}-desc">{safe(description)}</desc>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def safe(text: str) -> str:
    """Escaped, without the characters that XML refuses."""
    return escape(
        "".join(
            c
            for c in text
            if c >= " " and not 0xD800 <= ord(c) <= 0xDFFF and c not in "\ufffe\uffff"
        ),
        {'"': "&quot;"},
    )


def shortened(text: str, *, most: int = 70) -> str:
    """A steward's words, cut where they would run out of the picture."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def label(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 13,
    bold: bool = False,
    colour: str = INK,
) -> str:
    """One line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight}'
        f' fill="{colour}">{safe(text)}</text>'
    )


def line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    *,
    colour: str = INK,
    width: float = 1.0,
    dashes: str = "",
    head: str = "",
) -> str:
    """A straight line; `head` is the id of a marker at its end."""
    look = (f' stroke-dasharray="{dashes}"' if dashes else "") + (
        f' marker-end="url(#{head})"' if head else ""
    )
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"{look}/>'
    )


def arrow_head(name: str, colour: str) -> str:
    """A marker to end lines with."""
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="10"'
        ' markerHeight="10" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L10,5 L0,10'
        f' z" fill="{colour}"/></marker>'
    )
