"""GML and GraphML, as networkx, DoWhy, igraph and yEd write them, and graphs in JSON.

In GML a node's name is its label, else its identifier. What an edge's arrows say counts, also
inside `graphics`, where yEd has them. References: M. Himsolt, GML: a portable graph file format;
graphml.graphdrawing.org. JSON is the `graph.json` of a bundle, or networkx' node-link form.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from synthdp import files as untrusted
from synthdp.errors import OutputError, SynthdpError, install
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import TRUE, GraphDraft
from synthdp.graph.formats.tokens import Cursor, GraphFileError, Language, Place, mistake

# DoWhy writes `directed 1node [`: a number ends where a key begins.
GML = Language(
    skip=r"\#[^\n]*+",
    text=r'"[^"]*+"',
    mark=r"[\[\]]",
    word=r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)? | [A-Za-z_]\w*+",
    unquote=lambda text: html.unescape(text[1:-1]),
    touching=True,
)
YED_ARROWS = {"sourcearrow": "arrowtail", "targetarrow": "arrowhead"}
PLAIN = {"dir": "both", "arrowtail": "none", "arrowhead": "none"}  # yEd, where it says no arrow
WAYS = {"first": "back", "last": "forward", "both": "both", "none": "none"}
HINT = (
    "expected a bundle's graph.json, with nodes, edges, groups and latent; or networkx' node-link"
    " form, with directed, nodes, and links or edges"
)


def read_gml(text: str, *, file: str) -> CausalGraph:
    return _GmlReader(text, file=file).graph()


class _Entry(dict[str, str]):
    """The attributes of a node or an edge, those of lists inside among them, and its place."""

    place: Place


class _GmlReader(Cursor):
    language = GML
    hint = 'expected  graph [ directed 1 node [ id 0 label "a" ] edge [ source 0 target 1 ] ]'

    def graph(self) -> CausalGraph:
        own: dict[str, str] = {}
        while not self.token.says("graph"):  # what stands before it is about the file
            self.key_and_value(own, 0)
        self.take()
        self.expect("[")
        nodes: list[_Entry] = []
        edges: list[_Entry] = []
        while not self.take_mark("]"):
            if self.token.says("node", "edge"):
                entry, listed = _Entry(), nodes if self.token.says("node") else edges
                entry.place = self.take().place
                self.list_of(entry, 0)
                listed.append(entry)
            else:
                self.key_and_value(own, 0)
        while self.token.kind != "end":
            if self.token.says("graph"):
                raise self.wrong("a second graph", hint="one graph for each file")
            self.key_and_value({}, 0)
        draft = GraphDraft(self.file, labelled=True)
        mark = "->" if own.get("directed") in TRUE else "--"
        usual = PLAIN if own.get("creator") == "yFiles" else {}
        for node in nodes:
            draft.add(node.get("id"), node, place=node.place)
        for edge in edges:
            ends = (edge.get("source"), edge.get("target"))
            draft.join(ends, usual | edge, mark=mark, place=edge.place)
        return draft.graph()

    def list_of(self, told: dict[str, str], depth: int) -> None:
        self.expect("[")
        if depth > self.max_nested:
            raise self.wrong("lists are nested too deeply", hint=f"at most {self.max_nested}")
        while not self.take_mark("]"):
            self.key_and_value(told, depth)

    def key_and_value(self, told: dict[str, str], depth: int) -> None:
        """Take `key value`; a list's keys are told as if they stood outside it."""
        if self.token.kind != "word" or not self.token.text[0].isalpha():
            raise self.wanted("a key")
        key = self.take().text.lower()
        if self.token.marks("["):
            self.list_of(told, depth + 1)
            return
        value = self.name().text
        if key == "arrow":
            key, value = "dir", WAYS.get(value.lower(), value)
        elif key in YED_ARROWS:
            told.update(PLAIN | told | {YED_ARROWS[key]: value})
        if depth == 0 or key == "dir":
            told[key] = value


