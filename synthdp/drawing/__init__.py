"""Pictures drawn by hand as SVG: what all share (frames, text, lines), and the reports' figures.

A picture names no script, font or other file, and all its text is escaped. It says in words what it
shows, for those who do not see it. A bundle's pictures are drawn again by `verify` and compared
byte by byte, so that nothing here may change what is written for the same figures, nor depend on
the version of a plotting library. Colours of figures are the page's variables, light or dark.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

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


FloatArray = npt.NDArray[np.float64]

FIRST, SECOND = "var(--real)", "var(--synthetic)"

_text = partial(label, size=12, colour="currentColor", number=compact)
_line = partial(line, width=1, colour="var(--line)", number=compact)
_muted = partial(_text, size=10.5, colour="var(--muted)")


def overlay(
    labels: Sequence[str],
    first: FloatArray,
    second: FloatArray,
    *,
    ordered: bool,
    alt: str,
    widths: FloatArray | None = None,
) -> str:
    """Shares of one column's levels, shape `[levels]` each.

    Few levels give paired bars; a long ordered list gives steps. With `widths` `[levels]` a step is
    as wide as its level, and its area is its share.
    """
    if ordered and len(labels) > 6:
        return _steps(labels, first, second, alt, widths)
    order = list(range(len(labels))) if ordered else np.argsort(-first, kind="stable").tolist()
    rows = [(short(labels[i], 20), float(first[i]), float(second[i])) for i in order[:12]]
    if rest := order[12:]:
        rows.append((f"{len(rest)} others", float(first[rest].sum()), float(second[rest].sum())))
    return bars(rows, alt=alt)


def bars(
    rows: Sequence[tuple[str, float, float]], *, left: float = 144.0, wide: float = 140.0, alt: str
) -> str:
    """Paired bars of (name, share, share): names take the width `left`, the longest bar `wide`."""
    most = max(max(a, b) for _, a, b in rows) or 1.0
    body = []
    for k, (name, a, b) in enumerate(rows):
        y = 6 + 26 * k
        body.append(_text(left - 8, y + 14, name, anchor="end", size=11))
        body += [
            rect(left, y, wide * a / most, 9, f'fill="{FIRST}"'),
            rect(left, y + 10, wide * b / most, 9, f'fill="{SECOND}"'),
        ]
        end, shares = left + 5 + wide * max(a, b) / most, f"{a:.1%} / {b:.1%}"
        body.append(_muted(end, y + 14, shares))
    return inline_frame(body, width=left + wide + 86, height=10 + 26 * len(rows), alt=alt)


def intervals(
    rows: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
    *,
    label: str,
    alt: str,
    origin: float | None = 0.0,
    apart: bool = False,
) -> str:
    """For each name one or two estimates, (value, low, high), the first above.

    The axis reaches to `origin`, which stands for no effect, or for guessing; without one it begins
    at the lowest interval. With `apart` each row has an axis of its own, for another unit.
    """
    step = 30.0 + 14.0 * max(len(estimates) for _, estimates in rows)
    left, wide, high = 16.0, 560.0, step * len(rows)
    every = [v for _, estimates in rows for estimate in estimates for v in estimate]
    origin = min(every) if origin is None else origin

    def placed(value: float, ends: Sequence[float]) -> float:
        low, top = min(origin, *ends), max(origin, *ends)
        return left + wide * (0.03 + 0.94 * (value - low) / ((top - low) or 1.0))

    body = (
        [] if apart else [_text(placed(origin, every), high + 14, f"{origin:.4g}", anchor="middle")]
    )
    for k, (name, estimates) in enumerate(rows):
        y = step * k
        place = partial(placed, ends=[v for e in estimates for v in e] if apart else every)
        zero = place(origin)
        body.append(_text(left, y + 14, short(name, 88)))
        body.append(_line(zero, y + 20, zero, y + step - 8, colour="var(--muted)", dashes="2 4"))
        for j, (value, bottom, top) in enumerate(estimates[:2]):
            at, colour, x = y + 27 + 14 * j, (FIRST, SECOND)[j], compact(place(value))
            body.append(_line(place(bottom), at, place(top), at, colour=colour, width=2.2))
            body.append(f'<circle cx="{x}" cy="{compact(at)}" r="4" fill="{colour}"/>')
            body.append(_muted(place(top) + 7, at + 4, f"{value:.3g}"))
    body.append(_text(left, high + 30, label))
    return inline_frame(body, width=left + wide + 60, height=high + 38, alt=alt)


def sheet(pictures: Mapping[str, str], *, name: str, title: str) -> str:
    """Pictures of pages below each other, each under its heading: a file of its own."""
    body, y, wide = [label(16, 26, title, size=16, bold=True)], 44.0, 0.0
    colours = {"line": LINE, "muted": GREY, "real": REAL, "synthetic": SYNTHETIC}
    for heading, picture in pictures.items():
        for variable, colour in colours.items():
            picture = picture.replace(f"var(--{variable})", colour)
        _, _, width, high = re.findall(r'viewBox="([^"]*)"', picture)[0].split()
        body += [label(16, y + 14, heading), f'<g transform="translate(0 {y + 26:.0f})">']
        body += [picture, "</g>"]
        y, wide = y + 44 + float(high), max(wide, float(width))
    told = "; ".join(pictures)
    return frame(body, wide, y, name=name, title=title, description=told)


def _steps(
    labels: Sequence[str],
    first: FloatArray,
    second: FloatArray,
    alt: str,
    widths: FloatArray | None,
) -> str:
    left, top, wide, high = 44.0, 8.0, 318.0, 150.0
    scale = np.ones(len(labels)) if widths is None else widths
    first, second = first / scale, second / scale
    most = max(float(first.max()), float(second.max())) or 1.0
    x = left + wide * np.append(0, np.cumsum(scale)) / scale.sum()
    body = [
        _muted(left - 5, top + 9, f"{most:.0%}", anchor="end"),
        _text(left - 5, top + high, "0", anchor="end", size=10.5),
        _line(left, top + high, left + wide, top + high),
        f'<path d="{_stairs(x, top + high * (1 - first / most), top + high)}" fill="{FIRST}"'
        ' fill-opacity=".5"/>',
        f'<path d="{_stairs(x, top + high * (1 - second / most), top + high)}" fill="none"'
        f' stroke="{SECOND}" stroke-width="1.8"/>',
        _text(left, top + high + 16, short(labels[0], 25), size=10),
        _text(left + wide, top + high + 16, short(labels[-1], 25), anchor="end", size=10),
    ]
    return inline_frame(body, width=370, height=top + high + 24, alt=alt)


def _stairs(x: FloatArray, y: FloatArray, base: float) -> str:
    steps = "".join(
        f"V{compact(v)}H{compact(b)}" for v, b in zip(y.tolist(), x[1:].tolist(), strict=True)
    )
    return f"M{compact(x[0])} {compact(base)}{steps}V{compact(base)}"


# --- pairs of columns: strengths, and small tables ---


def heat(names: Sequence[str], values: FloatArray, *, most: float = 1.0, alt: str) -> str:
    """Strengths, shape `[columns, columns]`, as shaded cells below the diagonal.

    The shade is full at `most`. Strengths below 0 have the first colour, others the second. A cell
    shows its value where it is large enough to matter.
    """
    left, top, cell = 146.0, 10.0, 30.0 if len(names) <= 20 else 15.0
    size, body = min(12, cell - 3), []
    for i, name in enumerate(names):
        y = top + cell * (i + 0.5) + 4
        body.append(_text(left - 6, y, short(name, 18), anchor="end", size=size))
        body.append(_slanted(left + cell * (i + 0.5), top + cell * len(names), name, size=size))
        for j in range(i):
            value = float(values[i, j])
            place = (left + cell * j, top + cell * i, cell - 1, cell - 1)
            body.append(rect(*place, 'fill="var(--line)" fill-opacity=".35"'))
            strength, colour = min(abs(value) / most, 1.0), FIRST if value < 0 else SECOND
            if strength >= 0.005:
                body[-1] += rect(*place, f'fill="{colour}" fill-opacity="{strength:.2f}"')
            if cell > 20 and abs(value) >= 0.1 * most:
                # Dark cells take the page's own colour, which stands out in both modes.
                colour = "var(--page)" if abs(value) > 0.55 * most else "currentColor"
                at = left + cell * (j + 0.5) - 0.5, top + cell * i + 18
                text = f"{value:.2f}".replace("0.", ".", 1)
                body.append(_text(*at, text, anchor="middle", size=10, colour=colour))
    side, slanted = cell * len(names), 22 + 5.6 * max(len(short(name, 18)) for name in names)
    return inline_frame(body, width=left + side + 10, height=top + side + slanted, alt=alt)


def _slanted(x: float, y: float, name: str, *, size: float = 11) -> str:
    """A name below an axis."""
    x_, y_, size_ = map(compact, (x + 4, y + 8, size))
    return (
        f'<text x="{x_}" y="{y_}" text-anchor="end" font-size="{size_}"'
        f' transform="rotate(-50 {x_} {y_})">{safe(short(name, 18))}</text>'
    )


def pairplot(
    names: Sequence[str],
    tables: Sequence[Sequence[FloatArray | None]],
    *,
    ends: Sequence[tuple[str, str]],
    alt: str,
) -> str:
    """A matrix of small tables; `tables[i][j]` is drawn at row i and column j.

    `tables[i][j]` has shape `[levels of i, levels of j]`, or is None. Tables below the diagonal
    have the second colour, those above it the first. On the diagonal, shape `[levels]`, is the
    column alone. `ends` are the first and the last level of each column, beside its axes.
    """
    left, cell, gap = 130.0, 78.0, 5.0
    side = len(names) * (cell + gap)
    body = []
    for i, name in enumerate(names):
        x, y = left + i * (cell + gap), 4 + i * (cell + gap)
        body.append(_text(left - 6, y + cell / 2 + 4, short(name, 18), anchor="end", size=11))
        body.append(_text(x + cell / 2, side + 36, short(name, 14), anchor="middle", size=9.5))
        body += _ends(ends[i], x, y, cell, left, side + 12)
        for j in range(len(names)):
            x, table = left + j * (cell + gap), tables[i][j]
            if table is None:
                continue
            body.append(rect(x, y, cell, cell, 'fill="none" stroke="var(--line)"'))
            body += (
                _column(table, x, y, cell)
                if i == j
                else _table(table, x, y, cell, SECOND if j < i else FIRST)
            )
    return inline_frame(body, width=left + side + 6, height=side + 44, alt=alt)


def _ends(
    ends: tuple[str, str], x: float, y: float, cell: float, left: float, below: float
) -> Iterator[str]:
    """First and last level of a column: from the bottom up, and from left to right."""
    muted = "var(--muted)"
    first, last = (short(end, 18) for end in ends)  # each has a line of its own below a cell
    yield _text(left - 6, y + cell, first, anchor="end", size=8, colour=muted)
    yield _text(x, below, first, anchor="start", size=7, colour=muted)
    if ends[0] != ends[1]:
        yield _text(left - 6, y + 8, last, anchor="end", size=8, colour=muted)
        yield _text(x + cell, below + 10, last, anchor="end", size=7, colour=muted)


def _column(shares: FloatArray, x: float, y: float, cell: float) -> Iterator[str]:
    most, width = float(shares.max()) or 1.0, cell / len(shares)
    for k, share in enumerate(shares.tolist()):
        high = (cell - 4) * share / most
        wide = max(width - 0.6, 0.6)
        yield rect(x + k * width, y + cell - high, wide, high, 'fill="var(--muted)"')


def _table(table: FloatArray, x: float, y: float, cell: float, colour: str) -> Iterator[str]:
    """A small table, darker where more frequent: the row's levels go up, the column's right."""
    most, shades = float(table.max()) or 1.0, 5  # the eye separates no more at this size
    shade = np.round(shades * np.sqrt(table / most)).astype(int)
    high, wide = cell / table.shape[0], cell / table.shape[1]
    box = f"h{compact(wide)}v{compact(high)}h{compact(-wide)}z"
    for level in range(1, shades + 1):
        cells = zip(*np.nonzero(shade == level), strict=True)
        path = "".join(
            f"M{compact(x + j * wide)} {compact(y + cell - (i + 1) * high)}{box}" for i, j in cells
        )
        if path:
            yield f'<path d="{path}" fill="{colour}" fill-opacity="{level / shades:.1f}"/>'


def crosstab(
    levels: Mapping[str, Sequence[str]], shares: FloatArray, *, colour: str, hidden: float, alt: str
) -> str:
    """Shares, shape `[levels, levels]` of two columns, as shaded cells: the first one's go down.

    A ring marks a cell whose share is at most `hidden`, so that noise may have made all of it.
    """
    (down, rows), (across, columns) = levels.items()
    most = max(float(shares.max()), 1e-12)
    wide, high, left, top = max(14.0, min(58.0, 640 / len(columns))), 20.0, 150.0, 24.0
    end = top + high * len(rows)
    body = [_text(left, 14, short(across, 40), size=11), _muted(8, 14, short(down, 22))]
    for i, name in enumerate(rows):
        y = top + high * i
        body.append(_text(left - 6, y + 14, short(name, 20), anchor="end", size=11))
        for j, share in enumerate(shares[i].tolist()):
            x, shade = left + wide * j, (max(share, 0.0) / most) ** 0.5
            look = f'fill="{colour}" fill-opacity="{shade:.2f}" stroke="var(--line)"'
            body.append(rect(x, y, wide - 1, high - 1, look))
            if share <= hidden:
                at = f'cx="{compact(x + wide / 2)}" cy="{compact(y + high / 2)}"'
                body.append(f'<circle {at} r="3" fill="none" stroke="var(--muted)"/>')
    body += [_slanted(left + wide * (j + 0.5), end, n) for j, n in enumerate(columns)]
    below = 22 + 5.6 * max(len(short(name, 18)) for name in columns)
    wide = max(470.0, left + wide * len(columns) + 12)
    return inline_frame(body, width=wide, height=end + below, alt=alt)


# --- what a guarantee costs and what it bounds ---


Points = Sequence[tuple[float, float]]


def budget_bar(parts: Sequence[tuple[str, float]], *, budget: float, alt: str) -> str:
    """Parts (name, epsilon) of one budget, side by side on a bar that is `budget` long.

    What is left of it is outlined. The smallest of more than six parts are drawn as one.
    """
    shown, shades = list(parts), (1.0, 0.5, 0.78, 0.32, 0.6, 0.2)  # neighbours differ in grey too
    if len(shown) > len(shades):
        rest = sorted(shown, key=lambda part: -part[1])[len(shades) - 1 :]
        kept = [part for part in shown if part not in rest]
        shown = [*kept, (f"{len(rest)} others", math.fsum(epsilon for _, epsilon in rest))]
    left, wide, at = 8.0, 640.0, 8.0
    body = [rect(left, 6, wide, 30, 'fill="none" stroke="var(--muted)"')]
    total = math.fsum(epsilon for _, epsilon in shown)
    rows = [*shown, ("left of the budget", max(0.0, budget - total))]
    scale = wide / max(budget, total)
    for k, (name, epsilon) in enumerate(rows):
        y, look = 66 + 21 * k, 'fill="none"'
        if k < len(shown):
            look = f'fill="var(--accent)" fill-opacity="{shades[k]:.2f}"'
            body.append(rect(at, 6, scale * epsilon, 30, f'{look} stroke="var(--page)"'))
        body.append(rect(left, y - 11, 13, 13, f'{look} stroke="var(--muted)"'))
        words = f"{short(name, 34)}: {epsilon / max(budget, total):.0%} (epsilon {epsilon:.3g})"
        body.append(_text(left + 21, y, words))
        at += scale * epsilon
    body.append(_text(left + wide, 50, f"budget {budget:g}", anchor="end"))
    body.append(_text(left, 50, "0"))
    return inline_frame(body, width=wide + 16, height=66 + 21 * len(rows), alt=alt)


def roc(bound: Points, *, curve: Points = (), alt: str) -> str:
    """The highest true-positive rate against one unit, points (FPR, TPR), on log axes.

    `curve` is what one attack reached.
    """
    left, top, side = 62.0, 8.0, 300.0

    def place(rate: float) -> float:
        return side * (1 + math.log10(max(rate, 1e-3)) / 3)

    def at(point: tuple[float, float]) -> str:
        return f"{compact(left + place(point[0]))},{compact(top + side - place(point[1]))}"

    path = "M" + " L".join(map(at, bound))
    corner = f"L{compact(left + side)},{compact(top)} L{compact(left)},{compact(top)} z"
    body = [
        *_rate_axes(left, top, side),
        f'<path d="{path} {corner}" fill="var(--bound)" fill-opacity=".12"/>',
        f'<path d="{path}" fill="none" stroke="var(--bound)" stroke-width="2.4"/>',
        _line(left, top + side, left + side, top, colour="currentColor", dashes="2 4"),
        _text(left + 10, top + 20, "the guarantee rules this out"),
        _text(left + side - 8, top + side - 12, "dotted: guessing", anchor="end"),
    ]
    if curve:
        steps = [(b[0], a[1]) for a, b in pairwise(curve)]
        corners = [curve[0], *(p for pair in zip(steps, curve[1:], strict=True) for p in pair)]
        path = "M" + " L".join(map(at, corners))
        look = 'fill="none" stroke="var(--synthetic)" stroke-width="2"'
        body.append(f'<path d="{path}" {look}/>')
        body.append(_text(left + side - 8, top + side - 30, "blue: this attack", anchor="end"))
    return inline_frame(body, width=left + side + 24, height=top + side + 46, alt=alt)


def _rate_axes(left: float, top: float, side: float) -> list[str]:
    """Both axes, from a thousandth to 1."""
    body = []
    for k, tick in enumerate((0.001, 0.01, 0.1, 1.0)):
        at = side * k / 3
        body += [
            _line(left, top + side - at, left + side, top + side - at),
            _line(left + at, top, left + at, top + side),
            _text(left - 6, top + side - at + 4, f"{tick:g}", anchor="end", size=11),
            _text(left + at, top + side + 16, f"{tick:g}", anchor="middle", size=11),
        ]
    middle = compact(top + side / 2)
    return [
        *body,
        _text(left + side / 2, top + side + 36, "false positive rate", anchor="middle"),
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">true'
        " positive rate</text>",
    ]
