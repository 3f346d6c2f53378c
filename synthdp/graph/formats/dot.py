"""DOT (Graphviz) and DAGitty, read as one language.

`digraph`, `graph`, `dag`, `pdag`, `mag` and `pag`; chains of links, subgraphs as link ends, default
attributes, and in DOT lists of nodes as link ends, as Graphviz reads them. Links are `->`, `<-`,
`--` (direction unknown), `<->` (unseen common cause); what DOT's attributes make of them is told in
`draft`. Layout is ignored.

Written as DOT a graph keeps provenance (as the link's `class`) and groups (clusters of class
"group"). DAGitty has no place for them, nor for pairs without enough evidence: links and unseen
causes survive, the rest does not.

References: graphviz.org/doc/info/lang.html; Textor et al. 2016, "Robust causal inference using
directed acyclic graphs: the R package dagitty", and the grammar of its reader.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import count, product

from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.formats.draft import (
    CIRCLES,
    COMMENTS,
    DIRECTIONS,
    TRUE,
    Cursor,
    GraphDraft,
    GraphFileError,
    Language,
    Token,
)
from synthdp.graph.picture import STYLES

DAGITTY = ("dag", "pdag", "mag", "pag")
KINDS = ("digraph", "graph", *DAGITTY)
LINKS = (*DIRECTIONS, *CIRCLES)
UNSEEN = {"l": "latent", "u": "unobserved"}  # DAGitty takes a letter for each
_ESCAPE = re.compile(r"\\(\\|\"|\n)")
# No control characters, no backslash at the end or before a quotation mark, no line break alone.
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|(?<!\\)(\\\\)*\\(\"|$)|^(\\[nrl])+$")
_Attributes = dict[str, str]
DOT = Language(
    skip=rf"{COMMENTS} | ^\#[^\n]*+",
    text=r'"(?:\\.|[^"\\])*+"',
    mark=r"@->|<-@|<->|->|<-|--@|@-@|@--|--|[{}\[\]=;,:+]",
    # A minus belongs to a number alone; what follows a number's digits is one name with them.
    word=r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?![\w.]) | [\w.]++",
    # Only a quotation mark is escaped; two backslashes stay two, as in Graphviz.
    unquote=lambda text: _ESCAPE.sub(
        lambda m: {"\\": "\\\\", '"': '"', "\n": ""}[m[1]], text[1:-1]
    ),
    html=True,
)


def read_dot(text: str, *, file: str) -> CausalGraph:
    """Read a graph in DOT or DAGitty; provenance is `given` where the file does not say."""
    return _Reader(text, file=file).graph()


class _Scope:
    """The default attributes inside a pair of braces, and those of the subgraph itself."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.node: _Attributes = dict(outer.node) if outer else {}
        self.edge: _Attributes = dict(outer.edge) if outer else {}
        self.graph: _Attributes = {}


