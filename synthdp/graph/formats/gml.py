"""GML by networkx. Links carry `kind` (directed or undirected) and `provenance`; an unseen common
cause is a node with `latent 1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import networkx as nx

from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import GraphDraft, mistake, unseen_names

HINT = (
    'expected  graph [ directed 1 node [ id 0 label "a" ] node [ id 1 label "b" ] edge [ source 0'
    " target 1 ] ]"
)

MAX_QUOTED = 200  # characters


def read_gml(text: str, *, file: str) -> CausalGraph:
    """Read a graph; nodes go by their labels. Links of an undirected graph have no direction.

    Raises:
        GraphFileError: with file, and with the line where networkx tells it.
    """
    try:
        network = nx.parse_gml(text, label="label")
    except nx.NetworkXError as error:
        place = re.search(r" at \((\d+), \d+\)$", str(error))
        said = re.sub(
            r" at \(\d+, \d+\)$", "", str(error)
        )  # it may quote all that is left of the file
        raise mistake(
            file, int(place[1]) if place else None, said[:MAX_QUOTED], hint=HINT
        ) from None
    except RecursionError:
        raise mistake(file, None, "is nested too deeply", hint=HINT) from None
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:  # what networkx raises on values that are none
        raise mistake(
            file, None, f"is no graph ({type(error).__name__}: {str(error)[:100]})", hint=HINT
        ) from None
    if network.is_multigraph():
        raise mistake(
            file,
            None,
            "a multigraph may hold several links between two nodes",
            hint="one link for each pair: delete `multigraph 1`",
        )
    draft = GraphDraft(file)
    places: dict[str, list[tuple[int, str]]] = {}
    for label, data in network.nodes(data=True):
        draft.node(str(label))
        if data.get("latent") == 1:
            draft.unseen(str(label), line=None)
        if "group" in data:
            places.setdefault(str(data["group"]), []).append((_position(data, file), str(label)))
    draft.groups = {
        group: [label for _, label in sorted(members, key=lambda m: m[0])]
        for group, members in places.items()
    }
    for a, b, data in network.edges(data=True):
        directed = network.is_directed() and data.get("kind") != "undirected"
        draft.link(
            str(a), str(b), directed=directed, line=None, provenance=str(data.get("provenance", ""))
        )
    return draft.graph()


def _position(data: Mapping[str, Any], file: str) -> int:
    position = data.get("group_position", 0)
    if not isinstance(position, int):
        raise mistake(
            file, None, f"group_position {str(position)[:100]!r} is no whole number", hint=HINT
        )
    return position


def write_gml(graph: CausalGraph) -> str:
    """A graph as GML text; every name can be written."""
    network = nx.DiGraph()
    inside = {
        n: {"group": group, "group_position": i}
        for group, names in graph.groups.items()
        for i, n in enumerate(names)
    }
    for name in graph.nodes:
        network.add_node(name, **inside.get(name, {}))
    for edge in graph.edges:
        network.add_edge(
            edge.cause,
            edge.effect,
            kind="directed" if edge.directed else "undirected",
            provenance=edge.provenance,
        )
    for unseen, names in unseen_names(graph, graph.latent).items():
        network.add_node(unseen, latent=1)
        network.add_edges_from(((unseen, name) for name in names), kind="directed")
    return "\n".join(nx.generate_gml(network)) + "\n"
