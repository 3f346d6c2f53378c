"""A picture of a causal graph as one self-contained SVG: causes left, effects right.

A graph of many arrows is drawn as a matrix. What is believed of a link shows in its colour and in
its line style or shape, so that it reads in black and white too. No scripts, fonts or other files
are referred to; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import networkx as nx

from synthdp.drawing import FAINT, INK, arrow_head, fixed, frame, label, line, safe, short
from synthdp.graph.knowledge import Pair

if TYPE_CHECKING:
    from synthdp.graph.causal import CausalGraph, GraphEdge
    from synthdp.graph.pag import PagLink

LATENT = ("#8A5A9E", "10 3 2 3 2 3", 1.6)


@dataclass(frozen=True)
class PictureSettings:
    """What is drawn, and how large.

    `max_arrows`: beyond, arrows cross so often that a matrix is easier to read; `max_nodes`:
    beyond, a matrix leaves out columns without a link; `max_told`: pairs without an answer that the
    description names one by one; `max_sharing`: columns of one unseen cause between which lines are
    drawn, 120 of them.

    `height` of a box, `column_gap` and `row_gap` between boxes, `margin` of the picture;
    `latent_drop`: a latent link leaves and enters its boxes this far below an arrow; `tip`: where a
    head's point lies on the end of a line, in tenths of it, and its `size`; `gap`: room between a
    box and the end of a line that has a mark; `max_step`: room between the ends of links at one
    side of a box, and `side` the room of a side.
    """

    max_arrows: int = 25
    max_nodes: int = 60
    max_told: int = 25_000
    max_sharing: int = 16
    height: float = 26.0
    column_gap: float = 70.0
    row_gap: float = 40.0
    margin: float = 28.0
    latent_drop: float = 7.0
    tip: int = 6
    size: int = 11
    gap: float = 4.0
    max_step: float = 7.0
    side: float = 24.0


SETTINGS = PictureSettings()
HEIGHT, MARGIN = SETTINGS.height, SETTINGS.margin


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


def draw(graph: CausalGraph, *, title: str, styles: Mapping[str, Style] = STYLES) -> str:
    """The SVG text of a graph; `styles` by provenance. Many links are drawn as a matrix."""
    # Many pairs without an answer would bury the graph: they are then counted, not drawn.
    buried = len(graph.open_pairs) > len(graph.nodes)
    edges = [e for e in graph.edges if e.structural or not buried]
    drawn = matrix if len(edges) > SETTINGS.max_arrows else arrows
    return drawn(graph, edges, title=title, styles=styles)


def arrows(
    graph: CausalGraph,
    edges: Sequence[GraphEdge],
    *,
    title: str,
    styles: Mapping[str, Style] = STYLES,
) -> str:
    """The SVG text of boxes and arrows. `edges` are those of the graph's that are drawn.

    Known directions have solid arrow heads, unknown ones have none. Where causes may be unseen,
    links have the marks that hold in spite of that.
    """
    placed, marked = layout(graph, edges), by_pair(graph.pag)
    boxes, bends = placed.boxes, placed.bends
    ends = [placed.ends(edge.pair) for edge in edges] if marked else []
    drops = spread(ends, {name: box.y for name, box in boxes.items()})
    used = [p for p in styles if any(e.provenance == p for e in edges)]
    width = max([b.x + b.width for b in boxes.values()] + [420.0]) + MARGIN
    lowest_bend = max((y for points in bends.values() for _, y in points), default=0.0)
    bottom = max([b.y + HEIGHT for b in boxes.values()] + [lowest_bend + HEIGHT / 2]) + MARGIN
    legend = _legend({p: styles[p] for p in used}, graph, edges, bottom, named=styles is STYLES)
    height = bottom + 20 * len(legend) + MARGIN
    body = [*_latents(graph, placed)]
    for edge in edges:
        mark, style = marked.get(frozenset(edge.pair)), styles[edge.provenance]
        body.append(_link(edge, mark, drops, placed, style))
    body += [*(_node(n, b) for n, b in boxes.items()), *legend]
    tip, size, looks = SETTINGS.tip, SETTINGS.size, {p: styles[p].colour for p in used}
    heads = [arrow_head(f"head-{p}", colour, tip=tip, size=size) for p, colour in looks.items()]
    for p, colour in looks.items() if marked else ():
        heads.append(arrow_head(f"back-head-{p}", colour, tip=tip, size=size, back=True))
        heads.append(
            f'<marker id="ring-{p}" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="9"'
            ' markerHeight="9" markerUnits="userSpaceOnUse"><circle cx="5" cy="5" r="3.6"'
            f' fill="#ffffff" stroke="{colour}" stroke-width="1.8"/></marker>'
        )
    if graph.latent:
        heads.append(
            '<marker id="dot" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="8" markerHeight="8"'
            ' markerUnits="userSpaceOnUse"><circle cx="4" cy="4" r="3.2"'
            f' fill="{LATENT[0]}"/></marker>'
        )
    told, defs = _description(graph), "".join(heads)
    return frame(body, width, height, name="graph", title=title, description=told, defs=defs)


def _link(
    edge: GraphEdge,
    marked: PagLink | None,
    drops: Mapping[_End, float],
    placed: Layout,
    style: Style,
) -> str:
    left, right = placed.ends(edge.pair)
    if marked is None:  # an arrow leads to the right
        marks = ("tail", "arrow" if edge.directed else "tail")
        told = f"{edge.cause} {'to' if edge.directed else 'and'} {edge.effect}"
    else:
        marks, told = (marked.at_a, marked.at_b), str(marked)
        marks = marks if marked.a == left else marks[::-1]
    drop = (drops.get((left, right, 0), 0.0), drops.get((left, right, 1), 0.0))
    start, end = (SETTINGS.gap if mark in NAMES else 0.0 for mark in marks)
    path = placed.path(edge.pair, kind="link", gaps=(start, end), drops=drop)
    dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
    ends = "".join(
        f' marker-{at}="url(#{way if mark == "arrow" else ""}{NAMES[mark]}-{edge.provenance})"'
        for at, mark, way in zip(("start", "end"), marks, ("back-", ""), strict=True)
        if mark in NAMES
    )
    words = f"{told}: {edge.provenance}"
    look = f'fill="none" stroke="{style.colour}" stroke-width="{style.width}"{dashes}{ends}'
    return f'<path class="{edge.provenance}" d="{path}" {look}><title>{safe(words)}</title></path>'


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


def _latents(graph: CausalGraph, placed: Layout) -> list[str]:
    """Dotted ends, since no arrow leads along lines of an unobserved common cause."""
    colour, dashes, width = LATENT
    look = (
        f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'
        ' marker-start="url(#dot)" marker-end="url(#dot)"'
    )
    lines, drop = [], SETTINGS.latent_drop
    for a, b in confounded(graph):
        path = placed.path((a, b), kind="latent", drops=(drop, drop))
        words = safe(f"{a} and {b}: unseen common cause")
        lines.append(f'<path class="latent" d="{path}" {look}><title>{words}</title></path>')
    return lines


def _legend(
    used: Mapping[str, Style],
    graph: CausalGraph,
    edges: Sequence[GraphEdge],
    top: float,
    *,
    named: bool,
) -> list[str]:
    rows = [
        (s.colour, s.dashes, s.width, f"{p}: {s.meaning}" if named else s.meaning)
        for p, s in used.items()
    ]
    if graph.latent:
        rows.append((*LATENT, "latent: unseen common cause"))
    rows += [("none", "", 0.0, words) for words in _notes(graph, edges, marks=NOTES)]
    lines = []
    for i, (colour, dashes, width, words) in enumerate(rows):
        y = top + 10 + 20 * i
        sample = line(MARGIN, y, MARGIN + 46, y, colour=colour, width=width, dashes=dashes)
        lines.append(
            f'{sample}<text x="{MARGIN + 56}" y="{y + 4.5:.1f}" fill="{INK}">{safe(words)}</text>'
        )
    return lines


def _notes(graph: CausalGraph, edges: Sequence[GraphEdge], *, marks: Sequence[str]) -> list[str]:
    """What is not drawn, in words, and what the legend says of `marks`, where links have any."""
    notes, most = [], SETTINGS.max_sharing
    if wide := sum(len(names) > most for names in graph.latent):
        notes.append(f"unseen causes of more than {most} columns each, not drawn: {wide}")
    if hidden := len(graph.edges) - len(edges):
        notes.append(f"{hidden} more pairs without enough evidence are not drawn")
    return notes if graph.pag is None else [*notes, *marks]


def _description(graph: CausalGraph) -> str:
    """The graph in words, for those who do not see the picture."""
    many = len(graph.open_pairs) > SETTINGS.max_told
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


def _verb(link: GraphEdge) -> str:
    if not link.directed:
        return "is linked to"
    return "predicts" if link.provenance == "predictive" else "causes"


# --- layout: causes left, effects right, in layers and rows by Sugiyama's method ---


Point = tuple[float, float]
_Slot = tuple[str, ...]
"""A place in a layer: (node,), or (cause, effect, layer, kind) for a link passing through."""
Route = tuple[str, str, str]
"""A link as it is laid out: (left end, right end, kind); a pair may have a `link` and a `latent`
one.
"""


@dataclass(frozen=True)
class Box:
    """A node's box, in a layer that reaches from `start` to `stop`."""

    x: float
    y: float
    width: float
    start: float
    stop: float


