"""Graphs in the formats of other programs: read by file name, written by format name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from synthdp import files as untrusted
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.bif import parse_bif
from synthdp.graph.formats.dot import read_dot, write_dagitty, write_dot
from synthdp.graph.formats.draft import GraphFileError, mistake
from synthdp.graph.formats.edgelist import read_yaml, write_yaml

__all__ = ["READERS", "SUFFIXES", "WRITERS", "GraphFileError", "read_graph", "read_text"]


def read_json(text: str, *, file: str) -> CausalGraph:
    """The graph of a bundle's `graph.json`.

    Raises:
        GraphFileError: with file and line.
    """
    try:
        return CausalGraph.from_json(untrusted.parse_json(text))
    except json.JSONDecodeError as error:
        raise mistake(
            file,
            error.lineno,
            f"this is not JSON: {error.msg}",
            hint="expected a bundle's graph.json",
        ) from None
    except (SynthdpError, ValueError) as error:
        raise mistake(file, None, str(error)) from None


def write_json(graph: CausalGraph) -> str:
    """A graph as the `graph.json` of a bundle."""
    return json.dumps(graph.to_json(), indent=1, ensure_ascii=False) + "\n"


def _read_network(text: str, *, file: str) -> CausalGraph:
    """The graph of a Bayesian network in BIF.

    Raises:
        GraphFileError: with file and line.
    """
    try:
        return parse_bif(text, file=file).graph()
    except SynthdpError as error:
        raise GraphFileError(error.message, hint=error.hint) from None


READERS: dict[str, Callable[..., CausalGraph]] = {
    "yaml": read_yaml,
    "dot": read_dot,
    "dagitty": read_dot,
    "json": read_json,
    "bif": _read_network,
}
"""By format: (text, file=name) -> graph."""

WRITERS: dict[str, Callable[[CausalGraph], str]] = {
    "yaml": write_yaml,
    "dot": write_dot,
    "dagitty": write_dagitty,
    "json": write_json,
    "svg": CausalGraph.to_svg,
}
"""By format: graph -> text. BIF, which holds tables, is only read."""

SUFFIXES = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".dot": "dot",
    ".gv": "dot",
    ".dagitty": "dagitty",
    ".dag": "dagitty",
    ".json": "json",
    ".bif": "bif",
}
"""The format of a file by its suffix."""


def read_graph(path: Path) -> CausalGraph:
    """The graph of a file (its format by its suffix), or of a bundle's folder.

    Raises:
        GraphFileError, SpecError: with file, line and what is allowed.

    >>> read_graph(Path("releases/clinic/bundle")).directed
    (('age', 'smoker'), ('sex', 'smoker'))
    """
    path = path / "graph.json" if path.is_dir() else path
    if path.suffix.lower() not in SUFFIXES:
        raise mistake(
            str(path),
            None,
            "the format is told by the file's name, and this one tells none",
            hint=f"one of {', '.join(SUFFIXES)}",
        )
    return READERS[SUFFIXES[path.suffix.lower()]](read_text(path), file=str(path))


def read_text(path: Path) -> str:
    """A graph file's text.

    Raises:
        GraphFileError: it cannot be read, is no plain file, too large, or not UTF-8.
    """
    try:
        return untrusted.read_text(path)
    except OSError as error:
        raise mistake(
            str(path), None, f"cannot be read: {error.strerror}", hint="check the path"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise mistake(str(path), line, "is not UTF-8 text", hint="save it as UTF-8") from None
    except ValueError as error:
        raise mistake(
            str(path), None, str(error), hint="give a plain file that holds one graph"
        ) from None
