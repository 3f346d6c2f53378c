"""What all hand-drawn pictures share: frames, lines of text and straight lines, as SVG.

A picture names no script, font or other file, and all its text is escaped. It says in words what it
shows, for those who do not see it. A bundle's pictures are drawn again by `verify` and compared
byte by byte, so that nothing here may change what is written for the same figures.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

# The colours and fonts of every picture: reports, files of a bundle, and benchmarks. Reports have
# the same names in their style sheet, with lighter ones for the dark. All are told apart by readers
# who are colour-blind (after M. Okabe and K. Ito, "Color Universal Design", 2008), darkened for
# contrast.
INK, FAINT, HOT, COOL = "#111111", "#7A7A7A", "#C23B00", "#0072B2"  # files of a bundle
REAL, SYNTHETIC, BOUND = "#b85c00", "#0b66b8", "#8e2a7c"  # rows in reports, and what is proved
GREEN, SKY, OCHRE, GREY, LINE = "#00795A", "#56B4E9", "#A07800", "#57606a", "#c9ced5"
SERIES = (SYNTHETIC, GREEN, BOUND, OCHRE, SKY, GREY, REAL)  # things without a colour of their own
FONTS = ("Segoe UI", "Liberation Sans", "Arial", "DejaVu Sans", "sans-serif")


def fixed(value: float) -> str:
    """A coordinate with one digit after the point."""
    return f"{value:.1f}"


def compact(value: float) -> str:
    """A coordinate with at most one digit after the point: pages hold thousands of them."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def frame(
    body: Iterable[str],
    width: float,
    height: float,
    *,
    name: str,
    title: str,
    description: str,
    defs: str | None = None,
) -> str:
    """A picture that is a file of its own.

    `name` keeps its ids apart from those of other pictures on one page; `defs` holds definitions
    that `body` uses.
    """
    w, h = f"{width:.0f}", f"{height:.0f}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}"'
        f' role="img" aria-labelledby="{name}-title {name}-desc" font-family="sans-serif"'
        ' font-size="13">',
        f'<title id="{name}-title">{safe(title)}</title>',
        f'<desc id="{name}-desc">{safe(description)}</desc>',
        *([] if defs is None else [f"<defs>{defs}</defs>"]),
        f'<rect width="{w}" height="{h}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def inline_frame(body: Sequence[str], *, width: float, height: float, alt: str) -> str:
    """A picture inside a page, whose colours it takes; `alt` describes it in words."""
    w, h = compact(width), compact(height)
    head = (
        f'<svg role="img" aria-label="{safe(alt)}" viewBox="0 0 {w} {h}" width="{w}"'
        f' height="{h}" font-size="12" fill="currentColor">'
    )
    return "\n".join([head, *body, "</svg>"])


def safe(text: str) -> str:
    """Escaped, without the characters that XML refuses."""
    refused = "\ufffe\uffff"
    known = (c for c in text if c >= " " and not "\ud800" <= c <= "\udfff" and c not in refused)
    return escape("".join(known), {'"': "&quot;"})


def shortened(text: str, *, most: int = 70) -> str:
    """A steward's words, cut where they would run out of the picture."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def short(text: str, most: int = 26) -> str:
    """A name for an axis: control characters shown as such, cut to `most` characters."""
    control = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")}
    clean = "".join("\N{REPLACEMENT CHARACTER}" if c in control else c for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def label(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: float = 13,
    bold: bool = False,
    colour: str = INK,
    number: Callable[[float], str] = fixed,
) -> str:
    """One line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" font-size="{size}"{weight}'
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
    number: Callable[[float], str] = fixed,
) -> str:
    """A straight line; `head` is the id of a marker at its end."""
    look = (f' stroke-dasharray="{dashes}"' if dashes else "") + (
        f' marker-end="url(#{head})"' if head else ""
    )
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        f' stroke="{colour}" stroke-width="{width}"{look}/>'
    )


def arrow_head(name: str, colour: str, *, tip: int = 9, size: int = 10, back: bool = False) -> str:
    """A marker whose point at `tip` tenths ends a line; `back`: it stands at the line's start."""
    at, path = (10 - tip, "M10,0 L0,5 L10,10 z") if back else (tip, "M0,0 L10,5 L0,10 z")
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="{at}" refY="5" markerWidth="{size}"'
        f' markerHeight="{size}" markerUnits="userSpaceOnUse" orient="auto"><path d="{path}"'
        f' fill="{colour}"/></marker>'
    )


def rect(x: float, y: float, width: float, height: float, look: str) -> str:
    """A rectangle of a picture inside a page; `look` are its other attributes."""
    x_, y_, w, h = map(compact, (x, y, max(width, 0.0), height))
    return f'<rect x="{x_}" y="{y_}" width="{w}" height="{h}" {look}/>'