def read_graphml(text: str, *, file: str) -> CausalGraph:
    """Read a graph in GraphML.

    A file is a stranger's: defusedxml parses it, which refuses entities and declarations of types.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
        OutputError: defusedxml is not installed.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.sax import parse
    except ImportError:
        raise OutputError("graphs in XML need defusedxml", hint=install("codebook")) from None
    reader = _GraphmlReader(file)
    try:
        parse(StringIO(text), reader, forbid_dtd=True)
    except SAXParseException as error:
        place = (error.getLineNumber() or 1, (error.getColumnNumber() or 0) + 1)
        message = f"this is not XML: {error.getMessage()}"
        raise mistake(file, place, message, hint="expected GraphML") from None
    except DefusedXmlException:
        message = "declares types or entities, which are not read"
        raise mistake(file, None, message, hint="take the DOCTYPE out of the file") from None
    if not reader.begun:
        raise mistake(file, None, "holds no graph", hint="expected GraphML: graphml, graph, node")
    return reader.draft.graph()


class _GraphmlReader(ContentHandler):
    """Takes elements as they come; nodes and edges go into a draft when they end."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file, self.draft = file, GraphDraft(file)
        self.begun = self.directed = False
        self.keys: dict[str, str] = {}  # by identifier: the attribute's name
        self.defaults: dict[str, dict[str, str]] = {}  # by element: its attributes
        self.kind = self.key = ""
        self.parts: list[str] = []  # of the text since the last tag
        self.own: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.place: Place = (1, 1)

    def startElement(self, name: str, attrs: Any) -> None:
        tag, own = name.rpartition(":")[2], dict(attrs.items())
        self.parts = []
        if tag == "graph":
            if self.begun:
                raise self.wrong("a second graph, or one inside a node", hint="one graph, flat")
            self.begun, self.directed = True, own.get("edgedefault") == "directed"
        elif tag == "hyperedge":
            raise self.wrong("a hyperedge", hint="an edge joins two nodes")
        elif tag in ("node", "edge"):
            self.kind, self.own, self.place = tag, own, self.here
            self.told = dict(self.defaults.get(tag, {}))
        elif tag == "key":
            self.kind, self.key = own.get("for", "all"), own.get("attr.name", "").lower()
            self.keys[own.get("id", "")] = self.key
        elif tag == "data":
            self.key = self.keys.get(own.get("key", ""), "")
        elif tag == "Arrows":
            ends = {"arrowtail": own.get("source", ""), "arrowhead": own.get("target", "")}
            self.told |= {"dir": "both", **ends}

    def characters(self, content: str) -> None:
        self.parts.append(content)

    def endElement(self, name: str) -> None:
        tag, text = name.rpartition(":")[2], "".join(self.parts).strip()
        if tag == "default":
            for kind in ("node", "edge") if self.kind == "all" else (self.kind,):
                self.defaults.setdefault(kind, {})[self.key] = text
        elif tag == "data" and text:
            self.told[self.key] = text
        elif tag == "NodeLabel":
            self.told["label"] = text
        elif tag == "node":
            self.draft.add(self.own.get("id"), self.told, place=self.place)
        elif tag == "edge":
            ends = (self.own.get("source"), self.own.get("target"))
            directed = self.own.get("directed", str(self.directed)).lower() == "true"
            self.draft.join(ends, self.told, mark="->" if directed else "--", place=self.place)
        self.parts = []

    @property
    def here(self) -> Place:
        where: Any = self._locator  # type: ignore[attr-defined]
        return where.getLineNumber(), where.getColumnNumber() + 1

    def wrong(self, message: str, *, hint: str) -> GraphFileError:
        return mistake(self.file, self.here, message, hint=hint)


def read_json(text: str, *, file: str) -> CausalGraph:
    """The graph of a bundle's `graph.json`, or in networkx' node-link form.

    Raises:
        GraphFileError: with file, line and column where it is not JSON, else with the entry.
    """
    try:
        data = untrusted.parse_json(text)
    except json.JSONDecodeError as error:
        place = (error.lineno, error.colno)
        raise mistake(file, place, f"this is not JSON: {error.msg}", hint=HINT) from None
    except ValueError as error:
        raise mistake(file, None, str(error), hint=HINT) from None
    if not isinstance(data, dict):
        raise mistake(file, None, "this is no graph: it is no map of names", hint=HINT)
    if "directed" in data or "links" in data:
        return _node_link(data, file)
    try:
        return CausalGraph.from_json(data)
    except SynthdpError as error:
        raise mistake(file, None, error.message, hint=error.hint or HINT) from None


def _node_link(data: Mapping[str, Any], file: str) -> CausalGraph:
    links = "links" if "links" in data else "edges"
    directed = data.get("directed")
    if not isinstance(directed, bool):
        raise mistake(file, None, "does not say whether it is directed", hint=HINT)
    draft = GraphDraft(file)
    for (name,), told in _entries(data, "nodes", ("id",), "id: a text or a number", file):
        draft.add(name, told)
    ends = ("source", "target")
    for (a, b), told in _entries(data, links, ends, "source or no target: a node's id", file):
        draft.join((a, b), told, mark="->" if directed else "--")
    return draft.graph()


def _entries(
    data: Mapping[str, Any], key: str, needed: tuple[str, ...], what: str, file: str
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """The `needed` names of each entry of a list, and what it tells as texts."""
    listed = data.get(key)
    if not isinstance(listed, list):
        raise mistake(file, None, f"has no list {key!r}", hint=HINT)
    for i, told in enumerate(listed, start=1):
        if not isinstance(told, dict):
            raise mistake(file, None, f"{key} #{i} is no map of names", hint=HINT)
        names = list(map(told.get, needed))
        if not all(isinstance(n, str | int) and not isinstance(n, bool) for n in names):
            raise mistake(file, None, f"{key} #{i} has no {what}", hint=HINT)
        plain = {k.lower(): v for k, v in told.items() if isinstance(v, str | int | float)}
        texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in plain.items()}
        yield tuple(map(str, names)), texts
