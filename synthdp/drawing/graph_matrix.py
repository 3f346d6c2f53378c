"""A graph of many arrows as a matrix: causes in rows, effects in columns, both in causal order.

Each provenance has a colour and a shape of its own, so that it reads in black and white too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from synthdp.drawing.graph_layout import MARGIN, DrawnGraph, Link, confounded
from synthdp.drawing.palette import FAINT, INK
from synthdp.drawing.svg import fixed, frame, label, line, safe, short

MAX_NODES = 60  # beyond, columns without a link are left out
_SQUARE, _DISC = "M1,1h8v8h-8z", "M5,1a4,4 0 1 0 .01,0z"
# In a square of side 10; holes by the even-odd rule.
SHAPES = {
    "given": _SQUARE,
    "required": f"{_SQUARE}M3.5,3.5v3h3v-3z",
    "learned": _DISC,
    "supported": "M5,0L10,5 5,10 0,5z",
    "refuted": "M1,3L3,1 5,3 7,1 9,3 7,5 9,7 7,9 5,7 3,9 1,7 3,5z",
    "undecided": f"{_DISC}M5,3.2a1.8,1.8 0 1 1 -.01,0z",
    "predictive": "M5,1L9.5,9H.5z",
    "latent": "M1,4h8v2h-8z",
}


class Look(Protocol):
    """How links of one provenance look, and what the legend says."""

    @property
    def colour(self) -> str: ...
    @property
    def meaning(self) -> str: ...


def matrix(
    graph: DrawnGraph,
    edges: Sequence[Link],
    *,
    title: str,
    styles: Mapping[str, Look],
    notes: Sequence[str],
    description: str,
) -> str:
    """The SVG text. `edges` are drawn, `notes` stand below the legend.

    A link of unknown direction is in both of its cells.
    """
    causes, effects = _shown(graph, edges)
    most = max(len(causes), len(effects))
    cell = 18.0 if most <= 40 else 13.0 if most <= 120 else 10.0
    size = min(12.0, cell - 1)
    left, top = (
        20 + 0.62 * size * max(len(short(n)) for n in names) for names in (causes, effects)
    )
    top += 24
    wide, high = cell * len(effects), cell * len(causes)
    body = [*_grid(causes, effects, left, top, cell, size)]
    for kind, colour, words, (a, b) in _links(graph, edges, styles):
        if a in causes and b in effects:
            x, y = left + cell * effects[b], top + cell * causes[a]
            body.append(_mark(kind, colour, x, y, cell, words))
    used = [p for p in styles if any(e.provenance == p for e in edges)]
    legend = [(p, styles[p].colour, f"{p}: {styles[p].meaning}") for p in used]
    if graph.latent:
        legend.append(("latent", FAINT, "latent: unseen common cause"))
    hidden = len(graph.nodes) - len({*causes, *effects})
    if hidden:
        notes = [*notes, f"{hidden} columns without a link are not shown"]
    body += _legend(legend, notes, top + high + 16)
    return frame(
        body,
        name="graph",
        title=title,
        description=description,
        width=max(left + wide, 460.0) + MARGIN,
        height=top + high + 24 + 20 * (len(legend) + len(notes)) + MARGIN,
    )


def _shown(graph: DrawnGraph, edges: Sequence[Link]) -> tuple[dict[str, int], dict[str, int]]:
    """The places of the rows and of the columns, causes before effects.

    A large graph shows only what is a cause, and what is an effect.
    """
    order = graph.order()
    ends = [e.pair for e in edges] + [e.pair[::-1] for e in edges if not e.directed]
    kept = [{pair[k] for pair in ends} if len(order) > MAX_NODES else set(order) for k in (0, 1)]
    rows, columns = ([name for name in order if name in names] for names in kept)
    return {n: i for i, n in enumerate(rows)}, {n: i for i, n in enumerate(columns)}


def _links(
    graph: DrawnGraph, edges: Sequence[Link], styles: Mapping[str, Look]
) -> Iterator[tuple[str, str, str, tuple[str, str]]]:
    """Kind, colour, words and cell of each mark."""
    for edge in edges:
        a, b = edge.pair
        words = f"{a} {'to' if edge.directed else 'and'} {b}: {edge.provenance}"
        for pair in [(a, b)] if edge.directed else [(a, b), (b, a)]:
            yield edge.provenance, styles[edge.provenance].colour, words, pair
    for a, b in confounded(graph):
        for pair in ((a, b), (b, a)):
            yield "latent", FAINT, f"{a} and {b}: unseen common cause", pair


def _grid(
    causes: Mapping[str, int],
    effects: Mapping[str, int],
    left: float,
    top: float,
    cell: float,
    size: float,
) -> Iterator[str]:
    """Names on two sides, and bands that lead the eye from them."""
    wide, high = cell * len(effects), cell * len(causes)
    yield label(left - 8, top - 8, "cause", anchor="end", size=11, colour=FAINT)
    yield label(left, 14, "effect", size=11, colour=FAINT)
    for name, i in causes.items():
        if i % 2:
            look = f'width="{fixed(wide)}" height="{fixed(cell)}" fill="#f1f3f5"'
            yield f'<rect x="{fixed(left)}" y="{fixed(top + cell * i)}" {look}/>'
        at = top + cell * (i + 0.5) + size / 3
        yield label(left - 6, at, short(name), anchor="end", size=size)
    for name, i in effects.items():
        x, y = fixed(left + cell * (i + 0.5) + size / 3), fixed(top - 6)
        turn = f'transform="rotate(-90 {x} {y})"'
        words = safe(short(name))
        yield f'<text x="{x}" y="{y}" font-size="{size:g}" fill="{INK}" {turn}>{words}</text>'
    for i in range(len(effects) + 1):
        x_, width = left + cell * i, 1.0 if i % 5 == 0 else 0.4
        yield line(x_, top, x_, top + high, colour="#d5d9de", width=width)


def _mark(kind: str, colour: str, x: float, y: float, cell: float, words: str) -> str:
    """The mark of a link in its cell."""
    move = f"translate({fixed(x + cell * 0.1)},{fixed(y + cell * 0.1)}) scale({cell * 0.08:.2f})"
    return (
        f'<path class="{kind}" transform="{move}" d="{SHAPES[kind]}" fill="{colour}"'
        f' fill-rule="evenodd"><title>{safe(words)}</title></path>'
    )


def _legend(
    rows: Sequence[tuple[str, str, str]], notes: Sequence[str], top: float
) -> Iterator[str]:
    for i, (kind, colour, words) in enumerate(rows):
        y = top + 20 * i
        yield _mark(kind, colour, MARGIN, y, 16, words)
        yield label(MARGIN + 26, y + 13, words)
    for i, words in enumerate(notes, start=len(rows)):
        yield label(MARGIN, top + 13 + 20 * i, words)
