"""Figures drawn by hand as inline SVG, for both reports: levels, paired bars, intervals.

Nothing here depends on the version of a plotting library, so that `verify` can draw a bundle's
figures again and compare them byte by byte. Colours are the page's variables, light or dark; all
names are escaped text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from synthdp.drawing.svg import compact, inline_frame, label, line, rect, short

FloatArray = npt.NDArray[np.float64]

MAX_BARS = 12
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
            rect(left, y, wide * a / most, 9, f'fill="{FIRST}"'),
            rect(left, y + 10, wide * b / most, 9, f'fill="{SECOND}"'),
        ]
        end, shares = left + 5 + wide * max(a, b) / most, f"{a:.1%} / {b:.1%}"
        body.append(_text(end, y + 14, shares, size=10.5, colour="var(--muted)"))
    return inline_frame(body, width=left + wide + 86, height=10 + 26 * len(rows), alt=alt)


def intervals(
    rows: Sequence[tuple[str, Sequence[tuple[float, float, float]]]],
    *,
    label: str,
    alt: str,
    origin: float | None = 0.0,
) -> str:
    """For each name one or two estimates, (value, low, high), the first above.

    The axis reaches to `origin`, which stands for no effect, or for guessing; without one it begins
    at the lowest interval.
    """
    step = 30.0 + 14.0 * max(len(estimates) for _, estimates in rows)
    left, wide, high = 16.0, 560.0, step * len(rows)
    ends = [v for _, estimates in rows for estimate in estimates for v in estimate]
    origin = min(ends) if origin is None else origin
    low, span = min(origin, *ends), (max(origin, *ends) - min(origin, *ends)) or 1.0

    def place(value: float) -> float:
        return left + wide * (0.03 + 0.94 * (value - low) / span)

    body = [_text(place(origin), high + 14, f"{origin:.4g}", anchor="middle")]
    for k, (name, estimates) in enumerate(rows):
        y = step * k
        body += [
            _text(left, y + 14, short(name, 88)),
            _line(
                place(origin),
                y + 20,
                place(origin),
                y + step - 8,
                colour="var(--muted)",
                dashes="2 4",
            ),
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