class _Reader(Cursor):
    """Recursive descent; nodes and links go into a draft."""

    language = DOT
    hint = "expected statements such as  a -> b;  a -- b;  a <-> b;  u [latent];"
    depth = 0
    dagitty = False

    def graph(self) -> CausalGraph:
        self.draft = GraphDraft(self.file)
        if self.token.says("strict"):
            self.take()
        if self.ahead().marks(*LINKS):  # DAGitty's reader takes links without `dag { }` too
            self.dagitty = True
            self.statements(_Scope())
        elif not self.token.says(*KINDS):
            hint = f"a file begins with one of {', '.join(KINDS)}"
            raise self.wanted("the kind of graph", hint=hint)
        else:
            self.dagitty = self.take().says(*DAGITTY)
            if not self.token.marks("{"):
                self.name()
            self.block(_Scope())
        if self.token.kind != "end":
            message = f"{self.token.text!r} after the graph's end"
            raise self.wrong(message, hint="one graph for each file")
        return self.draft.graph()

    def block(self, scope: _Scope) -> list[str]:
        """`{ ... }`: the nodes named in it. It updates the scope."""
        self.expect("{")
        self.depth += 1
        if self.depth > self.max_nested:
            hint = f"at most {self.max_nested} in each other"
            raise self.wrong("subgraphs are nested too deeply", hint=hint)
        names = self.statements(scope)
        self.expect("}")
        self.depth -= 1
        return names

    def statements(self, scope: _Scope) -> list[str]:
        named: dict[str, None] = {}
        before: list[Token] = []
        while not self.token.marks("}") and self.token.kind != "end":
            if self.take_mark(";"):
                before = []
                continue
            start = self.token
            named.update(dict.fromkeys(self.statement(scope)))
            ended = [start, self.last or start]
            self.note_stray(before, ended)
            before = ended
        return list(named)

    def note_stray(self, before: list[Token], now: list[Token]) -> None:
        """Note a node that may be a part of a name that fell apart: `marital status -> income`.

        pgmpy writes DAGitty so. The node stands beside a link on one line; each statement is its
        first and its last token.
        """
        if not (self.dagitty and before and before[1].kind == now[0].kind == "word"):
            return
        if before[1].place[0] != now[0].place[0] or (before[0] is before[1]) is (now[0] is now[1]):
            return
        alone = before[0] if before[0] is before[1] else now[0]
        self.draft.stray.setdefault(alone.text, alone.place)

    def statement(self, scope: _Scope) -> list[str]:
        first = self.token
        if first.says("graph", "node", "edge") and self.ahead().marks("["):
            self.take()
            getattr(scope, first.text.lower()).update(self.attributes())
            return []
        if first.names and self.ahead().marks("="):
            key = self.take().text.lower()
            self.take()
            scope.graph[key] = self.text_of(self.value())
            return []
        names = self.end_of_link(scope)
        if self.token.marks(*LINKS):
            return self.chain(names, scope)
        if self.token.marks("["):
            told = self.attributes()
            for name in names:
                self.draft.node(name, told, place=first.place)
        return names

    def chain(self, first: list[str], scope: _Scope) -> list[str]:
        ends, marks = [first], []
        while self.token.marks(*LINKS):
            marks.append(self.take())
            ends.append(self.end_of_link(scope))
        told = scope.edge | self.attributes()
        for left, mark, right in zip(ends, marks, ends[1:], strict=False):
            self.draft.expect(len(left) * len(right), place=mark.place)
            deciding = sorted(told.keys() & {"dir", "arrowhead", "arrowtail"})
            if deciding and (self.dagitty or mark.marks("<-", "<->")):
                raise self.wrong(
                    f"{deciding[0]} belongs to DOT, and DAGitty does not read it",
                    hint="say it by the link: ->, <-, -- or <->",
                    at=mark,
                )
            for a, b in product(left, right):
                self.draft.link(a, mark.text, b, told, place=mark.place)
        return [name for names in ends for name in names]

    def end_of_link(self, scope: _Scope) -> list[str]:
        """Some nodes, or all nodes of a subgraph; a cluster of class "group" is a group."""
        if self.token.marks("{") or self.token.says("subgraph"):
            return self.subgraph(scope)
        names = [self.node(scope)]
        while self.token.marks(","):
            if self.dagitty:
                message = "a comma between nodes, which DAGitty does not read"
                raise self.wrong(message, hint="write { a b } -> c")
            self.take()
            names.append(self.node(scope))
        return names

    def subgraph(self, scope: _Scope) -> list[str]:
        if self.token.says("subgraph"):
            self.take()
        if not self.token.marks("{"):
            self.name()
        inner = _Scope(scope)
        names = self.block(inner)
        if inner.graph.get("class") == "group" and "label" in inner.graph:
            self.draft.groups[inner.graph["label"]] = names
        return names

    def node(self, scope: _Scope) -> str:
        place = self.token.place
        name = self.text_of(self.name())
        if self.token.marks(":"):
            hint = "links join whole nodes; put a name that holds a colon in quotes"
            raise self.wrong(f"a port after {name!r}", hint=hint)
        if self.draft.node(name, place=place):
            self.draft.node(name, scope.node, place=place)
        return name

    def attributes(self) -> _Attributes:
        """`[key=value, flag]...`; a flag is worth "1"."""
        attributes: _Attributes = {}
        while self.take_mark("["):
            while not self.take_mark("]"):
                if self.take_mark(";", ","):
                    continue
                key = self.name()
                value = self.text_of(self.value()) if self.take_mark("=") else "1"
                name = UNSEEN.get(key.text.lower(), key.text.lower())
                if self.dagitty and name in UNSEEN.values() and value.lower() not in TRUE:
                    raise self.wrong(
                        f"{key.text}={value!r}: to DAGitty the node is unseen all the same",
                        hint=f"write {key.text} alone, or delete it",
                        at=key,
                    )
                attributes[name] = value
        return attributes

    def value(self) -> Token:
        return self.take() if self.token.kind == "html" else self.name()

    def text_of(self, first: Token) -> str:
        """A word, or quoted texts joined by `+`; a text in HTML is a picture, and says nothing."""
        parts = [first.text if first.kind != "html" else ""]
        while first.kind == "text" and self.take_mark("+"):
            parts.append(self.name().text)
        return "".join(parts)


