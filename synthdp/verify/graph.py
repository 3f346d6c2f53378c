"""The checks of a bundle's graph: its arrows, what released tables say of them, and its picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from synthdp.bundle.metadata.readme import graph_title
from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.measuring import MAX_CELLS
from synthdp.graph.implications import MAX_TABLES, Implication, claimed
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.prediction.search import prediction_order
from synthdp.graph.validation import STATUSES
from synthdp.spec.model import Graph, ReleaseSpec
from synthdp.verify.reader import Reader

ACTIVE_SVG = re.compile(
    r"<script|<!DOCTYPE|<!ENTITY|<foreignObject|\son\w+\s*=|javascript:|(href|src)\s*=\s*[\"'](?!#)",
    re.IGNORECASE,
)
CLAIM_KINDS = ("arrow", "independence")


def check_graph(reader: Reader) -> Iterator[str]:
    """The graph is over the spec's columns and without cycles, and the picture runs no code.

    Where the spec gives the graph, its arrows are those of the spec. In mode predict they go along
    the spec's order.
    """
    spec, columns = reader.spec, list(reader.spec.modelled)
    content = reader.json("graph.json")
    if isinstance(content, dict) and content.get("nodes", columns) != columns:
        yield "graph.json: its nodes are not the spec's columns"
        return
    graph = CausalGraph.from_json(content)
    given = CausalGraph.from_spec(spec.graph, tuple(columns))
    if spec.graph.mode in ("none", "given") and set(graph.edges) != set(given.edges):
        yield "graph.json: its arrows are not the spec's"
    if spec.graph.mode == "predict":
        yield from _order_problems(graph, spec)
    open_pairs = Knowledge.from_spec(spec.graph, tuple(columns)).undecided_pairs()
    marked = spec.graph.mode == "learn" and spec.graph.unseen_causes and bool(open_pairs)
    if (graph.pag is not None) != marked:
        has, asks = ("no", "asks") if marked else ("a", "does not ask")
        yield f"graph.json: has {has} pag, and the spec's graph.unseen_causes {asks} for one"
    yield from _validation_problems(content.get("validation"), graph, reader)
    picture = reader.text("graph.svg")
    if picture != graph.to_svg(title=graph_title(spec)):
        active = ACTIVE_SVG.search(picture)
        what = "holds a script, an entity or a link" if active else "does not show graph.json"
        yield f"graph.svg: {what}"


def _order_problems(graph: CausalGraph, spec: ReleaseSpec) -> Iterator[str]:
    """Links of mode predict that are no arrows of prediction along the spec's order."""
    if any(e.provenance != "predictive" or not e.directed for e in graph.edges):
        yield "graph.json: a link is no arrow of prediction, and the spec's graph mode is predict"
    if graph.groups or graph.latent:
        yield "graph.json: has groups or unseen causes, which graph mode predict does not know"
    order = prediction_order(spec.graph, tuple(spec.modelled), spec.evaluation.targets)
    place = {name: i for i, name in enumerate(order)}
    backward = [e for e in graph.edges if place[e.cause] > place[e.effect]]
    yield from (
        f"graph.json: the arrow {e.cause} -> {e.effect} goes back in the spec's order"
        for e in backward[:1]
    )


def _validation_problems(stated: Any, graph: CausalGraph, reader: Reader) -> Iterator[str]:
    """The validation of a given graph fits the graph: claims, counts and marks on the arrows.

    Each claim is one that the spec's graph makes, and there is one claim for each pair.
    """
    settings, columns = reader.spec.graph, tuple(reader.spec.modelled)
    if (stated is not None) != (settings.mode == "validate"):
        yield (
            f"graph.json: has {'no' if stated is None else 'a'} validation, and the spec's graph"
            f" mode is {settings.mode}"
        )
    if stated is None or settings.mode != "validate":
        return
    given = CausalGraph.from_spec(settings, columns)
    claims = [Implication(f["x"], f["y"], tuple(f["given"]), f["kind"]) for f in stated["findings"]]
    kinds = [claim.kind for claim in claims]
    known = all(kind in CLAIM_KINDS for kind in kinds)
    if not known or kinds.count("independence") > MAX_TABLES:
        yield "graph.json: validation: holds more claims than are tested, or one of no kind"
        return
    domain = Domain.from_spec(reader.spec.columns)
    distinct = len({frozenset((c.x, c.y)) for c in claims}) == len(claims)
    if not distinct or not all(claimed(given, c, domain, max_cells=MAX_CELLS) for c in claims):
        yield (
            "graph.json: validation: holds a claim twice, or one that the spec's graph does not"
            " make"
        )
    statuses = [(f["kind"], f["status"]) for f in stated["findings"]]
    counts = {kind: {s: statuses.count((kind, s)) for s in STATUSES} for kind in CLAIM_KINDS}
    if stated["counts"] != counts:
        yield "graph.json: validation: its counts are not those of its findings"
    if settings.on_refuted == "fail" and any(status == "refuted" for _, status in statuses):
        yield "graph.json: validation: a claim is refuted, which the spec says withholds the bundle"
    if {e.pair: e.provenance for e in graph.edges} != _marked_arrows(stated, given, settings):
        yield "graph.json: its arrows are not marked as its validation found them"


def _marked_arrows(stated: Any, given: CausalGraph, settings: Graph) -> dict[Pair, str]:
    """The arrows that the graph must have after its validation, with their provenance."""
    arrows = {(f["x"], f["y"]): f["status"] for f in stated["findings"] if f["kind"] == "arrow"}
    marked = {pair: arrows.get(pair, "given") for pair in given.directed}
    if settings.on_refuted != "drop":
        return marked
    return {pair: status for pair, status in marked.items() if status != "refuted"}
