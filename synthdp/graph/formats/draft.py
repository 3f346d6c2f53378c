"""A graph as its file is read: nodes and links with their attributes, each with its place.

All formats share it. Nodes have the file's identifiers; `GraphDraft.graph` gives them names, finds
the unseen ones, and gives the finished graph, or says what is wrong and where.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from synthdp.graph.causal import PROVENANCES, CausalGraph, GraphEdge, Provenance
from synthdp.graph.formats.meaning import Attributes, Place, is_unseen, link_of, mistake
from synthdp.graph.knowledge import Pair, one_cycle
from synthdp.spec.checks.columns import MAX_LEVELS
from synthdp.spec.checks.graph import MAX_ARROWS

_NUMBER = re.compile(r"n?[0-9]+")
_LINE_BREAKS = re.compile(r"(\\[nrl]|[\r\n])+")


@dataclass(frozen=True)
class _Node:
    place: Place | None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Link:
    a: str
    b: str
    mark: str
    place: Place | None
    provenance: str

    @property
    def said(self) -> tuple[str, ...]:
        """What it says; a link that is written twice says nothing new."""
        return self.mark, *((self.a, self.b) if self.mark == "->" else sorted((self.a, self.b)))


class GraphDraft:
    """A graph as it is read. Nodes keep the order in which they are first named.

    With `labelled`, a node's label is its name. Otherwise it is its name if all identifiers are
    numbers, as several programs write them.
    """

    def __init__(self, file: str, *, labelled: bool = False) -> None:
        self.file, self.labelled = file, labelled
        self.groups: dict[str, list[str]] = {}
        self.stray: dict[str, Place] = {}  # may be a part of a name that fell apart
        self._nodes: dict[str, _Node] = {}
        self._links: list[_Link] = []

    def node(
        self, name: str, attributes: Attributes | None = None, *, place: Place | None = None
    ) -> bool:
        """Add a node, or attributes to it; whether it is new."""
        if not name:
            raise mistake(self.file, place, "a node has no name", hint="columns have names")
        new = name not in self._nodes
        if new:
            self._nodes[name] = _Node(place)
        self._nodes[name].attributes.update(attributes or {})
        if len(self._nodes) > MAX_LEVELS:
            raise mistake(
                self.file,
                place,
                f"more than {MAX_LEVELS:,} nodes",
                hint="no spec has so many columns",
            )
        return new

    def link(
        self,
        a: str,
        mark: str,
        b: str,
        attributes: Attributes | None = None,
        *,
        place: Place | None = None,
    ) -> None:
        """Add a link: `->`, `<-`, `--` or `<->`, unless the attributes say another.

        The attribute `class` is its provenance; any other than ours counts as `given`.
        """
        told = attributes or {}
        self.expect(1, place=place)
        self.node(a, place=place)
        self.node(b, place=place)
        mark = link_of(mark, told, file=self.file, place=place)
        if mark == "<-":
            a, b, mark = b, a, "->"
        if mark:
            self._links.append(_Link(a, b, mark, place, told.get("class", "")))

    def add(self, name: str | None, attributes: Attributes, *, place: Place | None = None) -> None:
        """Add a node that is told once.

        Raises:
            GraphFileError: it has no name, or was told before.
        """
        if not self.node(name or "", attributes, place=place):
            raise mistake(
                self.file, place, f"a second node {name!r}", hint="each node is told once"
            )

    def join(
        self,
        ends: tuple[str | None, str | None],
        attributes: Attributes,
        *,
        mark: str,
        place: Place | None = None,
    ) -> None:
        """Add a link between two nodes that were added.

        Raises:
            GraphFileError: one of them was not.
        """
        unknown = next((end for end in ends if end not in self._nodes), "")
        if unknown != "":
            raise mistake(
                self.file,
                place,
                f"a link of {unknown!r}, which is no node"
                if unknown
                else "a link without two ends",
                hint=f"nodes are {', '.join(islice(self._nodes, 10))}",
            )
        a, b = ends
        self.link(str(a), mark, str(b), attributes, place=place)

    def expect(self, links: int, *, place: Place | None) -> None:
        """Refuse so many more `links` where a spec cannot hold them.

        Raises:
            GraphFileError: the graph would have too many links.
        """
        if len(self._links) + links > MAX_ARROWS:
            raise mistake(
                self.file,
                place,
                f"more than {MAX_ARROWS:,} links",
                hint="no spec has so many arrows",
            )

    def graph(self) -> CausalGraph:
        """The graph as a value.

        Raises:
            GraphFileError: two links on one pair, a link to itself, a cycle, an unseen node that is
                not a mere cause, or a name that is none or given twice.
        """
        names = self._names()
        links: dict[tuple[str, ...], _Link] = {}
        for x in self._links:
            named = replace(x, a=names[x.a], b=names[x.b])
            links.setdefault(named.said, named)
        unseen = {names[n] for n in self._nodes if self._is_unseen(n, names)}
        linked = {n for x in links.values() for n in (x.a, x.b)}
        self._refuse_stray(linked)
        common = self._common_causes(links.values(), unseen)
        seen = [x for x in links.values() if not unseen & {x.a, x.b}]
        self._check_pairs(seen)
        self._check_cycle({(x.a, x.b): x.place for x in seen if x.mark == "->"})
        # pydot leaves a node behind a line break at a file's end
        columns = (n for n in names.values() if n in linked or not _LINE_BREAKS.fullmatch(n))
        return CausalGraph(
            tuple(n for n in columns if n not in unseen),
            tuple(_edge(x) for x in seen if x.mark != "<->"),
            {name: tuple(names[n] for n in members) for name, members in self.groups.items()},
            (*((x.a, x.b) for x in seen if x.mark == "<->"), *common),
        )

    def _names(self) -> dict[str, str]:
        """By identifier: the node's name."""
        labels = {}
        for n, node in self._nodes.items():
            # Graphviz writes \N for the identifier; networkx repeats it where it has no label.
            label = node.attributes.get("label", "").replace("\\N", n)
            labels[n] = next((x for x in (label, node.attributes.get("name")) if x and x != n), n)
        if not (self.labelled or self._numbered):
            return {n: n for n in labels}
        twice = next((label for label, many in Counter(labels.values()).items() if many > 1), None)
        if twice is not None:
            place = next(self._nodes[n].place for n, label in labels.items() if label == twice)
            message = f"two nodes are named {twice!r}"
            raise mistake(self.file, place, message, hint="names are the nodes' labels here")
        return labels

    @property
    def _numbered(self) -> bool:
        return all(map(_NUMBER.fullmatch, self._nodes))

    def _is_unseen(self, n: str, names: Mapping[str, str]) -> bool:
        node = self._nodes[n]
        square = node.attributes.get("shape") == "square"  # causal-learn draws unseen nodes so
        return (square and self._numbered and names[n] != n) or is_unseen(
            names[n], node.attributes, file=self.file, place=node.place
        )

    def _refuse_stray(self, linked: set[str]) -> None:
        for name, place in self.stray.items():
            if name not in linked and not self._nodes[name].attributes:
                raise mistake(
                    self.file,
                    place,
                    f"{name!r} stands beside a link and is in none: is it part of a name?",
                    hint='a name with a space goes in quotes: "a name"; a column without links'
                    " stands on a line of its own",
                )

    def _common_causes(self, links: Iterable[_Link], unseen: set[str]) -> list[tuple[str, ...]]:
        """The columns below each unseen node, where there are two or more."""
        effects: dict[str, list[str]] = {name: [] for name in self._nodes if name in unseen}
        for x in links:
            name = x.b if x.b in unseen else x.a
            if name in unseen and (name == x.b or x.mark != "->"):
                raise mistake(
                    self.file,
                    x.place,
                    f"unseen node {name!r} is not only a cause",
                    hint="from an unseen node only arrows to columns may lead, none into it",
                )
            if name in unseen:
                effects.setdefault(name, []).append(x.b)
        return [tuple(names) for names in effects.values() if len(names) > 1]

    def _check_pairs(self, links: Iterable[_Link]) -> None:
        seen: dict[frozenset[str], str] = {}
        for x in links:
            pair = frozenset((x.a, x.b))
            if len(pair) == 1:
                raise mistake(
                    self.file,
                    x.place,
                    f"{x.a!r} is linked to itself",
                    hint="a link joins two columns",
                )
            if pair in seen and x.mark != "<->":
                cycle = ", and they form a cycle" if x.mark == seen[pair] == "->" else ""
                raise mistake(
                    self.file,
                    x.place,
                    f"a second link between {x.a!r} and {x.b!r}{cycle}",
                    hint="one link for each pair; an unseen common cause may come on top",
                )
            if x.mark != "<->":
                seen[pair] = x.mark

    def _check_cycle(self, arrows: Mapping[Pair, Place | None]) -> None:
        cycle = one_cycle(arrows)
        if cycle:
            ring = [*cycle, cycle[0]]
            raise mistake(
                self.file,
                max((arrows[pair] for pair in pairwise(ring)), key=lambda p: p or (0, 0)),
                f"the arrows form a cycle: {' -> '.join(ring)}",
                hint="turn or delete one of them",
            )


def _edge(link: _Link) -> GraphEdge:
    why: Provenance = next((p for p in PROVENANCES if p == link.provenance), "given")
    return GraphEdge(link.a, link.b, directed=link.mark == "->", provenance=why)
