"""DOT (Graphviz) and DAGitty, read as one language.

`digraph`, `graph`, `dag`, `pdag`, `mag` and `pag`; chains of links, subgraphs as link ends, default
attributes, and in DOT lists of nodes as link ends, as Graphviz reads them. Links are `->`, `<-`,
`--` (direction unknown), `<->` (unseen common cause); what DOT's attributes make of them is told in
`meaning`. Layout is ignored.

References: graphviz.org/doc/info/lang.html; Textor et al. 2016, "Robust causal inference using
directed acyclic graphs: the R package dagitty", and the grammar of its reader.
"""

from __future__ import annotations

from itertools import product

from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.meaning import CIRCLES, DIRECTIONS, TRUE
from synthdp.graph.formats.tokens import DOT, Cursor, Token

DAGITTY = ("dag", "pdag", "mag", "pag")
KINDS = ("digraph", "graph", *DAGITTY)
LINKS = (*DIRECTIONS, *CIRCLES)
UNSEEN = {"l": "latent", "u": "unobserved"}  # DAGitty takes a letter for each
MAX_NESTED = 50  # subgraphs in each other

_Attributes = dict[str, str]


def read_dot(text: str, *, file: str) -> CausalGraph:
    """Read a graph in DOT or DAGitty; provenance is `given` where the file does not say.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
    """
    return _Reader(text, file=file, language=DOT).graph()


class _Scope:
    """The default attributes inside a pair of braces, and those of the subgraph itself."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.node: _Attributes = dict(outer.node) if outer else {}
        self.edge: _Attributes = dict(outer.edge) if outer else {}
        self.graph: _Attributes = {}


class _Reader(Cursor):
    """Recursive descent; nodes and links go into a draft."""

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
            raise self.wrong(
                f"got {self.token.text!r} where the kind of graph must stand",
                hint=f"a file begins with one of {', '.join(KINDS)}",
            )
        else:
            self.dagitty = self.take().says(*DAGITTY)
            if not self.token.marks("{"):
                self.name()
            self.block(_Scope())
        if self.token.kind != "end":
            raise self.wrong(
                f"{self.token.text!r} after the graph's end", hint="one graph for each file"
            )
        return self.draft.graph()

    def block(self, scope: _Scope) -> list[str]:
        """`{ ... }`: the nodes named in it. It updates the scope."""
        self.expect("{")
        self.depth += 1
        if self.depth > MAX_NESTED:
            raise self.wrong(
                "subgraphs are nested too deeply", hint=f"at most {MAX_NESTED} in each other"
            )
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
                raise self.wrong(
                    "a comma between nodes, which DAGitty does not read", hint="write { a b } -> c"
                )
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
            raise self.wrong(
                f"a port after {name!r}",
                hint="links join whole nodes; put a name that holds a colon in quotes",
            )
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
