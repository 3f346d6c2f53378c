"""GML, as networkx, DoWhy, igraph and yEd write it.

A node's name is its label, else its identifier. What an edge's arrows say counts, also inside
`graphics`, where yEd has them. Reference: M. Himsolt, GML: a portable graph file format.
"""

from __future__ import annotations

import html

from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.meaning import TRUE
from synthdp.graph.formats.mistakes import Place
from synthdp.graph.formats.tokens import Cursor, Language

# DoWhy writes `directed 1node [`: a number ends where a key begins.
GML = Language(
    skip=r"\#[^\n]*+",
    text=r'"[^"]*+"',
    mark=r"[\[\]]",
    word=r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)? | [A-Za-z_]\w*+",
    unquote=lambda text: html.unescape(text[1:-1]),
    touching=True,
)
MAX_NESTED = 50  # lists in each other
YED_ARROWS = {"sourcearrow": "arrowtail", "targetarrow": "arrowhead"}
PLAIN = {"dir": "both", "arrowtail": "none", "arrowhead": "none"}  # yEd, where it says no arrow
WAYS = {"first": "back", "last": "forward", "both": "both", "none": "none"}


def read_gml(text: str, *, file: str) -> CausalGraph:
    """Read a graph in GML.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
    """
    return _Reader(text, file=file, language=GML).graph()


class _Entry(dict[str, str]):
    """The attributes of a node or an edge, those of lists inside among them, and its place."""

    place: Place


class _Reader(Cursor):
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
                (nodes if self.token.says("node") else edges).append(self.entry())
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

    def entry(self) -> _Entry:
        entry = _Entry()
        entry.place = self.take().place
        self.list_of(entry, 0)
        return entry

    def list_of(self, told: dict[str, str], depth: int) -> None:
        self.expect("[")
        if depth > MAX_NESTED:
            raise self.wrong("lists are nested too deeply", hint=f"at most {MAX_NESTED}")
        while not self.take_mark("]"):
            self.key_and_value(told, depth)

    def key_and_value(self, told: dict[str, str], depth: int) -> None:
        """Take `key value`; a list's keys are told as if they stood outside it."""
        if self.token.kind != "word" or not self.token.text[0].isalpha():
            raise self.wrong(f"got {self.token.text!r} where a key must stand")
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
