"""The graph section of a spec in YAML, alone or inside a whole spec; and the text of Tetrad.

    nodes: [a, b, c]        # not part of a spec, where the columns are the nodes
    graph:
      mode: given
      edges:
      - "a -> b"            # learned
      undirected:           # nothing shows their direction
      - [b, c]              # learned

The `graph` part can be pasted into a spec as it stands. Comments give the provenance of each link
and the undecided pairs.

Tetrad's text, which causal-learn writes too, has `Graph Nodes:`, `Graph Edges:`, numbered links. A
node in parentheses is unseen; one in brackets is a column on which rows were selected. Sections
about scores and triples say nothing of links, and are passed over.

And GML and GraphML, as networkx, DoWhy, igraph and yEd write them, and graphs in JSON.

In GML a node's name is its label, else its identifier. What an edge's arrows say counts, also
inside `graphics`, where yEd has them. References: M. Himsolt, GML: a portable graph file format;
graphml.graphdrawing.org. JSON is the `graph.json` of a bundle, or networkx' node-link form.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain, combinations, product
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

import yaml
from pydantic import Field, ValidationError

from synthdp import files as untrusted
from synthdp.errors import OutputError, SpecError, SpecProblem, SynthdpError, install
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import (
    CIRCLES,
    TRUE,
    Cursor,
    GraphDraft,
    GraphFileError,
    Language,
    Place,
    mistake,
)
from synthdp.graph.knowledge import Pair
from synthdp.spec.checks.checks import GRAPHS
from synthdp.spec.checks.graph import needs_edges
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.load.wording import findings
from synthdp.spec.load.yaml_tree import Node, read
from synthdp.spec.model import Categorical, Graph, Model, Names, ReleaseSpec

LINKS = {"-->": "->", "<--": "<-", "---": "--", "<->": "<->"}  # Tetrad's
HINT = "expected  Graph Nodes:  with a;b;c below it, and  Graph Edges:  with  1. a --> b"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.](?:[A-Za-z0-9_. -]*[A-Za-z0-9_.])?")
_SECTION = re.compile(r"([A-Z][A-Za-z ]*+)(?:\([^()]*+\))?+:")
_NUMBER = re.compile(r"\s*+\d++\.\s")
_MARK = re.compile(r"\s([-<o]-[->o])\s")
_BEHIND = re.compile(r"\s(?:(?:dd|nl|pd|pl)\b|\[)")  # properties in a PAG, and shares of resamples
_ALL_BEHIND = re.compile(r"(?:\s|dd\b|nl\b|pd\b|pl\b)*+(?:\[.*)?+")


class _Document(Model):
    """A graph section that stands alone; without `nodes` the names in it are the nodes."""

    graph: Graph = Field(description="as in a spec")
    nodes: Names | None = None


def read_yaml(text: str, *, file: str) -> CausalGraph:
    """The graph of a spec, or of a `graph` section alone.

    Raises:
        SpecError: with every mistake, its line and what is allowed.
    """
    tree, mistakes = read(text.removeprefix("\ufeff"))
    if tree is not None and "synthdp" in tree.entries:
        spec = parse_spec(text, path=file)
        return CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    if mistakes:
        places = [(m.line, m.column, "graph", m.message, m.hint) for m in mistakes]
        raise SpecError([SpecProblem(file, *place) for place in places])
    if tree is None or tree.kind != "map":
        allowed = "expected `graph:` with `edges:` below it, or a whole spec"
        raise SpecError([SpecProblem(file, 1, 1, "graph", "this is no graph", allowed)])
    try:
        document = _Document.model_validate(tree.value())
    except ValidationError as error:
        found = findings(error, _Document)
        raise SpecError([_problem(file, tree, p.loc, p.message, p.hint) for p in found]) from None
    nodes = document.nodes or tuple(_named(document))
    # The spec's checks of graphs, with a stand-in for every column. A graph may have no arrows.
    column = Categorical.model_construct(type="categorical", categories=("a",))
    parts: dict[str, Any] = {"graph": document.graph, "columns": dict.fromkeys(nodes, column)}
    spec = ReleaseSpec.model_construct(**parts)
    checks = (check for check in GRAPHS if check is not needs_edges)
    problems = [p for check in checks for p in check(spec) if p.loc[0] == "graph"]
    if problems:
        raise SpecError([_problem(file, tree, p.loc, p.message, p.hint) for p in problems])
    try:
        return CausalGraph.from_spec(document.graph, nodes)
    except SynthdpError as error:
        raise SpecError([_problem(file, tree, ("graph",), error.message, error.hint)]) from None


def _problem(
    file: str, tree: Node, loc: tuple[str | int, ...], message: str, hint: str | None
) -> SpecProblem:
    field = ".".join(str(s) if isinstance(s, str) else f"#{s + 1}" for s in loc) or "graph"
    return SpecProblem(file, *tree.place(loc), field, message, hint)


def _named(document: _Document) -> Iterator[str]:
    """Every column that the section names, once, in the order written."""
    graph = document.graph
    names = list(chain.from_iterable(graph.groups.values()))
    for edge in (*graph.edges, *graph.forbidden):
        names += [*edge.causes, *edge.effects]
    names += chain.from_iterable((*graph.undirected, *graph.tiers, *graph.latent))
    return iter(dict.fromkeys(name for name in names if name not in graph.groups))


def write_yaml(graph: CausalGraph) -> str:
    """A graph in the spec's form.

    A group is written as one only if every link from outside reaches all its columns alike, as a
    spec's arrows do; the columns of any other stand alone, with the arrows among them.
    """
    groups = _whole_groups(graph)
    node = _node_of(groups)
    latent = [list(dict.fromkeys(node.get(n, n) for n in names)) for names in graph.latent]
    inner = {pair for names in groups.values() for pair in product(names, names)}
    provenances: dict[Pair, set[str]] = {}
    loose: dict[Pair, set[str]] = {}
    for edge in graph.edges:
        if edge.structural and edge.pair not in inner:
            outer = (node.get(edge.cause, edge.cause), node.get(edge.effect, edge.effect))
            (provenances if edge.directed else loose).setdefault(outer, set()).add(edge.provenance)
    arrows, links = (
        [f"{form(pair)}  # {', '.join(sorted(told))}" for pair, told in found.items()]
        for form, found in ((lambda pair: _arrow(*pair), provenances), (_flow, loose))
    )
    members = [f"{_scalar(name)}: {_flow(names)}" for name, names in groups.items()]
    sections = [
        f"nodes: {_flow(graph.nodes)}",
        "graph:",
        "  mode: given" if arrows or links else "  mode: given  # this mode needs an arrow",
        *_listed("  edges:", arrows),
        *_listed("  undirected:  # nothing shows their direction", links),
        *_listed("  groups:", members, bullet=""),
        *_listed("  latent:", [_flow(names) for names in latent if len(names) > 1]),
    ]
    if graph.by_ranges:
        sections.append(f"# no answer: {len(graph.open_pairs)} pairs")
    else:
        sections += [f"# no answer: {_flow(pair)}" for pair in graph.open_pairs]
    return "\n".join([*sections, ""])


def _node_of(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: group for group, names in groups.items() for name in names}


def _whole_groups(graph: CausalGraph) -> dict[str, tuple[str, ...]]:
    """Groups whose columns have the same outside links; others fall apart, one after another."""
    groups = dict(graph.groups)
    while True:
        node = _node_of(groups)
        for group, names in groups.items():
            outside = {name for name in graph.nodes if node.get(name) != group}
            if not _is_whole(graph, names, outside):
                del groups[group]
                break
        else:
            return groups


def _is_whole(graph: CausalGraph, names: tuple[str, ...], outside: set[str]) -> bool:
    """Whether a group's columns have the same links to `outside`, and arrows among them."""
    if any(outside & {*pair} and {*pair} - outside for pair in graph.undirected):
        return False
    if {pair for pair in graph.directed if not outside & {*pair}} != set(combinations(names, 2)):
        return False

    def links(name: str) -> tuple[set[str], set[str], list[bool]]:
        effects = {b for a, b in graph.directed if a == name}
        causes = {a for a, b in graph.directed if b == name}
        return effects & outside, causes & outside, [name in members for members in graph.latent]

    return all(links(name) == links(names[0]) for name in names)


