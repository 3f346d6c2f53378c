"""A picture of a causal graph as one self-contained SVG: causes left, effects right.

A graph of many arrows is drawn as a matrix (`synthdp.drawing.graph_matrix`).

What is believed of a link shows in its colour and in its line style, so that it reads in black and
white too. No scripts, fonts or other files are referred to; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from synthdp.drawing.graph_layout import (
    HEIGHT,
    MARGIN,
    MAX_SHARING,
    Box,
    DrawnGraph,
    Link,
    Pair,
    Point,
    Route,
    confounded,
    layout,
)
from synthdp.drawing.graph_marks import (
    SIZE,
    TIP,
    MarkedLink,
    by_pair,
    definitions,
    gap,
    marks_of,
    noted,
    references,
    spread,
)
from synthdp.drawing.graph_matrix import matrix
from synthdp.drawing.palette import INK
from synthdp.drawing.svg import arrow_head, frame, line, safe

LATENT = ("#8A5A9E", "10 3 2 3 2 3", 1.6)
MAX_ARROWS = 25  # beyond, arrows cross so often that a matrix is easier to read
MAX_TOLD = 25_000  # pairs without an answer that the description names one by one
LATENT_DROP = 7.0  # a latent link leaves and enters its boxes this far below an arrow


@dataclass(frozen=True)
class Style:
    """How links of one provenance look, and what the legend says."""

    colour: str
    dashes: str
    width: float
    meaning: str


# Colour-blind safe (Okabe and Ito); each also has its own dash pattern.
STYLES: Mapping[str, Style] = {
    "given": Style("#333333", "", 1.6, "given by the steward"),
    "required": Style("#333333", "14 3", 1.6, "required by the steward"),
    "learned": Style("#0072B2", "8 3", 1.8, "learned from noisy tables"),
    "supported": Style("#00795A", "", 2.8, "given, supported by noisy tables"),
    "refuted": Style("#C23B00", "8 3 2 3", 2.4, "given, refuted by noisy tables"),
    "undecided": Style("#7A7A7A", "2 4", 1.4, "not enough evidence"),
    "predictive": Style("#7A5AA6", "8 3", 1.6, "predicts, and claims no cause"),
}

DIFFERENCE: Mapping[str, Style] = {
    "given": Style("#333333", "", 1.6, "in both"),
    "learned": Style("#00795A", "", 2.8, "added"),
    "refuted": Style("#C23B00", "8 3 2 3", 2.4, "removed"),
    "undecided": Style("#0072B2", "8 3", 1.8, "turned, as it is now"),
}
"""The looks of a picture of two graphs, by the provenance that `graph.diff` gives their links."""


def draw(graph: DrawnGraph, *, title: str, styles: Mapping[str, Style] = STYLES) -> str:
    """The SVG text of a graph; `styles` by provenance.

    At most `MAX_ARROWS` links are drawn as arrows, more as a matrix.
    """
    # Many pairs without an answer would bury the graph: they are then counted, not drawn.
    edges = (
        graph.edges
        if len(graph.open_pairs) <= len(graph.nodes)
        else tuple(e for e in graph.edges if e.structural)
    )
    if len(edges) > MAX_ARROWS:
        return matrix(
            graph,
            edges,
            title=title,
            styles=styles,
            notes=[*_notes(graph, len(graph.edges) - len(edges)), *noted(graph.pag, drawn=False)],
            description=_description(graph),
        )
    return arrows(graph, edges, title=title, styles=styles)


def arrows(
    graph: DrawnGraph, edges: Sequence[Link], *, title: str, styles: Mapping[str, Style] = STYLES
) -> str:
    """The SVG text of boxes and arrows. `edges` are those of the graph's that are drawn.

    Known directions have solid arrow heads, unknown ones have none. Where causes may be unseen,
    links have the marks that hold in spite of that.
    """
    boxes, bends = layout(graph, edges)
    marked = by_pair(graph.pag)
    ends = [_ends(edge.pair, boxes) for edge in edges] if marked else []
    drops = spread(ends, {name: box.y for name, box in boxes.items()})
    used = [p for p in styles if any(e.provenance == p for e in edges)]
    hidden = len(graph.edges) - len(edges)
    width = max([b.x + b.width for b in boxes.values()] + [420.0]) + MARGIN
    lowest_bend = max((y for points in bends.values() for _, y in points), default=0.0)
    bottom = max([b.y + HEIGHT for b in boxes.values()] + [lowest_bend + HEIGHT / 2]) + MARGIN
    legend = _legend({p: styles[p] for p in used}, graph, bottom, hidden, named=styles is STYLES)
    height = bottom + 20 * len(legend) + MARGIN
    body = [
        *_latents(graph, boxes, bends),
        *(_link(e, marked.get(frozenset(e.pair)), drops, boxes, bends, styles) for e in edges),
        *(_node(n, b) for n, b in boxes.items()),
        *legend,
    ]
    heads = [arrow_head(f"head-{p}", styles[p].colour, tip=TIP, size=SIZE) for p in used]
    if marked:
        heads += definitions({p: styles[p].colour for p in used})
    return frame(
        body,
        name="graph",
        title=title,
        description=_description(graph),
        width=width,
        height=height,
        defs="".join([*heads, _dot() if graph.latent else ""]),
    )


def _link(
    edge: Link,
    marked: MarkedLink | None,
    drops: Mapping[tuple[str, str, int], float],
    boxes: Mapping[str, Box],
    bends: Mapping[Route, list[Point]],
    styles: Mapping[str, Style],
) -> str:
    style = styles[edge.provenance]
    left, right = _ends(edge.pair, boxes)
    if marked is None:  # an arrow leads to the right
        marks = ("tail", "arrow" if edge.directed else "tail")
        told = f"{edge.cause} {'to' if edge.directed else 'and'} {edge.effect}"
    else:
        marks, told = marks_of(marked, left), str(marked)
    drop = (drops.get((left, right, 0), 0.0), drops.get((left, right, 1), 0.0))
    gaps = (gap(marks[0]), gap(marks[1]))
    path = _path(edge.pair, boxes, bends, kind="link", gaps=gaps, drops=drop)
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    ends = references(edge.provenance, *marks)
    words = f"{told}: {edge.provenance}"
    look = f'fill="none" stroke="{style.colour}" stroke-width="{style.width}"{dashes}{ends}'
    return f'<path class="{edge.provenance}" d="{path}" {look}><title>{safe(words)}</title></path>'


def _ends(pair: Pair, boxes: Mapping[str, Box]) -> Pair:
    """The columns of a pair from left to right."""
    left, right = sorted(pair, key=lambda n: boxes[n].x + boxes[n].width / 2)
    return left, right


def _path(
    pair: Pair,
    boxes: Mapping[str, Box],
    bends: Mapping[Route, list[Point]],
    *,
    kind: str,
    gaps: tuple[float, float] = (0.0, 0.0),
    drops: Point = (0.0, 0.0),
) -> str:
    """From the right of the left box to the left of the right one, which it misses by `gaps`.

    Its ends are `drops` below the middle of the boxes' sides. Within a layer it goes around the
    right side. Inside a layer it runs level, since wider boxes may stand above and below.
    """
    a, b = _ends(pair, boxes)
    (x1, y1), (x2, y2) = boxes[a].right, boxes[b].left
    x1, y1, y2 = x1 + gaps[0], y1 + drops[0], y2 + drops[1]
    if x2 < x1:  # side by side in a layer: no arrow, and never a structural link
        side = max(x1, boxes[b].right[0]) + 30
        return _curve([(x1, y1), (side, (y1 + y2) / 2), (boxes[b].right[0] + gaps[1], y2)])
    via = bends.get((a, b, kind)) or bends.get((b, a, kind)) or []
    leaves, enters = (max(boxes[a].stop, x1), y1), (min(boxes[b].start, x2 - gaps[1]), y2)
    return _curve([(x1, y1), leaves, *via, enters, (x2 - gaps[1], y2)])


def _curve(points: list[Point]) -> str:
    """A smooth path through the points, level at each."""
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (x1 + x2) / 2
        path += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return path


def _node(name: str, box: Box) -> str:
    rect = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}"'
        ' rx="6" fill="#f4f6f8" stroke="#333333"/>'
    )
    label = (
        f'<text x="{box.x + box.width / 2:.1f}" y="{box.y + 17.5:.1f}" text-anchor="middle"'
        f' fill="{INK}">{safe(name)}</text>'
    )
    return f"<g>{rect}{label}</g>"


def _latents(
    graph: DrawnGraph, boxes: Mapping[str, Box], bends: Mapping[Route, list[Point]]
) -> list[str]:
    """Lines between columns with an unobserved common cause.

    Each end is a dot, since no arrow leads from one to the other.
    """
    colour, dashes, width = LATENT
    lines = []
    for a, b in confounded(graph):
        path = _path((a, b), boxes, bends, kind="latent", drops=(LATENT_DROP, LATENT_DROP))
        look = (
            f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'
            ' marker-start="url(#dot)" marker-end="url(#dot)"'
        )
        lines.append(
            f'<path class="latent" d="{path}"'
            f" {look}><title>{safe(f'{a} and {b}: unseen common cause')}</title></path>"
        )
    return lines


def _dot() -> str:
    circle = f'<circle cx="4" cy="4" r="3.2" fill="{LATENT[0]}"/>'
    return (
        '<marker id="dot" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="8" markerHeight="8"'
        f' markerUnits="userSpaceOnUse">{circle}</marker>'
    )


def _legend(
    used: Mapping[str, Style], graph: DrawnGraph, top: float, hidden: int, *, named: bool
) -> list[str]:
    rows = [
        (s.colour, s.dashes, s.width, f"{p}: {s.meaning}" if named else s.meaning)
        for p, s in used.items()
    ]
    if graph.latent:
        rows.append((*LATENT, "latent: unseen common cause"))
    notes = [*_notes(graph, hidden), *noted(graph.pag, drawn=True)]
    rows += [("none", "", 0.0, words) for words in notes]
    lines = []
    for i, (colour, dashes, width, words) in enumerate(rows):
        y = top + 10 + 20 * i
        sample = line(MARGIN, y, MARGIN + 46, y, colour=colour, width=width, dashes=dashes)
        lines.append(
            f'{sample}<text x="{MARGIN + 56}" y="{y + 4.5:.1f}" fill="{INK}">{safe(words)}</text>'
        )
    return lines


def _notes(graph: DrawnGraph, hidden: int) -> list[str]:
    """What is not drawn, in words."""
    notes = []
    wide = sum(len(names) > MAX_SHARING for names in graph.latent)
    if wide:
        notes.append(f"unseen causes of more than {MAX_SHARING} columns each, not drawn: {wide}")
    if hidden:
        notes.append(f"{hidden} more pairs without enough evidence are not drawn")
    return notes


def _description(graph: DrawnGraph) -> str:
    """The graph in words, for those who do not see the picture."""
    many = len(graph.open_pairs) > MAX_TOLD
    told = [e for e in graph.edges if e.structural] if many else graph.edges
    marked = by_pair(graph.pag)
    links = [
        f"{marked.get(frozenset(e.pair)) or f'{e.cause} {_verb(e)} {e.effect}'} ({e.provenance})"
        for e in told
    ]
    if many:
        links.append(f"{len(graph.open_pairs)} pairs have no answer")
    latent = [f"{', '.join(names)} share an unseen cause" for names in graph.latent]
    return f"{len(graph.nodes)} columns. " + ("; ".join(links + latent) or "No links") + "."


def _verb(link: Link) -> str:
    if not link.directed:
        return "is linked to"
    return "predicts" if link.provenance == "predictive" else "causes"
