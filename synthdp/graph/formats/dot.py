"""DOT (Graphviz) and its relative DAGitty: read as one language, written apart.

Read: `digraph`, `graph`, `dag`, `pdag` and `mag`; chains of links, subgraphs as link ends, default
attributes. Links are `->`, `<-`, `--` (direction unknown), `<->` (unseen common cause); in DOT
`dir` says the same: none, both, back. A node marked `latent` is an unseen common cause. Layout and
labels are left aside.

Written DOT keeps provenance (as the link's `class`) and groups (clusters of class "group"). DAGitty
has no
place for them, nor for pairs without enough evidence: links and unseen causes survive, the rest
does not.

References: graphviz.org/doc/info/lang.html; Textor et al. 2016, "Robust causal inference using
directed acyclic
graphs: the R package dagitty".
"""

from __future__ import annotations

from collections.abc import Mapping

from synthdp.drawing.graph import STYLES
from synthdp.graph.causal import CausalGraph, GraphEdge
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
    """Recursive descent over the tokens; what it finds goes into a draft."""

    def __init__(self, file: str, found: list[Token]) -> None:
        self.file, self.found, self.at, self.depth = file, found, 0, 0
        self.draft = GraphDraft(file)

    @property
    def token(self) -> Token:
        return self.found[self.at]

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

    def statements(self, links: _Attributes, own: _Attributes) -> list[str]:
        """`{ ... }`: the nodes named in it. `links` are its links' default attributes, `own` what
        it says of itself.
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
        keyword = self.token
        if keyword.says("graph", "node", "edge") and self.found[self.at + 1].marks("["):
            self.take()
            {"edge": links, "graph": own}.get(keyword.text.lower(), {}).update(self.attributes())
            return []
        line, plain = keyword.line, not keyword.marks("{") and not keyword.says("subgraph")
        names = self.end_of_link(links)
        if plain and self.take_mark("="):
            own[names[0]] = self.name()
            return []
        if self.token.kind == "mark" and self.token.text in (*LINKS, *CIRCLES):
            return self.chain(names, links)
        if plain:
            attributes = self.attributes()
            if attributes.get("latent", "").lower() in TRUE:
                self.draft.unseen(names[0], line=line)
        return names

    def chain(self, first: list[str], links: _Attributes) -> list[str]:
        ends, marks = [first], []
        while self.token.kind == "mark" and self.token.text in (*LINKS, *CIRCLES):
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
            for a in left:
                for b in right:
                    self.link(a, mark, b, attributes)
        return [name for names in ends for name in names]

    def link(self, a: str, mark: Token, b: str, attributes: Mapping[str, str]) -> None:
        kind = mark.text
        if kind == "->" and "dir" in attributes:
            kind = DIRECTIONS.get(attributes["dir"].lower(), kind)
        if kind == "<->":
            self.draft.confound(a, b)
            return
        a, b = (b, a) if kind == "<-" else (a, b)
        self.draft.link(
            a, b, directed=kind != "--", line=mark.line, provenance=attributes.get("class", "")
        )

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
        found: _Attributes = {}
        while self.take_mark("["):
            while not self.take_mark("]"):
                if not self.take_mark(";", ","):
                    key = self.name()
                    found[key] = self.name() if self.take_mark("=") else "1"
        return found

    def name(self) -> str:
        if self.token.kind not in ("word", "text"):
            raise self.wrong(f"got {self.token.text!r} where a name must stand")
        first = self.take()
        parts = [first.text]
        while first.kind == "text" and self.take_mark("+"):
            if self.token.kind not in ("word", "text"):
                raise self.wrong(f"got {self.token.text!r} where a name must stand")
            parts.append(self.take().text)
        return "".join(parts)


def write_dot(graph: CausalGraph) -> str:
    """A graph as a DOT digraph, drawn like our own picture.

    Raises:
        GraphFileError: a name that DOT cannot write.
    """

    def name(text: str) -> str:
        return quoted(text, language="DOT")

    sets = {u: names for u, names in unseen_names(graph, graph.latent).items() if len(names) > 2}
    lines = [
        "rankdir=LR;",
        'node [shape=box, style=rounded, fontname="sans-serif"];',
        *(f"{name(n)};" for n in graph.nodes),
        *(
            f'subgraph "cluster_{i}" {{ class=group; label={name(group)};'
            f" {' '.join(f'{name(n)};' for n in names)} }}"
            for i, (group, names) in enumerate(graph.groups.items())
        ),
        *(f"{name(e.cause)} -> {name(e.effect)} [{_look(e)}];" for e in graph.edges),
        *(
            f"{name(names[0])} -> {name(names[1])} [dir=both, style=dotted];"
            for names in graph.latent
            if len(names) == 2
        ),
        *(
            f"{name(u)} [latent=1, shape=ellipse, style=dashed]; {name(u)} -> {{"
            f" {' '.join(map(name, names))} }} [style=dotted];"
            for u, names in sets.items()
        ),
    ]
    return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}", ""])


def _look(edge: GraphEdge) -> str:
    style = STYLES[edge.provenance]
    line = "solid" if not style.dashes else "dotted" if style.dashes.startswith("2") else "dashed"
    way = "" if edge.directed else ", dir=none"
    return (
        f'class={edge.provenance}, color="{style.colour}", style={line},'
        f" penwidth={style.width:g}{way}"
    )


def write_dagitty(graph: CausalGraph) -> str:
    """A graph in DAGitty's language: a `dag`, or a `pdag` where directions are unknown.

    Raises:
        GraphFileError: a name that DAGitty cannot write.
    """

    def name(text: str) -> str:
        return quoted(text, language="DAGitty")

    sets = {u: names for u, names in unseen_names(graph, graph.latent).items() if len(names) > 2}
    lines = [
        *map(name, graph.nodes),
        *(f"{name(u)} [latent]" for u in sets),
        *(f"{name(a)} -> {name(b)}" for a, b in graph.directed),
        *(f"{name(a)} -- {name(b)}" for a, b in graph.undirected),
        *(f"{name(names[0])} <-> {name(names[1])}" for names in graph.latent if len(names) == 2),
        *(f"{name(u)} -> {name(n)}" for u, names in sets.items() for n in names),
    ]
    return "\n".join(["dag {" if graph.is_dag else "pdag {", *lines, "}", ""])
