"""DOT (Graphviz) and DAGitty, read as one language.

`digraph`, `graph`, `dag`, `pdag`, `mag` and `pag`; chains of links, subgraphs as link ends, default
attributes, and in DOT lists of nodes as link ends, as Graphviz reads them. Links are `->`, `<-`,
`--` (direction unknown), `<->` (unseen common cause); what DOT's attributes make of them is told in
`meaning`. Layout is ignored.

References: graphviz.org/doc/info/lang.html; Textor et al. 2016, "Robust causal inference using
directed acyclic graphs: the R package dagitty", and the grammar of its reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, product

from synthdp.drawing.graph import STYLES
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.meaning import CIRCLES, DIRECTIONS, TRUE, GraphFileError, Place, mistake

# --- tokens ---
#
# Tokens of the languages in which graphs are written, one at a time, each with its place.


COMMENTS = r"//[^\n]*+ | /\*.*?\*/"
MAX_TOKENS = 2_500_000  # of a file; as many arrows as a spec may have, with a picture's attributes
QUOTES = 'a name with other characters than letters, digits, _ and . goes in quotes: "a name"'
_ESCAPE = re.compile(r"\\(\\|\"|\n)")
_BRACKETS = re.compile("[<>]")


class Language:
    """How tokens of a language look: regular expressions in which spaces do not count.

    `unquote` gives the content of a quoted text. Two words that touch are a mistake unless
    `touching`: somebody meant them to be one name.
    """

    def __init__(
        self,
        *,
        skip: str,
        text: str,
        mark: str,
        word: str,
        unquote: Callable[[str], str],
        html: bool = False,
        touching: bool = False,
    ) -> None:
        parts = {"skip": rf"\s++ | {skip}", "text": text, "mark": mark, "word": word}
        pattern = " | ".join(f"(?P<{kind}> {part} )" for kind, part in parts.items())
        self.pattern = re.compile(pattern, re.VERBOSE | re.DOTALL | re.MULTILINE)
        self.unquote, self.html, self.touching = unquote, html, touching


def _unquoted(text: str) -> str:
    """The content of a quoted text.

    Only a quotation mark is escaped; two backslashes stay two, as in Graphviz.
    """
    return _ESCAPE.sub(lambda m: {"\\": "\\\\", '"': '"', "\n": ""}[m[1]], text[1:-1])


DOT = Language(
    skip=rf"{COMMENTS} | ^\#[^\n]*+",
    text=r'"(?:\\.|[^"\\])*+"',
    mark=r"@->|<-@|<->|->|<-|--@|@-@|@--|--|[{}\[\]=;,:+]",
    # A minus belongs to a number alone; what follows a number's digits is one name with them.
    word=r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?![\w.]) | [\w.]++",
    unquote=_unquoted,
    html=True,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a mark such as `->`, or a quoted text without its quotes.

    `start` and `end` are its place in the text; `kind` is word, mark, text, html or end.
    """

    text: str
    kind: str
    start: int
    end: int
    place: Place

    def marks(self, *texts: str) -> bool:
        """Whether this is one of these marks."""
        return self.kind == "mark" and self.text in texts

    def says(self, *words: str) -> bool:
        """Whether this is one of these keywords: not quoted, in any case."""
        return self.kind == "word" and self.text.lower() in words

    @property
    def names(self) -> bool:
        """Whether this may be a name."""
        return self.kind in ("word", "text")