@dataclass(frozen=True)
class Layout:
    """Boxes of the nodes, and the points that a link over several layers passes between boxes."""

    boxes: dict[str, Box] = field(default_factory=dict)
    bends: dict[Route, list[Point]] = field(default_factory=dict)

    def ends(self, pair: Pair) -> Pair:
        left, right = sorted(pair, key=lambda n: self.boxes[n].x + self.boxes[n].width / 2)
        return left, right

    def path(
        self, pair: Pair, *, kind: str, gaps: Point = (0.0, 0.0), drops: Point = (0.0, 0.0)
    ) -> str:
        """From the right of the left box to the left of the right one, which it misses by `gaps`.

        Its ends are `drops` below the middle of the boxes' sides. Within a layer it goes around the
        right side. Inside a layer it runs level, since wider boxes may stand above and below.
        """
        a, b = self.ends(pair)
        left, right, bends = self.boxes[a], self.boxes[b], self.bends
        x1, x2, far = left.x + left.width + gaps[0], right.x, right.x + right.width
        y1, y2 = left.y + HEIGHT / 2 + drops[0], right.y + HEIGHT / 2 + drops[1]
        if x2 < x1:  # side by side in a layer: no arrow, and never a structural link
            return _curve([(x1, y1), (max(x1, far) + 30, (y1 + y2) / 2), (far + gaps[1], y2)])
        via = bends.get((a, b, kind)) or bends.get((b, a, kind)) or []
        leaves, enters = (max(left.stop, x1), y1), (min(right.start, x2 - gaps[1]), y2)
        return _curve([(x1, y1), leaves, *via, enters, (x2 - gaps[1], y2)])


