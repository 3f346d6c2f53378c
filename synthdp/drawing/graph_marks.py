"""What is known of each end of a link though causes may be unseen, as marks on a picture.

An arrow head at a column says that it is no cause of the other, a ring that this is not known, and
a bare end that it is a cause (`synthdp.graph.pag.marks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from synthdp.drawing.svg import arrow_head

TIP, SIZE = 6, 11
"""Where a head's point lies on the end of a line, in tenths of it, and how large it is."""
GAP = 4.0
"""Room between a box and the end of a line that has a mark."""
NOTES = (
    "ring: not known whether this end causes the other",
    "arrow head: this end does not cause the other",
    "no mark: this end causes the other",
)
MAX_STEP, SIDE = 7.0, 24.0
"""Room between the ends of links at one side of a box, and the room of a side."""
_End = tuple[str, str, int]
"""(left, right, side): an end of a link, the left one (0) or the right one (1)."""
NAMES = {"arrow": "head", "circle": "ring"}


class MarkedLink(Protocol):
    """A link with a mark at each end; `synthdp.graph.pag.marks.PagLink` is one."""

    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def at_a(self) -> str: ...
    @property
    def at_b(self) -> str: ...


def by_pair(links: Sequence[MarkedLink] | None) -> Mapping[frozenset[str], MarkedLink]:
    """The marked link of each pair that has one."""
    return {frozenset((link.a, link.b)): link for link in links or ()}


def marks_of(link: MarkedLink, left: str) -> tuple[str, str]:
    """The marks at the left end and at the right one."""
    return (link.at_a, link.at_b) if link.a == left else (link.at_b, link.at_a)


def gap(mark: str) -> float:
    """Room that a mark needs before a box."""
    return GAP if mark in NAMES else 0.0


def references(kind: str, left: str, right: str) -> str:
    """Attributes of a path of this kind that set its marks."""
    ends = (("start", left, "back-"), ("end", right, ""))
    return "".join(
        f' marker-{end}="url(#{way if mark == "arrow" else ""}{NAMES[mark]}-{kind})"'
        for end, mark, way in ends
        if mark in NAMES
    )


def definitions(colours: Mapping[str, str]) -> Iterator[str]:
    """Heads that point back and rings, by kind; heads that point on are those of every picture."""
    for kind, colour in colours.items():
        yield arrow_head(f"back-head-{kind}", colour, tip=TIP, size=SIZE, back=True)
        yield (
            f'<marker id="ring-{kind}" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="9"'
            ' markerHeight="9" markerUnits="userSpaceOnUse"><circle cx="5" cy="5" r="3.6"'
            f' fill="#ffffff" stroke="{colour}" stroke-width="1.8"/></marker>'
        )


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
        step = min(MAX_STEP, SIDE / len(links))
        ordered = sorted(links, key=lambda pair: height[pair[1 - side]])
        for k, pair in enumerate(ordered):
            places[(*pair, side)] = (k - (len(links) - 1) / 2) * step
    return places


def noted(links: Iterable[MarkedLink] | None, *, drawn: bool) -> tuple[str, ...]:
    """What the legend says of marks: what they mean, or where they are if none is drawn."""
    if links is None:
        return ()
    return NOTES if drawn else ("what holds though causes may be unseen: pag in graph.json",)