class Cursor:
    """Goes through a text token by token; readers derive from it and say what may stand where."""

    hint: str

    def __init__(self, text: str, *, file: str, language: Language) -> None:
        self.text, self.file, self.language = text, file, language
        self._line, self._begins = 1, 0  # of the line where the next token is looked for
        self._count = 0
        self.last: Token | None = None
        self.token = self._read(0)
        self._ahead: Token | None = None

    def take(self) -> Token:
        """The token, which is left behind."""
        token = self.token
        if token.kind != "end":
            self.last, self.token, self._ahead = token, self.ahead(), None
        return token

    def ahead(self) -> Token:
        """The token after this one."""
        if self._ahead is None:
            self._ahead = self._read(self.token.end)
        return self._ahead

    def raw(self, mark: str, *, within: str) -> str:
        """The text from here to `mark`, as it stands, which is left behind with the mark.

        Raises:
            GraphFileError: a character of `within` comes first.
        """
        start, found = self.token.start, self.text.find(mark, self.token.start)
        if found < 0 or any(self.text.find(c, start, found) >= 0 for c in within):
            raise self.wrong(f"no {mark!r} after this", hint=f"{mark!r} ends it")
        self._pass(start, found + 1, back=self.token.place)
        self.token, self._ahead = self._read(found + 1), None
        return self.text[start:found]

    def take_mark(self, *marks: str) -> bool:
        """Whether one of these marks stood here."""
        return bool(self.token.marks(*marks) and self.take())

    def expect(self, mark: str) -> None:
        """Take this mark.

        Raises:
            GraphFileError: something else stands here.
        """
        if not self.take_mark(mark):
            raise self.wrong(f"got {self.token.text!r} where {mark!r} must stand")

    def name(self) -> Token:
        """Take a word or a quoted text.

        Raises:
            GraphFileError: something else stands here.
        """
        if not self.token.names:
            raise self.wrong(f"got {self.token.text!r} where a name must stand")
        return self.take()

    def wrong(
        self, message: str, *, hint: str | None = None, at: Token | None = None
    ) -> GraphFileError:
        """A mistake at a token, this one if none is given."""
        return mistake(self.file, (at or self.token).place, message, hint=hint or self.hint)

    def _pass(self, start: int, end: int, *, back: Place | None = None) -> None:
        if back:
            self._line, self._begins = back[0], start - back[1] + 1
        lines = self.text.count("\n", start, end)
        if lines:
            self._line += lines
            self._begins = self.text.rindex("\n", start, end) + 1

    def _read(self, at: int) -> Token:
        while at < len(self.text):
            place = (self._line, at - self._begins + 1)
            match = self.language.pattern.match(self.text, at)
            kind, end = (str(match.lastgroup), match.end()) if match else ("", at)
            if not match and self.language.html and self.text[at] == "<":
                kind, end = "html", self._html_end(at, place)
            if not kind:
                raise self._unexpected(at, place)
            self._pass(at, end)
            if kind != "skip":
                content = self.text[at:end]
                if kind == "text":
                    content = self.language.unquote(content)
                token = Token(content, kind, at, end, place)
                self._refuse_touching(token)
                self._count += 1
                if self._count > MAX_TOKENS:
                    hint = f"at most {MAX_TOKENS:,} words and signs"
                    raise mistake(self.file, place, "a file that is too long", hint=hint)
                return token
            at = end
        place = (self._line, at - self._begins + 1)
        return Token("the end of the file", "end", at, at, place)

    def _refuse_touching(self, token: Token) -> None:
        before = getattr(self, "token", None)
        if before is None or self.language.touching or before.end != token.start:
            return
        if before.kind == "text" and self.last and self.last.marks("="):
            return  # DAGitty's own files have  bb="0,0,1,1"A [exposure]
        if before.names and token.kind in ("word", "text", "html"):
            raise self.wrong(
                f"{before.text!r} and {token.text!r} stand side by side, with nothing between",
                hint=QUOTES,
                at=token,
            )

    def _html_end(self, at: int, place: Place) -> int:
        depth = 0
        for match in _BRACKETS.finditer(self.text, at):
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.end()
        raise self._unexpected(at, place)

    def _unexpected(self, at: int, place: Place) -> GraphFileError:
        character = self.text[at]
        what = f"unexpected {character!r}"
        if character == '"':
            what = "a quotation mark that is never closed"
        return mistake(self.file, place, what, hint=QUOTES)


# --- dot ---


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


# --- dot writing ---
#
# Graphs written as DOT and in DAGitty's language.
#
# DOT keeps provenance (as the link's `class`) and groups (clusters of class "group"). DAGitty has
# no place for them, nor for pairs without enough evidence: links and unseen causes survive, the
# rest does not.


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
