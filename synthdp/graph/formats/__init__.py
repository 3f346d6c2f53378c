"""Graphs in the formats of other programs: read by file name, written by format name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from synthdp import files as untrusted
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats import edgelist
from synthdp.graph.formats.bif import read_bif
from synthdp.graph.formats.dot import read_dot, write_dagitty, write_dot
from synthdp.graph.formats.draft import GraphFileError, mistake
from synthdp.spec.addresses import home
from synthdp.spec.load.loader import with_lists

__all__ = ["READERS", "SUFFIXES", "WRITERS", "GraphFileError", "read_graph", "read_text"]


READERS: dict[str, Callable[..., CausalGraph]] = {
    "yaml": edgelist.read_yaml,
    "dot": read_dot,
    "dagitty": read_dot,
    "json": edgelist.read_json,
    "bif": read_bif,
    "gml": edgelist.read_gml,
    "graphml": edgelist.read_graphml,
    "tetrad": edgelist.read_tetrad,
}
"""By format: (text, file=name) -> graph, or `GraphFileError` with file, line, column and what is
allowed.
"""

WRITERS: dict[str, Callable[[CausalGraph], str]] = {
    "yaml": edgelist.write_yaml,
    "dot": write_dot,
    "dagitty": write_dagitty,
    "json": lambda graph: json.dumps(graph.to_json(), indent=1, ensure_ascii=False) + "\n",
    "svg": CausalGraph.to_svg,
}
"""By format: graph -> text. The others are only read."""

SHORT = {".yml": "yaml", ".gv": "dot", ".dag": "dagitty", ".txt": "tetrad"}
SUFFIXES = {f".{name}": name for name in READERS} | SHORT
"""The format of a file by its suffix."""


def read_graph(path: Path, *, lists: bool = False) -> CausalGraph:
    """The graph of a file (its format by its suffix), or of a bundle's folder.

    With `lists`, a spec is a steward's own, whose lists may lie in files.

    Raises:
        GraphFileError, SpecError: with file, line and what is allowed.

    >>> read_graph(Path("releases/clinic/bundle")).directed
    (('age', 'smoker'), ('sex', 'smoker'))
    """
    path = path / "graph.json" if path.is_dir() else path
    if path.suffix.lower() not in SUFFIXES:
        message = "the format is told by the file's name, and this one tells none"
        raise mistake(str(path), None, message, hint=f"one of {', '.join(SUFFIXES)}")
    form, text = SUFFIXES[path.suffix.lower()], read_text(path)
    if lists and form == "yaml":
        text = with_lists(text, path=str(path), folder=home(path))
    return READERS[form](text, file=str(path))


def read_text(path: Path) -> str:
    """A graph file's text.

    Raises:
        GraphFileError: it cannot be read, is no plain file, too large, or not UTF-8.
    """
    try:
        return untrusted.read_text(path).removeprefix("\ufeff")  # Windows' editor writes it
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise mistake(str(path), None, message, hint="check the path") from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        place = (before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise mistake(str(path), place, "is not UTF-8 text", hint="save it as UTF-8") from None
    except ValueError as error:
        hint = "give a plain file that holds one graph"
        raise mistake(str(path), None, str(error), hint=hint) from None
