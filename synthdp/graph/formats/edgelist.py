"""The spec's own form: the `graph` section in YAML, alone or inside a whole spec.

    nodes: [a, b, c]        # not part of a spec, where the columns are the nodes
    graph:
      mode: given
      edges:
      - "a -> b"            # learned
    undirected:             # not part of a spec: turn each into an arrow of `edges`, or delete it
    - [b, c]

The `graph` part can be pasted into a spec as it stands. What a spec cannot hold is kept beside it:
links of unknown direction, and as comments where each arrow comes from and which pairs got no
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

import yaml
from pydantic import ConfigDict, Field, ValidationError

from synthdp.errors import SpecError, SpecProblem, SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.formats.draft import GraphFileError
from synthdp.graph.knowledge import Pair
from synthdp.spec.checks.columns import CHECKS
from synthdp.spec.checks.graph import needs_edges
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.load.names import node_problems
from synthdp.spec.load.yaml_tree import Node, read
from synthdp.spec.model import Categorical, Graph, Model, Name, Names, ReleaseSpec
from synthdp.spec.wording import findings

PLAIN_NAME = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_. -")


class _Document(Model):
    """A graph section that stands alone; without `nodes` they are the names that it uses."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    graph: Graph = Field(description="as in a spec")
    nodes: Names | None = None
    undirected: tuple[tuple[Name, Name], ...] = ()


def read_yaml(text: str, *, file: str) -> CausalGraph:
    """The graph of a spec, or of a `graph` section alone.

    Raises:
        SpecError: with every mistake, its line and what is allowed.
    """
    tree, mistakes = read(text.removeprefix("\ufeff"))
    if tree is not None and "synthdp" in tree.entries:
        loaded = parse_spec(text, path=file)
        return CausalGraph.from_spec(loaded.graph, tuple(loaded.modelled))
    problems = [SpecProblem(file, m.line, m.column, "graph", m.message, m.hint) for m in mistakes]
    if problems or tree is None or tree.kind != "map":
        allowed = "expected `graph:` with `edges:` below it, or a whole spec"
        raise SpecError(problems or [SpecProblem(file, 1, 1, "graph", "this is no graph", allowed)])
    try:
        document = _Document.model_validate(tree.value())
    except ValidationError as error:
        raise SpecError(
            [_problem(file, tree, f.loc, f.message, f.hint) for f in findings(error, _Document)]
        ) from None
    return _graph(document, tree, file)


def _graph(document: _Document, tree: Node, file: str) -> CausalGraph:
    nodes = document.nodes or tuple(_named(document))
    stand_in = Categorical.model_construct(type="categorical", categories=("a",))
    parts: dict[str, Any] = {"graph": document.graph, "columns": dict.fromkeys(nodes, stand_in)}
    whole = ReleaseSpec.model_construct(**parts)
    # That mode given needs arrows is a spec's rule: a graph may have none.
    able = [
        c
        for c in CHECKS
        if all(r.split(".")[0] in ("graph", "columns") for r in c.reads)
        and c.run is not needs_edges
    ]
    found = [
        *node_problems({"graph": document.graph.model_dump()}, nodes),
        *(p for c in able for p in c.run(whole)),
    ]
    problems = [
        _problem(file, tree, p.loc, p.message, p.hint) for p in found if p.loc[0] == "graph"
    ]
    if problems:
        raise SpecError(problems)
    try:
        known = CausalGraph.from_spec(document.graph, nodes)
        links = tuple(
            GraphEdge(a, b, directed=False, provenance="given") for a, b in document.undirected
        )
        return CausalGraph(known.nodes, (*known.edges, *links), known.groups, known.latent)
    except SynthdpError as error:
        raise SpecError(
            [_problem(file, tree, ("undirected",), error.message, error.hint)]
        ) from None


def _problem(
    file: str, tree: Node, loc: tuple[str | int, ...], message: str, hint: str | None
) -> SpecProblem:
    field = ".".join(str(s) if isinstance(s, str) else f"#{s + 1}" for s in loc) or "graph"
    return SpecProblem(file, *tree.place(loc), field, message, hint)


def _named(document: _Document) -> Iterator[str]:
    """Every column that the section names, once, in the order written."""
    graph = document.graph
    names: Iterable[str] = (
        *(n for members in graph.groups.values() for n in members),
        *(n for e in (*graph.edges, *graph.forbidden) for n in (*e.causes, *e.effects)),
        *(n for names in (*graph.tiers, *graph.latent, *document.undirected) for n in names),
    )
    return iter(dict.fromkeys(n for n in names if n not in graph.groups))


