"""A partial ancestral graph as a value: links with a mark at each end.

A tail at a of the link a - b says that a is a cause of b, direct or not. An arrowhead at a says
that a is no cause of b. A circle says neither. An unseen common cause may join any link that is
not `visible`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, get_args

from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Pair

Mark = Literal["tail", "arrow", "circle"]
MARKS: tuple[Mark, ...] = get_args(Mark)
_LEFT = {"tail": "-", "arrow": "<", "circle": "o"}
_RIGHT = {"tail": "-", "arrow": ">", "circle": "o"}


@dataclass(frozen=True, order=True)
class PagLink:
    """A link of two columns and the mark at each of them.

    `visible`: it is an arrow that no unseen common cause can join (`Pag.visible`).

    >>> str(PagLink("dose", "pain", "circle", "arrow"))
    'dose o-> pain'
    """

    a: str
    b: str
    at_a: Mark
    at_b: Mark
    visible: bool = False

    def __str__(self) -> str:
        return f"{self.a} {_LEFT[self.at_a]}-{_RIGHT[self.at_b]} {self.b}"

    def to_json(self) -> dict[str, str | bool]:
        return {k: v for k, v in asdict(self).items() if k != "visible" or v}


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

    def links(self, apart: Container[frozenset[str]]) -> tuple[PagLink, ...]:
        """All links, in the order of the nodes; `apart` as in `visible`."""
        found = []
        for a, b in combinations(self.nodes, 2):
            if b in self.around[a]:
                visible = self.visible(a, b, apart) or self.visible(b, a, apart)
                found.append(PagLink(a, b, self._marks[a, b], self._marks[b, a], visible))
        return tuple(found)

    def mark(self, *, at: str, other: str) -> Mark:
        return self._marks[at, other]

    def put(self, mark: Mark, *, at: str, other: str) -> bool:
        """Set the mark at one end, if it is a circle; returns whether that changed it."""
        if mark == "circle" or self._marks[at, other] != "circle":
            return False
        self._marks[at, other] = mark
        return True

    def arrow_at(self, at: str, other: str) -> bool:
        return other in self.around[at] and self._marks[at, other] == "arrow"

    def arrow(self, a: str, b: str) -> bool:
        return self.arrow_at(b, a) and self._marks[a, b] == "tail"

    def visible(self, a: str, b: str, apart: Container[frozenset[str]]) -> bool:
        """Whether a -> b cannot be joined by an unseen common cause.

        Some c that is not linked to b has an arrowhead at a, or leads to one by arrowheads that
        meet in parents of b (J. Zhang 2008, "Causal reasoning with ancestral graphs", JMLR 9,
        definition 8). `apart` has the pairs that a test found independent: only these count as
        not linked.
        """
        if not self.arrow(a, b):
            return False
        seen, stack = {a, b}, [a]
        while stack:
            near = stack.pop()
            for c in self.around[near] - seen:
                if not self.arrow_at(near, c):
                    continue
                if c not in self.around[b]:
                    if frozenset((c, b)) in apart:
                        return True
                elif self.arrow_at(c, near) and self.arrow(c, b):
                    seen.add(c)
                    stack.append(c)
        return False


def links_of_json(data: object, nodes: Sequence[str]) -> tuple[PagLink, ...] | None:
    """The links under the key `pag` of graph.json; None where there is none.

    Raises:
        SynthdpError: they are not of that form, or join other columns than `nodes`, or one twice.
    """
    if data is None:
        return None
    if not isinstance(data, list):
        raise SynthdpError("graph.json: pag is no list of links")
    links = tuple(map(_link, data))
    pairs = [frozenset((link.a, link.b)) for link in links]
    if len(set(pairs)) < len(pairs) or any(len(p) < 2 or not p <= set(nodes) for p in pairs):
        raise SynthdpError("graph.json: pag joins a pair twice, or what is no pair of columns")
    return links


def _link(data: Any) -> PagLink:
    fields = ("a", "b", "at_a", "at_b")
    if not (isinstance(data, dict) and all(isinstance(data.get(f), str) for f in fields)):
        raise SynthdpError(f"not a link of a partial ancestral graph in JSON: {data!r}")
    marks, visible = {data["at_a"], data["at_b"]}, data.get("visible", False)
    if not marks <= {*MARKS} or visible not in (False, True):
        raise SynthdpError(f"not marks of a link in JSON: {data!r}; they are {', '.join(MARKS)}")
    if visible and marks != {"tail", "arrow"}:
        raise SynthdpError(f"not an arrow, and said to be visible, in JSON: {data!r}")
    return PagLink(data["a"], data["b"], data["at_a"], data["at_b"], bool(visible))


def unsettled(links: Iterable[PagLink], column: str) -> tuple[PagLink, ...]:
    """Links of a column that an unseen common cause may join so that effects of it are open.

    Without any, the graph settles what an intervention on the column does, in the simple sense:
    each link of the column x is p -> x, or an arrow x -> y that is `visible`. The p then block
    every back door of x. A path into x passes a p, from which an arrow leads to x, so that p blocks
    it. A path out of x that is not directed has an effect of x where arrows meet, which is no cause
    of a p, since arrows form no cycle. An unseen common cause of x and an effect would be a path of
    neither kind, and no visible arrow has one [generalised adjustment: Perković, Textor, Kalisch,
    Maathuis 2018, JMLR 18(220), of which this is a special case].

    >>> age = PagLink("age", "dose", "tail", "arrow")
    >>> known = [age, PagLink("dose", "pain", "circle", "arrow")]
    >>> [str(link) for link in unsettled(known, "dose")]
    ['dose o-> pain']
    """
    return tuple(
        link
        for link in links
        if column in (link.a, link.b) and not (link.visible or _into(link, column))
    )


def causes(links: Iterable[PagLink], column: str) -> frozenset[str]:
    into = (link for link in links if column in (link.a, link.b) and _into(link, column))
    return frozenset(link.a if link.b == column else link.b for link in into)


def _into(link: PagLink, column: str) -> bool:
    here, there = (link.at_b, link.at_a) if link.b == column else (link.at_a, link.at_b)
    return (here, there) == ("arrow", "tail")
