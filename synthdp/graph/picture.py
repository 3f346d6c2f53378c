"""A picture of a causal graph as one self-contained SVG: causes left, effects right.

What is believed of a link shows in its colour and in its line style, so that it reads in black and white
too. No scripts, fonts or other files are referred to; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import networkx as nx

if TYPE_CHECKING:
    from synthdp.graph.causal import CausalGraph, GraphEdge
    from synthdp.graph.knowledge import Pair

HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN = 26.0, 70.0, 40.0, 28.0

_Point = tuple[float, float]
_Slot = tuple[str, ...]
"""A place in a layer: (node,), or (cause, effect, layer) for an arrow passing through."""


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
}


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + HEIGHT / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.width, self.y + HEIGHT / 2


def draw(graph: CausalGraph, *, title: str) -> str:
    """The SVG text of a graph. Solid arrow heads for known directions, none for unknown ones."""
    boxes, bends = _layout(graph)
    # Many pairs without an answer would bury the graph: they are then counted, not drawn.
    edges = graph.edges if len(graph.open_pairs) <= len(graph.nodes) else tuple(e for e in graph.edges if e.structural)
    used = [p for p in STYLES if any(e.provenance == p for e in edges)]
    hidden = len(graph.edges) - len(edges)
    width = max([b.x + b.width for b in boxes.values()] + [420.0]) + MARGIN
    lowest_bend = max((y for points in bends.values() for _, y in points), default=0.0)
    bottom = max([b.y + HEIGHT for b in boxes.values()] + [lowest_bend + HEIGHT / 2]) + MARGIN
    height = bottom + 20 * (len(used) + bool(graph.latent) + bool(hidden)) + MARGIN
    body = [
        *_latents(graph, boxes),
        *(_link(e, boxes, bends) for e in edges),
        *(_node(n, b) for n, b in boxes.items()),
        *_legend(used, graph, bottom, hidden),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            'role="img" aria-labelledby="graph-title graph-desc" font-family="sans-serif" font-size="13">',
            f'<title id="graph-title">{_text(title)}</title>',
            f'<desc id="graph-desc">{_text(_description(graph))}</desc>',
            f"<defs>{''.join(_head(p) for p in used)}</defs>",
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _text(text: str) -> str:
    """Escaped for SVG, without the control characters that XML refuses."""
    return escape("".join(c for c in text if c >= " " and not 0xD800 <= ord(c) <= 0xDFFF and c not in "\ufffe\uffff"), {'"': "&quot;"})


def _layers(graph: CausalGraph) -> dict[str, int]:
    """Longest path from the roots; then causes move right, next to their first effect, which shortens arrows."""
    layer = {n: i for i, names in enumerate(nx.topological_generations(graph.dag)) for n in names}
    for name in reversed(graph.order()):
        effects = [layer[m] for m in graph.dag.successors(name)]
        layer[name] = min(effects) - 1 if effects else layer[name]
    return layer


def _layout(graph: CausalGraph) -> tuple[dict[str, _Box], dict[Pair, list[_Point]]]:
    """Boxes of the nodes, and for each arrow that skips layers the points it passes between other boxes.

    Such an arrow takes a row in every layer it crosses. Rows follow the mean row of the neighbours, a few sweeps
    each way (Sugiyama's method).
    """
    level = _layers(graph)
    layers: list[list[_Slot]] = [[(n,) for n in graph.nodes if level[n] == i] for i in range(max(level.values(), default=-1) + 1)]
    before: dict[_Slot, list[_Slot]] = {}
    after: dict[_Slot, list[_Slot]] = {}
    for a, b in graph.dag.edges:
        chain: list[_Slot] = [(a,), *((a, b, str(i)) for i in range(level[a] + 1, level[b])), (b,)]
        for i, slot in enumerate(chain[1:-1]):
            layers[level[a] + 1 + i].append(slot)
        for left, right in pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    row = _rows(layers, before, after)
    top = min(row.values(), default=0.0)
    boxes: dict[str, _Box] = {}
    bends: dict[Pair, list[_Point]] = {}
    x = MARGIN
    for slots in layers:
        widest = max(_width(s[0]) for s in slots if len(s) == 1)
        for slot in slots:
            y = MARGIN + (row[slot] - top) * ROW_GAP
            if len(slot) == 1:
                boxes[slot[0]] = _Box(x + (widest - _width(slot[0])) / 2, y, _width(slot[0]))
            else:
                bends.setdefault((slot[0], slot[1]), []).extend([(x, y + HEIGHT / 2), (x + widest, y + HEIGHT / 2)])
        x += widest + COLUMN_GAP
    return boxes, bends


def _rows(layers: list[list[_Slot]], before: Mapping[_Slot, list[_Slot]], after: Mapping[_Slot, list[_Slot]]) -> dict[_Slot, float]:
    row = {s: i - (len(slots) - 1) / 2 for slots in layers for i, s in enumerate(slots)}
    for sweep in range(12):
        side = before if sweep % 2 == 0 else after
        for slots in layers if sweep % 2 == 0 else reversed(layers):
            target = {s: sum(row[m] for m in side[s]) / len(side[s]) if s in side else row[s] for s in slots}
            slots.sort(key=lambda s: (target[s], s))
            row.update({s: i - (len(slots) - 1) / 2 for i, s in enumerate(slots)})
    return row


def _width(name: str) -> float:
    return 18 + sum(9.6 if c.isupper() or not c.isascii() else 7.4 for c in name)


def _link(edge: GraphEdge, boxes: Mapping[str, _Box], bends: Mapping[Pair, list[_Point]]) -> str:
    style, a, b = STYLES[edge.provenance], boxes[edge.cause], boxes[edge.effect]
    via = bends.get(edge.pair) or bends.get(edge.pair[::-1]) or []
    if a.x > b.x and not edge.directed:
        a, b = b, a
    if b.x < a.x + a.width:  # side by side in a layer: only pairs that are no part of the graph
        path = _curve([a.right, (max(a.right[0], b.right[0]) + 30, (a.y + b.y + HEIGHT) / 2), b.right])
    else:
        x, y = b.left
        path = _curve([a.right, *via, (x - 4 if edge.directed else x, y)])
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    head = f' marker-end="url(#head-{edge.provenance})"' if edge.directed else ""
    words = f"{edge.cause} {'to' if edge.directed else 'and'} {edge.effect}: {edge.provenance}"
    look = f'fill="none" stroke="{style.colour}" stroke-width="{style.width}"{dashes}{head}'
    return f'<path class="{edge.provenance}" d="{path}" {look}><title>{_text(words)}</title></path>'


def _curve(points: list[_Point]) -> str:
    """A smooth path through the points, level at each."""
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = (x1 + x2) / 2
        path += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return path


def _node(name: str, box: _Box) -> str:
    rect = f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="6" fill="#f4f6f8" stroke="#333333"/>'
    label = f'<text x="{box.x + box.width / 2:.1f}" y="{box.y + 17.5:.1f}" text-anchor="middle" fill="#111111">{_text(name)}</text>'
    return f"<g>{rect}{label}</g>"


def _latents(graph: CausalGraph, boxes: Mapping[str, _Box]) -> list[str]:
    """Thin double-ended arcs between columns that share an unseen cause."""
    lines = []
    for names in graph.latent:
        for a, b in pairwise(names):
            (x1, y1), (x2, y2) = boxes[a].left, boxes[b].left
            bend = min(x1, x2) - 30
            path = f"M{x1:.1f},{y1:.1f} C{bend:.1f},{y1:.1f} {bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
            lines.append(f'<path class="latent" d="{path}" fill="none" stroke="#8A5A9E" stroke-width="1.4" stroke-dasharray="1 3"/>')
    return lines


def _head(provenance: str) -> str:
    return (
        f'<marker id="head-{provenance}" viewBox="0 0 10 10" refX="6" refY="5" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" '
        f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{STYLES[provenance].colour}"/></marker>'
    )


def _legend(used: list[str], graph: CausalGraph, top: float, hidden: int) -> list[str]:
    rows = [(STYLES[p].colour, STYLES[p].dashes, STYLES[p].width, f"{p}: {STYLES[p].meaning}") for p in used]
    if graph.latent:
        rows.append(("#8A5A9E", "1 3", 1.4, "latent: unseen common cause"))
    if hidden:
        rows.append(("none", "", 0.0, f"{hidden} more pairs without enough evidence are not drawn"))
    lines = []
    for i, (colour, dashes, width, words) in enumerate(rows):
        y = top + 10 + 20 * i
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        line = f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{MARGIN + 46}" y2="{y:.1f}" stroke="{colour}" stroke-width="{width}"{dash}/>'
        lines.append(f'{line}<text x="{MARGIN + 56}" y="{y + 4.5:.1f}" fill="#111111">{_text(words)}</text>')
    return lines


def _description(graph: CausalGraph) -> str:
    """The graph in words, for those who do not see the picture."""
    links = [f"{e.cause} {'causes' if e.directed else 'is linked to'} {e.effect} ({e.provenance})" for e in graph.edges]
    latent = [f"{', '.join(names)} share an unseen cause" for names in graph.latent]
    return f"{len(graph.nodes)} columns. " + ("; ".join(links + latent) or "No links") + "."
