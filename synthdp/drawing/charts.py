"""Figures drawn by hand as inline SVG, for the public report and for pair plots.

Nothing here depends on the version of a plotting library, so that `verify` can draw a bundle's
figures again and compare them byte by byte. Colours are the page's variables, light or dark; all
names are escaped text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from synthdp.drawing.svg import compact, inline_frame, label, line, safe, short

FloatArray = npt.NDArray[np.float64]

MAX_BARS = 12
SHADES = 5  # of a cell of a pair plot; the eye separates no more at this size
FIRST, SECOND = "var(--real)", "var(--synthetic)"

_text = partial(label, size=12, colour="currentColor", number=compact)
_line = partial(line, width=1, colour="var(--line)", number=compact)


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
    return _bars(labels, first, second, ordered, alt)


def _bars(
    labels: Sequence[str], first: FloatArray, second: FloatArray, ordered: bool, alt: str
) -> str:
    order = list(range(len(labels))) if ordered else np.argsort(-first, kind="stable").tolist()
    shown, rest = order[:MAX_BARS], order[MAX_BARS:]
    rows = [(short(labels[i], 18), float(first[i]), float(second[i])) for i in shown]
    if rest:
        rows.append((f"{len(rest)} others", float(first[rest].sum()), float(second[rest].sum())))
    return bars(rows, alt=alt)


def bars(
    rows: Sequence[tuple[str, float, float]], *, left: float = 144.0, wide: float = 140.0, alt: str
) -> str:
    """Paired bars of (name, share, share), the first in the first colour.

    Names take the width `left`, the longest bar takes `wide`.
    """
    most = max(max(a, b) for _, a, b in rows) or 1.0
    body = []
    for k, (name, a, b) in enumerate(rows):
        y = 6 + 26 * k
        body.append(_text(left - 8, y + 14, name, anchor="end"))
        body += [
            _bar(left, y, wide * a / most, 9, FIRST),
            _bar(left, y + 10, wide * b / most, 9, SECOND),
        ]
        end, shares = left + 5 + wide * max(a, b) / most, f"{a:.1%} / {b:.1%}"
        body.append(_text(end, y + 14, shares, size=10.5, colour="var(--muted)"))
    return inline_frame(body, width=left + wide + 86, height=10 + 26 * len(rows), alt=alt)


def intervals(
    rows: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
    *,
    label: str,
    alt: str,
) -> str:
    """For each name one or two estimates, (value, low, high), the first above; with zero."""
    step = 30.0 + 14.0 * max(len(estimates) for _, estimates in rows)
    left, wide, high = 16.0, 560.0, step * len(rows)
    ends = [0.0, *(v for _, estimates in rows for estimate in estimates for v in estimate)]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def place(value: float) -> float:
        return left + wide * (0.03 + 0.94 * (value - low) / span)

    body = [_text(place(0), high + 14, "0", anchor="middle")]
    for k, (name, estimates) in enumerate(rows):
        y = step * k
        body += [
            _text(left, y + 14, short(name, 88)),
            _line(place(0), y + 20, place(0), y + step - 8, colour="var(--muted)", dashes="2 4"),
        ]
        for j, ((value, bottom, top), colour) in enumerate(
            zip(estimates, (FIRST, SECOND), strict=False)
        ):
            at = y + 27 + 14 * j
            body.append(_line(place(bottom), at, place(top), at, colour=colour, width=2.2))
            body.append(
                f'<circle cx="{compact(place(value))}" cy="{compact(at)}" r="4" fill="{colour}"/>'
            )
            body.append(
                _text(place(top) + 7, at + 4, f"{value:.3g}", size=10.5, colour="var(--muted)")
            )
    body.append(_text(left, high + 30, label))
    return inline_frame(body, width=left + wide + 60, height=high + 38, alt=alt)


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
        _text(left - 5, top + 9, f"{most:.0%}", anchor="end", size=10.5, colour="var(--muted)"),
        _text(left - 5, top + high, "0", anchor="end", size=10.5),
        _line(left, top + high, left + wide, top + high),
        f'<path d="{_stairs(x, top + high * (1 - first / most), top + high)}" fill="{FIRST}"'
        ' fill-opacity=".5"/>',
        f'<path d="{_stairs(x, top + high * (1 - second / most), top + high)}" fill="none"'
        f' stroke="{SECOND}" stroke-width="1.8"/>',
        _text(left, top + high + 16, short(labels[0], 22)),
        _text(left + wide, top + high + 16, short(labels[-1], 22), anchor="end"),
    ]
    return inline_frame(body, width=370, height=top + high + 24, alt=alt)


def _stairs(x: FloatArray, y: FloatArray, base: float) -> str:
    steps = "".join(
        f"V{compact(v)}H{compact(b)}" for v, b in zip(y.tolist(), x[1:].tolist(), strict=True)
    )
    return f"M{compact(x[0])} {compact(base)}{steps}V{compact(base)}"


def waterfall(steps: Sequence[tuple[str, float]], *, total: float, budget: float, alt: str) -> str:
    """The cost of each (label, epsilon) alone, the saving by composition, the rest of `budget`."""
    ends = np.cumsum([0.0, *(epsilon for _, epsilon in steps)]).tolist()
    rows = [(name, a, b, SECOND) for (name, _), a, b in zip(steps, ends, ends[1:], strict=False)]
    if len(steps) > 1:
        rows.append(("saved by one accounting", total, ends[-1], "var(--good)"))
    rows += [
        ("guaranteed", 0.0, total, "currentColor"),
        ("left of the budget", total, max(total, budget), "var(--line)"),
    ]
    left, wide = 190.0, 420.0
    scale = wide / max(budget, ends[-1], total)
    body = []
    for k, (name, a, b, colour) in enumerate(rows):
        y = 6 + 28 * k
        body += [
            _text(left - 8, y + 14, short(name, 28), anchor="end"),
            _bar(left + scale * a, y, scale * (b - a), 19, colour),
        ]
        body.append(_text(left + scale * max(a, b) + 6, y + 14, f"{b - a:.3g}"))
    high = 28 * len(rows) + 8
    body.append(
        _line(
            left + scale * budget,
            2,
            left + scale * budget,
            high,
            colour="var(--bound)",
            width=1.8,
            dashes="5 4",
        )
    )
    body.append(_text(left + scale * budget, high + 13, f"budget {budget:g}", anchor="end"))
    return inline_frame(body, width=680, height=high + 20, alt=alt)


def heat(names: Sequence[str], values: FloatArray, *, alt: str) -> str:
    """Strengths in [0, 1], shape `[columns, columns]`, as shaded cells.

    A cell shows its value where it is large enough to matter.
    """
    left, top, cell = 146.0, 10.0, 30.0 if len(names) <= 20 else 15.0
    body = []
    for i, name in enumerate(names):
        body.append(
            _text(
                left - 6,
                top + cell * (i + 0.5) + 4,
                short(name, 18),
                anchor="end",
                size=min(12, cell - 3),
            )
        )
        x, y = (compact(v) for v in (left + cell * (i + 0.5) + 4, top + cell * len(names) + 8))
        body.append(
            f'<text x="{x}" y="{y}" text-anchor="end" font-size="{compact(min(12, cell - 3))}" '
            f'transform="rotate(-50 {x} {y})">{safe(short(name, 18))}</text>'
        )
        for j in range(i):
            strength = float(values[i, j])
            body.append(_cell(left + cell * j, top + cell * i, cell - 1, strength))
            if cell > 20 and strength >= 0.1:
                body.append(_on_cell(left + cell * (j + 0.5) - 0.5, top + cell * i + 18, strength))
    side, deep = (
        cell * len(names),
        22 + 5.6 * max(len(short(name, 18)) for name in names),
    )  # room for slanted names
    return inline_frame(body, width=left + side + 10, height=top + side + deep, alt=alt)


def _cell(x: float, y: float, side: float, strength: float) -> str:
    shade = _rect(x, y, side, side, 'fill="var(--line)" fill-opacity=".35"')
    if strength < 0.005:
        return shade
    return shade + _rect(x, y, side, side, f'fill="{SECOND}" fill-opacity="{strength:.2f}"')


def _on_cell(x: float, y: float, strength: float) -> str:
    # Dark cells take the page's own colour, which stands out from them in both modes.
    return _text(
        x,
        y,
        f"{strength:.2f}".lstrip("0"),
        anchor="middle",
        size=10,
        colour="var(--page)" if strength > 0.55 else "currentColor",
    )


def pairplot(
    names: Sequence[str], tables: Sequence[Sequence[FloatArray | None]], *, alt: str
) -> str:
    """A matrix of small tables; `tables[i][j]` is drawn at row i and column j.

    `tables[i][j]` has shape `[levels of i, levels of j]`, or is None. Tables below the diagonal
    have the second colour, those above it the first. On the diagonal, shape `[levels]`, is the
    column alone.

    Below the diagonal in the second colour, above it in the first; on it, shape `[levels]`, the
    column alone.
    """
    left, cell, gap = 112.0, 58.0, 5.0
    body = []
    for i, name in enumerate(names):
        y = 4 + i * (cell + gap)
        body.append(_text(left - 6, y + cell / 2 + 4, short(name, 16), anchor="end", size=11))
        body.append(
            _text(
                left + i * (cell + gap) + cell / 2,
                4 + len(names) * (cell + gap) + 12,
                short(name, 10),
                anchor="middle",
                size=9.5,
            )
        )
        for j in range(len(names)):
            x, table = left + j * (cell + gap), tables[i][j]
            if table is None:
                continue
            body.append(_rect(x, y, cell, cell, 'fill="none" stroke="var(--line)"'))
            body += (
                _column(table, x, y, cell)
                if i == j
                else _table(table, x, y, cell, SECOND if j < i else FIRST)
            )
    side = len(names) * (cell + gap)
    return inline_frame(body, width=left + side + 6, height=side + 24, alt=alt)


def _column(shares: FloatArray, x: float, y: float, cell: float) -> Iterator[str]:
    most, width = float(shares.max()) or 1.0, cell / len(shares)
    for k, share in enumerate(shares.tolist()):
        high = (cell - 4) * share / most
        yield _bar(x + k * width, y + cell - high, max(width - 0.6, 0.6), high, "var(--muted)")


def _table(table: FloatArray, x: float, y: float, cell: float, colour: str) -> Iterator[str]:
    """One small table: a stronger colour is a more frequent cell.

    Levels of the row's column go up, those of the column's to the right.
    """
    most = float(table.max()) or 1.0
    shade = np.round(SHADES * np.sqrt(table / most)).astype(int)
    high, wide = cell / table.shape[0], cell / table.shape[1]
    box = f"h{compact(wide)}v{compact(high)}h{compact(-wide)}z"
    for level in range(1, SHADES + 1):
        cells = zip(*np.nonzero(shade == level), strict=True)
        path = "".join(
            f"M{compact(x + j * wide)} {compact(y + cell - (i + 1) * high)}{box}" for i, j in cells
        )
        if path:
            yield f'<path d="{path}" fill="{colour}" fill-opacity="{level / SHADES:.1f}"/>'


def roc_bound(points: Sequence[tuple[float, float]], *, alt: str) -> str:
    """The highest TPR of any attack at each FPR, points (FPR, TPR), on log axes."""
    left, top, side, floor = 62.0, 8.0, 300.0, 1e-3

    def place(rate: float) -> float:
        return side * (1 - math.log10(max(rate, floor)) / math.log10(floor))

    body = []
    for tick in (0.001, 0.01, 0.1, 1.0):
        at = place(tick)
        body += [
            _line(left, top + side - at, left + side, top + side - at),
            _line(left + at, top, left + at, top + side),
        ]
        body.append(_text(left - 6, top + side - at + 4, f"{tick:g}", anchor="end", size=11))
        body.append(_text(left + at, top + side + 16, f"{tick:g}", anchor="middle", size=11))
    path = " ".join(
        f"{'L' if k else 'M'}{compact(left + place(a))},{compact(top + side - place(b))}"
        for k, (a, b) in enumerate(points)
    )
    body.append(
        f'<path d="{path} L{compact(left + side)},{compact(top)} L{compact(left)},{compact(top)} z"'
        ' fill="var(--bound)" fill-opacity=".12"/>'
    )
    body.append(f'<path d="{path}" fill="none" stroke="var(--bound)" stroke-width="2.4"/>')
    body += [
        _line(left, top + side, left + side, top, colour="currentColor", dashes="2 4"),
        _text(left + 10, top + 20, "no attack can be here"),
        _text(left + side - 8, top + side - 12, "dotted: guessing", anchor="end"),
        _text(left + side / 2, top + side + 36, "false positive rate", anchor="middle"),
        f'<text x="14" y="{compact(top + side / 2)}" text-anchor="middle" transform="rotate(-90 14'
        f' {compact(top + side / 2)})">true positive rate</text>',
    ]
    return inline_frame(body, width=left + side + 24, height=top + side + 46, alt=alt)


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return _rect(x, y, max(width, 0.0), height, f'fill="{colour}"')


def _rect(x: float, y: float, width: float, height: float, look: str) -> str:
    x_, y_, w, h = map(compact, (x, y, width, height))
    return f'<rect x="{x_}" y="{y_}" width="{w}" height="{h}" {look}/>'