# --- writing ---


def write_yaml(graph: CausalGraph) -> str:
    """A graph in the spec's form.

    A group is written as one only if every link from outside reaches all its columns alike, as a
    spec's arrows do; the columns of any other stand alone, with the arrows among them.
    """
    groups = _whole_groups(graph)
    inner = {frozenset((a, b)) for names in groups.values() for a in names for b in names}
    node = {n: group for group, names in groups.items() for n in names}
    edges = [e for e in graph.edges if frozenset(e.pair) not in inner]
    arrows: dict[Pair, set[str]] = {}
    for e in edges:
        if e.directed:
            arrows.setdefault(
                (node.get(e.cause, e.cause), node.get(e.effect, e.effect)), set()
            ).add(e.provenance)
    latent = [list(dict.fromkeys(node.get(n, n) for n in names)) for names in graph.latent]
    sections = [
        f"nodes: {_flow(graph.nodes)}",
        "graph:",
        "  mode: given" if arrows else "  mode: given  # this mode needs an arrow",
        *_listed(
            "  edges:",
            [f"{_arrow(a, b)}  # {', '.join(sorted(why))}" for (a, b), why in arrows.items()],
        ),
        *_listed(
            "  groups:",
            [f"{_scalar(name)}: {_flow(names)}" for name, names in groups.items()],
            bullet="",
        ),
        *_listed("  latent:", [_flow(names) for names in latent if len(names) > 1]),
        *_listed(
            "undirected:  # not part of a spec: turn each into an arrow of `edges`, or delete it",
            [_flow(pair) for pair in graph.undirected],
        ),
        *(f"# no answer: {_flow(pair)}" for pair in graph.open_pairs),
    ]
    return "\n".join([*sections, ""])


def _whole_groups(graph: CausalGraph) -> dict[str, tuple[str, ...]]:
    """Groups that a spec can say: whatever is linked to one of its columns is linked to all of
    them, the same way.
    """
    groups = dict(graph.groups)
    while True:
        node = {n: group for group, names in groups.items() for n in names}
        torn = [
            g
            for g, names in groups.items()
            if not _whole(graph, names, {n for n in graph.nodes if node.get(n) != g})
        ]
        if not torn:
            return groups
        del groups[torn[0]]


def _whole(graph: CausalGraph, names: tuple[str, ...], outside: set[str]) -> bool:
    links: dict[str, set[tuple[Any, ...]]] = {n: set() for n in names}
    ways = [
        (a, b, kind)
        for kind, pairs in (("->", graph.directed), ("--", graph.undirected))
        for a, b in pairs
    ]
    for a, b, kind in ways:
        if a in links and b in outside:
            links[a].add((b, kind, "out" if kind == "->" else ""))
        if b in links and a in outside:
            links[b].add((a, kind, "in" if kind == "->" else ""))
    for i, together in enumerate(graph.latent):
        for n in set(together) & set(names):
            links[n].add(("latent", i))
    undirected = any(kind == "--" for found in links.values() for _, kind, *_ in found)
    inner = set(combinations(names, 2)) == {p for p in graph.directed if set(p) <= set(names)}
    return not undirected and inner and len({frozenset(found) for found in links.values()}) == 1


def _arrow(cause: str, effect: str) -> str:
    """Short where the names survive the short form, which splits at commas and arrows."""
    short = all(
        set(n) <= PLAIN_NAME and n == n.strip() and "-" not in (n[0], n[-1])
        for n in (cause, effect)
    )
    return (
        _scalar(f"{cause} -> {effect}")
        if short
        else f"{{causes: {_flow([cause])}, effects: {_flow([effect])}}}"
    )


def _listed(head: str, items: list[str], *, bullet: str = "- ") -> list[str]:
    indent = " " * (len(head) - len(head.lstrip()) + (2 if not bullet else 0))
    return [head, *(f"{indent}{bullet}{item}" for item in items)] if items else []


def _flow(names: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, names))}]"


def _scalar(text: str) -> str:
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise GraphFileError(
            f"YAML cannot write the name {text!r}: half of a character", hint="rename the column"
        )
    return yaml.dump(text, default_style='"', allow_unicode=True, width=10**9).strip()
