"""A partial ancestral graph as a value: links with a mark at each end.

A tail at a of the link a - b says that a is a cause of b, direct or not. An arrowhead at a says
that a is no cause of b. A circle says neither. An unseen common cause may join any link that is
not `visible` (J. Zhang 2008, "Causal reasoning with ancestral graphs", JMLR 9, definition 8).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from synthdp.graph.knowledge import Pair

Mark = Literal["tail", "arrow", "circle"]


class Pag:
    """Links over `nodes`; each end starts as a circle, and a mark once set stays.

    >>> pag = Pag("abc", [("a", "b"), ("c", "b")])
    >>> pag.put("arrow", at="b", other="a"), pag.mark(at="b", other="a")
    (True, 'arrow')
    >>> pag.put("tail", at="b", other="a"), pag.mark(at="a", other="b")
    (False, 'circle')
    """

    def __init__(self, nodes: Iterable[str], links: Iterable[Pair]) -> None:
        self.nodes = tuple(nodes)
        self.around: dict[str, set[str]] = {n: set() for n in self.nodes}
        self._marks: dict[Pair, Mark] = {}
        for a, b in links:
            self.around[a].add(b)
            self.around[b].add(a)
            self._marks[a, b] = self._marks[b, a] = "circle"

    def mark(self, *, at: str, other: str) -> Mark:
        """The mark at one end of a link."""
        return self._marks[at, other]

    def put(self, mark: Mark, *, at: str, other: str) -> bool:
        """Set the mark at one end, if it is a circle; returns whether that changed it."""
        if self._marks[at, other] != "circle":
            return False
        self._marks[at, other] = mark
        return True

    def arrow_at(self, at: str, other: str) -> bool:
        """Whether the link to `other` has an arrowhead at `at`."""
        return other in self.around[at] and self._marks[at, other] == "arrow"

    def arrow(self, a: str, b: str) -> bool:
        """Whether the link is a -> b."""
        return self.arrow_at(b, a) and self._marks[a, b] == "tail"
