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
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any

import yaml
from pydantic import ConfigDict, Field, ValidationError

from synthdp.errors import SpecError, SpecProblem, SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import CIRCLES, GraphDraft
from synthdp.graph.formats.tokens import GraphFileError, Place
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

    model_config = ConfigDict(frozen=True, extra="forbid")
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