def layout(graph: CausalGraph, edges: Sequence[GraphEdge]) -> Layout:
    """The places of boxes and links.

    A link over several layers takes a row in every layer it crosses. Rows follow the mean row of
    the neighbours, a few sweeps each way (Sugiyama's method).
    """
    # The longest path from the roots; then causes go right, next to their first effect.
    level = {n: i for i, names in enumerate(nx.topological_generations(graph.dag)) for n in names}
    for name in reversed(graph.order()):
        effects = [level[m] for m in graph.dag.successors(name)]
        level[name] = min(effects) - 1 if effects else level[name]
    layers: list[list[_Slot]] = [
        [(n,) for n in graph.nodes if level[n] == i]
        for i in range(max(level.values(), default=-1) + 1)
    ]
    before: dict[_Slot, list[_Slot]] = {}
    after: dict[_Slot, list[_Slot]] = {}
    pairs = [(*e.pair, "link") for e in edges] + [(*pair, "latent") for pair in confounded(graph)]
    for *pair, kind in pairs:
        a, b = sorted(pair, key=lambda name: level[name])
        if level[a] == level[b]:
            continue
        passing = [(a, b, str(i), kind) for i in range(level[a] + 1, level[b])]
        chain: list[_Slot] = [(a,), *passing, (b,)]
        for i, slot in enumerate(chain[1:-1]):
            layers[level[a] + 1 + i].append(slot)
        for left, right in pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    row = _rows(layers, before, after)
    top = min(row.values(), default=0.0)
    placed, x = Layout(), MARGIN
    for slots in layers:
        widest = max(_width(s[0]) for s in slots if len(s) == 1)
        for slot in slots:
            y = MARGIN + (row[slot] - top) * SETTINGS.row_gap
            if len(slot) == 1:
                width, stop = _width(slot[0]), x + widest
                placed.boxes[slot[0]] = Box(x + (widest - width) / 2, y, width, x, stop)
            else:
                passed = placed.bends.setdefault((slot[0], slot[1], slot[3]), [])
                passed += [(x, y + HEIGHT / 2), (x + widest, y + HEIGHT / 2)]
        x += widest + SETTINGS.column_gap
    return placed


def confounded(graph: CausalGraph) -> list[Pair]:
    """Pairs that get a latent line: not those of a cause of hundreds, which the legend counts."""
    few = [names for names in graph.latent if len(names) <= SETTINGS.max_sharing]
    return [pair for names in few for pair in combinations(names, 2)]