def _arrow(cause: str, effect: str) -> str:
    """Short where both names survive the short form, which splits at commas and arrows."""
    if _PLAIN_NAME.fullmatch(cause) and _PLAIN_NAME.fullmatch(effect):
        return _scalar(f"{cause} -> {effect}")
    return f"{{causes: {_flow([cause])}, effects: {_flow([effect])}}}"


def _listed(head: str, items: list[str], *, bullet: str = "- ") -> list[str]:
    if not items:
        return []
    indent = " " * (len(head) - len(head.lstrip()) + (0 if bullet else 2))
    return [head, *(f"{indent}{bullet}{item}" for item in items)]


def _flow(names: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, names))}]"


def _scalar(text: str) -> str:
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise GraphFileError(
            f"YAML cannot write the name {text!r}: half of a character", hint="rename the column"
        )
    return yaml.dump(text, default_style='"', allow_unicode=True, width=10**9).strip()


def read_tetrad(text: str, *, file: str) -> CausalGraph:
    draft, section = GraphDraft(file), ""
    for number, line in enumerate(text.split("\n"), start=1):
        place = (number, len(line) - len(line.lstrip()) + 1)
        head = _SECTION.fullmatch(line.strip())
        if head:
            section = head[1].strip()
        elif not line.strip():
            continue
        elif section == "Graph Nodes":
            parting = ";" if ";" in line else ","  # else a comma is part of a name
            for written in filter(None, map(str.strip, line.split(parting))):
                marked = written[0] + written[-1] in ("()", "[]")
                unseen = {"latent": "1"} if marked and written[0] == "(" else {}
                draft.add(written[1:-1] if marked else written, unseen, place=place)
        elif section == "Graph Edges":
            _read_link(line, draft, place=place)
        elif not section:
            raise draft.wrong(place, f"got {line.strip()!r}, which is no graph", HINT)
    if section == "":
        raise draft.wrong((1, 1), "holds no graph", HINT)
    return draft.graph()


