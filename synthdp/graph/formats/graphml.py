"""GraphML, as networkx, igraph and yEd write it.

A file is a stranger's: defusedxml parses it, which refuses entities and declarations of types.
Reference: graphml.graphdrawing.org.
"""

from __future__ import annotations

from io import StringIO
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

from synthdp.errors import OutputError, install
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.mistakes import GraphFileError, Place, mistake


def read_graphml(text: str, *, file: str) -> CausalGraph:
    """Read a graph in GraphML.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
        OutputError: defusedxml is not installed.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.sax import parse
    except ImportError:
        raise OutputError("graphs in XML need defusedxml", hint=install("codebook")) from None
    reader = _Reader(file)
    try:
        parse(StringIO(text), reader, forbid_dtd=True)
    except SAXParseException as error:
        place = (error.getLineNumber() or 1, (error.getColumnNumber() or 0) + 1)
        raise mistake(
            file, place, f"this is not XML: {error.getMessage()}", hint="expected GraphML"
        ) from None
    except DefusedXmlException:
        raise mistake(
            file,
            None,
            "declares types or entities, which are not read",
            hint="take the DOCTYPE out of the file",
        ) from None
    if not reader.begun:
        raise mistake(file, None, "holds no graph", hint="expected GraphML: graphml, graph, node")
    return reader.draft.graph()


class _Reader(ContentHandler):
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
