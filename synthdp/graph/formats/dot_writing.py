"""Graphs written as DOT and in DAGitty's language.

DOT keeps provenance (as the link's `class`) and groups (clusters of class "group"). DAGitty has no
place for them, nor for pairs without enough evidence: links and unseen causes survive, the rest
does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from synthdp.drawing.graph import STYLES
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge
from synthdp.graph.formats.mistakes import GraphFileError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNWRITABLE = re.compile(r"(?<!\\)(\\\\)*\\(\"|$)")
_LINE_BREAKS = re.compile(r"(\\[nrl])+")


def write_dot(graph: CausalGraph) -> str:
    """A graph as a DOT digraph, drawn like our own picture.

    Raises:
        GraphFileError: a name that DOT cannot write.
    """
    lines = ["rankdir=LR;", 'node [shape=box, style=rounded, fontname="sans-serif"];']
    lines += [f"{_dot(name)};" for name in graph.nodes]
    for i, (group, names) in enumerate(graph.groups.items()):
        members = " ".join(f"{_dot(name)};" for name in names)
        lines.append(f'subgraph "cluster_{i}" {{ class=group; label={_dot(group)}; {members} }}')
    for edge in graph.edges:
        lines.append(f"{_dot(edge.cause)} -> {_dot(edge.effect)} [{_look(edge)}];")
    pairs, sets = _unseen_causes(graph)
    lines += [f"{_dot(a)} -> {_dot(b)} [dir=both, style=dotted];" for a, b in pairs]
    for cause, names in sets.items():
        effects = " ".join(map(_dot, names))
        lines.append(
            f"{_dot(cause)} [latent=1, shape=ellipse, style=dashed];"
            f" {_dot(cause)} -> {{ {effects} }} [style=dotted];"
        )
    return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}", ""])


def _dot(name: str) -> str:
    return quoted(name, language="DOT")


def _look(edge: GraphEdge) -> str:
    style = STYLES[edge.provenance]
    line = "solid"
    if style.dashes:
        line = "dotted" if style.dashes.startswith("2") else "dashed"
    way = "" if edge.directed else ", dir=none"
    return (
        f'class={edge.provenance}, color="{style.colour}", style={line},'
        f" penwidth={style.width:g}{way}"
    )


def _unseen_causes(graph: CausalGraph) -> tuple[list[tuple[str, str]], dict[str, tuple[str, ...]]]:
    """The pairs of columns with an unseen cause, and by a new node's name the larger sets."""
    pairs = [names for names in graph.latent if len(names) == 2]
    sets = _unseen_names(graph, graph.latent)
    return pairs, {cause: names for cause, names in sets.items() if len(names) > 2}


def write_dagitty(graph: CausalGraph) -> str:
    """A graph in DAGitty's language: a `dag`, or a `pdag` where directions are unknown.

    Raises:
        GraphFileError: a name that DAGitty cannot write.
    """
    pairs, sets = _unseen_causes(graph)
    lines = [_dagitty(name) for name in graph.nodes]
    lines += [f"{_dagitty(cause)} [latent]" for cause in sets]
    lines += [f"{_dagitty(a)} -> {_dagitty(b)}" for a, b in graph.directed]
    lines += [f"{_dagitty(a)} -- {_dagitty(b)}" for a, b in graph.undirected]
    lines += [f"{_dagitty(a)} <-> {_dagitty(b)}" for a, b in pairs]
    for cause, names in sets.items():
        lines += [f"{_dagitty(cause)} -> {_dagitty(name)}" for name in names]
    return "\n".join(["dag {" if graph.is_dag else "pdag {", *lines, "}", ""])


def _dagitty(name: str) -> str:
    return quoted(name, language="DAGitty")


def _unseen_names(
    graph: CausalGraph, sets: Iterable[tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """For each set of columns with an unseen cause: a node name that no column has."""
    names = (f"U{i}" for i in count(1))
    free = (name for name in names if name not in graph.nodes)
    return dict(zip(free, sets, strict=False))


def quoted(name: str, *, language: str) -> str:
    """A name as a quoted text that both Graphviz and DAGitty read back.

    Raises:
        GraphFileError: the languages have no way to write it.
    """
    if _CONTROL.search(name) or _UNWRITABLE.search(name) or _LINE_BREAKS.fullmatch(name):
        raise GraphFileError(
            f"{language} cannot write the name {name!r}: no control characters, no backslash at"
            " its end or before a quotation mark, and no line break alone",
            hint="rename the column, or choose the format yaml or json",
        )
    return '"' + name.replace('"', '\\"') + '"'
