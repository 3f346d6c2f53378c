"""What all graph formats share: nodes, links and unseen causes as a file tells them, each with its
line.

A file's mistakes are told as `file:line: what`, with what is allowed; `GraphDraft.graph` makes the
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from synthdp.errors import SynthdpError
from synthdp.graph.causal import PROVENANCES, CausalGraph, GraphEdge, Provenance
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
    """A mistake at a line (1-based) of a file. It may quote a name as long as the file, whose
    middle is left out then.
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
        """A column, or an unseen cause that is marked so later."""
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
        """`name` is no column: it only stands for a common cause of columns."""
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
        """cause -> effect, or cause - effect. What is said of its provenance counts if it is one of
        ours.
        """
        self.expect(1, line=line)
        why: Provenance = next((p for p in PROVENANCES if p == provenance), "given")
        self.node(cause)
        self.node(effect)
        self._links.append(_Link(cause, effect, directed, why, line))

    def confound(self, a: str, b: str) -> None:
        """The two columns share an unseen cause."""
        self.expect(1, line=None)
        self.node(a)
        self.node(b)
        self._confounded.append((a, b))

    def expect(self, links: int, *, line: int | None) -> None:
        """Whether there may be so many more links.

        Raises:
            GraphFileError: a spec has no room for as many.
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
        links = [
            x for x in self._links if x.cause not in self._unseen and x.effect not in self._unseen
        ]
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
        """The columns below each unseen node; a single one says nothing."""
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
    """A node name that is no column's for each set of columns with an unseen cause."""
    free = (
        name for i in range(1, len(graph.nodes) + 10**6) if (name := f"U{i}") not in graph.nodes
    )
    return dict(zip(free, sets, strict=False))
