"""What a guarantee costs and what it bounds, as inline SVG, for both reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from synthdp.drawing.svg import compact, inline_frame, label, line, rect, short

Points = Sequence[tuple[float, float]]

MAX_PARTS = 6
MIN_RATE = 1e-3  # of the axes

_text = partial(label, size=12, colour="currentColor", number=compact)
_line = partial(line, width=1, colour="var(--line)", number=compact)


def budget_bar(parts: Sequence[tuple[str, float]], *, budget: float, alt: str) -> str:
    """Parts (name, epsilon) of one budget, side by side on a bar that is `budget` long.

    What is left of it is outlined. The smallest parts beyond `MAX_PARTS` are drawn as one.
    """
    shown = list(parts)
    if len(shown) > MAX_PARTS:
        ranked = sorted(shown, key=lambda part: -part[1])
        rest = ranked[MAX_PARTS - 1 :]
        kept = [part for part in shown if part not in rest]
        shown = [*kept, (f"{len(rest)} others", math.fsum(epsilon for _, epsilon in rest))]
    left, wide, at = 8.0, 640.0, 8.0
    body = [rect(left, 6, wide, 30, 'fill="none" stroke="var(--muted)"')]
    total = math.fsum(epsilon for _, epsilon in shown)
    rows = [*shown, ("left of the budget", max(0.0, budget - total))]
    scale = wide / max(budget, total)
    for k, (name, epsilon) in enumerate(rows):
        used, y = k < len(shown), 66 + 21 * k
        look = f'fill="var(--accent)" fill-opacity="{_shade(k):.2f}"' if used else 'fill="none"'
        body.append(
            rect(at, 6, scale * epsilon, 30, f'{look} stroke="var(--page)"') if used else ""
        )
        body.append(rect(left, y - 11, 13, 13, f'{look} stroke="var(--muted)"'))
        words = f"{short(name, 34)}: {epsilon / max(budget, total):.0%} (epsilon {epsilon:.3g})"
        body.append(_text(left + 21, y, words))
        at += scale * epsilon
    body.append(_text(left + wide, 50, f"budget {budget:g}", anchor="end"))
    body.append(_text(left, 50, "0"))
    return inline_frame(
        [shape for shape in body if shape], width=wide + 16, height=66 + 21 * len(rows), alt=alt
    )


def _shade(place: int) -> float:
    """How strong the colour of a part is; neighbours differ, in black and white too."""
    return (1.0, 0.5, 0.78, 0.32, 0.6, 0.2)[place % MAX_PARTS]


def roc(bound: Points, *, curve: Points = (), alt: str) -> str:
    """The highest true-positive rate against one unit, points (FPR, TPR), on log axes.

    `curve` is what one attack reached.
    """
    left, top, side = 62.0, 8.0, 300.0

    def place(rate: float) -> float:
        return side * (1 - math.log10(max(rate, MIN_RATE)) / math.log10(MIN_RATE))

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
