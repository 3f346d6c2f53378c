"""Figures of pairs of columns as inline SVG, for both reports: strengths, and small tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from synthdp.drawing.charts import FIRST, SECOND
from synthdp.drawing.svg import compact, inline_frame, label, rect, safe, short

FloatArray = npt.NDArray[np.float64]

SHADES = 5  # of a cell of a pair plot; the eye separates no more at this size

_text = partial(label, size=12, colour="currentColor", number=compact)


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
        body.append(_slanted(left + cell * (i + 0.5) + 4, top + cell * len(names) + 8, name, size))
        for j in range(i):
            value = float(values[i, j])
            body.append(_cell(left + cell * j, top + cell * i, cell - 1, value, most))
            if cell > 20 and abs(value) >= 0.1 * most:
                at = left + cell * (j + 0.5) - 0.5, top + cell * i + 18
                body.append(_on_cell(*at, value, most))
    side, deep = (
        cell * len(names),
        22 + 5.6 * max(len(short(name, 18)) for name in names),
    )  # room for slanted names
    return inline_frame(body, width=left + side + 10, height=top + side + deep, alt=alt)


def _slanted(x: float, y: float, name: str, size: float) -> str:
    x_, y_, size_ = map(compact, (x, y, size))
    return (
        f'<text x="{x_}" y="{y_}" text-anchor="end" font-size="{size_}"'
        f' transform="rotate(-50 {x_} {y_})">{safe(short(name, 18))}</text>'
    )


def _cell(x: float, y: float, side: float, value: float, most: float) -> str:
    shade = rect(x, y, side, side, 'fill="var(--line)" fill-opacity=".35"')
    strength = min(abs(value) / most, 1.0)
    if strength < 0.005:
        return shade
    colour = FIRST if value < 0 else SECOND
    return shade + rect(x, y, side, side, f'fill="{colour}" fill-opacity="{strength:.2f}"')


def _on_cell(x: float, y: float, value: float, most: float) -> str:
    # Dark cells take the page's own colour, which stands out from them in both modes.
    return _text(
        x,
        y,
        f"{value:.2f}".replace("0.", ".", 1),
        anchor="middle",
        size=10,
        colour="var(--page)" if abs(value) > 0.55 * most else "currentColor",
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
    column alone.

    Below the diagonal in the second colour, above it in the first; on it, shape `[levels]`, the
    column alone. `ends` are the first and the last level of each column, beside its axes.
    """
    left, cell, gap = 112.0, 58.0, 5.0
    side = len(names) * (cell + gap)
    body = []
    for i, name in enumerate(names):
        x, y = left + i * (cell + gap), 4 + i * (cell + gap)
        body.append(_text(left - 6, y + cell / 2 + 4, short(name, 16), anchor="end", size=11))
        body.append(_text(x + cell / 2, side + 26, short(name, 10), anchor="middle", size=9.5))
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
    return inline_frame(body, width=left + side + 6, height=side + 34, alt=alt)


def _ends(
    ends: tuple[str, str], x: float, y: float, cell: float, left: float, below: float
) -> Iterator[str]:
    """First and last level of a column: from the bottom up, and from left to right."""
    muted = "var(--muted)"
    first, last = ends
    row, column = [short(end, 14) for end in ends], [short(end, 5) for end in ends]
    if first == last:
        row[1] = column[1] = ""
    yield _text(left - 6, y + cell, row[0], anchor="end", size=8, colour=muted)
    yield _text(left - 6, y + 8, row[1], anchor="end", size=8, colour=muted)
    yield _text(x, below, column[0], anchor="start", size=8, colour=muted)
    yield _text(x + cell, below, column[1], anchor="end", size=8, colour=muted)


def _column(shares: FloatArray, x: float, y: float, cell: float) -> Iterator[str]:
    most, width = float(shares.max()) or 1.0, cell / len(shares)
    for k, share in enumerate(shares.tolist()):
        high = (cell - 4) * share / most
        yield rect(
            x + k * width,
            y + cell - high,
            max(width - 0.6, 0.6),
            high,
            'fill="var(--muted)"',
        )


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
