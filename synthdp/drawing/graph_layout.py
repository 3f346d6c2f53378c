"""Where the columns and links of a causal graph stand in its picture: causes left, effects right.

Layers and rows follow Sugiyama's method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Protocol

import networkx as nx

from synthdp.drawing.graph_marks import MarkedLink

HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN = 26.0, 70.0, 40.0, 28.0

Pair = tuple[str, str]


class Link(Protocol):
    """What is drawn of a link; `synthdp.graph.edge.GraphEdge` is one."""

    @property
    def cause(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def directed(self) -> bool: ...
    @property
    def provenance(self) -> str: ...
    @property
    def structural(self) -> bool: ...
    @property
    def pair(self) -> Pair: ...


class DrawnGraph(Protocol):
    """What is drawn of a graph; `synthdp.graph.causal.CausalGraph` is one."""

    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def edges(self) -> Sequence[Link]: ...
    @property
    def latent(self) -> Sequence[tuple[str, ...]]: ...
    @property
    def pag(self) -> Sequence[MarkedLink] | None: ...
    @property
    def open_pairs(self) -> Sequence[Pair]: ...
    def order(self) -> tuple[str, ...]: ...
    @property
    def dag(self) -> nx.DiGraph: ...


Point = tuple[float, float]
_Slot = tuple[str, ...]
"""A place in a layer: (node,), or (cause, effect, layer, kind) for a link passing through."""
Route = tuple[str, str, str]
"""A link as it is laid out: (left end, right end, kind); a pair may have a `link` and a `latent`
one.
"""
MAX_SHARING = 16  # columns of one unseen cause between which lines are drawn: 120 of them


@dataclass(frozen=True)
class Box:
    """A node's box, in a layer that reaches from `start` to `stop`."""

    x: float
    y: float
    width: float
    start: float
    stop: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + HEIGHT / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.width, self.y + HEIGHT / 2


def layout(
    graph: DrawnGraph, edges: Sequence[Link]
) -> tuple[dict[str, Box], dict[Route, list[Point]]]:
    """Boxes of the nodes, and the points that a link over several layers passes between boxes.

    Such a link takes a row in every layer it crosses. Rows follow the mean row of the neighbours, a
    few sweeps each way (Sugiyama's method).
    """
    level = _layers(graph)
    layers: list[list[_Slot]] = [
        [(n,) for n in graph.nodes if level[n] == i]
        for i in range(max(level.values(), default=-1) + 1)
    ]
    before: dict[_Slot, list[_Slot]] = {}
    after: dict[_Slot, list[_Slot]] = {}
    pairs = [(*e.pair, "link") for e in edges] + [(*pair, "latent") for pair in confounded(graph)]
    for a, b, kind in [
        (a, b, kind) if level[a] < level[b] else (b, a, kind)
        for a, b, kind in pairs
        if level[a] != level[b]
    ]:
        chain: list[_Slot] = [
            (a,),
            *((a, b, str(i), kind) for i in range(level[a] + 1, level[b])),
            (b,),
        ]
        for i, slot in enumerate(chain[1:-1]):
            layers[level[a] + 1 + i].append(slot)
        for left, right in pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    row = _rows(layers, before, after)
    top = min(row.values(), default=0.0)
    boxes: dict[str, Box] = {}
    bends: dict[Route, list[Point]] = {}
    x = MARGIN
    for slots in layers:
        widest = max(_width(s[0]) for s in slots if len(s) == 1)
        for slot in slots:
            y = MARGIN + (row[slot] - top) * ROW_GAP
            if len(slot) == 1:
                boxes[slot[0]] = Box(
                    x + (widest - _width(slot[0])) / 2, y, _width(slot[0]), x, x + widest
                )
            else:
                bends.setdefault((slot[0], slot[1], slot[3]), []).extend(
                    [(x, y + HEIGHT / 2), (x + widest, y + HEIGHT / 2)]
                )
        x += widest + COLUMN_GAP
    return boxes, bends


def confounded(graph: DrawnGraph) -> list[Pair]:
    """Pairs that get a latent line.

    An unobserved cause of hundreds of columns would bury the graph: the legend counts it.
    """
    return [
        pair
        for names in graph.latent
        if len(names) <= MAX_SHARING
        for pair in combinations(names, 2)
    ]


def _layers(graph: DrawnGraph) -> dict[str, int]:
    """The longest path from the roots, with causes moved right, next to their first effect.

    The second step shortens arrows.
    """
    layer = {n: i for i, names in enumerate(nx.topological_generations(graph.dag)) for n in names}
    for name in reversed(graph.order()):
        effects = [layer[m] for m in graph.dag.successors(name)]
        layer[name] = min(effects) - 1 if effects else layer[name]
    return layer


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