def _rows(
    layers: list[list[_Slot]],
    before: Mapping[_Slot, list[_Slot]],
    after: Mapping[_Slot, list[_Slot]],
) -> dict[_Slot, float]:
    row = {s: i - (len(slots) - 1) / 2 for slots in layers for i, s in enumerate(slots)}
    for sweep in range(12):
        side = before if sweep % 2 == 0 else after
        for slots in layers if sweep % 2 == 0 else reversed(layers):
            target = {
                s: sum(row[m] for m in side[s]) / len(side[s]) if s in side else row[s]
                for s in slots
            }
            slots.sort(key=lambda s: (target[s], s))
            row.update({s: i - (len(slots) - 1) / 2 for i, s in enumerate(slots)})
    return row


def _width(name: str) -> float:
    return 18 + sum(9.6 if c.isupper() or not c.isascii() else 7.4 for c in name)


# --- marks: what is known of each end of a link though causes may be unseen ---
#
# An arrow head at a column says that it is no cause of the other, a ring that this is not known,
# and a bare end that it is a cause (`synthdp.graph.pag`).


NOTES = (
    "ring: not known whether this end causes the other",
    "arrow head: this end does not cause the other",
    "no mark: this end causes the other",
)
_End = tuple[str, str, int]
"""(left, right, side): an end of a link, the left one (0) or the right one (1)."""
NAMES = {"arrow": "head", "circle": "ring"}


def by_pair(links: Sequence[PagLink] | None) -> Mapping[frozenset[str], PagLink]:
    return {frozenset((link.a, link.b)): link for link in links or ()}


def spread(pairs: Sequence[tuple[str, str]], height: Mapping[str, float]) -> dict[_End, float]:
    """How far below the middle of its box's side each end of a link stands, so that marks do not
    lie on each other: in the order of the other ends.

    `pairs` are the (left, right) columns of links, `height` the place of each column from the top.

    >>> spread([("a", "b"), ("a", "c")], {"a": 0, "b": 0, "c": 40})
    {('a', 'b', 0): -3.5, ('a', 'c', 0): 3.5, ('a', 'b', 1): 0.0, ('a', 'c', 1): 0.0}
    """
    at_side: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for side in (0, 1):
        for pair in pairs:
            at_side.setdefault((side, pair[side]), []).append(pair)
    places: dict[_End, float] = {}
    for (side, _), links in at_side.items():
        step = min(SETTINGS.max_step, SETTINGS.side / len(links))
        ordered = sorted(links, key=lambda pair: height[pair[1 - side]])
        for k, pair in enumerate(ordered):
            places[(*pair, side)] = (k - (len(links) - 1) / 2) * step
    return places


# --- the matrix: causes in rows, effects in columns, both in causal order ---


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


def matrix(
    graph: CausalGraph, edges: Sequence[GraphEdge], *, title: str, styles: Mapping[str, Style]
) -> str:
    """The SVG text; `edges` are drawn. A link of unknown direction is in both of its cells.

    A large graph shows only what is a cause, and what is an effect.
    """
    order = graph.order()
    ends = [e.pair for e in edges] + [e.pair[::-1] for e in edges if not e.directed]
    large = len(order) > SETTINGS.max_nodes
    kept = [{pair[k] for pair in ends} if large else set(order) for k in (0, 1)]
    shown = ([name for name in order if name in names] for names in kept)
    causes, effects = ({name: i for i, name in enumerate(names)} for names in shown)
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
    notes = _notes(
        graph, edges, marks=("what holds though causes may be unseen: pag in graph.json",)
    )
    if hidden := len(graph.nodes) - len({*causes, *effects}):
        notes.append(f"{hidden} columns without a link are not shown")
    rows = [top + high + 16 + 20 * i for i in range(len(legend) + len(notes))]
    for y, (kind, colour, words) in zip(rows, legend, strict=False):
        body += [_mark(kind, colour, MARGIN, y, 16, words), label(MARGIN + 26, y + 13, words)]
    for y, words in zip(rows[len(legend) :], notes, strict=True):
        body.append(label(MARGIN, y + 13, words))
    width, height = max(left + wide, 460.0) + MARGIN, top + high + 24 + 20 * len(rows) + MARGIN
    told = _description(graph)
    return frame(body, width, height, name="graph", title=title, description=told)


def _links(
    graph: CausalGraph, edges: Sequence[GraphEdge], styles: Mapping[str, Style]
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
