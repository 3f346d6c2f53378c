"""Tetrad's text, which causal-learn writes too: `Graph Nodes:`, `Graph Edges:`, numbered links.

A node in parentheses is unseen; one in brackets is a column on which rows were selected. Sections
about scores and triples say nothing of links, and are passed over.
"""

from __future__ import annotations

import re

from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft
from synthdp.graph.formats.meaning import CIRCLES
from synthdp.graph.formats.mistakes import mistake

LINKS = {"-->": "->", "<--": "<-", "---": "--", "<->": "<->"}
HINT = "expected  Graph Nodes:  with a;b;c below it, and  Graph Edges:  with  1. a --> b"
_SECTION = re.compile(r"([A-Z][A-Za-z ]*+)(?:\([^()]*+\))?+:")
_NUMBER = re.compile(r"\s*+\d++\.\s")
_MARK = re.compile(r"\s([-<o]-[->o])\s")
_BEHIND = re.compile(r"\s(?:(?:dd|nl|pd|pl)\b|\[)")  # properties in a PAG, and shares of resamples
_ALL_BEHIND = re.compile(r"(?:\s|dd\b|nl\b|pd\b|pl\b)*+(?:\[.*)?+")


def read_tetrad(text: str, *, file: str) -> CausalGraph:
    """Read a graph in Tetrad's text.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
    """
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
            raise mistake(file, place, f"got {line.strip()!r}, which is no graph", hint=HINT)
    if section == "":
        raise mistake(file, (1, 1), "holds no graph", hint=HINT)
    return draft.graph()


def _read_link(line: str, draft: GraphDraft, *, place: tuple[int, int]) -> None:
    number = _NUMBER.match(line)
    match = _MARK.search(line, number.end()) if number else None
    behind = _BEHIND.search(line, match.end()) if match else None
    end = behind.start() if behind else len(line)
    if number is None or match is None or not _ALL_BEHIND.fullmatch(line, end):
        raise mistake(
            draft.file,
            place,
            f"got {line.strip()!r} where a link must stand",
            hint=f"such as  1. a --> b; links are {', '.join(LINKS)}",
        )
    at = (place[0], match.start(1) + 1)
    mark = LINKS.get(match[1], match[1])
    if mark not in (*LINKS.values(), *CIRCLES):
        raise mistake(draft.file, at, f"a link {mark}", hint=f"links are {', '.join(LINKS)}")
    ends = (line[number.end() : match.start()].strip(), line[match.end() : end].strip())
    draft.join(ends, {}, mark=mark, place=at)
