"""Graphs in JSON: the `graph.json` of a bundle, and networkx' node-link form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from synthdp import files as untrusted
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.mistakes import GraphFileError, mistake

HINT = (
    "expected a bundle's graph.json, with nodes, edges, groups and latent; or networkx' node-link"
    " form, with directed, nodes, and links or edges"
)


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


def write_json(graph: CausalGraph) -> str:
    """A graph as the `graph.json` of a bundle."""
    return json.dumps(graph.to_json(), indent=1, ensure_ascii=False) + "\n"


def _node_link(data: Mapping[str, Any], file: str) -> CausalGraph:
    links = "links" if "links" in data else "edges"
    directed = data.get("directed")
    if not isinstance(directed, bool):
        raise mistake(file, None, "does not say whether it is directed", hint=HINT)
    draft = GraphDraft(file)
    for i, told in _entries(data, "nodes", file):
        if not _is_name(told.get("id")):
            raise _wrong(file, "nodes", i, "has no id: a text or a number")
        draft.add(str(told["id"]), _attributes(told))
    for i, told in _entries(data, links, file):
        ends = (told.get("source"), told.get("target"))
        if not all(map(_is_name, ends)):
            raise _wrong(file, links, i, "has no source or no target: a node's id")
        mark = "->" if directed else "--"
        draft.join((str(ends[0]), str(ends[1])), _attributes(told), mark=mark)
    return draft.graph()


def _entries(data: Mapping[str, Any], key: str, file: str) -> list[tuple[int, Mapping[str, Any]]]:
    listed = data.get(key)
    if not isinstance(listed, list):
        raise mistake(file, None, f"has no list {key!r}", hint=HINT)
    wrong = next((i for i, told in enumerate(listed) if not isinstance(told, dict)), None)
    if wrong is not None:
        raise _wrong(file, key, wrong, "is no map of names")
    return list(enumerate(listed))


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _attributes(told: Mapping[str, Any]) -> dict[str, str]:
    """What is told in texts, numbers and truth values; true is `true`."""
    plain = {k.lower(): v for k, v in told.items() if isinstance(v, str | int | float)}
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in plain.items()}


def _wrong(file: str, key: str, entry: int, message: str) -> GraphFileError:
    return mistake(file, None, f"{key} #{entry + 1} {message}", hint=HINT)