def write_dot(graph: CausalGraph) -> str:
    """A graph as a DOT digraph, drawn like our own picture; names as of `quoted`."""
    dot = partial(quoted, language="DOT")
    lines = ["rankdir=LR;", 'node [shape=box, style=rounded, fontname="sans-serif"];']
    lines += [f"{dot(name)};" for name in graph.nodes]
    for i, (group, names) in enumerate(graph.groups.items()):
        members = " ".join(f"{dot(name)};" for name in names)
        lines.append(f'subgraph "cluster_{i}" {{ class=group; label={dot(group)}; {members} }}')
    for edge in graph.edges:
        lines.append(f"{dot(edge.cause)} -> {dot(edge.effect)} [{_look(edge)}];")
    pairs, sets = _unseen_causes(graph)
    lines += [f"{dot(a)} -> {dot(b)} [dir=both, style=dotted];" for a, b in pairs]
    for cause, names in sets.items():
        effects = " ".join(map(dot, names))
        lines.append(
            f"{dot(cause)} [latent=1, shape=ellipse, style=dashed];"
            f" {dot(cause)} -> {{ {effects} }} [style=dotted];"
        )
    return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}", ""])


def _look(edge: GraphEdge) -> str:
    style = STYLES[edge.provenance]
    drawn = {"": "solid", "2": "dotted"}
    line = drawn.get(style.dashes[:1], "dashed")
    way = "" if edge.directed else ", dir=none"
    return (
        f'class={edge.provenance}, color="{style.colour}", style={line},'
        f" penwidth={style.width:g}{way}"
    )


def _unseen_causes(graph: CausalGraph) -> tuple[list[tuple[str, str]], dict[str, tuple[str, ...]]]:
    """The pairs of columns with an unseen cause, and by a new node's name the larger sets."""
    free = (name for name in (f"U{i}" for i in count(1)) if name not in graph.nodes)
    sets = dict(zip(free, graph.latent, strict=False))
    pairs = [names for names in graph.latent if len(names) == 2]
    return pairs, {cause: names for cause, names in sets.items() if len(names) > 2}


def write_dagitty(graph: CausalGraph) -> str:
    """A graph in DAGitty's language: a `dag`, or a `pdag` where directions are unknown."""
    pairs, sets = _unseen_causes(graph)
    links = [(a, "->", b) for a, b in graph.directed]
    links += [(a, "--", b) for a, b in graph.undirected]
    links += [(a, "<->", b) for a, b in pairs]
    links += [(cause, "->", name) for cause, names in sets.items() for name in names]
    name = {n: quoted(n, language="DAGitty") for n in (*graph.nodes, *sets)}
    lines = [name[n] for n in graph.nodes] + [f"{name[cause]} [latent]" for cause in sets]
    lines += [f"{name[a]} {mark} {name[b]}" for a, mark, b in links]
    return "\n".join(["dag {" if graph.is_dag else "pdag {", *lines, "}", ""])


def quoted(name: str, *, language: str) -> str:
    """A name as a quoted text that both Graphviz and DAGitty read back.

    Raises:
        GraphFileError: the languages have no way to write it.
    """
    if _UNWRITABLE.search(name):
        raise GraphFileError(
            f"{language} cannot write the name {name!r}: no control characters, no backslash at"
            " its end or before a quotation mark, and no line break alone",
            hint="rename the column, or choose the format yaml or json",
        )
    return '"' + name.replace('"', '\\"') + '"'