def _read_link(line: str, draft: GraphDraft, *, place: Place) -> None:
    number = _NUMBER.match(line)
    match = _MARK.search(line, number.end()) if number else None
    behind = _BEHIND.search(line, match.end()) if match else None
    end = behind.start() if behind else len(line)
    if number is None or match is None or not _ALL_BEHIND.fullmatch(line, end):
        hint = f"such as  1. a --> b; links are {', '.join(LINKS)}"
        raise draft.wrong(place, f"got {line.strip()!r} where a link must stand", hint)
    at = (place[0], match.start(1) + 1)
    mark = LINKS.get(match[1], match[1])
    if mark not in (*LINKS.values(), *CIRCLES):
        raise draft.wrong(at, f"a link {mark}", f"links are {', '.join(LINKS)}")
    ends = (line[number.end() : match.start()].strip(), line[match.end() : end].strip())
    draft.join(ends, {}, mark=mark, place=at)


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
GRAPH_HINT = (
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
        raise mistake(file, place, f"this is not JSON: {error.msg}", hint=GRAPH_HINT) from None
    except ValueError as error:
        raise mistake(file, None, str(error), hint=GRAPH_HINT) from None
    if not isinstance(data, dict):
        raise mistake(file, None, "this is no graph: it is no map of names", hint=GRAPH_HINT)
    if "directed" in data or "links" in data:
        return _node_link(data, file)
    try:
        return CausalGraph.from_json(data)
    except SynthdpError as error:
        raise mistake(file, None, error.message, hint=error.hint or GRAPH_HINT) from None


def _node_link(data: Mapping[str, Any], file: str) -> CausalGraph:
    links = "links" if "links" in data else "edges"
    directed = data.get("directed")
    if not isinstance(directed, bool):
        raise mistake(file, None, "does not say whether it is directed", hint=GRAPH_HINT)
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
        raise mistake(file, None, f"has no list {key!r}", hint=GRAPH_HINT)
    for i, told in enumerate(listed, start=1):
        if not isinstance(told, dict):
            raise mistake(file, None, f"{key} #{i} is no map of names", hint=GRAPH_HINT)
        names = list(map(told.get, needed))
        if not all(isinstance(n, str | int) and not isinstance(n, bool) for n in names):
            raise mistake(file, None, f"{key} #{i} has no {what}", hint=GRAPH_HINT)
        plain = {k.lower(): v for k, v in told.items() if isinstance(v, str | int | float)}
        texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in plain.items()}
        yield tuple(map(str, names)), texts
