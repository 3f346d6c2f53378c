"""DOT (Graphviz) and DAGitty: read as one language, written as two.

Read: `digraph`, `graph`, `dag`, `pdag` and `mag`; chains of links, subgraphs as link ends, default
attributes. Links are `->`, `<-`, `--` (direction unknown), `<->` (unseen common cause); in DOT
`dir` says the same: none, both, back. A node marked `latent` is an unseen common cause. Layout and
labels are ignored.

Written DOT keeps provenance (as the link's `class`) and groups (clusters of class "group"). DAGitty
has no place for them, nor for pairs without enough evidence: links and unseen causes survive, the
rest does not.

References: graphviz.org/doc/info/lang.html; Textor et al. 2016, "Robust causal inference using
directed acyclic graphs: the R package dagitty".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from synthdp.drawing.graph import STYLES
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge
from synthdp.graph.formats.draft import GraphDraft, mistake, unseen_names
from synthdp.graph.formats.tokens import Token, quoted, tokens

KINDS = ("digraph", "graph", "dag", "pdag", "mag", "pag")
LINKS = ("->", "<-", "--", "<->")
CIRCLES = ("@->", "<-@", "--@", "@--", "@-@")
DIRECTIONS = {"forward": "->", "back": "<-", "none": "--", "both": "<->"}
MAX_NESTED = 50  # subgraphs in each other
TRUE = ("1", "true", "yes")
HINT = "expected statements such as  a -> b;  a -- b;  a <-> b;  u [latent];"

_Attributes = dict[str, str]


def read_dot(text: str, *, file: str) -> CausalGraph:
    """Read a graph in DOT or DAGitty; provenance is `given` where the file does not say.

    Raises:
        GraphFileError: with file, line and what is allowed.
    """
    return _Parser(file, tokens(text, file=file)).graph()


class _Parser:
    """Recursive descent over the tokens; nodes and links go into a draft."""

    def __init__(self, file: str, tokens: list[Token]) -> None:
        self.file, self.tokens, self.at, self.depth = file, tokens, 0, 0
        self.draft = GraphDraft(file)

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.token
        self.at += token.kind != "end"
        return token

    def take_mark(self, *marks: str) -> bool:
        return bool(self.token.marks(*marks) and self.take())

    def expect(self, mark: str) -> None:
        if not self.take_mark(mark):
            raise self.wrong(f"got {self.token.text!r} where {mark!r} must stand")

    def wrong(self, message: str, *, hint: str = HINT) -> Exception:
        return mistake(self.file, self.token.line, message, hint=hint)

    def graph(self) -> CausalGraph:
        if self.token.says("strict"):
            self.take()
        if not self.token.says(*KINDS):
            raise self.wrong(
                f"got {self.token.text!r} where the kind of graph must stand",
                hint=f"a file begins with one of {', '.join(KINDS)}",
            )
        self.take()
        if not self.token.marks("{"):
            self.name()
        self.statements({}, {})
        if self.token.kind != "end":
            raise self.wrong(
                f"{self.token.text!r} after the graph's end", hint="one graph for each file"
            )
        return self.draft.graph()

    @property
    def at_link(self) -> bool:
        return self.token.marks(*LINKS, *CIRCLES)

    def statements(self, links: _Attributes, own: _Attributes) -> list[str]:
        """`{ ... }`: the nodes named in it.

        It updates `links`, the default attributes of its links, and `own`, those of the graph.
        """
        self.expect("{")
        self.depth += 1
        if self.depth > MAX_NESTED:
            raise self.wrong(
                "subgraphs are nested too deeply", hint=f"at most {MAX_NESTED} in each other"
            )
        named: dict[str, None] = {}
        while not self.take_mark("}"):
            if not self.take_mark(";", ","):
                named.update(dict.fromkeys(self.statement(links, own)))
        self.depth -= 1
        return list(named)

    def statement(self, links: _Attributes, own: _Attributes) -> list[str]:
        first = self.token
        if first.says("graph", "node", "edge") and self.tokens[self.at + 1].marks("["):
            self.defaults(links, own)
            return []
        subgraph = first.marks("{") or first.says("subgraph")
        names = self.end_of_link(links)
        if subgraph:
            return self.chain(names, links) if self.at_link else names
        if self.take_mark("="):
            own[names[0]] = self.name()
            return []
        if self.at_link:
            return self.chain(names, links)
        if self.attributes().get("latent", "").lower() in TRUE:
            self.draft.unseen(names[0], line=first.line)
        return names

    def defaults(self, links: _Attributes, own: _Attributes) -> None:
        """`graph`, `node` or `edge` with attributes; those of nodes are ignored."""
        keyword = self.take()
        attributes = self.attributes()
        if keyword.says("edge"):
            links.update(attributes)
        elif keyword.says("graph"):
            own.update(attributes)

    def chain(self, first: list[str], links: _Attributes) -> list[str]:
        ends, marks = [first], []
        while self.at_link:
            if self.token.text in CIRCLES:
                raise self.wrong(
                    f"a link {self.token.text} with a circle stands for several graphs",
                    hint=f"links are {', '.join(LINKS)}",
                )
            marks.append(self.take())
            ends.append(self.end_of_link(links))
        attributes = links | self.attributes()
        for left, mark, right in zip(ends, marks, ends[1:], strict=False):
            self.draft.expect(len(left) * len(right), line=mark.line)
            for a, b in product(left, right):
                self.link(a, mark, b, attributes)
        return [name for names in ends for name in names]

    def link(self, a: str, mark: Token, b: str, attributes: Mapping[str, str]) -> None:
        kind = mark.text
        if kind == "->" and "dir" in attributes:
            kind = DIRECTIONS.get(attributes["dir"].lower(), kind)
        if kind == "<->":
            self.draft.confound(a, b)
            return
        if kind == "<-":
            a, b = b, a
        provenance = attributes.get("class", "")
        self.draft.link(a, b, directed=kind != "--", line=mark.line, provenance=provenance)

    def end_of_link(self, links: _Attributes) -> list[str]:
        """One node, or all nodes of a subgraph; a cluster of class "group" is a group."""
        if not self.token.marks("{") and not self.token.says("subgraph"):
            name = self.name()
            if self.take_mark(":"):
                raise self.wrong(
                    f"a port after {name!r}",
                    hint="links join whole nodes; put a name that holds a colon in quotes",
                )
            if not self.token.marks("="):
                self.draft.node(name)
            return [name]
        if self.token.says("subgraph"):
            self.take()
        if not self.token.marks("{"):
            self.name()
        own: _Attributes = {}
        names = self.statements(dict(links), own)
        if own.get("class") == "group" and "label" in own:
            self.draft.groups[own["label"]] = names
        return names

    def attributes(self) -> _Attributes:
        """`[key=value, flag]...`; a flag is worth "1"."""
        attributes: _Attributes = {}
        while self.take_mark("["):
            while not self.take_mark("]"):
                if not self.take_mark(";", ","):
                    key = self.name()
                    attributes[key] = self.name() if self.take_mark("=") else "1"
        return attributes

    def name(self) -> str:
        """A word, or quoted texts joined by `+`."""
        part = self.word()
        text = part.text
        while part.kind == "text" and self.take_mark("+"):
            text += self.word().text
        return text

    def word(self) -> Token:
        if self.token.kind not in ("word", "text"):
            raise self.wrong(f"got {self.token.text!r} where a name must stand")
        return self.take()


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
    sets = unseen_names(graph, graph.latent)
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
