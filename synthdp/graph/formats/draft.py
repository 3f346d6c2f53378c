"""A graph as its file is read: nodes, links and unseen causes, each with its line.

All formats share it. A mistake in a file reads `file:line: what`, with a hint on what is allowed.
`GraphDraft.graph` gives the finished graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count, pairwise

from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import PROVENANCES, GraphEdge, Provenance
from synthdp.graph.knowledge import Pair, one_cycle
from synthdp.spec.checks.columns import MAX_LEVELS
from synthdp.spec.checks.graph import MAX_ARROWS

MAX_MESSAGE = 2000  # characters
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class GraphFileError(SynthdpError):
    """A graph file cannot be read, or a graph cannot be written in a format."""

    exit_code = 2


def mistake(
    file: str, line: int | None, message: str, *, hint: str | None = None
) -> GraphFileError:
    """A mistake at a line (1-based) of a file.

    The middle of a long message is cut out: it may quote a name as long as the file.
    """
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    return GraphFileError(f"{file}:{line}: {message}" if line else f"{file}: {message}", hint=hint)


@dataclass(frozen=True)
class _Link:
    cause: str
    effect: str
    directed: bool
    provenance: Provenance
    line: int | None


class GraphDraft:
    """A graph as it is read. Nodes keep the order in which they are first named."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.groups: dict[str, list[str]] = {}
        self._nodes: dict[str, None] = {}
        self._unseen: dict[str, int | None] = {}
        self._links: list[_Link] = []
        self._confounded: list[tuple[str, ...]] = []

    def node(self, name: str) -> None:
        """Add a column, or an unseen cause that is marked as such later."""
        if not name:
            raise mistake(self.file, None, "a node has no name", hint="columns have names")
        self._nodes.setdefault(name)
        if len(self._nodes) > MAX_LEVELS:
            raise mistake(
                self.file,
                None,
                f"more than {MAX_LEVELS:,} nodes",
                hint="no spec has so many columns",
            )

    def unseen(self, name: str, *, line: int | None) -> None:
        """Mark `name` as an unseen common cause: it is no column."""
        self.node(name)
        self._unseen[name] = line

    def link(
        self,
        cause: str,
        effect: str,
        *,
        directed: bool,
        line: int | None,
        provenance: str = "given",
    ) -> None:
        """Add cause -> effect, or cause - effect; an unknown provenance counts as `given`."""
        self.expect(1, line=line)
        why: Provenance = next((p for p in PROVENANCES if p == provenance), "given")
        self.node(cause)
        self.node(effect)
        self._links.append(_Link(cause, effect, directed, why, line))

    def confound(self, a: str, b: str) -> None:
        """Add an unseen common cause of two columns."""
        self.expect(1, line=None)
        self.node(a)
        self.node(b)
        self._confounded.append((a, b))

    def expect(self, links: int, *, line: int | None) -> None:
        """Refuse so many more `links` where a spec cannot hold them.

        Raises:
            GraphFileError: the graph would have too many links.
        """
        if len(self._links) + len(self._confounded) + links > MAX_ARROWS:
            raise mistake(
                self.file,
                line,
                f"more than {MAX_ARROWS:,} links",
                hint="no spec has so many arrows",
            )

    def graph(self) -> CausalGraph:
        """The graph as a value.

        Raises:
            GraphFileError: two links on one pair, a link to itself, a cycle, or an unseen node that
                is not a mere cause.
        """
        links = [x for x in self._links if not {x.cause, x.effect} & {*self._unseen}]
        self._check_pairs(links)
        self._check_cycle({(x.cause, x.effect): x.line for x in links if x.directed})
        return CausalGraph(
            tuple(n for n in self._nodes if n not in self._unseen),
            tuple(
                GraphEdge(x.cause, x.effect, directed=x.directed, provenance=x.provenance)
                for x in links
            ),
            {name: tuple(members) for name, members in self.groups.items()},
            (*self._confounded, *self._common_causes()),
        )

    def _common_causes(self) -> list[tuple[str, ...]]:
        """The columns below each unseen node, where there are two or more."""
        effects: dict[str, list[str]] = {name: [] for name in self._unseen}
        for x in self._links:
            if x.effect in self._unseen or (x.cause in self._unseen and not x.directed):
                name = x.effect if x.effect in self._unseen else x.cause
                raise mistake(
                    self.file,
                    x.line,
                    f"unseen node {name!r} is not only a cause",
                    hint="from an unseen node only arrows to columns may lead, none into it",
                )
            if x.cause in self._unseen:
                effects[x.cause].append(x.effect)
        return [tuple(dict.fromkeys(names)) for names in effects.values() if len(set(names)) > 1]

    def _check_pairs(self, links: Iterable[_Link]) -> None:
        seen: set[frozenset[str]] = set()
        for x in links:
            pair = frozenset((x.cause, x.effect))
            if len(pair) == 1:
                raise mistake(
                    self.file,
                    x.line,
                    f"{x.cause!r} is linked to itself",
                    hint="a link joins two columns",
                )
            if pair in seen:
                message = f"a second link between {x.cause!r} and {x.effect!r}"
                raise mistake(
                    self.file,
                    x.line,
                    message,
                    hint="one link for each pair; an unseen common cause may come on top",
                )
            seen.add(pair)

    def _check_cycle(self, arrows: Mapping[Pair, int | None]) -> None:
        cycle = one_cycle(arrows)
        if cycle:
            ring = [*cycle, cycle[0]]
            line = max(arrows[pair] or 0 for pair in pairwise(ring))
            raise mistake(
                self.file,
                line,
                f"the arrows form a cycle: {' -> '.join(ring)}",
                hint="turn or delete one of them",
            )


def unseen_names(graph: CausalGraph, sets: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each set of columns with an unseen cause: a node name that no column has."""
    names = (f"U{i}" for i in count(1))
    free = (name for name in names if name not in graph.nodes)
    return dict(zip(free, sets, strict=False))
