"""Tokens of the languages in which graphs are written, mistakes at their place in the file, and a
graph as its file is read: what the attributes of nodes and links say in each program.

All formats share it. Nodes have the file's identifiers; `GraphDraft.graph` gives them names, finds
the unseen ones, and gives the finished graph, or says what is wrong and where. An attribute that
decides what a node or a link is is understood, or the file is refused; every other one, such as a
colour, is left alone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from synthdp.errors import SynthdpError
from synthdp.graph.causal import PROVENANCES, CausalGraph, GraphEdge, Provenance
from synthdp.graph.knowledge import one_cycle
from synthdp.spec.model.fields import MOST

COMMENTS = r"//[^\n]*+ | /\*.*?\*/"
QUOTES = 'a name with other characters than letters, digits, _ and . goes in quotes: "a name"'
Place = tuple[int, int]
"""Line and column, from 1."""


class GraphFileError(SynthdpError):
    """A graph file cannot be read, or a graph cannot be written in a format."""

    exit_code = 2


def mistake(
    file: str, place: Place | None, message: str, *, hint: str | None = None
) -> GraphFileError:
    """A mistake at a place of a file: `file:line:column: what`, with a hint on what is allowed.

    The middle of a long text is cut out: it may quote a name as long as the file.
    """

    def short(text: str) -> str:
        return text if len(text) <= 2000 else f"{text[:1000]} ... {text[-1000:]}"

    where = ":".join([file, *map(str, place or ())])
    return GraphFileError(f"{where}: {short(message)}", hint=short(hint) if hint else None)


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
        return self.kind == "mark" and self.text in texts

    def says(self, *words: str) -> bool:
        """Whether this is one of these keywords: not quoted, in any case."""
        return self.kind == "word" and self.text.lower() in words

    @property
    def names(self) -> bool:
        return self.kind in ("word", "text")


class Cursor:
    """Goes through a text token by token; readers derive from it and say what may stand where.

    `max_tokens`: of a file; as many arrows as a spec may have, with a picture's attributes.
    `max_nested`: subgraphs or lists in each other.
    """

    language: Language
    hint: str
    max_tokens = 2_500_000
    max_nested = 50

    def __init__(self, text: str, *, file: str) -> None:
        self.text, self.file = text, file
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._count = 0
        self._ahead: Token | None = None
        self.last: Token | None = None
        self.token = Token("", "begin", -1, -1, (1, 1))
        self.token = self._read(0)

    def take(self) -> Token:
        """The token, which is left behind."""
        token = self.token
        if token.kind != "end":
            self.last, self.token, self._ahead = token, self.ahead(), None
        return token

    def ahead(self) -> Token:
        if self._ahead is None:
            self._ahead = self._read(self.token.end)
        return self._ahead

    def raw(self, mark: str, *, within: str) -> str:
        """Leave behind the text up to `mark`, and the mark; nothing of `within` may come first."""
        start, found = self.token.start, self.text.find(mark, self.token.start)
        if found < 0 or any(self.text.find(c, start, found) >= 0 for c in within):
            raise self.wrong(f"no {mark!r} after this", hint=f"{mark!r} ends it")
        self.token, self._ahead = self._read(found + 1), None
        return self.text[start:found]

    def take_mark(self, *marks: str) -> bool:
        return bool(self.token.marks(*marks) and self.take())

    def expect(self, mark: str) -> None:
        """Take this mark; anything else is refused."""
        if not self.take_mark(mark):
            raise self.wanted(f"{mark!r}")

    def name(self, what: str = "a name", *, hint: str | None = None) -> Token:
        """Take a word or a quoted text; anything else is refused."""
        if not self.token.names:
            raise self.wanted(what, hint=hint)
        return self.take()

    def wanted(self, what: str, *, hint: str | None = None) -> GraphFileError:
        """A mistake: `what` must stand here."""
        return self.wrong(f"got {self.token.text!r} where {what} must stand", hint=hint)

    def wrong(
        self, message: str, *, hint: str | None = None, at: Token | None = None
    ) -> GraphFileError:
        return mistake(self.file, (at or self.token).place, message, hint=hint or self.hint)

    def _read(self, at: int) -> Token:
        while at < len(self.text):
            match = self.language.pattern.match(self.text, at)
            kind, end = (str(match.lastgroup), match.end()) if match else ("", at)
            if not match and self.language.html and self.text[at] == "<":
                kind, end = "html", self._html_end(at)
            if not kind:
                raise self._unexpected(at)
            if kind != "skip":
                content = self.text[at:end]
                if kind == "text":
                    content = self.language.unquote(content)
                token = Token(content, kind, at, end, self._place(at))
                self._refuse_touching(token)
                self._count += 1
                if self._count > self.max_tokens:
                    hint = f"at most {self.max_tokens:,} words and signs"
                    raise self.wrong("a file that is too long", hint=hint, at=token)
                return token
            at = end
        return Token("the end of the file", "end", at, at, self._place(at))

    def _place(self, at: int) -> Place:
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    def _refuse_touching(self, token: Token) -> None:
        before = self.token
        if self.language.touching or before.end != token.start:
            return
        if before.kind == "text" and self.last and self.last.marks("="):
            return  # DAGitty's own files have  bb="0,0,1,1"A [exposure]
        if before.names and token.kind in ("word", "text", "html"):
            message = f"{before.text!r} and {token.text!r} stand side by side, with nothing between"
            raise self.wrong(message, hint=QUOTES, at=token)

    def _html_end(self, at: int) -> int:
        depth = 0
        for match in re.compile("[<>]").finditer(self.text, at):
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.end()
        raise self._unexpected(at)

    def _unexpected(self, at: int) -> GraphFileError:
        what = f"unexpected {self.text[at]!r}"
        if self.text[at] == '"':
            what = "a quotation mark that is never closed"
        return mistake(self.file, self._place(at), what, hint=QUOTES)


Attributes = Mapping[str, str]
"""By name, in lower case."""

# What each program writes. Of nodes:
UNSEEN = ("latent", "unobserved", "latents", "unmeasured")  # DAGitty has two, pgmpy the third
SEEN = ("observed", "measured")  # DoWhy has the first
NODE_TYPES = ("type", "node_type", "nodetype")
DOWHY = "Unobserved Confounders"  # the label of the node that DoWhy adds
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")
# Of links, each with Graphviz's word for it:
DIRECTIONS = {"->": "forward", "<-": "back", "--": "none", "<->": "both"}
CIRCLES = ("@->", "<-@", "--@", "@--", "-@-", "@-@", "o->", "<-o", "o-o", "o--", "--o")
TYPES = {
    **{kind: "->" for kind in ("directed", "->", "-->")},
    **{kind: "<-" for kind in ("<-", "<--")},
    **{kind: "--" for kind in ("undirected", "-", "--", "---")},
    **{kind: "<->" for kind in ("bidirected", "<->")},
}
# Of the ends of links; the second name of each is causaliq's:
ENDS = {"arrowtail": "sourceendpoint", "arrowhead": "targetendpoint"}
ROUND = ("odot", "circle", "white_circle", "transparent_circle")
PLAIN = ("none", "line", "tail")
POINTED = (
    *("normal", "vee", "open", "empty", "onormal"),
    *("halfopen", "lnormal", "rnormal", "lvee", "rvee"),
    *("arrow", "standard", "delta", "plain"),  # causaliq and yEd
)
CIRCLE_HINT = (
    "give one graph: turn each such link into ->, <-, -- (direction unknown) or <-> (unseen common"
    " cause)"
)
_BY_ENDS = {(False, True): "->", (True, False): "<-", (False, False): "--", (True, True): "<->"}
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
    provenance: Provenance

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

    def wrong(self, place: Place | None, message: str, hint: str) -> GraphFileError:
        return mistake(self.file, place, message, hint=hint)

    def node(
        self, name: str, attributes: Attributes | None = None, *, place: Place | None = None
    ) -> bool:
        """Add a node, or attributes to it; whether it is new."""
        if not name:
            raise self.wrong(place, "a node has no name", "columns have names")
        new = name not in self._nodes
        self._nodes.setdefault(name, _Node(place)).attributes.update(attributes or {})
        if len(self._nodes) > MOST.levels:
            raise self.wrong(
                place, f"more than {MOST.levels:,} nodes", "no spec has so many columns"
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
        """Add a link, unless the attributes say another; `class` is its provenance."""
        told = attributes or {}
        self.expect(1, place=place)
        self.node(a, place=place)
        self.node(b, place=place)
        mark = self._mark(mark, told, place)
        if mark == "<-":
            a, b, mark = b, a, "->"
        if mark:
            why: Provenance = next((p for p in PROVENANCES if p == told.get("class")), "given")
            self._links.append(_Link(a, b, mark, place, why))

    def add(self, name: str | None, attributes: Attributes, *, place: Place | None = None) -> None:
        """Add a node that has a name and was not told before."""
        if not self.node(name or "", attributes, place=place):
            raise self.wrong(place, f"a second node {name!r}", "each node is told once")

    def join(
        self,
        ends: tuple[str | None, str | None],
        attributes: Attributes,
        *,
        mark: str,
        place: Place | None = None,
    ) -> None:
        """Add a link between two nodes that were added."""
        unknown = next((end for end in ends if end not in self._nodes), "")
        if unknown != "":
            message = f"a link of {unknown!r}, which is no node"
            hint = f"nodes are {', '.join(islice(self._nodes, 10))}"
            raise self.wrong(place, message if unknown else "a link without two ends", hint)
        a, b = ends
        self.link(str(a), mark, str(b), attributes, place=place)

    def expect(self, links: int, *, place: Place | None) -> None:
        """Refuse so many more `links` where a spec cannot hold them."""
        if len(self._links) + links > MOST.arrows:
            raise self.wrong(
                place, f"more than {MOST.arrows:,} links", "no spec has so many arrows"
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
        for name, place in self.stray.items():
            if name not in linked and not self._nodes[name].attributes:
                raise self.wrong(
                    place,
                    f"{name!r} stands beside a link and is in none: is it part of a name?",
                    'a name with a space goes in quotes: "a name"; a column without links'
                    " stands on a line of its own",
                )
        common = self._common_causes(links.values(), unseen)
        seen = [x for x in links.values() if not unseen & {x.a, x.b}]
        self._check_pairs(seen)
        # pydot leaves a node behind a line break at a file's end
        columns = (n for n in names.values() if n in linked or not _LINE_BREAKS.fullmatch(n))
        return CausalGraph(
            tuple(n for n in columns if n not in unseen),
            tuple(
                GraphEdge(x.a, x.b, directed=x.mark == "->", provenance=x.provenance)
                for x in seen
                if x.mark != "<->"
            ),
            {name: tuple(names[n] for n in members) for name, members in self.groups.items()},
            (*((x.a, x.b) for x in seen if x.mark == "<->"), *common),
        )

    def _names(self) -> dict[str, str]:
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
            raise self.wrong(
                place, f"two nodes are named {twice!r}", "names are the nodes' labels here"
            )
        return labels

    @property
    def _numbered(self) -> bool:
        return all(map(_NUMBER.fullmatch, self._nodes))

    def _is_unseen(self, n: str, names: Mapping[str, str]) -> bool:
        """Whether a node is no column, but an unseen common cause."""
        attributes, place, name = self._nodes[n].attributes, self._nodes[n].place, names[n]
        if attributes.get("shape") == "square" and self._numbered and name != n:
            return True  # causal-learn draws unseen nodes so
        found = attributes.get("label") == DOWHY
        for keys, yes, no in ((UNSEEN, TRUE, FALSE), (SEEN, FALSE, TRUE)):
            for key in keys:
                value = attributes.get(key, no[0]).lower()
                if value not in (*yes, *no):
                    message = f"node {name!r} has {key}={value!r}: is it a column, or unseen?"
                    raise self.wrong(place, message, f"one of {', '.join((*TRUE, *FALSE))}")
                found = found or value in yes
        if "invis" in attributes.get("style", ""):
            message = f"node {name!r} is not drawn: is it a column?"
            raise self.wrong(place, message, "delete it, or its style")
        return found or any(attributes.get(key, "").lower() in UNSEEN for key in NODE_TYPES)

    def _mark(self, mark: str, attributes: Attributes, place: Place | None) -> str:
        """`->`, `<-`, `--` (unknown) or `<->` (unseen cause); "" if not drawn. No circles."""
        if "invis" in attributes.get("style", ""):
            return ""
        for key in ("edgetype", "edge_type", "type"):
            told = attributes.get(key, "").lower()
            if told and key != "type" and told not in (*TYPES, *CIRCLES):
                raise self.wrong(place, f"{key}={told!r} of a link", f"one of {', '.join(TYPES)}")
            mark = TYPES.get(told, told if told in CIRCLES else mark)
        if mark in CIRCLES:
            message = f"a link {mark} with a circle stands for several graphs"
            raise self.wrong(place, message, CIRCLE_HINT)
        for key in sorted(attributes.keys() & {"lhead", "ltail"}):
            message = f"{key}={attributes[key]!r}: a link that ends at a whole cluster"
            raise self.wrong(place, message, "links join columns; write { a b } for several")
        way = "both" if attributes.keys() & ENDS.values() else DIRECTIONS[mark]
        way = attributes.get("dir", way).lower()
        if way not in DIRECTIONS.values():
            hint = f"one of {', '.join(DIRECTIONS.values())}"
            raise self.wrong(place, f"dir={way!r} of a link", hint)
        tail, head = (self._is_pointed(end, attributes, place) for end in ENDS.items())
        if tail and "arrowtail" in attributes and "dir" not in attributes and way == "forward":
            message = "an arrowtail, which is drawn with dir=back or dir=both alone"
            raise self.wrong(place, message, "say which with dir, or delete arrowtail")
        return _BY_ENDS[tail and way in ("back", "both"), head and way in ("forward", "both")]

    def _is_pointed(self, keys: Iterable[str], attributes: Attributes, place: Place | None) -> bool:
        """Whether an end of a link is an arrow, else it is plain. Unless told it is an arrow."""
        for key in keys:
            shape = attributes.get(key, "normal").lower()
            if shape in ROUND:
                message = f"a link with a circle ({key}={shape}) stands for several graphs"
                raise self.wrong(place, message, CIRCLE_HINT)
            if shape not in (*POINTED, *PLAIN):
                message = f"{key}={shape!r}: what it says of the link is not known"
                hint = f"none, normal or another arrow: {', '.join(POINTED)}"
                raise self.wrong(place, message, hint)
            if shape in PLAIN:
                return False
        return True

    def _common_causes(self, links: Iterable[_Link], unseen: set[str]) -> list[tuple[str, ...]]:
        """The columns below each unseen node, where there are two or more."""
        effects: dict[str, list[str]] = {name: [] for name in self._nodes if name in unseen}
        for x in links:
            name = x.b if x.b in unseen else x.a
            if name in unseen and (name == x.b or x.mark != "->"):
                raise self.wrong(
                    x.place,
                    f"unseen node {name!r} is not only a cause",
                    "from an unseen node only arrows to columns may lead, none into it",
                )
            if name in unseen:
                effects.setdefault(name, []).append(x.b)
        return [tuple(names) for names in effects.values() if len(names) > 1]

    def _check_pairs(self, links: Iterable[_Link]) -> None:
        seen: dict[frozenset[str], str] = {}
        for x in links:
            pair = frozenset((x.a, x.b))
            if len(pair) == 1:
                raise self.wrong(
                    x.place, f"{x.a!r} is linked to itself", "a link joins two columns"
                )
            if pair in seen and x.mark != "<->":
                cycle = ", and they form a cycle" if x.mark == seen[pair] == "->" else ""
                raise self.wrong(
                    x.place,
                    f"a second link between {x.a!r} and {x.b!r}{cycle}",
                    "one link for each pair; an unseen common cause may come on top",
                )
            if x.mark != "<->":
                seen[pair] = x.mark
        arrows = {(x.a, x.b): x.place for x in links if x.mark == "->"}
        cycle_found = one_cycle(arrows)
        if cycle_found:
            ring = [*cycle_found, cycle_found[0]]
            raise self.wrong(
                max((arrows[pair] for pair in pairwise(ring)), key=lambda p: p or (0, 0)),
                f"the arrows form a cycle: {' -> '.join(ring)}",
                "turn or delete one of them",
            )
