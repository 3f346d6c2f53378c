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

HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN, LETTER = 26.0, 90.0, 50.0, 24.0, 7.4


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
    boxes = _layout(graph)
    used = [p for p in STYLES if any(e.provenance == p for e in graph.edges)]
    width = max([b.x + b.width for b in boxes.values()] + [420.0]) + MARGIN
    bottom = max([b.y + HEIGHT for b in boxes.values()], default=0.0) + MARGIN
    height = bottom + 20 * (len(used) + (1 if graph.latent else 0)) + MARGIN
    body = [*_latents(graph, boxes), *(_link(e, boxes) for e in graph.edges), *(_node(n, b) for n, b in boxes.items()), *_legend(used, graph, bottom)]
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


def _layout(graph: CausalGraph) -> dict[str, _Box]:
    """Layers by longest path from the roots; rows by the mean row of the neighbours, a few sweeps each way."""
    layers = [list(layer) for layer in nx.topological_generations(graph.dag)]
    rank = {n: i for i, n in enumerate(graph.nodes)}
    layers = [sorted(layer, key=rank.__getitem__) for layer in layers]
    row = {n: i - (len(layer) - 1) / 2 for layer in layers for i, n in enumerate(layer)}
    for sweep in range(8):
        side = graph.dag.predecessors if sweep % 2 == 0 else graph.dag.successors
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            target = {n: sum(near) / len(near) if (near := [row[m] for m in side(n)]) else row[n] for n in layer}
            layer.sort(key=lambda n: (target[n], rank[n]))
            row.update({n: i - (len(layer) - 1) / 2 for i, n in enumerate(layer)})
    top = min(row.values(), default=0.0)
    boxes: dict[str, _Box] = {}
    x = MARGIN
    for layer in layers:
        widths = {n: 18 + LETTER * len(n) for n in layer}
        boxes.update({n: _Box(x + (max(widths.values()) - widths[n]) / 2, MARGIN + (row[n] - top) * ROW_GAP, widths[n]) for n in layer})
        x += max(widths.values()) + COLUMN_GAP
    return boxes


def _link(edge: GraphEdge, boxes: Mapping[str, _Box]) -> str:
    style, a, b = STYLES[edge.provenance], boxes[edge.cause], boxes[edge.effect]
    if a.x > b.x and not edge.directed:
        a, b = b, a
    (x1, y1), (x2, y2) = a.right, b.left
    bend = max(30.0, abs(x2 - x1) / 2)
    if x2 < x1:  # same layer: only links that are no part of the graph
        (x2, y2), bend = b.right, 30.0
        path = f"M{x1:.1f},{y1:.1f} C{max(x1, x2) + bend:.1f},{y1:.1f} {max(x1, x2) + bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    else:
        path = f"M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2 - (4 if edge.directed else 0):.1f},{y2:.1f}"
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    head = f' marker-end="url(#head-{edge.provenance})"' if edge.directed else ""
    words = f"{edge.cause} {'to' if edge.directed else 'and'} {edge.effect}: {edge.provenance}"
    look = f'fill="none" stroke="{style.colour}" stroke-width="{style.width}"{dashes}{head}'
    return f'<path class="{edge.provenance}" d="{path}" {look}><title>{_text(words)}</title></path>'


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


def _legend(used: list[str], graph: CausalGraph, top: float) -> list[str]:
    rows = [(STYLES[p].colour, STYLES[p].dashes, STYLES[p].width, f"{p}: {STYLES[p].meaning}") for p in used]
    if graph.latent:
        rows.append(("#8A5A9E", "1 3", 1.4, "latent: unseen common cause"))
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
